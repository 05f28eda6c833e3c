//! Inspection: one round that reads the state of a name on every node. It changes nothing and counts nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::net::connections::Connections;
use crate::net::footprint::Footprint;
use crate::net::node::Failure;
use crate::net::round::{Event, Round};
use crate::process::context::LockContext;
use crate::protocol::request::{Action, KeyState, Reply, Request};
use crate::protocol::token::Token;

/// A node and the state of a lock's name on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The node's address without user name or password.
    pub node: String,
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

/// Asks every node of `context` for the state of the name.
pub(crate) async fn inspect(context: &LockContext, connections: &Arc<Connections>) -> Vec<NodeView> {
    let nodes = connections.members.len();
    let limit = connections.connect_limit();
    connections.connect_quorum(limit).await;
    let node_timeout = context.spec.settings.node_timeout;
    let footprint = Arc::new(Footprint::new(nodes));
    let mut round = Round::new(connections, &footprint, node_timeout, limit.after(node_timeout));
    let token = Token::fresh(&context.process.random);
    for node in 0..nodes {
        round.ask(node, Request { keys: Arc::clone(&context.spec.keys), token, action: Action::Inspect }, None);
    }
    let mut states = vec![NodeState::Unavailable { error: Failure::Silent(node_timeout).to_string() }; nodes];
    while let Some(Event::Vote(node, answer)) = round.next().await {
        states[node] = state(answer);
    }
    let view = |(node, state): (usize, NodeState)| NodeView {
        node: connections.members.nodes[node].address.to_string(),
        state,
    };
    states.into_iter().enumerate().map(view).collect()
}

fn state(answer: Result<Reply, Failure>) -> NodeState {
    match answer {
        Ok(Reply::Seen(KeyState::Free)) => NodeState::Free,
        Ok(Reply::Seen(KeyState::Ours { label, fence, ttl_left })) => {
            NodeState::Held { label: label.map(String::from), fence, ttl_left }
        }
        Ok(Reply::Seen(KeyState::Foreign { ttl_left })) => NodeState::Foreign { ttl_left },
        Ok(_) => NodeState::Unavailable { error: Failure::UnexpectedReply.to_string() },
        Err(failure) => NodeState::Unavailable { error: failure.to_string() },
    }
}
