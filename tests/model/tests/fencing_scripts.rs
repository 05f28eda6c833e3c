//! What the model's nodes do is what the scripts do, on a real server.

use harness::Server;
use harness::redis::Value;
use proptest::prelude::*;
use redlock::testing::model::{Answer, Ask, Keys};

const ACQUIRE: &str = include_str!("../../../core/src/protocol/lua/acquire.lua");
const CONFIRM: &str = include_str!("../../../core/src/protocol/lua/confirm.lua");
const EXTEND: &str = include_str!("../../../core/src/protocol/lua/extend.lua");
const RESTORE: &str = include_str!("../../../core/src/protocol/lua/restore.lua");
const RELEASE: &str = include_str!("../../../core/src/protocol/lua/release.lua");

/// Longer than any case, in milliseconds.
const LONG: &str = "60000";

/// So many microseconds that any proposal is near enough to the server's clock.
const SLACK: &str = "4000000000000000";

/// What is done to the model and to the server alike.
#[derive(Clone, Debug)]
enum Deed {
    Ask(u8, Ask),
    /// The lock key ends.
    Ends,
    /// The fence key says this, after a loss of data.
    Loses(u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let ask = prop_oneof![
        (1..8_u64).prop_map(|proposal| Ask::Acquire { proposal }),
        (1..8_u64, 1..8_u64).prop_map(|(granted, fence)| Ask::Confirm { granted, fence }),
        (1..8_u64).prop_map(|fence| Ask::Extend { fence }),
        (1..8_u64).prop_map(|fence| Ask::Restore { fence }),
        Just(Ask::Release),
    ];
    let ask = (0..3_u8, ask).prop_map(|(owner, ask)| Deed::Ask(owner, ask));
    prop_oneof![8 => ask, 2 => Just(Deed::Ends), 1 => (0..8_u64).prop_map(Deed::Loses)]
}

fn token(owner: u8) -> String {
    format!("{owner:02x}").repeat(16)
}

fn run(server: &Server, script: &str, arguments: &[&str]) -> Value {
    server.command(&[&["EVAL", script, "2", "lock", "fence"], arguments].concat())
}

/// What the server answers.
fn asked(server: &Server, owner: u8, ask: Ask) -> Answer {
    let token = token(owner);
    let value = match ask {
        Ask::Acquire { proposal } => {
            run(server, ACQUIRE, &[&format!("{token}:{proposal}"), "", LONG, LONG, "", "", "", SLACK])
        }
        Ask::Confirm { granted, fence } => {
            run(server, CONFIRM, &[&format!("{token}:{granted}"), &fence.to_string(), LONG])
        }
        Ask::Extend { fence } => run(server, EXTEND, &[&token, LONG, &fence.to_string(), LONG]),
        Ask::Restore { fence } => run(server, RESTORE, &[&token, LONG, &fence.to_string(), LONG, ""]),
        Ask::Release => server.command(&["EVAL", RELEASE, "1", "lock", &token]),
    };
    let number = |bytes: &[u8]| str::from_utf8(bytes).expect("digits").parse().ok();
    match (ask, value) {
        (Ask::Acquire { .. }, Value::Int(fence)) => Answer::Granted(fence.unsigned_abs()),
        (Ask::Acquire { .. }, Value::Array(held)) => match &held[0] {
            Value::BulkString(mine) => number(mine).map_or(Answer::Refused, Answer::Granted),
            other => panic!("{other:?}"),
        },
        (_, Value::Int(1)) => Answer::Done,
        (_, Value::Int(_)) => Answer::Refused,
        (_, other) => panic!("{other:?}"),
    }
}

/// What the server keeps.
fn kept(server: &Server) -> Keys {
    let text = |key| server.get(key).map(|value| String::from_utf8(value).expect("what a script writes"));
    let lock = text("lock").map(|value| {
        let (owner, fence) = value.split_once(':').expect("a fence");
        let owner = (0..3).find(|known| token(*known) == owner).expect("one of the tokens");
        (owner, fence.parse().expect("digits"))
    });
    Keys { lock, fence: text("fence").map_or(0, |fence| fence.parse().expect("digits")) }
}

#[test]
fn the_nodes_of_the_model_do_what_the_scripts_do() {
    let server = Server::start();
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(deeds in prop::collection::vec(deed(), 1..20))| {
        server.command(&["DEL", "lock", "fence"]);
        let mut keys = Keys::default();
        for deed in deeds {
            match deed {
                Deed::Ask(owner, ask) => {
                    let before = keys;
                    let answer = keys.execute(owner, ask);
                    prop_assert_eq!(answer, asked(&server, owner, ask), "{:?} of {} at {:?}", ask, owner, before);
                    if ask == Ask::Release {
                        let ended = Keys { lock: None, ..before };
                        prop_assert_eq!(keys, if answer == Answer::Done { ended } else { before });
                    }
                }
                Deed::Ends => {
                    server.command(&["DEL", "lock"]);
                    keys.lock = None;
                }
                Deed::Loses(left) => {
                    server.command(&["DEL", "lock", "fence"]);
                    if left > 0 {
                        server.command(&["SET", "fence", &left.to_string()]);
                    }
                    keys = Keys { lock: None, fence: left };
                }
            }
            prop_assert_eq!(keys, kept(&server), "after {:?}", deed);
        }
    });
}
