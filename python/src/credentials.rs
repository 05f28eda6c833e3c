//! The provider of logins: the function of the client option `credentials`, and the calls of it.
//!
//! The engine asks for a login in the background, which never enters the interpreter. So a call waits in an *inbox*
//! until a thread of `redlock._credentials` takes it, calls the function and answers.
//!
//! - One thread waits for calls. While it calls the function, a second one stands by, and ends if the first returns in
//!   time. If the engine has given that call up, the second thread serves the next one. There are never more than two.
//!   While both of them hang, further calls are given up too, until one returns.
//! - Only Python starts threads. A thread that Rust starts would enter the main interpreter, which may be another one.
//!   So a call on a lock, which may need a login, first starts a thread if there is none. It does not run code of
//!   Python for that. The caller's thread may be a daemon, and the end of the interpreter unwinds a daemon that runs
//!   such code. Rust below it aborts the process.
//! - Clients and locks keep the function, and the inbox does not. So the garbage collector finds a function that leads
//!   back to its client. The exception of a failed call is kept beside the function, because its traceback leads there.
//!
//! What may interrupt it: the client and its locks are collected, or the client is closed and its locks are collected,
//! which ends the threads; a fork, after which the child has an inbox without a thread; the end of the interpreter,
//! during which a waiting thread is detached and never attaches again.

use std::cell::Cell;
use std::mem;
use std::sync::{Arc, Condvar};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};
use redlock::bindings::{Mutex, PerProcess, Pid, ProviderError};
use redlock::{Credentials, Login};
use tokio::sync::oneshot;

use crate::convert::{duration, text, wrong_type};
use crate::error::{OwnException, Raised, invalid};

/// The most threads of one provider: one that waits for calls, and one in a call.
const THREADS_MOST: usize = 2;

thread_local! {
    /// The inbox whose call this thread serves, by its address; zero if it serves none.
    static SERVED: Cell<usize> = const { Cell::new(0) };
}

/// The place for the answer to a call. It is closed if the engine has given the call up.
type Answer = oneshot::Sender<Result<Login, ProviderError>>;

/// The function of one client.
#[pyclass(frozen, weakref, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Provider {
    function: Py<PyAny>,
    inbox: Arc<Inbox>,
    failure: Mutex<Failure>,
}

/// The exception of the last call, and its number.
#[derive(Debug, Default)]
struct Failure {
    number: u64,
    exception: Option<Py<PyAny>>,
}

impl Provider {
    /// Makes the provider for the option `credentials`.
    pub(crate) fn new<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        if !given.is_callable() {
            return wrong_type("credentials", "credentials", given, "a function that returns (user, password)");
        }
        let (inbox, failure) = Default::default();
        Bound::new(given.py(), Self { function: given.clone().unbind(), inbox, failure })
    }

    /// Returns the half that the engine calls.
    pub(crate) fn caller(&self) -> Caller {
        Caller(Arc::clone(&self.inbox))
    }

    /// Prepares for a call on a lock, which may need a login: starts a thread if there is none. Fails on the thread
    /// that calls the function, because the call would wait for a login, and so for itself.
    pub(crate) fn prepare(slf: &Bound<'_, Self>) -> Result<(), Raised> {
        static START: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static BEGIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, inbox) = (slf.py(), &slf.get().inbox);
        if SERVED.get() == inbox.address() {
            let message = "a credentials provider cannot use a lock of its own client; use another client";
            return Err(Raised::Exception(invalid(py, "credentials", message.to_owned())));
        }
        let Some(number) = inbox.local().add_thread(1) else { return Ok(()) };
        let thread = Thread::new(PyWeakrefReference::new(slf)?.unbind(), inbox, number);
        let begin = BEGIN.import(py, "redlock._credentials", "begin")?;
        START.import(py, "redlock._credentials", "start_new_thread")?.call1((begin, (thread,)))?;
        Ok(())
    }

    /// Keeps the exception of a failed call, or none, instead of the one before. Returns its number.
    fn keep(&self, exception: Option<Py<PyAny>>) -> u64 {
        let mut failure = self.failure.lock();
        failure.number += 1;
        let (former, number) = (mem::replace(&mut failure.exception, exception), failure.number);
        drop(failure);
        // This may run any code of the program.
        drop(former);
        number
    }
}

#[pymethods]
impl Provider {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.failure.lock().exception)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.inbox.local().close();
    }
}

/// The half of a provider that the engine calls. The garbage collector cannot see it, so it does not keep the function.
#[derive(Debug)]
pub(crate) struct Caller(Arc<Inbox>);

impl Credentials for Caller {
    type Error = ProviderError;

    async fn login(&self) -> Result<Login, ProviderError> {
        let (answer, answered) = oneshot::channel();
        self.0.local().put(answer);
        answered.await.unwrap_or_else(|_| {
            let shown = "no thread of this process calls the credentials provider".to_owned();
            Err(ProviderError::named("its thread does not run", OwnException::new(shown, |_| None)))
        })
    }
}

/// The calls of one provider that wait for a thread.
#[derive(Debug, Default)]
struct Inbox(PerProcess<ProcessLocal>);

#[derive(Debug, Default)]
struct ProcessLocal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The call that no thread has taken. There is one at a time.
    call: Option<Answer>,
    threads: usize,
    /// The number of the last thread that was started.
    last: u64,
    /// The thread that waits for the next call.
    waiting: Option<u64>,
    closed: bool,
}

impl Inbox {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn local(&self) -> &ProcessLocal {
        self.0.of(Pid::now(), ProcessLocal::default)
    }
}

impl ProcessLocal {
    /// Leaves a call for a thread. Drops it if there is none.
    fn put(&self, answer: Answer) {
        let mut state = self.state.lock();
        if !state.closed && state.threads > 0 {
            state.call = Some(answer);
            self.changed.notify_all();
        }
    }

    /// Counts one more thread if there are fewer than `most`. Returns its number.
    fn add_thread(&self, most: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.closed || state.threads >= most {
            return None;
        }
        state.threads += 1;
        state.last += 1;
        Some(state.last)
    }

    fn remove_thread(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        if state.threads == 0 {
            state.call = None;
        }
    }

    /// Waits for a call. Returns `None` if the thread is to end, because another one waits or the provider is gone.
    /// `is_back` is for a thread that has answered in time: the thread that stood by makes way for it.
    fn take(&self, thread: u64, is_back: bool) -> Option<Answer> {
        let mut state = self.state.lock();
        if is_back {
            state.waiting = Some(thread);
            self.changed.notify_all();
        }
        loop {
            if state.closed || *state.waiting.get_or_insert(thread) != thread {
                return None;
            }
            if let Some(answer) = state.call.take().filter(|answer| !answer.is_closed()) {
                state.waiting = None;
                return Some(answer);
            }
            state = self.changed.wait(state).expect("no panic while holding this");
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.call = None;
        self.changed.notify_all();
    }
}

/// The native half of a thread that calls a provider's function.
#[pyclass(frozen, name = "CredentialsThread", module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Thread {
    /// A strong one would keep the client.
    provider: Py<PyWeakrefReference>,
    inbox: Arc<Inbox>,
    pid: Pid,
    number: u64,
    turn: Mutex<Turn>,
}

/// The state of a thread: in a call or between two.
#[derive(Debug, Default)]
struct Turn {
    answer: Option<Answer>,
    /// Whether it has answered the last call in time.
    is_back: bool,
    has_ended: bool,
}

impl Thread {
    fn new(provider: Py<PyWeakrefReference>, inbox: &Arc<Inbox>, number: u64) -> Self {
        Self { provider, inbox: Arc::clone(inbox), pid: Pid::now(), number, turn: Mutex::default() }
    }

    fn provider<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Provider>> {
        self.provider.bind(py).upgrade_as().ok().flatten()
    }

    /// Ends the call with a login, or with an exception and the part of it that messages show.
    fn end_call(&self, py: Python<'_>, result: Result<Login, (String, Py<PyAny>)>) {
        SERVED.set(0);
        let answer = self.turn.lock().answer.take();
        let (Some(provider), Some(answer)) = (self.provider(py), answer.filter(|answer| !answer.is_closed())) else {
            return;
        };
        let result = match result {
            Ok(login) => {
                provider.get().keep(None);
                Ok(login)
            }
            Err((shown, exception)) => {
                let number = provider.get().keep(Some(exception));
                let provider = self.provider.clone_ref(py);
                let shown_as = format!("the credentials provider failed: {shown}");
                let source = OwnException::new(shown_as, move |py| exception_of(&provider, number, py));
                Err(ProviderError::named(&shown, source))
            }
        };
        let is_back = answer.send(result).is_ok();
        self.turn.lock().is_back = is_back;
    }

    /// Stops counting this thread. A fork in the function leaves the count to the parent.
    fn end(&self) {
        if !mem::replace(&mut self.turn.lock().has_ended, true) && self.pid == Pid::now() {
            self.inbox.local().remove_thread();
        }
    }
}

#[pymethods]
impl Thread {
    /// Wait for a call. Return the function to call, or `None` if this thread is to end.
    fn take(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let is_back = mem::take(&mut self.turn.lock().is_back);
        let take = || if self.pid == Pid::now() { self.inbox.local().take(self.number, is_back) } else { None };
        let answer = py.detach(take);
        let Some((answer, provider)) = answer.zip(self.provider(py)) else {
            self.end();
            return None;
        };
        self.turn.lock().answer = Some(answer);
        SERVED.set(self.inbox.address());
        Some(provider.get().function.clone_ref(py))
    }

    /// Make a thread that takes the next call if the engine gives up the present one; `None` if there is one already.
    fn stand_by(&self, py: Python<'_>) -> Option<Self> {
        let number = self.inbox.local().add_thread(THREADS_MOST)?;
        Some(Self::new(self.provider.clone_ref(py), &self.inbox, number))
    }

    /// End the call with the function's result.
    fn answer(&self, returned: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = returned.py();
        let result = match login(returned) {
            Ok(login) => Ok(login),
            Err(exception) => {
                let shown = format!("{}: {}", exception.get_type(py).name()?, exception.value(py));
                Err((shown, exception.into_value(py).into_any()))
            }
        };
        self.end_call(py, result);
        Ok(())
    }

    /// End the call with the exception that the function has raised.
    fn fail(&self, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let shown = exception.get_type().name()?.to_string();
        self.end_call(exception.py(), Err((shown, exception.clone().unbind())));
        Ok(())
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Converts what the function returned. Error messages show neither the user nor the password.
fn login(returned: &Bound<'_, PyAny>) -> PyResult<Login> {
    const WANTED: &str = "a tuple (user, password) or (user, password, seconds)";
    let what = "the result";
    let Ok(returned) = returned.cast::<PyTuple>() else { return wrong_type("credentials", what, returned, WANTED) };
    let count = returned.len();
    if !(2..=3).contains(&count) {
        let message = format!("{what} is a tuple of {count}, but must be {WANTED}");
        return Err(invalid(returned.py(), "credentials", message));
    }
    let item = |index, what| text("credentials", what, &returned.get_item(index)?, "a str");
    let (user, password) = (item(0, "the user")?, item(1, "the password")?);
    if password.is_empty() {
        return Err(invalid(returned.py(), "credentials", String::from("the password is empty")));
    }
    let login = Login::new(user, password);
    Ok(if count == 3 { login.lasting(duration("seconds", &returned.get_item(2)?)?) } else { login })
}

/// Returns the exception of the call of this number, unless another one has ended since.
fn exception_of(provider: &Py<PyWeakrefReference>, number: u64, py: Python<'_>) -> Option<PyErr> {
    let provider = provider.bind(py).upgrade_as::<Provider>().ok().flatten()?;
    let failure = provider.get().failure.lock();
    let exception = failure.exception.as_ref().filter(|_| failure.number == number)?.clone_ref(py);
    drop(failure);
    Some(PyErr::from_value(exception.into_bound(py)))
}
