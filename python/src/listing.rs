//! The locks that are held, in pages.

use std::sync::Arc;

use pyo3::prelude::*;
use redlock::bindings::Listing as Pages;
use redlock::bindings::calls::list_page;

use crate::call::Call;
use crate::client::Client;
use crate::convert::pattern;
use crate::error::Raised;

/// The locks that are held and match a pattern, in pages. Sends nothing before the first page is asked for.
#[pyclass(frozen, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Listing {
    pages: Arc<Pages>,
    client: Py<Client>,
}

#[pymethods]
impl Listing {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn new(client: Bound<'_, Client>, #[pyo3(from_py_with = pattern)] pattern: Vec<u8>) -> Self {
        Self { pages: Pages::new(&client.get().redlock, &pattern), client: client.unbind() }
    }

    /// Read the next locks; none at the end.
    fn page(&self, py: Python<'_>) -> Result<Call, Raised> {
        self.client.get().call(py, list_page(&self.pages))
    }
}
