//! A Redis or Valkey server: its setup and its connections. Only this file and those beside it that name its values
//! use the `redis` crate.
//!
//! The crate packs commands and parses replies. A [`Pipeline`] carries them, on the runtime that made it. It has no
//! time-outs, retries or reconnects: a request may outlive the wait for it, and only the runtime's connections know when
//! one has to go.
//!
//! The stream is dialed by [`Dialer`]. The whole setup goes out in one write: HELLO if the server is to send messages of
//! its own, else the login; the database, INFO, CLIENT TRACKING, CLIENT SETINFO. The optional commands may be refused,
//! on this connection, or left out because a server hangs up on them; see [`Setup`].

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, PushKind, Value};
use tokio::runtime::Handle;

use super::info::{identity, role_of_hello, server_info};
use super::native_delete::{self, NativeDelete};
use super::pipeline::{Answer, Pipeline, Unasked};
use super::refusal::{Offence, accepted, during_setup, greeted, is_full, is_unknown, is_unwanted};
use super::scripts::{ScriptId, command, reply, text};
use super::sentinels::Sentinels;
use super::setup::{self, Hashes, Plan, Setup, authentication, command_of};
use crate::address::{Address, Target};
use crate::credentials::{Login, Secret};
use crate::node::event::{EventSink, NodeEvent};
use crate::node::identity::{Identity, Lacks, Role, ServerInfo};
use crate::node::way::{Eval, OpenSlot};
use crate::protocol::certificate::Validity;
use crate::protocol::place::Place;
use crate::protocol::request::{Action, Reply, Request};
use crate::sys::clock::{Clock, Moment, SharedMoment};
use crate::sys::future::{begun, join_all};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::task::spawn;
use crate::texts::opaque;
use crate::transport::dial::Dialer;
use crate::transport::failure::Failure;
use crate::transport::logins::{LoginSource, Logins, Numbered};
use crate::transport::progress::{Phase, Progress};
use crate::transport::socket::Stream;
use crate::transport::tls::Tls;

/// How long the answer to a login on a live connection is awaited. Without a limit, a silent server would keep a
/// connection that was discarded.
const AUTHENTICATION_MOST: Duration = Duration::from_secs(10);

/// How long what a server told of itself on a connection lasts, before an extension asks again.
const TOLD_LASTS: Duration = Duration::from_secs(10);

/// How a connection is made.
pub(super) struct How<'a> {
    pub(super) clock: &'a Clock,
    /// Says where it is.
    pub(super) progress: &'a Progress,
    pub(super) events: Option<EventSink>,
    /// Whether the server was known before.
    pub(super) is_known: bool,
}

/// A new connection, and what the server told of itself on it.
type Made = (RedisConnection, ServerInfo);

/// A server, ready to connect to.
pub(crate) struct RedisNode {
    address: Address,
    /// They name the server, if there are any.
    pub(super) sentinels: Option<Arc<Sentinels>>,
    tls: Option<Arc<Tls>>,
    logins: LoginSource,
    /// Sent first, or next, on every connection.
    selection: Option<Cmd>,
    /// The commands left out on connections with events, and on the others.
    hearing_setup: Mutex<Setup>,
    plain_setup: Mutex<Setup>,
    hashes: Arc<Mutex<Hashes>>,
    /// From when on new connections use the native delete.
    native_delete_from: Arc<SharedMoment>,
}

// Hides user names, unlike the crate's own.
opaque!(RedisNode);

impl RedisNode {
    /// Makes a node whose connections need `tls`.
    pub(super) fn new(
        address: &Address,
        logins: Option<&Arc<Logins>>,
        sentinels: Option<Arc<Sentinels>>,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        Self {
            address: address.clone(),
            sentinels,
            tls,
            logins: LoginSource::of(address, logins),
            selection: (address.db != 0).then(|| command_of(&["SELECT", &address.db.to_string()])),
            hearing_setup: Mutex::default(),
            plain_setup: Mutex::default(),
            hashes: Arc::default(),
            native_delete_from: Arc::default(),
        }
    }

    /// Makes a stream to the server. Cancel safe.
    async fn stream(&self, clock: &Clock, progress: &Progress) -> Result<Stream, Failure> {
        let (target, tls) = match &self.sentinels {
            None => (self.address.target.clone(), self.tls.clone()),
            Some(sentinels) => {
                progress.enter(Phase::Sentinels);
                let Place { host, port } = sentinels.primary().await?;
                let tls = self.tls.as_ref().map(|tls| tls.to(&host)).transpose();
                let tls = tls.map_err(|error| Failure::Tls(error.to_string().into()))?.map(Arc::new);
                (Target::Tcp { host, port, tls: tls.is_some() }, tls)
            }
        };
        Dialer::new(target, tls, self.address.keepalive).dial(clock, progress).await
    }

    /// Connects. Leaves out the commands that a server rejects; see [`Setup`].
    pub(super) async fn connect(&self, how: &How<'_>) -> Result<Made, Failure> {
        let login = self.logins.login().await.map_err(Failure::NoLogin)?;
        let result = self.connect_as(&login, how, how.clock.now()).await;
        let Some(logins) = self.logins.logins() else { return result };
        match &result {
            Ok(_) => logins.accepted(login.number),
            // A server forgets a login at its end, or before. The provider may have a new one.
            Err(Failure::Forbidden(code)) if matches!(&**code, "WRONGPASS" | "NOAUTH") => {
                how.progress.enter(Phase::Login);
                let other = logins.after_rejection(login.number).await.map_err(Failure::NoLogin)?;
                if let Some(other) = other {
                    return self.connect_as(&other, how, how.clock.now()).await;
                }
            }
            Err(_) => {}
        }
        result
    }

    async fn connect_as(&self, login: &Numbered, how: &How<'_>, now: Moment) -> Result<Made, Failure> {
        // RESP2 needs no HELLO, which some proxies refuse.
        let hears = how.events.is_some() && self.address.protocol != Some(2);
        let setup = || {
            let setup = if hears { &self.hearing_setup } else { &self.plain_setup };
            setup.lock()
        };
        let mut plan = setup().plan(now, how.is_known);
        let mut result = self.set_up(plan, login, how, now).await;
        if let (Err(Offence::Hello), true) = (&result, self.address.protocol != Some(3)) {
            setup().refused_hello(now);
            log!(NODE_REFUSES_HELLO, node = %self.address, "HELLO is refused: the end of a connection is noticed by the next request only");
            plan = setup().plan(now, how.is_known);
            result = self.set_up(plan, login, how, now).await;
        }
        match result {
            Ok((connection, mut server_info)) => {
                if let (Some(sentinels), Role::Replica) = (&self.sentinels, server_info.identity.role) {
                    sentinels.doubt();
                    return Err(Failure::Unreachable(
                        "the server that its sentinels name as primary is a replica".into(),
                    ));
                }
                server_info.again = server_info.again.min(setup().done(plan, now));
                Ok((connection, server_info))
            }
            Err(Offence::Some(failure)) => {
                setup().hung_up(plan, now);
                Err(self.explained(failure))
            }
            Err(Offence::None(failure)) => Err(failure),
            Err(Offence::Hello) => Err(Failure::Refused("NOPROTO".into())),
        }
    }

    /// Adds what a hang-up after a handshake may mean. A server that misses a certificate says so behind the handshake,
    /// and what it says can be lost with the connection.
    fn explained(&self, failure: Failure) -> Failure {
        let (Failure::HungUp, Some(tls)) = (&failure, self.address.tls()) else { return failure };
        let why = if tls.cert.is_some() {
            "connection closed after the handshake; does the server accept this client's certificate?"
        } else {
            "connection closed after the handshake; does the server ask for a certificate? set tls_cert and tls_key"
        };
        Failure::Tls(why.into())
    }

    /// Makes a connection as `plan` says.
    async fn set_up(&self, plan: Plan, login: &Numbered, how: &How<'_>, now: Moment) -> Result<Made, Offence> {
        let How { clock, progress, events, .. } = how;
        // Who asks for RESP2 knows that waiters poll then.
        let wants_notifications = events.as_ref().is_some_and(EventSink::tracks) && self.address.protocol != Some(2);
        let events = events.clone().filter(|_| plan.hello && self.address.protocol != Some(2));
        let watches = events.as_ref().is_some_and(EventSink::tracks);
        let says_hello = events.is_some() || self.address.protocol == Some(3);
        let stream = self.stream(clock, progress).await.map_err(Offence::None)?;
        progress.enter(Phase::SetUp);
        let certificate = stream.certificate();
        let inner = open(stream, events.clone());
        let greeting = says_hello.then(|| hello(&login.login));
        let authentication = authentication(&login.login).filter(|_| !says_hello);
        let has_login = authentication.is_some();
        let first = [greeting, authentication, self.selection.clone()].into_iter().flatten();
        let mut asked = inner.ask_all(&opening(first.collect(), plan, watches)).into_iter();
        // A refusal of HELLO decides alone: the server may not answer what follows it.
        let said = if says_hello {
            let greeting = asked.next().expect("HELLO is the first command");
            Some(greeted(greeting.await.map_err(during_setup)?, login.login.password.is_some())?)
        } else {
            None
        };
        let mut answers = join_all(asked.collect()).await.into_iter();
        let mut next = || answers.next().unwrap_or(Err(Failure::Closed)).map_err(during_setup);
        if has_login {
            next().and_then(accepted).map_err(|offence| match offence {
                // In the words of a proxy.
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
        let native_delete = NativeDelete::new(&self.native_delete_from, info.as_ref().and_then(text), now);
        let mut server_info = fetch_info(&inner, info, said, plan).await?;
        if let Some(answer) = tracking {
            server_info.watched = self.is_watched(&answer)?;
            if !server_info.watched {
                server_info.again = now.after(setup::AGAIN);
            }
        }
        let is_told = !server_info.identity.run_id.is_empty();
        let ways = Arc::new(ConnectionState::new(&self.hashes, native_delete, clock, is_told));
        server_info.lacks.notifications = wants_notifications && !server_info.watched;
        {
            let hashes = self.hashes.lock();
            server_info.lacks.hashes = hashes.are_missing();
            server_info.again = server_info.again.min(hashes.again(now));
        }
        let reports_to = events.filter(|_| server_info.watched);
        let logged_in = self.logins.logins().map(|logins| {
            Arc::new(LoggedIn {
                logins: Arc::clone(logins),
                number: AtomicU64::new(login.number),
                runtime: Handle::current(),
            })
        });
        Ok((RedisConnection { inner, ways, reports_to, logged_in, plan, certificate }, server_info))
    }

    /// Returns whether the server will report changed keys on a connection, by its answer to CLIENT TRACKING.
    fn is_watched(&self, answer: &Value) -> Result<bool, Offence> {
        let Value::ServerError(error) = answer else { return Ok(matches!(answer, Value::Okay)) };
        if is_full(error.code(), error.details()) {
            return Err(Offence::None(Failure::Full));
        }
        let (node, code) = (&self.address, error.code());
        log!(TRACKING_REFUSED, %node, error = %code, "CLIENT TRACKING refused; waiters fall back to polling");
        Ok(false)
    }
}

/// Returns a connection's first commands: `first`, and then the optional INFO, CLIENT TRACKING and CLIENT SETINFO, in
/// this order. A command that every server answers replaces an omitted INFO: until then the server may hang up.
fn opening(first: Vec<Cmd>, plan: Plan, watches: bool) -> Vec<Cmd> {
    let mut commands = first;
    // With a key, because some proxies send a command by its key, and hang up on others.
    commands.push(if plan.info {
        command_of(&["INFO"])
    } else {
        command_of(&["EVAL", "return 0", "1", "redlock:fence:"])
    });
    if watches {
        // Without this connection's own changes.
        commands.push(command_of(&["CLIENT", "TRACKING", "ON", "NOLOOP"]));
    }
    if plan.named {
        commands.push(command_of(&["CLIENT", "SETINFO", "LIB-NAME", "redlock"]));
        commands.push(command_of(&["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]));
    }
    commands
}

/// Emits a server's own messages as events.
fn hear(events: &EventSink, unasked: &Unasked) {
    match unasked {
        Unasked::End => events.emit(NodeEvent::Disconnected),
        Unasked::Push(PushKind::Invalidate, data) => match data.as_slice() {
            [Value::Array(keys)] => {
                for key in keys {
                    if let Value::BulkString(key) = key {
                        events.emit(NodeEvent::Changed(key));
                    }
                }
            }
            // Without keys: all changed, by FLUSHALL or FLUSHDB.
            _ => events.emit(NodeEvent::AllChanged),
        },
        Unasked::Push(..) => {}
    }
}

/// Makes a connection of a stream, and runs it on the current runtime.
fn open(stream: Stream, events: Option<EventSink>) -> Pipeline {
    let tracks = events.as_ref().is_some_and(EventSink::tracks);
    let hear = move |unasked| {
        if let Some(events) = &events {
            hear(events, &unasked);
        }
    };
    Pipeline::open(&Handle::current(), stream, !tracks, Box::new(hear))
}

/// Returns the command that asks for the server's own messages, and logs in.
fn hello(login: &Login) -> Cmd {
    let mut command = redis::cmd("HELLO");
    command.arg(3);
    if let Some(password) = &login.password {
        command.arg("AUTH").arg(login.username.as_ref().map_or("default", Secret::expose)).arg(password.expose());
    }
    command
}

/// A connection to a server.
#[derive(Clone)]
pub(crate) struct RedisConnection {
    inner: Pipeline,
    ways: Arc<ConnectionState>,
    /// Receives the next change of each key that is read on this connection, if the server reports it.
    pub(super) reports_to: Option<EventSink>,
    /// Only where a provider gives the logins.
    logged_in: Option<Arc<LoggedIn>>,
    /// The commands that were sent when the connection was set up.
    pub(super) plan: Plan,
    /// From when until when the server's certificate is valid; `None` without TLS.
    pub(super) certificate: Option<Validity>,
}

/// The login of a connection that a provider gave.
struct LoggedIn {
    logins: Arc<Logins>,
    /// The number of the newest login that was sent.
    number: AtomicU64,
    /// The connection's runtime.
    runtime: Handle,
}

/// The knowledge, gained on a connection, about how to send requests.
struct ConnectionState {
    /// The way to send each script.
    scripts: [AtomicU8; ScriptId::COUNT],
    /// Whether the waiters key is left out, because this user may have no right to it.
    hintless: AtomicBool,
    /// Whether the first end or answer of an EVALSHA was recorded.
    hashes_known: AtomicBool,
    /// The node's knowledge about EVALSHA.
    hashes: Arc<Mutex<Hashes>>,
    native_delete: NativeDelete,
    /// When an extension asks again who the server is; never if it did not tell.
    asks_at: SharedMoment,
    /// What it told then, until somebody takes it.
    told: Mutex<Option<Identity>>,
    clock: Clock,
}

impl ConnectionState {
    fn new(hashes: &Arc<Mutex<Hashes>>, native_delete: NativeDelete, clock: &Clock, is_told: bool) -> Self {
        let are_left_out = hashes.lock().are_left_out(clock.now());
        let way = if are_left_out { TEXT_ONLY } else { UNKNOWN };
        Self {
            scripts: std::array::from_fn(|_| AtomicU8::new(way)),
            hintless: AtomicBool::new(false),
            hashes_known: AtomicBool::new(false),
            hashes: Arc::clone(hashes),
            native_delete,
            asks_at: SharedMoment::new(if is_told { clock.now().after(TOLD_LASTS) } else { Moment::NEVER }),
            told: Mutex::default(),
            clock: clock.clone(),
        }
    }

    /// Whether `request` asks who the server is, for it may have been a replica since it told.
    fn asks_with(&self, request: &Request) -> bool {
        if !matches!(request.action, Action::Extend { .. }) {
            return false;
        }
        let now = self.clock.now();
        let is_due = now >= self.asks_at.get();
        if is_due {
            self.asks_at.set(now.after(TOLD_LASTS));
        }
        is_due
    }

    /// Records what the server told.
    fn told(&self, answer: &Answer) {
        if let Ok(value @ (Value::BulkString(_) | Value::VerbatimString { .. })) = answer {
            *self.told.lock() = text(value).map(identity);
        }
    }

    /// Records what became of an EVALSHA, once for each connection.
    fn hash_sent(&self, answer: &Answer) {
        let is_known = self.hashes_known.load(Ordering::Relaxed);
        if is_known
            || !matches!(answer, Ok(_) | Err(Failure::Closed))
            || self.hashes_known.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let mut hashes = self.hashes.lock();
        match answer {
            Ok(_) => hashes.answered(),
            Err(_) => hashes.hung_up(self.clock.now()),
        }
    }
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

    /// Takes what the server told of itself with the last extension, if it was asked.
    pub(super) fn take_told(&self) -> Option<Identity> {
        self.ways.told.lock().take()
    }

    /// Sends commands of words in one write. Each has its own answer, up to where the server hung up.
    pub(super) async fn ask(&self, commands: &[Vec<&str>]) -> Vec<Answer> {
        let commands: Vec<_> = commands.iter().map(|words| command_of(words)).collect();
        self.ask_each(&commands).await
    }

    /// Sends `commands` in one write. Each has its own answer, up to where the server hung up.
    pub(super) async fn ask_each(&self, commands: &[Cmd]) -> Vec<Answer> {
        join_all(self.inner.ask_all(commands)).await
    }

    /// Sends the provider's newest login, unless it was sent. Its position in the order is fixed when this returns.
    pub(crate) fn log_in(&self) {
        let Some(LoggedIn { logins, number, runtime }) = self.logged_in.as_deref() else { return };
        if number.load(Ordering::Relaxed) == logins.number() {
            return;
        }
        let Some(newest) = logins.newest() else { return };
        // Callers that see the number may be served before this login, with the one before.
        if number.fetch_max(newest.number, Ordering::Relaxed) >= newest.number {
            return;
        }
        let Some(command) = authentication(&newest.login) else { return };
        let inner = self.inner.clone();
        let sent = begun(Box::pin(async move { inner.ask(&command).await }));
        let (logins, clock) = (Arc::clone(logins), self.ways.clock.clone());
        drop(spawn(runtime, async move {
            let answer = clock.timeout(AUTHENTICATION_MOST, pin!(sent)).await;
            match answer.map(|answer| answer.map(accepted)) {
                Some(Ok(Ok(_))) => logins.accepted(newest.number),
                // The connection keeps the login before.
                Some(Ok(Err(_))) => drop(logins.rejected(newest.number)),
                // The connection has ended, or a request on it will find out that it is silent.
                _ => {}
            }
        }));
    }

    /// Calls, in the way that an open slot needs.
    pub(super) async fn call(&self, request: &Request, by: Eval, open: OpenSlot) -> Result<Reply, Failure> {
        self.log_in();
        let mut ended = 0;
        if let Action::Release { granted: Some((fence, label)), asks: true } = &request.action
            && open == OpenSlot::default()
            && request.keys.are_plain()
            && let Some(comparing) = self.ways.native_delete.command()
            && !self.ways.hintless.load(Ordering::Relaxed)
        {
            // As `NativeDelete::judge` says.
            let Request { keys, token, .. } = request;
            let command = native_delete::delete(comparing, keys, token, *fence, label);
            let [deleted, count] = self.inner.ask_both(command, |command| native_delete::end_count(command, keys));
            let count = count.await;
            if matches!(&count, Ok(Value::ServerError(error)) if error.code() == "NOPERM") {
                self.ways.hintless.store(true, Ordering::Relaxed);
            }
            match self.ways.native_delete.judge(deleted.await, count, self.ways.clock.now()) {
                Ok(answer) => return answer,
                Err(waiting) => ended = waiting,
            }
        }
        match self.call_script(request, by, open).await {
            Ok(Reply::Deleted { waiting }) => Ok(Reply::Deleted { waiting: waiting.max(ended) }),
            answer => answer,
        }
    }

    async fn call_script(&self, request: &Request, by: Eval, open: OpenSlot) -> Result<Reply, Failure> {
        let question = ScriptId::of(request);
        let way = self.ways.scripts[question as usize].load(Ordering::Relaxed);
        let by = if way == KNOWN { by } else { Eval::Text };
        let hints = request.hints() && !self.ways.hintless.load(Ordering::Relaxed);
        let command = command(request, by, hints, self.reports_to.is_some(), open.bare);
        let answer = if open.asking {
            // In one write. Nothing comes in between, which would take the permission.
            let mut answers = Box::pin(self.ask_each(&[redis::cmd("ASKING"), command])).await;
            answers.pop().unwrap_or(Err(Failure::Closed))
        } else if self.ways.asks_with(request) {
            let info = command_of(&["INFO", "replication"]);
            // In one write, and answered before the extension is.
            let mut answers = Box::pin(self.ask_each(&[info, command])).await;
            let answer = answers.pop().unwrap_or(Err(Failure::Closed));
            for told in &answers {
                self.ways.told(told);
            }
            answer
        } else {
            self.inner.ask(&command).await
        };
        if by == Eval::Sha {
            self.ways.hash_sent(&answer);
        }
        let value = answer?;
        if let (Eval::Sha, Value::ServerError(error)) = (by, &value)
            && is_unknown(error.code(), error.details())
        {
            // The server has only EVAL.
            self.ways.hashes.lock().refused();
            self.ways.scripts[question as usize].store(TEXT_ONLY, Ordering::Relaxed);
            return Err(Failure::NoScript);
        }
        let answer = reply(question, value);
        if matches!(&answer, Err(Failure::Forbidden(code)) if &**code == "NOAUTH") {
            // The server has forgotten who this is, and has executed nothing. The next connection logs in again.
            if let Some(LoggedIn { logins, number, .. }) = self.logged_in.as_deref() {
                drop(logins.rejected(number.load(Ordering::Relaxed)));
            }
            return Err(Failure::Closed);
        }
        let (next, answer) = match (by, answer) {
            (Eval::Sha, Err(Failure::NoScript)) => (UNKNOWN, Err(Failure::NoScript)),
            (_, Err(Failure::Forbidden(_))) if hints => {
                // The server executed nothing. Once more, without the waiters key, which may be forbidden.
                self.ways.hintless.store(true, Ordering::Relaxed);
                (UNKNOWN, Err(Failure::NoScript))
            }
            (Eval::Text, Err(Failure::Forbidden(code))) if request.hints() => {
                // The waiters key was not the reason: other names may have theirs.
                self.ways.hintless.store(false, Ordering::Relaxed);
                (way, Err(Failure::Forbidden(code)))
            }
            (Eval::Sha, Err(Failure::Forbidden(_))) => {
                self.ways.hashes.lock().refused();
                (TEXT_ONLY, Err(Failure::NoScript))
            }
            (Eval::Text, Ok(reply)) if way == UNKNOWN => (KNOWN, Ok(reply)),
            (_, answer) => (way, answer),
        };
        if next != way {
            self.ways.scripts[question as usize].store(next, Ordering::Relaxed);
        }
        answer
    }
}

/// Returns a server's info by its answer to INFO. Where that is refused or left out, HELLO still reports the role.
async fn fetch_info(
    connection: &Pipeline,
    info: Option<Value>,
    said: Option<Value>,
    plan: Plan,
) -> Result<ServerInfo, Offence> {
    match info {
        Some(Value::ServerError(error)) if !is_unwanted(error.code(), error.details()) => {
            accepted(Value::ServerError(error)).and(Err(Offence::None(Failure::UnexpectedReply)))
        }
        refusal @ (Some(Value::ServerError(_)) | None) => {
            let refused = refusal.is_some();
            // Without a protocol HELLO changes nothing. A refusal leaves the role untold, and the node may vote.
            let role = match said {
                Some(said) => role_of_hello(&said),
                None if plan.hello => role_of_hello(&connection.ask(&redis::cmd("HELLO")).await.map_err(during_setup)?),
                None => Role::Untold,
            };
            let lacks = Lacks { info: refused, ..Lacks::default() };
            Ok(ServerInfo { lacks, ..ServerInfo::of(Identity { role, ..Identity::default() }) })
        }
        Some(value) => {
            // The crate would take a number or a status for a text.
            let is_bulk = matches!(value, Value::BulkString(_) | Value::VerbatimString { .. });
            let info = text(&value).filter(|_| is_bulk).ok_or(Offence::None(Failure::UnexpectedReply))?;
            Ok(server_info(info))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::protocol::name::Name;
    use crate::protocol::request::Keys;
    use crate::protocol::token::Token;
    use crate::sys::random::Random;

    #[tokio::test]
    async fn hello_is_sent_again_a_minute_after_it_was_refused_by_name() {
        let lacking = harness::Server::builder().args(["--rename-command", "HELLO", ""]).start();
        let complete = harness::Server::start();
        let way = lacking.dir().join("way.sock");
        std::os::unix::fs::symlink(lacking.socket(), &way).unwrap();
        let node = RedisNode::new(&Address::parse(&format!("unix://{}", way.display())).unwrap(), None, None, None);
        let login = node.logins.login().await.unwrap();
        let (progress, events) = (Progress::default(), Some(EventSink::new(true, |_| {})));
        let how = How { clock: &Clock::System, progress: &progress, events, is_known: false };
        let connect = async |now| node.connect_as(&login, &how, now).await.unwrap().1;
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

    #[tokio::test]
    async fn an_extension_asks_once_in_a_while_who_the_server_is() {
        let server = harness::Server::start();
        let node = RedisNode::new(&Address::parse(&server.url()).unwrap(), None, None, None);
        let login = node.logins.login().await.unwrap();
        let (now, progress) = (Clock::System.now(), Progress::default());
        let how = How { clock: &Clock::System, progress: &progress, events: None, is_known: false };
        let (connection, first) = node.connect_as(&login, &how, now).await.unwrap();
        let time = TOLD_LASTS;
        let request = Request {
            keys: Keys::of(&Name::parse(*b"foo").unwrap()),
            token: Token::fresh(&Random::System),
            action: Action::Extend { ttl: time, fence: 1, fence_ttl: time, floor: None },
        };
        let told = async |is_due: bool| {
            if is_due {
                connection.ways.asks_at.set(Moment::default());
            }
            assert_eq!(connection.call(&request, Eval::Sha, OpenSlot::default()).await, Ok(Reply::Absent));
            connection.take_told()
        };
        assert_eq!(told(false).await, None, "it has told when the connection was made");
        assert!(!told(true).await.unwrap().may_have_forgotten(&first.identity));
        assert_eq!(told(false).await, None);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        server.command(&["REPLICAOF", "NO", "ONE"]);
        let after = told(true).await.unwrap();
        assert!(after.role == Role::Master && after.may_have_forgotten(&first.identity));
        // Who may not ask is not asked.
        server.command(&["ACL", "SETUSER", "default", "-info"]);
        let (silent, _) = node.connect_as(&login, &how, now).await.unwrap();
        assert_eq!(silent.ways.asks_at.get(), Moment::NEVER);
    }

    /// A proxy that refuses HELLO may leave the commands behind it unanswered.
    #[tokio::test]
    async fn a_refusal_of_hello_is_enough() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut bytes = [0; 4_096];
                let length = client.read(&mut bytes).unwrap();
                let is_refused = String::from_utf8_lossy(&bytes[..length]).contains("HELLO");
                let info = "$11\r\nrole:master\r\n+OK\r\n+OK\r\n";
                client
                    .write_all(if is_refused { "-ERR unknown command 'HELLO'\r\n" } else { info }.as_bytes())
                    .unwrap();
                kept.push(client);
            }
        });
        let node = RedisNode::new(&Address::parse(&format!("redis://127.0.0.1:{port}")).unwrap(), None, None, None);
        let login = node.logins.login().await.unwrap();
        let (progress, events) = (Progress::default(), Some(EventSink::new(true, |_| {})));
        let how = How { clock: &Clock::System, progress: &progress, events, is_known: false };
        let connect = node.connect_as(&login, &how, Moment::from_nanos(1));
        let connected = Clock::System.timeout(harness::LIMIT, pin!(connect)).await.expect("it does not wait");
        assert_eq!(connected.unwrap().1.identity.role, Role::Master);
    }
}
