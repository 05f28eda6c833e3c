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
//! A caller needs a *seat* of its node set on a runtime, of which there are as many as the set may have connections for
//! such callers. It takes an idle runtime where its set has a seat, else another one, which gets a seat, else it makes
//! one. Where all seats are taken, or the system gives no event queue, the background runs the call. Runtimes that were
//! idle for [`IDLE_LIMIT`] are closed, except the last one: a caller that comes now and then does not connect each time.
//!
//! A runtime counts the node sets that have connections on it. A dropped set's connections are closed with the runtime
//! if it served no other set. Else the runtime is *stale*, and closes them when it is driven: at once for a moment, and
//! by a thread that drives it at that time after its call. What waits for a node, such as a connect under way, keeps its
//! connections, so a thread named `redlock-close` goes on with such a runtime until they are gone: at the latest at the
//! deadlines of what waits. Between its turns the runtime is idle, so that calls do not connect
//! anew. Dropping a set does not block, even in a tokio context.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Id, Runtime};

use crate::sys::background::Background;
use crate::sys::clock::{Clock, Moment, Tick};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::on_drop::OnDrop;
use crate::sys::task::{block_on, on_thread};

/// The seats of callers that have no node set.
const OTHER_SEATS: usize = 8;

/// How long a runtime is idle before it is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// The time in which no reply worth a check can arrive: a check costs two system calls, a busy loop's call five.
const FRESH: Duration = Duration::from_millis(1);

/// The interval between checks for an interruption: immediate for a user who presses Ctrl-C.
const TICK: Duration = Duration::from_millis(25);

/// The ticks after which a wait is late: longer than a call leaves a lock to others that were denied it.
const LATE: u32 = 6;

/// The turns of a runtime in which dropped connections are closed.
const TURNS: usize = 8;

/// The pause before a stale runtime is driven again. It doubles up to [`PAUSE_MOST`].
const PAUSE_FIRST: Duration = Duration::from_millis(1);

const PAUSE_MOST: Duration = Duration::from_millis(250);

/// The place of the runtime that was used last.
const LAST: usize = usize::MAX;

/// The runtimes of one process.
#[derive(Debug)]
pub(crate) struct Pool {
    stock: Mutex<Stock>,
    /// The seats of callers without a node set.
    others: Arc<Seats>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { stock: Mutex::default(), others: Seats::new(OTHER_SEATS) }
    }
}

/// The seats of one node set: the runtimes on which its callers may have connections.
#[derive(Debug)]
pub(crate) struct Seats {
    most: usize,
}

/// A seat on one runtime, until that is closed. Nothing else refers to seats in this way.
type Seat = Weak<Seats>;

impl Seats {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most })
    }

    /// Takes a seat, if one is left. Under the lock of the stock.
    fn take(self: &Arc<Self>) -> Option<Seat> {
        (Arc::weak_count(self) < self.most).then(|| Arc::downgrade(self))
    }
}

#[derive(Debug, Default)]
struct Stock {
    /// Every runtime, idle or driven, and the number of node sets with connections on it.
    made: HashMap<Id, usize>,
    idle: Vec<Idle>,
    stale: Vec<Stale>,
    /// Whether the thread runs that drives stale runtimes.
    closing: bool,
    /// Whether the task runs that closes idle runtimes.
    aging: bool,
}

/// The connections of a dropped node set on a runtime that serves others.
#[derive(Debug)]
struct Stale {
    runtime: Id,
    connections: WeakConnections,
}

/// The connections of one node set on one runtime, of which this file only asks whether they still exist.
pub(crate) type WeakConnections = Weak<dyn Any + Send + Sync>;

/// A runtime that no thread drives.
#[derive(Debug)]
pub(crate) struct Idle {
    runtime: Runtime,
    since: Moment,
    tick: Tick,
    seats: Vec<Seat>,
}

impl Idle {
    fn id(&self) -> Id {
        self.runtime.handle().id()
    }

    /// Closes it with its connections, even in a tokio context.
    fn close(self) {
        self.runtime.shutdown_background();
    }

    fn has(&self, seats: &Arc<Seats>) -> bool {
        self.seats.iter().any(|seat| std::ptr::eq(seat.as_ptr(), Arc::as_ptr(seats)))
    }
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
/// `late`, if given, once the wait is late. Drops the future if one of them fails. `interrupted` may park the thread too
/// and consume a wake-up of this future, so the future is polled after each call.
pub(crate) fn park_telling<T, E>(
    future: impl Future<Output = T>,
    mut late: Option<impl FnOnce() -> Result<(), E>>,
    mut interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<T, E> {
    let mut ticks = 0;
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        if let Some(late) = late.take_if(|_| ticks >= LATE) {
            late()?;
        }
        if late.is_none() && interrupted.is_none() {
            thread::park();
            continue;
        }
        thread::park_timeout(TICK);
        ticks += 1;
        if let Some(interrupted) = &mut interrupted {
            interrupted()?;
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
    /// Returns whether the pool made this runtime, which no thread drives between calls.
    pub(crate) fn has_made(&self, runtime: Id) -> bool {
        self.stock.lock().made.contains_key(&runtime)
    }

    /// Counts another node set with connections on `runtime`, if the pool made it.
    pub(crate) fn join(&self, runtime: Id) {
        if let Some(sets) = self.stock.lock().made.get_mut(&runtime) {
            *sets += 1;
        }
    }

    /// Has a panic until what is returned is dropped, which drops the runtime, forget that, too.
    fn begin_to_drive(&self, runtime: Id) -> OnDrop<impl FnOnce()> {
        // A call in a drop, while the thread unwinds.
        let was_panicking = thread::panicking();
        OnDrop::new(move || {
            if thread::panicking() && !was_panicking {
                let mut stock = self.stock.lock();
                stock.stale.retain(|stale| stale.runtime != runtime);
                stock.made.remove(&runtime);
            }
        })
    }

    /// Makes a runtime; `None` if the system gives no event queue.
    fn make(&self, clock: &Clock, seat: Seat) -> Option<Idle> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().ok()?;
        self.stock.lock().made.insert(runtime.handle().id(), 0);
        Some(Idle { runtime, since: clock.now(), tick: Tick::every(TICK), seats: vec![seat] })
    }

    /// Drives `future` to its end on the calling thread. Returns its output and the runtime used. Must not be called in
    /// a tokio context.
    pub(crate) fn drive<T>(self: &Arc<Self>, clock: &Clock, idle: Idle, future: impl Future<Output = T>) -> (T, Id) {
        let mut output = None;
        let id = self.drive_for(clock, idle, pin!(async { output = Some(future.await) }));
        (output.expect("it has been driven to its end"), id)
    }

    fn drive_for(self: &Arc<Self>, clock: &Clock, idle: Idle, future: Pin<&mut dyn Future<Output = ()>>) -> Id {
        let _driven = self.begin_to_drive(idle.id());
        let look = clock.now().since(idle.since) > FRESH;
        block_on(&idle.runtime, async {
            take_in(look).await;
            future.await;
        });
        self.put_back(clock, idle)
    }

    /// Works as [`Pool::drive`], but calls `interrupted` every [`TICK`] and drops the future if that fails. Then drives
    /// `afterwards`, so that the messages left by the drop are sent. Without `interrupted`, an idle call costs nothing.
    pub(crate) fn drive_unless<T, E>(
        self: &Arc<Self>,
        clock: &Clock,
        mut idle: Idle,
        future: impl Future<Output = T>,
        mut interrupted: Option<impl FnMut() -> Result<(), Break<E>>>,
        afterwards: impl Future<Output = ()>,
    ) -> Result<(T, Id), Break<E>> {
        let _driven = self.begin_to_drive(idle.id());
        let mut look = clock.now().since(idle.since) > FRESH;
        // Made after the runtime, so that a panic drops it first.
        let mut call = pin!(Some(future));
        let output = loop {
            let asks = interrupted.is_some();
            let Idle { runtime, tick, .. } = &mut idle;
            let turn = block_on(runtime, async {
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
            Ok(output) => Ok((output, self.put_back(clock, idle))),
            // Neither driven nor closed here: the parent shares the runtime's event queue.
            Err(Break::Forked(said)) => {
                mem::forget(idle);
                Err(Break::Forked(said))
            }
            Err(interruption) => {
                block_on(&idle.runtime, async {
                    call.set(None);
                    afterwards.await;
                });
                self.put_back(clock, idle);
                Err(interruption)
            }
        }
    }

    /// Takes a runtime to drive: `preferred` if that is idle, else one with a seat of `seats`, by default of those for
    /// callers without a set. `None` if all seats are taken, or the system gives no event queue.
    pub(crate) fn take(
        self: &Arc<Self>,
        clock: &Clock,
        background: &Background,
        preferred: Option<Id>,
        seats: Option<&Arc<Seats>>,
    ) -> Option<Idle> {
        let seats = seats.unwrap_or(&self.others);
        let mut stock = self.stock.lock();
        // The last used has the warmest connections.
        let seated = || stock.idle.iter().rposition(|idle| idle.has(seats));
        if let Some(place) = preferred.and_then(|id| stock.place(id)).or_else(seated) {
            return Some(stock.idle.remove(place));
        }
        let seat = seats.take()?;
        if let Some(mut idle) = stock.idle.pop() {
            idle.seats.retain(|seat| seat.strong_count() > 0);
            idle.seats.push(seat);
            return Some(idle);
        }
        drop(stock);
        let idle = self.make(clock, seat)?;
        self.age(clock, background);
        Some(idle)
    }

    /// Has the background close what is idle for too long, unless it does.
    fn age(self: &Arc<Self>, clock: &Clock, background: &Background) {
        let Some(background) = background.started() else { return };
        if mem::replace(&mut self.stock.lock().aging, true) {
            return;
        }
        let (pool, clock) = (Arc::downgrade(self), clock.clone());
        background.spawn(async move {
            loop {
                clock.sleep(IDLE_LIMIT / 2).await;
                let Some(pool) = pool.upgrade() else { return };
                if !pool.close_idle(clock.now()) {
                    return;
                }
            }
        });
    }

    /// Closes runtimes that were idle for [`IDLE_LIMIT`], except the last one. Returns whether others are left.
    fn close_idle(&self, now: Moment) -> bool {
        let mut stock = self.stock.lock();
        let others = stock.idle.len().saturating_sub(1);
        let is_over = |idle: &mut Idle| idle.since.after(IDLE_LIMIT) <= now;
        let over: Vec<Idle> = stock.idle.extract_if(..others, is_over).collect();
        for idle in &over {
            stock.leave_stale(idle.id());
            stock.made.remove(&idle.id());
        }
        stock.aging = stock.made.len() > 1;
        let is_aging = stock.aging;
        drop(stock);
        over.into_iter().for_each(Idle::close);
        is_aging
    }

    /// Puts back a runtime that the calling thread drove. If it is stale, closes its dropped connections first.
    fn put_back(self: &Arc<Self>, clock: &Clock, idle: Idle) -> Id {
        self.put_back_at(LAST, clock.now(), clock, idle)
    }

    /// Works as [`put_back`](Self::put_back), but inserts it at `place` among the idle ones, idle `since` then.
    fn put_back_at(self: &Arc<Self>, place: usize, since: Moment, clock: &Clock, idle: Idle) -> Id {
        let id = idle.id();
        let mut stock = self.stock.lock();
        let dropped = stock.leave_stale(id);
        if !dropped.is_empty() {
            let is_over = stock.forgets(id);
            drop(stock);
            if is_over {
                idle.close();
                return id;
            }
            let mut waiting = close_dropped(&idle.runtime, dropped);
            stock = self.stock.lock();
            stock.stale.append(&mut waiting);
        }
        let is_stale = stock.stale.iter().any(|stale| stale.runtime == id);
        let place = place.min(stock.idle.len());
        stock.idle.insert(place, Idle { since, ..idle });
        drop(stock);
        if is_stale {
            self.close_later(clock);
        }
        id
    }

    /// Drives every idle stale runtime once. Not for a tokio context.
    fn sweep(self: &Arc<Self>, clock: &Clock) {
        let stale: HashSet<Id> = self.stock.lock().stale.iter().map(|stale| stale.runtime).collect();
        for runtime in stale {
            let mut stock = self.stock.lock();
            let Some(place) = stock.place(runtime) else { continue };
            let idle = stock.idle.remove(place);
            drop(stock);
            self.put_back_at(place, idle.since, clock, idle);
        }
    }

    /// Has a thread drive the stale runtimes until none is left, unless one does.
    fn close_later(self: &Arc<Self>, clock: &Clock) {
        let mut stock = self.stock.lock();
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
                let mut stock = pool.stock.lock();
                stock.closing = !stock.stale.is_empty();
                if !stock.closing {
                    return;
                }
            }
        };
        if let Err(error) = on_thread("redlock-close", closes) {
            self.stock.lock().closing = false;
            log!(THREAD_MISSING, %error, "no thread to close connections; the next blocking call closes them");
        }
    }
}

impl Stock {
    /// Returns where `runtime` is among the idle ones.
    fn place(&self, runtime: Id) -> Option<usize> {
        self.idle.iter().rposition(|idle| idle.id() == runtime)
    }

    /// Forgets `runtime` and returns true, unless a node set has connections on it.
    fn forgets(&mut self, runtime: Id) -> bool {
        let is_alone = self.made.get(&runtime).is_none_or(|sets| *sets == 0);
        if is_alone {
            self.made.remove(&runtime);
        }
        is_alone
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
    block_on(runtime, async {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    });
    dropped
}

/// Closes a dropped node set's connections on these runtimes. Returns at once, even in a tokio context.
pub(crate) fn close(pool: &Arc<Pool>, clock: &Clock, dropped: impl IntoIterator<Item = (Id, WeakConnections)>) {
    let mut over = Vec::new();
    let mut stock = pool.stock.lock();
    for (runtime, connections) in dropped {
        let Some(sets) = stock.made.get_mut(&runtime) else { continue };
        *sets = sets.saturating_sub(1);
        match stock.place(runtime) {
            Some(place) if stock.forgets(runtime) => over.push(stock.idle.remove(place)),
            _ => stock.stale.push(Stale { runtime, connections }),
        }
    }
    let Stock { idle, stale, .. } = &*stock;
    let sweeps = idle.iter().any(|idle| stale.iter().any(|stale| stale.runtime == idle.id()));
    drop(stock);
    over.into_iter().for_each(Idle::close);
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
        let stock = pool.stock.lock();
        (stock.made.len(), stock.idle.len(), stock.stale.len())
    }

    /// Makes a call for `sets` node sets, which finally calls `last` on the driving thread.
    fn call(pool: &Arc<Pool>, sets: usize, last: impl FnOnce(Id)) -> Id {
        let idle = pool.take(&Clock::System, &Background::thread(), None, None).unwrap();
        let driven = pool.drive(&Clock::System, idle, async {
            let runtime = Handle::current().id();
            (0..sets).for_each(|_| pool.join(runtime));
            last(runtime);
        });
        driven.1
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
        let spawned = pool.stock.lock().idle[0].runtime.spawn(async { tokio::task::yield_now().await });
        let context = Builder::new_current_thread().build().unwrap();
        context.block_on(async { close_idle(&pool, runtime) });
        harness::eventually("it was driven", || spawned.is_finished() && counts(&pool) == (1, 1, 0));
        context.block_on(async { close_idle(&pool, runtime) });
        assert_eq!(counts(&pool), (0, 0, 0));
    }

    #[test]
    fn a_set_has_so_many_seats() {
        let (pool, background) = (Arc::<Pool>::default(), Background::thread());
        let (mine, other) = (Seats::new(2), Seats::new(1));
        let take = |seats, preferred| pool.take(&Clock::System, &background, preferred, Some(seats));
        let (first, second) = (take(&mine, None).unwrap(), take(&mine, None).unwrap());
        assert!(take(&mine, None).is_none(), "all seats are taken");
        let (one, two) = (pool.put_back(&Clock::System, first), pool.put_back(&Clock::System, second));
        let shared = take(&other, None).unwrap();
        assert_eq!(shared.id(), two, "it is not made anew for another set");
        assert_eq!(take(&mine, Some(two)).unwrap().id(), one);
        assert!(take(&other, None).is_none());
        drop(shared);
        assert_eq!((Arc::weak_count(&mine), Arc::weak_count(&other)), (0, 0));
    }

    #[test]
    fn what_was_idle_for_long_is_closed_except_the_last() {
        let (pool, background) = (Arc::<Pool>::default(), Background::thread());
        let take = || pool.take(&Clock::System, &background, None, None).unwrap();
        let (first, second, third) = (take(), take(), take());
        let now = Clock::System.now();
        for idle in [first, second] {
            pool.put_back(&Clock::System, idle);
        }
        assert!(pool.close_idle(now.after(IDLE_LIMIT / 2)), "others are left");
        assert_eq!(counts(&pool), (3, 2, 0), "not yet");
        assert!(pool.close_idle(now.after(2 * IDLE_LIMIT)));
        assert_eq!(counts(&pool), (2, 1, 0));
        let last = pool.put_back(&Clock::System, third);
        assert!(!pool.close_idle(now.after(2 * IDLE_LIMIT)));
        assert_eq!(counts(&pool), (1, 1, 0));
        assert_eq!(take().id(), last);
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
        let waits = pool.stock.lock().idle[0].runtime.spawn(waits);
        close(&pool, &Clock::System, [(runtime, weak)]);
        assert!(pool.stock.lock().closing, "a thread goes on");
        harness::eventually("it is idle between its turns", || counts(&pool) == (1, 1, 1));
        drop(answers);
        harness::eventually("it is over", || waits.is_finished() && counts(&pool) == (1, 1, 0));
        harness::eventually("the thread has ended", || !pool.stock.lock().closing);
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
