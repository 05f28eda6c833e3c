//! Redirects: a request that a server of a cluster sends elsewhere, followed to its answer.
//!
//! - MOVED: another server has the slot. The map learns of it, and the request is sent there.
//! - ASK: the other server may have the key already. It is asked this once: each next request asks the map's primary
//!   first, because the other server alone would answer *absent* for a lock that has not moved yet.
//! - TRYAGAIN: some keys of the request are on either server. The map's primary is asked again, with as few keys as the
//!   request can do with.
//!
//! An extension or a release of several names is then sent name by name. It is one vote: yes only if each name says yes.
//! A look at several slots of a semaphore is sent slot by slot, and counts nobody.
//!
//! A request that creates a key is not followed. The other server may be in quarantine, and a create that is sent after
//! its round's verdict could be executed behind its own release. So an attempt begins again, with a fresh token, at the
//! set that the map names then.
//!
//! Every answer here is that to a request that was not executed, so that sending it again is sending it once.
//!
//! What may interrupt it: as any request, it is dropped; what was written is executed unread.

use std::sync::Arc;

use crate::net::connections::Connections;
use crate::node::Connection;
use crate::node::way::OpenSlot;
use crate::protocol::request::{Action, KeyState, Keys, Reply, Request};
use crate::transport::failure::Failure;

/// How often one request is sent on. Two servers may name each other for a while.
const MOST: u32 = 5;

/// A node's answer, with the connection that carried the request.
pub(crate) type Asked = (Option<Connection>, Result<Reply, Failure>);

/// Returns the answer to `request`, which was sent in this way, and which `node` has answered with `answer` over `first`:
/// the same, or that of the server that has the slot.
pub(crate) async fn follow(
    connections: &Arc<Connections>,
    node: usize,
    request: &Request,
    (first, answer): (Connection, Result<Reply, Failure>),
    mut open: OpenSlot,
) -> Asked {
    let Some(router) = connections.members.router() else {
        return (Some(first), answer.map_err(Failure::without_cluster));
    };
    if request.action.creates() {
        if let Err(Failure::Moved(to)) = &answer {
            router.moved(connections, node, to);
        }
        return (Some(first), answer);
    }
    let (mut asked, mut connection, mut answer) = (Arc::clone(connections), first.clone(), answer);
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
            Err(Failure::Between) if request.keys.are_several() && request.action.is_divisible() => {
                return Box::pin(follow_each(connections, node, request, first)).await;
            }
            Err(Failure::Between) if !open.bare => {
                open = OpenSlot { asking: false, bare: true };
                (asked, connection) = (Arc::clone(connections), first.clone());
                None
            }
            Err(Failure::Between) => match &request.action {
                Action::Look { slots, .. } if slots.len() > 1 => {
                    return Box::pin(look_at_each(connections, node, request, slots, first)).await;
                }
                _ => break,
            },
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

/// Returns the answer to `request`, which is sent for each of its names alone.
async fn follow_each(connections: &Arc<Connections>, node: usize, request: &Request, first: Connection) -> Asked {
    let mut all: Option<Reply> = None;
    for keys in request.keys.each() {
        let one = Request { keys: Arc::new(keys.alone()), ..request.clone() };
        let answer = first.call_in_open_slot(&one, OpenSlot { asking: false, bare: true }).await;
        let (_, answer) = follow(connections, node, &one, (first.clone(), answer), OpenSlot::default()).await;
        match answer {
            Ok(reply) => all = Some(worse(all, reply)),
            Err(failure) => return (Some(first), Err(failure)),
        }
    }
    (Some(first), all.ok_or(Failure::UnexpectedReply))
}

/// Returns the answer to a look at `slots`, each of which is looked at alone.
async fn look_at_each(
    connections: &Arc<Connections>,
    node: usize,
    request: &Request,
    slots: &[Arc<Keys>],
    first: Connection,
) -> Asked {
    let (mut all, mut least) = (Vec::new(), None);
    for (place, keys) in (0..).zip(slots) {
        let action = Action::Look { slots: Arc::new([Arc::clone(keys)]), wants: None, anyway: false };
        let one = Request { action, ..request.clone() };
        let open = OpenSlot { asking: false, bare: true };
        let answer = first.call_in_open_slot(&one, open).await;
        match follow(connections, node, &one, (first.clone(), answer), open).await {
            (_, Ok(Reply::Slots { free, ttl_left, .. })) => {
                all.extend(free.first().map(|_| place));
                least = least.into_iter().chain(ttl_left).min();
            }
            (_, Ok(_)) => return (Some(first), Err(Failure::UnexpectedReply)),
            (_, Err(failure)) => return (Some(first), Err(failure)),
        }
    }
    (Some(first), Ok(Reply::Slots { free: all, ttl_left: least, position: 0, hold: 0 }))
}

/// Returns the answer for several names: that of another's lock before that of an absent one, both before a grant that
/// does not count, and all before yes.
fn worse(all: Option<Reply>, reply: Reply) -> Reply {
    let rank = |reply: &Reply| match reply {
        Reply::Foreign(_) => 4,
        Reply::Absent | Reply::Held { .. } => 3,
        Reply::Seen { state, .. } if *state != KeyState::Free => 3,
        Reply::Ahead(_) => 2,
        Reply::Extended => 1,
        _ => 0,
    };
    match (all, reply) {
        (Some(Reply::Deleted { waiting }), Reply::Deleted { waiting: more }) => {
            Reply::Deleted { waiting: waiting.saturating_add(more) }
        }
        (Some(all), reply) if rank(&all) >= rank(&reply) => all,
        (_, reply) => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_names_say_yes_only_if_each_does() {
        let all = |replies: &[Reply]| replies.iter().cloned().fold(None, |all, reply| Some(worse(all, reply))).unwrap();
        let deleted = |waiting| Reply::Deleted { waiting };
        assert_eq!(all(&[deleted(1), deleted(2)]), deleted(3));
        assert_eq!(all(&[deleted(1), Reply::Absent, deleted(2)]), Reply::Absent);
        assert_eq!(all(&[Reply::Absent, Reply::Foreign(None), Reply::Extended]), Reply::Foreign(None));
        assert_eq!(all(&[Reply::Ahead(7), Reply::Absent, Reply::Ahead(9)]), Reply::Absent);
        assert_eq!(all(&[Reply::Raised, Reply::Ahead(7), Reply::Extended]), Reply::Ahead(7));
        assert_eq!(all(&[Reply::Raised, Reply::Extended, Reply::Raised]), Reply::Extended);
    }
}
