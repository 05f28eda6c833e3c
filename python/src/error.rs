//! The engine's errors as the classes of `redlock.errors`.

use std::error::Error as StdError;
use std::io;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use redlock::{Error, LostReason, NodeAnswer};

pyo3::import_exception!(redlock.errors, LockInvalidArgument);

/// The Python exception for `error`.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => {
            exception.set_cause(py, error.source().map(|source| cause(py, source)));
            exception
        }
        Err(broken) => broken,
    }
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    static OF_CODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let of_code = OF_CODE.import(py, "redlock.errors", "of_code")?;
    let nodes: Vec<(&str, &str)> =
        error.nodes().iter().map(|NodeAnswer { node, answer, .. }| (node.as_str(), answer.as_str())).collect();
    let reason = error.reason().map(LostReason::as_str);
    of_code.call1((error.code(), error.to_string(), error.name(), nodes, reason)).map(PyErr::from_value)
}

/// The built-in exception for what the system said, and a plain one for everything else.
fn cause(py: Python<'_>, source: &(dyn StdError + 'static)) -> PyErr {
    let cause = match source.downcast_ref::<io::Error>() {
        Some(error) => io::Error::new(error.kind(), error.to_string()).into(),
        None => PyException::new_err(source.to_string()),
    };
    cause.set_cause(py, source.source().map(|source| self::cause(py, source)));
    cause
}

/// What was given cannot be converted.
pub(crate) fn invalid(message: String) -> PyErr {
    LockInvalidArgument::new_err(message)
}
