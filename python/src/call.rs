//! A call of the engine that is driven or started, and the conversion of its result.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use redlock::bindings::Mutex;
use redlock::bindings::calls::{self, Taken};

use crate::ending::detach;
use crate::error::Raised;
use crate::events;
use crate::inspect::{diagnosis_to_python, view_to_python};
use crate::signals::Signals;

/// A call that is not begun, and is begun once.
#[pyclass(frozen, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Call(Mutex<Option<calls::Call>>);

impl Call {
    pub(crate) fn new(call: calls::Call) -> Self {
        Self(Mutex::new(Some(call)))
    }

    pub(crate) fn begin(&self) -> calls::Call {
        self.0.lock().take().expect("it is begun once")
    }
}

#[pymethods]
impl Call {
    /// Make the call on this thread, and return its result as `Queue.take` does.
    fn drive<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Raised> {
        events::begin_in_child(py)?;
        let (call, signals) = (self.begin(), Signals::here(py)?);
        Ok(to_python(py, detach(py, || call.drive(signals.check()))?)?)
    }
}

/// Converts the result of a call; see `Queue.take`.
pub(crate) fn to_python(py: Python<'_>, taken: Taken) -> PyResult<Bound<'_, PyAny>> {
    match taken {
        Taken::Completed => true.into_bound_py_any(py),
        Taken::IsLocked(is_locked) => (if is_locked { "locked" } else { "free" }).into_bound_py_any(py),
        Taken::Detached(detaching) => detaching.into_text().into_bound_py_any(py),
        Taken::Pending => false.into_bound_py_any(py),
        Taken::Views(views) => {
            views.into_iter().map(|view| view_to_python(py, view)).collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
        }
        Taken::Diagnoses(diagnoses) => {
            let diagnoses = diagnoses.into_iter().map(|diagnosis| diagnosis_to_python(py, diagnosis));
            diagnoses.collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
        }
        // Cancelled, and variants that a later engine may add.
        _ => Ok(py.None().into_bound(py)),
    }
}
