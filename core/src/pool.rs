//! Runtimes for callers without one: a thread that makes a blocking call drives a small runtime itself, so that its
//! request needs no hop to another thread and back.
//!
//! A runtime is *idle* in the pool or *driven* by exactly one thread. Between calls nobody drives it: replies wait in
//! its sockets, and a call first takes in what has arrived unless the last call is less than [`FRESH`] ago. A thread for
//! which the background waits has given its runtime back, and is parked. What may interrupt a call: its caller, asked
//! every [`TICK`], which drops the call and keeps the runtime; and a panic, which unwinds through the runtime and drops it
//! with its connections.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Id, Runtime};

use crate::clock::{Clock, Moment, Tick};

/// Most idle runtimes kept; a burst of threads beyond it pays for its own connections.
const IDLE_MAX: usize = 64;

/// Time in which nothing worth a look can have arrived: a look costs two system calls, a call of a busy loop has five.
const FRESH: Duration = Duration::from_millis(1);

/// How often a call looks whether it is interrupted: at once, to whoever pressed Ctrl-C.
const TICK: Duration = Duration::from_millis(25);

/// The runtimes of one process.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
    /// Every one that there is, idle or driven. One that a panic has dropped may stay on this list.
    made: Mutex<Vec<Id>>,
}

#[derive(Debug)]
struct Idle {
    runtime: Runtime,
    since: Moment,
    tick: Tick,
}

/// Awaits on the parked thread, without a runtime, what the background does. Asks `interrupted` every [`TICK`] if there is
/// one, and drops the future if that fails.
pub(crate) fn park_unless<T, E>(
    future: impl Future<Output = T>,
    mut interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<T, E> {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        match &mut interrupted {
            Some(interrupted) => {
                thread::park_timeout(TICK);
                interrupted()?;
            }
            None => thread::park(),
        }
    }
}

/// A thread that waits without a runtime.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().expect("no panic while holding this")
    }

    fn made(&self) -> MutexGuard<'_, Vec<Id>> {
        self.made.lock().expect("no panic while holding this")
    }

    /// Whether the runtime is one of these, which nobody drives between two calls.
    pub(crate) fn has_made(&self, runtime: Id) -> bool {
        self.made().contains(&runtime)
    }

    fn make(&self) -> io::Result<Runtime> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        self.made().push(runtime.handle().id());
        Ok(runtime)
    }

    /// Drives `future` to its end on the calling thread, on the runtime `home` if that is idle. Returns its output, and
    /// the runtime it ran on. Must not be called in a tokio context.
    pub(crate) fn drive<T>(
        &self,
        clock: &Clock,
        home: Option<Id>,
        future: impl Future<Output = T>,
    ) -> io::Result<(T, Id)> {
        self.drive_with(clock, home, async |_: &mut Tick| future.await)
    }

    /// As [`Pool::drive`], but asks `interrupted` every [`TICK`] of the call, and drops the future if that fails. Where there
    /// is none, the call costs nothing while nothing happens. `afterwards` is driven then, so that what the drop left to be sent is sent.
    pub(crate) fn drive_unless<T, E>(
        &self,
        clock: &Clock,
        home: Option<Id>,
        future: impl Future<Output = T>,
        mut interrupted: Option<impl FnMut() -> Result<(), E>>,
        afterwards: impl Future<Output = ()>,
    ) -> io::Result<(Result<T, E>, Id)> {
        self.drive_with(clock, home, async |tick: &mut Tick| {
            let output = {
                let mut future = pin!(future);
                poll_fn(|cx| {
                    if let Poll::Ready(output) = future.as_mut().poll(cx) {
                        return Poll::Ready(Ok(output));
                    }
                    let Some(interrupted) = &mut interrupted else { return Poll::Pending };
                    while tick.poll(cx).is_ready() {
                        if let Err(interruption) = interrupted() {
                            return Poll::Ready(Err(interruption));
                        }
                    }
                    Poll::Pending
                })
                .await
            };
            if output.is_err() {
                afterwards.await;
            }
            output
        })
    }

    fn drive_with<T>(
        &self,
        clock: &Clock,
        home: Option<Id>,
        call: impl AsyncFnOnce(&mut Tick) -> T,
    ) -> io::Result<(T, Id)> {
        let (runtime, look, mut tick) = match self.take(home) {
            Some(idle) => (idle.runtime, clock.now().since(idle.since) > FRESH, idle.tick),
            None => (self.make()?, false, Tick::every(TICK)),
        };
        let output = runtime.block_on(async {
            if look {
                // Once to look at the sockets, once to let the connections read: what arrived since the last call is
                // heard before anything is judged by it.
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            call(&mut tick).await
        });
        let id = runtime.handle().id();
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(Idle { runtime, since: clock.now(), tick });
        } else {
            drop(idle);
            self.made().retain(|made| *made != id);
        }
        Ok((output, id))
    }

    fn take(&self, home: Option<Id>) -> Option<Idle> {
        let mut idle = self.idle();
        match home.and_then(|home| idle.iter().rposition(|idle| idle.runtime.handle().id() == home)) {
            Some(place) => Some(idle.remove(place)),
            // The one used last has the warmest connections.
            None => idle.pop(),
        }
    }
}
