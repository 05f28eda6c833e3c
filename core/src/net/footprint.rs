//! Footprint: the nodes where one token may have created a key, and the connections for their release.
//!
//! A delete goes over the connection of the unanswered create, so that the node executes it after the create. Over any
//! other connection it may be executed first, and the key stays. If that connection is no longer driven, the delete
//! goes over another one, and the release stays pending until a node reports the deletion.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::node::Connection;
use crate::protocol::quorum::NodeMask;
use crate::protocol::request::Reply;
use crate::sys::clock::Moment;
use crate::sys::mutex::Mutex;
use crate::transport::failure::Failure;

/// The keys that one token may have left, by node.
#[derive(Debug)]
pub(crate) struct Footprint {
    entries: Mutex<Vec<Entry>>,
    /// The largest fence that a node is known to remember.
    highest: AtomicU64,
}

/// One node's trace, and the number of the create it describes. A late answer to an older create must not change it.
#[derive(Debug)]
struct Entry {
    trace: Trace,
    creates: u32,
}

/// The create that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Create(u32);

/// One token's possible key on one node.
#[derive(Clone, Debug)]
pub(crate) enum Trace {
    /// Nothing, or nothing any more.
    Nothing,
    /// A create was sent, and its answer was not read.
    Unanswered {
        connection: Connection,
        since: Moment,
        /// Whether the node may have had a key of this token before: a delete that finds a key does not show then that
        /// the create was executed.
        over_key: bool,
    },
    /// A key, unless it has expired. With the fence that the node has granted, if that is known.
    Created { granted: Option<u64> },
}

impl Trace {
    /// Returns the fence that the node has granted, if that is known.
    pub(crate) fn granted(&self) -> Option<u64> {
        if let Self::Created { granted } = self { *granted } else { None }
    }
}

impl Footprint {
    pub(crate) fn new(nodes: usize) -> Self {
        let entries = (0..nodes).map(|_| Entry { trace: Trace::Nothing, creates: 0 }).collect();
        Self { entries: Mutex::new(entries), highest: AtomicU64::new(0) }
    }

    /// Records that a node remembers this fence.
    pub(crate) fn remembered(&self, fence: u64) {
        self.highest.fetch_max(fence, Ordering::Relaxed);
    }

    /// Returns the largest fence that a node is known to remember; 0 if there is none.
    pub(crate) fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Records a create about to be queued on `connection` to `node`.
    pub(crate) fn sent(&self, node: usize, connection: &Connection, now: Moment) -> Create {
        Self::note(self.entries.lock(), node, connection, now)
    }

    /// Records that the lock is to be restored on `node` over `connection`. Returns `None` while an earlier create is
    /// unanswered.
    ///
    /// Only one create is remembered. A second would hide that the first may still be executed, on its own connection,
    /// after the release. After one `ttl` without an answer the first counts as lost, as in clean-up.
    pub(crate) fn restored(&self, node: usize, connection: &Connection, now: Moment, ttl: Duration) -> Option<Create> {
        let entries = self.entries.lock();
        match &entries[node].trace {
            Trace::Unanswered { since, .. } if since.after(ttl) > now => None,
            _ => Some(Self::note(entries, node, connection, now)),
        }
    }

    fn note(mut entries: MutexGuard<'_, Vec<Entry>>, node: usize, connection: &Connection, now: Moment) -> Create {
        let entry = &mut entries[node];
        entry.creates += 1;
        let create = Create(entry.creates);
        let over_key = !matches!(entry.trace, Trace::Nothing);
        let unanswered = Trace::Unanswered { connection: connection.clone(), since: now, over_key };
        Self::put(entries, node, unanswered);
        create
    }

    /// Records a trace. A connection in the one before is dropped outside of the lock.
    fn put(mut entries: MutexGuard<'_, Vec<Entry>>, node: usize, trace: Trace) {
        let before = std::mem::replace(&mut entries[node].trace, trace);
        drop(entries);
        drop(before);
    }

    /// Records the answer to `create` from `node`.
    pub(crate) fn answered(&self, node: usize, create: Create, answer: &Result<Reply, Failure>) {
        let trace = match answer {
            // The last one is a re-key's, as is what follows.
            Ok(Reply::Granted(fence) | Reply::Held { ours: Some(fence), .. } | Reply::Ahead(fence)) => {
                self.remembered(*fence);
                Trace::Created { granted: Some(*fence) }
            }
            Ok(Reply::Extended | Reply::Already) => Trace::Created { granted: None },
            Ok(_) => Trace::Nothing,
            // The scripts write the lock last, so that an error leaves none.
            Err(failure) if failure.is_unexecuted() => Trace::Nothing,
            Err(_) => return,
        };
        self.learnt(node, create, trace);
    }

    /// Records the answer of `node` to `create`, which restored the lock. Even after a refusal or an error, an earlier
    /// key of this token may exist there.
    pub(crate) fn restore_answered(&self, node: usize, create: Create, answer: &Result<Reply, Failure>) {
        if answer.as_ref().err().is_none_or(Failure::is_answer) {
            self.learnt(node, create, Trace::Created { granted: None });
        }
    }

    /// Returns the last create on `node`, if any.
    pub(crate) fn last(&self, node: usize) -> Create {
        Create(self.entries.lock()[node].creates)
    }

    /// Records an answer of `node` to a request over `connection` that was made after `create`: a create on it was executed
    /// before. So was the only create, wherever it was sent, if the answer shows that the node `has_key`.
    pub(crate) fn answered_behind(&self, node: usize, connection: &Connection, create: Create, has_key: bool) {
        let entries = self.entries.lock();
        let Entry { trace, creates } = &entries[node];
        let is_executed = match trace {
            Trace::Unanswered { over_key: false, .. } if has_key => true,
            Trace::Unanswered { connection: before, .. } => before.same(connection) && *creates == create.0,
            Trace::Nothing | Trace::Created { .. } => false,
        };
        if is_executed {
            Self::put(entries, node, Trace::Created { granted: None });
        }
    }

    fn learnt(&self, node: usize, create: Create, trace: Trace) {
        let entries = self.entries.lock();
        if entries[node].creates == create.0 {
            Self::put(entries, node, trace);
        }
    }

    /// Records that `node` no longer holds anything of this token.
    pub(crate) fn clear(&self, node: usize) {
        Self::put(self.entries.lock(), node, Trace::Nothing);
    }

    /// Records that a release found a key of this token on `node`, while an unanswered create may still arrive there.
    pub(crate) fn deleted(&self, node: usize) {
        let mut entries = self.entries.lock();
        if let Trace::Unanswered { over_key: over_key @ true, .. } = &mut entries[node].trace {
            *over_key = false;
            return;
        }
        Self::put(entries, node, Trace::Nothing);
    }

    /// Forgets all nodes but those that have not answered their only create.
    pub(crate) fn keep_possible(&self) {
        for (node, trace) in self.all().into_iter().enumerate() {
            if !matches!(trace, Trace::Unanswered { over_key: false, .. }) {
                self.clear(node);
            }
        }
    }

    /// Returns the nodes that have not answered a create, which they may still execute.
    pub(crate) fn unanswered(&self) -> NodeMask {
        let entries = self.entries.lock();
        let is_unanswered = |node: &usize| matches!(entries[*node].trace, Trace::Unanswered { .. });
        (0..entries.len()).filter(is_unanswered).fold(NodeMask::default(), NodeMask::with)
    }

    /// Whether `node` cannot hold anything of this token.
    pub(crate) fn has_nothing(&self, node: usize) -> bool {
        matches!(self.entries.lock()[node].trace, Trace::Nothing)
    }

    /// Whether no node can hold anything of this token.
    pub(crate) fn is_clear(&self) -> bool {
        self.entries.lock().iter().all(|entry| matches!(entry.trace, Trace::Nothing))
    }

    /// Copies all traces, by node.
    pub(crate) fn all(&self) -> Vec<Trace> {
        self.entries.lock().iter().map(|entry| entry.trace.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Addresses;
    use crate::node::{MemoryNodes, Node};
    use crate::sys::clock::Clock;
    use crate::transport::progress::Progress;

    async fn connection() -> Connection {
        let address = Addresses::parse(["memory://footprint"]).unwrap()[0].clone();
        let node = Node::new(&address, &MemoryNodes::default(), None, None, None).unwrap();
        node.connect(&Clock::System, None, true, &Progress::default()).await.unwrap().0
    }

    #[tokio::test]
    async fn an_answer_shows_what_was_executed_before_it_and_not_what_was_asked_behind_it() {
        let (connection, footprint) = (connection().await, Footprint::new(1));
        let now = Clock::System.now();
        let acquired = footprint.sent(0, &connection, now);
        footprint.answered(0, acquired, &Err(Failure::NoScript));
        let before = footprint.last(0);
        let restored = footprint.restored(0, &connection, now, Duration::ZERO).unwrap();
        footprint.answered_behind(0, &connection, before, false);
        assert!(footprint.unanswered().contains(0), "it may still be on its way");
        footprint.answered_behind(0, &connection, restored, false);
        assert!(footprint.unanswered().is_empty());

        let footprint = Footprint::new(1);
        let before = footprint.last(0);
        footprint.sent(0, &connection, now);
        footprint.answered_behind(0, &connection, before, true);
        assert!(footprint.unanswered().is_empty(), "nothing else has made the key");
        footprint.sent(0, &connection, now);
        footprint.answered_behind(0, &connection, before, true);
        assert!(footprint.unanswered().contains(0), "the key may be that of the first one");
    }
}
