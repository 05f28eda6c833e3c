//! Waiters: of all calls in this process that wait for one name, one at a time talks to the servers.
//!
//! States of a waiting call:
//!
//! - *in the queue*: it waits in order of arrival.
//! - *in front*: the calls before it have won, failed or left.
//! - *out*: it has left the queue.
//!
//! While the former front holds the lock, the new front is notified of the release by this process, and asks no node at
//! first. During a long hold it watches the key as every other waiter does, because the key may be deleted by hand.
//!
//! What may interrupt it:
//!
//! - The call is dropped: it leaves the queue, and the next one moves up.
//! - The holder is lost, its release is not answered, or the key is gone: the front asks the servers.
//! - The process forks: the child has its own, empty queues.
//!
//! Only background tasks are in the queue, and these are always driven. So a caller that stops polling its future
//! blocks no other caller.
//!
//! A call that is cancelled *leaves*: its keys are still being deleted. The next call for one of its names begins behind
//! that, as it begins behind a call that ends with a release.
//!
//! After a release, the process also leaves the lock to others briefly if any are known to want it. Otherwise it, or
//! its next waiter, would ask first and win every time.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::net::ballots::Ballots;
use crate::protocol::backoff;
use crate::protocol::outage::Outage;
use crate::protocol::positions::Positions;
use crate::protocol::request::Keys;
use crate::sys::clock::{Clock, Moment};
use crate::sys::future::notified_until;
use crate::sys::mutex::Mutex;

/// The queues of one set of nodes: one for each name with a waiter.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// How many queues and hold-offs there are, and names that are left. A call locks no mutex while there are none.
    count: AtomicUsize,
    /// Notified when a name is not left any more.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<Vec<u8>, (usize, Arc<WaiterQueue>)>,
    /// Until when this process leaves a name to others.
    hold_offs: HashMap<Vec<u8>, Moment>,
    /// How many calls leave each name, by its waiters key, which all locks with this name have.
    leaving: HashMap<Box<[u8]>, usize>,
}

/// A held lock, as its waiters in the same process see it.
pub(crate) trait Ends: fmt::Debug + Send + Sync {
    /// Waits until it is not held any more: released, lost or expired. Cancel safe.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns until when it is valid.
    fn valid_until(&self) -> Moment;
}

/// The state that waiters for one name share.
#[derive(Debug, Default)]
struct WaiterQueue {
    turn: tokio::sync::Mutex<()>,
    latest: Mutex<SharedOutcome>,
    /// The lease that the last front won.
    lease: Mutex<Option<Weak<dyn Ends>>>,
    /// Notified when a node deletes the key for this process.
    released: Notify,
}

/// The front's findings, for the waiters behind it and the next front.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedOutcome {
    /// The nodes' last answers, also those with which a front has won.
    pub(crate) ballots: Option<Arc<Ballots>>,
    /// For how long no quorum has answered, to whichever fronts.
    pub(crate) outage: Outage,
    /// The positions of a front that wanted to share the lock, even if it has won: the next one may be held off.
    pub(crate) positions: Option<Arc<Positions>>,
}

impl Waiters {
    fn recount(&self, state: &State) {
        self.count.store(state.queues.len() + state.hold_offs.len() + state.leaving.len(), Ordering::Release);
    }

    /// Joins the queue of `key`.
    pub(crate) fn enter(self: &Arc<Self>, key: &[u8]) -> Waiter {
        let mut state = self.state.lock();
        let (calls, queue) = state.queues.entry(key.to_vec()).or_default();
        *calls += 1;
        let queue = Arc::clone(queue);
        self.recount(&state);
        Waiter { waiters: Arc::clone(self), key: key.to_vec(), queue }
    }

    /// Returns until when a call that begins `now` must leave `key` to others: `now` itself if it only has to join the
    /// queue, `None` if it may try at once.
    pub(crate) fn must_wait_until(&self, key: &[u8], now: Moment) -> Option<Moment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let state = self.state.lock();
        let held_off = state.hold_offs.get(key).copied().filter(|until| *until > now);
        held_off.or_else(|| state.queues.contains_key(key).then_some(now))
    }

    /// Begins to leave the names of `keys`, until the result is dropped.
    pub(crate) fn leave(self: &Arc<Self>, keys: &Arc<Keys>) -> Leaving {
        let mut state = self.state.lock();
        for keys in keys.each() {
            *state.leaving.entry(keys.want.clone()).or_default() += 1;
        }
        self.recount(&state);
        Leaving { waiters: Arc::clone(self), keys: Arc::clone(keys) }
    }

    /// Waits until no call leaves a name of `keys` any more, unless none does. Cancel safe.
    pub(crate) async fn left(&self, keys: &Keys) {
        notified_until(&self.left, || (!self.is_leaving(keys)).then_some(())).await;
    }

    /// Whether a call leaves a name of `keys`.
    pub(crate) fn is_leaving(&self, keys: &Keys) -> bool {
        let state = self.state.lock();
        keys.each().any(|keys| state.leaving.contains_key(&keys.want))
    }

    /// Whether a call may leave any name.
    pub(crate) fn is_any_left(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns the last answers to the front of `key`'s queue, if it has any.
    pub(crate) fn known(&self, key: &[u8]) -> Option<Arc<Ballots>> {
        let state = self.state.lock();
        let (_, queue) = state.queues.get(key)?;
        queue.latest.lock().ballots.clone()
    }

    /// Records that a node deleted `key` for this process. If `waiting` others were denied meanwhile, leaves the name
    /// to them for the moment of `hold_off`.
    pub(crate) fn released(&self, key: &[u8], waiting: u32, now: Moment, hold_off: impl FnOnce() -> Duration) {
        if waiting == 0 && self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        if waiting > 0 {
            let until = now.after(hold_off());
            state.hold_offs.retain(|_, until| *until > now);
            let latest = state.hold_offs.entry(key.to_vec()).or_insert(until);
            *latest = until.max(*latest);
            self.recount(&state);
        }
        if let Some((_, queue)) = state.queues.get(key) {
            queue.released.notify_waiters();
        }
    }
}

/// A call that leaves its names.
#[derive(Debug)]
pub(crate) struct Leaving {
    waiters: Arc<Waiters>,
    keys: Arc<Keys>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut state = self.waiters.state.lock();
        for keys in self.keys.each() {
            if let Some(calls) = state.leaving.get_mut(&keys.want) {
                *calls -= 1;
                if *calls == 0 {
                    state.leaving.remove(&keys.want);
                }
            }
        }
        self.waiters.recount(&state);
        drop(state);
        self.waiters.left.notify_waiters();
    }
}

/// What a call that waits in the background leaves, if it is cancelled: its caller says so, and its task ends that.
pub(crate) type Departure = Arc<Mutex<Option<Leaving>>>;

/// One call's position in a queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    key: Vec<u8>,
    queue: Arc<WaiterQueue>,
}

impl Waiter {
    /// Waits for the front of the queue, which the call leaves when it drops the guard. Cancel safe, but a dropped future
    /// loses its position.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.queue.turn.lock().await
    }

    /// Records the front's `lease`.
    pub(crate) fn won(&self, lease: &Arc<dyn Ends>) {
        *self.queue.lease.lock() = Some(Arc::downgrade(lease));
    }

    /// Returns the lease that the former front won and may hold.
    pub(crate) fn former(&self) -> Option<Arc<dyn Ends>> {
        self.queue.lease.lock().as_ref()?.upgrade()
    }

    /// Waits until this process does not hold `lease` any more, then briefly until a node has deleted the key. Cancel
    /// safe.
    pub(crate) async fn handed_over(&self, clock: &Clock, lease: &dyn Ends) {
        let mut released = std::pin::pin!(self.queue.released.notified());
        released.as_mut().enable();
        lease.ended().await;
        clock.timeout(backoff::NOTIFICATION_WINDOW, released).await;
    }

    /// Waits until the hold-off ends, unless that is past `deadline`. Returns whether there was one. Cancel safe.
    pub(crate) async fn hold_off(&self, clock: &Clock, deadline: Moment) -> bool {
        let held_off = self.waiters.state.lock().hold_offs.get(&self.key).copied();
        let held_off = held_off.filter(|until| *until > clock.now() && *until < deadline);
        if let Some(until) = held_off {
            clock.sleep_until(until).await;
        }
        held_off.is_some()
    }

    /// Shares what a call found out before it joined the queue, unless the queue has answers already.
    pub(crate) fn offer(&self, ballots: Option<&Arc<Ballots>>) {
        let mut latest = self.queue.latest.lock();
        if latest.ballots.is_none() {
            latest.ballots = ballots.cloned();
        }
    }

    /// Shares the front's findings with the waiters behind it.
    pub(crate) fn publish(&self, latest: SharedOutcome) {
        *self.queue.latest.lock() = latest;
    }

    /// Returns the front's findings so far.
    pub(crate) fn latest(&self) -> SharedOutcome {
        self.queue.latest.lock().clone()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.waiters.state.lock();
        if let Some((calls, _)) = state.queues.get_mut(&self.key) {
            *calls -= 1;
            if *calls == 0 {
                state.queues.remove(&self.key);
                self.waiters.recount(&state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn whoever_leaves_the_line_makes_room_and_the_last_one_ends_it() {
        let waiters = Arc::new(Waiters::default());
        assert_eq!(waiters.must_wait_until(b"foo", at(1)), None);
        let [first, second, third] = [(); 3].map(|()| waiters.enter(b"foo"));
        assert_eq!(waiters.must_wait_until(b"foo", at(1)), Some(at(1)), "behind those in line");
        assert_eq!(waiters.must_wait_until(b"bar", at(1)), None, "another name");
        {
            let turn = poll(first.turn());
            assert!(turn.is_ready());
            let mut waiting = [Box::pin(second.turn()), Box::pin(third.turn())];
            assert!(waiting.iter_mut().all(|waiting| poll(waiting.as_mut()).is_pending()));
            let [second, mut third] = waiting;
            drop(second);
            drop(turn);
            assert!(poll(third.as_mut()).is_ready(), "those before it have gone");
        }
        drop([first, second, third]);
        assert_eq!(waiters.must_wait_until(b"foo", at(1)), None);
        assert!(waiters.state.lock().queues.is_empty(), "a queue stays");
    }

    #[test]
    fn a_name_that_others_want_is_left_to_them_for_a_moment() {
        let waiters = Arc::new(Waiters::default());
        waiters.released(b"foo", 0, at(0), || backoff::hold_off(0, 0.0));
        assert_eq!(waiters.must_wait_until(b"foo", at(0)), None, "nobody wants it");
        waiters.released(b"foo", 2, at(0), || backoff::hold_off(2, 0.0));
        let until = waiters.must_wait_until(b"foo", at(0)).expect("others want it");
        assert_eq!(until, at(0).after(backoff::hold_off(2, 0.0)));
        waiters.released(b"foo", 1, at(0), || backoff::hold_off(1, 0.0));
        assert_eq!(waiters.must_wait_until(b"foo", at(0)), Some(until), "never shorter");
        assert_eq!(waiters.must_wait_until(b"foo", until), None, "the moment is over");
        waiters.released(b"bar", 1, until.after(Duration::from_millis(1)), || backoff::hold_off(1, 0.0));
        assert_eq!(waiters.state.lock().hold_offs.len(), 1, "what is over is forgotten");
    }
}
