//! The client, which the blocking and the asyncio API share.

use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};
use redlock::bindings::calls::{Call, break_lock, close, diagnose, inspect, inspect_semaphore, wait_free};
use redlock::bindings::options::Scope;
use redlock::{Error, Redlock};

use crate::convert::{self, Name, limit, permits};
use crate::credentials::Provider;
use crate::error::Raised;
use crate::events;
use crate::inspect::{diagnosis_to_python, to_python};
use crate::signals::Signals;

/// One set of nodes and the defaults of its locks.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) redlock: Redlock,
    /// `None` without the option `credentials`, and after the client is closed.
    provider: Mutex<Option<Py<Provider>>>,
}

impl Client {
    fn provider_slot(&self) -> MutexGuard<'_, Option<Py<Provider>>> {
        self.provider.lock().expect("no panic while holding this")
    }

    /// Returns the provider for a lock.
    pub(crate) fn provider(&self, py: Python<'_>) -> Option<Py<Provider>> {
        self.provider_slot().as_ref().map(|provider| provider.clone_ref(py))
    }

    fn forget_provider(&self) {
        let provider = self.provider_slot().take();
        // Connections that are open still need it.
        drop(provider);
    }

    /// Prepares for a call that may need a login; see [`Provider::prepare`].
    pub(crate) fn prepare(&self, py: Python<'_>) -> Result<(), Raised> {
        self.provider(py).map_or(Ok(()), |provider| Provider::prepare(provider.bind(py)))
    }

    /// Drives a call to its end, on this thread.
    pub(crate) fn drive<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Redlock) -> Result<Call<T>, Error> + Send,
    ) -> Result<T, Raised> {
        self.prepare(py)?;
        events::begin_in_child(py)?;
        let signals = Signals::here(py)?;
        Ok(py.detach(|| call(&self.redlock)?.drive(signals.check()))?)
    }
}

#[pymethods]
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

    /// Read what the nodes show of `name`. The call blocks.
    #[pyo3(name = "_view")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn view<'py>(&self, py: Python<'py>, name: Name) -> Result<Bound<'py, PyAny>, Raised> {
        let view = self.drive(py, |client| inspect(client, &name.bytes))?;
        Ok(to_python(py, view)?)
    }

    /// Read what the nodes show of each slot of a semaphore. The call blocks.
    #[pyo3(name = "_views")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn views<'py>(
        &self,
        py: Python<'py>,
        name: Name,
        #[pyo3(from_py_with = permits)] permits: u32,
    ) -> Result<Vec<Bound<'py, PyAny>>, Raised> {
        let views = self.drive(py, |client| inspect_semaphore(client, &name.bytes, permits))?;
        Ok(views.into_iter().map(|view| to_python(py, view)).collect::<PyResult<_>>()?)
    }

    /// Wait until a lock is free. The call blocks.
    #[pyo3(name = "_freed")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn freed(&self, py: Python<'_>, name: Name, timeout: Option<Bound<'_, PyAny>>) -> Result<bool, Raised> {
        let timeout = limit(timeout)?;
        Ok(!self.drive(py, |client| wait_free(client, &name.bytes, timeout))?)
    }

    /// Delete a lock that somebody else holds. The call blocks.
    #[pyo3(name = "_broken")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn broken<'py>(
        &self,
        py: Python<'py>,
        name: Name,
        slot: Option<Bound<'_, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>, Raised> {
        let slot = convert::slot(slot)?;
        let view = self.drive(py, |client| break_lock(client, &name.bytes, slot))?;
        Ok(view.map(|view| to_python(py, view)).transpose()?)
    }

    /// Find out what each node can do and may lose. The call blocks.
    #[pyo3(name = "_diagnoses")]
    fn diagnoses<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Raised> {
        let diagnoses = self.drive(py, diagnose)?;
        Ok(diagnoses.into_iter().map(|diagnosis| diagnosis_to_python(py, diagnosis)).collect::<PyResult<_>>()?)
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

    /// Close the client and wait for the release of its locks. The call blocks.
    #[pyo3(name = "_close")]
    fn close(&self, py: Python<'_>, limit: &Bound<'_, PyAny>) -> Result<(), Raised> {
        let limit = convert::duration("limit", limit)?;
        let signals = Signals::here(py)?;
        py.detach(|| close(&self.redlock, limit).drive(signals.check()))?;
        self.forget_provider();
        Ok(())
    }

    /// Close the client. The background releases its locks.
    #[pyo3(name = "_close_now")]
    fn close_now(&self) {
        self.redlock.close_now();
        self.forget_provider();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.provider_slot())
    }
}

/// Takes the option `credentials` out of the others, which are values.
fn provider<'py>(options: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, Provider>>> {
    const OPTION: &str = "credentials";
    let Some(given) = options.get_item(OPTION)? else { return Ok(None) };
    options.del_item(OPTION)?;
    if given.is_none() { Ok(None) } else { Provider::new(&given).map(Some) }
}
