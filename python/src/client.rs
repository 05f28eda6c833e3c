//! The client, common to both faces.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use redlock::Redlock;
use redlock::bindings::options::Scope;

use crate::error::{invalid, raised};
use crate::holder::Holder;
use crate::inspect;
use crate::name::{Name, text};

/// One set of nodes and the defaults of its locks.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Client(pub(crate) Redlock);

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (nodes = None, **options))]
    fn new(nodes: Option<&Bound<'_, PyAny>>, options: Option<&Bound<'_, PyDict>>, py: Python<'_>) -> PyResult<Self> {
        let builder = Redlock::builder().options(crate::options::options(options, Scope::Client)?);
        let builder = match nodes {
            Some(nodes) => builder.nodes(addresses(nodes)?),
            None => builder,
        };
        builder.build().map(Self).map_err(|error| raised(py, &error))
    }

    /// Checks name and options; what a lock is made from.
    #[pyo3(name = "_holder", signature = (name, **options))]
    fn holder(&self, name: Name, options: Option<&Bound<'_, PyDict>>, py: Python<'_>) -> PyResult<Holder> {
        let lock = self.0.lock(&name.bytes).options(crate::options::options(options, Scope::Lock)?);
        let holder = redlock::bindings::lock_object::Holder::new(lock).map_err(|error| raised(py, &error))?;
        Ok(Holder { holder, name: name.given })
    }

    /// What every node has under `name`; blocks.
    #[pyo3(name = "_views")]
    #[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
    fn views<'py>(&self, py: Python<'py>, name: Name) -> PyResult<Vec<Bound<'py, PyAny>>> {
        inspect::views(py, &self.0, &name.bytes)
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __reduce_ex__(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = protocol;
        Err(PyTypeError::new_err(
            "a client cannot be pickled or copied; make another with its addresses where it is needed",
        ))
    }

    /// End the client: acquiring its locks is `LockInvalidArgument` from now on, also in calls that wait.
    ///
    /// Held locks stay held.
    fn close(&self) {
        self.0.close();
    }
}

/// One address or several. No message shows any: it may have a password in it.
fn addresses(nodes: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    const WANTED: &str = "a str, or a sequence of them";
    if nodes.is_instance_of::<PyString>() {
        return Ok(vec![text("nodes", "nodes", nodes, WANTED)?]);
    }
    let Ok(each) = nodes.try_iter() else {
        let class = nodes.get_type().qualname()?;
        return Err(invalid(nodes.py(), "nodes", format!("nodes is of type {class}, but must be {WANTED}")));
    };
    each.map(|node| text("nodes", "a node", &node?, "a str")).collect()
}
