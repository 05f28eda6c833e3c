//! What can fail about a node, in the words that people are shown.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{AnswerKind, NodeAnswer};
use crate::protocol::cluster::Redirect;
use crate::sys::clock::Clock;
use crate::transport::logins::NoLogin;
use crate::transport::progress::Phase;

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
    /// Returns the failure of a connect that is in this phase `after` so much time.
    pub(crate) fn unconnected(phase: Phase, after: Duration) -> Self {
        match phase {
            // The source of the login may be slow, and the node not.
            Phase::Login => Self::NoLogin(NoLogin::Slow(after)),
            // So may the files of this client, which others do not read.
            Phase::Certificates => Self::Tls(format!("{phase} within {after:?}").into()),
            phase => Self::Unconnected(phase, after),
        }
    }

    /// Returns the failure of a question that was to be asked over a connection of its own, which was in this phase `after`
    /// so much time.
    pub(crate) fn unanswered(phase: Phase, after: Duration) -> Self {
        match phase {
            Phase::SetUp => Self::Silent(after),
            phase => Self::unconnected(phase, after),
        }
    }

    /// Returns whether this failure makes its connection useless.
    pub(crate) fn breaks_connection(&self) -> bool {
        let is_broken = matches!(
            self,
            Self::Closed | Self::HungUp | Self::Full | Self::Unreachable(_) | Self::Tls(_) | Self::UnexpectedReply
        );
        is_broken
            // A demoted master keeps its connections; the address may lead to its successor by now.
            // A server in protected mode closes it.
            || matches!(self, Self::Refused(code) if matches!(&**code, "READONLY" | "MASTERDOWN" | "DENIED"))
    }

    /// Returns whether the node read and answered the request.
    pub(crate) fn is_answer(&self) -> bool {
        self.is_unexecuted() || matches!(self, Self::UnexpectedReply)
    }

    /// Returns whether the node refused the request.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Told(_) | Self::Forbidden(_))
    }

    /// Returns whether the node answered, and executed nothing.
    pub(crate) fn is_unexecuted(&self) -> bool {
        self.is_redirect() || self.is_refusal() || matches!(self, Self::NoScript | Self::Unassigned)
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

    /// Returns the answer of `node`, for an error.
    pub(crate) fn of_node(&self, node: String) -> NodeAnswer {
        NodeAnswer { node, kind: self.kind(), answer: self.to_string() }
    }

    fn kind(&self) -> AnswerKind {
        match self {
            Self::Unreachable(_) | Self::Tls(_) | Self::Closed | Self::HungUp | Self::Full => AnswerKind::Unreachable,
            Self::Silent(after) if after.is_zero() => AnswerKind::Pending,
            Self::NoLogin(_) => AnswerKind::Pending,
            Self::Silent(_) | Self::Unconnected(..) | Self::Unresponsive => AnswerKind::Silent,
            Self::Refused(code) => AnswerKind::Refused(code.to_string()),
            Self::Told(_) => AnswerKind::Refused("ERR".to_owned()),
            Self::NoScript => AnswerKind::Refused("NOSCRIPT".to_owned()),
            Self::Forbidden(code) => AnswerKind::Forbidden(code.to_string()),
            Self::Quarantined(left) => AnswerKind::Quarantined(*left),
            Self::UnexpectedReply
            | Self::Replica
            | Self::Duplicate(_)
            | Self::Moved(_)
            | Self::Asked(_)
            | Self::Between
            | Self::Unassigned => AnswerKind::Uncounted,
        }
    }

    /// Returns the error of the program's own code behind this failure, if there is one.
    pub(crate) fn cause(&self) -> Option<Arc<dyn StdError + Send + Sync>> {
        match self {
            Self::NoLogin(NoLogin::Provider(error)) => error.source.clone(),
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
            Self::HungUp => f.write_str(
                "cannot be reached: connection closed while it was set up; if the server expects TLS, begin its \
                 address with rediss",
            ),
            Self::Full => f.write_str("max number of clients reached; raise its maxclients or close connections"),
            Self::Silent(after) if after.is_zero() => f.write_str("was not asked: no time was left"),
            Self::Unconnected(phase, after) => write!(f, "no answer within {after:?}: {phase}"),
            Self::Silent(after) => write!(f, "no answer within {after:?}"),
            Self::Unresponsive => f.write_str("does not answer"),
            Self::Refused(code) | Self::Forbidden(code) => write!(f, "refused with {code}{}", advice(code)),
            Self::Told(text) => write!(f, "refused: {text}"),
            Self::NoScript => f.write_str("has lost the script"),
            Self::UnexpectedReply => f.write_str("sent an unexpected reply; is this a Redis or Valkey server?"),
            Self::Replica => f.write_str("is a replica; list its master instead"),
            Self::Quarantined(left) => write!(f, "restarted; its votes count again in {:?}", in_millis(*left)),
            Self::Duplicate(other) => write!(f, "is the same server as node {}", other + 1),
            Self::Moved(to) => write!(f, "does not have this name's slot, and sends requests on to {}", to.place),
            Self::Asked(to) => write!(f, "is handing this name's slot to {}, which has not taken it yet", to.place),
            Self::Between => f.write_str("is handing this name's slot to another server; try again"),
            Self::Unassigned => f.write_str("does not have a primary for this name's slot now"),
        }
    }
}

/// Rounds up to whole milliseconds, for people to read.
pub(crate) fn in_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Returns the advice about a server's error code.
fn advice(code: &str) -> &'static str {
    match code {
        "OOM" => " (out of memory: raise maxmemory)",
        "READONLY" | "MASTERDOWN" => " (a replica: list its master instead)",
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
        "CROSSSLOT" => " (it keeps these names apart: give them the same hash tag)",
        "CLUSTERDOWN" => " (the cluster has slots without a primary, or this server sees too few others)",
        _ => "",
    }
}

/// Returns what `call` returns, or the failure of a node that does not answer within `limit`.
pub(crate) async fn within<T>(
    clock: &Clock,
    limit: Duration,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let call = pin!(call);
    clock.timeout(limit, call).await.unwrap_or(Err(Failure::Silent(limit)))
}
