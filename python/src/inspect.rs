//! Conversion of a node's state, and of a diagnosis, to Python.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use redlock::{Diagnosis, Finding, NodeState, NodeView};

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
    CLASS
        .import(py, "redlock.inspection", "NodeView")?
        .call1((view.node, view.key, state, label, fence, ttl_left, error))
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
