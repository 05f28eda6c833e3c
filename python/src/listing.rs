//! The locks that are held, in pages.

use std::sync::Arc;

use pyo3::prelude::*;
use redlock::bindings::Listing as Pages;
use redlock::bindings::calls::list_page;

use crate::client::Client;
use crate::convert::pattern;
use crate::error::Raised;
use crate::inspect::to_python;

/// The locks that are held and match a pattern, in pages. Sends nothing before the first page is asked for.
#[pyclass(frozen, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) pages: Arc<Pages>,
    client: Py<Client>,
}

impl Listing {
    /// Prepares for a call that may need a login.
    pub(crate) fn prepare(&self, py: Python<'_>) -> Result<(), Raised> {
        self.client.get().prepare(py)
    }
}

#[pymethods]
impl Listing {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn new(client: Bound<'_, Client>, #[pyo3(from_py_with = pattern)] pattern: Vec<u8>) -> Self {
        Self { pages: Pages::new(&client.get().redlock, &pattern), client: client.unbind() }
    }

    /// Read the next locks; none at the end. The call blocks.
    fn page<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Raised> {
        let views = self.client.get().drive(py, |_| list_page(&self.pages))?;
        Ok(views.into_iter().map(|view| to_python(py, view)).collect::<PyResult<_>>()?)
    }
}
