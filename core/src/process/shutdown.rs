//! What a process does before it ends: it gives back what it holds, and waits for a moment until the servers have heard
//! of it.
//!
//! Python and Node have a hook for it; a program in Rust says it itself. States of a process: *running* → *ending*, for
//! good. Once it is ending, nothing new is acquired, and each waiting call is answered at once: `unavailable`. In Python the
//! answer reaches no code: lock objects stop their threads, except the thread that ends the process, because these must
//! not return into an interpreter that is being taken apart; and the queues of event loops drop their calls. What may
//! interrupt it: nothing, it has a limit of its own.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;
use std::{fmt, mem};

use tokio::sync::Notify;

use crate::process::Process;

/// Longest wait for the servers. More would be a hang to who ends the program; what is left runs out with its ttl.
const LIMIT: Duration = Duration::from_millis(500);

/// Turns of the background in which a cancelled call is dropped, its wait with it, and what that one had sent is owed.
const TURNS: usize = 8;

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
        until(&self.saying, || self.is_said()).await;
    }
}

/// Whether the process is ending, and what it still has to do.
#[derive(Debug, Default)]
pub(crate) struct Farewell {
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

impl Farewell {
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

    /// Waits until the process is ending. Cancel safe.
    pub(crate) async fn said(&self) {
        self.ending.said().await;
    }

    /// Waits until no duty is left, for at most `limit` of the clock's time. Cancel safe.
    pub(crate) async fn done(&self, limit: impl Future<Output = ()>) {
        let mut limit = pin!(limit);
        tokio::select! {
            biased;
            () = until(&self.done, || self.duties.load(Ordering::Acquire) == 0) => {}
            () = &mut limit => {}
        }
    }
}

/// Waits until `holds`, which `changed` tells of.
async fn until(changed: &Notify, holds: impl Fn() -> bool) {
    loop {
        let mut notified = pin!(changed.notified());
        notified.as_mut().enable();
        if holds() {
            return;
        }
        notified.await;
    }
}

/// Something that an ending process waits for: a release, or clean-up. Done when dropped.
#[derive(Debug)]
pub(crate) struct Duty(Arc<Process>);

impl Duty {
    pub(crate) fn new(process: &Arc<Process>) -> Self {
        process.farewell.duties.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(process))
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if self.0.farewell.duties.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.farewell.done.notify_waiters();
        }
    }
}

/// Releases every lock held by this process, ends its waiting calls with an `unavailable` error, and waits up to 500 ms for
/// the servers. Locks that could not be released expire after their ttl.
///
/// For the end of `main`: a guard that is dropped there has its release queued, and the process may be gone before it is
/// sent. A program that awaits [`Guard::release`](crate::Guard::release) for each does not need it.
///
/// It blocks, also in async code, and is final: what waits for a lock does not get it, nothing is acquired any more, and
/// saying it again does nothing.
///
/// # Examples
///
/// ```
/// # use redlock::Redlock;
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), redlock::Error> {
///     let redlock = Redlock::new("memory://farewell-example")?;
///     let work = async {
///         let _guard = redlock.lock("report").await?;
///         Ok(())
///     };
///     let done = tokio::select! {
///         done = work => done,
///         // Or SIGTERM. The work is dropped, and its guard with it.
///         Ok(()) = tokio::signal::ctrl_c() => Ok(()),
///     };
///     redlock::farewell();
///     done
/// }
/// ```
pub fn farewell() {
    let process = Process::current();
    if process.farewell.thread.set(thread::current().id()).is_err() {
        return;
    }
    process.farewell.ending.say();
    let leavers = mem::take(&mut *process.farewell.leavers());
    leavers.iter().filter_map(Weak::upgrade).for_each(|leaver| leaver.leave());
    process.renewal.give_back();
    if let Some(background) = process.background.started() {
        // What was cancelled a moment ago is dropped by the background, and only then known to be owed.
        let duty = Duty::new(&process);
        background.spawn(async move {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            drop(duty);
        });
    }
    if process.farewell.duties.load(Ordering::Acquire) > 0 {
        wait(&process);
    }
}

/// Waits for the servers, on a thread of its own: the caller may be in a tokio context, where none may block.
fn wait(process: &Process) {
    let clock = process.clock.clone();
    let done = process.farewell.done(async move { clock.sleep(LIMIT).await });
    thread::scope(|scope| {
        // Driven on a runtime of the blocking face: releases may be queued on its connections.
        let drive = || drop(process.pool.drive(&process.clock, None, done));
        if let Ok(waiting) = thread::Builder::new().spawn_scoped(scope, drive) {
            drop(waiting.join());
        }
    });
}
