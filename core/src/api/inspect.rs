//! Inspection: one round that reads the state of a name on every node. It changes nothing and counts nothing.
//!
//! A round *asks* every node, and ends when every node has answered, when the answers suffice, or when the time is over.
//! A caller may drop it at any await: its answers are then dropped as they come.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind, NodeAnswer};
use crate::net::connections::Connections;
use crate::net::footprint::Footprint;
use crate::net::node::Failure;
use crate::net::round::{Event, Round};
use crate::process::context::{LockContext, MOVES_MOST};
use crate::protocol::quorum::{self, Presence};
use crate::protocol::request::{Action, KeyState, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

/// A node and the state of a lock's name on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The node's address without user name or password.
    pub node: String,
    /// The key on the node: the client's `key_prefix` and the name, with invalid UTF-8 replaced.
    pub key: String,
    /// The state of the name on this node.
    pub state: NodeState,
}

/// The state of a lock's name on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The lock is free on this node.
    Free,
    /// A lock of this library has the name.
    Held {
        /// The owner's label, by default `host:pid`; `None` if the owner has none.
        label: Option<String>,
        /// The fence on this node.
        fence: u64,
        /// The time until the key expires unless it is extended; `None` for a key that does not expire.
        ttl_left: Option<Duration>,
    },
    /// Something else has the name: a lock of another library, or a key that is not a lock.
    Foreign {
        /// The time until the key expires; `None` for a key that does not expire.
        ttl_left: Option<Duration>,
    },
    /// The node could not be asked.
    Unavailable {
        /// The reason: the node's answer, or the failure of the connection.
        error: String,
    },
}

/// One node's answer: the state of the name, or why the node could not be asked.
type Answer = Result<KeyState, Failure>;

/// Reads the state of the name on every node.
pub(crate) async fn inspect(context: LockContext) -> Result<Vec<NodeView>, Error> {
    let answers = ask(&context, |_, _| false).await?;
    let key = String::from_utf8_lossy(context.spec.name.bytes()).into_owned();
    let view = |(node, answer)| NodeView { node: address(&context, node), key: key.clone(), state: state(answer) };
    Ok(answers.into_iter().enumerate().map(view).collect())
}

/// Returns whether an acquire would have to wait, because other keys leave no quorum for it.
///
/// # Errors
///
/// `unavailable` or `forbidden` if too few nodes answer to know.
pub(crate) async fn is_locked(context: LockContext) -> Result<bool, Error> {
    let decided = |context: &LockContext, answers: &[Answer]| quorum::is_locked(&presences(context, answers)).is_some();
    let mut answers = ask(&context, decided).await?;
    if answers.contains(&Err(Failure::Closed)) {
        // A closed idle connection says nothing about the lock.
        answers = ask(&context, decided).await?;
    }
    quorum::is_locked(&presences(&context, &answers)).ok_or_else(|| unknown(&context, &answers))
}

/// Asks every node until `decided`. On the caller's tokio runtime, or else in the background.
async fn ask(
    context: &LockContext,
    decided: impl Fn(&LockContext, &[Answer]) -> bool + Send + Sync + 'static,
) -> Result<Vec<Answer>, Error> {
    if let Ok(runtime) = Handle::try_current() {
        return Ok(ask_where_it_is(context, &runtime, decided).await);
    }
    let (process, context) = (Arc::clone(&context.process), context.clone());
    process.background.run(async move { ask_where_it_is(&context, &Handle::current(), decided).await }).await
}

/// Asks over the connections of `runtime`, and once more wherever the lock has moved meanwhile.
async fn ask_where_it_is(
    context: &LockContext,
    runtime: &Handle,
    decided: impl Fn(&LockContext, &[Answer]) -> bool,
) -> Vec<Answer> {
    let mut connections = context.set().connections(runtime);
    let end = connections.connect_limit().after(context.spec.settings.node_timeout);
    let mut answers = ask_on(context, &connections, None, &decided).await;
    for _ in 0..MOVES_MOST {
        if answers.iter().all(Result::is_ok) || connections.clock.now() >= end {
            break;
        }
        let Some(there) = context.moved_from(&connections) else { break };
        connections = there;
        let again = ask_on(context, &connections, Some(end), &decided).await;
        // What a node has said stays said.
        let merged = answers.into_iter().zip(again).map(|(before, now)| if now.is_ok() { now } else { before.or(now) });
        answers = merged.collect();
    }
    answers
}

async fn ask_on(
    context: &LockContext,
    connections: &Arc<Connections>,
    end: Option<Moment>,
    decided: impl Fn(&LockContext, &[Answer]) -> bool,
) -> Vec<Answer> {
    let nodes = connections.members.len();
    let limit = connections.connect_limit();
    connections.connect_quorum(end.map_or(limit, |end| limit.min(end))).await;
    let node_timeout = context.spec.settings.node_timeout;
    let footprint = Arc::new(Footprint::new(nodes));
    let round = Round::new(connections, &footprint, node_timeout, limit.after(node_timeout));
    let mut round = if let Some(end) = end { round.until(end) } else { round };
    let token = Token::fresh(&context.process.random);
    for node in 0..nodes {
        round.ask(node, Request { keys: Arc::clone(&context.spec.keys), token, action: Action::Inspect }, None);
    }
    let mut answers = vec![Err(Failure::Silent(node_timeout)); nodes];
    while let Some(Event::Vote(node, answer)) = round.next().await {
        answers[node] = match answer {
            Ok(Reply::Seen(state)) => Ok(state),
            Ok(_) => Err(Failure::UnexpectedReply),
            Err(failure) => Err(failure),
        };
        if decided(context, &answers) {
            break;
        }
    }
    answers
}

/// Returns what the answers say about the lock. A free node whose grant would not count says nothing: it may have lost
/// the lock when it restarted.
fn presences(context: &LockContext, answers: &[Answer]) -> Vec<Presence> {
    let presence = |(node, answer): (usize, &Answer)| match answer {
        Ok(KeyState::Free) if why_not_counted(context, node).is_some() => Presence::Unknown,
        Ok(KeyState::Free) => Presence::Free,
        Ok(KeyState::Ours { .. } | KeyState::Foreign { .. }) => Presence::Taken,
        Err(_) => Presence::Unknown,
    };
    answers.iter().enumerate().map(presence).collect()
}

fn why_not_counted(context: &LockContext, node: usize) -> Option<Failure> {
    let health = &context.set().members.health;
    health.why_not_counted(node, context.spec.settings.restart_delay, context.process.clock.now())
}

/// Returns the error for answers that do not tell whether the lock is held.
fn unknown(context: &LockContext, answers: &[Answer]) -> Error {
    let forbids = |answer: &&Answer| matches!(answer, Err(Failure::Forbidden(_)));
    let may_forbid = answers.len() - quorum::quorum(answers.len());
    let (kind, message) = if answers.iter().filter(forbids).count() > may_forbid {
        (ErrorKind::Forbidden, "a quorum of nodes refuses these credentials or rights; check user, password and ACL")
    } else {
        (ErrorKind::Unavailable, "too few nodes answered to know whether it is held")
    };
    let answer = |(node, answer): (usize, &Answer)| NodeAnswer {
        node: address(context, node),
        answer: match answer {
            Ok(KeyState::Free) => {
                why_not_counted(context, node).map_or_else(|| "free".to_owned(), |why| why.to_string())
            }
            Ok(KeyState::Ours { .. } | KeyState::Foreign { .. }) => "held".to_owned(),
            Err(failure) => failure.to_string(),
        },
    };
    let nodes = answers.iter().enumerate().map(answer).collect();
    let error = Error::new(kind, message).with_name(context.spec.name.bytes()).with_nodes(nodes);
    match answers.iter().filter_map(|answer| answer.as_ref().err()).find_map(Failure::cause) {
        Some(cause) => error.with_shared_source(cause),
        None => error,
    }
}

fn address(context: &LockContext, node: usize) -> String {
    context.set().members.nodes[node].address.to_string()
}

fn state(answer: Answer) -> NodeState {
    match answer {
        Ok(KeyState::Free) => NodeState::Free,
        Ok(KeyState::Ours { label, fence, ttl_left }) => {
            NodeState::Held { label: label.map(String::from), fence, ttl_left }
        }
        Ok(KeyState::Foreign { ttl_left }) => NodeState::Foreign { ttl_left },
        Err(failure) => NodeState::Unavailable { error: failure.to_string() },
    }
}
