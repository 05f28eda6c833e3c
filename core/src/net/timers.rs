//! Deadlines: one runtime timer for all rounds on the same connections.
//!
//! A round nearly always ends before its deadline, and arming a runtime timer costs more than anything else in it. So
//! one task, the keeper, sleeps until the soonest deadline it knew when it went to sleep. A later one only adds a list
//! entry. The keeper outlives the rounds it slept for and then looks again.
//!
//! States of a deadline:
//!
//! - *unarmed*: it is not listed yet.
//! - *listed*: the keeper knows it.
//! - *over*: its time has come.
//!
//! What may interrupt it:
//!
//! - It is dropped: it leaves the list.
//! - The runtime is not driven: the keeper wakes no task until it is.
//! - The runtime ends: the keeper is dropped, with every round there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::sys::clock::{Clock, Moment};
use crate::sys::mutex::Mutex;
use crate::sys::task::spawn;

/// The deadlines of these rounds.
#[derive(Debug)]
pub(crate) struct Deadlines {
    runtime: Handle,
    list: Mutex<List>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct List {
    /// Sorted, because thousands of rounds may be under way.
    entries: BTreeMap<(Moment, u64), Waker>,
    next: u64,
    /// When the keeper wakes; `None` before it exists.
    sleeping: Option<Moment>,
    keeper: Option<AbortHandle>,
}

impl Deadlines {
    /// Creates the list for connections on `runtime`.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, list: Mutex::default(), sooner: Notify::new() }
    }

    /// Ends the keeper, when the connections end.
    pub(crate) fn end(&self) {
        if let Some(keeper) = self.list.lock().keeper.take() {
            keeper.abort();
        }
    }

    async fn keep(self: Arc<Self>, clock: Clock) {
        loop {
            let until = self.wake(clock.now());
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }

    /// Wakes each round whose deadline has come. Returns the soonest other deadline that was known, for the keeper's
    /// sleep.
    fn wake(&self, now: Moment) -> Moment {
        let mut list = self.list.lock();
        // The deadline that woke the keeper may be gone already. Its time is kept, because the next one is later, and
        // would wake the keeper too.
        let asked = list.sleeping.filter(|asked| *asked > now).unwrap_or(Moment::NEVER);
        let due: Vec<_> = list.entries.range(..=(now, u64::MAX)).map(|(_, waker)| waker.clone()).collect();
        let next = list.entries.range((now, u64::MAX)..).next();
        let soonest = next.map_or(asked, |((at, _), _)| asked.min(*at));
        list.sleeping = Some(soonest);
        drop(list);
        due.into_iter().for_each(Waker::wake);
        soonest
    }
}

/// One deadline.
#[derive(Debug)]
pub(crate) struct Deadline {
    deadlines: Arc<Deadlines>,
    clock: Clock,
    /// Moved by [`reset`](Self::reset) only.
    pub(super) at: Moment,
    id: Option<u64>,
}

impl Deadline {
    pub(crate) fn new(deadlines: &Arc<Deadlines>, clock: &Clock, at: Moment) -> Self {
        Self { deadlines: Arc::clone(deadlines), clock: clock.clone(), at, id: None }
    }

    /// Moves the deadline.
    pub(crate) fn reset(&mut self, at: Moment) {
        self.unlist();
        self.at = at;
    }

    /// Returns ready from the deadline on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            self.unlist();
            return Poll::Ready(());
        }
        let mut list = self.deadlines.list.lock();
        if let Some(id) = self.id {
            if let Some(waker) = list.entries.get_mut(&(self.at, id)) {
                waker.clone_from(cx.waker());
            }
            return Poll::Pending;
        }
        list.next += 1;
        let id = list.next;
        self.id = Some(id);
        list.entries.insert((self.at, id), cx.waker().clone());
        match list.sleeping {
            Some(sleeping) if sleeping <= self.at => {}
            Some(_) => {
                list.sleeping = Some(self.at);
                drop(list);
                self.deadlines.sooner.notify_one();
            }
            None => {
                list.sleeping = Some(self.at);
                let keeper = Arc::clone(&self.deadlines).keep(self.clock.clone());
                list.keeper = Some(spawn(&self.deadlines.runtime, keeper));
            }
        }
        Poll::Pending
    }

    fn unlist(&mut self) {
        if let Some(id) = self.id.take() {
            let removed = self.deadlines.list.lock().entries.remove(&(self.at, id));
            drop(removed);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.unlist();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_keeper_keeps_the_time_of_a_deadline_that_is_gone() {
        let (deadlines, clock) = (Arc::new(Deadlines::new(Handle::current())), Clock::System);
        let now = clock.now();
        let [first, second] = [60, 61].map(|seconds| now.after(Duration::from_secs(seconds)));
        let begun = |at| {
            let mut deadline = Deadline::new(&deadlines, &clock, at);
            assert!(deadline.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            deadline
        };
        drop(begun(first));
        assert_eq!(deadlines.wake(now), first);
        let _second = begun(second);
        assert_eq!(deadlines.wake(now), first, "the second one has not changed when it wakes");
        assert_eq!(deadlines.wake(first), second);
        assert_eq!(deadlines.wake(second), Moment::NEVER);
    }
}
