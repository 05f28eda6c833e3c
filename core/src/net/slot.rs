//! A slot: the connection of one runtime to one node, and what is under way there. Its states are those in
//! `connections.rs`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::net::member::Member;
use crate::node::Connection;
use crate::node::event::EventSink;
use crate::node::identity::ServerInfo;
use crate::sys::clock::{Clock, Moment, SharedMoment};
use crate::sys::mutex::Mutex;
use crate::transport::failure::{Failure, in_millis};
use crate::transport::progress::{Phase, Progress};

/// How long a request counts as in flight. Its caller may never read the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How late a timer fires only if its runtime was not driven, as between two blocking calls.
const UNDRIVEN: Duration = Duration::from_millis(100);

/// How often a connect gets more time because its runtime was not driven.
const RESPITES: u32 = 8;

/// Misses in a row after which a connection is discarded.
const MISSES_MAX: u32 = 2;

/// After so long without an answer, a connection is idle: something between here and the node may have forgotten it.
const IDLE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: Mutex<State>,
    pub(super) misses: AtomicU32,
    /// When the connect began, or the last request that the node has answered. What came later may have been read much
    /// later: a runtime is only driven while a caller waits.
    pub(super) heard: SharedMoment,
    /// Whether a request was answered on the connection.
    pub(super) worked: AtomicBool,
    /// Whether a quorum needs the connection that is being made.
    pub(super) urgent: AtomicBool,
    /// How far the connect under way is, and when it began; the origin while it waits for permission.
    pub(super) progress: Progress,
    pub(super) begun: SharedMoment,
    /// Whether it is tried to connect without a request.
    pub(super) mending: AtomicBool,
    /// Notified when another server is in the node's place.
    pub(super) moved: Notify,
    /// Requests in flight that are still tracked.
    pub(super) in_flight: AtomicU32,
    /// When the last of them was made.
    pub(super) asked: SharedMoment,
    /// When their number last rose from zero.
    pub(super) lagging_since: SharedMoment,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) connection: Option<Connection>,
    pub(super) connecting: bool,
    /// Finished tries to connect, to tell a new failure from an old one.
    pub(super) tries: u64,
    /// The try that made the connection, and when.
    pub(super) made: (u64, Moment),
    pub(super) failure: Option<Failure>,
    /// When another connection may support more than this one.
    pub(super) again: Moment,
    /// Whether there was a connection before, so that the node of the next one may have forgotten keys.
    pub(super) is_again: bool,
    /// Whether the node reports changed keys on the connection.
    pub(super) watched: bool,
    /// How often another server came into the node's place.
    pub(super) moves: u64,
}

impl Slot {
    /// Whether the node will report the next change of every key read on the connection.
    pub(super) fn is_watched(&self) -> bool {
        let state = self.state.lock();
        state.watched && state.connection.is_some()
    }

    /// Records that the connect under way has ended well.
    pub(super) fn record_connect(&self) {
        self.misses.store(0, Ordering::Relaxed);
        self.heard.set(self.begun.get());
    }

    /// Records that the node did not answer in time. Returns whether its connection is to be discarded: after two misses in
    /// a row, or if it was idle when it was asked.
    pub(super) fn record_timeout(&self) -> bool {
        let asked = self.lagging_since.get();
        let misses = self.misses.fetch_add(1, Ordering::Relaxed) + 1;
        let is_useless = misses >= MISSES_MAX || self.is_idle(asked);
        if is_useless {
            self.misses.store(0, Ordering::Relaxed);
        }
        is_useless
    }

    /// Whether nothing was heard on the connection for so long that it may not exist any more.
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        self.heard.get().after(IDLE) < now
    }

    /// Counts a request that is made `now`.
    pub(super) fn record_request(&self, now: Moment) {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.lagging_since.set(now);
        }
        self.asked.set(now);
    }

    /// Whether a request is in flight that was made within [`REQUEST_TIMEOUT`].
    pub(super) fn has_request(&self, now: Moment) -> bool {
        let asked = self.asked.get();
        self.in_flight.load(Ordering::Relaxed) > 0 && now < asked.after(REQUEST_TIMEOUT)
    }

    /// Returns since when requests are in flight, if any are.
    pub(super) fn lagging_since(&self) -> Option<Moment> {
        let since = self.lagging_since.get();
        (self.in_flight.load(Ordering::Relaxed) > 0).then_some(since)
    }

    /// Returns why the node has not answered yet, if it is because no connection to it is made yet.
    pub(super) fn why_unconnected(&self, now: Moment) -> Option<Failure> {
        let state = self.state.lock();
        if state.connection.is_some() || !state.connecting {
            return None;
        }
        let begun = self.begun.get();
        if begun == Moment::default() {
            return state.failure.clone();
        }
        Some(Failure::unconnected(self.progress.phase(), in_millis(now.since(begun))))
    }

    /// Connects to its node, within `limit` of driven time. Returns nothing if another server comes into the node's place
    /// meanwhile, else also how many had come.
    pub(super) async fn connect(
        &self,
        member: &Member,
        sink: Option<EventSink>,
        (clock, limit): (&Clock, Duration),
    ) -> Option<(Result<(Connection, ServerInfo), Failure>, u64)> {
        let mut replaced = pin!(self.moved.notified());
        replaced.as_mut().enable();
        let moves = self.state.lock().moves;
        self.progress.enter(Phase::default());
        self.begun.set(clock.now());
        let is_known = member.endpoint.is_known();
        let connect = member.node.connect(clock, sink, is_known, &self.progress);
        let mut connect = pin!(connect);
        let mut timer = pin!(clock.sleep(limit));
        let (mut due, mut respites) = (clock.now().after(limit), RESPITES);
        let result = poll_fn(|cx| {
            loop {
                if replaced.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(result) = connect.as_mut().poll(cx) {
                    return Poll::Ready(Some(result));
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let now = clock.now();
                if now < due {
                    // A test has paused this runtime's time, which then runs ahead.
                    timer.set(clock.sleep(due.since(now)));
                    continue;
                }
                if now < due.after(UNDRIVEN) || respites == 0 {
                    return Poll::Ready(Some(Err(Failure::unconnected(self.progress.phase(), limit))));
                }
                // The runtime was not driven for a while, so that the node's answer was not read.
                respites -= 1;
                due = now.after(limit);
                timer.set(clock.sleep(limit));
            }
        });
        let result = result.await.filter(|_| self.state.lock().moves == moves)?;
        Some((result, moves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_late_does_not_make_a_connection_fresh() {
        let slot = Slot::default();
        let at = |second| Moment::from_nanos(0).after(Duration::from_secs(second));
        let is_idle_after = |second| !slot.is_idle(at(second)) && slot.is_idle(at(second + 1));
        slot.begun.set(at(1));
        slot.record_connect();
        assert!(is_idle_after(6), "since the connect began");
        for (asked, idle) in [(3, 8), (2, 8), (4, 9)] {
            slot.heard.put_off(at(asked));
            assert!(is_idle_after(idle), "since the last request that was answered");
        }
    }
}
