//! Locks: the part that all of them share, and the lock whose calls block.

use std::ffi::CString;
use std::fmt::Write;
use std::sync::Arc;

use pyo3::exceptions::{PyResourceWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use redlock::bindings::Stop;
use redlock::bindings::calls::Taken;
use redlock::bindings::lock_object::{AbandonedHold, LockObject, Timeout};
use redlock::bindings::options::Scope;
use redlock::{Error, ErrorKind};

use crate::call::Call;
use crate::client::Client;
use crate::convert::{self, blocking, own_timeout};
use crate::credentials::Provider;
use crate::ending::detach;
use crate::error::{Raised, to_pyerr};
use crate::events;
use crate::shape::{Given, Title};
use crate::signals::Signals;

/// The part of a lock that blocking and asyncio locks share: the calls that never wait.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) object: Arc<LockObject>,
    title: Title,
    provider: Option<Py<Provider>>,
}

const NOT_MADE_SO: &str =
    "this class is not called; make a lock with redlock.lock(name), or with lock(name) of a client";

impl Handle {
    /// Prepares for a call that may need a login; see [`Provider::prepare`].
    pub(crate) fn prepare(&self, py: Python<'_>) -> Result<(), Raised> {
        self.provider.as_ref().map_or(Ok(()), |provider| Provider::prepare(provider.bind(py)))
    }

    fn warn(&self, py: Python<'_>, stays_held: bool) -> PyResult<()> {
        let what_now = if stays_held {
            "and stays held; keep the object and release it, or use `with`"
        } else {
            "in its block; releasing it"
        };
        let message = format!("lock {} was garbage-collected while held {what_now}", self.title.shown(py)?);
        PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &CString::new(message)?, 1)
    }
}

#[pymethods]
impl Handle {
    // From a client with a name or a shape, and options, which are checked here, or from a lock with the same of all.
    #[new]
    #[pyo3(signature = (source = None, name = None, /, **options))]
    fn new(
        py: Python<'_>,
        source: Option<&Bound<'_, PyAny>>,
        name: Option<Given<'_>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self, Raised> {
        let not_made_so = || Raised::Exception(PyTypeError::new_err(NOT_MADE_SO));
        let source = source.ok_or_else(not_made_so)?;
        if let Ok(lock) = source.cast::<Self>() {
            let Self { object, title, provider } = lock.get();
            let provider = provider.as_ref().map(|provider| provider.clone_ref(py));
            return Ok(Self { object: object.fresh(), title: title.clone_ref(py), provider });
        }
        let client = source.cast::<Client>().map_err(|_| not_made_so())?;
        let given = name.map_or_else(|| py.None().into_bound(py).extract(), Ok)?;
        let is_shared = options.map_or(Ok(false), convert::take_shared)?;
        let lock = given.lock(&client.get().redlock).options(convert::options(options, Scope::Lock)?);
        let lock = if is_shared { lock.sharing() } else { lock };
        let object = LockObject::new(lock)?;
        let title = given.title(py, &object)?;
        Ok(Self { object, title, provider: client.get().provider(py) })
    }

    /// The name, as it was given. Several names are joined with ", "; see `names`.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.title.name.clone_ref(py)
    }

    /// All names, as they were given: sorted and each once. A lock that is not of several names has one.
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.title.names(py)
    }

    /// The slot that a semaphore holds, from 0 to its permits - 1. No other holder has the same.
    ///
    /// `None` before an acquire and after a release, but not for a lost lock, and for locks that are not semaphores.
    #[getter]
    fn slot(&self) -> Option<u32> {
        self.object.slot()
    }

    /// The fence, which is larger than every earlier fence of this name.
    ///
    /// Of several names, it is larger than every earlier fence of each. Of a semaphore, it is larger than those of the
    /// same slot. Send it to the resource with each access, and let the resource reject smaller fences.
    ///
    /// Raises `LockNotHeld` before an acquire and after a release, but not for a lost lock; `LockInvalidArgument` with
    /// `protocol="setnx"`, which has no fences.
    #[getter]
    fn fence(&self) -> Result<u64, Raised> {
        Ok(self.object.fence()?)
    }

    /// Whether the lock is held at this moment. Never raises.
    #[getter]
    fn held(&self) -> bool {
        self.object.held()
    }

    /// Seconds for which the lock is still valid without another extension; 0.0 if it is not held.
    #[getter]
    fn remaining(&self) -> f64 {
        self.object.remaining().as_secs_f64()
    }

    /// Raise an error unless the lock is held at this moment. The call sends nothing.
    ///
    /// Raises `LockLost` with its reason, or `LockNotHeld` before an acquire, after a release and in a forked child.
    fn check(&self) -> Result<(), Raised> {
        Ok(self.object.check()?)
    }

    /// Make a call that reads whose the lock is, and fails if too few nodes answer to know.
    #[pyo3(name = "_view")]
    fn view(&self, py: Python<'_>) -> Result<Call, Raised> {
        self.prepare(py)?;
        Ok(Call::new(self.object.view()?))
    }

    /// Whether the acquire of the present hold, or else the last one that failed, was contended, and how often it waited.
    #[getter(_waited)]
    fn waited(&self) -> Option<(bool, u32)> {
        self.object.waited().map(|waited| (waited.is_contended, waited.waits))
    }

    /// Whether the present hold was acquired for a block, so that the collection of the lock releases it.
    #[getter(_in_block)]
    fn in_block(&self) -> bool {
        self.object.is_in_block()
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __reduce_ex__(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = protocol;
        Err(PyTypeError::new_err(
            "a lock is one holder and cannot be pickled or copied; make another with its name where it is needed",
        ))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let this = slf.get();
        let state = if this.object.held() { "held" } else { "not held" };
        let mut text = format!("<{}.{} {} {state}", class.module()?, class.qualname()?, this.title.shown(slf.py())?);
        if let Some(permits) = this.title.permits {
            write!(text, " permits={permits}").expect("a String takes every text");
        }
        for (option, value) in this.object.given_options() {
            write!(text, " {option}={}", convert::shown(slf.py(), value)?).expect("a String takes every text");
        }
        Ok(text + ">")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.provider)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.object.held() {
            return;
        }
        // The object is dropped behind this, which releases the hold of a block.
        let stays_held = self.object.abandon().map(AbandonedHold::leave).is_some();
        Python::attach(|py| {
            // The object may be dropped while an exception propagates, and the exception must not get lost.
            let underway = PyErr::take(py);
            if let Err(error) = self.warn(py, stays_held) {
                error.write_unraisable(py, None);
            }
            if let Some(underway) = underway {
                underway.restore(py);
            }
        });
    }
}

/// Tells what the body has raised that its lock was lost.
fn note_loss(raised: &Bound<'_, PyAny>, lost: &Error) -> PyResult<()> {
    static NOTE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = raised.py();
    NOTE.import(py, "redlock._losses", "note")?.call1((raised, to_pyerr(py, lost).into_value(py))).map(drop)
}

/// Warns if an event loop of asyncio runs on this thread, which stands still while a call waits. Does nothing after the
/// end of the interpreter, which a daemon's call may outlive.
fn warn_in_loop() -> PyResult<()> {
    static WARN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let warned = Python::try_attach(|py| WARN.import(py, "redlock._checks", "warn_in_loop")?.call0().map(drop));
    warned.unwrap_or(Ok(()))
}

/// A lock whose calls block the calling thread.
#[pyclass(frozen, subclass, extends = Handle, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Lock;

impl Lock {
    /// Makes a call that blocks, and detaches from the interpreter meanwhile.
    fn block<T: Send>(
        slf: &Bound<'_, Self>,
        call: impl FnOnce(&Arc<LockObject>, Signals) -> Result<T, Stop<PyErr>> + Send,
    ) -> Result<T, Raised> {
        let py = slf.py();
        events::begin_in_child(py)?;
        let object = &slf.as_super().get().object;
        let signals = Signals::here(py)?;
        Ok(detach(py, || call(object, signals))?)
    }

    /// Makes a call that acquires. A signal may come after its last look for one. Its handler runs here, because behind
    /// the call, what the handler raises would leave the lock held.
    fn win(
        slf: &Bound<'_, Self>,
        call: impl FnOnce(&Arc<LockObject>, Signals) -> Result<(), Stop<PyErr>> + Send,
    ) -> Result<(), Raised> {
        Self::block(slf, call)?;
        slf.py().check_signals().map_err(|interruption| {
            Self::leave_to_background(slf);
            Raised::Exception(interruption)
        })
    }

    /// Makes a call that releases. A handler of signals may run before it begins, and what that raises does not keep the
    /// lock held.
    fn let_go(
        slf: &Bound<'_, Self>,
        call: impl FnOnce(&Arc<LockObject>, Signals) -> Result<(), Stop<PyErr>> + Send,
    ) -> Result<(), Raised> {
        let ended = Self::block(slf, call);
        if matches!(ended, Err(Raised::Exception(_))) {
            Self::leave_to_background(slf);
        }
        ended
    }

    /// Begins a release, if there is one to begin, and does not wait for its end.
    fn leave_to_background(slf: &Bound<'_, Self>) {
        let object = &slf.as_super().get().object;
        drop(slf.py().detach(|| object.release_at_exit(Some(|| Err(())))));
    }
}

#[pymethods]
impl Lock {
    #[new]
    #[pyo3(signature = (source = None, name = None, /, **options))]
    fn new(
        py: Python<'_>,
        source: Option<&Bound<'_, PyAny>>,
        name: Option<Given<'_>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<PyClassInitializer<Self>, Raised> {
        Ok(PyClassInitializer::from(Handle::new(py, source, name, options)?).add_subclass(Self))
    }

    /// Acquire the lock, and wait for as long as others hold it.
    ///
    /// `timeout` in seconds overrides the lock's own timeout: zero tries once, `None` waits forever.
    /// `blocking=False` tries once, too. Returns `False` only if the time is over and others hold the lock (or, in a
    /// split vote, were acquiring it), or if it was too short for an answer of nodes that answer other calls.
    ///
    /// Raises `LockUnavailable` if no quorum of nodes could be asked or would answer until the timeout, or for 10 s if
    /// there is no timeout; `LockForbidden` if nodes that refuse the credentials rule out a quorum; `LockAlreadyHeld`
    /// if this object already holds the lock or is acquiring it; `LockInvalidArgument` for a wrong timeout.
    ///
    /// On the main thread, Ctrl-C ends the call within 50 ms and leaves no key behind.
    ///
    /// >>> import redlock
    /// >>> lock = redlock.lock("job")
    /// >>> lock.acquire(timeout=5)
    /// True
    /// >>> lock.release()
    #[pyo3(
        signature = (blocking = true, timeout = None, **others),
        text_signature = "($self, blocking=True, timeout=...)"
    )]
    fn acquire(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = blocking)] blocking: bool,
        #[pyo3(from_py_with = own_timeout)] timeout: Timeout,
        others: Option<&Bound<'_, PyDict>>,
    ) -> Result<bool, Raised> {
        convert::no_others(others)?;
        let timeout = convert::timeout_of_acquire(slf.py(), blocking, timeout)?;
        slf.as_super().get().prepare(slf.py())?;
        match Self::win(slf, |object, signals| object.acquire(timeout, warn_in_loop, signals.check())) {
            Err(Raised::Failed(error)) if error.kind() == ErrorKind::Timeout => Ok(false),
            acquired => acquired.map(|()| true),
        }
    }

    /// Extend the lock, so that it lasts for `ttl` seconds from now.
    ///
    /// It never shortens the time that is left. Later renewals use `ttl`, too. Without `ttl`, the lock's ttl in force
    /// applies.
    ///
    /// Raises `LockLost` if the lock is lost, `LockNotHeld` if it was not acquired, `LockUnavailable` if no quorum
    /// answered (the lock stays valid for as long as `remaining` says), `LockInvalidArgument` for a wrong ttl and with
    /// `protocol="setnx"`.
    ///
    /// >>> import redlock
    /// >>> with redlock.lock("job", ttl=1) as lock:
    /// ...     lock.extend(60)
    /// ...     lock.remaining > 50
    /// True
    #[pyo3(signature = (ttl = None))]
    fn extend(slf: &Bound<'_, Self>, ttl: Option<Bound<'_, PyAny>>) -> Result<(), Raised> {
        let ttl = convert::ttl(ttl)?;
        Self::block(slf, |object, signals| object.extend(ttl, signals.check()))
    }

    /// End this hold without a release, and return a text with which `Redlock.attach` goes on with it.
    ///
    /// That can be in another program, also in Rust or Node. Nobody renews the lock until then: the servers keep it for
    /// what is left of its ttl. With `ttl`, the lock is extended to so many seconds before, if that is longer. Later
    /// renewals use the ttl that they had. The fence stays the same, as does the time since it was acquired, for
    /// `max_hold` and `at_least`.
    ///
    /// The text is a credential: whoever has it can take the lock. It has neither addresses nor passwords. Leaving a
    /// `with` block after a detach does nothing.
    ///
    /// Raises `LockLost` if the lock is lost, `LockNotHeld` if it is not held, `LockUnavailable` if no quorum answered
    /// the extension (the lock is held as before), or if a node has not answered an acquire of a shared lock (it is
    /// held as before, or was released: see `held`), `LockInvalidArgument` for a wrong ttl, for the term of an
    /// election, and with `protocol="setnx"`.
    ///
    /// >>> import redlock
    /// >>> client = redlock.Redlock("memory://detach")
    /// >>> with client.lock("report:17") as lock:
    /// ...     fence = lock.fence
    /// ...     text = lock.detach(ttl=60)
    /// >>> with client.attach(text) as lock:
    /// ...     lock.name, lock.fence == fence
    /// ('report:17', True)
    #[pyo3(signature = (ttl = None))]
    fn detach(slf: &Bound<'_, Self>, ttl: Option<Bound<'_, PyAny>>) -> Result<String, Raised> {
        let ttl = convert::ttl(ttl)?;
        let detaching = Self::block(slf, |object, signals| object.detach(ttl, signals.check()))?;
        // As in `win`: nobody would have the text. Dropped here, it releases the lock.
        slf.py().check_signals()?;
        Ok(detaching.into_text())
    }

    /// Release the lock. From the beginning of the call on it is not held, even if the call fails.
    ///
    /// A second release is not an error. Raises `LockNotHeld` if the lock was never acquired, `LockLost` if it was lost
    /// before, `LockClosed` if its client was closed meanwhile, and `LockUnavailable` if no quorum confirmed the
    /// release. In the last case, and after Ctrl-C, the background continues the release until it succeeds or the
    /// ttl has passed.
    fn release(slf: &Bound<'_, Self>) -> Result<(), Raised> {
        Self::let_go(slf, |object, signals| object.release(signals.check()))
    }

    /// Ask the nodes whether anybody holds the lock, this program included.
    ///
    /// It is locked if an acquire would have to wait now, also because of a key of another library or of an attempt. A
    /// lock of several names is locked if anybody holds one of them, a semaphore if all its slots are held. The answer
    /// may be out of date when it arrives, so it is for people and dashboards. To acquire a free lock, call
    /// `acquire(blocking=False)`.
    ///
    /// Raises `LockUnavailable` or `LockForbidden` if too few nodes answer to know, and `LockInvalidArgument` with
    /// `protocol="setnx"`, whose keys may be out of date.
    ///
    /// >>> import redlock
    /// >>> with redlock.lock("job"):
    /// ...     redlock.lock("job").locked()
    /// True
    fn locked(slf: &Bound<'_, Self>) -> Result<bool, Raised> {
        slf.as_super().get().prepare(slf.py())?;
        let taken = Self::block(slf, |object, signals| object.is_locked()?.drive(signals.check()))?;
        Ok(matches!(taken, Taken::IsLocked(true)))
    }

    /// Wait until the lock is lost, but for at most `timeout` seconds. Return the loss, or `None`.
    ///
    /// The result is `None` if the time is over, and if the lock is released meanwhile. Without `timeout` there is no
    /// limit. A loss that happened before the call is returned at once, until the lock is released or acquired again.
    ///
    /// Raises `LockNotHeld` before an acquire, after a release and in a forked child.
    ///
    /// >>> import redlock
    /// >>> with redlock.lock("job") as lock:
    /// ...     lock.wait_lost(timeout=0.01) is None
    /// True
    #[pyo3(signature = (timeout = None))]
    fn wait_lost<'py>(
        slf: &Bound<'py, Self>,
        timeout: Option<Bound<'py, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>, Raised> {
        let py = slf.py();
        let limit = convert::limit(timeout)?;
        match Self::block(slf, |object, signals| object.wait_lost(limit)?.drive(signals.check())) {
            Ok(_) => Ok(None),
            Err(Raised::Failed(loss)) if loss.kind() == ErrorKind::Lost => {
                Ok(Some(to_pyerr(py, &loss).into_value(py).into_bound(py).into_any()))
            }
            Err(raised) => Err(raised),
        }
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>, Raised> {
        slf.as_super().get().prepare(slf.py())?;
        Self::win(slf, |object, signals| object.enter(warn_in_loop, signals.check()))?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (kind, error, traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> Result<(), Raised> {
        let _ = traceback;
        match Self::let_go(slf, |object, signals| object.release_at_exit(signals.check())) {
            // An exception of the body is more important than the loss of its lock.
            Err(Raised::Failed(lost)) if !kind.is_none() => Ok(note_loss(error, &lost)?),
            released => released,
        }
    }
}
