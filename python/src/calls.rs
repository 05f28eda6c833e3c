//! Results of calls that run in the background, for an event loop or a thread that waits for them.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use redlock::bindings::completion_queue::{Ready, Taken};

use crate::client::Client;
use crate::convert::{Name, Timeout, Ttl};
use crate::error::raised;
use crate::inspect::to_python;
use crate::lock::Handle;
use crate::notifier::Bell;

/// Calls underway and what came of them; its descriptor is readable while there are results.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Queue {
    queue: redlock::bindings::completion_queue::Queue,
    bell: Arc<Bell>,
}

#[pymethods]
impl Queue {
    #[new]
    fn new() -> PyResult<Self> {
        let bell = Arc::new(Bell::new()?);
        let rung = Arc::clone(&bell);
        Ok(Self { queue: redlock::bindings::completion_queue::Queue::new(move || rung.ring()), bell })
    }

    /// The descriptor to poll for reading.
    fn fileno(&self) -> i32 {
        self.bell.descriptor()
    }

    /// Whether it was made in another process than this one.
    fn is_foreign(&self) -> bool {
        self.queue.is_foreign()
    }

    #[pyo3(signature = (handle, blocking = true, timeout = Timeout::Own))]
    fn acquire(&self, py: Python<'_>, handle: &Bound<'_, Handle>, blocking: bool, timeout: Timeout) -> PyResult<u64> {
        let timeout = timeout.of_acquire(py, blocking)?;
        self.queue.acquire(&handle.get().holder, timeout).map_err(|error| raised(py, &error))
    }

    #[pyo3(signature = (handle, ttl = None))]
    fn extend(&self, py: Python<'_>, handle: &Bound<'_, Handle>, ttl: Option<Ttl>) -> PyResult<u64> {
        self.queue.extend(&handle.get().holder, ttl.map(|ttl| ttl.0)).map_err(|error| raised(py, &error))
    }

    fn release(&self, py: Python<'_>, handle: &Bound<'_, Handle>) -> PyResult<u64> {
        self.queue.release(&handle.get().holder).map_err(|error| raised(py, &error))
    }

    fn leave(&self, py: Python<'_>, handle: &Bound<'_, Handle>) -> PyResult<u64> {
        self.queue.leave(&handle.get().holder).map_err(|error| raised(py, &error))
    }

    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn inspect(&self, py: Python<'_>, client: &Bound<'_, Client>, name: Name) -> PyResult<u64> {
        self.queue.inspect(&client.get().0, &name.bytes).map_err(|error| raised(py, &error))
    }

    /// A number that becomes ready at each loss of the lock, and once more when the lock is gone.
    fn watch(&self, handle: &Bound<'_, Handle>) -> u64 {
        self.queue.watch(&handle.get().holder)
    }

    /// Ends the call; what it won is released.
    fn cancel(&self, number: u64) {
        self.queue.cancel(number);
    }

    /// The numbers that became ready; negative where the call did what it was asked to do, so that there is nothing to
    /// take.
    fn drain(&self) -> Vec<i64> {
        self.queue.drain(|| self.bell.silence()).into_iter().map(Ready::signed).collect()
    }

    /// The result of a ready call: `True` for done, `False` for wait again, a list of views, `None` for gone.
    fn take<'py>(&self, py: Python<'py>, number: u64) -> PyResult<Bound<'py, PyAny>> {
        match self.queue.take(number).map_err(|error| raised(py, &error))? {
            Taken::Done => true.into_bound_py_any(py),
            Taken::Again => false.into_bound_py_any(py),
            Taken::Views(views) => {
                views.into_iter().map(|view| to_python(py, view)).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
            }
            // Gone, and whatever a later engine may add.
            _ => Ok(py.None().into_bound(py)),
        }
    }
}
