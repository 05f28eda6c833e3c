//! The life of a runtime, as seen by those who have something on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::sys::on_drop::OnDrop;
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
        let alive = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&alive);
        let last = OnDrop::new(move || {
            flag.store(false, Ordering::Release);
            ended();
        });
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
