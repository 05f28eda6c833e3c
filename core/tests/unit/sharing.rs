//! What a server does with a shared lock beside answering: it notifies, runs out of memory, and refuses what a user has no
//! right to. Tests, on every kind of server that there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use harness::{Program, Server};
use redis::FromRedisValue;
use tokio::runtime::{Builder, Runtime};

use super::Connection;
use super::testing::connect;
use crate::node::event::{EventSink, NodeEvent};
use crate::protocol::name::Name;
use crate::protocol::request::{Action, Keys, Reply, Request, Wants};
use crate::protocol::token::Token;
use crate::sys::clock::Clock;
use crate::sys::random::Random;
use crate::transport::failure::Failure;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// Longer than a server that is not overloaded takes for anything here.
const LONG: Duration = Duration::from_secs(20);

/// How many owners there are here.
const OWNERS: usize = 4;

/// The rights that SECURITY.md names for the scripts of a shared lock.
const RIGHTS: &str = "get set del pexpire pttl time incr getex getdel type zadd zrem zrange zscore zremrangebyscore";

/// A server, a connection that is not notified and one that is, and some owners.
struct Stage {
    quiet: Connection,
    notified: Connection,
    /// How often the lock key was reported as changed.
    changes: Arc<AtomicU32>,
    shared: Arc<Keys>,
    alone: Arc<Keys>,
    owners: [Token; OWNERS],
    runtime: Runtime,
    own: redis::Connection,
    _server: Server,
}

impl Stage {
    fn start(program: Program) -> Self {
        let server = Server::builder().program(program).start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let changes = Arc::new(AtomicU32::new(0));
        let name = Name::parse(*b"foo").unwrap();
        let (counted, lock) = (Arc::clone(&changes), Arc::clone(name.lock_key()));
        let events = EventSink::new(true, move |event| {
            if matches!(event, NodeEvent::Changed(key) if *key == *lock) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self {
            quiet: connect(&server, &runtime, None),
            notified: connect(&server, &runtime, Some(events)),
            changes,
            shared: Keys::of_shared(&name, "worker-7".into()),
            alone: Keys::of(&name),
            owners: std::array::from_fn(|_| Token::fresh(&Random::System)),
            own: server.connect(),
            runtime,
            _server: server,
        }
    }

    fn request(&self, keys: &Arc<Keys>, owner: usize, action: Action) -> Request {
        Request { keys: Arc::clone(keys), token: self.owners[owner], action }
    }

    /// Asks as one of those who share the lock.
    fn ask(&self, owner: usize, action: Action) -> Result<Reply, Failure> {
        self.runtime.block_on(self.quiet.call_known(&self.request(&self.shared, owner, action)))
    }

    /// Asks as the one who would have the lock alone, on the connection that is notified.
    fn ask_alone(&self, action: Action) -> Result<Reply, Failure> {
        self.runtime.block_on(self.notified.call_known(&self.request(&self.alone, OWNERS - 1, action)))
    }

    fn command<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.own).unwrap()
    }

    /// Returns how far the lock key's own clock is from the server's, in milliseconds; `None` if nobody shares the lock.
    fn clock_error(&mut self) -> Option<i64> {
        let ends: Vec<(String, f64)> =
            redis::cmd("ZRANGE").arg("foo").arg(-2).arg(-2).arg("WITHSCORES").query(&mut self.own).unwrap();
        #[allow(clippy::cast_possible_truncation, reason = "a time in milliseconds")]
        let end = ends.first()?.1 as i64;
        let left: i64 = self.command(&["PTTL", "foo"]);
        let (seconds, micros): (i64, i64) = self.command(&["TIME"]);
        Some(end - left - (seconds * 1_000 + micros / 1_000))
    }
}

fn acquire(ttl: Duration, wants: Option<Wants>) -> Action {
    let (slack, fence_ttl, label) = (Duration::from_secs(200 * 365 * 86_400), HOUR, "".into());
    Action::Acquire { ttl, proposal: 5, slack, fence_ttl, label, wants }
}

fn extend(ttl: Duration) -> Action {
    Action::Extend { ttl, fence: 1_000, fence_ttl: HOUR, floor: None }
}

fn restore(fence: u64) -> Action {
    Action::Restore { ttl: MINUTE, fence, level: fence, fence_ttl: HOUR, label: "".into() }
}

const RELEASE: Action = Action::Release { asks: true, granted: None };

/// The embedded server and that of the system.
fn stages() -> impl Iterator<Item = Stage> {
    [Some(Program::default()), Program::system()].into_iter().flatten().map(Stage::start)
}

#[test]
fn whoever_was_denied_is_notified_of_each_change_of_a_shared_lock() {
    for stage in stages() {
        assert!(matches!(stage.ask(0, acquire(MINUTE, None)), Ok(Reply::Granted(_))));
        let denied = || {
            let asks = acquire(MINUTE, Some(Wants { position: 1, keep: true, ..Wants::default() }));
            assert!(matches!(stage.ask_alone(asks), Ok(Reply::Held { hold: 0, .. })));
        };
        let notified = |what: &str, change: &dyn Fn()| {
            denied();
            let before = stage.changes.load(Ordering::SeqCst);
            change();
            stage.runtime.block_on(async {
                let until = Clock::System.now().after(LONG);
                while stage.changes.load(Ordering::SeqCst) == before {
                    assert!(Clock::System.now() < until, "not notified when {what}");
                    Clock::System.sleep(Duration::from_millis(1)).await;
                }
            });
        };
        notified("one joins", &|| drop(stage.ask(1, acquire(MINUTE, Some(Wants::ANYWAY))).unwrap()));
        notified("one extends", &|| assert_eq!(stage.ask(0, extend(HOUR)), Ok(Reply::Extended)));
        notified("one is restored", &|| assert_eq!(stage.ask(2, restore(1_000)), Ok(Reply::Restored)));
        notified("one leaves", &|| drop(stage.ask(1, RELEASE).unwrap()));
        // Readers that wait track the same key.
        notified("the last who waits gives up", &|| {
            let withdrawn = stage.ask(0, Action::Withdraw);
            assert_eq!(withdrawn, Ok(Reply::Withdrawn { waiting: 0 }));
        });
        stage.ask(2, RELEASE).unwrap();
        notified("the last one leaves", &|| drop(stage.ask(0, RELEASE).unwrap()));
        stage.ask(0, acquire(Duration::from_secs(1), None)).unwrap();
        notified("all have ended", &|| {});
    }
}

/// A server remembers who has read a key until the key changes, and a name may never be used again.
#[test]
fn a_server_forgets_who_gives_up_when_the_lock_has_gone() {
    for mut stage in stages() {
        let _: () = stage.command(&["SET", "redlock:waiters:{foo}", "1", "PX", "60000"]);
        assert_eq!(stage.ask_alone(Action::Withdraw), Ok(Reply::Refused));
        let told: String = stage.command(&["INFO", "stats"]);
        assert!(told.contains("tracking_total_keys:0\r\n"), "{told}");
    }
}

/// At maxmemory, whoever shares a lock keeps it: servers refuse ZADD, but not behind another write of the same script.
#[test]
fn a_server_that_is_full_still_extends_and_releases() {
    for mut stage in stages() {
        for owner in [0, 1] {
            stage.ask(owner, acquire(MINUTE, None)).unwrap();
        }
        let _: () = stage.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let full = Err(Failure::of_code("OOM"));
        assert_eq!(stage.ask(0, extend(HOUR)), Ok(Reply::Extended));
        let left: i64 = stage.command(&["PTTL", "foo"]);
        assert!(left > 3_000_000, "{left}");
        assert!(stage.clock_error().unwrap().abs() < 1_000, "the key's own clock stays right");
        assert_eq!(stage.ask(2, restore(1_000)), full, "what has no fence there takes more memory");
        for (owner, waiting) in [(0, 0), (1, 0)] {
            assert_eq!(stage.ask(owner, RELEASE), Ok(Reply::Deleted { waiting }));
        }
        assert_eq!(stage.ask(2, acquire(MINUTE, None)), full);
        assert_eq!(stage.ask(2, restore(1_000)), full);
        let keys: u32 = stage.command(&["EXISTS", "foo"]);
        assert_eq!(keys, 0, "nothing is left");
    }
}

/// A right that is missing stops a script in the middle. Even then no key stays without an end, and no owner ends later
/// or earlier than it should.
#[test]
fn a_right_that_is_missing_leaves_no_key_without_an_end() {
    for mut stage in stages() {
        for missing in RIGHTS.split(' ') {
            let rules = |right: &str| format!("{right}{missing}");
            let limit = |stage: &mut Stage, right: &str| {
                let _: () = stage.command(&["ACL", "SETUSER", "default", &rules(right)]);
            };
            let mut refused = 0;
            for before in 0..3 {
                for action in [acquire(MINUTE, None), extend(HOUR), restore(1_000), RELEASE] {
                    redis::cmd("FLUSHALL").exec(&mut stage.own).unwrap();
                    for owner in 0..before {
                        stage.ask(owner, acquire(MINUTE, None)).unwrap();
                    }
                    let is_new = matches!(action, Action::Acquire { .. } | Action::Restore { .. });
                    let owner = if is_new { before } else { 0 };
                    // What this connection does for the test is done as another user.
                    limit(&mut stage, "-");
                    let answer = stage.ask(owner, action.clone());
                    let _: () =
                        redis::cmd("ACL").arg(&["SETUSER", "default", "allcommands"]).query(&mut stage.own).unwrap();
                    let left: i64 = stage.command(&["PTTL", "foo"]);
                    assert_ne!(left, -1, "{action:?} without {missing}");
                    let error = stage.clock_error().unwrap_or(0);
                    assert!(error.abs() < 1_000, "{action:?} without {missing}: {error} ms off");
                    refused += u32::from(matches!(answer, Err(Failure::Forbidden(_))));
                }
            }
            let is_hint = ["incr", "getex", "getdel"].contains(&missing);
            assert_eq!(refused == 0, is_hint, "without {missing}");
        }
    }
}
