//! A Redis or Valkey server: the only file that uses the `redis` crate.
//!
//! One connection is a handle to a task of the crate that writes requests in the order in which they were queued and
//! hands out replies; it lives on the runtime that made it. Requests of many tasks go to it in bundles. The crate's own
//! time-outs, retries and reconnects are off: a request may outlive the wait for it, and only the lane knows when a
//! connection has to go.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisError, Script, Value,
};
use tokio::runtime::Handle;

use super::bundle::Bundler;
use super::{By, Ear, Failure, Heard, Identity, Introduction};
use crate::address::{Address, Target};
use crate::error::Error;
use crate::script::{self, Action, FENCES, Reply, Request, Sight};

/// Requests that may wait for one connection's writer. Large, because a request must take its place in the order at
/// once; what bounds the number in practice is that a silent node is not asked again.
const QUEUE: usize = 16_384;

/// A server's address, ready to connect to.
pub(crate) struct RedisNode {
    client: Client,
    /// For connections whose end is heard, which takes RESP3; `None` where the address asks for RESP2.
    hearing: Option<Client>,
    /// Whether RESP3 was refused where RESP2 was not.
    is_deaf: AtomicBool,
    /// For logs: without credentials.
    address: String,
}

impl fmt::Debug for RedisNode {
    /// The crate's own shows user names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisNode")
    }
}

impl RedisNode {
    pub(crate) fn new(address: &Address) -> Result<Self, Error> {
        let target = match address.target() {
            Target::Tcp { host, port, tls: false } => ConnectionAddr::Tcp(host.clone(), *port),
            Target::Tcp { host, port, tls: true } => {
                choose_tls_provider();
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
            Target::Unix { path } => ConnectionAddr::Unix(path.into()),
            Target::Memory { .. } => return Err(Error::invalid("a memory node is no server")),
        };
        let mut settings =
            RedisConnectionInfo::default().set_db(address.db()).set_lib_name("redlock", env!("CARGO_PKG_VERSION"));
        if let Some(username) = address.username() {
            settings = settings.set_username(username);
        }
        if let Some(password) = address.password() {
            settings = settings.set_password(password);
        }
        let client = |protocol| {
            let info = target
                .clone()
                .into_connection_info()?
                .set_redis_settings(settings.clone().set_protocol(protocol))
                // A lock's requests are small and each is waited for: never hold one back to fill a packet.
                .set_tcp_settings(TcpSettings::default().set_nodelay(true));
            Client::open(info)
        };
        let unusable = |_| Error::invalid(format!("{address}: not an address of a server"));
        let hearing = client(ProtocolVersion::RESP3).map_err(unusable)?;
        // RESP2 needs no HELLO, which some proxies refuse.
        let plain = if address.protocol() == Some(3) { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        Ok(Self {
            client: client(plain).map_err(unusable)?,
            hearing: (address.protocol() != Some(2)).then_some(hearing),
            is_deaf: AtomicBool::new(false),
            address: address.to_string(),
        })
    }

    pub(crate) async fn connect(&self, ear: Option<Ear>) -> Result<(RedisConnection, Introduction), Failure> {
        let Some((ear, client)) = ear.zip(self.hearing.as_ref()).filter(|_| !self.is_deaf.load(Ordering::Relaxed))
        else {
            return connect(&self.client, config()).await;
        };
        let watches = ear.watches();
        let hear = move |push: PushInfo| {
            hear(&ear, &push);
            Ok::<_, SendError>(())
        };
        match connect(client, config().set_push_sender(hear)).await {
            Err(failure) if refuses_hello(&failure) => {
                let connected = connect(&self.client, config()).await?;
                tracing::debug!(node = %self.address, %failure, "no RESP3: the end of a connection is noticed by the next request only");
                self.is_deaf.store(true, Ordering::Relaxed);
                Ok(connected)
            }
            Ok((mut connection, mut introduction)) if watches => {
                introduction.watched = self.watch(&mut connection.inner).await?;
                connection.watched = introduction.watched;
                Ok((connection, introduction))
            }
            result => result,
        }
    }

    /// Has the server tell of changed keys on this connection; false where it may or can not.
    async fn watch(&self, connection: &mut MultiplexedConnection) -> Result<bool, Failure> {
        // Without those that this connection changes itself.
        let mut command = redis::cmd("CLIENT");
        command.arg("TRACKING").arg("ON").arg("NOLOOP");
        let answer = connection.send_packed_command(&command).await.map_err(|error| failure(&error))?;
        if let Value::ServerError(error) = &answer {
            let (node, code) = (&self.address, error.code());
            tracing::debug!(%node, code, "CLIENT TRACKING is refused: whoever waits has to ask again and again");
        }
        Ok(matches!(answer, Value::Okay))
    }
}

/// Hands on what a server says without being asked.
fn hear(ear: &Ear, push: &PushInfo) {
    match (&push.kind, push.data.as_slice()) {
        (PushKind::Disconnection, _) => ear.hear(Heard::Ended),
        (PushKind::Invalidate, [Value::Array(keys)]) => {
            for key in keys {
                if let Value::BulkString(key) = key {
                    ear.hear(Heard::Changed(key));
                }
            }
        }
        // Without keys: all of them, by FLUSHALL or FLUSHDB.
        (PushKind::Invalidate, _) => ear.hear(Heard::AllChanged),
        _ => {}
    }
}

/// Without time-outs of the crate's own.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None).set_pipeline_buffer_size(QUEUE)
}

async fn connect(client: &Client, config: AsyncConnectionConfig) -> Result<(RedisConnection, Introduction), Failure> {
    let mut inner =
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| match failure(&error) {
            Failure::Closed => Failure::Unreachable(CLOSED_EARLY.into()),
            _ if error.kind() == ErrorKind::RESP3NotSupported => Failure::Refused("NOPROTO".into()),
            failure => failure,
        })?;
    let introduction = introduce(&mut inner).await?;
    let connection = inner.clone();
    let bundler = Bundler::on(&Handle::current(), move |commands| send_all(connection.clone(), commands));
    Ok((RedisConnection { inner, ways: Arc::default(), bundler, watched: false }, introduction))
}

const CLOSED_EARLY: &str = "connection closed while it was set up";

/// Whether whoever answers may know no HELLO: a proxy says so, or hangs up.
fn refuses_hello(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(code) => matches!(&**code, "ERR" | "NOPROTO"),
        Failure::Unreachable(why) => why == CLOSED_EARLY,
        _ => false,
    }
}

/// With more than one TLS provider compiled into a program, rustls panics unless one is chosen; a choice that the
/// program made before is kept.
fn choose_tls_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Lost to another thread that chose at the same time: then one is chosen, which is all that is wanted.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct RedisConnection {
    inner: MultiplexedConnection,
    ways: Arc<Ways>,
    bundler: Option<Arc<Bundler<Cmd, Answer>>>,
    /// Whether the server tells on this connection of the next change of each key that it reads.
    watched: bool,
}

/// What comes of one command.
type Answer = Result<Value, Failure>;

/// What has been learnt on a connection about how to send requests.
#[derive(Default)]
struct Ways {
    /// How each script is sent.
    scripts: [AtomicU8; Question::COUNT],
    /// Whether the hint that somebody waits is left out, because this user may have no right to its key.
    hintless: AtomicBool,
}

/// As text, because it has not been answered on this connection: to learn that the server does not know it would cost a
/// round trip, and the second sending its place in the order.
const UNKNOWN: u8 = 0;
/// By its hash, which the server knows.
const KNOWN: u8 = 1;
/// As text for as long as the connection lasts: this user may not send hashes.
const TEXT_ONLY: u8 = 2;

impl RedisConnection {
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ways, &other.ways)
    }

    pub(crate) async fn call(&self, request: &Request, by: By) -> Result<Reply, Failure> {
        let question = Question::of(&request.action);
        let way = self.ways.scripts[question as usize].load(Ordering::Relaxed);
        let by = if way == KNOWN { by } else { By::Text };
        let hints = request.action.hints() && !self.ways.hintless.load(Ordering::Relaxed);
        let answer = reply(question, self.send(command(request, by, hints, self.watched)).await?);
        let (next, answer) = match (by, answer) {
            (By::Hash, Err(Failure::NoScript)) => (UNKNOWN, Err(Failure::NoScript)),
            (_, Err(Failure::Forbidden(_))) if hints => {
                // Nothing was executed. Once more, without the key that may be one too many.
                self.ways.hintless.store(true, Ordering::Relaxed);
                (UNKNOWN, Err(Failure::NoScript))
            }
            (By::Hash, Err(Failure::Forbidden(_))) => (TEXT_ONLY, Err(Failure::NoScript)),
            (By::Text, Ok(reply)) if way == UNKNOWN => (KNOWN, Ok(reply)),
            (_, answer) => (way, answer),
        };
        if next != way {
            self.ways.scripts[question as usize].store(next, Ordering::Relaxed);
        }
        answer
    }
}

impl RedisConnection {
    /// Sends a command, by itself or with others. It has its place in the order from the first poll on.
    async fn send(&self, command: Cmd) -> Answer {
        let Some(bundler) = &self.bundler else { return send(self.inner.clone(), command).await };
        let _awaited = bundler.awaits();
        match bundler.take(command) {
            Ok(answer) => answer.await.unwrap_or(Err(Failure::Closed)),
            Err(command) => send(self.inner.clone(), command).await,
        }
    }
}

async fn send(mut connection: MultiplexedConnection, command: Cmd) -> Answer {
    // Out of tokio's cooperative budget: the first poll must queue the request even in a task that has used its budget
    // up, or a release could fall behind.
    tokio::task::unconstrained(connection.send_packed_command(&command)).await.map_err(|error| failure(&error))
}

/// The answers to `commands`, in their order; all of them come when the last one does.
async fn send_all(mut connection: MultiplexedConnection, commands: Vec<Cmd>) -> Vec<Answer> {
    let count = commands.len();
    if count == 0 {
        return Vec::new();
    }
    let mut pipeline = Pipeline::with_capacity(count);
    for command in commands {
        pipeline.add_command(command);
    }
    match tokio::task::unconstrained(connection.send_packed_commands(&pipeline, 0, count)).await {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(failure(&error)); count],
    }
}

/// Asks a server who it is. INFO tells all; where it is refused, HELLO still tells the role.
async fn introduce(connection: &mut MultiplexedConnection) -> Result<Introduction, Failure> {
    match ask(connection, "INFO").await? {
        Value::ServerError(error) if error.code() != "NOPERM" => Err(Failure::of_code(error.code())),
        Value::ServerError(_) => {
            let hello = ask(connection, "HELLO").await?;
            let identity = Identity { run_id: String::new(), replid: String::new(), replica: is_replica(&hello) };
            Ok(Introduction { identity, uptime: Duration::ZERO, evicts: None, silent: true, watched: false })
        }
        value => {
            let text: String = redis::from_redis_value(value).map_err(|_| Failure::Garbled)?;
            Ok(introduction(&text))
        }
    }
}

async fn ask(connection: &mut MultiplexedConnection, command: &str) -> Result<Value, Failure> {
    connection.send_packed_command(&redis::cmd(command)).await.map_err(|error| failure(&error))
}

fn is_replica(hello: &Value) -> bool {
    let is_role =
        |key: &Value, value: &Value| text(key) == Some("role") && text(value).is_some_and(|role| role != "master");
    match hello {
        Value::Map(pairs) => pairs.iter().any(|(key, value)| is_role(key, value)),
        Value::Array(items) => items.chunks_exact(2).any(|pair| is_role(&pair[0], &pair[1])),
        _ => false,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

fn introduction(info: &str) -> Introduction {
    let lines: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| lines.get(name).copied().unwrap_or_default();
    let policy = field("maxmemory_policy");
    Introduction {
        identity: Identity {
            run_id: field("run_id").to_owned(),
            replid: field("master_replid").to_owned(),
            replica: !matches!(field("role"), "master" | ""),
        },
        uptime: Duration::from_secs(field("uptime_in_seconds").parse().unwrap_or(0)),
        evicts: (!matches!(policy, "noeviction" | "")).then(|| policy.to_owned()),
        silent: field("run_id").is_empty(),
        watched: false,
    }
}

/// A script's text and its hash.
struct Text {
    text: &'static str,
    hash: String,
}

impl Text {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

/// The scripts, in the order of [`Question`].
static SCRIPTS: LazyLock<[Text; Question::COUNT]> = LazyLock::new(|| {
    [
        Text::new(include_str!("../lua/acquire.lua")),
        Text::new(include_str!("../lua/confirm.lua")),
        Text::new(include_str!("../lua/extend.lua")),
        Text::new(include_str!("../lua/release.lua")),
        Text::new(include_str!("../lua/restore.lua")),
        Text::new(include_str!("../lua/inspect.lua")),
        Text::new(include_str!("../lua/setnx_acquire.lua")),
        Text::new(include_str!("../lua/setnx_release.lua")),
    ]
});

/// A command as far as its keys, with room for the rest, so that it does not grow step by step.
fn begin(script: &Text, by: By, keys: &[&[u8]]) -> Cmd {
    let (name, script) = match by {
        By::Hash => ("EVALSHA", script.hash.as_str()),
        By::Text => ("EVAL", script.text),
    };
    let most_arguments = 7;
    let usual_size = script.len() + keys.iter().map(|key| key.len()).sum::<usize>() + 128;
    let mut command = Cmd::with_capacity(3 + keys.len() + most_arguments, usual_size);
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(*key);
    }
    command
}

/// The command for a request, with the key of the hint or without; an acquire looks at the lock first where what it
/// reads is `watched`. Every key stands in KEYS and nothing is built from strings on the server.
fn command(request: &Request, by: By, hints: bool, watched: bool) -> Cmd {
    let token = request.token.as_bytes();
    let (lock, fence, want) = (&*request.keys.lock, &*request.keys.fence, &*request.keys.want);
    let question = Question::of(&request.action);
    let begin = |keys: &[&[u8]]| begin(&SCRIPTS[question as usize], by, keys);
    match &request.action {
        Action::Acquire { ttl, proposal, slack, fence_keep, label, wants } => {
            let mut command = if hints { begin(&[lock, fence, want]) } else { begin(&[lock, fence]) };
            command.arg(token).arg(millis(*ttl)).arg(millis(*fence_keep));
            // What says nothing would cost the server some time, so it is sent only where more follows.
            let place = wants.unwrap_or(0);
            let (is_proposed, is_labelled, is_in_line) = (!slack.is_zero(), !label.is_empty(), watched || place > 0);
            if is_labelled || is_proposed || is_in_line {
                command.arg(&**label);
            }
            if is_proposed {
                command.arg(*proposal).arg(micros(*slack));
            } else if is_in_line {
                command.arg("").arg(0);
            }
            if is_in_line {
                command.arg(place);
            }
            command
        }
        Action::Confirm { granted, fence: decided, fence_keep, label } => {
            let mut command = begin(&[lock, fence]);
            command.arg(request.token.value(*granted, label)).arg(*decided).arg(millis(*fence_keep));
            command
        }
        Action::Extend { ttl, fence: mine, fence_keep } => {
            let mut command = if hints { begin(&[lock, fence, want]) } else { begin(&[lock, fence]) };
            command.arg(token).arg(millis(*ttl)).arg(*mine).arg(millis(*fence_keep));
            command
        }
        Action::Release { .. } => {
            let mut command = if hints { begin(&[lock, want]) } else { begin(&[lock]) };
            command.arg(token);
            command
        }
        Action::Restore { ttl, fence: mine, fence_keep, label } => {
            let mut command = begin(&[lock, fence]);
            command.arg(token).arg(millis(*ttl)).arg(*mine).arg(millis(*fence_keep)).arg(&**label);
            command
        }
        Action::Inspect => begin(&[lock]),
        Action::Peek { place } => {
            let mut command = if hints { begin(&[lock, fence, want]) } else { begin(&[lock, fence]) };
            command.arg(token).arg(0).arg(0).arg("").arg("").arg(0).arg(*place);
            command
        }
        Action::SetnxAcquire { ttl } => {
            let mut command = begin(&[lock]);
            command.arg(millis(*ttl));
            command
        }
        Action::SetnxRelease { expiry } => {
            let mut command = begin(&[lock]);
            command.arg(*expiry);
            command
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Which script a request and its reply belong to.
#[derive(Clone, Copy)]
enum Question {
    Acquire,
    Confirm,
    Extend,
    Release,
    Restore,
    Inspect,
    SetnxAcquire,
    SetnxRelease,
}

impl Question {
    const COUNT: usize = 8;

    fn of(action: &Action) -> Self {
        match action {
            Action::Acquire { .. } | Action::Peek { .. } => Self::Acquire,
            Action::Confirm { .. } => Self::Confirm,
            Action::Extend { .. } => Self::Extend,
            Action::Release { .. } => Self::Release,
            Action::Restore { .. } => Self::Restore,
            Action::Inspect => Self::Inspect,
            Action::SetnxAcquire { .. } => Self::SetnxAcquire,
            Action::SetnxRelease { .. } => Self::SetnxRelease,
        }
    }
}

/// Reads a reply strictly: whatever no script of ours says is a failed vote, never a guess.
fn reply(question: Question, value: Value) -> Result<Reply, Failure> {
    match (question, value) {
        (_, Value::ServerError(error)) => Err(refusal(error.code(), error.details())),
        (Question::Acquire, Value::Int(0)) => Ok(Reply::Seen(Sight::Free)),
        (Question::Acquire, Value::Int(fence)) => fence_of(fence).map(Reply::Granted),
        (Question::Acquire, Value::Array(items)) => held(&items),
        (Question::Confirm, Value::Int(1)) => Ok(Reply::Confirmed),
        (Question::Confirm | Question::Restore, Value::Int(0)) => Ok(Reply::Refused),
        (Question::Restore, Value::Int(1)) => Ok(Reply::Restored),
        (Question::Extend, Value::Int(1)) => Ok(Reply::Extended),
        (Question::Extend, Value::Int(-2)) => Ok(Reply::Ahead),
        (Question::Release, Value::Int(waiting @ 1..)) => {
            Ok(Reply::Deleted { waiting: u32::try_from(waiting - 1).unwrap_or(u32::MAX) })
        }
        (Question::SetnxRelease, Value::Int(1)) => Ok(Reply::Deleted { waiting: 0 }),
        (Question::Extend | Question::Release | Question::SetnxRelease, Value::Int(0)) => Ok(Reply::Absent),
        (Question::Extend | Question::Release | Question::SetnxRelease, Value::Int(-1)) => Ok(Reply::Foreign(None)),
        (Question::Extend, label @ Value::BulkString(_)) => Ok(Reply::Foreign(label_of(&label))),
        (Question::Inspect, Value::Array(items)) => sight(&items),
        (Question::SetnxAcquire, Value::Int(expiry)) => {
            u64::try_from(expiry).map(Reply::GrantedUntil).map_err(|_| Failure::Garbled)
        }
        (Question::SetnxAcquire, Value::Array(items)) => held_until(&items),
        (Question::SetnxRelease, Value::Int(-2)) => Ok(Reply::Late),
        _ => Err(Failure::Garbled),
    }
}

/// Sorts a script's error. For what this user may not do inside a script servers say ERR: only the text tells.
fn refusal(code: &str, details: Option<&str>) -> Failure {
    // Redis 7.2, Valkey and later; Redis 7.0 and before.
    const RIGHTS: [&str; 2] = ["ACL failure in script", "The user executing the script can't"];
    let whole = format!("{code} {}", details.unwrap_or_default());
    // Redis 6.2 says ERR, and where in the script, and only then what its command said.
    let said = whole.split_once("@user_script: ").and_then(|(_, inside)| inside.split_once(": "));
    let (code, details) = match said.map(|(_, said)| said.strip_prefix('-').ok_or(said)) {
        None => (code, details.unwrap_or_default()),
        Some(Ok(error)) => error.split_once(' ').unwrap_or((error, "")),
        Some(Err(text)) => ("ERR", text),
    };
    let is_right = RIGHTS.iter().any(|text| details.starts_with(text));
    Failure::of_code(if code == "ERR" && is_right { "NOPERM" } else { code })
}

fn fence_of(number: i64) -> Result<u64, Failure> {
    u64::try_from(number).ok().filter(|fence| FENCES.contains(fence)).ok_or(Failure::Garbled)
}

fn ttl_left(millis: i64) -> Option<Duration> {
    // -1: a key without a ttl.
    u64::try_from(millis).ok().map(Duration::from_millis)
}

fn held(items: &[Value]) -> Result<Reply, Failure> {
    let [mine, Value::Int(left), label, Value::Int(place)] = items else { return Err(Failure::Garbled) };
    let ours = match text(mine).ok_or(Failure::Garbled)? {
        "" => None,
        digits => Some(fence_of(digits.parse().map_err(|_| Failure::Garbled)?)?),
    };
    let place = u32::try_from(*place).unwrap_or(0);
    Ok(Reply::Held { ours, ttl_left: ttl_left(*left), label: label_of(label), place })
}

fn held_until(items: &[Value]) -> Result<Reply, Failure> {
    let [Value::Int(left)] = items else { return Err(Failure::Garbled) };
    Ok(Reply::Held { ours: None, ttl_left: ttl_left(*left), label: None, place: 0 })
}

fn sight(items: &[Value]) -> Result<Reply, Failure> {
    let sight = match items {
        [Value::Int(0)] => Sight::Free,
        [Value::Int(2), Value::Int(left)] => Sight::Foreign { ttl_left: ttl_left(*left) },
        [Value::Int(1), Value::Int(left), fence, label] => {
            let digits = text(fence).and_then(|digits| digits.parse().ok()).ok_or(Failure::Garbled)?;
            Sight::Ours { label: label_of(label), fence: fence_of(digits)?, ttl_left: ttl_left(*left) }
        }
        _ => return Err(Failure::Garbled),
    };
    Ok(Reply::Seen(sight))
}

fn label_of(value: &Value) -> Option<Box<str>> {
    let Value::BulkString(bytes) = value else { return None };
    script::label(bytes)
}

/// Sorts an error of the crate. Only the server's code is kept: its text may echo arguments.
fn failure(error: &RedisError) -> Failure {
    if let Some(code) = error.code() {
        return Failure::of_code(code);
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Failure::Forbidden("WRONGPASS".into()),
        // The crate reads what came of a reply as if it were one.
        ErrorKind::Parse if error.to_string().contains("end of input") => Failure::Closed,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Failure::Garbled,
        _ if error.is_connection_refusal() => Failure::Unreachable("connection refused".into()),
        _ if error.is_connection_dropped() => Failure::Closed,
        ErrorKind::Io => Failure::Unreachable(io_reason(error)),
        _ => Failure::Unreachable(Cow::Owned(error.category().to_owned())),
    }
}

/// An I/O error in the operating system's words, or those of TLS, which carry no arguments of ours.
fn io_reason(error: &RedisError) -> Cow<'static, str> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    // The crate hands out its cause behind a pointer, whose own `source` passes the cause by.
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Shared>());
    let Some(io) = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) else {
        return Cow::Borrowed("input or output error");
    };
    match io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => Cow::Owned(format!("TLS: {tls}")),
        None => Cow::Owned(io.kind().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_scripts_on_every_server() {
        let place = "Error running script (call to f_a7f30a777e3a14deb342c34c70e37dd1e66eb928): @user_script:28:";
        let line = |said: &str| format!("{place} @user_script: 28: {said}");
        let refused = |code: &str| Failure::Refused(code.into());
        let forbidden = Failure::Forbidden("NOPERM".into());
        let cases = [
            ("OOM", "command not allowed when used memory > 'maxmemory'.".into(), refused("OOM")),
            ("ERR", line("-OOM command not allowed when used memory > 'maxmemory'."), refused("OOM")),
            ("ERR", line("-READONLY You can't write against a read only replica."), refused("READONLY")),
            ("@user_script:", "28: -NOREPLICAS Not enough good replicas to write.".into(), refused("NOREPLICAS")),
            ("ERR", line("Wrong number of args calling Redis command From Lua script"), refused("ERR")),
            ("ERR", place.into(), refused("ERR")),
            ("NOPERM", "this user has no permissions to run the 'eval' command".into(), forbidden.clone()),
            ("ERR", "ACL failure in script: User w has no permissions".into(), forbidden.clone()),
            ("ERR", "The user executing the script can't run this command".into(), forbidden.clone()),
            ("ERR", line("The user executing the script can't run this command or subcommand"), forbidden),
        ];
        for (code, details, failure) in cases {
            assert_eq!(refusal(code, Some(&details)), failure, "{code} {details}");
        }
        assert_eq!(refusal("BUSY", None), refused("BUSY"));
    }
}
