//! The client, which the blocking and the asyncio API share.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use redlock::bindings::options::Scope;
use redlock::bindings::{Mutex, calls};
use redlock::{Error, Redlock};

use crate::call::Call;
use crate::convert::{self, Name, limit, permits};
use crate::credentials::Provider;
use crate::error::Raised;
use crate::events;

/// One set of nodes and the defaults of its locks.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) redlock: Redlock,
    /// `None` without the option `credentials`, and after the client is closed.
    provider: Mutex<Option<Py<Provider>>>,
}

impl Client {
    /// Returns the provider for a lock.
    pub(crate) fn provider(&self, py: Python<'_>) -> Option<Py<Provider>> {
        self.provider.lock().as_ref().map(|provider| provider.clone_ref(py))
    }

    fn forget_provider(&self) {
        let provider = self.provider.lock().take();
        // Connections that are open still need it.
        drop(provider);
    }

    /// Prepares for a call that may need a login; see [`Provider::prepare`].
    pub(crate) fn prepare(&self, py: Python<'_>) -> Result<(), Raised> {
        self.provider(py).map_or(Ok(()), |provider| Provider::prepare(provider.bind(py)))
    }

    /// Returns a call, which may need a login.
    pub(crate) fn call(&self, py: Python<'_>, call: Result<calls::Call, Error>) -> Result<Call, Raised> {
        self.prepare(py)?;
        Ok(Call::new(call?))
    }
}

#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
impl Client {
    #[new]
    #[pyo3(signature = (nodes = None, **options))]
    fn new(
        py: Python<'_>,
        nodes: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self, Raised> {
        events::begin(py)?;
        let options = options.map_or_else(|| PyDict::new(py), Bound::clone);
        let nodes = nodes.map(|nodes| convert::nodes(nodes, &options)).transpose()?;
        let provider = provider(&options)?;
        let mut builder = Redlock::builder().options(convert::options(Some(&options), Scope::Client)?);
        if let Some(nodes) = nodes {
            builder = builder.nodes(nodes);
        }
        if let Some(provider) = &provider {
            builder = builder.credentials(provider.get().caller());
        }
        Ok(Self { redlock: builder.build()?, provider: Mutex::new(provider.map(Bound::unbind)) })
    }

    /// Read what the nodes show of `name`.
    #[pyo3(name = "_inspect")]
    fn inspect(&self, py: Python<'_>, name: Name) -> Result<Call, Raised> {
        self.call(py, calls::inspect(&self.redlock, &name.bytes))
    }

    /// Read what the nodes show of each slot of a semaphore.
    #[pyo3(name = "_inspect_semaphore")]
    fn inspect_semaphore(
        &self,
        py: Python<'_>,
        name: Name,
        #[pyo3(from_py_with = permits)] permits: u32,
    ) -> Result<Call, Raised> {
        self.call(py, calls::inspect_semaphore(&self.redlock, &name.bytes, permits))
    }

    /// Wait until a lock is free.
    #[pyo3(name = "_wait_free")]
    fn wait_free(&self, py: Python<'_>, name: Name, timeout: Option<Bound<'_, PyAny>>) -> Result<Call, Raised> {
        self.call(py, calls::wait_free(&self.redlock, &name.bytes, limit(timeout)?))
    }

    /// Delete a lock that somebody else holds.
    #[pyo3(name = "_break_lock")]
    fn break_lock(&self, py: Python<'_>, name: Name, slot: Option<Bound<'_, PyAny>>) -> Result<Call, Raised> {
        self.call(py, calls::break_lock(&self.redlock, &name.bytes, convert::slot(slot)?))
    }

    /// Find out what each node can do and may lose.
    #[pyo3(name = "_diagnose")]
    fn diagnose(&self, py: Python<'_>) -> Result<Call, Raised> {
        self.call(py, calls::diagnose(&self.redlock))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let nodes = slf.get().redlock.shown_addresses().join(", ");
        Ok(format!("<{}.{} {nodes}>", class.module()?, class.qualname()?))
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __reduce_ex__(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = protocol;
        Err(PyTypeError::new_err(
            "a client cannot be pickled or copied; make another with its addresses where it is needed",
        ))
    }

    /// Close the client, at once, and wait for the release of its locks.
    #[pyo3(name = "_close")]
    fn close(&self, limit: &Bound<'_, PyAny>) -> PyResult<Call> {
        Ok(Call::new(calls::close(&self.redlock, convert::duration("limit", limit)?)))
    }

    /// Close the client. The background releases its locks.
    #[pyo3(name = "_close_now")]
    fn close_now(&self) {
        self.redlock.close_now();
        self.forget_provider();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.provider.lock())
    }
}

/// Takes the option `credentials` out of the others, which are values.
fn provider<'py>(options: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, Provider>>> {
    const OPTION: &str = "credentials";
    let Some(given) = options.get_item(OPTION)? else { return Ok(None) };
    options.del_item(OPTION)?;
    if given.is_none() { Ok(None) } else { Provider::new(&given).map(Some) }
}
