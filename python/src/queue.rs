//! The completion queue: calls that run in the background, and their results.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use redlock::bindings::calls::Taken;
use redlock::bindings::completion_queue::{Completion, Queue as Calls};
use redlock::bindings::lock_object::Timeout;

use crate::call::{Call, to_python};
use crate::convert::{blocking, limit, no_others, own_timeout, timeout_of_acquire, ttl};
use crate::error::Raised;
use crate::events;
use crate::lock::Handle;
use crate::notifier::Notifier;

/// Calls in the background, and their results. Its descriptor is readable while calls are ready.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Queue {
    queue: Calls,
    notifier: Arc<Notifier>,
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (*, watches = false))]
    fn new(py: Python<'_>, watches: bool) -> PyResult<Self> {
        events::begin_in_child(py)?;
        let notifier = Arc::new(Notifier::new()?);
        let waker = Arc::clone(&notifier);
        let wake = move || waker.notify();
        let queue = if watches { Calls::watching(wake) } else { Calls::new(wake) };
        Ok(Self { queue, notifier })
    }

    /// Return the descriptor to poll for reading.
    fn fileno(&self) -> i32 {
        self.notifier.descriptor()
    }

    /// Return the descriptor of the sockets that the loop can watch, if there is one.
    fn sockets(&self) -> Option<i32> {
        self.queue.sockets()
    }

    /// The loop watches it from now on.
    fn begin_to_watch(&self) {
        self.queue.begin_to_watch();
    }

    /// Read what the sockets have brought, and return whether calls became ready. They do not make the descriptor readable.
    fn turn(&self) -> bool {
        self.queue.turn()
    }

    /// Return whether another process made this queue.
    fn is_foreign(&self) -> bool {
        self.queue.is_foreign()
    }

    #[pyo3(
        signature = (handle, blocking = true, timeout = None, **others),
        text_signature = "($self, handle, blocking=True, timeout=..., **others)"
    )]
    fn acquire(
        &self,
        py: Python<'_>,
        handle: &Bound<'_, Handle>,
        #[pyo3(from_py_with = blocking)] blocking: bool,
        #[pyo3(from_py_with = own_timeout)] timeout: Timeout,
        others: Option<&Bound<'_, PyDict>>,
    ) -> Result<u64, Raised> {
        no_others(others)?;
        let timeout = timeout_of_acquire(py, blocking, timeout)?;
        handle.get().prepare(py)?;
        Ok(self.queue.acquire(&handle.get().object, timeout)?)
    }

    fn enter(&self, handle: &Bound<'_, Handle>) -> Result<u64, Raised> {
        handle.get().prepare(handle.py())?;
        Ok(self.queue.enter(&handle.get().object)?)
    }

    #[pyo3(signature = (handle, ttl = None))]
    fn extend(&self, handle: &Bound<'_, Handle>, ttl: Option<Bound<'_, PyAny>>) -> Result<u64, Raised> {
        Ok(self.queue.extend(&handle.get().object, self::ttl(ttl)?)?)
    }

    #[pyo3(signature = (handle, ttl = None))]
    fn detach(&self, handle: &Bound<'_, Handle>, ttl: Option<Bound<'_, PyAny>>) -> Result<u64, Raised> {
        Ok(self.queue.detach(&handle.get().object, self::ttl(ttl)?)?)
    }

    fn release(&self, handle: &Bound<'_, Handle>) -> Result<u64, Raised> {
        Ok(self.queue.release(&handle.get().object)?)
    }

    fn leave(&self, handle: &Bound<'_, Handle>) -> Result<u64, Raised> {
        Ok(self.queue.release_at_exit(&handle.get().object)?)
    }

    /// Start a call.
    fn start(&self, call: &Bound<'_, Call>) -> Result<u64, Raised> {
        Ok(self.queue.start(call.get().begin())?)
    }

    fn locked(&self, handle: &Bound<'_, Handle>) -> Result<u64, Raised> {
        handle.get().prepare(handle.py())?;
        Ok(self.queue.start(handle.get().object.is_locked()?)?)
    }

    #[pyo3(signature = (handle, timeout = None))]
    fn wait_lost(&self, handle: &Bound<'_, Handle>, timeout: Option<Bound<'_, PyAny>>) -> Result<u64, Raised> {
        Ok(self.queue.start(handle.get().object.wait_lost(limit(timeout)?)?)?)
    }

    /// Return a number that becomes ready at each loss of the lock, and once more when the lock is dropped.
    fn watch(&self, handle: &Bound<'_, Handle>) -> u64 {
        self.queue.subscribe_to_losses(&handle.get().object)
    }

    /// Cancel the call. A lock that it has won is released.
    fn cancel(&self, number: u64) {
        self.queue.cancel(number);
    }

    /// Make the descriptor readable, as a ready call does. Any thread may wake it.
    fn wake(&self) {
        self.notifier.notify();
    }

    /// Return the numbers that became ready. A number is negative if the call succeeded and there is nothing to take.
    fn drain(&self) -> Vec<i64> {
        self.queue.drain(|| self.notifier.reset()).into_iter().map(Completion::signed).collect()
    }

    /// Take the result of a ready call: `True` if it succeeded, a list of views for an inspection and of findings for a
    /// diagnosis, `"locked"` or `"free"` if it asked for that, the text of a detached lock, `False` if the call is not
    /// finished and its number becomes ready again, `None` if there is no such call.
    fn take<'py>(&self, py: Python<'py>, number: u64) -> Result<Bound<'py, PyAny>, Raised> {
        Ok(to_python(py, self.queue.take(number)?)?)
    }

    /// Take the result of a call that nobody has cancelled. Raises in a forked child, and once redlock is shut down.
    fn take_call<'py>(&self, py: Python<'py>, number: u64) -> Result<Bound<'py, PyAny>, Raised> {
        match self.queue.take(number)? {
            Taken::Cancelled => Err(self.queue.ended().into()),
            taken => Ok(to_python(py, taken)?),
        }
    }
}
