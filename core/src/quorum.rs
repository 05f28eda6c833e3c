//! PURE: votes and instants in, verdicts out. All arithmetic of the protocol stands here; no clock, no socket, no
//! randomness. The rules are those of the Redis distributed-locks page ("The Redlock algorithm") with the fence that
//! `docs/protocol.md` describes; where they meet, a comment says which rule a line implements.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::LostReason;

/// ⌊n/2⌋ + 1: any two quorums share a node.
pub(crate) const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What is taken off a lease for clocks that run at different rates: 1 % of the ttl for the rate, 2 ms for the
/// resolution of a server's expiry (distributed-locks page, "Is the algorithm asynchronous?").
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Until when a holder may rely on a lease that was asked for at `start`; never past `limit`.
pub(crate) fn valid_until(start: Moment, ttl: Duration, limit: Option<Moment>) -> Moment {
    let end = start.after(ttl.saturating_sub(drift(ttl)));
    limit.map_or(end, |limit| end.min(limit))
}

/// The fence to propose: larger than all that this caller has seen, and a readable timestamp.
pub(crate) fn proposal(wall_micros: u64, highest_seen: u64) -> u64 {
    wall_micros.max(highest_seen + 1)
}

/// A set of nodes, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask(u16);

impl Mask {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn all(nodes: usize) -> Self {
        if nodes == 0 { Self::NONE } else { Self(u16::MAX >> (16 - nodes)) }
    }

    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) fn with(self, node: usize) -> Self {
        Self(self.0 | 1 << node)
    }

    pub(crate) fn has(self, node: usize) -> bool {
        self.0 & 1 << node != 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// How one node's answer counts towards one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// Not in yet.
    Pending,
    /// Yes.
    For,
    /// No, or no usable answer: it will not become a yes any more.
    Against,
}

/// Where a vote stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tally {
    /// It may still go either way.
    Open,
    /// A quorum is for it.
    Carried,
    /// Too many are against it for a quorum ever to be for it.
    Rejected,
}

/// Whether a round waits for the answer of `node`: always, unless it is suspect and at least q nodes are not.
fn waits_for(node: usize, nodes: usize, suspects: Mask) -> bool {
    !suspects.has(node) || nodes - suspects.len() < quorum(nodes)
}

/// Counts `ballots`. Over as soon as it is certain: `for ≥ q`, or `against > n − q`; waiting for `against = q` would
/// wait for ever with an even number of nodes and a split vote.
///
/// While at least q nodes are not suspect, pending suspects count as against at once, so that a hung minority delays
/// nobody; with fewer, the vote waits for them.
pub(crate) fn tally(ballots: &[Ballot], suspects: Mask) -> Tally {
    let nodes = ballots.len();
    let needed = quorum(nodes);
    let count = |wanted| ballots.iter().filter(|ballot| **ballot == wanted).count();
    if count(Ballot::For) >= needed {
        return Tally::Carried;
    }
    let given_up =
        |(node, ballot): &(usize, &Ballot)| **ballot == Ballot::Pending && !waits_for(*node, nodes, suspects);
    let against = count(Ballot::Against) + ballots.iter().enumerate().filter(given_up).count();
    if against > nodes - needed { Tally::Rejected } else { Tally::Open }
}

/// One node's part in an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Vote {
    /// No answer to the acquire yet.
    #[default]
    Pending,
    /// Granted with this fence.
    Granted(u64),
    /// Granted with this fence and asked to confirm a larger one.
    Confirming(u64),
    /// Has acknowledged the attempt's fence by an exact confirm.
    Confirmed,
    /// Held by another.
    Held,
    /// No usable answer, or a confirm that was refused.
    Failed,
}

/// What an attempt should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for more votes.
    Open,
    /// A quorum has this fence: won, if `valid_until` is still ahead.
    Won(u64),
    /// A quorum granted, with different fences. This, the largest granted so far, is the attempt's fence; it must be
    /// confirmed by granted nodes below it.
    Confirm(u64),
    /// No quorum can come any more.
    Lost,
}

/// Judges an attempt. `decided` is the fence that an earlier [`Verdict::Confirm`] fixed; `counts` are the nodes whose
/// grants count (not barred, not a second name for the same server).
pub(crate) fn attempt(votes: &[Vote], decided: Option<u64>, counts: Mask, suspects: Mask) -> Verdict {
    let granted = |node: usize| match votes[node] {
        Vote::Granted(fence) | Vote::Confirming(fence) if counts.has(node) => Some(fence),
        _ => None,
    };
    let ballot = |node: usize| match (votes[node], decided) {
        (Vote::Pending, _) => Ballot::Pending,
        _ if !counts.has(node) => Ballot::Against,
        (Vote::Confirmed, _) | (Vote::Granted(_), None) => Ballot::For,
        (Vote::Granted(fence), Some(decided)) if fence == decided => Ballot::For,
        // Below the fence: its confirm is on the way, or about to be sent.
        (Vote::Granted(fence), Some(decided)) if fence < decided => Ballot::Pending,
        (Vote::Confirming(_), _) => Ballot::Pending,
        _ => Ballot::Against,
    };
    let ballots: Vec<Ballot> = (0..votes.len()).map(ballot).collect();
    match (tally(&ballots, suspects), decided) {
        (Tally::Open, _) => Verdict::Open,
        (Tally::Rejected, _) => Verdict::Lost,
        (Tally::Carried, Some(decided)) => Verdict::Won(decided),
        (Tally::Carried, None) => {
            let fences: Vec<u64> = (0..votes.len()).filter_map(granted).collect();
            // One same value from a quorum needs no second round (any quorum of the granting nodes may be chosen).
            let agreed = |fence: &u64| fences.iter().filter(|other| *other == fence).count() >= quorum(votes.len());
            match fences.iter().copied().find(agreed) {
                Some(fence) => Verdict::Won(fence),
                None => Verdict::Confirm(fences.into_iter().max().unwrap_or(0)),
            }
        }
    }
}

/// One node's answer to an extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extension {
    /// Not in yet.
    #[default]
    Pending,
    /// The key lives longer.
    Extended,
    /// There is no key.
    Absent,
    /// Another owner's key, or one of ours that was granted after the fence was decided: it can never count.
    Foreign,
    /// No usable answer; the key may well be alive.
    Failed,
}

/// What an extension round means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// Wait for more votes.
    Open,
    /// A quorum lives longer.
    Carried,
    /// No quorum answered: nothing is known, the lock stays valid for as long as it was.
    Unknown,
    /// Fewer than a quorum of votes can still come, now and later.
    Lost(LostReason),
}

/// Judges an extension round. Keys that are gone mean loss only when fewer than q votes can still come; nodes that did
/// not answer may still hold theirs.
pub(crate) fn extension(votes: &[Extension], suspects: Mask) -> Extended {
    let nodes = votes.len();
    let needed = quorum(nodes);
    let count = |wanted| votes.iter().filter(|vote| **vote == wanted).count();
    let foreign = count(Extension::Foreign);
    if count(Extension::Extended) < needed && foreign + count(Extension::Absent) > nodes - needed {
        let reason = if foreign >= needed { LostReason::Taken } else { LostReason::Deleted };
        return Extended::Lost(reason);
    }
    let ballot = |vote: &Extension| match vote {
        Extension::Pending => Ballot::Pending,
        Extension::Extended => Ballot::For,
        _ => Ballot::Against,
    };
    let ballots: Vec<Ballot> = votes.iter().map(ballot).collect();
    match tally(&ballots, suspects) {
        Tally::Open => Extended::Open,
        Tally::Carried => Extended::Carried,
        Tally::Rejected => Extended::Unknown,
    }
}

/// One node's answer to a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Not in yet.
    #[default]
    Pending,
    /// Deleted, or absent when the release had to be sent twice.
    Deleted,
    /// Absent: the lock was not there to be released.
    Gone,
    /// Another's.
    Taken,
    /// No usable answer.
    Failed,
}

/// What a release round means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Wait for more votes.
    Open,
    /// A quorum had the lock until now.
    Done,
    /// A quorum did not have it any more: it was lost before.
    Lost(LostReason),
    /// Neither can be told.
    Unknown,
}

/// Judges a release round. Unknown only when no answer that is waited for can show a loss any more.
pub(crate) fn release(votes: &[Removal], suspects: Mask) -> Released {
    let nodes = votes.len();
    let count = |wanted| votes.iter().filter(|vote| **vote == wanted).count();
    let taken = count(Removal::Taken);
    let lost = taken + count(Removal::Gone);
    if lost > nodes - quorum(nodes) {
        let reason = if taken >= quorum(nodes) { LostReason::Taken } else { LostReason::Deleted };
        return Released::Lost(reason);
    }
    let ballot = |vote: &Removal| match vote {
        Removal::Pending => Ballot::Pending,
        Removal::Deleted => Ballot::For,
        Removal::Gone | Removal::Taken | Removal::Failed => Ballot::Against,
    };
    let ballots: Vec<Ballot> = votes.iter().map(ballot).collect();
    let waited_for = |node: &usize| votes[*node] == Removal::Pending && waits_for(*node, nodes, suspects);
    let to_come = (0..nodes).filter(waited_for).count();
    match tally(&ballots, suspects) {
        Tally::Open => Released::Open,
        Tally::Rejected if lost + to_come > nodes - quorum(nodes) => Released::Open,
        Tally::Carried => Released::Done,
        Tally::Rejected => Released::Unknown,
    }
}

/// Until when a node is barred, given when its change of identity is counted from: the server's own start if that is
/// after its last answer to us, else the moment we saw the change (the restart fell somewhere in between).
pub(crate) fn changed_at(seen: Moment, uptime: Duration, last_answer: Moment) -> Moment {
    let started = seen.before(uptime);
    if started > last_answer { started } else { seen }
}
