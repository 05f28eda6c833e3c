//! Counts key changes that nodes report, for waiters in the background.
//!
//! Each watched key has a count of changes for each node. A waiter notes the counts *before* it asks
//! ([`KeyWatch::seen`]) and sleeps only while they stay the same ([`KeyWatch::changed`]). So it does not miss a change
//! reported between the answer and the sleep. On one connection the answer arrives before the report of the next
//! change, so that no change goes unreported in between.
//!
//! What may interrupt it:
//!
//! - The connection ends or comes back, or all keys are flushed: every count of that node rises, because any key may
//!   have changed unreported.
//! - A waiter is dropped: the counts go with the last waiter of a key.
//! - A report names a key without a waiter: it is dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::fault::{Fault, planted};
use crate::net::node::NodeEvent;
use crate::protocol::quorum::NodeMask;
use crate::sys::future::notified_until;

/// The watched keys of one set of nodes. Ordered, so that a seed wakes waiters in the same order.
#[derive(Debug, Default)]
pub(crate) struct Tracking(Mutex<BTreeMap<Vec<u8>, Entry>>);

#[derive(Debug)]
struct Entry {
    watches: usize,
    changes: Arc<Changes>,
}

/// The number of changes of one key that each node has reported.
#[derive(Debug)]
struct Changes {
    counts: Vec<AtomicU64>,
    more: Notify,
}

impl Changes {
    fn add(&self, node: usize) {
        self.counts[node].fetch_add(1, Ordering::Relaxed);
        self.more.notify_waiters();
    }
}

impl Tracking {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Entry>> {
        self.0.lock().expect("no panic while holding this")
    }

    /// Counts the changes of `key` on each of `nodes` nodes, until the [`KeyWatch`] is dropped.
    pub(crate) fn on(self: &Arc<Self>, key: &[u8], nodes: usize) -> KeyWatch {
        let mut entries = self.entries();
        let entry = entries.entry(key.to_vec()).or_insert_with(|| Entry {
            watches: 0,
            changes: Arc::new(Changes { counts: (0..nodes).map(|_| AtomicU64::new(0)).collect(), more: Notify::new() }),
        });
        entry.watches += 1;
        KeyWatch { tracking: Arc::clone(self), key: key.to_vec(), changes: Arc::clone(&entry.changes) }
    }

    /// Records what `node` has reported.
    pub(crate) fn heard(&self, node: usize, event: NodeEvent<'_>) {
        let entries = self.entries();
        match event {
            NodeEvent::Changed(key) => {
                if let Some(entry) = entries.get(key) {
                    entry.changes.add(node);
                }
            }
            NodeEvent::Connected { may_differ: false } => {}
            _ => entries.values().for_each(|entry| entry.changes.add(node)),
        }
    }
}

/// One waiter for changes of one key.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    tracking: Arc<Tracking>,
    key: Vec<u8>,
    changes: Arc<Changes>,
}

/// The change counts of one key on each node at some instant.
#[derive(Clone, Debug)]
pub(crate) struct Versions(Vec<u64>);

impl KeyWatch {
    /// Returns the counts so far. Note them before asking the nodes.
    pub(crate) fn seen(&self) -> Versions {
        Versions(self.changes.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }

    /// Waits until the key has changed on some node since `seen`. Returns all such nodes, and the counts found. Cancel
    /// safe.
    pub(crate) async fn changed(&self, seen: &Versions) -> (NodeMask, Versions) {
        let late = planted(Fault::ChangeMissed).then(|| self.seen());
        let seen = late.as_ref().unwrap_or(seen);
        notified_until(&self.changes.more, || Some(self.since(seen)).filter(|(changed, _)| *changed != NodeMask::NONE))
            .await
    }

    /// Returns the nodes, if any, on which the key has changed since `seen`, and the counts found.
    pub(crate) fn since(&self, seen: &Versions) -> (NodeMask, Versions) {
        let now = self.seen();
        let changed = (0..seen.0.len()).filter(|node| now.0[*node] != seen.0[*node]);
        (changed.fold(NodeMask::NONE, NodeMask::with), now)
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        let mut entries = self.tracking.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.watches -= 1;
            if entry.watches == 0 {
                let unwatched = entries.remove(&self.key);
                drop(entries);
                drop(unwatched);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_change_between_the_question_and_the_sleep_is_not_missed() {
        let tracking = Arc::new(Tracking::default());
        let key_watch = tracking.on(b"foo", 3);
        let seen = key_watch.seen();
        assert!(poll(key_watch.changed(&seen)).is_pending());
        tracking.heard(1, NodeEvent::Changed(b"bar"));
        assert!(poll(key_watch.changed(&seen)).is_pending(), "another key");
        tracking.heard(1, NodeEvent::Changed(b"foo"));
        let Poll::Ready((changed, seen)) = poll(key_watch.changed(&seen)) else { panic!("not heard") };
        assert_eq!(changed, NodeMask::NONE.with(1));
        assert!(poll(key_watch.changed(&seen)).is_pending(), "heard already");
    }

    #[test]
    fn a_flush_and_a_broken_connection_change_every_key_of_the_node() {
        let reconnected = NodeEvent::Connected { may_differ: true };
        for event in [NodeEvent::Disconnected, reconnected, NodeEvent::AllChanged] {
            let tracking = Arc::new(Tracking::default());
            let watches = [tracking.on(b"foo", 2), tracking.on(b"bar", 2)];
            let seen = watches.each_ref().map(KeyWatch::seen);
            tracking.heard(0, event);
            for (key_watch, seen) in watches.iter().zip(&seen) {
                let Poll::Ready((changed, _)) = poll(key_watch.changed(seen)) else { panic!("{event:?}") };
                assert_eq!(changed, NodeMask::NONE.with(0), "{event:?}");
            }
        }
    }

    #[test]
    fn a_name_is_forgotten_with_its_last_watcher() {
        let tracking = Arc::new(Tracking::default());
        let watches = [tracking.on(b"foo", 1), tracking.on(b"foo", 1)];
        for (left, key_watch) in [1, 0].into_iter().zip(watches) {
            drop(key_watch);
            assert_eq!(tracking.entries().len(), left);
        }
    }
}
