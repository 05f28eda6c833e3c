//! Where everybody stands at one moment.

use redlock::testing::model::{Keys, Part};

/// How many may attach one lock at once.
pub const ATTACHMENTS_MOST: usize = 2;

/// How far one has come that attaches the lock of the first attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Attachment {
    /// The lock is not detached.
    #[default]
    None,
    Tries,
    GaveUp,
    Holds,
}

/// Everything that there is to know: of the `S` nodes, each with keys for `K` names, and of the `A` attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const S: usize, const A: usize, const K: usize> {
    pub(super) nodes: [Node<A, K>; S],
    pub(super) attempts: [Attempt; A],
    pub(super) attachments: [Attachment; ATTACHMENTS_MOST],
    /// How many acquires may still arrive twice.
    pub(super) copies: u8,
    /// How many losses of data there may still be.
    pub(super) losses: u8,
    /// Whether a fence key has fallen otherwise.
    pub(super) fell: bool,
    /// Whether somebody has won while one with a smaller fence had its key on a quorum.
    pub(super) overlaps: bool,
    /// Whether a node has extended a lock that it was given back.
    pub(super) revived: bool,
}

/// A node, and where each attempt stands with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node<const A: usize, const K: usize> {
    pub(super) keys: [Keys; K],
    /// The largest fence that it has forgotten.
    pub(super) forgotten: u64,
    /// What each attempt knows of it.
    pub(super) parts: [Part; A],
    /// The place of each attempt's grant among those that were heard, from 1.
    pub(super) places: [u8; A],
    /// Which locks it has extended after somebody had won with a larger fence, or after it was given them back.
    pub(super) extended: [bool; A],
    /// Which locks it was given back.
    pub(super) given_up: [bool; A],
    /// Up to which fence it has said to remember each lock's.
    pub(super) raised: [u64; A],
    /// Which attachments have heard its yes.
    pub(super) rekeyed: [bool; ATTACHMENTS_MOST],
    /// For which attachments it has kept the lock after somebody had won with a larger fence.
    pub(super) extended_anew: [bool; ATTACHMENTS_MOST],
    /// Whether it has extended the former holder's lock after another held it.
    pub(super) extended_late: bool,
}

/// One attempt, and the holder that it makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    /// Which had won when it began, a bit for each.
    pub(super) began_after: Option<u8>,
    pub(super) decided: Option<u64>,
    pub(super) won: Option<u64>,
    /// What its lock counts as on the nodes: its fence, or a larger one that a quorum remembers.
    pub(super) level: Option<u64>,
}

impl<const S: usize, const A: usize, const K: usize> State<S, A, K> {
    /// Nobody has begun.
    pub(super) fn new(fences: [[u64; K]; S], copies: u8, losses: u8) -> Self {
        let node = |fences: [u64; K]| Node {
            keys: fences.map(|fence| Keys { fence, ..Keys::default() }),
            forgotten: 0,
            parts: [Part::Pending; A],
            places: [0; A],
            extended: [false; A],
            given_up: [false; A],
            raised: [0; A],
            rekeyed: [false; ATTACHMENTS_MOST],
            extended_anew: [false; ATTACHMENTS_MOST],
            extended_late: false,
        };
        let (nodes, attempts) = (fences.map(node), [Attempt::default(); A]);
        let attachments = [Attachment::None; ATTACHMENTS_MOST];
        Self { nodes, attempts, attachments, copies, losses, fell: false, overlaps: false, revived: false }
    }

    pub(super) fn won(&self, attempt: usize) -> Option<u64> {
        self.attempts[attempt].won
    }

    /// Whether this attempt's lock is detached.
    pub(super) fn is_detached(&self, attempt: usize) -> bool {
        attempt == 0 && self.attachments != [Attachment::None; ATTACHMENTS_MOST]
    }

    /// Whether this attempt's lock has another holder by now.
    pub(super) fn is_handed_over(&self, attempt: usize) -> bool {
        self.is_detached(attempt) && self.attachments.contains(&Attachment::Holds)
    }

    pub(super) fn level(&self, attempt: usize) -> Option<u64> {
        self.attempts[attempt].level
    }

    /// A bit for each attempt that has won.
    pub(super) fn winners(&self) -> u8 {
        (0..A).filter(|attempt| self.won(*attempt).is_some()).fold(0, |winners, attempt| winners | 1 << attempt)
    }

    /// Whether this is so of every two that have won, the first of whom began first.
    pub(super) fn all_pairs(&self, holds: impl Fn(usize, usize) -> bool) -> bool {
        let pairs = (0..A).flat_map(|two| (0..two).map(move |one| (one, two)));
        let mut winners = pairs.filter(|(one, two)| self.won(*one).is_some() && self.won(*two).is_some());
        winners.all(|(one, two)| holds(one, two))
    }

    /// Whether their fences are in order if the second one began after the first had won.
    pub(super) fn is_in_real_time(&self, one: usize, two: usize) -> bool {
        let was_before = self.attempts[two].began_after.is_some_and(|winners| winners & 1 << one != 0);
        !was_before || self.won(one) < self.won(two)
    }

    /// Whether their order is that of their fences on every node by which both have won.
    pub(super) fn is_in_own_order(&self, one: usize, two: usize) -> bool {
        let counts = |node: &Node<A, K>, attempt: usize| match node.parts[attempt] {
            Part::Confirmed => true,
            Part::Granted(fence) => self.won(attempt) == Some(fence),
            Part::Pending | Part::Refused => false,
        };
        let mut common = self.nodes.iter().filter(|node| counts(node, one) && counts(node, two));
        common.all(|node| (node.places[one] < node.places[two]) == (self.won(one) < self.won(two)))
    }
}

impl<const A: usize, const K: usize> Node<A, K> {
    /// The answer to an acquire is heard. It is later than all that were heard from here, an earlier one of this very
    /// attempt included.
    pub(super) fn hear(&mut self, attempt: usize, fence: u64) {
        if self.parts[attempt] != Part::Granted(fence) {
            self.parts[attempt] = Part::Granted(fence);
            let before = std::mem::take(&mut self.places[attempt]);
            for place in self.places.iter_mut().filter(|place| before > 0 && **place > before) {
                *place -= 1;
            }
            self.places[attempt] = self.places.iter().max().map_or(1, |last| last + 1);
        }
    }
}
