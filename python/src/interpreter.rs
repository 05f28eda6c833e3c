//! The interpreter check: only one interpreter of a process may use this module.

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Refuses every interpreter except the first that imports the module, because the state per process belongs to that
/// one.
pub(crate) fn require_first(py: Python<'_>) -> PyResult<()> {
    static FIRST: OnceLock<usize> = OnceLock::new();
    // Each interpreter has a separate module `sys`. The check compares only the module's address, and reads nothing
    // there.
    let this = py.import("sys")?.as_ptr().addr();
    if *FIRST.get_or_init(|| this) == this {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "redlock is in use by another interpreter of this process, and works in one only; \
         use processes, or threads of that interpreter",
    ))
}
