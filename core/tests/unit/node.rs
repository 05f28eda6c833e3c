//! One node seen from both sides, for tests: asked through the scripts, and prepared and read as by any other client. A
//! store in memory and a real server.

use std::fmt;
use std::time::Duration;

use harness::{Program, Server};
use tokio::runtime::{Builder, Runtime};

use super::Connection;
use super::memory::{Content, SortedSet, Store};
use super::redis::{How, RedisNode};
use crate::address::Address;
use crate::node::event::EventSink;
use crate::protocol::request::{Reply, Request};
use crate::sys::clock::Clock;
use crate::transport::failure::Failure;
use crate::transport::progress::Progress;

/// The part of a ttl that may pass between the same step on two nodes, or between a step and its check. Ttls in these
/// tests are far larger, so that no key expires.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(100);

/// A value that no script of ours puts under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Text(Vec<u8>),
    /// Members and their scores.
    Sorted(Vec<(i64, Vec<u8>)>),
    List,
    Hash,
}

/// A key's content, and how long it has left unless it lives for ever.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) content: Content,
    pub(crate) left: Option<Duration>,
}

impl Seen {
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Sorted(_) | Content::Other => None,
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "\"{}\" for {:?}", text.escape_ascii(), self.left),
            None => write!(f, "no string for {:?}", self.left),
        }
    }
}

/// A node in memory whose time stands still.
#[derive(Debug)]
pub(crate) struct InMemory {
    store: Store,
    now: u64,
}

impl InMemory {
    pub(crate) fn new() -> Self {
        Self { store: Store::default(), now: Clock::System.wall_micros() }
    }

    /// Makes the node execute a script.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        self.store.execute_tampered(self.now, request)
    }

    /// Puts a value under a key, replacing any.
    pub(crate) fn put(&mut self, key: &[u8], thing: &Thing, ttl: Option<Duration>) {
        let content = match thing {
            Thing::Text(text) => Content::Text(text.clone()),
            Thing::Sorted(members) => Content::Sorted(members.iter().cloned().collect()),
            Thing::List | Thing::Hash => Content::Other,
        };
        let now = self.now;
        let expires = ttl.map(|ttl| now + u64::try_from(ttl.as_micros()).unwrap());
        self.store.put(key, content, expires);
    }

    /// Deletes a key, as its expiry would.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.store.delete(key);
    }

    /// Looks at a key.
    pub(crate) fn look(&mut self, key: &[u8]) -> Option<Seen> {
        let content = self.store.contents(self.now).find(|(other, _)| *other == key)?.1.clone();
        Some(Seen { content, left: self.store.ttl_left(self.now, key) })
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) {
        // Its time is that of the servers again, which has gone on.
        *self = Self::new();
    }
}

/// A real server: the library's connection asks it, and the test's own prepares and reads it.
pub(crate) struct OnServer {
    connection: Connection,
    runtime: Runtime,
    own: redis::Connection,
    server: Server,
}

impl OnServer {
    pub(crate) fn start(program: Program) -> Self {
        let server = Server::builder().program(program).start();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { connection: connect(&server, &runtime, None), runtime, own: server.connect(), server }
    }

    /// Returns how many of these commands the server has been sent.
    pub(crate) fn asked(&self, commands: &[&str]) -> u64 {
        self.server.asked(commands)
    }

    /// Returns whether the server knows the command.
    pub(crate) fn knows(&self, command: &str) -> bool {
        matches!(self.server.command(&["COMMAND", "INFO", command]), redis::Value::Array(known) if known != [redis::Value::Nil])
    }

    /// Looks at several keys.
    pub(crate) fn look_at(&mut self, keys: &[&[u8]]) -> Vec<Option<Seen>> {
        type Looked = (String, Vec<u8>, i64, Vec<Vec<u8>>);
        let mut look = redis::cmd("EVAL");
        let looked: Vec<Looked> = look.arg(LOOK).arg(keys.len()).arg(keys).query(&mut self.own).unwrap();
        assert_eq!(looked.len(), keys.len());
        let seen = |(kind, text, left, members): Looked| {
            let members = members.chunks(2).map(|pair| (score_of(&pair[1]), pair[0].clone()));
            let content = match kind.as_str() {
                "none" => return None,
                "string" => Content::Text(text),
                "zset" => Content::Sorted(members.collect::<SortedSet>()),
                _ => Content::Other,
            };
            Some(Seen { content, left: u64::try_from(left).ok().map(Duration::from_millis) })
        };
        looked.into_iter().map(seen).collect()
    }

    /// Reads the server's clock, in microseconds.
    pub(crate) fn time(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.own).unwrap();
        seconds * 1_000_000 + micros
    }

    /// Makes the node execute a script.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        self.runtime.block_on(self.connection.call_known(request))
    }

    /// Puts a value under a key, replacing any.
    pub(crate) fn put(&mut self, key: &[u8], thing: &Thing, ttl: Option<Duration>) {
        let mut steps = redis::pipe();
        steps.del(key).ignore();
        match thing {
            Thing::Text(text) => steps.set(key, text).ignore(),
            Thing::Sorted(members) => {
                for (score, member) in members {
                    steps.cmd("ZADD").arg(key).arg(text_of(*score)).arg(member).ignore();
                }
                &mut steps
            }
            Thing::List => steps.rpush(key, "element").ignore(),
            Thing::Hash => steps.hset(key, "field", "value").ignore(),
        };
        if let Some(ttl) = ttl {
            steps.pexpire(key, i64::try_from(ttl.as_millis()).unwrap()).ignore();
        }
        steps.exec(&mut self.own).unwrap();
    }

    /// Deletes a key, as its expiry would.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        redis::cmd("DEL").arg(key).exec(&mut self.own).unwrap();
    }

    /// Looks at a key.
    pub(crate) fn look(&mut self, key: &[u8]) -> Option<Seen> {
        self.look_at(&[key]).remove(0)
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.own).unwrap();
    }
}

/// Connects to a server as the library does, which tells `events` of changes if there are any.
pub(crate) fn connect(server: &Server, runtime: &Runtime, events: Option<EventSink>) -> Connection {
    let node = RedisNode::new(&Address::parse(&server.url()).unwrap(), None, None, None);
    let how = How { clock: &Clock::System, progress: &Progress::default(), events, is_known: false };
    Connection::Redis(runtime.block_on(node.connect(&how)).unwrap().0)
}

/// Reads any keys in one request.
const LOOK: &str = "local seen = {}
for place, key in ipairs(KEYS) do
local kind = redis.call('TYPE', key).ok
local members = kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') or {}
seen[place] = {kind, kind == 'string' and redis.call('GET', key) or '', redis.call('PTTL', key), members}
end
return seen";

/// A score as a server writes it.
fn score_of(text: &[u8]) -> i64 {
    match text {
        b"inf" => i64::MAX,
        b"-inf" => i64::MIN,
        digits => std::str::from_utf8(digits).unwrap().parse().unwrap(),
    }
}

fn text_of(score: i64) -> String {
    match score {
        i64::MAX => "inf".to_owned(),
        i64::MIN => "-inf".to_owned(),
        score => score.to_string(),
    }
}
