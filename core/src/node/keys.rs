//! Keys, as an operator sees those of one node: which there are, what is under a lock key, and to delete just that.
//!
//! Unlike the requests of locks, these read the whole value under a lock key, because only that can be compared when it
//! is deleted. It stays inside of a [`Proof`], which is not shown. What may interrupt them: the caller's limit; what was
//! written is then executed unread.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::memory::MemoryConnection;
use super::pipeline::Answer;
use super::redis::RedisConnection;
use super::scripts::{ScriptId, command, deletion, refusal, reply, text, ttl_left};
use super::setup::command_of;
use crate::node::Connection;
use crate::node::way::Eval;
use crate::protocol::request::{Action, KeyState, Keys, Reply, Request, WAITING_MAX};
use crate::protocol::token::Token;
use crate::protocol::value;
use crate::texts::opaque;
use crate::transport::failure::Failure;

/// A part of a node's keys, and where the next part begins.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) keys: Vec<Vec<u8>>,
    /// `None` at the end.
    pub(crate) next: Option<u64>,
}

/// What is under a lock key.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) state: KeyState,
    /// How many wait; `None` if it is not known.
    pub(crate) waiting: Option<u32>,
    /// `None` without a key, and for a key that is not a string.
    pub(crate) proof: Option<Proof>,
}

/// What deletes one owner's key, and nobody else's: the token, or the whole value of another library's lock.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    Token(Token),
    Value(Box<[u8]>),
}

opaque!(Proof);

impl Proof {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Token(token) => token.as_bytes(),
            Self::Value(value) => value,
        }
    }
}

impl Connection {
    /// Asks for some of the keys that begin with `prefix`, from `cursor` on, and has the server look at about `count`
    /// keys for them.
    pub(crate) async fn scan(&self, prefix: &[u8], cursor: u64, count: u32) -> Result<Step, Failure> {
        let connection = match self {
            Self::Redis(connection) => connection,
            Self::Memory(store) => return store.look(|store, now| Step { keys: store.keys(now, prefix), next: None }),
            Self::Simulated(_) => return Ok(Step { keys: Vec::new(), next: None }),
        };
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg([prefix, b"*"].concat()).arg("COUNT").arg(count);
        let answer = value_of(connection.ask_each(&[command]).await.pop())?;
        let Value::Array(parts) = answer else { return Err(Failure::UnexpectedReply) };
        let [cursor, Value::Array(found)] = &*parts else { return Err(Failure::UnexpectedReply) };
        let next: u64 = text(cursor).and_then(|digits| digits.parse().ok()).ok_or(Failure::UnexpectedReply)?;
        let key = |value: &Value| match value {
            Value::BulkString(key) => Ok(key.clone()),
            _ => Err(Failure::UnexpectedReply),
        };
        let keys = found.iter().map(key).collect::<Result<_, _>>()?;
        Ok(Step { keys, next: (next != 0).then_some(next) })
    }

    /// Reads what is under a lock key, and how many wait, with what proves whose it is. `asking` as in
    /// [`OpenSlot`](crate::node::way::OpenSlot). In three commands: it changes meanwhile only for the ttl.
    pub(crate) async fn read(&self, keys: &Keys, asking: bool) -> Result<Content, Failure> {
        let connection = match self {
            Self::Redis(connection) => connection,
            Self::Memory(store) => return read_store(store, keys),
            Self::Simulated(_) => return Err(Failure::UnexpectedReply),
        };
        let commands = [[&b"GET"[..], &keys.lock], [b"PTTL", &keys.lock], [b"GET", &keys.want]];
        let mut answers = ask(connection, commands.map(|words| command_of(&words)), asking).await.into_iter();
        let (value, left, waiting) = (answers.next(), answers.next(), answers.next());
        let value = match value {
            Some(Ok(Value::ServerError(error))) if error.code() == "WRONGTYPE" => None,
            value => match value_of(value)? {
                Value::Nil => return Ok(Content { state: KeyState::Free, waiting: count(waiting), proof: None }),
                Value::BulkString(value) => Some(value),
                _ => return Err(Failure::UnexpectedReply),
            },
        };
        let Value::Int(left) = value_of(left)? else { return Err(Failure::UnexpectedReply) };
        if left == -2 {
            // It has expired since.
            return Ok(Content { state: KeyState::Free, waiting: count(waiting), proof: None });
        }
        let ttl_left = ttl_left(left);
        let (state, proof) = match value {
            Some(value) => judged(&value, ttl_left),
            None => (shared(connection, keys, asking).await?, None),
        };
        Ok(Content { state, waiting: count(waiting), proof })
    }

    /// Deletes the lock key if it is still that of `proof`, and ends the count of waiters if this user may.
    pub(crate) async fn delete(&self, keys: &Arc<Keys>, proof: &Proof, asking: bool) -> Result<Reply, Failure> {
        let connection = match self {
            Self::Redis(connection) => connection,
            Self::Memory(store) => return delete_from_store(store, keys, proof),
            Self::Simulated(_) => return Err(Failure::UnexpectedReply),
        };
        let mut answer = Err(Failure::Closed);
        for hints in [true, false] {
            let (question, command) = deletion(keys, proof.as_bytes(), matches!(proof, Proof::Token(_)), hints);
            let said = ask(connection, [command], asking).await.pop().unwrap_or(Err(Failure::Closed));
            answer = said.and_then(|value| reply(question, value));
            // Nothing was executed then, and the waiters key may be the reason.
            if !matches!(answer, Err(Failure::Forbidden(_) | Failure::Between)) {
                break;
            }
        }
        answer
    }
}

/// Looks at a lock key that is not a string: many may share the lock. Meanwhile anything else may have become of it.
async fn shared(connection: &RedisConnection, keys: &Keys, asking: bool) -> Result<KeyState, Failure> {
    let token = Token::fresh(&crate::sys::random::Random::System);
    let request = Request { keys: Arc::new(keys.alone()), token, action: Action::Inspect { asks: false } };
    let inspection = command(&request, Eval::Text, false, false, false);
    let answer = ask(connection, [inspection], asking).await.pop().unwrap_or(Err(Failure::Closed))?;
    match reply(ScriptId::Inspect, answer)? {
        Reply::Seen { state, .. } => Ok(state),
        _ => Err(Failure::UnexpectedReply),
    }
}

/// Returns what a value shows, and what proves whose it is.
fn judged(value: &[u8], ttl_left: Option<std::time::Duration>) -> (KeyState, Option<Proof>) {
    let ours = value::Value::parse(value).and_then(|ours| Some((Token::parse(ours.token)?, ours)));
    match ours {
        Some((token, ours)) => {
            let owner = ours.owner();
            let state = KeyState::Ours { owner, label: ours.label, fence: ours.fence, ttl_left };
            (state, Some(Proof::Token(token)))
        }
        None => (KeyState::Foreign { ttl_left }, Some(Proof::Value(value.into()))),
    }
}

/// Returns the number in a waiters key. This user may have no right to it.
fn count(answer: Option<Answer>) -> Option<u32> {
    match answer?.ok()? {
        Value::Nil => Some(0),
        value => text(&value)?.parse().ok().map(|count: u32| count.min(WAITING_MAX)),
    }
}

/// Sends commands in one write, each behind ASKING if the server has not taken their slot yet.
async fn ask<const N: usize>(connection: &RedisConnection, commands: [Cmd; N], asking: bool) -> Vec<Answer> {
    if !asking {
        return connection.ask_each(&commands).await;
    }
    let commands: Vec<_> = commands.into_iter().flat_map(|command| [redis::cmd("ASKING"), command]).collect();
    connection.ask_each(&commands).await.into_iter().skip(1).step_by(2).collect()
}

/// Returns the value of an answer, or why there is none.
fn value_of(answer: Option<Answer>) -> Result<Value, Failure> {
    match answer.unwrap_or(Err(Failure::Closed))? {
        Value::ServerError(error) => Err(refusal(error.code(), error.details())),
        value => Ok(value),
    }
}

/// Reads what a store in this process has under the lock key.
fn read_store(connection: &MemoryConnection, keys: &Keys) -> Result<Content, Failure> {
    let proof = connection.look(|store, now| store.text(now, &keys.lock))?;
    let proof = proof.and_then(|value| judged(&value, None).1);
    let keys = Arc::new(keys.alone());
    let token = Token::fresh(&crate::sys::random::Random::System);
    match connection.call(&Request { keys, token, action: Action::Inspect { asks: true } })? {
        Reply::Seen { state, waiting } => Ok(Content { state, waiting, proof }),
        _ => Err(Failure::UnexpectedReply),
    }
}

/// Deletes the lock key from a store in this process. Only this library writes there.
fn delete_from_store(connection: &MemoryConnection, keys: &Arc<Keys>, proof: &Proof) -> Result<Reply, Failure> {
    let Proof::Token(token) = proof else { return Ok(Reply::Foreign(None)) };
    let action = Action::give_up(keys, true, None);
    connection.call(&Request { keys: Arc::clone(keys), token: *token, action })
}
