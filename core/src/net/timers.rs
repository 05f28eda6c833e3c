//! Deadlines: one timer of the runtime for all rounds of a lane.
//!
//! A round nearly always ends before its deadline, and arming a timer of the runtime costs more than anything else a
//! round does on its own. So one task, the keeper, sleeps until the soonest deadline it knew when it went to sleep; a
//! later one is a line in a list and wakes nobody. The keeper outlives the rounds it slept for and looks again then.
//!
//! States of a deadline: *unarmed*, *listed*, *over*. What may interrupt it: dropping it takes it off the list; a
//! keeper that is not driven, as its runtime, wakes nobody until it is; the runtime ending drops the keeper, and every
//! round of its lane with it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::sys::clock::{Clock, Moment};
use crate::sys::task::spawn;

/// The deadlines of one lane.
#[derive(Debug)]
pub(crate) struct Deadlines {
    runtime: Handle,
    list: Mutex<List>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct List {
    entries: Vec<Entry>,
    next: u64,
    /// What the keeper sleeps until; `None` before there is one.
    sleeping: Option<Moment>,
    keeper: Option<AbortHandle>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    at: Moment,
    waker: Waker,
}

impl Deadlines {
    /// The deadlines of a lane on `runtime`.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, list: Mutex::default(), sooner: Notify::new() }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("no panic while holding this")
    }

    /// Ends the keeper; for the end of the lane.
    pub(crate) fn end(&self) {
        if let Some(keeper) = self.list().keeper.take() {
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

    /// Wakes whose deadline has come; returns the soonest of the others, which the keeper sleeps until.
    fn wake(&self, now: Moment) -> Moment {
        let mut due = Vec::new();
        let mut list = self.list();
        let mut soonest = Moment::NEVER;
        for entry in &list.entries {
            if entry.at <= now {
                due.push(entry.waker.clone());
            } else {
                soonest = soonest.min(entry.at);
            }
        }
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
    at: Moment,
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

    /// Ready from the deadline on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            self.unlist();
            return Poll::Ready(());
        }
        let mut list = self.deadlines.list();
        if let Some(id) = self.id {
            if let Some(entry) = list.entries.iter_mut().find(|entry| entry.id == id) {
                entry.waker.clone_from(cx.waker());
            }
            return Poll::Pending;
        }
        list.next += 1;
        let id = list.next;
        self.id = Some(id);
        list.entries.push(Entry { id, at: self.at, waker: cx.waker().clone() });
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
            let mut list = self.deadlines.list();
            if let Some(position) = list.entries.iter().position(|entry| entry.id == id) {
                list.entries.swap_remove(position);
            }
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.unlist();
    }
}
