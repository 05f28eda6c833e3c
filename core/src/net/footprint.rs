//! Where one token may have created a key: what a release has to reach, and over which connection.
//!
//! A node is asked to delete over the connection on which an unanswered create is on its way, so that the delete is
//! executed after it. Over any other connection it may be executed first, and the key stays: where nobody drives that
//! connection any more, it is asked over another one and the delete stays owed until a node says that it deleted.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::net::node::{Connection, Failure};
use crate::protocol::request::Reply;
use crate::sys::clock::Moment;

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
    /// A create went out on this connection at this time, and its answer was not seen.
    Unanswered(Connection, Moment),
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
    pub(crate) fn sent(&self, node: usize, connection: &Connection, now: Moment) -> Create {
        Self::note(self.entries(), node, connection, now)
    }

    /// The lock is to be put back on `node` over `connection`. `None` while an earlier create is unanswered: only one is
    /// remembered, and the second would hide that the first may still be executed, on a connection of its own, after
    /// the release. After one `ttl` without an answer it is taken for lost, as clean-up does.
    pub(crate) fn restored(&self, node: usize, connection: &Connection, now: Moment, ttl: Duration) -> Option<Create> {
        let entries = self.entries();
        match &entries[node].trace {
            Trace::Unanswered(_, since) if since.after(ttl) > now => None,
            _ => Some(Self::note(entries, node, connection, now)),
        }
    }

    fn note(mut entries: MutexGuard<'_, Vec<Entry>>, node: usize, connection: &Connection, now: Moment) -> Create {
        let entry = &mut entries[node];
        entry.creates += 1;
        let create = Create(entry.creates);
        let before = std::mem::replace(&mut entry.trace, Trace::Unanswered(connection.clone(), now));
        drop(entries);
        drop(before);
        create
    }

    /// The answer to `create` from `node`.
    pub(crate) fn answered(&self, node: usize, create: Create, answer: &Result<Reply, Failure>) {
        let trace = match answer {
            Ok(Reply::Granted(_) | Reply::Held { ours: Some(_), .. }) => Trace::Created,
            // The scripts write the lock last, so that an error leaves none behind.
            Ok(_) | Err(Failure::Refused(_) | Failure::Forbidden(_) | Failure::NoScript) => Trace::Nothing,
            Err(_) => return,
        };
        self.learnt(node, create, trace);
    }

    /// The answer of `node`, which the lock was put back on with `create`. Whatever it says, a refusal or an error, a key
    /// of this token may stand there from before.
    pub(crate) fn restore_answered(&self, node: usize, create: Create, answer: &Result<Reply, Failure>) {
        if answer.as_ref().err().is_none_or(Failure::is_answer) {
            self.learnt(node, create, Trace::Created);
        }
    }

    fn learnt(&self, node: usize, create: Create, trace: Trace) {
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

    /// Whether `node` can have nothing of this token.
    pub(crate) fn has_nothing(&self, node: usize) -> bool {
        matches!(self.entries()[node].trace, Trace::Nothing)
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
