//! The client, which the blocking and the asyncio API share.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use redlock::Redlock;
use redlock::bindings::inspect::inspect;
use redlock::bindings::options::Scope;

use crate::convert::{self, Name};
use crate::error::Raised;
use crate::inspect::to_python;
use crate::signals::Signals;

/// One set of nodes and the defaults of its locks.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Client(pub(crate) Redlock);

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (nodes = None, **options))]
    fn new(nodes: Option<&Bound<'_, PyAny>>, options: Option<&Bound<'_, PyDict>>) -> Result<Self, Raised> {
        let builder = Redlock::builder().options(convert::options(options, Scope::Client)?);
        let builder = match nodes {
            Some(nodes) => builder.nodes(convert::nodes(nodes)?),
            None => builder,
        };
        Ok(Self(builder.build()?))
    }

    /// Read the state of `name` on every node. The call blocks.
    #[pyo3(name = "_views")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn views<'py>(&self, py: Python<'py>, name: Name) -> Result<Vec<Bound<'py, PyAny>>, Raised> {
        let signals = Signals::here(py)?;
        let views = py.detach(|| inspect(&self.0, &name.bytes, signals.check()))?;
        Ok(views.into_iter().map(|view| to_python(py, view)).collect::<PyResult<_>>()?)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let nodes = slf.get().0.shown_addresses().join(", ");
        Ok(format!("<{}.{} {nodes}>", class.module()?, class.qualname()?))
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __reduce_ex__(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = protocol;
        Err(PyTypeError::new_err(
            "a client cannot be pickled or copied; make another with its addresses where it is needed",
        ))
    }

    /// Close the client: from now on, its locks cannot be acquired.
    ///
    /// New and waiting acquires raise `LockInvalidArgument`. Held locks stay held.
    fn close(&self) {
        self.0.close();
    }
}
