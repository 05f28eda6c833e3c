//! The end of the interpreter. A thread that returns into it then is unwound, and Rust below it crashes the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::prelude::*;

/// How long a call lingers while another thread ends the interpreter: longer than that takes. Not for ever, because that
/// thread may wait for the call.
const LINGERS: Duration = Duration::from_secs(2);

/// In so many steps, the end lets those calls return that were over before.
const STEPS: u32 = 10;
const STEP: Duration = Duration::from_millis(1);

static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();

/// The number of calls whose threads have not returned yet.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Makes a call, detached from the interpreter.
pub(crate) fn detach<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    let result = py.detach(|| {
        let result = call();
        if ENDED_BY.get().is_some_and(|thread| *thread != thread::current().id()) {
            thread::park_timeout(LINGERS);
        }
        result
    });
    UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    result
}

/// Release every lock held by this process, end its waiting calls, and wait up to 500 ms for the servers.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    py.detach(|| {
        ENDED_BY.get_or_init(|| thread::current().id());
        redlock::shutdown();
        for _ in 0..STEPS {
            if UNDER_WAY.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::sleep(STEP);
        }
    });
}
