//! What locks of both faces have in common: everything that never waits.

use std::ffi::CString;
use std::sync::Arc;

use pyo3::exceptions::{PyResourceWarning, PyTypeError};
use pyo3::prelude::*;

use crate::error::raised;
use crate::holder::Holder;

/// One holder: the part of a lock that both faces share.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) holder: Arc<redlock::bindings::lock_object::Holder>,
    name: Py<PyAny>,
}

impl Handle {
    pub(crate) fn of(holder: &Bound<'_, Holder>) -> Self {
        let Holder { holder: inner, name } = holder.get();
        Self { holder: Arc::clone(inner), name: name.clone_ref(holder.py()) }
    }

    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        let message = format!("lock {} was garbage-collected while held; releasing it", self.name.bind(py).repr()?);
        PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &CString::new(message)?, 1)
    }
}

#[pymethods]
impl Handle {
    #[new]
    fn new(holder: &Bound<'_, Holder>) -> Self {
        Self::of(holder)
    }

    /// The name, as it was given.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The fence: larger than every one of this name before it. Send it along, and have smaller ones rejected.
    ///
    /// Raises `LockNotHeld` before an acquire and after a release, while a lost lock still tells it;
    /// `LockInvalidArgument` with `protocol="setnx"`, which has none.
    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<u64> {
        self.holder.fence().map_err(|error| raised(py, &error))
    }

    /// Whether the lock is held at this moment. Never raises.
    #[getter]
    fn held(&self) -> bool {
        self.holder.held()
    }

    /// Seconds for which the lock can be relied on without another extension; 0.0 when it is not held.
    #[getter]
    fn remaining(&self) -> f64 {
        self.holder.remaining().as_secs_f64()
    }

    /// Raise unless the lock is held at this moment. Sends nothing.
    ///
    /// Raises `LockLost` with its reason, or `LockNotHeld` before an acquire, after a release and in a forked child.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.holder.check().map_err(|error| raised(py, &error))
    }

    /// Another holder of the same lock.
    #[pyo3(name = "_fresh")]
    fn fresh(&self, py: Python<'_>) -> Holder {
        Holder { holder: self.holder.fresh(), name: self.name.clone_ref(py) }
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
        let state = if this.holder.held() { "held" } else { "not held" };
        Ok(format!("<{}.{} {} {state}>", class.module()?, class.qualname()?, this.name.bind(slf.py()).repr()?))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.holder.held() {
            return;
        }
        Python::attach(|py| {
            // An object may go while an exception is on its way, which must arrive.
            let underway = PyErr::take(py);
            if let Err(error) = self.warn(py) {
                error.write_unraisable(py, None);
            }
            if let Some(underway) = underway {
                underway.restore(py);
            }
        });
    }
}
