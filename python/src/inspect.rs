//! Conversion of what nodes show of a lock, and of a diagnosis, to Python.

use std::time::{Duration, SystemTime};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use redlock::bindings::StateValues;
use redlock::{Diagnosis, Finding, LockView, NodeView};

/// Converts `view` to a `redlock.LockView`.
pub(crate) fn view_to_python(py: Python<'_>, view: LockView) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let since = view.since.map(|since| time_to_python(py, since)).transpose()?;
    let nodes = view.nodes.into_iter().map(|node| node_to_python(py, node)).collect::<PyResult<Vec<_>>>()?;
    let (state, ttl_left) = (view.state.as_str(), seconds(view.ttl_left));
    // More than a tuple of Rust can have.
    let fields = [
        view.name.into_bound_py_any(py)?,
        view.key.into_bound_py_any(py)?,
        view.slot.into_bound_py_any(py)?,
        state.into_bound_py_any(py)?,
        view.label.into_bound_py_any(py)?,
        view.fence.into_bound_py_any(py)?,
        since.into_bound_py_any(py)?,
        ttl_left.into_bound_py_any(py)?,
        view.holders.into_bound_py_any(py)?,
        view.quorum.into_bound_py_any(py)?,
        view.waiting.into_bound_py_any(py)?,
        view.readers.into_bound_py_any(py)?,
        view.labels.into_bound_py_any(py)?,
        nodes.into_bound_py_any(py)?,
    ];
    CLASS.import(py, "redlock.inspection", "LockView")?.call1(PyTuple::new(py, fields)?)
}

/// Converts `time` to a `datetime` with a time zone.
fn time_to_python(py: Python<'_>, time: SystemTime) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let after = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    EPOCH.import(py, "redlock.inspection", "EPOCH")?.add(after)
}

fn seconds(ttl_left: Option<Duration>) -> Option<f64> {
    ttl_left.map(|ttl_left| ttl_left.as_secs_f64())
}

/// Converts `view` to a `redlock.NodeView`.
fn node_to_python(py: Python<'_>, view: NodeView) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (state, StateValues { label, fence, ttl_left, readers, labels, error }) = view.state.values();
    let ttl_left = seconds(ttl_left);
    CLASS
        .import(py, "redlock.inspection", "NodeView")?
        .call1((view.node, view.key, state, label, readers, labels, fence, ttl_left, error))
}

/// Converts `diagnosis` to a `redlock.Diagnosis`.
pub(crate) fn diagnosis_to_python(py: Python<'_>, diagnosis: Diagnosis) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static FINDING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let finding = |Finding { check, level, message, .. }: Finding| {
        FINDING.import(py, "redlock.diagnosis", "Finding")?.call1((check, level.as_str(), message))
    };
    let level = diagnosis.level().as_str();
    let findings = diagnosis.findings.into_iter().map(finding).collect::<PyResult<Vec<_>>>()?;
    CLASS.import(py, "redlock.diagnosis", "Diagnosis")?.call1((diagnosis.node, level, findings))
}
