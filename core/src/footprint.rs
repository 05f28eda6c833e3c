//! Where one token may have created a key: what a release has to reach, and over which connection.
//!
//! A node is asked to delete over the connection on which an unanswered create is on its way, so that the delete is
//! executed after it. Over any other connection it may be executed first, and the key stays.

use std::sync::{Mutex, MutexGuard};

use crate::node::{Connection, Failure};
use crate::script::Reply;

/// What one token may have left on each node of a set.
#[derive(Debug)]
pub(crate) struct Footprint(Mutex<Vec<Trace>>);

/// What one token may have left on one node.
#[derive(Clone, Debug)]
pub(crate) enum Trace {
    /// Nothing, or nothing any more.
    Nothing,
    /// A create went out on this connection and its answer was not seen.
    Unanswered(Connection),
    /// A key, unless it has expired.
    Created,
}

impl Footprint {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(vec![Trace::Nothing; nodes]))
    }

    fn traces(&self) -> MutexGuard<'_, Vec<Trace>> {
        self.0.lock().expect("no panic while holding this")
    }

    /// A create is about to be queued on `connection` to `node`.
    pub(crate) fn sent(&self, node: usize, connection: &Connection) {
        let before = std::mem::replace(&mut self.traces()[node], Trace::Unanswered(connection.clone()));
        drop(before);
    }

    /// The create's answer from `node`.
    pub(crate) fn answered(&self, node: usize, answer: &Result<Reply, Failure>) {
        let trace = match answer {
            Ok(Reply::Granted(_) | Reply::Restored | Reply::Held { ours: Some(_), .. }) => Trace::Created,
            // The scripts write the lock last, so that an error leaves none behind.
            Ok(_) | Err(Failure::Refused(_) | Failure::Forbidden(_) | Failure::NoScript) => Trace::Nothing,
            Err(_) => return,
        };
        let before = std::mem::replace(&mut self.traces()[node], trace);
        drop(before);
    }

    /// `node` is known to hold nothing of this token any more.
    pub(crate) fn clear(&self, node: usize) {
        let before = std::mem::replace(&mut self.traces()[node], Trace::Nothing);
        drop(before);
    }

    /// Whether no node can have anything of this token.
    pub(crate) fn is_clear(&self) -> bool {
        self.traces().iter().all(|trace| matches!(trace, Trace::Nothing))
    }

    /// A copy of all traces, by node.
    pub(crate) fn all(&self) -> Vec<Trace> {
        self.traces().clone()
    }
}
