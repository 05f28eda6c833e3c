//! The life of a runtime, as seen by those who have something on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::sys::task::spawn;

/// A task that ends with its runtime, and its flag. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct Lifeline {
    alive: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Lifeline {
    /// Begins to watch `runtime`, and calls `ended` after the task has ended, on whatever thread ends it.
    pub(crate) fn watch(runtime: &Handle, ended: impl FnOnce() + Send + 'static) -> Self {
        struct Last<F: FnOnce()>(Arc<AtomicBool>, Option<F>);
        impl<F: FnOnce()> Drop for Last<F> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
                if let Some(ended) = self.1.take() {
                    ended();
                }
            }
        }
        let alive = Arc::new(AtomicBool::new(true));
        let last = Last(Arc::clone(&alive), Some(ended));
        let task = spawn(runtime, async move {
            let _last = last;
            std::future::pending::<()>().await;
        });
        Self { alive, task }
    }

    /// Whether the runtime has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.task.abort();
    }
}
