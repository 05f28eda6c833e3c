//! What this process knows about the nodes of one set: which have stopped answering, who each one is, which restarted.
//!
//! One fact per node and process, shared by all lanes. The hot path reads atomics; a mutex is taken only when an
//! identity is learnt or while something is unusual (a bar, a duplicate, a replica).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::{Failure, Identity, Introduction};
use crate::clock::Moment;
use crate::fault::{Fault, planted};
use crate::quorum::{self, Mask};

/// Most releases that are owed to one node at a time; more would only delay each other past their keys' ttl.
const OWED_MAX: u32 = 1_000;

/// The health of a set of nodes.
#[derive(Debug)]
pub(crate) struct Health {
    /// For messages.
    addresses: Vec<String>,
    suspects: AtomicU16,
    last_answer: Vec<AtomicU64>,
    owed: Vec<AtomicU32>,
    /// Whether any node is, or was since the start, a reason to look closer.
    unusual: AtomicBool,
    known: Mutex<Vec<Known>>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    identity: Option<Identity>,
    /// What the bar after a change of identity is counted from.
    changed_at: Option<Moment>,
    warned: bool,
}

impl Health {
    /// For the nodes at `addresses`, as they are shown.
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        let nodes = addresses.len();
        Self {
            addresses,
            suspects: AtomicU16::new(0),
            last_answer: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
            owed: (0..nodes).map(|_| AtomicU32::new(0)).collect(),
            unusual: AtomicBool::new(false),
            known: Mutex::new(vec![Known::default(); nodes]),
        }
    }

    /// The nodes that missed their last vote and have not been heard of since.
    pub(crate) fn suspects(&self) -> Mask {
        Mask::from_bits(self.suspects.load(Ordering::Relaxed))
    }

    /// `node` answered something.
    pub(crate) fn heard(&self, node: usize, now: Moment) {
        self.last_answer[node].store(now.nanos(), Ordering::Relaxed);
        let bit = 1 << node;
        if self.suspects.load(Ordering::Relaxed) & bit != 0 {
            self.suspects.fetch_and(!bit, Ordering::Relaxed);
            tracing::info!(node = %self.addresses[node], "node answers again");
        }
    }

    /// Whether `node`, which owes an answer since `owing`, has given none for longer than `limit` when the last answer of
    /// any node was heard.
    pub(crate) fn is_behind(&self, node: usize, owing: Moment, limit: Duration) -> bool {
        let answered = |node: usize| Moment::from_nanos(self.last_answer[node].load(Ordering::Relaxed));
        let last = (0..self.last_answer.len()).map(answered).max().unwrap_or_default();
        owing.max(answered(node)).after(limit) < last
    }

    /// `node` missed a vote.
    pub(crate) fn missed(&self, node: usize) {
        let bit = 1 << node;
        if self.suspects.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            tracing::warn!(node = %self.addresses[node], "node has stopped answering; others are not kept waiting for it");
        }
    }

    /// Records who answers at `node`, seen on a new connection.
    pub(crate) fn introduced(&self, node: usize, introduction: &Introduction, now: Moment) {
        let mut known = self.known.lock().expect("no panic while holding this");
        let entry = &mut known[node];
        if !entry.warned {
            entry.warned = self.warn(node, introduction);
        }
        let last_answer = Moment::from_nanos(self.last_answer[node].load(Ordering::Relaxed));
        let identity = &introduction.identity;
        if let Some(before) = &entry.identity
            && before != identity
            && !introduction.silent
        {
            entry.changed_at = Some(quorum::changed_at(now, introduction.uptime, last_answer));
            tracing::warn!(
                node = %self.addresses[node],
                "node restarted or was replaced; its grants do not count for restart_delay"
            );
        }
        if !introduction.silent || entry.identity.is_none() {
            entry.identity = Some(identity.clone());
        }
        let unusual =
            (0..self.addresses.len()).any(|node| standing(&known, node).is_some() || known[node].changed_at.is_some());
        self.unusual.store(unusual, Ordering::Release);
    }

    /// Tells the operator once what a connection made visible.
    fn warn(&self, node: usize, introduction: &Introduction) -> bool {
        let node = &self.addresses[node];
        if let Some(policy) = &introduction.evicts {
            tracing::warn!(%node, %policy, "node may evict locks when memory is short; set maxmemory-policy noeviction");
        }
        if introduction.silent {
            tracing::warn!(%node, "node refuses INFO: its restarts cannot be seen, so restart_delay has no effect there");
        }
        introduction.evicts.is_some() || introduction.silent
    }

    /// The nodes whose grants count now for a lock with this `restart_delay`.
    pub(crate) fn counts(&self, restart_delay: Duration, now: Moment) -> Mask {
        if !self.unusual.load(Ordering::Acquire) || planted(Fault::NoBars) {
            return Mask::all(self.addresses.len());
        }
        let known = self.known.lock().expect("no panic while holding this");
        let usable = |node: &usize| {
            standing(&known, *node).is_none() && bar_end(&known[*node], restart_delay).is_none_or(|end| end <= now)
        };
        (0..self.addresses.len()).filter(usable).fold(Mask::NONE, Mask::with)
    }

    /// Why `node`'s grant would not count now.
    pub(crate) fn objection(&self, node: usize, restart_delay: Duration, now: Moment) -> Option<Failure> {
        if !self.unusual.load(Ordering::Acquire) {
            return None;
        }
        let known = self.known.lock().expect("no panic while holding this");
        standing(&known, node).or_else(|| {
            let end = bar_end(&known[node], restart_delay)?;
            (end > now).then(|| Failure::Barred(end.since(now)))
        })
    }

    /// When enough bars will have ended for a quorum; `None` if bars are not what stands in the way.
    pub(crate) fn quorum_at(&self, restart_delay: Duration) -> Option<Moment> {
        let known = self.known.lock().expect("no panic while holding this");
        let mut ends: Vec<Moment> = (0..self.addresses.len())
            .filter(|node| standing(&known, *node).is_none())
            .map(|node| bar_end(&known[node], restart_delay).unwrap_or_default())
            .collect();
        ends.sort_unstable();
        ends.get(quorum::quorum(self.addresses.len()) - 1).copied()
    }

    /// How many different servers the addresses can lead to, as far as is known.
    pub(crate) fn distinct(&self) -> usize {
        let known = self.known.lock().expect("no panic while holding this");
        (0..self.addresses.len()).filter(|node| !matches!(standing(&known, *node), Some(Failure::Duplicate(_)))).count()
    }

    /// Takes one of `node`'s places for an owed release; false if all are taken.
    pub(crate) fn owe(&self, node: usize) -> bool {
        self.owed[node]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owed| (owed < OWED_MAX).then_some(owed + 1))
            .is_ok()
    }

    /// Gives the place back.
    pub(crate) fn settled(&self, node: usize) {
        self.owed[node].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why `node` has no vote at all, however long one waits.
fn standing(known: &[Known], node: usize) -> Option<Failure> {
    let identity = known[node].identity.as_ref()?;
    if identity.replica {
        return Some(Failure::Replica);
    }
    let same = |other: &Known| other.identity.as_ref().is_some_and(|other| other.run_id == identity.run_id);
    // The same server under two addresses votes once, whichever database the addresses name.
    let first = known[..node].iter().position(same);
    first.filter(|_| !identity.run_id.is_empty()).map(Failure::Duplicate)
}

fn bar_end(known: &Known, restart_delay: Duration) -> Option<Moment> {
    known.changed_at.map(|changed| changed.after(restart_delay))
}
