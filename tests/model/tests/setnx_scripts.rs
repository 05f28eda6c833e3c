//! The model's one step is that of the scripts, on a real server whose scripts are told what time it is.

use harness::Server;
use harness::redis::Value;
use proptest::prelude::*;
use redlock_model::Model;
use redlock_model::setnx::{Second, Setnx, State};

const ACQUIRE: &str = include_str!("../../../core/src/protocol/lua/setnx_acquire.lua");
const RELEASE: &str = include_str!("../../../core/src/protocol/lua/setnx_release.lua");

/// What comes before a script: its last argument is the time.
const CLOCK: &str = "
local server, redis = redis, {pcall = redis.pcall}
function redis.call(command, ...)
  if command == 'TIME' then return {ARGV[#ARGV], '0'} end
  return server.call(command, ...)
end
";

/// When the server deletes the key, in milliseconds; 0 is never.
const DELETED_AT: &str = "
local time, left = redis.call('TIME'), redis.call('PTTL', KEYS[1])
return left < 0 and 0 or left + time[1] * 1000 + math.floor(time[2] / 1000)
";

/// Second 0 of the model: so late that the server itself deletes nothing.
const ORIGIN: u64 = 10_000_000_000;

/// What is done to the model and to the server alike.
#[derive(Clone, Debug)]
enum Deed {
    Wait(Second),
    /// With a ttl in milliseconds.
    Acquire(u16),
    Release(Second),
    /// What an older client writes.
    Put(Second),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (0..4_u8).prop_map(Deed::Wait),
        (100..5_000_u16).prop_map(Deed::Acquire),
        (0..40_u8).prop_map(Deed::Release),
        (0..40_u8).prop_map(Deed::Put),
    ]
}

fn run(server: &Server, script: &str, argument: u64, now: u64) -> Value {
    let script = format!("{CLOCK}{script}");
    server.command(&["EVAL", &script, "1", "lock", &argument.to_string(), &now.to_string()])
}

/// Does the same to both; what they answer: the end of a lock won, or whether a release has deleted the key.
fn perform(deed: &Deed, state: &mut State<0>, server: &Server) -> (Option<u64>, Option<u64>) {
    let wall = |second: Second| ORIGIN + u64::from(second);
    match *deed {
        Deed::Wait(seconds) => {
            *state = state.at(state.now() + seconds);
            // The server would have deleted it by now.
            if state.value().is_none() {
                server.command(&["DEL", "lock"]);
            }
            (None, None)
        }
        Deed::Put(value) => {
            state.put(value);
            server.command(&["GETSET", "lock", &wall(value).to_string()]);
            (None, None)
        }
        Deed::Acquire(ttl_ms) => {
            let won = match run(server, ACQUIRE, ttl_ms.into(), wall(state.now())) {
                Value::Int(end) => u64::try_from(end).ok(),
                _ => None,
            };
            let ttl = Second::try_from(ttl_ms.div_ceil(1000)).expect("some seconds");
            (state.acquire(ttl).map(wall), won)
        }
        Deed::Release(end) => {
            let deleted = run(server, RELEASE, wall(end), wall(state.now())) == Value::Int(1);
            (Some(state.release(end).into()), Some(deleted.into()))
        }
    }
}

#[test]
fn the_model_is_what_the_scripts_do() {
    let server = Server::start();
    let model = Setnx { clients: [], stall: 0, release_stall: 0, copies: 1, left: None, time: (10, Second::MAX) };
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(deeds in prop::collection::vec(deed(), 1..20))| {
        server.command(&["DEL", "lock"]);
        let mut state = model.starts().remove(0);
        for deed in deeds {
            let (expected, answered) = perform(&deed, &mut state, &server);
            prop_assert_eq!(answered, expected, "{:?} at {}", deed, state.now());
            let value = state.value().map(|value| ORIGIN + u64::from(value));
            let stands = server.get("lock").map(|value| String::from_utf8(value).expect("digits"));
            prop_assert_eq!(stands, value.map(|value| value.to_string()), "after {:?}", deed);
            let Value::Int(deleted_at) = server.command(&["EVAL", DELETED_AT, "1", "lock"]) else { panic!("no number") };
            let expected = state.deleted_at().map_or(0, |second| (ORIGIN + u64::from(second)) * 1000);
            prop_assert!(deleted_at.unsigned_abs().abs_diff(expected) < 100, "{} after {:?}", deleted_at, deed);
        }
    });
}
