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
    is_said: AtomicBool,
    saying: Notify,
}

impl Ending {
    /// Says it.
    pub(crate) fn say(&self) {
        self.is_said.store(true, Ordering::Release);
        self.saying.notify_waiters();
    }

    pub(crate) fn is_said(&self) -> bool {
        self.is_said.load(Ordering::Acquire)
    }

    /// Waits until it is said. Cancel safe.
    pub(crate) async fn said(&self) {
        notified_until(&self.saying, || self.is_said().then_some(())).await;
    }
}

/// Whether the process is ending, and what it still has to do.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    ending: Ending,
    thread: OnceLock<ThreadId>,
    duties: AtomicUsize,
    done: Notify,
    leavers: Mutex<Vec<Weak<dyn Leave>>>,
}

/// What has locks that nobody has taken yet, and lets go of them when the process ends.
pub(crate) trait Leave: fmt::Debug + Send + Sync {
    /// Drops what is under way or was won.
    fn leave(&self);
}

impl Shutdown {
    /// Whether the process is ending.
    pub(crate) fn is_said(&self) -> bool {
        self.ending.is_said()
    }

    /// Stops every other thread than the one that ends the process, once it is ending.
    pub(crate) fn hold_back(&self) {
        if self.is_said() && self.thread.get().is_some_and(|thread| *thread != thread::current().id()) {
            loop {
                thread::park();
            }
        }
    }

    /// Has `leaver` called when the process ends.
    pub(crate) fn tell(&self, leaver: Weak<dyn Leave>) {
        let mut leavers = self.leavers();
        leavers.retain(|leaver| leaver.strong_count() > 0);
        leavers.push(leaver);
    }

    fn leavers(&self) -> MutexGuard<'_, Vec<Weak<dyn Leave>>> {
        self.leavers.lock().expect("no panic while holding this")
    }

    /// Begins to end the process, from this thread; false if that has begun before.
    pub(crate) fn say(&self) -> bool {
        if self.thread.set(thread::current().id()).is_err() {
            return false;
        }
        self.ending.say();
        let leavers = mem::take(&mut *self.leavers());
        leavers.iter().filter_map(Weak::upgrade).for_each(|leaver| leaver.leave());
        true
    }

    /// Whether a duty is left.
    pub(crate) fn has_duties(&self) -> bool {
        self.duties.load(Ordering::Acquire) > 0
    }

    /// Waits until the process is ending. Cancel safe.
    pub(crate) async fn said(&self) {
        self.ending.said().await;
    }

    /// Waits until no duty is left, for at most `limit` of the clock's time. Cancel safe.
    pub(crate) async fn done(&self, limit: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = notified_until(&self.done, || (!self.has_duties()).then_some(())) => {}
            () = limit => {}
        }
    }
}

/// Something that an ending process waits for: a release, or clean-up. Done when dropped.
#[derive(Debug)]
pub(crate) struct Duty(Arc<Shutdown>);

impl Duty {
    pub(crate) fn new(shutdown: &Arc<Shutdown>) -> Self {
        shutdown.duties.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shutdown))
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if self.0.duties.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_waiters();
        }
    }
}
