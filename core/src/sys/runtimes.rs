//! Runtimes for callers without one. A thread that makes a blocking call drives a small runtime itself, so that its
//! request needs no hop to another thread and back.
//!
//! States of a runtime:
//!
//! - *idle*: it lies in the pool, and replies wait in its sockets;
//! - *driven*: exactly one thread drives it.
//!
//! A call first reads the replies that have arrived, unless the last call is less than [`FRESH`] ago. While the
//! background waits on behalf of a thread, the thread has returned its runtime and is parked. What may interrupt a
//! call:
//!
//! - its caller, asked every [`TICK`]: the call is dropped and the runtime kept. The caller is asked outside the
//!   runtime, so it can make other calls before it answers: they use other runtimes;
//! - a fork by the caller while it is asked: the child neither drives nor closes the parent's runtime;
//! - a panic: it unwinds through the runtime and drops it with its connections.
//!
//! A runtime counts the node sets that have connections on it. A dropped set's connections are closed with the runtime
//! if it served no other set, else by driving the runtime for a moment. A runtime that is driven at that time is
//! *stale*, and its thread closes them after its call. Dropping a set does not block, even in a tokio context.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use std::{io, mem};

use tokio::runtime::{Builder, Handle, Id, Runtime};

use crate::sys::clock::{Clock, Moment, Tick};
use crate::sys::log::log;

/// The most idle runtimes kept. Threads of a larger burst open their own connections.
const IDLE_MAX: usize = 64;

/// The time in which no reply worth a check can arrive: a check costs two system calls, a busy loop's call five.
const FRESH: Duration = Duration::from_millis(1);

/// The interval between checks for an interruption: immediate for a user who presses Ctrl-C.
const TICK: Duration = Duration::from_millis(25);

/// The turns of a runtime in which dropped connections are closed.
const TURNS: usize = 8;

/// The runtimes of one process. Of the two mutexes, `stock` is locked first.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    stock: Mutex<Stock>,
    /// Every runtime, idle or driven.
    made: Mutex<Vec<Made>>,
}

#[derive(Debug, Default)]
struct Stock {
    idle: Vec<Idle>,
    /// Those with dropped connections still to close.
    stale: Vec<Id>,
}

#[derive(Debug)]
struct Made {
    runtime: Id,
    /// The number of node sets with connections on it.
    sets: usize,
}

#[derive(Debug)]
struct Idle {
    runtime: Runtime,
    since: Moment,
    tick: Tick,
}

/// The reason why a call ends early.
#[derive(Debug)]
pub(crate) enum Break<E> {
    /// Its caller ends it.
    Interrupted(E),
    /// The caller forked while it was asked, and this is the child. The call is the parent's. Keeps the caller's
    /// interruption, if any.
    Forked(Option<E>),
}

/// Awaits background work on the parked thread, without a runtime. Calls `interrupted`, if given, every [`TICK`], and
/// drops the future if that fails. `interrupted` may park the thread too and consume a wake-up of this future, so the
/// future is polled after each call.
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
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().expect("no panic while holding this")
    }

    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().expect("no panic while holding this")
    }

    /// Returns whether the pool made this runtime, which no thread drives between calls.
    pub(crate) fn has_made(&self, runtime: Id) -> bool {
        self.made().iter().any(|made| made.runtime == runtime)
    }

    /// Counts another node set with connections on `runtime`, if the pool made it.
    pub(crate) fn join(&self, runtime: Id) {
        if let Some(made) = self.made().iter_mut().find(|made| made.runtime == runtime) {
            made.sets += 1;
        }
    }

    /// Forgets `runtime` and returns true, unless a node set has connections on it.
    fn forgets(&self, runtime: Id) -> bool {
        let mut made = self.made();
        let alone = !made.iter().any(|made| made.runtime == runtime && made.sets > 0);
        if alone {
            made.retain(|made| made.runtime != runtime);
        }
        alone
    }

    /// Forgets a runtime that a panic drops.
    fn lose(&self, runtime: Id) {
        let mut stock = self.stock();
        stock.stale.retain(|stale| *stale != runtime);
        self.made().retain(|made| made.runtime != runtime);
    }

    fn make(&self, clock: &Clock) -> io::Result<Idle> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        self.made().push(Made { runtime: runtime.handle().id(), sets: 0 });
        Ok(Idle { runtime, since: clock.now(), tick: Tick::every(TICK) })
    }

    /// Drives `future` to its end on the calling thread, on the runtime `preferred` if that is idle. Returns its output
    /// and the runtime used. Must not be called in a tokio context.
    pub(crate) fn drive<T>(
        &self,
        clock: &Clock,
        preferred: Option<Id>,
        future: impl Future<Output = T>,
    ) -> io::Result<(T, Id)> {
        let Idle { runtime, since, tick } = self.take(clock, preferred)?;
        let _driven = Driven { pool: self, runtime: runtime.handle().id(), panicking: thread::panicking() };
        let look = clock.now().since(since) > FRESH;
        let output = runtime.block_on(async {
            take_in(look).await;
            future.await
        });
        Ok((output, self.put_back(clock, runtime, tick)))
    }

    /// Works as [`Pool::drive`], but calls `interrupted` every [`TICK`] and drops the future if that fails. Then drives
    /// `afterwards`, so that the messages left by the drop are sent. Without `interrupted`, an idle call costs nothing.
    pub(crate) fn drive_unless<T, E>(
        &self,
        clock: &Clock,
        preferred: Option<Id>,
        future: impl Future<Output = T>,
        mut interrupted: Option<impl FnMut() -> Result<(), Break<E>>>,
        afterwards: impl Future<Output = ()>,
    ) -> io::Result<Result<(T, Id), Break<E>>> {
        let Idle { runtime, since, mut tick } = self.take(clock, preferred)?;
        let _driven = Driven { pool: self, runtime: runtime.handle().id(), panicking: thread::panicking() };
        let mut look = clock.now().since(since) > FRESH;
        // Made after the runtime, so that a panic drops it first.
        let mut call = pin!(Some(future));
        let output = loop {
            let asks = interrupted.is_some();
            let turn = runtime.block_on(async {
                take_in(mem::take(&mut look)).await;
                poll_fn(|cx| match call.as_mut().as_pin_mut().map(|future| future.poll(cx)) {
                    Some(Poll::Ready(output)) => Poll::Ready(Some(output)),
                    Some(Poll::Pending) if asks => tick.poll(cx).map(|()| None),
                    _ => Poll::Pending,
                })
                .await
            });
            if let Some(output) = turn {
                break Ok(output);
            }
            if let Some(Err(interruption)) = interrupted.as_mut().map(|interrupted| interrupted()) {
                break Err(interruption);
            }
        };
        match output {
            Ok(output) => Ok(Ok((output, self.put_back(clock, runtime, tick)))),
            // Neither driven nor closed here: the parent shares the runtime's event queue.
            Err(Break::Forked(said)) => {
                mem::forget(runtime);
                Ok(Err(Break::Forked(said)))
            }
            Err(interruption) => {
                runtime.block_on(async {
                    call.set(None);
                    afterwards.await;
                });
                self.put_back(clock, runtime, tick);
                Ok(Err(interruption))
            }
        }
    }

    fn take(&self, clock: &Clock, preferred: Option<Id>) -> io::Result<Idle> {
        let mut stock = self.stock();
        let idle = match preferred.and_then(|id| stock.idle.iter().rposition(|idle| idle.runtime.handle().id() == id)) {
            Some(place) => Some(stock.idle.remove(place)),
            // The last used has the warmest connections.
            None => stock.idle.pop(),
        };
        drop(stock);
        idle.map_or_else(|| self.make(clock), Ok)
    }

    /// Puts back a runtime that the calling thread drove. If it is stale, closes its dropped connections first.
    fn put_back(&self, clock: &Clock, runtime: Runtime, tick: Tick) -> Id {
        let id = runtime.handle().id();
        let mut stock = self.stock();
        while stock.stale.contains(&id) {
            stock.stale.retain(|stale| *stale != id);
            let over = self.forgets(id);
            drop(stock);
            if over {
                runtime.shutdown_background();
                return id;
            }
            runtime.block_on(async {
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
            });
            stock = self.stock();
        }
        if stock.idle.len() < IDLE_MAX {
            stock.idle.push(Idle { runtime, since: clock.now(), tick });
        } else {
            self.made().retain(|made| made.runtime != id);
            drop(stock);
        }
        id
    }

    /// Closes the dropped connections on every idle stale runtime. Not for a tokio context.
    fn sweep(&self, clock: &Clock) {
        loop {
            let mut stock = self.stock();
            let Stock { idle, stale } = &mut *stock;
            let Some(place) = idle.iter().position(|idle| stale.contains(&idle.runtime.handle().id())) else { return };
            let Idle { runtime, tick, .. } = idle.remove(place);
            drop(stock);
            self.put_back(clock, runtime, tick);
        }
    }
}

/// A runtime while a thread drives it.
struct Driven<'a> {
    pool: &'a Pool,
    runtime: Id,
    /// Whether the thread was unwinding before: a call in a drop.
    panicking: bool,
}

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.panicking {
            self.pool.lose(self.runtime);
        }
    }
}

/// Closes a dropped node set's connections on `runtimes`. Returns at once, even in a tokio context.
pub(crate) fn close(pool: &Arc<Pool>, clock: &Clock, runtimes: &[Id]) {
    let mut over = Vec::new();
    let mut stock = pool.stock();
    for runtime in runtimes {
        match pool.made().iter_mut().find(|made| made.runtime == *runtime) {
            Some(made) => made.sets = made.sets.saturating_sub(1),
            None => continue,
        }
        match stock.idle.iter().position(|idle| idle.runtime.handle().id() == *runtime) {
            Some(place) if pool.forgets(*runtime) => over.push(stock.idle.remove(place).runtime),
            _ => stock.stale.push(*runtime),
        }
    }
    let Stock { idle, stale } = &*stock;
    let sweeps = idle.iter().any(|idle| stale.contains(&idle.runtime.handle().id()));
    drop(stock);
    over.into_iter().for_each(Runtime::shutdown_background);
    if !sweeps {
        return;
    }
    if Handle::try_current().is_err() {
        return pool.sweep(clock);
    }
    let (sweeper, clock) = (Arc::clone(pool), clock.clone());
    let sweep = move || sweeper.sweep(&clock);
    if let Err(error) = thread::Builder::new().name("redlock-close".to_owned()).spawn(sweep) {
        log!(THREAD_MISSING, %error, "no thread to close connections; the next blocking call closes them");
    }
}

/// Lets the runtime poll its sockets, and then its connections read, if `look` is true. The call then knows the replies
/// that arrived since the last one.
async fn take_in(look: bool) {
    if look {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    /// Returns the number of runtimes, of idle ones and of stale ones.
    fn counts(pool: &Pool) -> (usize, usize, usize) {
        let (stock, made) = (pool.stock(), pool.made());
        (made.len(), stock.idle.len(), stock.stale.len())
    }

    /// Makes a call for `sets` node sets, which finally calls `last` on the driving thread.
    fn call(pool: &Pool, sets: usize, last: impl FnOnce(Id)) -> Id {
        let driven = pool.drive(&Clock::System, None, async {
            let runtime = Handle::current().id();
            (0..sets).for_each(|_| pool.join(runtime));
            last(runtime);
        });
        driven.unwrap().1
    }

    #[test]
    fn a_runtime_goes_with_its_last_set() {
        let pool = Arc::new(Pool::default());
        let runtime = call(&pool, 2, |_| ());
        close(&pool, &Clock::System, &[runtime]);
        assert_eq!(counts(&pool), (1, 1, 0), "another set is on it");
        close(&pool, &Clock::System, &[runtime]);
        assert_eq!(counts(&pool), (0, 0, 0));
    }

    #[test]
    fn a_runtime_that_is_driven_goes_after_the_call() {
        let pool = Arc::new(Pool::default());
        call(&pool, 1, |runtime| {
            close(&pool, &Clock::System, &[runtime]);
            assert_eq!(counts(&pool), (1, 0, 1));
        });
        assert_eq!(counts(&pool), (0, 0, 0));
        call(&pool, 2, |runtime| close(&pool, &Clock::System, &[runtime]));
        assert_eq!(counts(&pool), (1, 1, 0), "another set is on it");
    }

    #[test]
    fn in_a_runtime_another_thread_closes() {
        let pool = Arc::new(Pool::default());
        let runtime = call(&pool, 2, |_| ());
        let spawned = pool.stock().idle[0].runtime.spawn(async { tokio::task::yield_now().await });
        let context = Builder::new_current_thread().build().unwrap();
        context.block_on(async { close(&pool, &Clock::System, &[runtime]) });
        harness::eventually("it was driven", || spawned.is_finished() && counts(&pool) == (1, 1, 0));
        context.block_on(async { close(&pool, &Clock::System, &[runtime]) });
        assert_eq!(counts(&pool), (0, 0, 0));
    }

    #[test]
    fn a_panic_leaves_nothing_of_its_runtime() {
        let pool = Arc::new(Pool::default());
        let panics = || {
            call(&pool, 1, |runtime| {
                close(&pool, &Clock::System, &[runtime]);
                panic!("on purpose")
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(counts(&pool), (0, 0, 0));
    }
}
