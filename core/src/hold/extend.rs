//! One extension of a held lock, explicit or by renewal.
//!
//! States: *opening*, *asking*, then *done*, *unknown* (no quorum answered: the lock stays valid for as long as it was)
//! or *lost*. What may interrupt it:
//!
//! - it is dropped anywhere: some keys may live longer, which is harmless, and the validity is unchanged;
//! - the lock is released or lost meanwhile: the result is ignored;
//! - another extension is answered sooner or later than this one (see `lease`).

use std::sync::Arc;
use std::time::Duration;

use crate::error::NodeAnswer;
use crate::fault::{Fault, planted};
use crate::hold::lease::{Extending, Lease};
use crate::hold::outcome::Loss;
use crate::hold::restore::put_back;
use crate::net::ballots::KeyBallots;
use crate::net::connections::Connections;
use crate::net::node::Failure;
use crate::net::round::{Delivery, Round};
use crate::protocol::quorum::{KeyVerdict, KeyVote};
use crate::protocol::request::Reply;
use crate::sys::clock::Moment;

/// For how long a caller waits for an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// It is a renewal, which is soon followed by another one.
    Nobody,
    /// For as long as an extension takes.
    Call,
    /// Until then at the latest: it has begun again where the lock is now.
    Until(Moment),
}

/// The result of an extension.
#[derive(Debug)]
pub(crate) enum Extended {
    /// `valid_until` has moved.
    Done,
    /// No quorum answered; the extension and each node's answer.
    Unknown(Extending, Vec<NodeAnswer>),
    /// No quorum can hold the lock any more.
    Lost(Loss),
    /// Not held, or not any more when the answers came.
    Over,
}

/// Asks all nodes to keep the lock for `ttl` from now, which later renewals then use, or for the ttl in force.
pub(crate) async fn extend(
    lease: &Arc<Lease>,
    connections: &Arc<Connections>,
    ttl: Option<Duration>,
    wait: Wait,
) -> Extended {
    let limit = lease.valid_until();
    let connect_by = connections.connect_limit().min(limit);
    let connect_by = if let Wait::Until(end) = wait { connect_by.min(end) } else { connect_by };
    connections.connect_quorum(connect_by).await;
    let Some((extending, request, footprint)) = lease.extension(ttl) else { return Extended::Over };
    let mut round = Round::new(connections, &footprint, lease.context.spec.settings.node_timeout, limit);
    round = match wait {
        Wait::Nobody => round,
        Wait::Call => round.urgent(connect_by),
        Wait::Until(end) => round.urgent(connect_by).until(end),
    };
    let start = round.started();
    let mut ballots = KeyBallots::new(vec![KeyVote::Pending; connections.members.len()]);
    for node in 0..connections.members.len() {
        if round.leaves_out(node) {
            ballots.fail(node, Failure::Unresponsive);
        } else {
            round.ask(node, request.clone(), None);
        }
    }
    let answers = |ballots: &KeyBallots| ballots.answers(&connections.members, describe);
    match ballots.decide(&mut round, |_, answer, _| vote(answer)).await {
        KeyVerdict::Lost(reason) => Extended::Lost(Loss { reason, nodes: answers(&ballots) }),
        KeyVerdict::Open | KeyVerdict::Unknown => Extended::Unknown(extending, answers(&ballots)),
        KeyVerdict::Carried if lease.extended(start, extending) => {
            put_back(lease, round, ballots.votes());
            Extended::Done
        }
        KeyVerdict::Carried => Extended::Over,
    }
}

fn vote(answer: &Result<Reply, Failure>) -> KeyVote {
    match answer {
        Ok(Reply::Extended) => KeyVote::Ours,
        Ok(Reply::Absent) if planted(Fault::RestoreCounts) => KeyVote::Ours,
        Ok(Reply::Absent) => KeyVote::Absent,
        Ok(Reply::Foreign(_) | Reply::Ahead) => KeyVote::Foreign,
        Ok(_) | Err(_) => KeyVote::Failed,
    }
}

/// Describes one node's reply for people.
fn describe(_: KeyVote, reply: Option<&Reply>, _: Delivery) -> String {
    match reply {
        Some(Reply::Extended) => "extended".to_owned(),
        Some(Reply::Absent) => "has no such key any more".to_owned(),
        Some(Reply::Foreign(Some(label))) => format!("held by {label}"),
        Some(Reply::Foreign(None) | Reply::Ahead) => "held by another".to_owned(),
        _ => Failure::UnexpectedReply.to_string(),
    }
}
