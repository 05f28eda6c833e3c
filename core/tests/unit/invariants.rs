//! The fence's guarantees, kept by scripts and verdicts together on three nodes. Attempts are driven message by
//! message. The test case says which message is executed, delayed, doubled or lost, when a key goes and what another
//! client leaves in its place. Time plays no part: a key may go at any moment, and a client that has won believes so
//! for ever.
//!
//! Scripts are atomic and touch the keys of one name only, so three names on one server are three nodes. Each step
//! checks what a node must do, and the end checks what the clients see.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use harness::Program;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Ballots, take};
use crate::node::testing::{InMemory, OnServer, Seen, TOLERANCE, Thing, World};
use crate::protocol::name::Name;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, NodeMask, Verdict, Vote};
use crate::protocol::request::{Action, Keys, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::random::Random;
use crate::transport::failure::Failure;

const NODES: usize = 3;
const ATTEMPTS: usize = 3;

/// A node at this fence grants no more.
const EXHAUSTED: u64 = 9_007_199_254_740_990;

/// So wide that no proposal is clamped: the proof takes proposals as they come.
const NO_CLAMP: Duration = Duration::from_secs(200 * 365 * 86_400);

const FENCE_TTL: Duration = Duration::from_secs(50_000);

const LABELS: [&str; ATTEMPTS] = ["", "a:b", "büro"];

/// One event of a test case. Numbers choose among the items there are; without any, it has no effect.
#[derive(Clone, Debug)]
enum Step {
    /// An attempt asks all nodes.
    Begin {
        attempt: usize,
        proposal: u64,
        counts: u16,
        unresponsive: u16,
    },
    /// A quarantine begins or ends.
    Recount {
        attempt: usize,
        counts: u16,
    },
    /// A request is executed and its reply arrives.
    Exchange(usize),
    /// A request is executed; its reply is on the way.
    Execute(usize),
    /// A request is executed, and is still on the way.
    Double(usize),
    LoseRequest(usize),
    Deliver(usize),
    /// The client sees its connection end instead of a reply.
    LoseReply(usize),
    /// Time is up for an attempt.
    GiveUp(usize),
    Release(usize),
    Extend {
        attempt: usize,
        ttl: Duration,
    },
    Restore {
        attempt: usize,
        node: usize,
    },
    /// A lock key expires or is deleted.
    Drop(usize),
    /// Another client takes a lock key.
    Foreign(usize, Thing),
    /// A fence key becomes unusable.
    Spoil(usize, Thing),
}

/// Draws from one number, so that a case is a list of numbers: proptest makes those a hundred times faster than steps.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // A step of splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap()
    }

    fn any(&mut self) -> usize {
        self.index(1_000)
    }

    fn attempt(&mut self) -> usize {
        self.index(ATTEMPTS)
    }

    fn node(&mut self) -> usize {
        self.index(NODES)
    }

    /// Returns mostly `usual`.
    fn mask(&mut self, usual: u16) -> u16 {
        if self.roll(6) > 0 { usual } else { u16::try_from(self.roll(8)).unwrap() }
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_secs([1_000, 10_000, 30_000][self.index(3)])
    }

    fn thing(&mut self, texts: [&str; 4]) -> Thing {
        match self.index(6) {
            4 => Thing::List,
            5 => Thing::Hash,
            text => Thing::Text(texts[text].into()),
        }
    }
}

impl Step {
    fn of(number: u32) -> Self {
        let mut dice = Dice(number.into());
        match dice.roll(63) {
            0..22 => Self::Exchange(dice.any()),
            22..28 => Self::Begin {
                attempt: dice.attempt(),
                proposal: 1 + dice.roll(3),
                counts: dice.mask(7),
                unresponsive: dice.mask(0),
            },
            28 => Self::Recount { attempt: dice.attempt(), counts: dice.mask(7) },
            29..33 => Self::Execute(dice.any()),
            33..35 => Self::Double(dice.any()),
            35 => Self::LoseRequest(dice.any()),
            36..40 => Self::Deliver(dice.any()),
            40 => Self::LoseReply(dice.any()),
            41 => Self::GiveUp(dice.attempt()),
            42..44 => Self::Release(dice.attempt()),
            44..47 => Self::Extend { attempt: dice.attempt(), ttl: dice.ttl() },
            47..50 => Self::Restore { attempt: dice.attempt(), node: dice.node() },
            50..60 => Self::Drop(dice.node()),
            60 | 61 => {
                let texts = ["", "foreign", "ffffffffffffffffffffffffffffffff:1", "ffffffffffffffffffffffffffffffff"];
                Self::Foreign(dice.node(), dice.thing(texts))
            }
            _ => Self::Spoil(dice.node(), dice.thing(["odd", "", "9007199254740990", "99999999999999999999"])),
        }
    }
}

fn first_fences() -> impl Strategy<Value = [Option<u64>; NODES]> {
    let first = prop_oneof![6 => (0_u64..4).prop_map(Some), 2 => Just(None), 1 => Just(Some(EXHAUSTED - 1))];
    [first.clone(), first.clone(), first]
}

/// A request on its way. All copies of it share `question`, and only the first reply to one question is taken.
#[derive(Clone, Debug)]
struct Message {
    attempt: usize,
    node: usize,
    action: Action,
    question: usize,
    /// The extension round it belongs to.
    round: Option<usize>,
}

/// One attempt and its client's knowledge.
struct Attempt {
    token: Token,
    ballots: Ballots,
    highest: u64,
    counts: NodeMask,
    unresponsive: NodeMask,
    decided: Option<u64>,
    /// Each node's grant, as far as the client knows.
    granted: [Option<u64>; NODES],
    /// When it began; `None` before.
    began: Option<usize>,
    over: bool,
    won: Option<Won>,
}

/// A success: its fence, what it counts as since, and when each node of its quorum had it.
#[derive(Clone, Debug)]
struct Won {
    fence: u64,
    level: u64,
    at: usize,
    by: [Option<usize>; NODES],
}

struct ExtensionRound {
    attempt: usize,
    started: usize,
    votes: [KeyVote; NODES],
    raised: usize,
}

/// A node's action for an attempt, on which the order of owners depends.
#[derive(Debug)]
struct Event {
    at: usize,
    node: usize,
    attempt: usize,
    what: Done,
}

#[derive(Debug, PartialEq, Eq)]
enum Done {
    Granted(u64),
    Confirmed(u64),
    Extended,
    Restored,
}

#[derive(Clone, Debug)]
struct Look {
    lock: Option<Seen>,
    fence: Option<Seen>,
}

impl Look {
    /// Returns the fence key's number: 0 without a key, `None` if it is not one or too large.
    fn fence(&self) -> Option<u64> {
        let Some(seen) = &self.fence else { return Some(0) };
        std::str::from_utf8(seen.text()?).ok()?.parse().ok()
    }

    fn lock_is(&self, value: &[u8]) -> bool {
        self.lock.as_ref().and_then(Seen::text) == Some(value)
    }

    /// Returns whether this token has the lock.
    fn lock_of(&self, token: &Token) -> bool {
        let Some(value) = self.lock.as_ref().and_then(Seen::text) else { return false };
        value.strip_prefix(token.as_bytes()).is_some_and(|rest| rest.first() == Some(&b':'))
    }
}

fn same(before: Option<&Seen>, after: Option<&Seen>) -> bool {
    before.map(|seen| &seen.content) == after.map(|seen| &seen.content)
}

type Checked = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Three nodes, the clients and the network between them.
struct Run<'a> {
    world: &'a mut dyn World,
    keys: [Arc<Keys>; NODES],
    looks: [Look; NODES],
    attempts: [Attempt; ATTEMPTS],
    rounds: Vec<ExtensionRound>,
    requests: Vec<Message>,
    replies: Vec<(Message, Result<Reply, Failure>)>,
    answered: Vec<bool>,
    history: Vec<Event>,
    now: usize,
}

impl<'a> Run<'a> {
    fn new(world: &'a mut dyn World, first: [Option<u64>; NODES]) -> Self {
        world.clear();
        let keys = ["one", "two", "three"].map(|name| Keys::of(&Name::parse(name.as_bytes()).unwrap()));
        for (keys, fence) in keys.iter().zip(first) {
            if let Some(fence) = fence {
                world.put(&keys.fence, &Thing::Text(fence.to_string().into()), Some(FENCE_TTL));
            }
        }
        let attempt = || Attempt {
            token: Token::fresh(&Random::System),
            ballots: Ballots::new(NODES),
            highest: 0,
            counts: NodeMask::NONE,
            unresponsive: NodeMask::NONE,
            decided: None,
            granted: [None; NODES],
            began: None,
            over: false,
            won: None,
        };
        let looks = std::array::from_fn(|_| Look { lock: None, fence: None });
        let mut run = Self {
            world,
            keys,
            looks,
            attempts: std::array::from_fn(|_| attempt()),
            rounds: Vec::new(),
            requests: Vec::new(),
            replies: Vec::new(),
            answered: Vec::new(),
            history: Vec::new(),
            now: 0,
        };
        for node in 0..NODES {
            run.look(node);
        }
        run
    }

    fn look(&mut self, node: usize) {
        let keys = &self.keys[node];
        self.looks[node] = Look { lock: self.world.look(&keys.lock), fence: self.world.look(&keys.fence) };
    }

    fn step(&mut self, step: &Step) -> Checked {
        self.now += 1;
        match step {
            Step::Begin { attempt, proposal, counts, unresponsive } => {
                self.begin(*attempt, *proposal, NodeMask::from_bits(*counts), NodeMask::from_bits(*unresponsive));
            }
            Step::Recount { attempt, counts } => self.attempts[*attempt].counts = NodeMask::from_bits(*counts),
            Step::Exchange(number) => {
                if let Some(message) = pick(&mut self.requests, *number) {
                    let reply = self.execute(&message)?;
                    self.deliver(&message, reply)?;
                }
            }
            Step::Execute(number) => {
                if let Some(message) = pick(&mut self.requests, *number) {
                    let reply = self.execute(&message)?;
                    self.replies.push((message, reply));
                }
            }
            Step::Double(number) => {
                if let Some(message) = pick(&mut self.requests, *number) {
                    let reply = self.execute(&message)?;
                    self.requests.push(message.clone());
                    self.replies.push((message, reply));
                }
            }
            Step::LoseRequest(number) => drop(pick(&mut self.requests, *number)),
            Step::Deliver(number) => {
                if let Some((message, reply)) = pick(&mut self.replies, *number) {
                    self.deliver(&message, reply)?;
                }
            }
            Step::LoseReply(number) => {
                if let Some((message, _)) = pick(&mut self.replies, *number) {
                    self.deliver(&message, Err(Failure::Closed))?;
                }
            }
            Step::GiveUp(attempt) => {
                if self.attempts[*attempt].began.is_some() && !self.attempts[*attempt].over {
                    self.lose(*attempt);
                }
            }
            Step::Release(attempt) => {
                if let Some(Won { fence, .. }) = self.attempts[*attempt].won {
                    // Some of the nodes have granted another fence.
                    let granted = Some((fence, LABELS[*attempt].into()));
                    self.send_all(*attempt, &Action::Release { asks: true, granted }, None);
                }
            }
            Step::Extend { attempt, ttl } => self.extend(*attempt, *ttl),
            Step::Restore { attempt, node } => self.restore(*attempt, *node),
            Step::Drop(node) => {
                self.world.delete(&self.keys[*node].lock);
                self.look(*node);
            }
            Step::Foreign(node, thing) => {
                self.world.put(&self.keys[*node].lock, thing, None);
                self.look(*node);
            }
            Step::Spoil(node, thing) => {
                self.world.put(&self.keys[*node].fence, thing, None);
                self.look(*node);
            }
        }
        Ok(())
    }

    fn send(&mut self, attempt: usize, node: usize, action: Action, round: Option<usize>) {
        let question = self.answered.len();
        self.answered.push(false);
        self.requests.push(Message { attempt, node, action, question, round });
    }

    fn send_all(&mut self, attempt: usize, action: &Action, round: Option<usize>) {
        for node in 0..NODES {
            self.send(attempt, node, action.clone(), round);
        }
    }

    fn begin(&mut self, attempt: usize, proposal: u64, counts: NodeMask, unresponsive: NodeMask) {
        let client = &mut self.attempts[attempt];
        if client.began.is_some() {
            return;
        }
        (client.began, client.counts, client.unresponsive) = (Some(self.now), counts, unresponsive);
        let ttl = Duration::from_secs(10_000);
        let label = LABELS[attempt].into();
        self.send_all(
            attempt,
            &Action::Acquire { ttl, proposal, slack: NO_CLAMP, fence_ttl: FENCE_TTL, label, wants: None },
            None,
        );
    }

    fn lose(&mut self, attempt: usize) {
        self.attempts[attempt].over = true;
        self.send_all(attempt, &Action::Release { asks: false, granted: None }, None);
    }

    fn extend(&mut self, attempt: usize, ttl: Duration) {
        let Attempt { won: Some(won), highest, .. } = &self.attempts[attempt] else { return };
        let floor = (*highest > won.level).then_some(*highest);
        let extend = Action::Extend { ttl, fence: won.level, fence_ttl: FENCE_TTL, floor };
        let round = self.rounds.len();
        self.rounds.push(ExtensionRound { attempt, started: self.now, votes: [KeyVote::Pending; NODES], raised: 0 });
        self.send_all(attempt, &extend, Some(round));
    }

    fn restore(&mut self, attempt: usize, node: usize) {
        let Some(won) = &self.attempts[attempt].won else { return };
        let Won { fence, level, .. } = *won;
        let label = LABELS[attempt].into();
        let ttl = Duration::from_secs(10_000);
        self.send(attempt, node, Action::Restore { ttl, fence, level, fence_ttl: FENCE_TTL, label }, None);
    }

    /// Has a node execute a request, and checks the node.
    fn execute(&mut self, message: &Message) -> Result<Result<Reply, Failure>, String> {
        let (attempt, node) = (message.attempt, message.node);
        let token = self.attempts[attempt].token;
        let request = Request { keys: Arc::clone(&self.keys[node]), token, action: message.action.clone() };
        let reply = self.world.ask(&request);
        let before = self.looks[node].clone();
        self.look(node);
        let after = &self.looks[node];
        check_node(&request, &reply, &before, after)
            .map_err(|why| format!("{why}: {reply:?}, {before:?}, {after:?}"))?;
        let what = match (&reply, &message.action) {
            (Ok(Reply::Granted(fence)), _) => Done::Granted(*fence),
            (Ok(Reply::Confirmed), Action::Confirm { fence, .. }) => Done::Confirmed(*fence),
            (Ok(Reply::Extended | Reply::Raised), _) => Done::Extended,
            (Ok(Reply::Restored), _) => Done::Restored,
            _ => return Ok(reply),
        };
        self.history.push(Event { at: self.now, node, attempt, what });
        Ok(reply)
    }

    /// Gives a reply to the client that asked.
    fn deliver(&mut self, message: &Message, reply: Result<Reply, Failure>) -> Checked {
        if std::mem::replace(&mut self.answered[message.question], true) {
            return Ok(());
        }
        let client = &mut self.attempts[message.attempt];
        match message.action {
            Action::Acquire { .. } | Action::Confirm { .. } if !client.over => {
                if let Ok(Reply::Granted(fence) | Reply::Held { ours: Some(fence), .. }) = reply {
                    client.granted[message.node] = Some(fence);
                }
                take(&mut client.ballots, message.node, reply, &mut client.highest);
                self.judge(message.attempt)
            }
            Action::Acquire { .. } | Action::Restore { .. } => {
                // A straggler, or a node that remembers more.
                if let Ok(Reply::Granted(fence) | Reply::Ahead(fence)) = reply {
                    client.highest = client.highest.max(fence);
                }
                Ok(())
            }
            Action::Extend { floor, .. } => {
                let round = &mut self.rounds[message.round.expect("every extend is of a round")];
                round.raised += usize::from(reply == Ok(Reply::Raised));
                if let (Some(won), Some(floor)) = (&mut client.won, floor)
                    && round.raised >= quorum::quorum(NODES)
                {
                    won.level = won.level.max(floor);
                }
                round.votes[message.node] = match reply {
                    Ok(Reply::Extended | Reply::Raised) => KeyVote::Ours,
                    Ok(Reply::Absent) => KeyVote::Absent,
                    Ok(Reply::Foreign(_)) => KeyVote::Foreign,
                    Ok(Reply::Ahead(fence)) => {
                        client.highest = client.highest.max(fence);
                        KeyVote::Ahead
                    }
                    _ => KeyVote::Failed,
                };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Continues an attempt after a vote.
    fn judge(&mut self, attempt: usize) -> Checked {
        let client = &mut self.attempts[attempt];
        match quorum::attempt(&client.ballots.votes, client.decided, client.counts, client.unresponsive) {
            Verdict::Won(fence) => return self.win(attempt, fence),
            Verdict::Lost => {
                self.lose(attempt);
                return Ok(());
            }
            Verdict::Confirm(fence) => client.decided = Some(fence),
            Verdict::Open => {}
        }
        let Some(fence) = client.decided else { return Ok(()) };
        for node in 0..NODES {
            let client = &mut self.attempts[attempt];
            let Vote::Granted(granted) = client.ballots.votes[node] else { continue };
            if granted < fence && client.counts.contains(node) {
                client.ballots.votes[node] = Vote::Confirming(granted);
                let label = LABELS[attempt].into();
                self.send(attempt, node, Action::Confirm { granted, fence, fence_ttl: FENCE_TTL, label }, None);
            }
        }
        Ok(())
    }

    fn win(&mut self, attempt: usize, fence: u64) -> Checked {
        let now = self.now;
        let client = &mut self.attempts[attempt];
        let mut by = [None; NODES];
        for (node, vote) in client.ballots.votes.iter().enumerate() {
            let what = match vote {
                Vote::Confirmed => Done::Confirmed(fence),
                Vote::Granted(granted) if *granted == fence => Done::Granted(fence),
                _ => continue,
            };
            let done = |event: &&Event| (event.node, event.attempt) == (node, attempt) && event.what == what;
            by[node] = self.history.iter().find(done).map(|event| event.at).filter(|_| client.counts.contains(node));
        }
        client.over = true;
        client.won = Some(Won { fence, level: fence, at: now, by });
        let knowing = (0..NODES).filter(|node| self.looks[*node].fence().is_none_or(|last| last >= fence)).count();
        ensure(by.iter().flatten().count() >= quorum::quorum(NODES), || {
            format!("attempt {attempt} won {fence} without a quorum that had it: {by:?}")
        })?;
        ensure(knowing >= quorum::quorum(NODES), || format!("{knowing} nodes know of the fence {fence} that was won"))
    }

    fn grant(&self, attempt: usize, node: usize) -> Option<usize> {
        let granted = Done::Granted(self.attempts[attempt].granted[node]?);
        let is_it = |event: &Event| (event.node, event.attempt) == (node, attempt) && event.what == granted;
        self.history.iter().position(is_it)
    }

    /// Checks what clients and stores see of won attempts.
    fn check(&self) -> Checked {
        for (a, one) in self.attempts.iter().enumerate() {
            let Some(won) = &one.won else { continue };
            for (b, other) in self.attempts.iter().enumerate() {
                let Some(later) = &other.won else { continue };
                if a == b {
                    continue;
                }
                ensure(won.fence != later.fence, || format!("{a} and {b} won the same fence {}", won.fence))?;
                if other.began > Some(won.at) {
                    let (one, two) = (won.fence, later.fence);
                    ensure(one < two, || format!("{a} won {one} before {b} began, and {b} won {two}"))?;
                }
                for node in 0..NODES {
                    if won.by[node].is_some() && later.by[node].is_some() {
                        let in_order = self.grant(a, node) < self.grant(b, node);
                        ensure(in_order == (won.fence < later.fence), || {
                            format!(
                                "{a} and {b} own node {node} in another order than their fences: {:?}",
                                self.history
                            )
                        })?;
                    }
                }
                if later.fence > won.fence {
                    self.check_bridge(a, b, later)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that no node of a later owner's success takes the earlier owner back.
    fn check_bridge(&self, earlier: usize, later: usize, won: &Won) -> Checked {
        for event in self.history.iter().filter(|event| event.attempt == earlier) {
            let bridged = won.by[event.node].is_some_and(|at| at < event.at);
            ensure(!(bridged && matches!(event.what, Done::Extended | Done::Restored)), || {
                format!("{earlier} was taken back after {later} had won: {event:?}, {won:?}")
            })?;
        }
        for round in self.rounds.iter().filter(|round| round.attempt == earlier && round.started >= won.at) {
            ensure(quorum::keys(&round.votes, NodeMask::NONE) != KeyVerdict::Carried, || {
                format!("{earlier} was extended by a quorum after {later} had won: {:?}", round.votes)
            })?;
        }
        Ok(())
    }
}

fn pick<T>(items: &mut Vec<T>, number: usize) -> Option<T> {
    if items.is_empty() { None } else { Some(items.remove(number % items.len())) }
}

/// Checks what each script does to one node.
fn check_node(request: &Request, reply: &Result<Reply, Failure>, before: &Look, after: &Look) -> Checked {
    let says = |what: &str| format!("{what} by {:?}", request.action);
    let token = &request.token;
    let lock_kept = same(before.lock.as_ref(), after.lock.as_ref());
    let fence_kept = same(before.fence.as_ref(), after.fence.as_ref());
    let fence_grew =
        before.fence().is_some_and(|last| after.fence.is_some() && after.fence().is_none_or(|f| f >= last));
    ensure(fence_kept || fence_grew, || says("the fence was lowered, or overwritten where it cannot be read"))?;
    match (&request.action, reply) {
        (Action::Acquire { label, .. }, Ok(Reply::Granted(fence))) => {
            ensure(before.lock.is_none(), || says("a lock was taken over"))?;
            ensure(before.fence().is_some_and(|last| *fence > last && last < EXHAUSTED), || {
                says("no larger fence was granted")
            })?;
            ensure(after.lock_is(&token.value(*fence, label)), || says("another value was left"))?;
            ensure(remembers(after, *fence), || says("the fence granted was not remembered"))
        }
        (Action::Confirm { granted, fence, label, .. }, Ok(Reply::Confirmed)) => {
            ensure(before.lock_is(&token.value(*granted, label)), || says("a grant that is gone was confirmed"))?;
            ensure(lock_kept, || says("the lock was changed"))?;
            ensure(after.fence().is_none_or(|last| last >= *fence), || says("the fence was not remembered"))
        }
        (Action::Extend { ttl, fence, floor, .. }, reply) => {
            ensure(lock_kept && (fence_kept || floor.is_some_and(|floor| remembers(after, floor))), || {
                says("something was changed")
            })?;
            let left = |look: &Look| look.lock.as_ref().and_then(|seen| seen.left);
            if let (Some(was), Some(is)) = (left(before), left(after)) {
                ensure(is + TOLERANCE >= was, || says("a ttl was shortened"))?;
            }
            if *reply == Ok(Reply::Raised) {
                ensure(after.fence().is_none_or(|last| floor.is_some_and(|floor| last >= floor)), || {
                    says("the larger fence was not remembered")
                })?;
            }
            if matches!(reply, Ok(Reply::Extended | Reply::Raised)) {
                ensure(before.lock_of(token), || says("another's lock was extended"))?;
                ensure(granted(before).is_some_and(|granted| granted <= *fence), || says("a late grant was extended"))?;
                ensure(left(after).is_none_or(|is| is + TOLERANCE >= *ttl), || says("nothing was extended"))?;
            }
            Ok(())
        }
        (Action::Release { .. }, reply) => {
            let mine = before.lock_of(token);
            ensure(mine == (matches!(reply, Ok(Reply::Deleted { .. }))), || says("a wrong answer was given"))?;
            ensure(if mine { after.lock.is_none() } else { lock_kept }, || {
                says("the wrong lock was deleted, or none")
            })?;
            ensure(fence_kept, || says("the fence was changed"))
        }
        (Action::Restore { fence, level, label, .. }, Ok(Reply::Restored)) => {
            ensure(before.lock.is_none(), || says("a lock was taken over"))?;
            ensure(before.fence().is_some_and(|last| last <= *level), || says("a later owner was passed over"))?;
            ensure(after.lock_is(&token.value(*fence, label)), || says("another value was left"))?;
            ensure(remembers(after, *level), || says("the fence was not remembered"))
        }
        _ => ensure(lock_kept && fence_kept, || says("something was changed by a refusal")),
    }
}

fn remembers(look: &Look, fence: u64) -> bool {
    look.fence.as_ref().and_then(Seen::text) == Some(fence.to_string().as_bytes())
}

/// Returns the fence in a lock's value.
fn granted(look: &Look) -> Option<u64> {
    let value = std::str::from_utf8(look.lock.as_ref()?.text()?).ok()?;
    value.split(':').nth(1)?.parse().ok()
}

fn invariants_hold(world: &mut dyn World, cases: u32) {
    let world = RefCell::new(world);
    let mut runner = TestRunner::new(Config { cases, ..Config::with_source_file(file!()) });
    let result = runner.run(&(first_fences(), vec(any::<u32>(), 1..=90)), |(first, numbers)| {
        let mut world = world.borrow_mut();
        let mut run = Run::new(&mut **world, first);
        let steps: Vec<Step> = numbers.into_iter().map(Step::of).collect();
        let result = steps.iter().try_for_each(|step| run.step(step)).and_then(|()| run.check());
        result.map_err(|why| TestCaseError::fail(format!("{why}\nsteps: {steps:#?}")))
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn invariants_hold_in_memory() {
    invariants_hold(&mut InMemory::new(), 3_000);
}

#[test]
fn invariants_hold_on_a_server() {
    invariants_hold(&mut OnServer::start(Program::default()), 150);
}

#[test]
fn invariants_hold_on_the_systems_server() {
    if let Some(program) = Program::system().filter(|program| *program != Program::default()) {
        invariants_hold(&mut OnServer::start(program), 150);
    }
}

/// Runs a test case on new nodes with these fences, in memory and on a server.
fn story(first: [u64; NODES], publish: impl Fn(&mut Run<'_>)) {
    let mut worlds: [Box<dyn World>; 2] = [Box::new(InMemory::new()), Box::new(OnServer::start(Program::default()))];
    for world in &mut worlds {
        let mut run = Run::new(&mut **world, first.map(Some));
        publish(&mut run);
        run.check().unwrap();
    }
}

const A: usize = 0;
const B: usize = 1;

impl Run<'_> {
    fn asks(&mut self, attempt: usize, proposal: u64) {
        self.step(&Step::Begin { attempt, proposal, counts: 7, unresponsive: 0 }).unwrap();
    }

    /// Executes the oldest request of an attempt to a node and delivers its reply.
    fn exchanged(&mut self, attempt: usize, node: usize) {
        let oldest = self.requests.iter().position(|message| (message.attempt, message.node) == (attempt, node));
        self.step(&Step::Exchange(oldest.expect("a request is on its way"))).unwrap();
    }

    /// Does the same as [`Run::exchanged`], and repeats the request.
    fn doubled(&mut self, attempt: usize, node: usize) {
        let oldest = self.requests.iter().position(|message| (message.attempt, message.node) == (attempt, node));
        self.step(&Step::Double(oldest.expect("a request is on its way"))).unwrap();
        self.step(&Step::Deliver(self.replies.len() - 1)).unwrap();
    }

    fn dropped(&mut self, node: usize) {
        self.step(&Step::Drop(node)).unwrap();
    }

    fn fence(&self, attempt: usize) -> Option<u64> {
        self.attempts[attempt].won.as_ref().map(|won| won.fence)
    }
}

/// Without the comparison in confirm, both win 2.
#[test]
fn a_late_confirm_does_not_reach_another_owners_node() {
    story([0, 1, 1], |run| {
        run.asks(A, 1);
        run.exchanged(A, 0);
        run.dropped(0);
        run.exchanged(A, 1);
        run.asks(B, 2);
        run.exchanged(B, 0);
        let confirm = run.requests.iter().position(|message| matches!(message.action, Action::Confirm { .. }));
        run.step(&Step::Exchange(confirm.unwrap())).unwrap();
        run.exchanged(B, 2);
        assert_eq!((run.fence(A), run.fence(B)), (None, Some(2)));
    });
}

/// Without the comparison in confirm, the earlier owner wins the larger fence.
#[test]
fn a_late_confirm_does_not_turn_the_order_round() {
    story([0, 0, 2], |run| {
        run.asks(A, 1);
        run.exchanged(A, 0);
        run.exchanged(A, 2);
        run.dropped(0);
        run.asks(B, 2);
        run.exchanged(B, 0);
        let confirm = run.requests.iter().position(|message| matches!(message.action, Action::Confirm { .. }));
        run.step(&Step::Exchange(confirm.unwrap())).unwrap();
        assert_eq!(run.fence(A), None);
        run.exchanged(B, 1);
        assert_eq!(run.fence(B), Some(2));
    });
}

/// A confirm that compared the token alone would take a second grant for the first one, and both would win 2.
#[test]
fn a_doubled_acquire_does_not_pass_for_the_first_grant() {
    story([0, 1, 1], |run| {
        run.asks(A, 1);
        run.doubled(A, 0);
        run.dropped(0);
        run.asks(B, 2);
        run.exchanged(B, 0);
        run.dropped(0);
        // The double: granted once more, with a larger fence.
        run.exchanged(A, 0);
        run.exchanged(A, 1);
        run.exchanged(A, 0);
        assert_eq!(run.fence(A), None, "the confirm was refused");
        run.exchanged(B, 2);
        assert_eq!(run.fence(B), Some(2));
    });
}

/// Extended by its token alone, A would have a quorum again although B came after it.
#[test]
fn a_late_grant_does_not_bridge_a_later_owner() {
    story([0, 0, 0], |run| {
        run.asks(A, 1);
        run.exchanged(A, 0);
        run.exchanged(A, 1);
        assert_eq!(run.fence(A), Some(1));
        run.dropped(0);
        run.asks(B, 2);
        run.exchanged(B, 0);
        run.exchanged(B, 2);
        assert_eq!(run.fence(B), Some(2));
        run.dropped(0);
        run.dropped(2);
        // The last of A's acquires arrives only now, and is granted.
        run.exchanged(A, 2);
        run.step(&Step::Extend { attempt: A, ttl: Duration::from_secs(30_000) }).unwrap();
        for node in 0..NODES {
            run.exchanged(A, node);
        }
        assert_eq!(run.rounds[0].votes, [KeyVote::Absent, KeyVote::Ours, KeyVote::Ahead]);
        // A restore fails too: the node knows of B.
        run.step(&Step::Restore { attempt: A, node: 0 }).unwrap();
        run.exchanged(A, 0);
        assert_eq!(run.looks[0].lock, None);
    });
}

/// The third node remembers a larger fence from before, and is late: it counts once the others remember its grant.
#[test]
fn a_node_that_is_ahead_counts_once_a_quorum_remembers_its_grant() {
    story([0, 0, 5], |run| {
        run.asks(A, 1);
        for node in 0..NODES {
            run.exchanged(A, node);
        }
        assert_eq!(run.fence(A), Some(1));
        let ttl = Duration::from_secs(30_000);
        for votes in [[KeyVote::Ours, KeyVote::Ours, KeyVote::Ahead], [KeyVote::Ours; NODES]] {
            run.step(&Step::Extend { attempt: A, ttl }).unwrap();
            for node in 0..NODES {
                run.exchanged(A, node);
            }
            assert_eq!(run.rounds.last().unwrap().votes, votes);
        }
        assert_eq!(run.looks[0].fence(), Some(6));
        // What it remembers since is not a later owner's.
        run.dropped(0);
        run.step(&Step::Restore { attempt: A, node: 0 }).unwrap();
        run.exchanged(A, 0);
        assert!(run.looks[0].lock_of(&run.attempts[A].token));
        run.dropped(0);
        run.asks(B, 2);
        run.exchanged(B, 0);
        assert_eq!(run.attempts[B].granted[0], Some(7), "nobody has a fence between the two");
    });
}
