//! A Redis or Valkey server: its setup and its connections. Only this file and `scripts.rs` use the `redis` crate.
//!
//! A connection is a handle to a task of the crate, on the runtime that made it. The task writes requests in the order
//! in which they were queued and hands out replies. Requests of many tasks go to it in batches. The crate's own
//! time-outs, retries and reconnects are off: a request may outlive the wait for it, and only the runtime's connections
//! know when one has to go.
//!
//! The crate makes a connection, with HELLO if it is to receive the server's own messages. The rest of the setup goes
//! out in one write: login and database, INFO, CLIENT TRACKING, CLIENT SETINFO. The optional commands may be refused,
//! on this connection, or left out because a server hangs up on them; see [`Setup`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::pipeline::Batcher;
use super::scripts::{ScriptId, command, reply, text};
use super::setup::{self, Plan, Setup};
use super::{Eval, EventSink, Failure, Identity, NodeEvent, Role, ServerInfo};
use crate::address::{Address, Target};
use crate::error::Error;
use crate::protocol::request::{Reply, Request};
use crate::sys::clock::Moment;
use crate::sys::log::log;

/// The requests that may wait for one connection's writer: as many as possible. A request must get its position in the
/// order at its first poll. One that waits for room has none, so a release could be written before its create. Unused
/// room costs no memory. The number is bounded because a silent node is not asked again, and few pending releases are
/// on their way at a time.
const QUEUE: usize = Semaphore::MAX_PERMITS;

/// A server's address, ready to connect to.
pub(crate) struct RedisNode {
    /// Without HELLO; `None` if the address asks for RESP3.
    plain: Option<Client>,
    /// With HELLO, which the server's own messages need; `None` if the address asks for RESP2.
    hearing: Option<Client>,
    /// Sent first on every connection that is made without HELLO.
    login: Option<Cmd>,
    /// Sent first, or next, on every connection.
    selection: Option<Cmd>,
    /// The commands left out on connections with events, and on the others.
    hearing_setup: Mutex<Setup>,
    plain_setup: Mutex<Setup>,
    /// For logs: without credentials.
    address: String,
}

impl fmt::Debug for RedisNode {
    /// Hides user names, unlike the crate's own.
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
        let client = |settings: RedisConnectionInfo| {
            let info = target
                .clone()
                .into_connection_info()?
                // All commands but HELLO are sent here: the crate drops a server's words before it hangs up.
                .set_redis_settings(settings.set_skip_set_lib_name())
                // A lock's requests are small and each is awaited: never hold one back to fill a packet.
                .set_tcp_settings(TcpSettings::default().set_nodelay(true));
            Client::open(info)
        };
        let mut with_login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        if let Some(username) = address.username() {
            with_login = with_login.set_username(username);
        }
        if let Some(password) = address.password() {
            with_login = with_login.set_password(password);
        }
        let without = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        let unusable = |_| Error::invalid(format!("{address}: not an address of a server"));
        // RESP2 needs no HELLO, which some proxies refuse.
        let (plain, hearing) = (address.protocol() != Some(3), address.protocol() != Some(2));
        Ok(Self {
            plain: plain.then(|| client(without)).transpose().map_err(unusable)?,
            hearing: hearing.then(|| client(with_login)).transpose().map_err(unusable)?,
            login: address.password().map(|password| {
                let mut command = redis::cmd("AUTH");
                command.arg(address.username()).arg(password);
                command
            }),
            selection: (address.db() != 0).then(|| {
                let mut command = redis::cmd("SELECT");
                command.arg(address.db());
                command
            }),
            hearing_setup: Mutex::default(),
            plain_setup: Mutex::default(),
            address: address.to_string(),
        })
    }

    /// Connects at `now`. Leaves out the commands that a server rejects; see [`Setup`].
    pub(crate) async fn connect(
        &self,
        events: Option<EventSink>,
        is_known: bool,
        now: Moment,
    ) -> Result<(RedisConnection, ServerInfo), Failure> {
        let hears = events.is_some() && self.hearing.is_some();
        let setup = || {
            let setup = if hears { &self.hearing_setup } else { &self.plain_setup };
            setup.lock().expect("no panic while holding this")
        };
        let mut plan = setup().plan(now, is_known);
        let mut result = self.set_up(plan, events.clone(), now).await;
        if let (Err(Offence::Hello), Some(_)) = (&result, &self.plain) {
            setup().refused_hello(now);
            log!(debug, node = %self.address, "HELLO is refused: the end of a connection is noticed by the next request only");
            plan = setup().plan(now, is_known);
            result = self.set_up(plan, events, now).await;
        }
        match result {
            Ok((connection, mut server_info)) => {
                server_info.again = server_info.again.min(setup().done(plan, now));
                Ok((connection, server_info))
            }
            Err(Offence::Some(failure)) => {
                setup().hung_up(plan, now);
                Err(failure)
            }
            Err(Offence::None(failure)) => Err(failure),
            Err(Offence::Hello) => Err(Failure::Refused("NOPROTO".into())),
        }
    }

    /// Makes a connection as `plan` says.
    async fn set_up(
        &self,
        plan: Plan,
        events: Option<EventSink>,
        now: Moment,
    ) -> Result<(RedisConnection, ServerInfo), Offence> {
        let hearing = events.filter(|_| plan.hello).zip(self.hearing.as_ref());
        let (client, events) = match (hearing, &self.plain, &self.hearing) {
            (Some((events, client)), ..) => (client, Some(events)),
            (None, Some(client), _) | (None, None, Some(client)) => (client, None),
            (None, None, None) => return Err(Offence::None(Failure::Closed)),
        };
        let watches = events.as_ref().is_some_and(EventSink::tracks);
        let said_hello = self.hearing.as_ref().is_some_and(|hearing| std::ptr::eq(hearing, client));
        let config = match events.clone() {
            Some(events) => config().set_push_sender(move |push: PushInfo| {
                hear(&events, &push);
                Ok::<_, SendError>(())
            }),
            None => config(),
        };
        let mut inner =
            client.get_multiplexed_async_connection_with_config(&config).await.map_err(|error| offence(&error))?;
        let login = self.login.as_ref().filter(|_| !said_hello);
        let first = [login, self.selection.as_ref()].into_iter().flatten().cloned();
        let mut answers = ask_all(&inner, opening(first.collect(), plan, watches)).await.into_iter();
        let mut next = || answers.next().unwrap_or(Err(Failure::Closed)).map_err(during_setup);
        if login.is_some() {
            next().and_then(accepted).map_err(|offence| match offence {
                // No password is set, or not for this user.
                Offence::None(Failure::Refused(code)) if &*code == "ERR" => {
                    Offence::None(Failure::Forbidden("WRONGPASS".into()))
                }
                offence => offence,
            })?;
        }
        if self.selection.is_some() {
            next().and_then(accepted)?;
        }
        let info = Some(next()?).filter(|_| plan.info);
        let tracking = if watches { Some(next()?) } else { None };
        if plan.named {
            // Whether the server knows the commands, and how it answers, does not matter.
            next()?;
            next()?;
        }
        let mut server_info = fetch_info(&mut inner, info, plan).await?;
        if let Some(answer) = tracking {
            server_info.watched = self.is_watched(&answer)?;
            if !server_info.watched {
                server_info.again = now.after(setup::AGAIN);
            }
        }
        let connection = inner.clone();
        let batcher = Batcher::on(&Handle::current(), move |commands| send_all(connection.clone(), commands));
        let reports_to = events.filter(|_| server_info.watched);
        Ok((RedisConnection { inner, ways: Arc::default(), batcher, reports_to }, server_info))
    }

    /// Returns whether the server will report changed keys on a connection, by its answer to CLIENT TRACKING.
    fn is_watched(&self, answer: &Value) -> Result<bool, Offence> {
        let Value::ServerError(error) = answer else { return Ok(matches!(answer, Value::Okay)) };
        if is_full(error.code(), error.details()) {
            return Err(Offence::None(Failure::Full));
        }
        let (node, code) = (&self.address, error.code());
        log!(debug, %node, code, "CLIENT TRACKING refused; waiters fall back to polling");
        Ok(false)
    }
}

/// The reason why a connect failed, and whether the commands sent may be the cause.
#[derive(Debug)]
enum Offence {
    /// HELLO was refused by name.
    Hello,
    /// The server hung up, or refused a command without naming it.
    Some(Failure),
    /// The commands were not the cause.
    None(Failure),
}

/// Sorts the crate's error about the connection, or about HELLO, the only command that it sends.
fn offence(error: &RedisError) -> Offence {
    let code = match error.kind() {
        ErrorKind::RESP3NotSupported => return Offence::Hello,
        _ => error.code(),
    };
    match code {
        Some(code) if is_full(code, error.detail()) => Offence::None(Failure::Full),
        Some(code) if is_unwanted(code, error.detail()) => Offence::Hello,
        Some("ERR") => Offence::Some(Failure::of_code("ERR")),
        Some(code) => Offence::None(Failure::of_code(code)),
        None => during_setup(failure(error)),
    }
}

/// Sorts a failure before a connection was set up.
fn during_setup(failure: Failure) -> Offence {
    match failure {
        Failure::Closed => Offence::Some(Failure::HungUp),
        failure => Offence::None(failure),
    }
}

/// Checks the answer to a required command.
fn accepted(answer: Value) -> Result<Value, Offence> {
    match answer {
        Value::ServerError(error) if is_full(error.code(), error.details()) => Err(Offence::None(Failure::Full)),
        Value::ServerError(error) => Err(Offence::None(Failure::of_code(error.code()))),
        answer => Ok(answer),
    }
}

/// Returns whether the server has its maximum of clients. It says so as soon as it is connected to, and hangs up.
fn is_full(code: &str, details: Option<&str>) -> bool {
    code == "ERR" && details.is_some_and(|details| details.starts_with("max number of clients"))
}

/// Returns whether a command is refused by name: this server does not know it, or this user may not send it.
fn is_unwanted(code: &str, details: Option<&str>) -> bool {
    matches!(code, "NOPERM" | "NOPROTO") || is_unknown(code, details)
}

/// Returns whether a server, or a proxy, does not know a command. Only the text shows it.
fn is_unknown(code: &str, details: Option<&str>) -> bool {
    const TEXTS: [&str; 4] = ["unknown command", "unknown subcommand", "unsupported command", "command not supported"];
    let details = details.unwrap_or_default().to_ascii_lowercase();
    code == "ERR" && TEXTS.iter().any(|text| details.starts_with(text))
}

/// Returns a connection's first commands: `first`, and then the optional INFO, CLIENT TRACKING and CLIENT SETINFO, in
/// this order. A command that every server answers replaces an omitted INFO: until then the server may hang up.
fn opening(first: Vec<Cmd>, plan: Plan, watches: bool) -> Vec<Cmd> {
    let command = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command
    };
    let mut commands = first;
    commands.push(if plan.info { command(&["INFO"]) } else { command(&["EVAL", "return 0", "0"]) });
    if watches {
        // Without this connection's own changes.
        commands.push(command(&["CLIENT", "TRACKING", "ON", "NOLOOP"]));
    }
    if plan.named {
        commands.push(command(&["CLIENT", "SETINFO", "LIB-NAME", "redlock"]));
        commands.push(command(&["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]));
    }
    commands
}

/// Sends all of `commands` in one write. Each has its own answer, up to where the server hung up.
async fn ask_all(connection: &MultiplexedConnection, commands: Vec<Cmd>) -> Vec<Answer> {
    let mut asked: Vec<_> =
        commands.into_iter().map(|command| (Some(Box::pin(send(connection.clone(), command))), None)).collect();
    poll_fn(|cx| {
        for (asking, answer) in &mut asked {
            if let Some(Poll::Ready(result)) = asking.as_mut().map(|asking| asking.as_mut().poll(cx)) {
                (*asking, *answer) = (None, Some(result));
            }
        }
        if asked.iter().all(|(asking, _)| asking.is_none()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    asked.into_iter().map(|(_, answer)| answer.unwrap_or(Err(Failure::Closed))).collect()
}

/// Emits a server's own messages as events.
fn hear(events: &EventSink, push: &PushInfo) {
    match (&push.kind, push.data.as_slice()) {
        (PushKind::Disconnection, _) => events.emit(NodeEvent::Disconnected),
        (PushKind::Invalidate, [Value::Array(keys)]) => {
            for key in keys {
                if let Value::BulkString(key) = key {
                    events.emit(NodeEvent::Changed(key));
                }
            }
        }
        // Without keys: all changed, by FLUSHALL or FLUSHDB.
        (PushKind::Invalidate, _) => events.emit(NodeEvent::AllChanged),
        _ => {}
    }
}

/// Disables the crate's own time-outs.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None).set_pipeline_buffer_size(QUEUE)
}

/// Chooses a TLS provider unless the program chose one. With more than one compiled in, rustls panics unless one is
/// chosen.
fn choose_tls_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread chose at the same time, its choice is enough.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct RedisConnection {
    inner: MultiplexedConnection,
    ways: Arc<ConnectionState>,
    batcher: Option<Arc<Batcher<Cmd, Answer>>>,
    /// Receives the next change of each key that is read on this connection, if the server reports it.
    reports_to: Option<EventSink>,
}

/// The result of one command.
type Answer = Result<Value, Failure>;

/// The knowledge, gained on a connection, about how to send requests.
#[derive(Default)]
struct ConnectionState {
    /// The way to send each script.
    scripts: [AtomicU8; ScriptId::COUNT],
    /// Whether the waiters key is left out, because this user may have no right to it.
    hintless: AtomicBool,
}

/// As text, because it has not been answered on this connection. An unknown hash would cost a round trip, and its
/// second sending would lose its position in the order.
const UNKNOWN: u8 = 0;
/// By its hash, which the server knows.
const KNOWN: u8 = 1;
/// As text while the connection lasts: hashes are unknown, or forbidden to this user.
const TEXT_ONLY: u8 = 2;

impl RedisConnection {
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ways, &other.ways)
    }

    pub(super) fn reports_to(&self) -> Option<&EventSink> {
        self.reports_to.as_ref()
    }

    pub(crate) async fn call(&self, request: &Request, by: Eval) -> Result<Reply, Failure> {
        let question = ScriptId::of(&request.action);
        let way = self.ways.scripts[question as usize].load(Ordering::Relaxed);
        let by = if way == KNOWN { by } else { Eval::Text };
        let hints = request.action.hints() && !self.ways.hintless.load(Ordering::Relaxed);
        let value = self.send(command(request, by, hints, self.reports_to.is_some())).await?;
        if let (Eval::Sha, Value::ServerError(error)) = (by, &value)
            && is_unknown(error.code(), error.details())
        {
            // The server has only EVAL.
            self.ways.scripts[question as usize].store(TEXT_ONLY, Ordering::Relaxed);
            return Err(Failure::NoScript);
        }
        let answer = reply(question, value);
        let (next, answer) = match (by, answer) {
            (Eval::Sha, Err(Failure::NoScript)) => (UNKNOWN, Err(Failure::NoScript)),
            (_, Err(Failure::Forbidden(_))) if hints => {
                // The server executed nothing. Once more, without the waiters key, which may be forbidden.
                self.ways.hintless.store(true, Ordering::Relaxed);
                (UNKNOWN, Err(Failure::NoScript))
            }
            (Eval::Sha, Err(Failure::Forbidden(_))) => (TEXT_ONLY, Err(Failure::NoScript)),
            (Eval::Text, Ok(reply)) if way == UNKNOWN => (KNOWN, Ok(reply)),
            (_, answer) => (way, answer),
        };
        if next != way {
            self.ways.scripts[question as usize].store(next, Ordering::Relaxed);
        }
        answer
    }
}

impl RedisConnection {
    /// Sends a command, alone or with others. Its first poll fixes its position in the order.
    async fn send(&self, command: Cmd) -> Answer {
        let Some(batcher) = &self.batcher else { return send(self.inner.clone(), command).await };
        let _awaited = batcher.awaits();
        match batcher.take(command) {
            Ok(answer) => answer.await.unwrap_or(Err(Failure::Closed)),
            Err(command) => send(self.inner.clone(), command).await,
        }
    }
}

async fn send(mut connection: MultiplexedConnection, command: Cmd) -> Answer {
    // Outside tokio's cooperative budget: the first poll must queue the request even in a task that has used its budget
    // up, or a release could fall behind.
    tokio::task::unconstrained(connection.send_packed_command(&command)).await.map_err(|error| failure(&error))
}

/// Returns the answers to `commands`, in their order; all arrive with the last one.
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

/// Returns a server's info by its answer to INFO. Where that is refused or left out, HELLO still reports the role.
async fn fetch_info(
    connection: &mut MultiplexedConnection,
    info: Option<Value>,
    plan: Plan,
) -> Result<ServerInfo, Offence> {
    match info {
        Some(Value::ServerError(error)) if !is_unwanted(error.code(), error.details()) => {
            accepted(Value::ServerError(error)).and(Err(Offence::None(Failure::UnexpectedReply)))
        }
        refusal @ (Some(Value::ServerError(_)) | None) => {
            let refused = refusal.is_some();
            // Without a protocol HELLO changes nothing. A refusal leaves the role untold, and the node may vote.
            let role = if plan.hello {
                role_of_hello(&send(connection.clone(), redis::cmd("HELLO")).await.map_err(during_setup)?)
            } else {
                Role::Untold
            };
            let identity = Identity { role, ..Identity::default() };
            let (uptime, again) = (Duration::ZERO, Moment::NEVER);
            Ok(ServerInfo { identity, uptime, evicts: None, silent: refused, watched: false, again })
        }
        Some(value) => {
            let text: String = redis::from_redis_value(value).map_err(|_| Offence::None(Failure::UnexpectedReply))?;
            Ok(server_info(&text))
        }
    }
}

fn role_of_hello(hello: &Value) -> Role {
    let role = |key: &Value, value: &Value| (text(key) == Some("role")).then(|| role(text(value).unwrap_or_default()));
    let told = match hello {
        Value::Map(pairs) => pairs.iter().find_map(|(key, value)| role(key, value)),
        Value::Array(items) => items.chunks_exact(2).find_map(|pair| role(&pair[0], &pair[1])),
        _ => None,
    };
    told.unwrap_or_default()
}

fn role(said: &str) -> Role {
    match said {
        "" => Role::Untold,
        "master" => Role::Master,
        _ => Role::Replica,
    }
}

fn server_info(info: &str) -> ServerInfo {
    let lines: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| lines.get(name).copied().unwrap_or_default();
    let policy = field("maxmemory_policy");
    ServerInfo {
        identity: Identity {
            run_id: field("run_id").to_owned(),
            replid: field("master_replid").to_owned(),
            // All zeros where there is none.
            is_successor: field("master_replid2").bytes().any(|digit| digit != b'0'),
            role: role(field("role")),
        },
        uptime: Duration::from_secs(field("uptime_in_seconds").parse().unwrap_or(0)),
        evicts: (!matches!(policy, "noeviction" | "")).then(|| policy.to_owned()),
        silent: field("run_id").is_empty(),
        watched: false,
        again: Moment::NEVER,
    }
}

/// Sorts an error of the crate. Keeps only the server's code, because its text may echo arguments.
fn failure(error: &RedisError) -> Failure {
    if let Some(code) = error.code() {
        return Failure::of_code(code);
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Failure::Forbidden("WRONGPASS".into()),
        // The crate parses a truncated reply as if it were whole.
        ErrorKind::Parse if error.to_string().contains("end of input") => Failure::Closed,
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Failure::UnexpectedReply,
        _ if error.is_connection_refusal() => Failure::Unreachable("connection refused".into()),
        _ if error.is_connection_dropped() => Failure::Closed,
        ErrorKind::Io => Failure::Unreachable(io_reason(error)),
        _ => Failure::Unreachable(Cow::Owned(error.category().to_owned())),
    }
}

/// Returns the kind of an I/O error, or TLS's own words, without arguments of ours.
fn io_reason(error: &RedisError) -> Cow<'static, str> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    // The crate wraps its cause in a pointer, whose own `source` skips the cause.
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
    fn who_a_server_is_as_it_tells() {
        let info = |fields: &str| server_info(&format!("# Replication\r\n{fields}# Server\r\nrun_id:r\r\n")).identity;
        let identity = |is_successor, role| Identity { run_id: "r".into(), replid: "a".into(), is_successor, role };
        let (none, one) = ("0".repeat(40), "0a".repeat(20));
        for (role, told) in [("master", Role::Master), ("slave", Role::Replica), ("", Role::Untold)] {
            let fields = |second: &str| format!("role:{role}\r\nmaster_replid:a\r\nmaster_replid2:{second}\r\n");
            assert_eq!(info(&fields(&none)), identity(false, told));
            assert_eq!(info(&fields(&one)), identity(true, told));
        }
        assert_eq!(info("master_replid:a\r\n"), identity(false, Role::Untold), "a server that knows no second id");
        let word = |word: &str| Value::BulkString(word.into());
        let items = vec![word("mode"), word("standalone"), word("role"), word("replica")];
        let pairs = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        for hello in [Value::Array(items), Value::Map(pairs)] {
            assert_eq!(role_of_hello(&hello), Role::Replica);
        }
        assert_eq!(role_of_hello(&Value::Map(vec![(word("role"), word("master"))])), Role::Master);
        assert_eq!(role_of_hello(&Value::Nil), Role::Untold);
    }

    #[test]
    fn unknown_commands_by_their_text() {
        for (code, details, unknown) in [
            ("ERR", "unknown command 'INFO', with args beginning with: ", true),
            ("ERR", "unknown command `HELLO`, with args beginning with: `3`, ", true),
            ("ERR", "Unknown subcommand or wrong number of arguments for 'TRACKING'. Try CLIENT HELP.", true),
            ("ERR", "unknown subcommand 'SETINFO'. Try CLIENT HELP.", true),
            ("ERR", "unsupported command 'hello'", true),
            ("ERR", "max number of clients reached", false),
            ("ERR", "wrong number of arguments for 'info' command", false),
            ("LOADING", "unknown command", false),
        ] {
            assert_eq!(is_unknown(code, Some(details)), unknown, "{code} {details}");
        }
        assert!(is_full("ERR", Some("max number of clients reached")));
        assert!(is_full("ERR", Some("max number of clients + cluster connections reached")));
        assert!(!is_full("ERR", Some("unknown command")) && !is_full("ERR", None));
    }

    #[tokio::test]
    async fn hello_is_sent_again_a_minute_after_it_was_refused_by_name() {
        let lacking = harness::Server::builder().args(["--rename-command", "HELLO", ""]).start();
        let complete = harness::Server::start();
        let way = lacking.dir().join("way.sock");
        std::os::unix::fs::symlink(lacking.socket(), &way).unwrap();
        let node = RedisNode::new(&Address::parse(&format!("unix://{}", way.display())).unwrap()).unwrap();
        let connect = async |now| {
            let events = EventSink::new(true, |_| {});
            node.connect(Some(events), false, now).await.unwrap().1
        };
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let deaf = connect(at(5)).await;
        assert_eq!((deaf.watched, deaf.again), (false, at(65)));
        std::fs::remove_file(&way).unwrap();
        std::os::unix::fs::symlink(complete.socket(), &way).unwrap();
        let deaf = connect(at(64)).await;
        assert_eq!((deaf.watched, deaf.again), (false, at(65)));
        let hearing = connect(at(65)).await;
        assert_eq!((hearing.watched, hearing.again), (true, Moment::NEVER));
    }
}
