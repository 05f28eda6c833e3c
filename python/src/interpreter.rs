//! The one interpreter of a process that may use this module.

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Refuses every interpreter but the first that asks: what is kept per process here belongs to that one.
pub(crate) fn claim(py: Python<'_>) -> PyResult<()> {
    static FIRST: OnceLock<usize> = OnceLock::new();
    // Each interpreter has a module `sys` of its own. Its address alone says which one this is; nothing is read there.
    let this = py.import("sys")?.as_ptr().addr();
    if *FIRST.get_or_init(|| this) == this {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "redlock is in use by another interpreter of this process, and works in one only; \
         use processes, or threads of that interpreter",
    ))
}
