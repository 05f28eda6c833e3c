//! Signals that arrive while a call blocks.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Whether this thread is the one that Python runs signal handlers on. Only that one ever enters the interpreter while
/// it waits: any other would stand in the way of those that work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    heard: bool,
}

impl Signals {
    pub(crate) fn here(py: Python<'_>) -> PyResult<Self> {
        static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static MAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let current = CURRENT.import(py, "_thread", "get_ident")?.call0()?;
        // Asked anew each time: a fork makes the thread that forked the main one.
        let main = MAIN.import(py, "threading", "main_thread")?.call0()?.getattr("ident")?;
        Ok(Self { heard: current.eq(main)? })
    }

    /// What runs the handlers of signals that have arrived; `None` on a thread that never does.
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method alone has too short a lifetime")]
    pub(crate) fn check(self) -> Option<impl FnMut() -> PyResult<()>> {
        self.heard.then_some(|| Python::attach(|py| py.check_signals()))
    }
}
