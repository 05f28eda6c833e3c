//! Signals that arrive while a call blocks.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Whether this thread is the main thread, on which Python runs signal handlers. Only the main thread enters the
/// interpreter while it waits: another thread would delay the threads that work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    on_main_thread: bool,
}

impl Signals {
    pub(crate) fn here(py: Python<'_>) -> PyResult<Self> {
        static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static MAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let current = CURRENT.import(py, "_thread", "get_ident")?.call0()?;
        // Asks each time, because the thread that forks becomes the main thread of the child.
        let main = MAIN.import(py, "threading", "main_thread")?.call0()?.getattr("ident")?;
        Ok(Self { on_main_thread: current.eq(main)? })
    }

    /// Returns a function that runs the handlers of pending signals; `None` on a thread that runs no handlers.
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method alone has too short a lifetime")]
    pub(crate) fn check(self) -> Option<impl FnMut() -> PyResult<()>> {
        self.on_main_thread.then_some(|| Python::attach(|py| py.check_signals()))
    }
}
