//! The metrics of the process.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use redlock::{Metric, Point, PointValue};

use crate::convert::most;

/// Return all metrics of this process, each with its name, kind, sentence and points, and the same as text.
#[pyfunction]
pub(crate) fn stats(py: Python<'_>) -> PyResult<(Vec<Bound<'_, PyTuple>>, String)> {
    let stats = redlock::stats();
    let metrics = stats.metrics.iter().map(|metric| metric_to_python(py, metric)).collect::<PyResult<_>>()?;
    Ok((metrics, stats.to_openmetrics()))
}

/// Have the first `most` names counted each by itself from now on.
#[pyfunction]
pub(crate) fn count_by_name(#[pyo3(from_py_with = most)] most: usize) {
    redlock::count_by_name(most);
}

fn metric_to_python<'py>(py: Python<'py>, metric: &Metric) -> PyResult<Bound<'py, PyTuple>> {
    let points = metric.points.iter().map(|point| point_to_python(py, point)).collect::<PyResult<Vec<_>>>()?;
    (metric.name, metric.kind.as_str(), metric.about, points).into_pyobject(py)
}

/// Returns the labels, and a number or the parts of a histogram.
fn point_to_python<'py>(py: Python<'py>, point: &Point) -> PyResult<Bound<'py, PyTuple>> {
    let labels = PyDict::new(py);
    for (label, value) in &point.labels {
        labels.set_item(label, value)?;
    }
    match &point.value {
        PointValue::Histogram { count, sum, buckets, .. } => {
            (labels, (*count, *sum, PyTuple::new(py, buckets)?)).into_pyobject(py)
        }
        PointValue::Number(number) => (labels, *number).into_pyobject(py),
        // A variant that a later engine may add.
        _ => (labels, f64::NAN).into_pyobject(py),
    }
}
