//! Inspection of a lock's nodes.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use redlock::blocking::inspect_unless;
use redlock::{NodeState, NodeView, Redlock};

use crate::error::to_pyerr;
use crate::signals::Signals;

/// Reads the state of `name` on every node. Blocks, and detaches from the interpreter meanwhile.
pub(crate) fn views<'py>(py: Python<'py>, client: &Redlock, name: &[u8]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let signals = Signals::here(py)?;
    let views = py.detach(|| inspect_unless(client, name, signals.check()))?.map_err(|error| to_pyerr(py, &error))?;
    views.into_iter().map(|view| to_python(py, view)).collect()
}

/// Converts `view` to a `redlock.NodeView`.
pub(crate) fn to_python(py: Python<'_>, view: NodeView) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let seconds = |ttl_left: Option<Duration>| ttl_left.map(|ttl_left| ttl_left.as_secs_f64());
    let (state, label, fence, ttl_left, error) = match view.state {
        NodeState::Free => ("free", None, None, None, None),
        NodeState::Held { label, fence, ttl_left } => ("held", label, Some(fence), seconds(ttl_left), None),
        NodeState::Foreign { ttl_left } => ("foreign", None, None, seconds(ttl_left), None),
        NodeState::Unavailable { error } => ("unavailable", None, None, None, Some(error)),
        _ => ("unavailable", None, None, None, Some(String::from("an answer that this version cannot show"))),
    };
    CLASS.import(py, "redlock.inspection", "NodeView")?.call1((view.node, state, label, fence, ttl_left, error))
}
