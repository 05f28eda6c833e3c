//! The node in memory answers and keeps exactly what the scripts do on a real server: both get the same random
//! requests, presets and deletes, compared after every step.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use harness::Program;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::memory::Content;
use super::testing::{InMemory, OnServer, Seen, TOLERANCE, Thing};
use crate::protocol::name::Name;
use crate::protocol::request::{Action, KeyState, Keys, Reply, Request, Wants};
use crate::protocol::token::Token;
use crate::sys::clock::Clock;
use crate::sys::random::Random;
use crate::transport::failure::Failure;

/// With so much slack no proposal made here is clamped, and a server's clock does not show in a fence.
const NO_CLAMP: Duration = Duration::from_secs(200 * 365 * 86_400);

/// The least lead of a node's last fence over its clock that keeps the clock out of the next fence without slack.
const AHEAD: u64 = 86_400_000_000;

/// In seconds. Much longer than such a test runs.
const HOUR: i64 = 3_600;

/// In milliseconds.
const IN_2001: i64 = 1_000_000_000_000;

const TOKENS: usize = 3;

/// The callers' tokens.
static OWNERS: LazyLock<[Token; TOKENS]> = LazyLock::new(|| std::array::from_fn(|_| Token::fresh(&Random::System)));

const LABELS: [&str; 6] = ["", "worker-7", "a:b:c", ":", "büro 🔒 東京", "7:8"];

/// In seconds. Far apart from each other, so that a test's duration does not change their order. The first two are those
/// that `acquire.lua` knows.
const TTLS: [u64; 6] = [10, 3_600, 1_000, 2_000, 5_000, 8_000];

/// The owners' keys, in each shape that a lock has. Three shapes have the name `foo` in common.
struct Shapes {
    one: Arc<Keys>,
    several: Arc<Keys>,
    shared: Arc<Keys>,
    slots: [Arc<Keys>; 3],
}

impl Shapes {
    fn new() -> Self {
        Self {
            one: Keys::of(&name("foo")),
            several: Keys::of_all(&["bar", "baz", "foo"].map(name)),
            shared: shared("foo"),
            slots: [0, 1, 2].map(|slot| Keys::of_slot(&name("pool"), 3, slot)),
        }
    }

    /// One of the locks, of whatever shape. The slots but one stay free.
    fn any(&self) -> impl Strategy<Value = Arc<Keys>> + use<> {
        select([&self.one, &self.several, &self.shared, &self.slots[1]].map(Arc::clone).to_vec())
    }

    /// A lock with a single owner and a single key.
    fn single(&self) -> impl Strategy<Value = Arc<Keys>> + use<> {
        select([&self.one, &self.slots[1]].map(Arc::clone).to_vec())
    }

    /// A key of one of the names.
    fn key(&self, of: fn(&Keys) -> &[u8]) -> impl Strategy<Value = Vec<u8>> + use<> {
        let keys = self.several.each().chain([&*self.slots[1]]);
        select(keys.map(of).map(<[u8]>::to_vec).collect::<Vec<_>>())
    }
}

fn ttl() -> impl Strategy<Value = Duration> {
    select(&TTLS[..]).prop_map(Duration::from_secs)
}

/// The empty one and one more return often enough to be met again.
fn label() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![2 => Just(LABELS[0]), 2 => Just(LABELS[1]), 1 => select(&LABELS[..])].prop_map(Arc::from)
}

/// Generates fences and proposals: around each other, so that they meet, and far apart.
fn number() -> impl Strategy<Value = u64> {
    let far = vec![4_999_999_999_999_999, 5_000_000_000_000_001, 7_000_000_000_000_000];
    prop_oneof![6 => 1_u64..9, 1 => select(far)]
}

/// Generates what may stand for a fence. A fence key with what Lua's `tonumber` alone accepts must stop confirm and restore
/// as it stops acquire: otherwise the node would seem to remember a fence that it does not know. All numbers are below or
/// far beyond a clock's value, because of slack 0.
fn fence() -> impl Strategy<Value = String> {
    let most = 9_007_199_254_740_991_u64;
    let odd =
        vec!["", "-1", "1.5", "0x10", "1e3", "1e300", "nan", "007", "three", " 7", "7 ", "99999999999999999999999999"];
    prop_oneof![
        4 => (0_u64..9).prop_map(|fence| fence.to_string()),
        2 => select(vec![5_000_000_000_000_000, most - 2, most - 1, most, most + 1]).prop_map(|fence| fence.to_string()),
        2 => select(odd).prop_map(str::to_owned),
    ]
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
    let slack = select(vec![Duration::ZERO, NO_CLAMP]);
    prop_oneof![
        4 => (ttl(), number(), slack, ttl(), label(), option::of(wants())).prop_map(|(ttl, proposal, slack, fence_ttl, label, wants)| {
            Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants }
        }),
        3 => (number(), number(), ttl(), label()).prop_map(|(granted, fence, fence_ttl, label)| {
            Action::Confirm { granted, fence, fence_ttl, label }
        }),
        2 => (ttl(), number(), ttl(), option::of(number())).prop_map(|(ttl, fence, fence_ttl, floor)| {
            Action::Extend { ttl, fence, fence_ttl, floor }
        }),
        1 => any::<bool>().prop_map(|asks| Action::Release { asks, granted: None }),
        2 => (ttl(), number(), number(), ttl(), label()).prop_map(|(ttl, fence, level, fence_ttl, label)| {
            Action::Restore { ttl, fence, level, fence_ttl, label }
        }),
        2 => (0..TOKENS, ttl(), number(), ttl()).prop_map(|(former, ttl, fence, fence_ttl)| {
            Action::Rekey { former: OWNERS[former], ttl, fence, fence_ttl, back: false }
        }),
        1 => wants().prop_map(|wants| Action::Peek { wants }),
    ]
}

/// Generates requests that only a lock with a single owner and a single key has.
fn single_action() -> impl Strategy<Value = Action> {
    let rest = prop_oneof![Just(Duration::ZERO), ttl()];
    prop_oneof![
        2 => (any::<bool>(), rest).prop_map(|(asks, rest)| Action::Leave { asks, rest }),
        1 => any::<bool>().prop_map(|asks| Action::Inspect { asks }),
        3 => ttl().prop_map(|ttl| Action::SetnxAcquire { ttl }),
        2 => select(vec![-HOUR, HOUR]).prop_map(|from_now| Action::SetnxRelease { expiry: seconds_from_now(from_now) }),
    ]
}

/// Generates requests of a lock that is shared.
fn shared_action() -> impl Strategy<Value = Action> {
    prop_oneof![any::<bool>().prop_map(|asks| Action::Inspect { asks }), Just(Action::Withdraw)]
}

/// The steps fill one slot: a look at that one alone can find all of them held.
fn look(slots: &[Arc<Keys>; 3]) -> impl Strategy<Value = Action> + use<> {
    let seen: Vec<Arc<[Arc<Keys>]>> = vec![slots[..].into(), slots[1..2].into()];
    (select(seen), option::of(wants()), any::<bool>()).prop_map(|(slots, wants, anyway)| Action::Look {
        slots,
        wants,
        anyway,
    })
}

/// Returns a Unix second, as a client of the SETNX protocol writes it.
fn seconds_from_now(seconds: i64) -> u64 {
    (Clock::System.wall_micros() / 1_000_000).checked_add_signed(seconds).unwrap()
}

/// A token as it is written, and in upper-case digits.
fn written() -> impl Strategy<Value = Vec<u8>> {
    let digits = |owner: usize| OWNERS[owner].as_bytes().to_vec();
    prop_oneof![8 => (0..TOKENS).prop_map(digits), 1 => (0..TOKENS).prop_map(move |owner| digits(owner).to_ascii_uppercase())]
}

/// Generates what another client may have put under a lock key.
fn lock() -> impl Strategy<Value = Thing> {
    let tail = select(vec![&b""[..], b":", b":label", b":a:b", b"label", b":\n\xff\0"]);
    let ours = (written(), fence(), tail)
        .prop_map(|(token, fence, tail)| [&token, &b":"[..], fence.as_bytes(), tail].concat());
    let foreign = select(vec!["", "foreign", "abc:3:label", "0:0", "1.7e9", "-1700000000", "0x77359400"]);
    // What SETNX takes for a time, and what it does not.
    let bounds = select(vec![999_999_999_u64, 1_000_000_000, 100_000_000_000, 100_000_000_001]);
    let seconds = (select(vec![-HOUR, HOUR]), select(vec!["", ".0", ".5", ".", ".5s", " "]))
        .prop_map(|(from_now, tail)| format!("{}{tail}", seconds_from_now(from_now)).into_bytes());
    prop_oneof![
        6 => ours.prop_map(Thing::Text),
        1 => written().prop_map(Thing::Text),
        1 => foreign.prop_map(text),
        1 => bounds.prop_map(|bound| text(&bound.to_string())),
        2 => seconds.prop_map(Thing::Text),
        4 => sorted(),
        1 => Just(Thing::List),
        1 => Just(Thing::Hash),
    ]
}

/// Generates a sorted set, somewhat like a shared lock: the member that names the period, owners, and seldom a stranger.
/// Ends are some time in 2001, on the clock of another server.
fn sorted() -> impl Strategy<Value = Thing> {
    let period = fence().prop_map(|fence| format!("redlock:shared:{fence}").into_bytes());
    let stranger =
        select(vec!["a", "zzz", "period", "redlock:shared:3:4"]).prop_map(|member| member.as_bytes().to_vec());
    let endless = || prop_oneof![8 => Just(i64::MAX), 1 => Just(i64::MIN), 1 => Just(IN_2001 + 3_000_000)];
    let owner = (0..TOKENS, prop_oneof![4 => Just(LABELS[1]), 1 => Just(LABELS[2])])
        .prop_map(|(owner, label)| [OWNERS[owner].as_bytes(), b":", label.as_bytes()].concat());
    let end = select(vec![0, 500, 1_500, 4_000, 7_500]).prop_map(|seconds| IN_2001 + seconds * 1_000);
    let parts = (
        option::weighted(0.9, (endless(), period)),
        vec((end, owner), 0..4),
        option::weighted(0.1, (endless(), stranger)),
    );
    parts
        .prop_map(|(period, owners, stranger)| owners.into_iter().chain(period).chain(stranger).collect::<Vec<_>>())
        .prop_filter("servers have no empty sets", |members| !members.is_empty())
        .prop_map(Thing::Sorted)
}

#[derive(Clone, Debug)]
enum Step {
    /// The owner of the token of this number asks.
    Ask(Arc<Keys>, usize, Action),
    /// A confirm of exactly the lock key's value.
    ConfirmExactly(Arc<Keys>, u64, Duration),
    Put(Vec<u8>, Thing, Option<Duration>),
    Delete(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let shapes = Shapes::new();
    let fences = prop_oneof![
        8 => fence().prop_map(|text| Thing::Text(text.into())),
        1 => Just(Thing::List),
        1 => Just(Thing::Hash),
    ];
    let counts = select(vec!["0", "1", "2", "", "x"]).prop_map(text);
    let ask = |(keys, owner, action)| Step::Ask(keys, owner, action);
    let put = |(key, thing, ttl)| Step::Put(key, thing, ttl);
    prop_oneof![
        10 => (shapes.any(), 0..TOKENS, common_action()).prop_map(ask),
        2 => (shapes.single(), 0..TOKENS, single_action()).prop_map(ask),
        1 => (Just(Arc::clone(&shapes.shared)), 0..TOKENS, shared_action()).prop_map(ask),
        1 => (Just(Arc::clone(&shapes.slots[1])), 0..TOKENS, look(&shapes.slots)).prop_map(ask),
        2 => (shapes.any(), number(), ttl()).prop_map(|(keys, fence, ttl)| Step::ConfirmExactly(keys, fence, ttl)),
        2 => (shapes.key(|keys| &keys.lock), lock(), option::of(ttl())).prop_map(put),
        2 => (shapes.key(|keys| &keys.fence), fences, option::of(ttl())).prop_map(put),
        1 => (shapes.key(|keys| &keys.want), counts, Just(None)).prop_map(put),
        3 => shapes.key(|keys| &keys.lock).prop_map(Step::Delete),
        1 => shapes.key(|keys| &keys.fence).prop_map(Step::Delete),
    ]
}

/// Both nodes, the keys of one lock on them, and the callers' tokens.
struct Pair {
    memory: InMemory,
    server: OnServer,
    keys: Arc<Keys>,
    tokens: [Token; TOKENS],
}

impl Pair {
    fn start(program: Program) -> Self {
        Self::of(program, Keys::of(&name("foo")))
    }

    fn of(program: Program, keys: Arc<Keys>) -> Self {
        Self { memory: InMemory::new(), server: OnServer::start(program), keys, tokens: *OWNERS }
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
        match (&memory, &server) {
            (Ok(memory), Ok(server)) => {
                let (memory, server) = (without_clock(memory), without_clock(server));
                equal("reply", &memory.0, &server.0)?;
                equal("expiry in the reply", &memory.1, &server.1)?;
                near("ttl in the reply", memory.2, server.2)?;
            }
            (memory, server) => equal("reply", memory, server)?,
        }
        let each = request.keys.each().flat_map(|keys| [&*keys.lock, &*keys.fence, &*keys.want]);
        let keys: Vec<&[u8]> = each.chain(request.keys.bell()).collect();
        for (key, server) in keys.iter().zip(self.server.look_at(&keys)) {
            let memory = self.memory.look(key);
            equal("content", &memory.as_ref().map(shown), &server.as_ref().map(shown))?;
            same_scores(memory.as_ref(), server.as_ref())?;
            near("ttl", memory.and_then(|seen| seen.left), server.and_then(|seen| seen.left))?;
        }
        Ok(server)
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Ask(keys, owner, action) => {
                let action = self.timeless(keys, action.clone());
                self.ask_of(keys, *owner, action).map(drop)?;
            }
            Step::ConfirmExactly(keys, fence, fence_ttl) => {
                if let Some((owner, granted, label)) = self.granted(keys) {
                    let confirm = Action::Confirm { granted, fence: *fence, fence_ttl: *fence_ttl, label };
                    self.ask_of(keys, owner, confirm).map(drop)?;
                }
            }
            Step::Put(key, thing, ttl) => self.put(key, thing, *ttl),
            Step::Delete(key) => self.delete(key),
        }
        Ok(())
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

    /// Whose the lock is, with which fence and label.
    fn granted(&mut self, keys: &Keys) -> Option<(usize, u64, Arc<str>)> {
        let lock = self.memory.look(&keys.lock)?;
        let (token, rest) = std::str::from_utf8(lock.text()?).ok()?.split_once(':')?;
        let (granted, label) = rest.split_once(':').unwrap_or((rest, ""));
        let owner = self.tokens.iter().position(|owner| owner.as_bytes() == token.as_bytes())?;
        Some((owner, granted.parse().ok()?, label.into()))
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

/// Returns the reply without what a clock tells, a Unix second as a ttl from now, and the ttl.
fn without_clock(reply: &Reply) -> (Reply, Option<String>, Option<Duration>) {
    let mut reply = reply.clone();
    if let Reply::Seen { state: KeyState::Shared { labels, .. }, .. } = &mut reply {
        // Those of owners that end at nearly the same time may be in another order.
        labels.sort_unstable();
    }
    let left = match &mut reply {
        Reply::Held { ttl_left, .. }
        | Reply::HeldOff { ttl_left, .. }
        | Reply::Slots { ttl_left, .. }
        | Reply::Seen {
            state: KeyState::Ours { ttl_left, .. } | KeyState::Shared { ttl_left, .. } | KeyState::Foreign { ttl_left },
            ..
        } => ttl_left.take(),
        Reply::GrantedUntil(expiry) => return (Reply::GrantedUntil(0), Some(ttl_from_now(*expiry)), None),
        _ => None,
    };
    (reply, None, left)
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

/// The servers that come with the packages and with the system.
fn programs() -> impl Iterator<Item = Program> {
    [Some(Program::default()), Program::system()].into_iter().flatten()
}

#[test]
fn memory_equals_the_scripts() {
    for program in programs() {
        let pair = RefCell::new(Pair::start(program));
        let config = Config { cases: 600, ..Config::with_source_file(file!()) };
        let played = TestRunner::new(config).run(&vec(step(), 1..=40), |steps| {
            let mut pair = pair.borrow_mut();
            pair.clear();
            for (index, step) in steps.iter().enumerate() {
                pair.step(step).map_err(|why| TestCaseError::fail(format!("step {index}, {step:?}: {why}")))?;
            }
            Ok(())
        });
        played.unwrap_or_else(|error| panic!("{error}"));
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
    for program in programs() {
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
    for program in programs() {
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

/// Runs `test` on the nodes of both kinds, held equal at every step.
fn on_both(mut test: impl FnMut(&mut Pair)) {
    for program in programs() {
        test(&mut Pair::start(program));
    }
}

fn text(text: &str) -> Thing {
    Thing::Text(text.into())
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
            // The pair looks at the keys by a script.
            let scripts = if has_it { *scripts } else { 1 };
            assert_eq!([after[0] - looks, after[1] - before[1]], [scripts + 1, u64::from(has_it)], "{thing:?}");
        }
    });
}
