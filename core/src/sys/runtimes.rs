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
//! if it served no other set. Else the runtime is *stale*, and closes them when it is driven: at once for a moment, and
//! by a thread that drives it at that time after its call. What waits for a node, such as a connect under way, keeps its
//! connections, so a thread named `redlock-close` goes on with such a runtime until they are gone: at the latest at the
//! deadlines of what waits. Between its turns the runtime is idle, so that calls do not connect
//! anew. Dropping a set does not block, even in a tokio context.

use std::any::Any;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
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

/// The pause before a stale runtime is driven again. It doubles up to [`PAUSE_MOST`].
const PAUSE_FIRST: Duration = Duration::from_millis(1);

const PAUSE_MOST: Duration = Duration::from_millis(250);

/// The place of the runtime that was used last.
const LAST: usize = usize::MAX;

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
    stale: Vec<Stale>,
    /// Whether the thread runs that drives stale runtimes.
    closing: bool,
}

/// The connections of a dropped node set on a runtime that serves others.
#[derive(Debug)]
struct Stale {
    runtime: Id,
    connections: WeakConnections,
}

/// The connections of one node set on one runtime, of which this file only asks whether they still exist.
pub(crate) type WeakConnections = Weak<dyn Any + Send + Sync>;

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
        stock.stale.retain(|stale| stale.runtime != runtime);
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
        self: &Arc<Self>,
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
        self: &Arc<Self>,
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
        let idle = match preferred.and_then(|id| stock.place(id)) {
            Some(place) => Some(stock.idle.remove(place)),
            // The last used has the warmest connections.
            None => stock.idle.pop(),
        };
        drop(stock);
        idle.map_or_else(|| self.make(clock), Ok)
    }

    /// Puts back a runtime that the calling thread drove. If it is stale, closes its dropped connections first.
    fn put_back(self: &Arc<Self>, clock: &Clock, runtime: Runtime, tick: Tick) -> Id {
        self.put_back_at(LAST, clock, runtime, tick)
    }

    /// Works as [`put_back`](Self::put_back), but inserts it at `place` among the idle ones.
    fn put_back_at(self: &Arc<Self>, place: usize, clock: &Clock, runtime: Runtime, tick: Tick) -> Id {
        let id = runtime.handle().id();
        let mut stock = self.stock();
        let dropped = stock.leave_stale(id);
        if !dropped.is_empty() {
            drop(stock);
            if self.forgets(id) {
                runtime.shutdown_background();
                return id;
            }
            let mut waiting = close_dropped(&runtime, dropped);
            stock = self.stock();
            stock.stale.append(&mut waiting);
        }
        let is_stale = stock.stale.iter().any(|stale| stale.runtime == id);
        if stock.idle.len() < IDLE_MAX {
            let place = place.min(stock.idle.len());
            stock.idle.insert(place, Idle { runtime, since: clock.now(), tick });
            drop(stock);
        } else {
            stock.leave_stale(id);
            self.made().retain(|made| made.runtime != id);
            drop(stock);
        }
        if is_stale {
            self.close_later(clock);
        }
        id
    }

    /// Drives every idle stale runtime once. Not for a tokio context.
    fn sweep(self: &Arc<Self>, clock: &Clock) {
        let stale: HashSet<Id> = self.stock().stale.iter().map(|stale| stale.runtime).collect();
        for runtime in stale {
            let mut stock = self.stock();
            let Some(place) = stock.place(runtime) else { continue };
            let Idle { runtime, tick, .. } = stock.idle.remove(place);
            drop(stock);
            self.put_back_at(place, clock, runtime, tick);
        }
    }

    /// Has a thread drive the stale runtimes until none is left, unless one does.
    fn close_later(self: &Arc<Self>, clock: &Clock) {
        let mut stock = self.stock();
        if stock.stale.is_empty() || mem::replace(&mut stock.closing, true) {
            return;
        }
        drop(stock);
        let (pool, clock) = (Arc::clone(self), clock.clone());
        let closes = move || {
            let mut pause = PAUSE_FIRST;
            loop {
                thread::park_timeout(pause);
                pause = PAUSE_MOST.min(pause * 2);
                pool.sweep(&clock);
                let mut stock = pool.stock();
                stock.closing = !stock.stale.is_empty();
                if !stock.closing {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("redlock-close".to_owned()).spawn(closes) {
            self.stock().closing = false;
            log!(THREAD_MISSING, %error, "no thread to close connections; the next blocking call closes them");
        }
    }
}

impl Stock {
    /// Returns where `runtime` is among the idle ones.
    fn place(&self, runtime: Id) -> Option<usize> {
        self.idle.iter().rposition(|idle| idle.runtime.handle().id() == runtime)
    }

    /// Forgets that `runtime` is stale, and returns why it was.
    fn leave_stale(&mut self, runtime: Id) -> Vec<Stale> {
        self.stale.extract_if(.., |stale| stale.runtime == runtime).collect()
    }
}

/// Drives `runtime` for a moment, so that it closes the connections that were dropped. Returns those that are still
/// waited on.
fn close_dropped(runtime: &Runtime, mut dropped: Vec<Stale>) -> Vec<Stale> {
    // Before the turns: the tasks of connections that go during the turns need turns themselves.
    dropped.retain(|stale| stale.connections.strong_count() > 0);
    runtime.block_on(async {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    });
    dropped
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

/// Closes a dropped node set's connections on these runtimes. Returns at once, even in a tokio context.
pub(crate) fn close(pool: &Arc<Pool>, clock: &Clock, dropped: impl IntoIterator<Item = (Id, WeakConnections)>) {
    let mut over = Vec::new();
    let mut stock = pool.stock();
    for (runtime, connections) in dropped {
        match pool.made().iter_mut().find(|made| made.runtime == runtime) {
            Some(made) => made.sets = made.sets.saturating_sub(1),
            None => continue,
        }
        match stock.place(runtime) {
            Some(place) if pool.forgets(runtime) => over.push(stock.idle.remove(place).runtime),
            _ => stock.stale.push(Stale { runtime, connections }),
        }
    }
    let Stock { idle, stale, .. } = &*stock;
    let sweeps = idle.iter().any(|idle| stale.iter().any(|stale| stale.runtime == idle.runtime.handle().id()));
    drop(stock);
    over.into_iter().for_each(Runtime::shutdown_background);
    if !sweeps {
        return;
    }
    if Handle::try_current().is_err() {
        pool.sweep(clock);
    } else {
        pool.close_later(clock);
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
    use crate::sys::log::heard;

    /// Returns the number of runtimes, of idle ones and of stale ones.
    fn counts(pool: &Pool) -> (usize, usize, usize) {
        let (stock, made) = (pool.stock(), pool.made());
        (made.len(), stock.idle.len(), stock.stale.len())
    }

    /// Makes a call for `sets` node sets, which finally calls `last` on the driving thread.
    fn call(pool: &Arc<Pool>, sets: usize, last: impl FnOnce(Id)) -> Id {
        let driven = pool.drive(&Clock::System, None, async {
            let runtime = Handle::current().id();
            (0..sets).for_each(|_| pool.join(runtime));
            last(runtime);
        });
        driven.unwrap().1
    }

    /// Closes a node set's connections on `runtime`, on which nothing waits.
    fn close_idle(pool: &Arc<Pool>, runtime: Id) {
        close(pool, &Clock::System, [(runtime, Weak::<()>::new() as WeakConnections)]);
    }

    #[test]
    fn a_runtime_goes_with_its_last_set() {
        let pool = Arc::<Pool>::default();
        let runtime = call(&pool, 2, |_| ());
        close_idle(&pool, runtime);
        assert_eq!(counts(&pool), (1, 1, 0), "another set is on it");
        close_idle(&pool, runtime);
        assert_eq!(counts(&pool), (0, 0, 0));
    }

    #[test]
    fn a_runtime_that_is_driven_goes_after_the_call() {
        let pool = Arc::<Pool>::default();
        call(&pool, 1, |runtime| {
            close_idle(&pool, runtime);
            assert_eq!(counts(&pool), (1, 0, 1));
        });
        assert_eq!(counts(&pool), (0, 0, 0));
        call(&pool, 2, |runtime| close_idle(&pool, runtime));
        assert_eq!(counts(&pool), (1, 1, 0), "another set is on it");
    }

    #[test]
    fn in_a_runtime_another_thread_closes() {
        let pool = Arc::<Pool>::default();
        let runtime = call(&pool, 2, |_| ());
        let spawned = pool.stock().idle[0].runtime.spawn(async { tokio::task::yield_now().await });
        let context = Builder::new_current_thread().build().unwrap();
        context.block_on(async { close_idle(&pool, runtime) });
        harness::eventually("it was driven", || spawned.is_finished() && counts(&pool) == (1, 1, 0));
        context.block_on(async { close_idle(&pool, runtime) });
        assert_eq!(counts(&pool), (0, 0, 0));
    }

    #[test]
    fn what_waits_on_dropped_connections_goes_on() {
        let pool = Arc::<Pool>::default();
        let runtime = call(&pool, 2, |_| ());
        let connections = Arc::new(());
        let weak: WeakConnections = Arc::downgrade(&connections) as WeakConnections;
        let (answers, answer) = tokio::sync::oneshot::channel::<()>();
        let waits = async move {
            drop(answer.await);
            drop(connections);
            // Others end because of that.
            for _ in 0..TURNS / 2 {
                tokio::task::yield_now().await;
            }
        };
        let waits = pool.stock().idle[0].runtime.spawn(waits);
        close(&pool, &Clock::System, [(runtime, weak)]);
        assert!(pool.stock().closing, "a thread goes on");
        harness::eventually("it is idle between its turns", || counts(&pool) == (1, 1, 1));
        drop(answers);
        harness::eventually("it is over", || waits.is_finished() && counts(&pool) == (1, 1, 0));
        harness::eventually("the thread has ended", || !pool.stock().closing);
    }

    #[test]
    fn without_a_thread_the_next_call_closes() {
        const ME: &str = "without_a_thread_the_next_call_closes";
        if !harness::is_alone(harness::this_test_without_threads(module_path!(), ME)) {
            return;
        }
        let pool = Arc::<Pool>::default();
        let runtime = call(&pool, 2, |_| ());
        let context = Builder::new_current_thread().build().unwrap();
        let ((), said) = heard::text(|| context.block_on(async { close_idle(&pool, runtime) }));
        assert!(said.contains("thread_missing"), "{said}");
        assert_eq!(counts(&pool), (1, 1, 1));
        call(&pool, 0, |_| ());
        assert_eq!(counts(&pool), (1, 1, 0));
    }

    #[test]
    fn a_panic_leaves_nothing_of_its_runtime() {
        let pool = Arc::<Pool>::default();
        let panics = || {
            call(&pool, 1, |runtime| {
                close_idle(&pool, runtime);
                panic!("on purpose")
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(counts(&pool), (0, 0, 0));
    }
}
