//! Conversion of the engine's errors to the classes of `redlock.errors`.

use std::error::Error as StdError;
use std::{fmt, io, iter};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use redlock::bindings::Stop;
use redlock::bindings::options::invalid_argument;
use redlock::{Error, ErrorKind};

/// The error of a call: the engine's, or an exception that Python raised meanwhile.
#[derive(Debug)]
pub(crate) enum Raised {
    Failed(Error),
    Exception(PyErr),
}

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<PyErr> for Raised {
    fn from(exception: PyErr) -> Self {
        Self::Exception(exception)
    }
}

impl From<Stop<PyErr>> for Raised {
    fn from(stop: Stop<PyErr>) -> Self {
        match stop {
            Stop::Failed(error) => Self::Failed(error),
            Stop::Interrupted(exception) => Self::Exception(exception),
        }
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        match raised {
            Raised::Failed(error) => Python::attach(|py| to_pyerr(py, &error)),
            Raised::Exception(exception) => exception,
        }
    }
}

/// A source of an error of the engine that leads to an exception of the program's own function, while that is kept.
pub(crate) struct OwnException {
    shown: String,
    exception: Box<dyn Fn(Python<'_>) -> Option<PyErr> + Send + Sync>,
}

impl OwnException {
    pub(crate) fn new(shown: String, exception: impl Fn(Python<'_>) -> Option<PyErr> + Send + Sync + 'static) -> Self {
        Self { shown, exception: Box::new(exception) }
    }
}

impl fmt::Debug for OwnException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnException").field(&self.shown).finish()
    }
}

impl fmt::Display for OwnException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl StdError for OwnException {}

/// Returns the Python exception for `error`.
pub(crate) fn to_pyerr(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => {
            let raised = own_exception(py, error);
            // To set none would hide the context.
            if let Some(cause) = raised.or_else(|| error.source().map(|source| cause(py, source))) {
                exception.set_cause(py, Some(cause));
            }
            exception
        }
        Err(broken) => broken,
    }
}

/// Returns the function that makes exceptions.
pub(crate) fn of_code(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static OF_CODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    OF_CODE.import(py, "redlock.errors", "of_code")
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let details = PyDict::new(py);
    details.set_item("name", error.name())?;
    details.set_item("nodes", PyTuple::new(py, error.nodes().iter().map(|node| (&node.node, &node.answer)))?)?;
    if let Some(reason) = error.reason() {
        details.set_item("reason", reason.as_str())?;
    }
    if error.kind() == ErrorKind::Timeout {
        details.set_item("holder_label", error.holder_label())?;
        details.set_item("holder_ttl_left", error.holder_ttl_left().map(|left| left.as_secs_f64()))?;
        details.set_item("held_by_this_process", error.is_held_by_this_process())?;
    }
    if let Some(option) = error.option() {
        details.set_item("option", option)?;
    }
    let exception = of_code(py)?.call((error.code(), error.to_string()), Some(&details))?;
    // As a class and its argument, because only then Python gives it a context: the exception that is being handled.
    Ok(PyErr::from_type(exception.get_type(), exception.unbind()))
}

/// Returns the exception of the program's own function that is among the sources of `error`.
fn own_exception(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let mut sources = iter::successors(error.source(), |&source| source.source());
    sources.find_map(|source| (source.downcast_ref::<OwnException>()?.exception)(py))
}

/// Returns the built-in exception for an error of the operating system, and `Exception` for another source.
fn cause(py: Python<'_>, source: &(dyn StdError + 'static)) -> PyErr {
    let cause = match source.downcast_ref::<io::Error>() {
        Some(error) => io::Error::new(error.kind(), error.to_string()).into(),
        None => PyException::new_err(source.to_string()),
    };
    if let Some(source) = source.source() {
        cause.set_cause(py, Some(self::cause(py, source)));
    }
    cause
}

/// Returns the exception for an argument whose value cannot be converted.
pub(crate) fn invalid(py: Python<'_>, argument: &str, message: String) -> PyErr {
    to_pyerr(py, &invalid_argument(argument, message))
}
