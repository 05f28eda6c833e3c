//! The fencing protocol: attempts that each take the lock on a quorum of nodes and come back with a fence.
//!
//! What a node does and what an attempt makes of its votes are not written here. Both are the library's own
//! ([`redlock::testing::model`]); this model says who is heard, and when. A [`Mutant`] breaks one of the rules.
//!
//! # State
//!
//! Per node and name, whose the lock key is with the fence in its value, or who shares it and with which fence that
//! began; and the fence key. Per attempt, what it knows of each node, the fence it has decided on, and the fence it has
//! won with, and what its lock counts as since: nodes that have granted or remember more count once a quorum of others
//! remembers that fence. The rest is history, for the properties alone: who had won when an attempt began, the order in which a
//! node's grants were heard, which nodes have extended a superseded lock, or were given one back, the largest fence that
//! a node has forgotten, and whether a fence ever fell. A retry is a new attempt: it has a new token.
//!
//! # Names
//!
//! Each attempt asks for some of the names ([`Fencing::names`]), and gets all of them or none. The properties compare
//! attempts that have a name in common. Keys that were granted together may end together, or one by one ([`Ends`]).
//!
//! # Sharing
//!
//! Some attempts share the lock with each other ([`Fencing::shared`]). They exclude only those that do not, and only with
//! those they compare fences, owners and extensions. In real time they are in order with each other too. A key that is
//! shared ends for one owner after the other: that all end together is those steps in a row.
//!
//! # Steps
//!
//! An attempt *begins*: its acquires are on their way. One *arrives* at a node that is free, or holds this token's key. The
//! attempt *decides* on a fence, or *wins*, by the answers of any quorum. A confirm *arrives*. When it has won, extensions
//! and restores *arrive*, and it *levels* with a node that has granted more. A key *ends*. A node *loses* its data, all of it or what it learnt last.
//!
//! # Handing a lock over
//!
//! The lock of the first attempt may be *detached*, and then attached by some at once ([`Fencing::attachments`]), each with a
//! token of its own. What the former holder has sent may arrive at any time, but for restores, whose end a detach awaits. A
//! re-key *arrives*, once or more often. An attachment *holds* the lock when a quorum has said yes to it. Or it *gives up*:
//! then it never holds the lock, its re-keys may still arrive, and so may what keys back. Extensions and restores of those
//! that hold it *arrive*, too. That one tries again after it has keyed back is another attachment, because it has another token.
//!
//! # What is left out, and why nothing is missed
//!
//! - *Time.* No clock is read. A key may end at any moment: by expiry with any clock, release, DEL or eviction. So a
//!   release needs no step of its own, and neither does a holder that believes for too long that it holds. It is one only
//!   where the subject is what it leaves behind ([`GIVEN_UP`]).
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
//! The search remembers a state by 64 bits; that two of three million states share them has odds of one in four million.
//!
//! # Liveness
//!
//! Where no key ends and nothing is restored, every step uses up a message or ends an attempt, so all paths end, and it
//! is enough that no state without a next step is without a winner ([`LIVE`]). Where keys end, attempts may take the
//! lock from each other for as long as they like, and only chance separates them; but no state is a dead end. Whatever
//! the nodes remember, a new attempt that is alone for its two rounds wins with any quorum whose keys have ended
//! ([`Fencing::is_open`]), and what others have under way is used up sometime.
//!
//! # One loss of data
//!
//! Fences are then told apart by time. That clocks differ by less than the time between the forgotten acquisition and the
//! next one means, in a model without time, that a node grants more than all that it has forgotten ([`Fencing::clocks`]).
//! [`DURABLE`], [`NO_BRIDGE`] and [`EXCLUDES`] are not promised after it: the fence key is gone, and with it what a late restore is
//! measured by.

mod rules;
mod state;
mod step;

use redlock::testing::model::{self, Answer, Ask, Keys, Next, Part};

use crate::search::{Model, Property};
use state::{Attachment, Attempt};

pub use rules::Mutant;
pub use state::{ATTACHMENTS_MOST, State};
pub use step::{Handing, Message, Step, tell};

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
/// Nobody else wins with a fence between that of a lock and what it counts as.
pub const RESERVED: &str = "reserved";
/// No lock is extended after somebody has won with a larger fence.
pub const NO_BRIDGE: &str = "no bridge";
/// At most one has its key on a quorum.
pub const ONE_OWNER: &str = "one owner";
/// Nobody wins while one with a smaller fence has its key on a quorum.
pub const EXCLUDES: &str = "excludes";
/// Where nothing more can happen, somebody has won.
pub const LIVE: &str = "live";
/// Of all attachments of a lock, one holds it at most.
pub const ONE_ATTACHED: &str = "one attached";
/// The former holder extends nothing after another holds the lock.
pub const HANDED_OVER: &str = "handed over";
/// A node that was given a lock back has none of its keys, and extends none of them.
pub const GIVEN_UP: &str = "given up";
/// Where no key ends, a node has what it granted to a winner until this one gives it back.
pub const KEPT: &str = "kept";

/// How keys end by themselves, or by what others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// They do not.
    Never,
    /// Those of one lock on one node together, as if they expired.
    Together,
    /// Each by itself, as if it was deleted.
    Apart,
}

/// What there is, and what may happen.
#[derive(Clone, Debug)]
pub struct Fencing<const S: usize, const A: usize, const K: usize = 1> {
    /// The names that each attempt asks for, by number and in order.
    pub names: [&'static [usize]; A],
    /// Which attempts share the lock with each other. They ask for one name.
    pub shared: [bool; A],
    /// What proposals come to.
    pub proposals: Vec<u64>,
    /// What fence keys may say at first.
    pub first: Vec<u64>,
    /// How keys may end.
    pub ends: Ends,
    /// Whether locks are restored.
    pub restores: bool,
    /// How many acquires arrive twice.
    pub copies: u8,
    /// How many losses of data there may be.
    pub losses: u8,
    /// Whether a node that has forgotten grants more than all that it had granted.
    pub clocks: bool,
    /// How many attach the lock of the first attempt at once, if it is detached. At most [`ATTACHMENTS_MOST`].
    pub attachments: usize,
    /// How those who have won give their locks back, if that is the subject. Nothing else makes a key anew then.
    pub gives_up: Option<Ask>,
    /// The rule that is broken.
    pub mutant: Option<Mutant>,
    /// Whether states count as one that differ by the order of their nodes. A step then tells another node than before.
    pub are_alike: bool,
}

impl<const S: usize, const A: usize, const K: usize> Default for Fencing<S, A, K> {
    /// Two proposals, all that the protocol does, and no faults but those of clocks, clients and messages.
    fn default() -> Self {
        Self {
            names: [&[0]; A],
            shared: [false; A],
            proposals: vec![1, 2],
            first: vec![0, 1],
            ends: Ends::Apart,
            restores: true,
            copies: 0,
            losses: 0,
            clocks: true,
            attachments: 0,
            gives_up: None,
            mutant: None,
            are_alike: false,
        }
    }
}

impl<const S: usize, const A: usize, const K: usize> Model for Fencing<S, A, K> {
    type State = State<S, A, K>;
    type Step = Step;

    fn starts(&self) -> Vec<Self::State> {
        let next = |lists: Vec<[[u64; K]; S]>, place: usize| {
            let with = |list: [[u64; K]; S], fence: u64| {
                let mut list = list;
                list[place / K][place % K] = fence;
                list
            };
            lists.iter().flat_map(|list| self.first.iter().map(move |fence| with(*list, *fence))).collect()
        };
        let lists = (0..S * K).fold(vec![[[0; K]; S]], next);
        // Nodes are alike: their order does not matter.
        let sorted = lists.into_iter().filter(|fences| fences.is_sorted());
        sorted.map(|fences| State::new(fences, self.copies, self.losses)).collect()
    }

    fn steps(&self, state: &Self::State, mut take: impl FnMut(Step, Self::State)) {
        for step in self.possible(state) {
            if let Some(next) = self.after(state, step) {
                take(step, next);
            }
        }
    }
}

impl<const S: usize, const A: usize, const K: usize> Fencing<S, A, K> {
    /// What may happen now, also what changes nothing.
    fn possible(&self, state: &State<S, A, K>) -> Vec<Step> {
        let mut steps = Vec::new();
        let begun = state.attempts.iter().take_while(|attempt| attempt.began_after.is_some()).count();
        if begun < A {
            steps.push(Step::Begins(begun));
        }
        let mut messages = Vec::new();
        for attempt in 0..begun {
            let ahead = if state.is_detached(attempt) { Vec::new() } else { self.ahead(state, attempt) };
            let levels = ahead.iter().filter(|level| self.is_level(state, attempt, **level));
            steps.extend(levels.map(|level| Step::Levels(attempt, *level)));
            for node in self.list(attempt) {
                self.messages(state, attempt, node, &ahead, &mut messages);
                steps.extend(messages.drain(..).map(|message| Step::Between(attempt, node, message)));
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
        self.hands_over(state, &mut steps);
        for (node, there) in state.nodes.iter().enumerate() {
            for (name, keys) in there.keys.iter().enumerate().filter(|_| self.ends != Ends::Never) {
                let owners =
                    (0..A).filter(|attempt| keys.shared.is_some_and(|period| period.has(self.token(*attempt))));
                steps.extend(owners.map(|attempt| Step::EndsFor(node, name, attempt)));
            }
            let owner = |name: usize| there.keys[name].lock.map(|(owner, _)| owner);
            let is_first = |name: usize| self.ends == Ends::Apart || (0..name).all(|other| owner(other) != owner(name));
            let ending = (0..K).filter(|name| self.ends != Ends::Never && owner(*name).is_some() && is_first(*name));
            steps.extend(ending.map(|name| Step::Ends(node, name)));
            if state.losses > 0 {
                let largest = there.keys.iter().map(|keys| keys.fence).max().unwrap_or(0);
                steps.extend((0..largest).map(|left| Step::Loses(node, left)));
            }
        }
        steps
    }

    /// Where a step leads, if it changes anything.
    fn after(&self, before: &State<S, A, K>, step: Step) -> Option<State<S, A, K>> {
        let mut state = before.clone();
        match step {
            Step::Begins(attempt) => state.attempts[attempt].began_after = Some(before.winners()),
            Step::Between(attempt, node, message) => self.arrives(&mut state, attempt, node, message),
            Step::Decides(attempt, fence) => state.attempts[attempt].decided = Some(fence),
            Step::Wins(attempt, fence) => {
                let is_held = |other: usize| self.are_rivals(attempt, other) && self.owns(before, other);
                state.overlaps |=
                    (0..A).any(|other| other != attempt && before.won(other) < Some(fence) && is_held(other));
                (state.attempts[attempt].won, state.attempts[attempt].level) = (Some(fence), Some(fence));
            }
            Step::Levels(attempt, level) => state.attempts[attempt].level = Some(level),
            Step::Detaches => state.attachments[..self.attachments].fill(Attachment::Tries),
            Step::Attaches(number) => state.attachments[number] = Attachment::Holds,
            Step::GivesUp(number) => state.attachments[number] = Attachment::GaveUp,
            Step::Handing(number, node, message) => self.hands(&mut state, number, node, message),
            Step::Ends(node, name) => {
                let keys = &mut state.nodes[node].keys;
                let owner = keys[name].lock.map(|(owner, _)| owner);
                let together = keys.iter_mut().enumerate().filter(|(other, keys)| {
                    *other == name || (self.ends == Ends::Together && keys.lock.map(|(owner, _)| owner) == owner)
                });
                together.for_each(|(_, keys)| keys.lock = None);
            }
            Step::EndsFor(node, name, attempt) => {
                let shared = &mut state.nodes[node].keys[name].shared;
                *shared = shared.and_then(|period| period.without(self.token(attempt)));
            }
            Step::Loses(node, left) => {
                state.losses -= 1;
                let node = &mut state.nodes[node];
                for keys in &mut node.keys {
                    node.forgotten = node.forgotten.max(keys.fence);
                    *keys = Keys { fence: left.min(keys.fence), ..Keys::default() };
                }
            }
        }
        if !matches!(step, Step::Loses(..)) {
            let mut both =
                before.nodes.iter().zip(&state.nodes).flat_map(|(before, after)| before.keys.iter().zip(&after.keys));
            state.fell |= both.any(|(before, after)| after.fence < before.fence);
        }
        (state != *before).then(|| {
            if self.are_alike {
                state.nodes.sort_unstable();
            }
            state
        })
    }

    /// All that is promised.
    #[must_use]
    pub fn properties(&self) -> Vec<Property<'_, Self>> {
        type Case<const S: usize, const A: usize, const K: usize> = fn(&Fencing<S, A, K>, &State<S, A, K>) -> bool;
        let cases: [(&'static str, Case<S, A, K>); 14] = [
            (UNIQUE, |model, state| model.all_rivals(state, |one, two| state.won(one) != state.won(two))),
            (REAL_TIME, |model, state| model.all_neighbours(state, |one, two| state.is_in_real_time(one, two))),
            (OWN_ORDER, |model, state| model.all_rivals(state, |one, two| state.is_in_own_order(one, two))),
            (DURABLE, |model, state| state.losses < model.losses || model.is_durable(state)),
            (MONO, |_, state| !state.fell),
            (NO_BRIDGE, |model, state| state.losses < model.losses || !model.is_bridged(state)),
            (RESERVED, |model, state| {
                let is_between = |one, two| state.won(one) < state.won(two) && state.won(two) <= state.level(one);
                let is_reserved = |one, two| !is_between(one, two) && !is_between(two, one);
                state.losses < model.losses || model.all_rivals(state, is_reserved)
            }),
            (ONE_OWNER, |model, state| {
                let owners: Vec<usize> = (0..A).filter(|attempt| model.owns(state, *attempt)).collect();
                owners.iter().all(|one| owners.iter().all(|two| one == two || !model.are_rivals(*one, *two)))
            }),
            (EXCLUDES, |model, state| state.losses < model.losses || !state.overlaps),
            (LIVE, |model, state| {
                let may_stop = model.ends != Ends::Never || model.restores || state.winners() != 0;
                may_stop || model.possible(state).into_iter().any(|step| model.after(state, step).is_some())
            }),
            (KEPT, |model, state| {
                model.ends != Ends::Never || model.losses > 0 || (0..A).all(|attempt| model.is_kept(state, attempt))
            }),
            (ONE_ATTACHED, |_, state| {
                state.attachments.iter().filter(|attachment| **attachment == Attachment::Holds).count() <= 1
            }),
            (HANDED_OVER, |model, state| {
                !model.is_quorum(state.nodes.iter().filter(|node| node.extended_late).count())
            }),
            (GIVEN_UP, |model, state| !state.revived && (0..A).all(|attempt| !model.is_left_behind(state, attempt))),
        ];
        let property =
            |(name, holds): (_, Case<S, A, K>)| -> Property<Self> { (name, Box::new(move |state| holds(self, state))) };
        cases.into_iter().map(property).collect()
    }

    /// Whether two attempts have a name in common.
    fn are_neighbours(&self, one: usize, two: usize) -> bool {
        self.names[one].iter().any(|name| self.names[two].contains(name))
    }

    /// Whether they exclude each other too.
    fn are_rivals(&self, one: usize, two: usize) -> bool {
        self.are_neighbours(one, two) && !(self.shared[one] && self.shared[two])
    }

    /// Whether this is so of every two neighbours that have won, the first of whom began first.
    fn all_neighbours(&self, state: &State<S, A, K>, holds: impl Fn(usize, usize) -> bool) -> bool {
        state.all_pairs(|one, two| !self.are_neighbours(one, two) || holds(one, two))
    }

    /// Whether this is so of every two rivals that have won, the first of whom began first.
    fn all_rivals(&self, state: &State<S, A, K>, holds: impl Fn(usize, usize) -> bool) -> bool {
        state.all_pairs(|one, two| !self.are_rivals(one, two) || holds(one, two))
    }

    /// Whether a rival has won with a larger fence.
    fn is_superseded(&self, state: &State<S, A, K>, attempt: usize) -> bool {
        (0..A).any(|other| self.are_rivals(attempt, other) && state.won(other) > state.won(attempt))
    }

    /// What may arrive at a node from an attempt that has begun, which knows that nodes are `ahead`.
    fn messages(
        &self,
        state: &State<S, A, K>,
        attempt: usize,
        node: usize,
        ahead: &[u64],
        messages: &mut Vec<Message>,
    ) {
        let there = &state.nodes[node];
        let (part, won) = (there.parts[attempt], state.won(attempt).is_some());
        let again = part != Part::Pending;
        // A reader is detached only if no acquire of it can arrive any more: it would be one again.
        let may_arrive = !(self.shared[attempt] && state.is_detached(attempt));
        if may_arrive && (!again || state.copies > 0) {
            // Who has won listens no more; until then the second answer may be the one that comes through.
            let uses: &[bool] = match part {
                Part::Pending if !won => &[true],
                Part::Granted(_) if !won => &[true, false],
                _ => &[false],
            };
            let floor = if self.clocks { there.forgotten } else { 0 };
            let acquire = |(proposal, heard)| Message::Acquire { proposal: floor + proposal, again, heard };
            let heard = |proposal: &u64| {
                let proposal = *proposal;
                uses.iter().map(move |heard| (proposal, *heard))
            };
            messages.extend(self.proposals.iter().flat_map(heard).map(acquire));
        }
        if self.confirms(part, state.attempts[attempt].decided) {
            messages.push(Message::Confirm);
        }
        let is_detached = state.is_detached(attempt);
        messages
            .extend(ahead.iter().filter(|floor| there.raised[attempt] < **floor).map(|floor| Message::Raise(*floor)));
        let given_up = there.given_up[attempt];
        let is_over = (given_up || self.is_superseded(state, attempt)) && !there.extended[attempt]
            || state.is_handed_over(attempt) && !there.extended_late;
        if won && is_over {
            messages.push(Message::Extend);
        }
        let is_absent = |name: &&usize| match there.keys[**name] {
            Keys { lock: None, shared: None, .. } => true,
            Keys { shared: Some(period), .. } => self.shared[attempt] && !period.has(self.token(attempt)),
            Keys { lock: Some(_), .. } => false,
        };
        if self.restores && won && !is_detached && self.names[attempt].iter().any(|name| is_absent(&name)) {
            messages.push(Message::Restore);
        }
        if self.gives_up.is_some() && won && !given_up {
            messages.push(Message::GiveUp);
        }
    }

    fn arrives(&self, state: &mut State<S, A, K>, attempt: usize, node: usize, message: Message) {
        let Attempt { decided, won, level, .. } = state.attempts[attempt];
        let is_superseded = self.is_superseded(state, attempt);
        let is_handed_over = state.is_handed_over(attempt);
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
                let extended = self.extend(&mut there.keys, attempt, level.expect("who holds"), None);
                there.extended[attempt] |= extended && (is_superseded || there.given_up[attempt]);
                there.extended_late |= extended && is_handed_over;
                state.revived |= there.given_up[attempt] && extended;
            }
            Message::Raise(floor) => {
                if self.extend(&mut there.keys, attempt, level.expect("who holds"), Some(floor)) {
                    there.raised[attempt] = floor;
                    there.extended[attempt] |= is_superseded || there.given_up[attempt];
                    state.revived |= there.given_up[attempt];
                }
            }
            Message::Restore => {
                let (fence, level) = won.zip(level).expect("who holds");
                self.restore(&mut there.keys, attempt, fence, level);
            }
            Message::GiveUp => {
                let ask = self.gives_up.expect("that is the subject");
                there.given_up[attempt] = self.ask(&mut there.keys, attempt, ask) == Answer::Done;
            }
        }
    }

    /// What may happen while the lock of the first attempt is handed over.
    fn hands_over(&self, state: &State<S, A, K>, steps: &mut Vec<Step>) {
        if self.attachments > 0 && state.won(0).is_some() && !state.is_detached(0) {
            steps.push(Step::Detaches);
        }
        for (number, attachment) in state.attachments[..self.attachments].iter().enumerate() {
            let mut arrives = |message| steps.extend((0..S).map(|node| Step::Handing(number, node, message)));
            match attachment {
                Attachment::None => {}
                Attachment::Tries => {
                    arrives(Handing::Rekey);
                    if self.is_quorum(state.nodes.iter().filter(|node| node.rekeyed[number]).count()) {
                        steps.push(Step::Attaches(number));
                    }
                    steps.push(Step::GivesUp(number));
                }
                Attachment::GaveUp => {
                    arrives(Handing::Rekey);
                    arrives(Handing::KeyBack);
                }
                Attachment::Holds => {
                    arrives(Handing::Rekey);
                    arrives(Handing::Extend);
                    if self.restores {
                        arrives(Handing::Restore);
                    }
                }
            }
        }
    }

    fn hands(&self, state: &mut State<S, A, K>, number: usize, node: usize, message: Handing) {
        let Attempt { won, level, .. } = state.attempts[0];
        let (fence, level) = won.zip(level).expect("who was detached had won");
        let (former, fresh) = (self.token(0), rules::token_of(number));
        let is_superseded = self.is_superseded(state, 0);
        let tries = state.attachments[number] == Attachment::Tries;
        let there = &mut state.nodes[node];
        let mut ask = |owner, ask| self.ask_as(&mut there.keys, 0, owner, ask) == Answer::Done;
        let kept = match message {
            Handing::Rekey => {
                let rekeyed = ask(fresh, Ask::Rekey { former, fence: level });
                there.rekeyed[number] |= rekeyed && tries;
                rekeyed && tries
            }
            Handing::KeyBack => {
                ask(former, Ask::Rekey { former: fresh, fence: level });
                false
            }
            Handing::Extend => ask(fresh, Ask::Extend { fence: level, floor: None }),
            Handing::Restore => {
                ask(fresh, Ask::Restore { fence, level });
                false
            }
        };
        there.extended_anew[number] |= kept && is_superseded;
    }

    fn is_durable(&self, state: &State<S, A, K>) -> bool {
        let remembered = |name: usize, fence| state.nodes.iter().filter(|node| node.keys[name].fence >= fence).count();
        (0..A).all(|attempt| {
            let is_remembered = |fence| self.names[attempt].iter().all(|name| self.is_quorum(remembered(*name, fence)));
            state.won(attempt).is_none_or(is_remembered)
        })
    }

    /// Whether a lock was extended after somebody had won with a larger fence.
    fn is_bridged(&self, state: &State<S, A, K>) -> bool {
        // Almost always no node has, and then nobody need be asked what a quorum is.
        let is_quorum = |extended: &[bool]| extended.contains(&true) && model::is_extended(extended);
        (0..A).any(|attempt| is_quorum(&state.nodes.each_ref().map(|node| node.extended[attempt])[self.list(attempt)]))
            || (0..ATTACHMENTS_MOST)
                .any(|number| is_quorum(&state.nodes.each_ref().map(|node| node.extended_anew[number])))
    }

    /// Whether an attempt has won and its keys, those of late grants aside, stand on a quorum.
    fn owns(&self, state: &State<S, A, K>, attempt: usize) -> bool {
        let Some(fence) = state.level(attempt) else { return false };
        let own = |keys: &Keys, token| match (keys.lock, keys.shared) {
            (Some((owner, granted)), _) => owner == token && granted <= fence,
            (None, Some(period)) => period.has(token) && period.fence <= fence,
            (None, None) => false,
        };
        let all =
            |node: usize, token| self.names[attempt].iter().all(|name| own(&state.nodes[node].keys[*name], token));
        self.tokens(attempt).any(|token| self.is_quorum(self.list(attempt).filter(|node| all(*node, token)).count()))
    }

    /// Whether a node that was given the lock back still has a key of it.
    fn is_left_behind(&self, state: &State<S, A, K>, attempt: usize) -> bool {
        let is_own = |keys: &Keys| self.has_key(keys, attempt);
        state.nodes.iter().any(|node| node.given_up[attempt] && node.keys.iter().any(is_own))
    }

    /// Whether an attempt that has won has its keys wherever it was granted them and has not given them back.
    fn is_kept(&self, state: &State<S, A, K>, attempt: usize) -> bool {
        let is_granted = |part: Part| matches!(part, Part::Granted(_) | Part::Confirmed);
        let mut granted = state.nodes.iter().filter(|node| is_granted(node.parts[attempt]) && !node.given_up[attempt]);
        let has_keys = |keys: &[Keys; K]| self.names[attempt].iter().all(|name| self.has_key(&keys[*name], attempt));
        state.won(attempt).is_none() || granted.all(|node| has_keys(&node.keys))
    }

    /// Whether a new attempt that is alone wins with any quorum of nodes that remember these fences and hold no key.
    #[must_use]
    pub fn is_open(&self, fences: [u64; S]) -> bool {
        let mut asked = (0..1_u16 << S).filter(|asked| self.is_quorum(asked.count_ones() as usize));
        asked.all(|asked| {
            let mut nodes = fences.map(|fence| [Keys { fence, ..Keys::default() }; K]);
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
    fn wins_with(&self, fence: u64, mut nodes: [[Keys; K]; S], mut parts: [Part; S]) -> bool {
        for node in 0..S {
            let asked = parts[node] != Part::Pending && self.confirms(parts[node], Some(fence));
            if asked && self.confirm(&mut nodes[node], 0, parts[node], fence) {
                parts[node] = Part::Confirmed;
            }
        }
        self.verdicts(&parts, Some(fence)).contains(&Next::Win(fence))
    }
}
