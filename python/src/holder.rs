//! What a lock object of either face is made from.

use std::sync::Arc;

use pyo3::prelude::*;

/// A name with checked options on a client: becomes a lock when one is made from it.
#[pyclass(frozen, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) holder: Arc<redlock::bindings::lock_object::Holder>,
    /// The name as it was given.
    pub(crate) name: Py<PyAny>,
}
