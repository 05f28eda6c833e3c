//! The worker's orders over standard input.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// The first line starts the worker, `keep N` makes its next hold N milliseconds long, the end of input stops it.
#[derive(Clone, Debug)]
pub(crate) struct Orders(Arc<State>);

#[derive(Debug, Default)]
struct State {
    keep_ms: AtomicU64,
    stopped: AtomicBool,
}

impl Orders {
    /// Starts to listen; returns when the worker should start.
    pub(crate) fn await_start() -> Self {
        let orders = Self(Arc::default());
        let state = Arc::clone(&orders.0);
        let (start, started) = mpsc::channel();
        thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                if let Some(millis) = line.strip_prefix("keep ") {
                    state.keep_ms.store(millis.parse().expect("a number of milliseconds"), Ordering::Relaxed);
                }
                // The caller waits only for the first line.
                let _ = start.send(());
            }
            state.stopped.store(true, Ordering::Relaxed);
        });
        // An error is the end of input, which `stopped` knows too.
        let _ = started.recv();
        orders
    }

    /// How long to keep the hold that begins now, if it was ordered.
    pub(crate) fn keep(&self) -> Option<Duration> {
        Some(self.0.keep_ms.swap(0, Ordering::Relaxed)).filter(|&millis| millis > 0).map(Duration::from_millis)
    }

    /// Whether the worker should stop.
    pub(crate) fn stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }
}
