//! How long owners share a lock, on one node: each for its own time, on whatever clock.
//!
//! What the node does is the library's own ([`redlock::testing::model::Node`]). What fences are, and how a quorum decides,
//! is the subject of [`fencing`](crate::fencing).
//!
//! Two owners share the lock, one for a short time and one for a long one. Each *joins*, *extends* while it has it,
//! *releases* it, or does nothing more, as if it had crashed. Somebody wants the lock alone: it *asks* and is counted, has
//! it for a short time, or *gives up*. Time *passes*, and the keys *move* once to a node whose clock is behind or ahead.
//! [`Sharing::another`] has somebody's sorted set under the lock key from the first.

use std::fmt;

use redlock::testing::model::{Answer, Node, Timely};
use redlock::testing::simulation::{Fault, plant};

use crate::search::Model;

/// The times for which the owners share it, and for which one has it alone. In seconds, as all times here.
const TTLS: [u64; 2] = [1, 2];
const ALONE: u64 = 1;

/// How often each of them joins.
const JOINS: u8 = 2;

/// When the model ends.
const END: u64 = 4;

/// What the node's clock says first, and how far the clock of the other one is off.
const BEGIN: u64 = 100;
const OFF: [i64; 2] = [-2, 2];

/// How long somebody's sorted set lives: longer than the model.
const LONG: u64 = 20;

/// The token of who wants the lock alone, and of who looks whether it could be had.
const WRITER: u8 = 2;
const PROBE: u8 = 3;

/// The lock on one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharing {
    /// Whether somebody's sorted set is under the lock key.
    pub another: bool,
    /// The rule of the library that is broken.
    pub fault: Option<Fault>,
}

/// Everything there is to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    node: Node,
    /// What time it is in truth.
    time: u64,
    moved: bool,
    owners: [Owner; TTLS.len()],
    /// Until when one has the lock alone.
    alone: u64,
    /// Whether one got the lock alone while others had it, somebody joined others although one waited for the lock alone, or
    /// somebody's sorted set was changed.
    wrong: bool,
}

/// Who shares the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Owner {
    until: u64,
    fence: u64,
    joined: u8,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A second passes.
    Passes,
    /// The keys move to a node whose clock is so far ahead.
    Moves(i64),
    /// An owner joins.
    Joins(usize),
    /// It extends.
    Extends(usize),
    /// It releases.
    Releases(usize),
    /// One asks for the lock alone.
    Asks,
    /// It gives up.
    GivesUp,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |owner: usize| char::from(b"AB"[owner]);
        match *self {
            Self::Passes => write!(f, "-- a second passes"),
            Self::Moves(ahead) => write!(f, "-- the keys move to a node whose clock differs by {ahead} s"),
            Self::Joins(owner) => write!(f, "{}: joins for {} s", name(owner), TTLS[owner]),
            Self::Extends(owner) => write!(f, "{}: extends to {} s", name(owner), TTLS[owner]),
            Self::Releases(owner) => write!(f, "{}: releases", name(owner)),
            Self::Asks => write!(f, "W: asks"),
            Self::GivesUp => write!(f, "W: gives up"),
        }
    }
}

impl State {
    /// Whether nobody has the lock alone while others do, nobody pushes in, and nobody's data change.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        !self.wrong
    }

    /// Whether the lock is free exactly when the time of everybody who has it is over.
    #[must_use]
    pub fn is_punctual(&self) -> bool {
        let ask = Timely::Acquire { ttl: ALONE, waits: false };
        let is_free = matches!(self.node.clone().execute(PROBE, false, ask), Answer::Granted(_));
        is_free == (self.owners.iter().all(|owner| owner.until <= self.time) && self.alone <= self.time)
    }
}

impl Sharing {
    fn ask(self, state: &mut State, owner: u8, shares: bool, ask: Timely) -> Answer {
        let before = self.another.then(|| state.node.clone());
        plant(self.fault);
        let answer = state.node.execute(owner, shares, ask);
        plant(None);
        state.wrong |= before.is_some_and(|before| !state.node.has_the_same(&before));
        answer
    }

    fn joins(self, state: &mut State, owner: usize) {
        let (ttl, waits) = (TTLS[owner], false);
        let is_awaited = state.node.is_awaited();
        if let Answer::Granted(fence) = self.ask(state, token(owner), true, Timely::Acquire { ttl, waits }) {
            state.owners[owner] = Owner { until: state.time + ttl, fence, joined: state.owners[owner].joined + 1 };
            state.wrong |= is_awaited;
        }
    }
}

fn token(owner: usize) -> u8 {
    u8::try_from(owner).expect("one of two")
}

impl Model for Sharing {
    type State = State;
    type Step = Step;

    fn starts(&self) -> Vec<State> {
        let node = Node::new(BEGIN);
        vec![State {
            node: if self.another { node.with_another(LONG) } else { node },
            time: 0,
            moved: false,
            owners: [Owner::default(); TTLS.len()],
            alone: 0,
            wrong: false,
        }]
    }

    fn steps(&self, state: &State, mut take: impl FnMut(Step, State)) {
        let mut take = |step: Step, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            if next != *state {
                take(step, next);
            }
        };
        if state.time < END {
            take(Step::Passes, &|next| {
                next.time += 1;
                next.node.pass(1);
            });
        }
        for ahead in OFF.into_iter().filter(|_| !state.moved && !self.another) {
            take(Step::Moves(ahead), &|next| {
                next.moved = true;
                next.node.migrate(ahead);
            });
        }
        for (index, owner) in state.owners.iter().enumerate() {
            let (ttl, fence) = (TTLS[index], owner.fence);
            if owner.until > state.time {
                take(Step::Extends(index), &|next| {
                    if self.ask(next, token(index), true, Timely::Extend { ttl, fence }) == Answer::Done {
                        next.owners[index].until = next.time + ttl;
                    }
                });
                take(Step::Releases(index), &|next| {
                    self.ask(next, token(index), true, Timely::Release);
                    next.owners[index].until = 0;
                });
            } else if owner.joined < JOINS {
                take(Step::Joins(index), &|next| self.joins(next, index));
            }
        }
        if state.alone <= state.time {
            take(Step::Asks, &|next| {
                let (ttl, waits) = (ALONE, true);
                if let Answer::Granted(_) = self.ask(next, WRITER, false, Timely::Acquire { ttl, waits }) {
                    next.wrong |= next.owners.iter().any(|owner| owner.until > next.time);
                    next.alone = next.time + ttl;
                }
            });
            take(Step::GivesUp, &|next| _ = self.ask(next, WRITER, false, Timely::Withdraw));
        }
    }
}
