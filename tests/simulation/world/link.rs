//! One connection of a simulation: the state that its ends share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::{Fate, Leg, Network};
use crate::node::event::{EventSink, NodeEvent};
use crate::protocol::request::Reply;
use crate::transport::failure::Failure;

/// The state that both ends of one connection share.
pub(super) struct Line {
    pub(super) process: usize,
    pub(super) events: Option<EventSink>,
    /// Whether the node reports changed keys on it.
    pub(super) watched: bool,
    state: Mutex<LineState>,
    way: Mutex<Way>,
    /// Notified when the client's end sees that the connection is over.
    pub(super) over: Arc<Notify>,
}

/// The way from the node to the client.
struct Way {
    /// The earliest arrival of a message sent now.
    earliest: Instant,
    /// Whether all messages are lost.
    lost: bool,
    replies: mpsc::UnboundedSender<(Instant, Down)>,
}

/// A node's message.
pub(super) enum Down {
    /// The answer to a call.
    Answer(u64, Result<Reply, Failure>),
    /// A key has changed.
    Changed(Vec<u8>),
}

#[derive(Default)]
struct LineState {
    ended: bool,
    calls: u64,
    /// Calls without an answer so far. Dropping a sender notifies its call that the connection is over.
    pending: BTreeMap<u64, oneshot::Sender<Result<Reply, Failure>>>,
}

impl Line {
    /// Makes a connection that begins `now` and sends into `replies`.
    pub(super) fn new(
        process: usize,
        events: Option<EventSink>,
        watched: bool,
        (now, replies): (Instant, mpsc::UnboundedSender<(Instant, Down)>),
    ) -> Self {
        let way = Mutex::new(Way { earliest: now, lost: false, replies });
        Self { process, events, watched, state: Mutex::default(), way, over: Arc::default() }
    }

    /// Begins a call and returns the receiver of its answer; `None` if the connection is over.
    pub(super) fn ask(&self) -> Option<(u64, oneshot::Receiver<Result<Reply, Failure>>)> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.ended {
            return None;
        }
        state.calls += 1;
        let id = state.calls;
        state.pending.insert(id, sender);
        Some((id, receiver))
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().expect("no panic while holding this")
    }

    /// Ends the connection, as seen by the client.
    pub(super) fn end(&self) {
        self.close();
        self.over.notify_one();
    }

    /// Refuses new calls and fails pending ones.
    pub(super) fn close(&self) {
        let pending = {
            let mut state = self.state();
            state.ended = true;
            std::mem::take(&mut state.pending)
        };
        drop(pending);
    }

    /// Sends a message from the node of this index.
    pub(super) fn send(&self, network: &dyn Network, index: usize, now: Instant, down: Down) {
        let mut way = self.way.lock().expect("no panic while holding this");
        if way.lost {
            return;
        }
        match network.fate(self.process, index, Leg::Reply) {
            Fate::Deliver(delay) => {
                way.earliest = way.earliest.max(now + delay);
                drop(way.replies.send((way.earliest, down)));
            }
            Fate::Drop => {
                way.lost = true;
                network.note(&|| {
                    format!("node {}: process {} hears nothing any more on one connection", index + 1, self.process + 1)
                });
            }
            Fate::Break => {
                drop(way);
                network.note(&|| {
                    format!("node {}: process {} loses a connection before a reply", index + 1, self.process + 1)
                });
                self.end();
            }
        }
    }

    pub(super) fn arrived(&self, down: Down) {
        match (down, &self.events) {
            (Down::Answer(call, answer), _) => self.answer(call, answer),
            (Down::Changed(key), Some(events)) if !self.is_ended() => events.emit(NodeEvent::Changed(&key)),
            (Down::Changed(_), _) => {}
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state().ended
    }

    /// Returns whether the caller of `call` has stopped waiting, and then forgets the call.
    pub(super) fn is_taken_back(&self, call: u64) -> bool {
        let mut state = self.state();
        let unwanted = state.pending.get(&call).is_none_or(oneshot::Sender::is_closed);
        if unwanted {
            state.pending.remove(&call);
        }
        unwanted
    }

    fn answer(&self, call: u64, answer: Result<Reply, Failure>) {
        let sender = self.state().pending.remove(&call);
        if let Some(sender) = sender {
            drop(sender.send(answer));
        }
    }
}
