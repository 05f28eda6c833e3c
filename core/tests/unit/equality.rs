//! The node in memory answers and keeps exactly what the scripts do on a real server: both get the same random
//! requests, presets and deletes, compared after every step.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use harness::Program;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::memory::Content;
use super::testing::{InMemory, OnServer, Seen, TOLERANCE, Thing, World};
use crate::protocol::name::Name;
use crate::protocol::request::{Action, KeyState, Keys, Reply, Request, Wants};
use crate::protocol::token::{Fingerprint, Token};
use crate::sys::clock::Clock;
use crate::sys::random::Random;
use crate::transport::failure::Failure;

/// With so much slack no proposal made here is clamped, and a server's clock does not show in a fence.
const NO_CLAMP: Duration = Duration::from_secs(200 * 365 * 86_400);

/// The least lead of a node's last fence over its clock that keeps the clock out of the next fence without slack.
const AHEAD: u64 = 86_400_000_000;

const LABELS: [&str; 6] = ["", "worker-7", "a:b:c", ":", "büro 🔒 東京", "7:8"];

/// Values of a fence key. All are below or far beyond a clock's value, because of slack 0.
const FENCES: [&str; 18] = [
    "0",
    "1",
    "5",
    "007",
    "00000000000000000000000000000000003",
    "5000000000000000",
    "9007199254740988",
    "9007199254740989",
    "9007199254740990",
    "9007199254740991",
    "9007199254740993",
    "99999999999999999999999999",
    "",
    "-1",
    "1.5",
    "0x10",
    "1e3",
    "nan",
];

/// The text behind the colon of a lock value; some of it in our form.
const TAILS: [&str; 14] = [
    "3",
    "3:label",
    "3:a:b",
    "3:",
    "0003",
    "0",
    "9007199254740991",
    "9007199254740992",
    "99999999999999999999999999:label",
    "",
    ":label",
    "3label",
    "-3",
    "three",
];

/// Generates fences and proposals: around each other, so that they meet, and far apart.
fn number() -> impl Strategy<Value = u64> {
    let far = vec![4_999_999_999_999_999, 5_000_000_000_000_001, 7_000_000_000_000_000];
    prop_oneof![6 => 1_u64..9, 1 => prop::sample::select(far)]
}

/// In seconds. Far apart from each other, so that a test's duration does not change their order. The first two are those
/// that `acquire.lua` knows.
const TTLS: [u64; 6] = [10, 3_600, 1_000, 2_000, 5_000, 8_000];

fn ttl() -> impl Strategy<Value = Duration> {
    prop::sample::select(&TTLS[..]).prop_map(Duration::from_secs)
}

fn label() -> impl Strategy<Value = Arc<str>> {
    // The empty one and one more return often enough to be met again.
    prop_oneof![2 => Just(0), 2 => Just(1), 1 => 0..LABELS.len()].prop_map(|index| LABELS[index].into())
}

/// Holds are the most frequent fences of locks here, and 0 for a lock without one.
fn wants() -> impl Strategy<Value = Wants> {
    (0..4_u32, 0..9_u64, any::<bool>(), any::<bool>()).prop_map(|(position, hold, keep, anyway)| Wants {
        position,
        hold,
        keep: keep && position > 0,
        anyway,
    })
}

/// Generates requests that locks of every shape have.
fn common_action() -> impl Strategy<Value = Action> {
    let slack = prop::sample::select(vec![Duration::ZERO, NO_CLAMP]);
    prop_oneof![
        4 => (ttl(), number(), slack, ttl(), label(), prop::option::of(wants())).prop_map(|(ttl, proposal, slack, fence_ttl, label, wants)| {
            Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants }
        }),
        3 => (number(), number(), ttl(), label()).prop_map(|(granted, fence, fence_ttl, label)| {
            Action::Confirm { granted, fence, fence_ttl, label }
        }),
        2 => (ttl(), number(), ttl(), prop::option::of(number())).prop_map(|(ttl, fence, fence_ttl, floor)| {
            Action::Extend { ttl, fence, fence_ttl, floor }
        }),
        1 => any::<bool>().prop_map(|asks| Action::Release { asks, granted: None }),
        2 => (ttl(), number(), number(), ttl(), label()).prop_map(|(ttl, fence, level, fence_ttl, label)| {
            Action::Restore { ttl, fence, level, fence_ttl, label }
        }),
        2 => (0..TOKENS, ttl(), number(), ttl()).prop_map(|(former, ttl, fence, fence_ttl)| {
            Action::Rekey { former: OWNERS[former], ttl, fence, fence_ttl }
        }),
        1 => wants().prop_map(|wants| Action::Peek { wants }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let rest = prop_oneof![Just(Duration::ZERO), ttl()];
    prop_oneof![
        12 => common_action(),
        2 => (any::<bool>(), rest).prop_map(|(asks, rest)| Action::Leave { asks, rest }),
        1 => any::<bool>().prop_map(|asks| Action::Inspect { asks }),
        3 => ttl().prop_map(|ttl| Action::SetnxAcquire { ttl }),
        2 => prop::sample::select(vec![-HOUR, HOUR]).prop_map(|from_now| {
            Action::SetnxRelease { expiry: seconds_from_now(from_now) }
        }),
    ]
}

/// In seconds. Much longer than such a test runs.
const HOUR: i64 = 3_600;

/// Returns a Unix second, as a client of the SETNX protocol writes it.
fn seconds_from_now(seconds: i64) -> u64 {
    (Clock::System.wall_micros() / 1_000_000).checked_add_signed(seconds).unwrap()
}

/// Another client's value under the lock key.
#[derive(Clone, Debug)]
enum Left {
    /// `<token>:<tail>`, with the token of this number.
    Ours(usize, &'static str),
    /// The token alone.
    Bare(usize),
    /// The token in upper-case digits.
    Upper(usize),
    /// Anything.
    Raw(Vec<u8>),
    /// A value of the SETNX protocol: so many seconds from now, and the text behind the number.
    Seconds(i64, &'static str),
    /// A sorted set, somewhat like a shared lock: the member that names the period, with its score; the owners; and one
    /// more member. Ends are in seconds since some moment in 2001, on the clock of another server.
    Sorted(Option<(&'static str, i64)>, Vec<(usize, bool, i64)>, Option<(&'static str, i64)>),
    List,
    Hash,
}

/// The names of periods; the first ones are right.
const PERIODS: [&str; 9] = [
    "redlock:shared:3",
    "redlock:shared:7",
    "redlock:shared:5000000000000000",
    "redlock:shared:0",
    "redlock:shared:9007199254740992",
    "redlock:shared:",
    "redlock:shared:x",
    "redlock:shared:3:4",
    "period",
];

/// In milliseconds.
const IN_2001: i64 = 1_000_000_000_000;

fn sorted() -> impl Strategy<Value = Left> {
    let named = prop_oneof![4 => prop::sample::select(&PERIODS[..3]), 1 => prop::sample::select(&PERIODS[3..])];
    let endless = prop_oneof![8 => Just(i64::MAX), 1 => Just(i64::MIN), 1 => Just(7_000)];
    let owner = (0..TOKENS, prop::bool::weighted(0.8), prop::sample::select(vec![0, 500, 1_500, 4_000, 7_500]));
    let other = (prop::sample::select(vec!["a", "zzz"]), prop::sample::select(vec![i64::MAX, i64::MIN, 3_000]));
    (prop::option::weighted(0.9, (named, endless)), vec(owner, 0..4), prop::option::weighted(0.1, other))
        .prop_filter("servers have no empty sets", |(period, owners, other)| {
            period.is_some() || other.is_some() || !owners.is_empty()
        })
        .prop_map(|(period, owners, other)| Left::Sorted(period, owners, other))
}

fn left() -> impl Strategy<Value = Left> {
    let long = [b"0123456789abcdef0123456789abcdef:3:".as_slice(), &[b'x'; 200]].concat();
    let control = b"0123456789abcdef0123456789abcdef:3:a\n\x1b\x7f\xc2\x85z".to_vec();
    let not_utf_8 = b"0123456789abcdef0123456789abcdef:3:a\xff\xfez".to_vec();
    let zeros = b"0123456789abcdef0123456789abcdef:3:a\0b".to_vec();
    let raw = [
        "",
        "foreign",
        "abc:3:label",
        "0:0",
        ":3",
        "3e9:3",
        "1700000000",
        "01700000000.000",
        "1.7e9",
        "-1700000000",
        "0x77359400",
        "999999999",
        "1000000000",
        "99999999999",
        "100000000000",
        "100000000001",
        "99999999999999999999999999",
    ]
    .map(|text| text.as_bytes().to_vec());
    prop_oneof![
        5 => (0..TOKENS, prop::sample::select(&TAILS[..])).prop_map(|(token, tail)| Left::Ours(token, tail)),
        1 => (0..TOKENS).prop_map(Left::Bare),
        1 => (0..TOKENS).prop_map(Left::Upper),
        2 => prop::sample::select([&raw[..], &[long, control, not_utf_8, zeros]].concat()).prop_map(Left::Raw),
        2 => (prop::sample::select(vec![-HOUR, HOUR]), prop::sample::select(vec!["", ".0", ".5", ".", ".5s", " "]))
            .prop_map(|(from_now, tail)| Left::Seconds(from_now, tail)),
        4 => sorted(),
        1 => Just(Left::List),
        1 => Just(Left::Hash),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// The owner of the token of this number asks.
    Ask(usize, Action),
    /// As [`Step::Ask`], but for the lock of this name alone, if the keys are those of a shared one.
    AskAlone(usize, Action),
    /// As [`Step::Ask`], but a confirm of exactly the lock key's value.
    ConfirmExactly {
        fence: u64,
        fence_ttl: Duration,
    },
    /// Of the name of this number, as all that follow.
    PutLock(usize, Left, Option<Duration>),
    PutFence(usize, Thing, Option<Duration>),
    DropLock(usize),
    DropFence(usize),
    /// Of the first name.
    PutWaiters(&'static str),
}

/// How many names a lock of several has here.
const NAMES: usize = 3;

const TOKENS: usize = 3;

/// The callers' tokens.
static OWNERS: LazyLock<[Token; TOKENS]> = LazyLock::new(|| std::array::from_fn(|_| Token::fresh(&Random::System)));

fn step(action: impl Strategy<Value = Action>) -> impl Strategy<Value = Step> {
    let fence = prop_oneof![
        8 => prop::sample::select(&FENCES[..]).prop_map(|text| Thing::Text(text.into())),
        1 => Just(Thing::List),
        1 => Just(Thing::Hash),
    ];
    prop_oneof![
        12 => (0..TOKENS, action).prop_map(|(token, action)| Step::Ask(token, action)),
        2 => (0..TOKENS, common_action()).prop_map(|(token, action)| Step::AskAlone(token, action)),
        1 => prop::sample::select(vec!["0", "1", "2", "", "x"]).prop_map(Step::PutWaiters),
        2 => (number(), ttl()).prop_map(|(fence, fence_ttl)| Step::ConfirmExactly { fence, fence_ttl }),
        2 => (0..NAMES, left(), prop::option::of(ttl())).prop_map(|(name, left, ttl)| Step::PutLock(name, left, ttl)),
        2 => (0..NAMES, fence, prop::option::of(ttl()))
            .prop_map(|(name, thing, ttl)| Step::PutFence(name, thing, ttl)),
        3 => (0..NAMES).prop_map(Step::DropLock),
        1 => (0..NAMES).prop_map(Step::DropFence),
    ]
}

fn thing(left: &Left, tokens: &[Token; TOKENS]) -> Thing {
    let text = |token: usize| tokens[token].as_bytes().to_vec();
    Thing::Text(match left {
        Left::Ours(token, tail) => [&text(*token), b":".as_slice(), tail.as_bytes()].concat(),
        Left::Bare(token) => text(*token),
        Left::Upper(token) => [&text(*token).to_ascii_uppercase(), b":3".as_slice()].concat(),
        Left::Raw(bytes) => bytes.clone(),
        Left::Seconds(from_now, tail) => format!("{}{tail}", seconds_from_now(*from_now)).into(),
        Left::Sorted(period, owners, other) => {
            let end = |seconds: i64| match seconds {
                i64::MIN | i64::MAX => seconds,
                seconds => IN_2001 + seconds * 1_000,
            };
            let labels = |is_own: bool| if is_own { LABELS[1] } else { LABELS[2] };
            let owner = |(token, is_own, seconds): &(usize, bool, i64)| {
                (end(*seconds), [&text(*token), b":".as_slice(), labels(*is_own).as_bytes()].concat())
            };
            let named = |(name, seconds): (&str, i64)| (end(seconds), name.as_bytes().to_vec());
            return Thing::Sorted(owners.iter().map(owner).chain(period.map(named)).chain(other.map(named)).collect());
        }
        Left::List => return Thing::List,
        Left::Hash => return Thing::Hash,
    })
}

/// Both nodes, the keys of one lock on them, and the callers' tokens.
struct Pair {
    memory: InMemory,
    server: OnServer,
    keys: Arc<Keys>,
    /// The keys of the same name, or of the first one, as those of a lock of one owner.
    alone: Arc<Keys>,
    tokens: [Token; TOKENS],
}

impl Pair {
    fn start(program: Program) -> Self {
        Self::of(program, Keys::of(&name("foo")))
    }

    fn of(program: Program, keys: Arc<Keys>) -> Self {
        Self {
            memory: InMemory::new(),
            server: OnServer::start(program),
            alone: Arc::new(keys.alone()),
            keys,
            tokens: *OWNERS,
        }
    }

    fn clear(&mut self) {
        self.memory.clear();
        self.server.clear();
    }

    fn put(&mut self, key: &[u8], thing: &Thing, ttl: Option<Duration>) {
        self.memory.put(key, thing, ttl);
        self.server.put(key, thing, ttl);
    }

    fn delete(&mut self, key: &[u8]) {
        self.memory.delete(key);
        self.server.delete(key);
    }

    /// Asks both and returns how their answers or keys differ.
    fn ask(&mut self, token: usize, action: Action) -> Result<Result<Reply, Failure>, String> {
        self.ask_of(&Arc::clone(&self.keys), token, action)
    }

    fn ask_of(&mut self, keys: &Arc<Keys>, token: usize, action: Action) -> Result<Result<Reply, Failure>, String> {
        let request = Request { keys: Arc::clone(keys), token: self.tokens[token], action };
        let (memory, server) = (self.memory.ask(&request), self.server.ask(&request));
        equal("reply", &memory.as_ref().map(without_clock), &server.as_ref().map(without_clock))?;
        if let (Ok(memory), Ok(server)) = (&memory, &server) {
            near("ttl in the reply", ttl_of(memory), ttl_of(server))?;
        }
        let each = request.keys.each().flat_map(|keys| [&*keys.lock, &*keys.fence, &*keys.want]);
        for key in each.chain(request.keys.bell()) {
            let (memory, server) = (self.memory.look(key), self.server.look(key));
            equal("content", &memory.as_ref().map(shown), &server.as_ref().map(shown))?;
            same_scores(memory.as_ref(), server.as_ref())?;
            near("ttl", memory.and_then(|seen| seen.left), server.and_then(|seen| seen.left))?;
        }
        Ok(server)
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let keys = Arc::clone(&self.keys);
        let of = |name: usize| keys.each().nth(name % keys.each().len()).expect("a name");
        match step {
            Step::Ask(token, action) => {
                let action = self.timeless(&keys, action.clone());
                self.ask(*token, action).map(drop)
            }
            Step::AskAlone(token, action) => {
                let alone = Arc::clone(&self.alone);
                let action = self.timeless(&alone, action.clone());
                self.ask_of(&alone, *token, action).map(drop)
            }
            Step::PutWaiters(count) => {
                self.put(&keys.want, &text(count), None);
                Ok(())
            }
            Step::ConfirmExactly { fence, fence_ttl } => self.confirm_exactly(*fence, *fence_ttl),
            Step::PutLock(name, left, ttl) => {
                let thing = thing(left, &self.tokens);
                self.put(&of(*name).lock, &thing, *ttl);
                Ok(())
            }
            Step::PutFence(name, thing, ttl) => {
                self.put(&of(*name).fence, thing, *ttl);
                Ok(())
            }
            Step::DropLock(name) => {
                self.delete(&of(*name).lock);
                Ok(())
            }
            Step::DropFence(name) => {
                self.delete(&of(*name).fence);
                Ok(())
            }
        }
    }

    /// Adds slack unless the last fence is ahead of both clocks: else the fence would follow them.
    fn timeless(&mut self, keys: &Keys, mut action: Action) -> Action {
        if let Action::Acquire { slack, .. } = &mut action {
            let lasts = keys.each().filter_map(|keys| number_in(self.memory.look(&keys.fence)?.text()?));
            let last = lasts.max();
            if last.unwrap_or(0) < Clock::System.wall_micros() + AHEAD {
                *slack = NO_CLAMP;
            }
        }
        action
    }

    fn confirm_exactly(&mut self, fence: u64, fence_ttl: Duration) -> Result<(), String> {
        let lock = self.memory.look(&self.keys.lock);
        let Some(value) = lock.as_ref().and_then(Seen::text) else { return Ok(()) };
        for token in 0..TOKENS {
            let Some(rest) = value.strip_prefix(self.tokens[token].as_bytes()) else { continue };
            let mut parts = rest.splitn(3, |byte| *byte == b':').skip(1);
            let Some(granted) = parts.next().and_then(number_in) else { continue };
            let Ok(label) = std::str::from_utf8(parts.next().unwrap_or_default()) else { continue };
            let label = label.into();
            return self.ask(token, Action::Confirm { granted, fence, fence_ttl, label }).map(drop);
        }
        Ok(())
    }
}

fn number_in(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn equal<T: Debug + PartialEq>(what: &str, memory: &T, server: &T) -> Result<(), String> {
    if memory == server { Ok(()) } else { Err(format!("{what}: {memory:?} in memory, {server:?} on the server")) }
}

fn near(what: &str, memory: Option<Duration>, server: Option<Duration>) -> Result<(), String> {
    match (memory, server) {
        (Some(one), Some(two)) if one.abs_diff(two) <= TOLERANCE => Ok(()),
        (one, two) => equal(what, &one, &two),
    }
}

/// Compares the scores of two sorted sets with the same members.
fn same_scores(memory: Option<&Seen>, server: Option<&Seen>) -> Result<(), String> {
    let (Some(memory), Some(server)) = (memory, server) else { return Ok(()) };
    let (Content::Sorted(memory), Content::Sorted(server)) = (&memory.content, &server.content) else { return Ok(()) };
    for (score, member) in memory.members() {
        let other = server.members().find(|(_, other)| *other == member).map(|(score, _)| score);
        let is_near = other.is_some_and(|other| u128::from(other.abs_diff(score)) <= TOLERANCE.as_millis());
        if !is_near {
            return Err(format!("score of {}: {score} in memory, {other:?} on the server", member.escape_ascii()));
        }
    }
    Ok(())
}

fn shown(seen: &Seen) -> Result<String, &'static str> {
    if let Content::Sorted(members) = &seen.content {
        // Members whose scores are near may be in another order.
        let mut members: Vec<String> = members.members().map(|(_, member)| member.escape_ascii().to_string()).collect();
        members.sort_unstable();
        return Ok(members.join(", "));
    }
    let text = seen.text().ok_or("not a string")?;
    Ok(number_in(text).map_or_else(|| text.escape_ascii().to_string(), ttl_from_now))
}

fn ttl_of(reply: &Reply) -> Option<Duration> {
    match reply {
        Reply::Held { ttl_left, .. }
        | Reply::HeldOff { ttl_left, .. }
        | Reply::Slots { ttl_left, .. }
        | Reply::Seen {
            state: KeyState::Ours { ttl_left, .. } | KeyState::Shared { ttl_left, .. } | KeyState::Foreign { ttl_left },
            ..
        } => *ttl_left,
        _ => None,
    }
}

fn without_clock(reply: &Reply) -> (Reply, Option<String>) {
    let mut reply = reply.clone();
    if let Reply::Held { ttl_left, .. }
    | Reply::HeldOff { ttl_left, .. }
    | Reply::Slots { ttl_left, .. }
    | Reply::Seen {
        state: KeyState::Ours { ttl_left, .. } | KeyState::Shared { ttl_left, .. } | KeyState::Foreign { ttl_left },
        ..
    } = &mut reply
    {
        *ttl_left = None;
    }
    match reply {
        Reply::GrantedUntil(expiry) => (Reply::GrantedUntil(0), Some(ttl_from_now(expiry))),
        reply => (reply, None),
    }
}

/// Describes a number. A Unix second that some ttl from now leads to may differ on the other node, which counts from
/// its own clock.
fn ttl_from_now(number: u64) -> String {
    let is_near = |ttl: &&u64| number.abs_diff(seconds_from_now(0) + **ttl) <= TOLERANCE.as_secs();
    TTLS.iter().find(is_near).map_or_else(|| number.to_string(), |ttl| format!("{ttl} s from now"))
}

fn name(name: &str) -> Name {
    Name::parse(name.as_bytes()).unwrap()
}

/// Plays random steps on a node in memory and on a server of each program.
fn memory_equals<A: Strategy<Value = Action>>(keys: &Arc<Keys>, action: impl Fn() -> A) {
    let system = Program::system().filter(|program| *program != Program::default());
    for program in [Some(Program::default()), system].into_iter().flatten() {
        memory_equals_on(Pair::of(program, Arc::clone(keys)), action());
    }
}

fn memory_equals_on(pair: Pair, action: impl Strategy<Value = Action>) {
    let config = Config { cases: 200, ..Config::with_source_file(file!()) };
    difference(config, pair, action).unwrap_or_else(|error| panic!("{error}"));
}

/// Plays random steps on both until they differ.
fn difference(config: Config, pair: Pair, action: impl Strategy<Value = Action>) -> Result<(), impl std::fmt::Display> {
    let pair = std::cell::RefCell::new(pair);
    let mut runner = TestRunner::new(config);
    runner.run(&vec(step(action), 1..=30), |steps| {
        let mut pair = pair.borrow_mut();
        pair.clear();
        for (index, step) in steps.iter().enumerate() {
            pair.step(step).map_err(|why| TestCaseError::fail(format!("step {index}, {step:?}: {why}")))?;
        }
        Ok(())
    })
}

#[test]
fn memory_equals_the_scripts_for_one_name() {
    memory_equals(&Keys::of(&name("foo")), action);
}

#[test]
fn memory_equals_the_scripts_for_several_names() {
    memory_equals(&Keys::of_all(&["bar", "baz", "foo"].map(name)), common_action);
}

#[test]
fn memory_equals_the_scripts_for_the_slots_of_a_semaphore() {
    let slots: Arc<[Arc<Keys>]> = (0..3).map(|slot| Keys::of_slot(&name("pool"), 3, slot)).collect();
    memory_equals(&slots[1], || {
        // The steps fill one slot: a look at that one alone can find all of them held.
        let seen = prop::sample::select(vec![Arc::clone(&slots), slots[1..2].into()]);
        let look = (seen, prop::option::of(wants()), any::<bool>()).prop_map(|(slots, wants, anyway)| Action::Look {
            slots,
            wants,
            anyway,
        });
        prop_oneof![6 => action(), 2 => look]
    });
}

#[test]
fn memory_equals_the_scripts_for_a_shared_lock() {
    memory_equals(&shared("foo"), shared_action);
}

fn shared_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => common_action(),
        1 => any::<bool>().prop_map(|asks| Action::Inspect { asks }),
        1 => Just(Action::Withdraw),
    ]
}

/// Or the steps would meet too little of what a shared lock can be.
#[test]
fn the_steps_find_every_fault_of_a_shared_lock() {
    use super::memory::tampering::{Fault, plant};
    for fault in [
        Fault::EndOfLast,
        Fault::OneEndForAll,
        Fault::EndsByTime,
        Fault::ReleaseForAll,
        Fault::ReaderForgotten,
        Fault::JoinsWithCurrent,
        Fault::ExtendWithoutPeriod,
        Fault::ConfirmWithoutPeriod,
        Fault::RestoreWithoutFence,
        Fault::NoIntent,
        Fault::DropsForeign,
    ] {
        let config = Config { cases: 1_000, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        plant(Some(fault));
        let found = difference(config, Pair::of(Program::default(), shared("foo")), shared_action());
        plant(None);
        assert!(found.is_err(), "{fault:?}");
    }
}

/// The key came from another server: two owners with so many seconds left, and one whose time has ended.
fn moved(pair: &mut Pair, first: i64, second: i64) {
    let owner = |token: usize, seconds: i64| {
        let member = pair.keys.member(&pair.tokens[token]);
        (IN_2001 + seconds * 1_000, member)
    };
    let mut members = vec![owner(0, first), owner(1, second), (IN_2001 - 1, b"past".to_vec())];
    members.push((i64::MAX, b"redlock:shared:5".to_vec()));
    let left = Duration::from_secs(first.max(second).unsigned_abs());
    let key = pair.keys.lock.clone();
    pair.put(&key, &Thing::Sorted(members), Some(left));
}

/// Returns who shares the lock on the server, and for how many seconds the key says so, to the nearest hundred.
fn owners(pair: &mut Pair) -> (Vec<String>, u64) {
    let seen = pair.server.look(&pair.keys.lock.clone()).unwrap();
    let Content::Sorted(members) = &seen.content else { panic!("{seen:?}") };
    let shown = |(_, member): (i64, &[u8])| {
        let token = pair.tokens.iter().position(|token| member.starts_with(token.as_bytes()));
        token.map_or_else(|| String::from_utf8_lossy(member).into_owned(), |token| token.to_string())
    };
    (members.members().map(shown).collect(), (seen.left.unwrap().as_secs() + 50) / 100 * 100)
}

#[test]
fn each_owner_ends_at_its_own_time_wherever_its_key_came_from() {
    let (hour, thousand) = (Duration::from_secs(3_600), Duration::from_secs(1_000));
    let extend = |ttl| Action::Extend { ttl, fence: 5, fence_ttl: hour, floor: None };
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        let pair = &mut Pair::of(program, shared("foo"));
        moved(pair, 5_000, 2_000);
        assert_eq!(pair.ask(1, extend(thousand)), Ok(Ok(Reply::Extended)));
        let all = ["1", "0", "redlock:shared:5"].map(str::to_owned);
        assert_eq!(owners(pair), (all.to_vec(), 5_000), "never shorter, and who is past is gone");
        assert_eq!(pair.ask(0, Action::Release { asks: false, granted: None }), Ok(Ok(Reply::Deleted { waiting: 0 })));
        assert_eq!(owners(pair), (vec![all[0].clone(), all[2].clone()], 2_000), "nobody lives on another's time");
        assert_eq!(pair.ask(0, extend(hour)), Ok(Ok(Reply::Absent)));
        let early = Action::Extend { ttl: hour, fence: 4, fence_ttl: hour, floor: None };
        assert_eq!(pair.ask(1, early), Ok(Ok(Reply::Ahead(5))), "the sharing began later");
        assert_eq!(pair.ask(1, extend(hour)), Ok(Ok(Reply::Extended)));
        assert_eq!(owners(pair).1, 3_600);
        assert_eq!(pair.ask(1, Action::Release { asks: false, granted: None }), Ok(Ok(Reply::Deleted { waiting: 0 })));
        assert_eq!(pair.server.look(&pair.keys.lock.clone()), None);
        // An owner that has ended is like one that is not there, before somebody drops it.
        moved(pair, 5_000, -1);
        for action in [extend(hour), Action::Release { asks: false, granted: None }] {
            assert_eq!(pair.ask(1, action), Ok(Ok(Reply::Absent)));
        }
        assert_eq!(owners(pair).0.len(), 4, "nothing was written");
    }
}

/// Who waits for the lock alone is counted, and keeps others from joining until it has it or gives up.
#[test]
fn nobody_joins_while_somebody_waits_for_the_lock_alone() {
    let hour = Duration::from_secs(3_600);
    let joins = |wants| {
        let (slack, fence_ttl, label) = (NO_CLAMP, hour, "".into());
        Action::Acquire { ttl: hour, proposal: 5, slack, fence_ttl, label, wants }
    };
    let asks = joins(Some(Wants { keep: true, ..Wants::default() }));
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        let pair = &mut Pair::of(program, shared("foo"));
        let alone = Arc::clone(&pair.alone);
        assert_eq!(pair.ask(0, joins(None)), Ok(Ok(Reply::Granted(5))));
        assert_eq!(pair.ask(1, joins(None)), Ok(Ok(Reply::Granted(6))));
        let counted = Reply::Held { ours: None, ttl_left: None, label: None, position: 1, hold: 0 };
        let held_off = Reply::HeldOff { ttl_left: None, waiting: 1, hold: 5 };
        let without_ttl = |answer: Result<Result<Reply, Failure>, String>| without_clock(&answer.unwrap().unwrap()).0;
        assert_eq!(without_ttl(pair.ask_of(&alone, 2, asks.clone())), counted);
        for wants in [None, Some(Wants::default()), Some(Wants { position: 1, hold: 5, ..Wants::default() })] {
            assert_eq!(without_ttl(pair.ask(2, joins(wants))), held_off, "{wants:?}");
        }
        let peek = |wants| Action::Peek { wants };
        assert_eq!(without_ttl(pair.ask(2, peek(Wants::default()))), held_off);
        assert_eq!(pair.ask(2, peek(Wants::ANYWAY)), Ok(Ok(Reply::FREE)));
        assert_eq!(pair.ask(2, joins(Some(Wants::ANYWAY))), Ok(Ok(Reply::Granted(7))));
        let gone = |waiting| Ok(Ok(Reply::Deleted { waiting }));
        assert_eq!(pair.ask(2, Action::Release { asks: true, granted: None }), gone(1), "it still waits");
        assert_eq!(pair.ask_of(&alone, 2, Action::Withdraw), Ok(Ok(Reply::Withdrawn { waiting: 0 })));
        assert_eq!(pair.ask(2, Action::Withdraw), Ok(Ok(Reply::Refused)), "the count is 0");
        assert_eq!(pair.ask(2, joins(None)), Ok(Ok(Reply::Granted(8))));
        assert_eq!(without_ttl(pair.ask_of(&alone, 2, asks.clone())), counted);
        for (owner, waiting) in [(0, 1), (1, 1), (2, 1)] {
            assert_eq!(pair.ask(owner, Action::Release { asks: true, granted: None }), gone(waiting));
        }
        assert_eq!(pair.server.look(&alone.want), None, "the last one ends the count");
        pair.put(&alone.want, &text("7"), None);
        assert_eq!(pair.ask(0, joins(None)), Ok(Ok(Reply::Granted(9))), "nobody shares it: all are alike");
        assert_eq!(pair.server.look(&alone.want), None, "waiters are counted again");
    }
}

/// The first labels of an inspection are of those who stay longest, and whoever has ended does not count.
#[test]
fn an_inspection_tells_who_shares_a_lock() {
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        let pair = &mut Pair::of(program, shared("foo"));
        let token = |owner: i64| format!("{owner:032x}");
        let mut members: Vec<(i64, Vec<u8>)> =
            (0..20).map(|owner| (IN_2001 + owner * 1_000_000, format!("{}:{owner}", token(owner)).into())).collect();
        members.push((IN_2001 + 30_000_000, token(30).into()));
        members.push((i64::MAX, b"redlock:shared:5".to_vec()));
        let key = pair.keys.lock.clone();
        pair.put(&key, &Thing::Sorted(members), Some(Duration::from_secs(30_000)));
        for keys in [Arc::clone(&pair.keys), Arc::clone(&pair.alone)] {
            let Ok(Ok(Reply::Seen { state, .. })) = pair.ask_of(&keys, 0, Action::Inspect { asks: true }) else {
                panic!("not shared")
            };
            let KeyState::Shared { readers, labels, fence, .. } = state else { panic!("{state:?}") };
            let shown: Vec<&str> = labels.iter().map(|label| &**label).collect();
            assert_eq!((readers, fence), (20, 5));
            assert_eq!(shown, (5..20).rev().map(|owner| owner.to_string()).collect::<Vec<_>>());
        }
    }
}

/// Returns the keys of a shared lock; the owners have the first label that is not empty.
fn shared(of: &str) -> Arc<Keys> {
    Keys::of_shared(&name(of), LABELS[1].into())
}

/// In microseconds since 1970: a client's clock that is hopelessly wrong.
const IN_2100: u64 = 4_102_444_800_000_000;

fn acquire(proposal: u64, slack: Duration) -> Action {
    let hour = Duration::from_secs(3_600);
    Action::Acquire { ttl: hour, proposal, slack, fence_ttl: hour, label: "".into(), wants: None }
}

/// Acquires on an empty server. Returns the granted fence, and two readings of its clock around it.
fn fence_of(server: &mut OnServer, action: Action) -> (u64, u64, u64) {
    server.clear();
    let keys = Keys::of(&name("foo"));
    let before = server.time();
    let reply = server.ask(&Request { keys, token: Token::fresh(&Random::System), action });
    let after = server.time();
    let Ok(Reply::Granted(fence)) = reply else { panic!("{reply:?}") };
    (fence, before, after)
}

#[test]
fn a_wrong_clock_moves_the_fence_by_no_more_than_the_slack() {
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        let mut server = OnServer::start(program);
        for slack in [0, 45, 60].map(Duration::from_secs) {
            let micros = i64::try_from(slack.as_micros()).unwrap();
            let now = i64::try_from(server.time()).unwrap();
            // Within and beyond, near enough to either end that parts of a second count, and far off.
            let near = [-micros - 20_000, -micros + 500_000, 0, micros - 500_000, micros + 20_000];
            let proposals = near.into_iter().map(|offset| u64::try_from(now + offset).unwrap());
            for proposal in proposals.chain([1, IN_2100]) {
                let (fence, before, after) = fence_of(&mut server, acquire(proposal, slack));
                let micros = micros.unsigned_abs();
                let [least, most] = [before, after].map(|now| proposal.clamp(now - micros, now + micros));
                assert!((least..=most).contains(&fence), "{proposal} became {fence} between {before} and {after}");
            }
        }
    }
}

/// The client leaves out what the script knows.
#[test]
fn a_value_that_is_left_out_is_the_one_that_the_script_knows() {
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        let mut server = OnServer::start(program);
        let keys = Keys::of(&name("foo"));
        let (ttl, fence_ttl) = (Duration::from_secs(10), Duration::from_secs(3_600));
        for slack in [Duration::ZERO, Duration::from_secs(60)] {
            let proposal = server.time();
            let action = Action::Acquire { ttl, proposal, slack, fence_ttl, label: "".into(), wants: None };
            fence_of(&mut server, action);
            for (key, ttl) in [(&keys.lock[..], ttl), (&keys.fence[..], fence_ttl)] {
                let left = server.look(key).unwrap().left.unwrap();
                assert!(left <= ttl && left + Duration::from_secs(5) > ttl, "{left:?} of {ttl:?}");
            }
        }
    }
}

/// Runs `test` on the nodes of both kinds, held equal at every step.
fn on_both(mut test: impl FnMut(&mut Pair)) {
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        test(&mut Pair::start(program));
    }
}

fn text(text: &str) -> Thing {
    Thing::Text(text.into())
}

/// A fence key whose value only Lua's `tonumber` accepts must stop confirm and restore as it stops acquire. Otherwise
/// the node would seem to remember a fence that it does not know.
#[test]
fn a_fence_key_that_is_no_number_stops_every_script_that_needs_it() {
    let hour = Duration::from_secs(3_600);
    let held = Reply::Held { ours: None, ttl_left: None, label: None, position: 0, hold: 5 };
    on_both(|pair| {
        let keys = Arc::clone(&pair.keys);
        for odd in ["", "-1", "1.5", "0x10", "1e3", "1e300", "nan", " 7", "7 ", "seven"].map(text) {
            for odd in [odd, Thing::List, Thing::Hash] {
                let refused = Ok(Err(Failure::of_code("FENCE")));
                pair.clear();
                pair.put(&keys.fence, &odd, None);
                assert_eq!(pair.ask(0, acquire(5, NO_CLAMP)), refused, "acquire, {odd:?}");
                let restore = Action::Restore { ttl: hour, fence: 5, level: 5, fence_ttl: hour, label: "".into() };
                assert_eq!(pair.ask(0, restore), refused, "restore, {odd:?}");
                assert_eq!(pair.server.look(&keys.lock), None, "{odd:?}");
                let value = pair.tokens[0].value(5, "");
                pair.put(&keys.lock, &Thing::Text(value), None);
                let confirm = Action::Confirm { granted: 5, fence: 6, fence_ttl: hour, label: "".into() };
                assert_eq!(pair.ask(0, confirm), refused, "confirm, {odd:?}");
                // A look at a held lock needs no fence.
                assert_eq!(pair.ask(1, acquire(5, NO_CLAMP)), Ok(Ok(held.clone())), "held, {odd:?}");
            }
        }
    });
}

/// A waiter writes only when it joins and when it keeps the count alive.
#[test]
fn a_waiter_is_counted_once_in_each_hold() {
    let minute = Duration::from_secs(60);
    let wants = |position, hold, keep| Action::Peek { wants: Wants { position, hold, keep, anyway: false } };
    let placed = |position, hold| Ok(Ok(Reply::Held { ours: None, ttl_left: None, label: None, position, hold }));
    let count = |text: &str| Some(text.to_owned());
    on_both(|pair| {
        let keys = Arc::clone(&pair.keys);
        for hold in [0, 5] {
            pair.clear();
            let value = if hold == 0 { b"theirs".to_vec() } else { pair.tokens[0].value(hold, "") };
            pair.put(&keys.lock, &Thing::Text(value), None);
            let want = |pair: &mut Pair| pair.server.look(&keys.want);
            let counted =
                |pair: &mut Pair| want(pair).map(|seen| String::from_utf8_lossy(seen.text().unwrap()).into_owned());
            assert_eq!(pair.ask(1, wants(0, 0, false)), placed(1, hold), "the first one joins");
            assert_eq!(pair.ask(2, wants(0, 0, false)), placed(2, hold), "and the next one");
            assert_eq!(pair.ask(1, wants(1, hold, false)), placed(1, hold), "a known place");
            assert_eq!(counted(pair), count("2"));
            assert_eq!(pair.ask(1, wants(1, hold + 1, false)), placed(3, hold), "the place of another hold");
            assert_eq!(pair.ask(1, wants(1, hold + 1, true)), placed(4, hold), "the same, to be kept");
            pair.put(&keys.want, &text("9"), Some(minute));
            assert_eq!(pair.ask(1, wants(3, hold, false)), placed(3, hold), "nothing is written");
            assert!(want(pair).unwrap().left.unwrap() > minute / 2);
            assert_eq!(pair.ask(1, wants(3, hold, true)), placed(3, hold), "it is kept");
            assert!(want(pair).unwrap().left.unwrap() < minute / 2);
            assert_eq!(counted(pair), count("9"));
            pair.delete(&keys.want);
            assert_eq!(pair.ask(1, wants(3, hold, false)), placed(3, hold), "its being gone is not seen");
            assert_eq!(pair.ask(1, wants(3, hold, true)), placed(1, hold), "it begins again");
            pair.put(&keys.want, &Thing::List, None);
            assert_eq!(pair.ask(1, wants(0, 0, false)), placed(0, hold), "not a count");
        }
    });
}

/// Also if the bell has expired between two rings: who waits would not be counted again, and not be told of a release.
#[test]
fn who_was_counted_before_a_bell_rang_is_counted_anew() {
    let slot = Keys::of_slot(&name("pool"), 1, 0);
    let look = |position, hold, anyway| {
        let wants = Some(Wants { position, hold, ..Wants::default() });
        Action::Look { slots: [Arc::clone(&slot)].into(), wants, anyway }
    };
    let told = |answer: Result<Result<Reply, Failure>, String>| match answer {
        Ok(Ok(Reply::Slots { position, hold, .. })) => (position, hold),
        other => panic!("{other:?}"),
    };
    for program in [Some(Program::default()), Program::system()].into_iter().flatten() {
        let pair = &mut Pair::of(program, Arc::clone(&slot));
        let take = |pair: &mut Pair, token: usize| {
            let value = pair.tokens[token].value(5, "");
            pair.put(&slot.lock, &Thing::Text(value), None);
        };
        let leave = |pair: &mut Pair, token| {
            let deleted = Ok(Ok(Reply::Deleted { waiting: 1 }));
            assert_eq!(pair.ask(token, Action::Leave { asks: true, rest: Duration::ZERO }), deleted);
        };
        take(pair, 0);
        assert_eq!(told(pair.ask(2, look(0, 0, false))), (1, 0));
        leave(pair, 0);
        assert_eq!(told(pair.ask(2, look(0, 0, false))).0, 0, "a slot is free");
        assert_eq!(told(pair.ask(2, look(0, 0, true))).0, 1, "it waits anyway");
        take(pair, 1);
        let (position, ring) = told(pair.ask(2, look(1, 0, false)));
        assert_eq!(position, 2, "counted again after the ring");
        assert_eq!(told(pair.ask(2, look(2, ring, false))), (2, ring));
        pair.delete(slot.bell().unwrap());
        pair.put(&slot.want, &text("1"), None);
        leave(pair, 1);
        take(pair, 2);
        let (position, later) = told(pair.ask(2, look(2, ring, false)));
        assert!(position == 1 && later != ring, "{position}, {ring}, {later}");
    }
}

/// An inspection tells owners apart and says how many wait, and changes neither.
#[test]
fn an_inspection_tells_owners_apart_and_how_many_wait() {
    on_both(|pair| {
        let keys = Arc::clone(&pair.keys);
        let inspect = |pair: &mut Pair, asks| match pair.ask(0, Action::Inspect { asks }) {
            Ok(Ok(Reply::Seen { state: KeyState::Ours { owner, .. }, waiting })) => (Some(owner), waiting),
            Ok(Ok(Reply::Seen { waiting, .. })) => (None, waiting),
            other => panic!("{other:?}"),
        };
        for token in 0..TOKENS {
            let digits = pair.tokens[token].as_bytes().to_vec();
            pair.put(&keys.lock, &Thing::Text([&digits, b":5:label".as_slice()].concat()), None);
            let half = Fingerprint::parse(&digits[..Fingerprint::LEN]);
            assert_eq!(inspect(pair, true), (half, Some(0)));
            assert_eq!(inspect(pair, false), (half, None));
        }
        let lock = text("theirs");
        for lock in [None, Some(&lock), Some(&Thing::List)] {
            pair.clear();
            if let Some(lock) = lock {
                pair.put(&keys.lock, lock, None);
            }
            for (count, waiting) in [("0", 0), ("7", 7), ("100000", 100_000), ("99999999999999999999", 100_000)] {
                pair.put(&keys.want, &text(count), None);
                assert_eq!(inspect(pair, true), (None, Some(waiting)), "{count}");
                assert_eq!(inspect(pair, false), (None, None), "{count}");
            }
            for odd in ["", "-1", "1.5", "seven"].map(text).into_iter().chain([Thing::List]) {
                pair.put(&keys.want, &odd, None);
                assert_eq!(inspect(pair, true), (None, None), "{odd:?}");
            }
        }
    });
}

/// Only a value in the whole form shows a fence or a label. The token's owner may still release and extend any value
/// that begins with the token and a colon.
#[test]
fn a_value_nearly_in_our_form_is_foreign_to_who_looks() {
    let hour = Duration::from_secs(3_600);
    let held = Reply::Held { ours: None, ttl_left: None, label: None, position: 0, hold: 0 };
    on_both(|pair| {
        let keys = Arc::clone(&pair.keys);
        for tail in ["3label", "0", "0:label", "9007199254740992:label", "99999999999999999999999999:label"] {
            pair.clear();
            let value = [pair.tokens[0].as_bytes(), b":".as_slice(), tail.as_bytes()].concat();
            pair.put(&keys.lock, &Thing::Text(value), None);
            assert_eq!(pair.ask(0, acquire(5, NO_CLAMP)), Ok(Ok(held.clone())), "{tail}");
            let foreign = Reply::Seen { state: KeyState::Foreign { ttl_left: None }, waiting: None };
            assert_eq!(pair.ask(0, Action::Inspect { asks: false }), Ok(Ok(foreign)), "{tail}");
            let extended = if tail.starts_with('9') { Reply::Foreign(None) } else { Reply::Extended };
            let extend = Action::Extend { ttl: hour, fence: 5, fence_ttl: hour, floor: None };
            assert_eq!(pair.ask(0, extend), Ok(Ok(extended)), "{tail}");
            assert_eq!(
                pair.ask(0, Action::Release { asks: true, granted: None }),
                Ok(Ok(Reply::Deleted { waiting: 0 })),
                "{tail}"
            );
        }
    });
}

/// The holder's release compares the whole value, where the server can, and the script judges what that does not delete.
#[test]
fn a_lock_is_released_without_a_script_where_the_server_can() {
    let (own, label) = (|tail: &str| [OWNERS[0].as_bytes(), tail.as_bytes()].concat(), "a:b");
    let foreign = [OWNERS[1].as_bytes(), b":5:a:b"].concat();
    let cases = [
        (Some(Thing::Text(own(":5:a:b"))), Reply::Deleted { waiting: 7 }, 0),
        (Some(Thing::Text(own(":6:a:b"))), Reply::Deleted { waiting: 7 }, 1),
        (Some(Thing::Text(own(":5"))), Reply::Deleted { waiting: 7 }, 1),
        (Some(Thing::Text(own(""))), Reply::Deleted { waiting: 7 }, 1),
        (Some(Thing::Text(foreign)), Reply::Foreign(None), 1),
        (Some(Thing::List), Reply::Foreign(None), 1),
        (None, Reply::Absent, 1),
    ];
    on_both(|pair| {
        let (keys, has_it) = (Arc::clone(&pair.keys), ["DELIFEQ", "DELEX"].iter().any(|word| pair.server.knows(word)));
        for (thing, expected, scripts) in &cases {
            pair.clear();
            if let Some(thing) = thing {
                pair.put(&keys.lock, thing, None);
            }
            if matches!(expected, Reply::Deleted { .. }) {
                pair.put(&keys.want, &text("7"), None);
            }
            let asked =
                |pair: &Pair| [&["eval", "evalsha"][..], &["delifeq", "delex"]].map(|sent| pair.server.asked(sent));
            let before = asked(pair);
            let release = Action::Release { asks: true, granted: Some((5, label.into())) };
            assert_eq!(pair.ask(0, release), Ok(Ok(expected.clone())), "{thing:?}");
            let [looks, ..] = before;
            let after = asked(pair);
            // The pair looks at each of three keys by a script.
            let scripts = if has_it { *scripts } else { 1 };
            assert_eq!([after[0] - looks, after[1] - before[1]], [scripts + 3, u64::from(has_it)], "{thing:?}");
        }
    });
}
