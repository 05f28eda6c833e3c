//! Redirects: a request that a server of a cluster sends elsewhere, followed to its answer.
//!
//! - MOVED: another server has the slot. The map learns of it, and the request is sent there, unless it creates a key:
//!   the other server may be in quarantine, so that an attempt begins again, with a fresh token, at the set that the map
//!   names then.
//! - ASK: the other server may have the key already. It is asked this once: each next request asks the map's primary
//!   first, because the other server alone would answer *absent* for a lock that has not moved yet.
//! - TRYAGAIN: some keys of the request are on either server. It is sent again with as few as it can do with.
//!
//! Every answer here is that to a request that was not executed, so that sending it again is sending it once.
//!
//! What may interrupt it: as any request, it is dropped; what was written is executed unread.

use std::sync::{Arc, Weak};

use crate::net::connections::Connections;
use crate::net::footprint::Footprint;
use crate::net::node::{Connection, Failure, OpenSlot};
use crate::protocol::request::{Reply, Request};

/// How often one request is sent on. Two servers may name each other for a while.
const MOST: u32 = 5;

/// A node's answer, with the connection that carried the request.
pub(crate) type Asked = (Option<Connection>, Result<Reply, Failure>);

/// Returns the answer to `request`, which `node` has answered with `answer` over `connection`: the same, or that of the
/// server that has the slot. `footprint` records a request that creates a key.
pub(crate) async fn follow(
    connections: &Arc<Connections>,
    node: usize,
    request: &Request,
    footprint: Option<&Footprint>,
    (mut connection, mut answer): (Connection, Result<Reply, Failure>),
) -> Asked {
    let Some(router) = connections.members.router.as_ref().and_then(Weak::upgrade) else {
        return (Some(connection), answer.map_err(Failure::without_cluster));
    };
    let mut open = OpenSlot::default();
    let mut asked = Arc::clone(connections);
    for _ in 0..MOST {
        let to = match &answer {
            Err(Failure::Moved(to)) => {
                let place = router.moved(&asked, node, to);
                if request.action.creates() {
                    break;
                }
                open.asking = false;
                Some(place)
            }
            Err(Failure::Asked(to)) => {
                open.asking = true;
                Some(router.place(&asked, node, to))
            }
            Err(Failure::Between) if !open.bare => {
                open.bare = true;
                None
            }
            _ => break,
        };
        if let Some(place) = to {
            let Some(there) = router.connections(connections, node, &place, &request.keys) else { break };
            asked = there;
            connection = match asked.get(node, true).await {
                Ok(connection) => connection,
                Err(failure) => return (None, Err(failure)),
            };
        }
        answer = match footprint.filter(|_| request.action.creates()) {
            Some(footprint) => {
                let create = footprint.sent(node, &connection, connections.clock.now());
                let answer = connection.call_in_open_slot(request, open).await;
                footprint.answered(node, create, &answer);
                answer
            }
            None => connection.call_in_open_slot(request, open).await,
        };
        if answer.as_ref().err().is_some_and(Failure::breaks_connection) {
            asked.discard_if(node, &connection);
        }
    }
    (Some(connection), answer)
}
