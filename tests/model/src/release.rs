//! The release without a script, on one node: two commands, between which anything may happen, and the script where they
//! have not deleted the key.
//!
//! What the node does is the library's own ([`redlock::testing::model::Node`]), and what servers say of DELIFEQ, DELEX and
//! GETDEL. A has the lock, and releases it: it *deletes* the key if its value is as granted, *ends the count* of those who
//! wait, and if nothing was deleted *asks the script*. The key may *expire* at any time, B may *acquire* the lock then, and
//! W *asks* for it and is counted.

use std::fmt;

use redlock::testing::model::{Answer, Node, Timely};

use crate::search::Model;

const A: u8 = 0;
const B: u8 = 1;
const W: u8 = 2;

/// For how long A has the lock, and for how long the others do: longer than the model. In seconds.
const SHORT: u64 = 1;
const LONG: u64 = 60;

/// A release with one rule changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The key is deleted whatever its value is.
    DeletesBlindly,
    /// The count is left.
    KeepsCount,
    /// Where the script deletes the key, the count that has ended before is not told.
    ForgetsCount,
    /// Where nothing was deleted, there is nothing.
    TrustsZero,
}

/// The release of one lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    /// Whether the node's value has another fence than A knows of, as after a restore.
    pub has_other_fence: bool,
    /// The rule that is broken.
    pub mutant: Option<Mutant>,
}

/// Everything there is to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    node: Node,
    owner: Option<u8>,
    phase: Phase,
    /// How many wait, as A has been told.
    told: u32,
    /// In whose hold W was counted.
    counted: Option<u8>,
    /// Whether A has deleted its own key.
    deleted: bool,
    /// Whether A has deleted another's.
    wrong: bool,
}

/// How far A is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Holds,
    /// DELIFEQ has deleted the key, or not.
    Tried(bool),
    /// The count has ended, and the script is to judge.
    Asks,
    Over,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A's time ends.
    Expires,
    /// B asks for the lock.
    Acquires,
    /// W asks for the lock, and waits.
    Waits,
    /// A's first command.
    Deletes,
    /// A's second command.
    EndsCount,
    /// A's script.
    AsksScript,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expires => "-- A's time ends",
            Self::Acquires => "B: acquires",
            Self::Waits => "W: waits",
            Self::Deletes => "A: deletes",
            Self::EndsCount => "A: ends the count",
            Self::AsksScript => "A: asks the script",
        })
    }
}

impl State {
    /// Whether A has deleted no key but its own, and with it has ended the count of its hold and was told of who waits.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let is_over = self.phase == Phase::Over;
        let is_ended = self.counted != Some(A) || self.node.waiting() == 0 && self.told > 0;
        !self.wrong && (!is_over || self.owner != Some(A) && (!self.deleted || is_ended))
    }

    /// Does what A sends, and looks what has become of the lock key.
    fn act(&mut self, act: impl FnOnce(&mut Node) -> bool) -> bool {
        let before = self.node.clone();
        let done = act(&mut self.node);
        if !self.node.has_the_same(&before) {
            (self.deleted, self.wrong) = (self.owner == Some(A), self.owner != Some(A));
            self.owner = None;
        }
        done
    }
}

impl Model for Release {
    type State = State;
    type Step = Step;

    fn starts(&self) -> Vec<State> {
        let mut node = Node::new(1);
        let granted = node.execute(A, false, Timely::Acquire { ttl: SHORT, waits: false });
        assert!(matches!(granted, Answer::Granted(_)));
        let (phase, owner) = (Phase::Holds, Some(A));
        vec![State { node, owner, phase, told: 0, counted: None, deleted: false, wrong: false }]
    }

    fn steps(&self, state: &State, mut take: impl FnMut(Step, State)) {
        let mut take = |step, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            take(step, next);
        };
        let asks = |waits| Timely::Acquire { ttl: LONG, waits };
        if state.owner == Some(A) {
            take(Step::Expires, &|next| {
                next.node.pass(SHORT);
                next.owner = None;
            });
        }
        if state.owner.is_none() {
            take(Step::Acquires, &|next| {
                assert!(matches!(next.node.execute(B, false, asks(false)), Answer::Granted(_)));
                next.owner = Some(B);
            });
        } else if state.counted.is_none() {
            take(Step::Waits, &|next| {
                assert_eq!(next.node.execute(W, false, asks(true)), Answer::Refused);
                next.counted = next.owner;
            });
        }
        match state.phase {
            Phase::Holds => take(Step::Deletes, &|next| {
                let is_blind = self.mutant == Some(Mutant::DeletesBlindly);
                let deleted = next.act(|node| node.delete_lock(A, self.has_other_fence, is_blind));
                next.phase = Phase::Tried(deleted);
            }),
            Phase::Tried(deleted) => take(Step::EndsCount, &|next| {
                if self.mutant != Some(Mutant::KeepsCount) {
                    next.told = next.node.end_count();
                }
                let is_over = deleted || self.mutant == Some(Mutant::TrustsZero);
                next.phase = if is_over { Phase::Over } else { Phase::Asks };
            }),
            Phase::Asks => take(Step::AsksScript, &|next| {
                let waiting = next.node.waiting();
                let deleted = next.act(|node| node.execute(A, false, Timely::Release) == Answer::Done);
                let ended = if self.mutant == Some(Mutant::ForgetsCount) { 0 } else { next.told };
                next.told = if deleted { waiting.max(ended) } else { 0 };
                next.phase = Phase::Over;
            }),
            Phase::Over => {}
        }
    }
}
