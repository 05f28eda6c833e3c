//! One node: one endpoint, one vote. Defines how a node is connected to and asked, and what can fail about it. The
//! kinds of nodes are in the files beside this one.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, Target};
use crate::error::Error;
use crate::net::logins::{Logins, NoLogin};
use crate::net::progress::{Phase, Progress};
use crate::protocol::cluster::Redirect;
use crate::protocol::diagnosis::cluster::ClusterFacts;
use crate::protocol::diagnosis::server::Facts;
#[cfg(feature = "cli")]
use crate::protocol::request::Keys;
use crate::protocol::request::{Action, Reply, Request};
use crate::sys::clock::{Clock, Moment};

pub(crate) mod cluster;
pub(crate) mod endpoint;
#[cfg(test)]
#[path = "../../../tests/unit/equality.rs"]
mod equality;
pub(crate) mod health;
mod info;
#[cfg(feature = "cli")]
pub(crate) mod keys;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod pace;
mod pipeline;
mod probe;
mod redis;
mod refusal;
mod replies;
mod scripts;
pub(crate) mod sentinels;
mod setup;
#[cfg(test)]
#[path = "../../../tests/unit/sharing.rs"]
mod sharing;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
#[cfg(test)]
#[path = "../../../tests/unit/node.rs"]
pub(crate) mod testing;
pub(crate) mod traffic;

pub(crate) use cluster::Cluster;
pub(crate) use memory::MemoryNodes;
pub(crate) use sentinels::Sentinels;
#[cfg(feature = "simulation")]
use simulated::{SimulatedNode, answers::SimulatedLink};

/// A node's identity: changes when its server restarts, is replaced or changes its role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// New at every start of the server; empty if INFO is refused.
    pub(crate) run_id: String,
    /// Names the history of the server's data; empty if INFO is refused.
    pub(crate) replid: String,
    /// Names the history that this one continues (`master_replid2`); empty if there is none.
    pub(crate) former_replid: String,
    pub(crate) role: Role,
}

/// A server's role in replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not reported.
    #[default]
    Untold,
    Master,
    /// A replica never votes.
    Replica,
}

impl Identity {
    /// Returns whether a node that was `before` may have forgotten grants since. A field that was not reported, then or
    /// now, shows nothing.
    pub(crate) fn may_have_forgotten(&self, before: &Self) -> bool {
        differs(&self.run_id, &before.run_id) || self.has_changed_role(before) || self.has_other_data(before)
    }

    /// Returns whether a node that was `before` may have been promoted since, at any time: its data may be those of another
    /// server. One that restarted with its own data continues the history that it had.
    pub(crate) fn may_be_promoted(&self, before: &Self) -> bool {
        self.has_changed_role(before) || self.has_other_data(before) && self.former_replid != before.replid
    }

    fn has_changed_role(&self, before: &Self) -> bool {
        self.role != Role::Untold && before.role != Role::Untold && self.role != before.role
    }

    /// A new `replid` alone shows nothing: a server draws one when its first replica comes, or after some time without a
    /// replica. Where the data came from elsewhere, the server also keeps the former id as its second.
    fn has_other_data(&self, before: &Self) -> bool {
        !self.former_replid.is_empty() && differs(&self.replid, &before.replid)
    }

    /// Updates the fields reported in `told`. The others stay as reported to another user.
    pub(crate) fn update(&mut self, told: &Self) {
        if !told.run_id.is_empty() {
            self.run_id.clone_from(&told.run_id);
        }
        if !told.replid.is_empty() {
            self.replid.clone_from(&told.replid);
            self.former_replid.clone_from(&told.former_replid);
        }
        if told.role != Role::Untold {
            self.role = told.role;
        }
    }
}

/// Returns whether both were reported, and are not the same.
fn differs(now: &str, before: &str) -> bool {
    !now.is_empty() && !before.is_empty() && now != before
}

/// A node's report about itself when a connection is made, before a grant on that connection counts.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    pub(crate) identity: Identity,
    /// The server's uptime, at least.
    pub(crate) uptime: Duration,
    /// The eviction policy, if it may remove keys that have not expired.
    pub(crate) evicts: Option<String>,
    /// What the node refuses, or hangs up on.
    pub(crate) lacks: Lacks,
    /// Whether the node will report changed keys on this connection.
    pub(crate) watched: bool,
    /// When another connection may report more: a command was refused or left out on this one.
    pub(crate) again: Moment,
}

/// The optional commands that a node refuses, or hangs up on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// INFO, or a `run_id` in it: no restart can be seen then.
    pub(crate) info: bool,
    /// HELLO or CLIENT TRACKING, on a connection that was to have them.
    pub(crate) notifications: bool,
    /// EVALSHA.
    pub(crate) hashes: bool,
}

impl Lacks {
    /// Returns what is lacking here, and not in `known`.
    pub(crate) fn besides(self, known: Self) -> Self {
        Self {
            info: self.info && !known.info,
            notifications: self.notifications && !known.notifications,
            hashes: self.hashes && !known.hashes,
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            info: self.info || other.info,
            notifications: self.notifications || other.notifications,
            hashes: self.hashes || other.hashes,
        }
    }
}

/// The reason why a node's vote is missing. Carries no raw server text, because error texts echo arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection could be made.
    Unreachable(Cow<'static, str>),
    /// TLS could not be agreed on, or a file that it needs cannot be used. It may be due to this client's options.
    Tls(Cow<'static, str>),
    /// This client has no login to send.
    NoLogin(NoLogin),
    /// The connection ended before the reply.
    Closed,
    /// The connection ended while it was set up.
    HungUp,
    /// The server has as many clients as it takes.
    Full,
    /// No answer within this time.
    Silent(Duration),
    /// No connection within this time, which ended in this phase.
    Unconnected(Phase, Duration),
    /// The node missed a vote, and has not answered since.
    Unresponsive,
    /// The server answered with this error code.
    Refused(Box<str>),
    /// The server answered with this error, whose text is known and does not repeat any argument.
    Told(&'static str),
    /// The server refuses these credentials or rights, with this error code.
    Forbidden(Box<str>),
    /// The server does not know the script yet: send its text.
    NoScript,
    /// A reply that no version of the scripts gives.
    UnexpectedReply,
    /// A replica: its copy may lag, so its grants promise nothing.
    Replica,
    /// Restarted or replaced too recently for its grants to count.
    Quarantined(Duration),
    /// The same server as the node with this index.
    Duplicate(usize),
    /// Another server of the cluster has the slot now.
    Moved(Box<Redirect>),
    /// The slot is on its way to another server of the cluster, which may have the key already.
    Asked(Box<Redirect>),
    /// The slot is on its way to another server of the cluster, and some of the keys are there.
    Between,
    /// The slot does not have a primary now.
    Unassigned,
}

impl Failure {
    /// Returns whether this failure makes its connection useless.
    pub(crate) fn breaks_connection(&self) -> bool {
        let is_broken = matches!(
            self,
            Self::Closed | Self::HungUp | Self::Full | Self::Unreachable(_) | Self::Tls(_) | Self::UnexpectedReply
        );
        is_broken
            // A demoted master keeps its connections; the address may lead to its successor by now.
            || matches!(self, Self::Refused(code) if &**code == "READONLY")
    }

    /// Returns whether the node read and answered the request.
    pub(crate) fn is_answer(&self) -> bool {
        self.is_unexecuted() || matches!(self, Self::UnexpectedReply)
    }

    /// Returns whether the node answered, and executed nothing.
    pub(crate) fn is_unexecuted(&self) -> bool {
        self.is_redirect()
            || matches!(self, Self::Refused(_) | Self::Told(_) | Self::Forbidden(_) | Self::NoScript | Self::Unassigned)
    }

    /// Returns whether the request has to be sent in another way, because of where the slot is.
    pub(crate) fn is_redirect(&self) -> bool {
        matches!(self, Self::Moved(_) | Self::Asked(_) | Self::Between)
    }

    /// Returns whether a failed connect may succeed for a client with another login or other options of TLS.
    pub(crate) fn is_of_one_client(&self) -> bool {
        self.is_answer() || matches!(self, Self::Tls(_) | Self::NoLogin(_))
    }

    /// Returns whether it prevents a connection.
    pub(crate) fn is_of_connect(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::Tls(_)
                | Self::NoLogin(_)
                | Self::HungUp
                | Self::Told(_)
                | Self::Unconnected(..)
        )
    }

    /// Returns the error of the program's own code behind this failure, if there is one.
    pub(crate) fn cause(&self) -> Option<Arc<dyn StdError + Send + Sync>> {
        match self {
            Self::NoLogin(NoLogin::Provider(error)) => error.shared_source(),
            _ => None,
        }
    }

    /// Sorts the errors by which a cluster tells where a slot is.
    pub(crate) fn of_cluster(code: &str, details: Option<&str>) -> Option<Self> {
        let redirect = || Redirect::parse(details?).map(Box::new);
        match code {
            "MOVED" => redirect().map(Self::Moved),
            "ASK" => redirect().map(Self::Asked),
            "TRYAGAIN" => Some(Self::Between),
            _ => None,
        }
    }

    /// Returns what it means to a client that does not follow the slots of a cluster.
    pub(crate) fn without_cluster(self) -> Self {
        match self {
            Self::Moved(_) | Self::Asked(_) => Self::Refused("MOVED".into()),
            Self::Between => Self::Refused("TRYAGAIN".into()),
            failure => failure,
        }
    }

    /// Sorts a server's error code.
    pub(crate) fn of_code(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::NoScript,
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Self::Forbidden(code.into()),
            // An error code is a short upper-case word; anything else might be an argument.
            _ if code.len() <= 24 && code.bytes().all(|byte| byte.is_ascii_uppercase()) => Self::Refused(code.into()),
            _ => Self::Refused("ERR".into()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Self::Tls(why) => write!(f, "cannot be reached: TLS: {why}"),
            Self::NoLogin(why) => write!(f, "was not asked: {why}"),
            Self::Closed => f.write_str("closed the connection"),
            Self::HungUp => f.write_str("cannot be reached: connection closed while it was set up"),
            Self::Full => f.write_str("max number of clients reached; raise its maxclients or close connections"),
            Self::Silent(after) if after.is_zero() => f.write_str("was not asked: no time was left"),
            Self::Unconnected(phase, after) => write!(f, "no answer within {after:?}: {phase}"),
            Self::Silent(after) => write!(f, "no answer within {after:?}"),
            Self::Unresponsive => f.write_str("has stopped answering"),
            Self::Refused(code) | Self::Forbidden(code) => write!(f, "refused with {code}{}", advice(code)),
            Self::Told(text) => write!(f, "refused: {text}"),
            Self::NoScript => f.write_str("has lost the script"),
            Self::UnexpectedReply => f.write_str("sent an unexpected reply; is this a Redis or Valkey server?"),
            Self::Replica => f.write_str("is a replica; list its master instead"),
            Self::Quarantined(left) => write!(f, "restarted; its votes count again in {left:?}"),
            Self::Duplicate(other) => write!(f, "is the same server as node {}", other + 1),
            Self::Moved(to) => write!(f, "does not have this name's slot, and sends requests on to {}", to.place),
            Self::Asked(to) => write!(f, "is handing this name's slot to {}, which has not taken it yet", to.place),
            Self::Between => f.write_str("is handing this name's slot to another server; try again"),
            Self::Unassigned => f.write_str("does not have a primary for this name's slot now"),
        }
    }
}

/// Returns the advice about a server's error code.
fn advice(code: &str) -> &'static str {
    match code {
        "OOM" => " (out of memory: raise maxmemory)",
        "READONLY" => " (a replica: list its master instead)",
        "LOADING" => " (still loading its data)",
        "BUSY" => " (a script is blocking the server)",
        "MISCONF" => " (it cannot save its data to disk)",
        "NOREPLICAS" => " (fewer replicas than min-replicas-to-write)",
        "NOAUTH" => " (a password is needed)",
        "WRONGPASS" => " (wrong user name or password)",
        "NOPERM" => " (this user lacks a command or key permission)",
        "DENIED" => " (protected mode: set a password there, or have it listen on this network only)",
        "FENCE" => " (its fence key is not a number below 2^53; delete that key)",
        "TESTDOWN" => " (a test has made this server unavailable)",
        "MOVED" => " (a server of a Redis Cluster: write the address as redis+cluster://)",
        "CLUSTERDOWN" => " (the cluster has slots without a primary, or this server sees too few others)",
        _ => "",
    }
}

/// A node's unsolicited report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEvent<'a> {
    /// The connection ended, and not by this side.
    Disconnected,
    /// A connection was made.
    Connected {
        /// Whether the node may have forgotten or changed keys unnoticed since the last request.
        may_differ: bool,
    },
    /// The value of this key changed since it was read.
    Changed(&'a [u8]),
    /// This process changed the value of this key itself, for those who wait for `line`: the node does not report it.
    ChangedFor { key: &'a [u8], line: &'a [u8] },
    /// Any key may have changed.
    AllChanged,
}

/// Receives the events of one node as they come. Called by whichever task reads, so it must neither block nor panic.
#[derive(Clone)]
pub(crate) struct EventSink {
    emit: Arc<dyn Fn(NodeEvent<'_>) + Send + Sync>,
    tracks: bool,
}

impl EventSink {
    /// Makes an event sink. With `tracks`, the node reports, once, the next change by another client of each key read
    /// on the connection.
    pub(crate) fn new(tracks: bool, emit: impl Fn(NodeEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { emit: Arc::new(emit), tracks }
    }

    pub(crate) fn emit(&self, event: NodeEvent<'_>) {
        (self.emit)(event);
    }

    pub(crate) fn tracks(&self) -> bool {
        self.tracks
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSink").field("tracks", &self.tracks).finish_non_exhaustive()
    }
}

/// One node of a set.
#[derive(Debug)]
pub(crate) enum Node {
    /// A Redis or Valkey server.
    Redis(Box<redis::RedisNode>),
    /// A cluster, before it is known which of its servers is meant.
    Cluster(Arc<Cluster>),
    /// A store in this process.
    Memory(memory::MemoryNode),
    /// A node of a simulation.
    #[cfg(feature = "simulation")]
    Simulated(SimulatedNode),
}

impl Node {
    /// Makes a node. `logins` serve the addresses that have no login of their own.
    /// `sentinels` name its server, if the address lists them; `cluster` is what the
    /// address names, or the cluster of its server.
    pub(crate) fn new(
        address: &Address,
        memory: &MemoryNodes,
        logins: Option<&Arc<Logins>>,
        sentinels: Option<Arc<Sentinels>>,
        cluster: Option<Arc<Cluster>>,
    ) -> Result<Self, Error> {
        Ok(match (address.target(), cluster) {
            (Target::Cluster { .. }, Some(cluster)) => Self::Cluster(cluster),
            (Target::Tcp { host, .. }, Some(cluster)) => {
                Self::Redis(Box::new(redis::RedisNode::with_tls(address, logins, None, cluster.tls_to(host)?)))
            }
            (Target::Memory { name }, _) => Self::Memory(memory.named(name)),
            _ => Self::Redis(Box::new(redis::RedisNode::new(address, logins, sentinels)?)),
        })
    }

    /// Returns the sentinels that name its server, if there are any.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Self::Redis(node) => node.sentinels(),
            Self::Memory(_) | Self::Cluster(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(node) => node.sentinels(),
        }
    }

    /// Returns whether a server may outlive its clients here. A store in memory does not.
    pub(crate) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// Makes a connection and fetches the server info, without fail if the node reported it before (`is_known`). Sets
    /// no time limit: the caller does. `events` receives the node's reports, where available. Cancel safe: it sends
    /// nothing that needs undoing.
    pub(crate) async fn connect(
        &self,
        clock: &Clock,
        events: Option<EventSink>,
        is_known: bool,
        progress: &Progress,
    ) -> Result<(Connection, ServerInfo), Failure> {
        match self {
            Self::Redis(node) => {
                let (connection, server_info) = node.connect(clock, events, is_known, progress).await?;
                Ok((Connection::Redis(connection), server_info))
            }
            // Then a request begins again, at the server that the map names.
            Self::Cluster(cluster) => {
                progress.enter(Phase::SetUp);
                cluster.map_anew().await.and(Err(Failure::Unassigned))
            }
            Self::Memory(node) => Ok((Connection::Memory(node.connect(clock, events)), node.server_info())),
            #[cfg(feature = "simulation")]
            Self::Simulated(node) => {
                progress.enter(Phase::SetUp);
                let (link, server_info) = node.connect(events).await?;
                Ok((Connection::Simulated(link), server_info))
            }
        }
    }
}

/// The form of a script sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eval {
    /// By its hash, which the server knows after the first use.
    Sha,
    /// By its whole text.
    Text,
}

/// What a request needs while its slot moves from one server of a cluster to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenSlot {
    /// ASKING goes before it, because the server has not taken the slot yet.
    pub(crate) asking: bool,
    /// It names as few keys as it can do with: servers refuse keys of which only some are there.
    pub(crate) bare: bool,
}

/// A connection to a node. Requests are executed in the order in which [`Connection::call`]'s futures are first polled.
#[derive(Clone)]
pub(crate) enum Connection {
    Redis(redis::RedisConnection),
    Memory(memory::MemoryConnection),
    #[cfg(feature = "simulation")]
    Simulated(Arc<dyn SimulatedLink>),
}

impl Connection {
    /// Asks the node. The future's first poll fixes the request's position in the connection's order. Dropping the
    /// future soon after withdraws the request. Once it is written, or about to be in a batch with others, it is
    /// executed and its reply discarded.
    pub(crate) async fn call(&self, request: &Request, by: Eval) -> Result<Reply, Failure> {
        let answer = match self {
            Self::Redis(connection) => connection.call(request, by).await,
            Self::Memory(connection) => connection.call(request),
            #[cfg(feature = "simulation")]
            Self::Simulated(link) => link.call(request.clone(), by, OpenSlot::default()).await,
        };
        // A node does not report a change over the connection that made it, and a release behind an unanswered create
        // may take the connection on which this process's waiters asked.
        let is_told = match (&answer, &request.action) {
            (Ok(Reply::Deleted { .. }), Action::Release { asks } | Action::Leave { asks, .. }) => *asks,
            (Ok(Reply::Withdrawn { waiting }), _) => *waiting == 0,
            _ => false,
        };
        if is_told && let Some(events) = self.reports_to() {
            for key in request.keys.each().map(|keys| &*keys.lock).chain(request.keys.bell()) {
                events.emit(NodeEvent::Changed(key));
            }
        }
        // Nor does it remember then that this connection has read the key for those who wait for others with it. A lost
        // attempt changes the key twice.
        let is_own_change = match (&answer, &request.action) {
            (Ok(Reply::Granted(_)), _) => true,
            (Ok(Reply::Deleted { .. }), Action::Release { asks } | Action::Leave { asks, .. }) => !asks,
            _ => false,
        };
        if is_own_change && let Some(events) = self.reports_to() {
            let line = request.keys.line();
            request.keys.each().for_each(|keys| events.emit(NodeEvent::ChangedFor { key: &keys.lock, line }));
        }
        answer
    }

    /// Asks once more in the way that an open slot needs, by the script's text. As [`Connection::call`] otherwise.
    pub(crate) async fn call_in_open_slot(&self, request: &Request, way: OpenSlot) -> Result<Reply, Failure> {
        match self {
            Self::Redis(connection) => connection.call_in(request, Eval::Text, way).await,
            Self::Memory(_) => self.call(request, Eval::Text).await,
            #[cfg(feature = "simulation")]
            Self::Simulated(link) => link.call(request.clone(), Eval::Text, way).await,
        }
    }

    /// Takes what the node told of itself with the last extension, if it was asked.
    pub(crate) fn take_told(&self) -> Option<Identity> {
        match self {
            Self::Redis(connection) => connection.take_told(),
            Self::Memory(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    /// Returns the receiver of the changes that the node reports on this connection, if it reports any.
    fn reports_to(&self) -> Option<&EventSink> {
        match self {
            Self::Redis(connection) => connection.reports_to(),
            Self::Memory(connection) => connection.reports_to(),
            #[cfg(feature = "simulation")]
            Self::Simulated(link) => link.reports_to(),
        }
    }

    /// Asks what the server can do; `None` for a node in this process. `key` belongs to this probe alone.
    pub(crate) async fn probe(&self, key: &str, clock: &Clock) -> Result<Option<Facts>, Failure> {
        match self {
            Self::Redis(connection) => probe::probe(connection, key, clock).await.map(Some),
            Self::Memory(_) => Ok(None),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(None),
        }
    }

    /// Asks what the server tells of its cluster; `None` for a node in this process.
    pub(crate) async fn probe_cluster(&self) -> Option<ClusterFacts> {
        match self {
            Self::Redis(connection) => Some(probe::cluster(connection).await),
            Self::Memory(_) => None,
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => None,
        }
    }

    /// Writes the key of a probe, which expires soon.
    pub(crate) async fn write_probe(&self, key: &str) {
        if let Self::Redis(connection) = self {
            probe::write(connection, key).await;
        }
    }

    /// Returns the numbers of the keys of probes that the server has.
    pub(crate) async fn existing_probes(&self, keys: &[String]) -> Vec<usize> {
        match self {
            Self::Redis(connection) => probe::existing(connection, keys).await,
            Self::Memory(_) => Vec::new(),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Vec::new(),
        }
    }

    /// Deletes the key of a probe.
    pub(crate) async fn delete_probe(&self, key: &str) {
        if let Self::Redis(connection) = self {
            probe::delete(connection, key).await;
        }
    }

    /// Asks for some of the keys that begin with `prefix`, from `cursor` on, and has the server look at about `count`
    /// keys for them.
    #[cfg(feature = "cli")]
    pub(crate) async fn scan(&self, prefix: &[u8], cursor: u64, count: u32) -> Result<keys::Step, Failure> {
        match self {
            Self::Redis(connection) => keys::scan(connection, prefix, cursor, count).await,
            Self::Memory(connection) => connection.look(|store, now| keys::Step::last(store.keys(now, prefix))),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Ok(keys::Step::last(Vec::new())),
        }
    }

    /// Reads what is under a lock key, with what proves whose it is. `asking` as in [`OpenSlot`].
    #[cfg(feature = "cli")]
    pub(crate) async fn read(&self, keys: &Keys, asking: bool) -> Result<keys::Content, Failure> {
        match self {
            Self::Redis(connection) => keys::read(connection, keys, asking).await,
            Self::Memory(connection) => keys::read_store(connection, keys),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Err(Failure::UnexpectedReply),
        }
    }

    /// Deletes the lock key if it is still that of `proof`.
    #[cfg(feature = "cli")]
    pub(crate) async fn delete(&self, keys: &Arc<Keys>, proof: &keys::Proof, asking: bool) -> Result<Reply, Failure> {
        match self {
            Self::Redis(connection) => keys::delete(connection, keys, proof, asking).await,
            Self::Memory(connection) => keys::delete_from_store(connection, keys, proof),
            #[cfg(feature = "simulation")]
            Self::Simulated(_) => Err(Failure::UnexpectedReply),
        }
    }

    /// Sends a provider's newest login, if there is one; see [`redis::RedisConnection::log_in`].
    pub(crate) fn log_in(&self) {
        if let Self::Redis(connection) = self {
            connection.log_in();
        }
    }

    /// Calls, and once more with the script's text if the node does not know the script. Not for requests that create a
    /// key: those must not be sent after their round's verdict.
    pub(crate) async fn call_known(&self, request: &Request) -> Result<Reply, Failure> {
        match self.call(request, Eval::Sha).await {
            Err(Failure::NoScript) => self.call(request, Eval::Text).await,
            result => result,
        }
    }

    /// Returns whether `other` is a handle to the same connection.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Redis(one), Self::Redis(two)) => one.same(two),
            (Self::Memory(_), Self::Memory(_)) => true,
            #[cfg(feature = "simulation")]
            (Self::Simulated(one), Self::Simulated(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}
