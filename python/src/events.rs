//! The listener to the events of the process, which the Python modules pass to `logging`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use redlock::bindings::events::{self, Record};

use crate::notifier::Notifier;

/// The events of this process from now on. Its descriptor is readable while there are events to take.
#[pyclass(frozen, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Events {
    events: events::Events,
    signal: Arc<Signal>,
}

/// Says that there are events to take.
#[derive(Debug)]
struct Signal {
    notifier: Notifier,
    is_pending: AtomicBool,
}

/// Whether this process is a child that begins to log, and to tell losses, with its first call.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Has what happens in the engine logged from now on. A program that makes no client does not need `logging`.
pub(crate) fn begin(py: Python<'_>) -> PyResult<()> {
    static BEGIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    BEGIN.import(py, "redlock._events", "begin")?.call0().map(drop)
}

/// Begins to log, and to tell losses, with the next call, in a forked child: until then, it may close all of its
/// descriptors, as daemons do.
#[pyfunction]
pub(crate) fn begin_with_next_call() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Begins to log in a forked child. Each call of the engine asks for it.
pub(crate) fn begin_in_child(py: Python<'_>) -> PyResult<()> {
    if IS_FORKED.load(Ordering::Relaxed) && IS_FORKED.swap(false, Ordering::Relaxed) {
        begin(py)?;
    }
    Ok(())
}

#[pymethods]
impl Events {
    #[new]
    fn new() -> PyResult<Self> {
        let signal = Arc::new(Signal { notifier: Notifier::new()?, is_pending: AtomicBool::new(false) });
        let raised = Arc::clone(&signal);
        Ok(Self { events: events::Events::listen(move || raised.raise()), signal })
    }

    /// Return the descriptor to poll for reading.
    fn fileno(&self) -> i32 {
        self.signal.notifier.descriptor()
    }

    /// Return whether another process made this listener.
    fn is_foreign(&self) -> bool {
        self.events.is_foreign()
    }

    /// Return whether there are events to take, without a call of the system.
    fn is_pending(&self) -> bool {
        self.signal.is_pending.load(Ordering::Acquire)
    }

    /// Take all events, the oldest first, and the number of older ones that were lost since the last call. An event is
    /// its code, topic, level, time in Unix seconds, message and fields.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Bound<'py, PyTuple>>, u64)> {
        // A forked child shares the descriptor with its parent, and the parent would miss a wake-up.
        if self.is_foreign() {
            return Ok((Vec::new(), 0));
        }
        // An event between these two steps causes one wake-up too many. In the other order, it would cause none.
        self.signal.reset();
        let (records, lost) = self.events.take();
        let records = records.iter().map(|record| to_python(py, record)).collect::<PyResult<_>>()?;
        Ok((records, lost))
    }
}

impl Signal {
    fn raise(&self) {
        self.is_pending.store(true, Ordering::Release);
        self.notifier.notify();
    }

    fn reset(&self) {
        self.notifier.reset();
        self.is_pending.store(false, Ordering::Release);
    }
}

fn to_python<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyTuple>> {
    let fields = PyDict::new(py);
    for (field, value) in &record.fields {
        fields.set_item(field, value)?;
    }
    // The levels of Python's `logging`.
    let level = match record.event.level.as_str() {
        "ERROR" => 40,
        "WARN" => 30,
        "INFO" => 20,
        _ => 10,
    };
    let created = record.at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    (record.event.code, record.event.topic.as_str(), level, created, &record.message, fields).into_pyobject(py)
}
