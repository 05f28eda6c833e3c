//! One extension of a held lock, explicit or by renewal.
//!
//! States: *opening*, *asking*, then *done*, *unknown* (no quorum answered: the lock stays valid for as long as it was)
//! or *lost*. What may interrupt it:
//!
//! - it is dropped anywhere: some keys may live longer, which is harmless, and the validity is unchanged;
//! - the lock is released or lost meanwhile: the result is ignored;
//! - another extension is answered sooner or later than this one (see `lease`).
//!
//! *A node that is ahead* remembers a larger fence than the one that the lock was won with. It has granted the lock more,
//! and the grant was not needed. Or it has no key, because the acquire did not reach it or it has forgotten the lock, and
//! does not take the lock back. It cannot count as it is: another owner with a fence in between may have come and gone
//! there. So the next extension has every node that does count remember the larger fence, the *floor*. Once a quorum does,
//! the lock's *level* is the floor. From then on extensions and restores compare with it: the node that was ahead counts, or
//! takes the lock back. The holder keeps the fence that it was told, and a restored key shows it.
//!
//! This is safe because nobody else ever wins with a fence above that of the lock and not above its level. At first the
//! level is the fence. Say that it is L, that each node of a quorum Y has extended the lock at level L and remembers the
//! floor, and that another owner wins with a fence F above L and not above the floor. Its quorum has a node y in common
//! with Y, which granted or confirmed F while the other owner's grant lasted.
//!
//! - If that was before y had this lock, y remembered F or more. So it would have granted this lock more than F, and then
//!   not have extended it at level L; or it would not have restored it at level L or less.
//! - If it was after y extended this lock, the other owner's grant came then too, as a node has one owner at a time. It
//!   is above the floor, and so is F.
//!
//! So a key that was granted no more than the level shows that no owner with a larger fence has been there in between, and
//! so does an absent key on a node that remembers no more than the level. This holds for any floor, wherever it was found:
//! a fence that an attempt left on one node, and one that somebody has won with. In the latter case no such quorum answers,
//! because the lock has been lost to that owner. No fence key falls, and no clock is read.
//! `tests/model` goes through every order of these steps.

use std::sync::Arc;

use crate::error::NodeAnswer;
use crate::hold::lease::{Extending, Lease, Target};
use crate::hold::outcome::Loss;
use crate::hold::restore::put_back;
use crate::net::ballots::KeyBallots;
use crate::net::connections::Connections;
use crate::net::round::{Delivery, Round};
use crate::protocol::quorum::{KeyVerdict, KeyVote, quorum};
use crate::protocol::request::Reply;
use crate::sys::clock::Moment;
use crate::transport::failure::Failure;

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

/// Asks all nodes to keep the lock for a ttl from now.
pub(crate) async fn extend(lease: &Arc<Lease>, connections: &Arc<Connections>, target: Target, wait: Wait) -> Extended {
    let limit = lease.valid_until();
    let connect_by = connections.connect_limit().min(limit);
    let connect_by = if let Wait::Until(end) = wait { connect_by.min(end) } else { connect_by };
    connections.connect_quorum(connect_by).await;
    let Some((extending, request, footprint)) = lease.extension(target) else { return Extended::Over };
    let _asking = lease.begin_asking();
    let mut round = Round::new(connections, &footprint, lease.context.spec.settings.node_timeout, limit);
    round = match wait {
        Wait::Nobody => round,
        Wait::Call => round.urgent(connect_by),
        Wait::Until(end) => round.urgent(connect_by).until(end),
    };
    let start = round.started;
    let mut ballots = KeyBallots::new(vec![KeyVote::Pending; connections.members.len()]);
    ballots.ask(&mut round, &request);
    let answers = |ballots: &KeyBallots| ballots.answers(&connections.members, describe);
    let mut raised = 0;
    let mut judge = |_, answer: &Result<Reply, Failure>, _| {
        match answer {
            Ok(Reply::Raised) => raised += 1,
            Ok(Reply::Ahead(fence)) => footprint.remembered(*fence),
            _ => {}
        }
        vote(answer)
    };
    match ballots.decide(&mut round, &mut judge).await {
        KeyVerdict::Lost(reason) => Extended::Lost(lease.loss(reason, answers(&ballots))),
        KeyVerdict::Open | KeyVerdict::Unknown => Extended::Unknown(extending, answers(&ballots)),
        KeyVerdict::Carried if lease.extended(start, extending, raised >= quorum(connections.members.len())) => {
            put_back(lease, round, ballots.votes());
            lease.catch_up();
            Extended::Done
        }
        KeyVerdict::Carried => Extended::Over,
    }
}

/// Returns the vote of an extension's answer, or of a re-key's.
pub(crate) fn vote(answer: &Result<Reply, Failure>) -> KeyVote {
    match answer {
        Ok(Reply::Extended | Reply::Already | Reply::Raised) => KeyVote::Ours,
        Ok(Reply::Absent) => KeyVote::Absent,
        Ok(Reply::Foreign(_)) => KeyVote::Foreign,
        Ok(Reply::Ahead(_)) => KeyVote::Ahead,
        Ok(_) | Err(_) => KeyVote::Failed,
    }
}

/// Describes one node's reply for people.
pub(crate) fn describe(_: KeyVote, reply: Option<&Reply>, _: Delivery) -> String {
    match reply {
        Some(Reply::Extended | Reply::Already | Reply::Raised) => "extended".to_owned(),
        Some(Reply::Absent) => "no longer has the key".to_owned(),
        Some(Reply::Foreign(Some(label))) => format!("held by {label}"),
        Some(Reply::Foreign(None)) => "held by another".to_owned(),
        Some(Reply::Ahead(_)) => "granted a larger fence, which does not count".to_owned(),
        _ => Failure::UnexpectedReply.to_string(),
    }
}
