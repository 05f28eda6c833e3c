//! What can happen, and how it is told.

use super::{Fencing, State};
use crate::search::Way;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt begins.
    Begins(usize),
    /// Something happens between an attempt and a node.
    Between(usize, usize, Message),
    /// An attempt decides on the fence to confirm.
    Decides(usize, u64),
    /// An attempt wins.
    Wins(usize, u64),
    /// The lock of an attempt that has won counts as one with this larger fence.
    Levels(usize, u64),
    /// The lock of the first attempt is detached.
    Detaches,
    /// An attachment holds it.
    Attaches(usize),
    /// An attachment gives up.
    GivesUp(usize),
    /// Something arrives at a node from an attachment.
    Handing(usize, usize, Handing),
    /// A node's key for a name ends.
    Ends(usize, usize),
    /// A node's key for a name ends for this attempt, one of those that share it.
    EndsFor(usize, usize, usize),
    /// A node loses its data, but for this fence.
    Loses(usize, u64),
}

/// What arrives at a node from an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handing {
    /// A re-key.
    Rekey,
    /// What keys back.
    KeyBack,
    /// An extension.
    Extend,
    /// A restore.
    Restore,
}

/// What arrives at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An acquire whose proposal comes to this, for the first time or `again`; and whether its answer is `heard`.
    Acquire {
        /// The proposal.
        proposal: u64,
        /// It has been here before.
        again: bool,
        /// The attempt hears the answer.
        heard: bool,
    },
    /// A confirm.
    Confirm,
    /// An extension.
    Extend,
    /// An extension that has the node remember this fence, which another one has granted.
    Raise(u64),
    /// A restore.
    Restore,
    /// A release, or what leaves the lock for the rest of its least time.
    GiveUp,
}

/// The way to a state: a line for each step, with the keys that each node has after it.
#[must_use]
pub fn tell<const S: usize, const A: usize, const K: usize>((start, taken): &Way<Fencing<S, A, K>>) -> String {
    let line = |what: String, state: &State<S, A, K>| {
        let keys = state.nodes.iter().map(|node| format!("\n    {:?}", node.keys));
        what + &keys.collect::<String>()
    };
    let steps = taken.iter().map(|(step, after)| line(format!("{step:?}"), after));
    std::iter::once(line("it begins".to_owned(), start)).chain(steps).collect::<Vec<_>>().join("\n")
}
