//! Shutdown: before a process ends, it releases its locks and waits briefly for the servers.
//!
//! Python and Node have a hook for it. A Rust program calls it itself.
//!
//! States of a process:
//!
//! - *running*: it can acquire locks.
//! - *ending*, for good: it acquires no lock, and each waiting call is answered at once with `closed`.
//!
//! In Python that answer reaches no code, because threads must not return into an interpreter that is being torn down.
//! So lock objects park their threads, except the one that ends the process. The queues of event loops drop their
//! calls.
//!
//! What may interrupt it: it cannot be interrupted, but has its own limit.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, ThreadId};

use tokio::sync::Notify;

use crate::sys::followers::Followers;
use crate::sys::future::notified_until;

/// An end that others wait for. Once started, it stays so.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    has_started: AtomicBool,
    started: Notify,
}

impl Ending {
    /// Starts it.
    pub(crate) fn start(&self) {
        self.has_started.store(true, Ordering::Release);
        self.started.notify_waiters();
    }

    pub(crate) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Acquire)
    }

    /// Waits for its start. Cancel safe.
    pub(crate) async fn wait_started(&self) {
        notified_until(&self.started, || self.has_started().then_some(())).await;
    }
}

/// Whether the process is ending, and its pending work.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    ending: Ending,
    thread: OnceLock<ThreadId>,
    pending_work: AtomicUsize,
    done: Notify,
    listeners: Followers<dyn OnShutdown>,
}

/// A listener with locks that no caller has taken, to be released when the process ends.
pub(crate) trait OnShutdown: fmt::Debug + Send + Sync {
    /// Drops calls under way or won.
    fn drop_calls(&self);
}

impl Shutdown {
    /// Whether the process is ending.
    pub(crate) fn has_started(&self) -> bool {
        self.ending.has_started()
    }

    /// Parks the calling thread for ever if another thread is ending the process.
    pub(crate) fn park_if_shut_down(&self) {
        if self.has_started() && self.thread.get().is_some_and(|thread| *thread != thread::current().id()) {
            loop {
                thread::park();
            }
        }
    }

    /// Registers `listener` for the end of the process.
    pub(crate) fn on_shutdown(&self, listener: Weak<dyn OnShutdown>) {
        self.listeners.add(listener);
    }

    /// Begins to end the process, from this thread. Returns false if that had begun.
    pub(crate) fn start(&self) -> bool {
        if self.thread.set(thread::current().id()).is_err() {
            return false;
        }
        self.ending.start();
        self.listeners.all().iter().for_each(|listener| listener.drop_calls());
        true
    }

    /// Whether work is pending.
    pub(crate) fn has_pending_work(&self) -> bool {
        self.pending_work.load(Ordering::Acquire) > 0
    }

    /// Waits until the process is ending. Cancel safe.
    pub(crate) async fn wait_started(&self) {
        self.ending.wait_started().await;
    }

    /// Waits until no work is pending, or until `limit` completes. Cancel safe.
    pub(crate) async fn done(&self, limit: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = notified_until(&self.done, || (!self.has_pending_work()).then_some(())) => {}
            () = limit => {}
        }
    }
}

/// Work that an ending process awaits: a release or clean-up. Dropping it marks it done.
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
