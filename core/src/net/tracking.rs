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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::Error;
use crate::node::event::NodeEvent;
use crate::protocol::quorum::NodeMask;
use crate::sys::clock::Moment;
use crate::sys::future::notified_until;
use crate::sys::mutex::Mutex;

/// The watched keys of one set of nodes.
#[derive(Debug, Default)]
pub(crate) struct Tracking(Mutex<Watched>);

/// What is watched. Ordered, so that a seed wakes waiters in the same order.
#[derive(Debug, Default)]
struct Watched {
    /// By what is waited for: a key, or several of them.
    lines: BTreeMap<Arc<[u8]>, Entry>,
    /// The lines that each key is of.
    keys: BTreeMap<Box<[u8]>, Vec<Arc<[u8]>>>,
}

#[derive(Debug)]
struct Entry {
    watches: usize,
    keys: Vec<Box<[u8]>>,
    changes: Arc<Changes>,
}

/// The number of changes of one key that each node has reported.
#[derive(Debug)]
struct Changes {
    counts: Vec<AtomicU64>,
    more: Notify,
    last_look: tokio::sync::Mutex<Option<Look>>,
}

/// What one of those who only watch a key was told: those who came before it began need not ask as well.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) began: Moment,
    /// Whether the key is taken, and how long the first node keeps it.
    pub(crate) seen: Result<(bool, Option<Duration>), Error>,
}

impl Look {
    /// Returns what was seen.
    pub(crate) fn shared(&self) -> Result<(bool, Option<Duration>), Error> {
        self.seen.as_ref().copied().map_err(Error::for_another)
    }
}

impl Changes {
    fn add(&self, node: usize) {
        self.counts[node].fetch_add(1, Ordering::Relaxed);
        self.more.notify_waiters();
    }
}

impl Tracking {
    /// Counts the changes of the `keys` of `line` on each of `nodes` nodes, until the [`KeyWatch`] is dropped. The keys of
    /// a line are always the same.
    pub(crate) fn on<'a>(
        self: &Arc<Self>,
        line: &Arc<[u8]>,
        keys: impl IntoIterator<Item = &'a [u8]>,
        nodes: usize,
    ) -> KeyWatch {
        let mut watched = self.0.lock();
        let Watched { lines, keys: by_key } = &mut *watched;
        let entry = lines.entry(Arc::clone(line)).or_insert_with(|| {
            let keys: Vec<Box<[u8]>> = keys.into_iter().map(Box::from).collect();
            for key in &keys {
                by_key.entry(key.clone()).or_default().push(Arc::clone(line));
            }
            let counts = (0..nodes).map(|_| AtomicU64::new(0)).collect();
            Entry {
                watches: 0,
                keys,
                changes: Arc::new(Changes { counts, more: Notify::new(), last_look: tokio::sync::Mutex::default() }),
            }
        });
        entry.watches += 1;
        KeyWatch { tracking: Arc::clone(self), line: Arc::clone(line), changes: Arc::clone(&entry.changes) }
    }

    /// Records what `node` has reported.
    pub(crate) fn heard(&self, node: usize, event: NodeEvent<'_>) {
        let watched = self.0.lock();
        let (key, own) = match event {
            NodeEvent::Changed(key) => (key, None),
            NodeEvent::ChangedFor { key, line } => (key, Some(line)),
            NodeEvent::Connected { may_differ: false } => return,
            _ => return watched.lines.values().for_each(|entry| entry.changes.add(node)),
        };
        for line in watched.keys.get(key).into_iter().flatten().filter(|line| own != Some(&***line)) {
            if let Some(entry) = watched.lines.get(line) {
                entry.changes.add(node);
            }
        }
    }
}

/// One waiter for changes of the keys of one line.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    tracking: Arc<Tracking>,
    line: Arc<[u8]>,
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
        notified_until(&self.changes.more, || Some(self.since(seen)).filter(|(changed, _)| *changed != NodeMask::NONE))
            .await
    }

    /// Returns the last look of those who only watch the key. One of them looks at a time.
    pub(crate) fn last_look(&self) -> &tokio::sync::Mutex<Option<Look>> {
        &self.changes.last_look
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
        let mut watched = self.tracking.0.lock();
        let Some(entry) = watched.lines.get_mut(&self.line) else { return };
        entry.watches -= 1;
        if entry.watches > 0 {
            return;
        }
        let unwatched = watched.lines.remove(&self.line);
        for key in unwatched.iter().flat_map(|entry| &entry.keys) {
            let lines = watched.keys.get_mut(key).expect("every key of a line has it");
            lines.retain(|line| *line != self.line);
            if lines.is_empty() {
                watched.keys.remove(key);
            }
        }
        drop(watched);
        drop(unwatched);
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

    /// Watches the keys of a line, whose names a space separates.
    fn on(tracking: &Arc<Tracking>, line: &str, nodes: usize) -> KeyWatch {
        tracking.on(&Arc::from(line.as_bytes()), line.split(' ').map(str::as_bytes), nodes)
    }

    #[test]
    fn a_change_of_any_key_of_a_line_is_heard() {
        let tracking = Arc::new(Tracking::default());
        let watches = [on(&tracking, "a b", 1), on(&tracking, "b c", 1), on(&tracking, "b", 1)];
        let seen = watches.each_ref().map(KeyWatch::seen);
        let hears = |key: &[u8]| {
            tracking.heard(0, NodeEvent::Changed(key));
            [0, 1, 2].map(|index| watches[index].since(&seen[index]).0 != NodeMask::NONE)
        };
        assert_eq!(hears(b"d"), [false, false, false]);
        assert_eq!(hears(b"a"), [true, false, false]);
        assert_eq!(hears(b"b"), [true, true, true]);
        drop(watches);
        assert!(tracking.0.lock().keys.is_empty() && tracking.0.lock().lines.is_empty(), "a key stays");
    }

    #[test]
    fn a_change_between_the_question_and_the_sleep_is_not_missed() {
        let tracking = Arc::new(Tracking::default());
        let key_watch = on(&tracking, "foo", 3);
        let seen = key_watch.seen();
        assert!(poll(key_watch.changed(&seen)).is_pending());
        tracking.heard(1, NodeEvent::Changed(b"bar"));
        assert!(poll(key_watch.changed(&seen)).is_pending(), "another key");
        tracking.heard(1, NodeEvent::Changed(b"foo"));
        let Poll::Ready((changed, seen)) = poll(key_watch.changed(&seen)) else { panic!("not heard") };
        assert_eq!(changed, NodeMask::NONE.with(1));
        assert!(poll(key_watch.changed(&seen)).is_pending(), "heard already");
    }

    /// The node reports a change to all who wait, but for those on the connection that made it.
    #[test]
    fn a_change_of_ones_own_is_heard_by_those_who_wait_for_other_keys_with_it() {
        let tracking = Arc::new(Tracking::default());
        let [own, set] = [on(&tracking, "a", 1), on(&tracking, "a b", 1)];
        let seen = [own.seen(), set.seen()];
        tracking.heard(0, NodeEvent::ChangedFor { key: b"a", line: b"a" });
        assert_eq!(own.since(&seen[0]).0, NodeMask::NONE, "it would wake itself");
        assert_eq!(set.since(&seen[1]).0, NodeMask::NONE.with(0));
    }

    #[test]
    fn a_flush_and_a_broken_connection_change_every_key_of_the_node() {
        let reconnected = NodeEvent::Connected { may_differ: true };
        for event in [NodeEvent::Disconnected, reconnected, NodeEvent::AllChanged] {
            let tracking = Arc::new(Tracking::default());
            let watches = [on(&tracking, "foo", 2), on(&tracking, "bar", 2)];
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
        let watches = [on(&tracking, "foo", 1), on(&tracking, "foo", 1)];
        for (left, key_watch) in [1, 0].into_iter().zip(watches) {
            drop(key_watch);
            assert_eq!(tracking.0.lock().lines.len(), left);
        }
    }
}
