//! What a process does before it ends: it gives back what it holds, and waits for a moment until the servers have heard
//! of it.
//!
//! Python and Node have a hook for it; a program in Rust says it itself. States of a process: *running* → *ending*, for
//! good. Once it is ending, nothing new is acquired, and each waiting call is answered at once: `unavailable`. In Python the
//! answer reaches no code: lock objects stop their threads, except the thread that ends the process, because these must
//! not return into an interpreter that is being taken apart; and the queues of event loops drop their calls. What may
//! interrupt it: nothing, it has a limit of its own.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::{fmt, mem};

use tokio::sync::Notify;

use crate::sys::future::notified_until;

/// The end of something, which others wait for: it is said once, and stays said.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    has_started: AtomicBool,
    started: Notify,
}

impl Ending {
    /// Says it.
    pub(crate) fn start(&self) {
        self.has_started.store(true, Ordering::Release);
        self.started.notify_waiters();
    }

    pub(crate) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Acquire)
    }

    /// Waits until it is said. Cancel safe.
    pub(crate) async fn wait_started(&self) {
        notified_until(&self.started, || self.has_started().then_some(())).await;
    }
}

/// Whether the process is ending, and what it still has to do.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    ending: Ending,
    thread: OnceLock<ThreadId>,
    pending_work: AtomicUsize,
    done: Notify,
    listeners: Mutex<Vec<Weak<dyn OnShutdown>>>,
}

/// What has locks that nobody has taken yet, and lets go of them when the process ends.
pub(crate) trait OnShutdown: fmt::Debug + Send + Sync {
    /// Drops what is under way or was won.
    fn drop_calls(&self);
}

impl Shutdown {
    /// Whether the process is ending.
    pub(crate) fn has_started(&self) -> bool {
        self.ending.has_started()
    }

    /// Stops every other thread than the one that ends the process, once it is ending.
    pub(crate) fn park_if_shut_down(&self) {
        if self.has_started() && self.thread.get().is_some_and(|thread| *thread != thread::current().id()) {
            loop {
                thread::park();
            }
        }
    }

    /// Has `listener` called when the process ends.
    pub(crate) fn on_shutdown(&self, listener: Weak<dyn OnShutdown>) {
        let mut listeners = self.listeners();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<dyn OnShutdown>>> {
        self.listeners.lock().expect("no panic while holding this")
    }

    /// Begins to end the process, from this thread; false if that has begun before.
    pub(crate) fn start(&self) -> bool {
        if self.thread.set(thread::current().id()).is_err() {
            return false;
        }
        self.ending.start();
        let listeners = mem::take(&mut *self.listeners());
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.drop_calls());
        true
    }

    /// Whether a duty is left.
    pub(crate) fn has_pending_work(&self) -> bool {
        self.pending_work.load(Ordering::Acquire) > 0
    }

    /// Waits until the process is ending. Cancel safe.
    pub(crate) async fn wait_started(&self) {
        self.ending.wait_started().await;
    }

    /// Waits until no duty is left, for at most `limit` of the clock's time. Cancel safe.
    pub(crate) async fn done(&self, limit: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = notified_until(&self.done, || (!self.has_pending_work()).then_some(())) => {}
            () = limit => {}
        }
    }
}

/// Something that an ending process waits for: a release, or clean-up. Done when dropped.
#[derive(Debug)]
pub(crate) struct PendingWork(Arc<Shutdown>);

impl PendingWork {
    pub(crate) fn new(shutdown: &Arc<Shutdown>) -> Self {
        shutdown.pending_work.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shutdown))
    }
}

impl Drop for PendingWork {
    fn drop(&mut self) {
        if self.0.pending_work.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_waiters();
        }
    }
}
