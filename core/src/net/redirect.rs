//! Redirects: a request that a server of a cluster sends elsewhere, followed to its answer.
//!
//! - MOVED: another server has the slot. The map learns of it, and the request is sent there.
//! - ASK: the other server may have the key already. It is asked this once: each next request asks the map's primary
//!   first, because the other server alone would answer *absent* for a lock that has not moved yet.
//! - TRYAGAIN: some keys of the request are on either server. The map's primary is asked again, with as few keys as the
//!   request can do with.
//!
//! A request that creates a key is not followed. The other server may be in quarantine, and a create that is sent after
//! its round's verdict could be executed behind its own release. So an attempt begins again, with a fresh token, at the
//! set that the map names then.
//!
//! Every answer here is that to a request that was not executed, so that sending it again is sending it once.
//!
//! What may interrupt it: as any request, it is dropped; what was written is executed unread.

use std::sync::{Arc, Weak};

use crate::fault::{Fault, planted};
use crate::net::connections::Connections;
use crate::net::node::{Connection, Failure, OpenSlot};
use crate::protocol::request::{Action, Reply, Request};

/// How often one request is sent on. Two servers may name each other for a while.
const MOST: u32 = 5;

/// A node's answer, with the connection that carried the request.
pub(crate) type Asked = (Option<Connection>, Result<Reply, Failure>);

/// Returns the answer to `request`, which `node` has answered with `answer` over `connection`: the same, or that of the
/// server that has the slot.
pub(crate) async fn follow(
    connections: &Arc<Connections>,
    node: usize,
    request: &Request,
    (first, answer): (Connection, Result<Reply, Failure>),
) -> Asked {
    let Some(router) = connections.members.router.as_ref().and_then(Weak::upgrade) else {
        return (Some(first), answer.map_err(Failure::without_cluster));
    };
    if planted(Fault::ReleaseStays) && matches!(request.action, Action::Release { .. }) {
        return (Some(first), answer);
    }
    if request.action.creates() && !planted(Fault::CreateFollowed) {
        if let Err(Failure::Moved(to)) = &answer {
            router.moved(connections, node, to);
        }
        return (Some(first), answer);
    }
    let (mut asked, mut connection, mut answer) = (Arc::clone(connections), first.clone(), answer);
    let mut open = OpenSlot::default();
    for _ in 0..MOST {
        let place = match &answer {
            Err(Failure::Moved(to)) => {
                open.asking = false;
                Some(router.moved(&asked, node, to))
            }
            Err(Failure::Asked(to)) => {
                open.asking = true;
                Some(router.place(&asked, node, to))
            }
            Err(Failure::Between) if planted(Fault::TryAgainLoses) => {
                return (Some(connection), Ok(Reply::Absent));
            }
            Err(Failure::Between) if !open.bare && planted(Fault::AskRemembered) => {
                open.bare = true;
                None
            }
            Err(Failure::Between) if !open.bare => {
                open = OpenSlot { asking: false, bare: true };
                (asked, connection) = (Arc::clone(connections), first.clone());
                None
            }
            _ => break,
        };
        if let Some(place) = place {
            let Some(there) = router.connections(connections, node, &place, &request.keys) else { break };
            asked = there;
            connection = match asked.get(node, true).await {
                Ok(connection) => connection,
                Err(failure) => return (None, Err(failure)),
            };
        }
        answer = connection.call_in_open_slot(request, open).await;
        if answer.as_ref().err().is_some_and(Failure::breaks_connection) {
            asked.discard_if(node, &connection);
        }
    }
    (Some(connection), answer)
}
