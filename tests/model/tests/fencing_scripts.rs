//! What the model's nodes do is what the scripts do, on a real server: for one name, for several of one lock, and for a lock
//! that owners share.
//!
//! The models do not look at the slots of a semaphore. That a node in memory answers `look.lua` as a server does, also
//! with waiters and a bell, is checked by `memory_equals_the_scripts` in
//! `core/tests/unit/equality.rs`, which gives all scripts more arguments and stranger keys than this test.

use harness::Server;
use harness::redis::Value;
use proptest::prelude::*;
use redlock::testing::model::{Answer, Ask, Keys, LEFT, NAMES_MOST, Period, execute_all, execute_shared};

const ACQUIRE: &str = include_str!("../../../core/src/protocol/lua/acquire.lua");
const CONFIRM: &str = include_str!("../../../core/src/protocol/lua/confirm.lua");
const EXTEND: &str = include_str!("../../../core/src/protocol/lua/extend.lua");
const RESTORE: &str = include_str!("../../../core/src/protocol/lua/restore.lua");
const REKEY: &str = include_str!("../../../core/src/protocol/lua/rekey.lua");
const RELEASE: &str = include_str!("../../../core/src/protocol/lua/release.lua");
const LEAVE: &str = include_str!("../../../core/src/protocol/lua/leave.lua");

const ACQUIRE_ALL: &str = include_str!("../../../core/src/protocol/lua/acquire_all.lua");
const CONFIRM_ALL: &str = include_str!("../../../core/src/protocol/lua/confirm_all.lua");
const EXTEND_ALL: &str = include_str!("../../../core/src/protocol/lua/extend_all.lua");
const RESTORE_ALL: &str = include_str!("../../../core/src/protocol/lua/restore_all.lua");
const REKEY_ALL: &str = include_str!("../../../core/src/protocol/lua/rekey_all.lua");
const RELEASE_ALL: &str = include_str!("../../../core/src/protocol/lua/release_all.lua");

/// A script about shared locks, as it is sent.
macro_rules! of_shared {
    ($name:literal) => {
        concat!(
            include_str!("../../../core/src/protocol/lua/period.lua"),
            include_str!(concat!("../../../core/src/protocol/lua/", $name, ".lua"))
        )
    };
}

const ACQUIRE_SHARED: &str = of_shared!("acquire_shared");
const CONFIRM_SHARED: &str = of_shared!("confirm_shared");
const EXTEND_SHARED: &str = of_shared!("extend_shared");
const RESTORE_SHARED: &str = of_shared!("restore_shared");
const REKEY_SHARED: &str = of_shared!("rekey_shared");
const RELEASE_SHARED: &str = of_shared!("release_shared");

/// Longer than any case, in milliseconds.
const LONG: &str = "60000";

/// So many microseconds that any proposal is near enough to the server's clock.
const SLACK: &str = "4000000000000000";

/// What is done to the model and to the server alike.
#[derive(Clone, Debug)]
enum Deed {
    /// This owner asks for so many names, the first ones.
    Ask(usize, u8, Ask),
    /// This owner asks for the first name, to share it.
    Share(u8, Ask),
    /// The lock key of the first name ends for this owner, if it shares it.
    EndsFor(u8),
    /// The lock key of this name ends.
    Ends(usize),
    /// The fence key of this name says this, after a loss of data.
    Loses(usize, u64),
}

/// Generates what is done to locks of at most `names` names, of which the first one may be `shared`.
fn deed(names: usize, shared: bool) -> impl Strategy<Value = Deed> {
    let ask = || {
        prop_oneof![
            (1..8_u64).prop_map(|proposal| Ask::Acquire { proposal }),
            (1..8_u64, 1..8_u64).prop_map(|(granted, fence)| Ask::Confirm { granted, fence }),
            (1..8_u64, prop::option::of(1..8_u64)).prop_map(|(fence, floor)| Ask::Extend { fence, floor }),
            (1..8_u64, 1..8_u64).prop_map(|(fence, level)| Ask::Restore { fence, level }),
            (0..3_u8, 1..8_u64).prop_map(|(former, fence)| Ask::Rekey { former, fence }),
            Just(Ask::Release),
            Just(Ask::Leave),
        ]
    };
    let share = |(owner, ask)| Deed::Share(owner, if ask == Ask::Leave { Ask::Release } else { ask });
    let weight = if shared { 8 } else { 0 };
    // A lock of several names is not left.
    let asked = |(names, owner, ask)| Deed::Ask(if ask == Ask::Leave { 1 } else { names }, owner, ask);
    prop_oneof![
        8 => (1..=names, 0..3_u8, ask()).prop_map(asked),
        weight => (0..3_u8, ask()).prop_map(share),
        weight / 4 => (0..3_u8).prop_map(Deed::EndsFor),
        2 => (0..names).prop_map(Deed::Ends),
        1 => (0..names, 0..8_u64).prop_map(|(name, left)| Deed::Loses(name, left)),
    ]
}

/// A token whose halves differ.
fn token(owner: u8) -> String {
    format!("ff{}", format!("{owner:02x}").repeat(15))
}

/// What stands in place of it in a lock that was left.
fn left(owner: u8) -> String {
    let token = token(owner);
    let (first, second) = token.split_at(token.len() / 2);
    format!("{second}{first}")
}

/// The lock keys of so many names, and then their fence keys.
fn keys_of(names: usize) -> Vec<String> {
    ["lock", "fence"].iter().flat_map(|key| (0..names).map(move |name| format!("{key} {name}"))).collect()
}

fn run(server: &Server, script: &str, keys: &[String], arguments: &[&str]) -> Value {
    let number = keys.len().to_string();
    let mut command = vec!["EVAL", script, &number];
    command.extend(keys.iter().map(String::as_str));
    command.extend(arguments);
    server.command(&command)
}

/// Runs an extension, with a fence to remember if there is one.
fn extended(server: &Server, script: &str, keys: &[String], arguments: &[&str], floor: Option<u64>) -> Value {
    let floor = floor.map(|floor| floor.to_string());
    let arguments: Vec<&str> = arguments.iter().copied().chain(floor.as_deref()).collect();
    run(server, script, keys, &arguments)
}

/// What the server answers.
fn asked(server: &Server, names: usize, owner: u8, ask: Ask) -> Answer {
    let (token, keys) = (token(owner), keys_of(names));
    let value =
        if names == 1 { asked_for_one(server, &keys, &token, ask) } else { asked_for_all(server, &keys, &token, ask) };
    answer(ask, value)
}

/// What the server answers to one who would share the lock.
fn asked_to_share(server: &Server, owner: u8, ask: Ask) -> Answer {
    let (token, keys) = (&*token(owner), &keys_of(1));
    let value = match ask {
        Ask::Acquire { proposal } => {
            run(server, ACQUIRE_SHARED, keys, &[token, &proposal.to_string(), SLACK, LONG, LONG, "", "0", "0", "0"])
        }
        Ask::Confirm { granted, fence } => {
            run(server, CONFIRM_SHARED, keys, &[token, &granted.to_string(), &fence.to_string(), LONG])
        }
        Ask::Extend { fence, floor } => {
            extended(server, EXTEND_SHARED, keys, &[token, LONG, &fence.to_string(), LONG], floor)
        }
        Ask::Restore { fence, level } => {
            run(server, RESTORE_SHARED, keys, &[token, LONG, &level.to_string(), LONG, &fence.to_string()])
        }
        Ask::Rekey { former, fence } => {
            run(server, REKEY_SHARED, keys, &[token, LONG, &fence.to_string(), LONG, &self::token(former)])
        }
        Ask::Release => run(server, RELEASE_SHARED, &keys[..1], &[token]),
        Ask::Leave => unreachable!("a shared lock is not left"),
    };
    answer(ask, value)
}

fn answer(ask: Ask, value: Value) -> Answer {
    let number = |bytes: &[u8]| str::from_utf8(bytes).expect("digits").parse().ok();
    match (ask, value) {
        (Ask::Acquire { .. }, Value::Int(fence)) => Answer::Granted(fence.unsigned_abs()),
        (Ask::Acquire { .. }, Value::Array(held)) => match &held[0] {
            Value::BulkString(mine) => number(mine).map_or(Answer::Refused, Answer::Granted),
            other => panic!("{other:?}"),
        },
        (Ask::Extend { .. }, Value::Int(2)) => Answer::Raised,
        (Ask::Extend { .. } | Ask::Rekey { .. } | Ask::Restore { .. }, Value::Int(ahead @ ..=-2)) => {
            Answer::Ahead(ahead.unsigned_abs())
        }
        (_, Value::Int(1)) => Answer::Done,
        (_, Value::Int(_)) => Answer::Refused,
        (_, other) => panic!("{other:?}"),
    }
}

fn asked_for_one(server: &Server, keys: &[String], token: &str, ask: Ask) -> Value {
    match ask {
        Ask::Acquire { proposal } => {
            run(server, ACQUIRE, keys, &[&format!("{token}:{proposal}"), "", LONG, LONG, "", "", "", SLACK])
        }
        Ask::Confirm { granted, fence } => {
            run(server, CONFIRM, keys, &[&format!("{token}:{granted}"), &fence.to_string(), LONG])
        }
        Ask::Extend { fence, floor } => extended(server, EXTEND, keys, &[token, LONG, &fence.to_string(), LONG], floor),
        Ask::Restore { fence, level } => {
            run(server, RESTORE, keys, &[token, LONG, &level.to_string(), LONG, "", &fence.to_string()])
        }
        Ask::Rekey { former, fence } => {
            run(server, REKEY, keys, &[token, LONG, &fence.to_string(), LONG, &self::token(former)])
        }
        Ask::Release => run(server, RELEASE, &keys[..1], &[token]),
        Ask::Leave => run(server, LEAVE, &keys[..1], &[token, LONG]),
    }
}

fn asked_for_all(server: &Server, keys: &[String], token: &str, ask: Ask) -> Value {
    let names = keys.len() / 2;
    let number = names.to_string();
    match ask {
        Ask::Acquire { proposal } => {
            run(server, ACQUIRE_ALL, keys, &[token, &proposal.to_string(), SLACK, LONG, LONG, "", &number, "", "", ""])
        }
        Ask::Confirm { granted, fence } => {
            run(server, CONFIRM_ALL, keys, &[&format!("{token}:{granted}"), &fence.to_string(), LONG, &number])
        }
        Ask::Extend { fence, floor } => {
            extended(server, EXTEND_ALL, keys, &[token, LONG, &fence.to_string(), LONG, &number], floor)
        }
        Ask::Restore { fence, level } => {
            let (fence, level) = (fence.to_string(), level.to_string());
            run(server, RESTORE_ALL, keys, &[token, LONG, &level, LONG, "", &number, &fence])
        }
        Ask::Rekey { former, fence } => {
            run(server, REKEY_ALL, keys, &[token, LONG, &fence.to_string(), LONG, &self::token(former), &number])
        }
        Ask::Release => run(server, RELEASE_ALL, &keys[..names], &[token, &number]),
        Ask::Leave => unreachable!("a lock of several names is not left"),
    }
}

/// What the server keeps for a name.
fn kept(server: &Server, name: usize) -> Keys {
    let text = |key: &str| {
        server.get(format!("{key} {name}")).map(|value| String::from_utf8(value).expect("what a script writes"))
    };
    let fence = text("fence").map_or(0, |fence| fence.parse().expect("digits"));
    let lock_key = format!("lock {name}");
    if let Value::SimpleString(kind) = server.command(&["TYPE", &lock_key])
        && kind == "zset"
    {
        return Keys { lock: None, shared: Some(shared(server, &lock_key)), fence };
    }
    let lock = text("lock").map(|value| {
        let (owner, fence) = value.split_once(':').expect("a fence");
        let is_known = |known: &u8| if *known < LEFT { token(*known) } else { left(*known - LEFT) } == owner;
        let owner = (0..3).chain(LEFT..LEFT + 3).find(is_known).expect("one of the tokens");
        (owner, fence.parse().expect("digits"))
    });
    Keys { lock, shared: None, fence }
}

/// Who shares a lock on the server.
fn shared(server: &Server, lock: &str) -> Period {
    let Value::Array(members) = server.command(&["ZRANGE", lock, "0", "-1"]) else { panic!("members") };
    let mut period = Period { fence: 0, owners: 0 };
    for member in members {
        let Value::BulkString(member) = member else { panic!("{member:?}") };
        let member = String::from_utf8(member).expect("what a script writes");
        match member.strip_prefix("redlock:shared:") {
            Some(fence) => period.fence = fence.parse().expect("digits"),
            None => period.owners |= 1 << (0..3).find(|owner| token(*owner) == member).expect("one of the tokens"),
        }
    }
    period
}

/// Does the same to the model and to a server, with locks of at most `names` names, of which the first one may be `shared`.
fn compare(names: usize, shared: bool, cases: u32) {
    let server = Server::start();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(deeds in prop::collection::vec(deed(names, shared), 1..20))| {
        for key in keys_of(names) {
            server.command(&["DEL", &key]);
        }
        let mut keys = vec![Keys::default(); names];
        for deed in deeds {
            match deed {
                Deed::Ask(of, owner, ask) => {
                    let before = keys.clone();
                    let answer = execute_all(&mut keys[..of], owner, ask);
                    prop_assert_eq!(answer, asked(&server, of, owner, ask), "{:?} of {} at {:?}", ask, owner, before);
                    if ask == Ask::Release {
                        for (now, before) in keys[..of].iter().zip(before) {
                            let is_ours = before.lock.is_some_and(|(held_by, _)| held_by == owner);
                            prop_assert_eq!(*now, if is_ours { Keys { lock: None, ..before } } else { before });
                        }
                    }
                }
                Deed::Share(owner, ask) => {
                    let before = keys[0];
                    let answer = execute_shared(&mut keys[0], owner, ask);
                    prop_assert_eq!(answer, asked_to_share(&server, owner, ask), "{:?} of {} at {:?}", ask, owner, before);
                }
                Deed::EndsFor(owner) => {
                    if let Some(period) = keys[0].shared {
                        keys[0].shared = period.without(owner);
                        server.command(&["ZREM", "lock 0", &token(owner)]);
                        if keys[0].shared.is_none() {
                            server.command(&["DEL", "lock 0"]);
                        }
                    }
                }
                Deed::Ends(name) => {
                    server.command(&["DEL", &format!("lock {name}")]);
                    (keys[name].lock, keys[name].shared) = (None, None);
                }
                Deed::Loses(name, left) => {
                    server.command(&["DEL", &format!("lock {name}"), &format!("fence {name}")]);
                    if left > 0 {
                        server.command(&["SET", &format!("fence {name}"), &left.to_string()]);
                    }
                    keys[name] = Keys { fence: left, ..Keys::default() };
                }
            }
            for (name, keys) in keys.iter().enumerate() {
                prop_assert_eq!(*keys, kept(&server, name), "name {} after {:?}", name, deed);
            }
        }
    });
}

#[test]
fn the_nodes_of_the_model_do_what_the_scripts_do() {
    compare(1, false, 300);
}

/// Some of the locks have several of the names, and others one, so that each meets the keys of the others.
#[test]
fn the_nodes_of_the_model_do_what_the_scripts_of_several_names_do() {
    compare(NAMES_MOST, false, 600);
}

/// Some share the lock of the first name, and others have it alone or with other names.
#[test]
fn the_nodes_of_the_model_do_what_the_scripts_of_a_shared_lock_do() {
    compare(1, true, 600);
    compare(NAMES_MOST, true, 300);
}
