//! Names of locks: text or bytes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::invalid;

/// A name as it was given, and its bytes.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) given: Py<PyAny>,
    pub(crate) bytes: Vec<u8>,
}

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let bytes = if let Ok(name) = given.cast::<PyBytes>() {
            name.as_bytes().to_vec()
        } else {
            text("name", "name", &given, "a str or bytes")?.into_bytes()
        };
        Ok(Self { given: given.to_owned().unbind(), bytes })
    }
}

/// The `what` of an argument, which must be a str with an encoding in UTF-8.
pub(crate) fn text(argument: &str, what: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<String> {
    let Ok(text) = given.cast::<PyString>() else {
        let class = given.get_type().qualname()?;
        return Err(invalid(given.py(), argument, format!("{what} is of type {class}, but must be {wanted}")));
    };
    // Only lone surrogates have none.
    text.to_str().map(str::to_owned).map_err(|_| {
        invalid(given.py(), argument, format!("{what} contains a lone surrogate and cannot be encoded as UTF-8"))
    })
}
