//! Where one token may have created a key: what a release has to reach, and over which connection.
//!
//! A node is asked to delete over the connection on which an unanswered create is on its way, so that the delete is
//! executed after it. Over any other connection it may be executed first, and the key stays.

use std::sync::{Mutex, MutexGuard};

use crate::node::{Connection, Failure};
use crate::script::Reply;

/// What one token may have left on each node of a set.
#[derive(Debug)]
pub(crate) struct Footprint(Mutex<Vec<Entry>>);

/// One node's trace, and which create it tells of: an answer that is read late, after a newer create was sent, must
/// not speak for that one.
#[derive(Debug)]
struct Entry {
    trace: Trace,
    creates: u32,
}

/// Which of a node's creates an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Create(u32);

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
        Self(Mutex::new((0..nodes).map(|_| Entry { trace: Trace::Nothing, creates: 0 }).collect()))
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().expect("no panic while holding this")
    }

    /// A create is about to be queued on `connection` to `node`.
    pub(crate) fn sent(&self, node: usize, connection: &Connection) -> Create {
        let mut entries = self.entries();
        let entry = &mut entries[node];
        entry.creates += 1;
        let create = Create(entry.creates);
        let before = std::mem::replace(&mut entry.trace, Trace::Unanswered(connection.clone()));
        drop(entries);
        drop(before);
        create
    }

    /// The answer to `create` from `node`.
    pub(crate) fn answered(&self, node: usize, create: Create, answer: &Result<Reply, Failure>) {
        let trace = match answer {
            // Refused to put it back, because there is a key: that may be ours, from before.
            Ok(Reply::Granted(_) | Reply::Restored | Reply::Refused | Reply::Held { ours: Some(_), .. }) => {
                Trace::Created
            }
            // The scripts write the lock last, so that an error leaves none behind.
            Ok(_) | Err(Failure::Refused(_) | Failure::Forbidden(_) | Failure::NoScript) => Trace::Nothing,
            Err(_) => return,
        };
        let mut entries = self.entries();
        if entries[node].creates == create.0 {
            let before = std::mem::replace(&mut entries[node].trace, trace);
            drop(entries);
            drop(before);
        }
    }

    /// `node` is known to hold nothing of this token any more.
    pub(crate) fn clear(&self, node: usize) {
        let before = std::mem::replace(&mut self.entries()[node].trace, Trace::Nothing);
        drop(before);
    }

    /// Whether no node can have anything of this token.
    pub(crate) fn is_clear(&self) -> bool {
        self.entries().iter().all(|entry| matches!(entry.trace, Trace::Nothing))
    }

    /// A copy of all traces, by node.
    pub(crate) fn all(&self) -> Vec<Trace> {
        self.entries().iter().map(|entry| entry.trace.clone()).collect()
    }
}
