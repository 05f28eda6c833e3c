//! The fencing protocol: attempts that each take the lock on a quorum of nodes and come back with a fence.
//!
//! What a node does and what an attempt makes of its votes are not written here. Both are the library's own
//! ([`redlock::testing::model`]); this model says who is heard, and when. A [`Mutant`] breaks one of the rules.
//!
//! # State
//!
//! Per node, whose the lock key is with the fence in its value, and the fence key. Per attempt, what it knows of each node,
//! the fence it has decided on, and the fence it has won with. The rest is history, for the properties alone: who had won
//! when an attempt began, the order in which a node's grants were heard, which nodes have extended a superseded lock, the
//! largest fence that a node has forgotten, and whether a fence ever fell. A retry is a new attempt: it has a new token.
//!
//! # Steps
//!
//! An attempt *begins*: its acquires are on their way. One *arrives* at a node that is free, or holds this token's key. The
//! attempt *decides* on a fence, or *wins*, by the answers of any quorum. A confirm *arrives*. When it has won, extensions
//! and restores *arrive*. A key *ends*. A node *loses* its data, all of it or what it learnt last.
//!
//! # What is left out, and why nothing is missed
//!
//! - *Time.* No clock is read. A key may end at any moment: by expiry with any clock, release, DEL or eviction. So a
//!   release needs no step of its own, and neither does a holder that believes for too long that it holds.
//! - *Clocks.* What a node makes of a proposal, within the limits of its own clock, is any of [`Fencing::proposals`],
//!   for each node and message anew.
//! - *Messages* are a set: what has been sent may arrive at any time, in any order, or never. Arrival and answer are one
//!   step, because a decision may leave out any answers, as if they were late, lost or those of barred nodes. A denial is
//!   no step: it changes a vote that would not have counted, as does an acquire that never arrives. A confirm arrives
//!   once: it compares with all that was granted, so that the second time it would do nothing. An acquire may arrive
//!   twice, as often as [`Fencing::copies`] says. Extensions and restores of a lock that was won may arrive as often as
//!   they like, and restores without the extension that they follow.
//! - *Rounds of an extension.* [`NO_BRIDGE`] counts all nodes that have extended a lock since somebody won with a larger
//!   fence, be it in one round or in many.
//! - *Failures of clients.* A crash, a pause, a time-out and a lost attempt are all the same: from some point on nothing of
//!   that attempt happens but what is under way. Every state is looked at, so also those after which nothing happens.
//! - *Symmetry.* Attempts differ in nothing but their order, so they begin in that order. Nodes differ in nothing, so the
//!   first fences are sorted, and states that differ by the order of their nodes can count as one.
//!
//! The acquires are finite in number and a fence is a proposal or one more than another, so there are finitely many states.
//! The checker remembers a state by 64 bits; that two of three million states share them has odds of one in four million.
//!
//! # Liveness
//!
//! The checker's *eventually* is blind to paths that meet again, so it is not used. Where no key ends and nothing is
//! restored, every step uses up a message or ends an attempt, so all paths end, and it is enough that no state without a next
//! step is without a winner ([`LIVE`]). Where keys end, attempts may take the lock from each other for as long as they like,
//! and only chance separates them; but no state is a dead end. Whatever the nodes remember, a new attempt that is alone for
//! its two rounds wins with any quorum whose keys have ended ([`Fencing::is_open`]), and what others have under way is used
//! up sometime.
//!
//! # One loss of data
//!
//! Fences are then told apart by time. That clocks differ by less than the time between the forgotten acquisition and the
//! next one means, in a model without time, that a node grants more than all that it has forgotten ([`Fencing::clocks`]).
//! [`DURABLE`] and [`NO_BRIDGE`] are not promised after it: the fence key is gone, and with it what a late restore is
//! measured by.

mod rules;
mod state;
mod step;

use redlock::testing::model::{self, Answer, Ask, Keys, Next, Part};
use stateright::{Model, Property};

use state::Attempt;

pub use rules::Mutant;
pub use state::State;
pub use step::{Message, Step, tell};

/// No two that have won have the same fence.
pub const UNIQUE: &str = "unique";
/// Who began after another had won has the larger fence.
pub const REAL_TIME: &str = "real time";
/// On every node that two winners have in common, their order is that of their fences.
pub const OWN_ORDER: &str = "own order";
/// A quorum remembers the fence of everybody who has won.
pub const DURABLE: &str = "durable";
/// No fence key falls, but by a loss of data.
pub const MONO: &str = "mono";
/// No lock is extended after somebody has won with a larger fence.
pub const NO_BRIDGE: &str = "no bridge";
/// At most one has its key on a quorum.
pub const ONE_OWNER: &str = "one owner";
/// Where nothing more can happen, somebody has won.
pub const LIVE: &str = "live";

/// What there is, and what may happen.
#[derive(Clone, Debug)]
pub struct Fencing<const S: usize, const A: usize> {
    /// What proposals come to.
    pub proposals: Vec<u64>,
    /// What fence keys may say at first.
    pub first: Vec<u64>,
    /// Whether keys may end.
    pub ends: bool,
    /// Whether locks are restored.
    pub restores: bool,
    /// How many acquires arrive twice.
    pub copies: u8,
    /// How many losses of data there may be.
    pub losses: u8,
    /// Whether a node that has forgotten grants more than all that it had granted.
    pub clocks: bool,
    /// The rule that is broken.
    pub mutant: Option<Mutant>,
}

impl<const S: usize, const A: usize> Default for Fencing<S, A> {
    /// Two proposals, all that the protocol does, and no faults but those of clocks, clients and messages.
    fn default() -> Self {
        Self {
            proposals: vec![1, 2],
            first: vec![0, 1],
            ends: true,
            restores: true,
            copies: 0,
            losses: 0,
            clocks: true,
            mutant: None,
        }
    }
}

impl<const S: usize, const A: usize> Model for Fencing<S, A> {
    type State = State<S, A>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        let next = |lists: Vec<[u64; S]>, node: usize| {
            let with = |list: [u64; S], fence: u64| {
                let mut list = list;
                list[node] = fence;
                list
            };
            lists.iter().flat_map(|list| self.first.iter().map(move |fence| with(*list, *fence))).collect()
        };
        let lists = (0..S).fold(vec![[0; S]], next);
        // Nodes are alike: their order does not matter.
        let sorted = lists.into_iter().filter(|fences| fences.is_sorted());
        sorted.map(|fences| State::new(fences, self.copies, self.losses)).collect()
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Step>) {
        let begun = state.attempts.iter().take_while(|attempt| attempt.began_after.is_some()).count();
        if begun < A {
            steps.push(Step::Begins(begun));
        }
        for attempt in 0..begun {
            for node in self.list(attempt) {
                let mut messages = Vec::new();
                self.messages(state, attempt, node, &mut messages);
                steps.extend(messages.into_iter().map(|message| Step::Between(attempt, node, message)));
            }
            if state.won(attempt).is_none() {
                let parts: Vec<Part> = self.list(attempt).map(|node| state.nodes[node].parts[attempt]).collect();
                let step = |verdict| match verdict {
                    Next::Nothing => None,
                    Next::Confirm(fence) => Some(Step::Decides(attempt, fence)),
                    Next::Win(fence) => Some(Step::Wins(attempt, fence)),
                };
                steps.extend(self.verdicts(&parts, state.attempts[attempt].decided).into_iter().filter_map(step));
            }
        }
        for (node, there) in state.nodes.iter().enumerate() {
            if self.ends && there.keys.lock.is_some() {
                steps.push(Step::Ends(node));
            }
            if state.losses > 0 {
                steps.extend((0..there.keys.fence).map(|left| Step::Loses(node, left)));
            }
        }
    }

    fn next_state(&self, before: &Self::State, step: Step) -> Option<Self::State> {
        let mut state = before.clone();
        match step {
            Step::Begins(attempt) => state.attempts[attempt].began_after = Some(before.winners()),
            Step::Between(attempt, node, message) => self.arrives(&mut state, attempt, node, message),
            Step::Decides(attempt, fence) => state.attempts[attempt].decided = Some(fence),
            Step::Wins(attempt, fence) => state.attempts[attempt].won = Some(fence),
            Step::Ends(node) => state.nodes[node].keys.lock = None,
            Step::Loses(node, left) => {
                state.losses -= 1;
                let node = &mut state.nodes[node];
                node.forgotten = node.forgotten.max(node.keys.fence);
                node.keys = Keys { lock: None, fence: left };
            }
        }
        if !matches!(step, Step::Loses(..)) {
            let mut both = before.nodes.iter().zip(&state.nodes);
            state.fell |= both.any(|(before, after)| after.keys.fence < before.keys.fence);
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        type Case<const S: usize, const A: usize> = fn(&Fencing<S, A>, &State<S, A>) -> bool;
        let cases: [(&'static str, Case<S, A>); 8] = [
            (UNIQUE, |_, state| state.all_pairs(|one, two| state.won(one) != state.won(two))),
            (REAL_TIME, |_, state| state.all_pairs(|one, two| state.is_in_real_time(one, two))),
            (OWN_ORDER, |_, state| state.all_pairs(|one, two| state.is_in_own_order(one, two))),
            (DURABLE, |model, state| state.losses < model.losses || model.is_durable(state)),
            (MONO, |_, state| !state.fell),
            (NO_BRIDGE, |model, state| state.losses < model.losses || !model.is_bridged(state)),
            (ONE_OWNER, |model, state| (0..A).filter(|attempt| model.owns(state, *attempt)).count() <= 1),
            (LIVE, |model, state| {
                let may_stop = model.ends || model.restores || state.winners() != 0;
                may_stop || !model.next_states(state).is_empty()
            }),
        ];
        cases.into_iter().map(|(name, condition)| Property::always(name, condition)).collect()
    }
}

impl<const S: usize, const A: usize> Fencing<S, A> {
    /// What may arrive at a node from an attempt that has begun.
    fn messages(&self, state: &State<S, A>, attempt: usize, node: usize, messages: &mut Vec<Message>) {
        let there = &state.nodes[node];
        let (part, won) = (there.parts[attempt], state.won(attempt).is_some());
        let again = part != Part::Pending;
        if !again || state.copies > 0 {
            // Who has won listens no more; until then the second answer may be the one that comes through.
            let uses: &[bool] = match part {
                Part::Pending if !won => &[true],
                Part::Granted(_) if !won => &[true, false],
                _ => &[false],
            };
            let floor = if self.clocks { there.forgotten } else { 0 };
            let acquire = |(proposal, heard)| Message::Acquire { proposal: floor + proposal, again, heard };
            let heard = |proposal: &u64| uses.iter().map(|heard| (*proposal, *heard)).collect::<Vec<_>>();
            messages.extend(self.proposals.iter().flat_map(heard).map(acquire));
        }
        if self.confirms(part, state.attempts[attempt].decided) {
            messages.push(Message::Confirm);
        }
        if state.is_superseded(attempt) && won && !there.extended[attempt] {
            messages.push(Message::Extend);
        }
        if self.restores && won && there.keys.lock.is_none() {
            messages.push(Message::Restore);
        }
    }

    fn arrives(&self, state: &mut State<S, A>, attempt: usize, node: usize, message: Message) {
        let Attempt { decided, won, .. } = state.attempts[attempt];
        let there = &mut state.nodes[node];
        match message {
            Message::Acquire { proposal, again, heard } => {
                if let Answer::Granted(fence) = self.ask(&mut there.keys, attempt, Ask::Acquire { proposal }) {
                    state.copies -= u8::from(again);
                    if heard {
                        there.hear(attempt, fence);
                    } else if !again {
                        there.parts[attempt] = Part::Refused;
                    }
                }
            }
            Message::Confirm => {
                let fence = decided.expect("what is confirmed");
                let done = self.confirm(&mut there.keys, attempt, there.parts[attempt], fence);
                there.parts[attempt] = if done && won.is_none() { Part::Confirmed } else { Part::Refused };
            }
            Message::Extend => {
                let fence = won.expect("who holds");
                there.extended[attempt] = self.extend(&mut there.keys, attempt, fence);
            }
            Message::Restore => self.restore(&mut there.keys, attempt, won.expect("who holds")),
        }
    }

    fn is_durable(&self, state: &State<S, A>) -> bool {
        let remembered = |fence| state.nodes.iter().filter(|node| node.keys.fence >= fence).count();
        state.attempts.iter().filter_map(|attempt| attempt.won).all(|fence| self.is_quorum(remembered(fence)))
    }

    /// Whether a lock was extended after somebody had won with a larger fence.
    fn is_bridged(&self, state: &State<S, A>) -> bool {
        (0..A).any(|attempt| {
            let extended: Vec<bool> = self.list(attempt).map(|node| state.nodes[node].extended[attempt]).collect();
            model::is_extended(&extended)
        })
    }

    /// Whether an attempt has won and its keys, those of late grants aside, stand on a quorum.
    fn owns(&self, state: &State<S, A>, attempt: usize) -> bool {
        let Some(fence) = state.won(attempt) else { return false };
        let own = |node: &usize| match state.nodes[*node].keys.lock {
            Some((owner, granted)) => owner == self.token(attempt) && granted <= fence,
            None => false,
        };
        self.is_quorum(self.list(attempt).filter(own).count())
    }

    /// Whether a new attempt that is alone wins with any quorum of nodes that remember these fences and hold no key.
    #[must_use]
    pub fn is_open(&self, fences: [u64; S]) -> bool {
        let mut asked = (0..1_u16 << S).filter(|asked| self.is_quorum(asked.count_ones() as usize));
        asked.all(|asked| {
            let mut nodes = fences.map(|fence| Keys { lock: None, fence });
            let mut parts = [Part::Pending; S];
            for node in (0..S).filter(|node| asked & 1 << node != 0) {
                let proposal = self.proposals[0];
                if let Answer::Granted(fence) = self.ask(&mut nodes[node], 0, Ask::Acquire { proposal }) {
                    parts[node] = Part::Granted(fence);
                }
            }
            let verdicts = self.verdicts(&parts, None);
            let mut wins = verdicts.iter().map(|verdict| match *verdict {
                Next::Nothing => false,
                Next::Win(_) => true,
                Next::Confirm(fence) => self.wins_with(fence, nodes, parts),
            });
            !verdicts.is_empty() && wins.all(|wins| wins)
        })
    }

    /// Whether it wins with this fence, once all who are asked have confirmed it.
    fn wins_with(&self, fence: u64, mut nodes: [Keys; S], mut parts: [Part; S]) -> bool {
        for node in 0..S {
            let asked = parts[node] != Part::Pending && self.confirms(parts[node], Some(fence));
            if asked && self.confirm(&mut nodes[node], 0, parts[node], fence) {
                parts[node] = Part::Confirmed;
            }
        }
        self.verdicts(&parts, Some(fence)).contains(&Next::Win(fence))
    }
}
