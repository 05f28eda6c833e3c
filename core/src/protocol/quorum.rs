//! PURE: turns votes and instants into verdicts. All arithmetic of the protocol is here; no clock, no socket, no
//! randomness. The rules are those of the Redis distributed-locks page ("The Redlock algorithm") with the fence that
//! `docs/protocol.md` describes. Where they meet, a comment names the rule that a line implements.

use std::time::Duration;

use crate::error::LostReason;
use crate::protocol::token::Fingerprint;
use crate::sys::clock::Moment;
use crate::texts::texts;

/// Returns for how long quarantines alone prevent a quorum: `missing` more answers would make one, and each quarantine has
/// so long left. `None` if they do not, or if there are too few of them.
pub(crate) fn quarantined_for(missing: usize, left: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut left: Vec<Duration> = left.collect();
    left.sort_unstable();
    left.get(missing.checked_sub(1)?).copied()
}

/// Returns ⌊n/2⌋ + 1: any two quorums share a node.
pub(crate) fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Returns the time taken off a lease for clocks of different rates: 1 % of the ttl for the rate, 2 ms for the
/// resolution of a server's expiry (distributed-locks page, "Is the algorithm asynchronous?").
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Returns until when a holder may rely on a lease requested at `start`, which it leaves `margin` earlier than it must;
/// never past `limit`.
pub(crate) fn valid_until(start: Moment, ttl: Duration, margin: Duration, limit: Option<Moment>) -> Moment {
    let end = start.after(ttl.saturating_sub(drift(ttl)).saturating_sub(margin));
    limit.map_or(end, |limit| end.min(limit))
}

/// Returns the fence to propose: larger than all that this caller has seen, and a readable timestamp.
pub(crate) fn proposal(wall_micros: u64, highest_seen: u64) -> u64 {
    wall_micros.max(highest_seen + 1)
}

/// Returns whether an acquire would have to wait: whether nodes with a key in the way leave no quorum for it. Nodes that
/// would grant it are for it. `None` if the answers do not tell.
pub(crate) fn is_locked(ballots: &[Ballot]) -> Option<bool> {
    match tally(ballots.len(), |node| ballots[node], NodeMask::NONE) {
        Tally::Carried => Some(false),
        Tally::Rejected => Some(true),
        Tally::Open => None,
    }
}

/// Whose key a node has, as far as its answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The node would grant it.
    Nobody,
    /// A lock of this library.
    Ours(Fingerprint),
    /// A lock of this library that is shared. Each node knows other readers.
    Shared,
    /// Something else. Owners of such keys cannot be told apart.
    Foreign,
    /// The answer is missing, or does not count.
    Unknown,
}

/// Whose a lock is, as far as a quorum of its nodes shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockState {
    /// A quorum of nodes would grant it.
    Free,
    /// One owner has it on a quorum of nodes.
    Held,
    /// It is shared on a quorum of nodes.
    Shared,
    /// A quorum of nodes has something else under its key: a lock of another library, or a key that is not a lock.
    Foreign,
    /// No quorum shows the same. Too few nodes could be asked, nodes that restarted are in quarantine, votes are split,
    /// or the lock is being acquired or released.
    Unknown,
}

texts! {
    LockState:
    /// Returns the stable text of this state: `free`, `held`, `shared`, `foreign` or `unknown`.
    pub as_str: Free = "free", Held = "held", Shared = "shared", Foreign = "foreign", Unknown = "unknown",
}

/// Returns whose a lock is, and the nodes that have a key of its owner. If no quorum shows an owner, those are the
/// nodes of the owner with the most.
///
/// Two quorums share a node, so at most one of the answers has one.
pub(crate) fn lock_state(owners: &[Owner]) -> (LockState, NodeMask) {
    let needed = quorum(owners.len());
    let nodes_of =
        |owner: Owner| (0..owners.len()).filter(|node| owners[*node] == owner).fold(NodeMask::NONE, NodeMask::with);
    let is_somebody = |owner: &Owner| matches!(owner, Owner::Ours(_) | Owner::Shared | Owner::Foreign);
    let somebody = owners.iter().copied().filter(is_somebody);
    let most = somebody.map(|owner| (owner, nodes_of(owner))).max_by_key(|(_, nodes)| nodes.len());
    let (owner, nodes) = most.unwrap_or((Owner::Unknown, NodeMask::NONE));
    let state = match owner {
        _ if nodes_of(Owner::Nobody).len() >= needed => LockState::Free,
        Owner::Ours(_) if nodes.len() >= needed => LockState::Held,
        Owner::Shared if nodes.len() >= needed => LockState::Shared,
        Owner::Foreign if nodes.len() >= needed => LockState::Foreign,
        _ => LockState::Unknown,
    };
    (state, nodes)
}

/// Returns the largest fence that is certainly not larger than the holder's own, of those that a quorum of `nodes`
/// nodes shows with its token. `None` if `shown` are too few.
///
/// Each node shows the fence that it granted. The holder's is at least as large as those of the q nodes that counted
/// for it. Each of the others may have granted a larger one, too late to count. So the n − q largest are left out.
pub(crate) fn least_fence(nodes: usize, shown: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut shown: Vec<u64> = shown.into_iter().collect();
    shown.sort_unstable();
    let uncounted = nodes - quorum(nodes);
    shown.len().checked_sub(uncounted + 1).map(|index| shown[index])
}

/// Returns how long at least a quorum of `nodes` nodes keeps a key that has these times left; `None` if that does not
/// end.
pub(crate) fn kept_for(nodes: usize, left: impl IntoIterator<Item = Option<Duration>>) -> Option<Duration> {
    let mut left: Vec<Duration> = left.into_iter().map(|left| left.unwrap_or(Duration::MAX)).collect();
    left.sort_unstable();
    let quorum_th = left.len().checked_sub(quorum(nodes)).map_or(Duration::ZERO, |index| left[index]);
    (quorum_th != Duration::MAX).then_some(quorum_th)
}

/// A set of nodes, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeMask(u16);

impl NodeMask {
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

    pub(crate) fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(crate) fn without(self, node: usize) -> Self {
        Self(self.0 & !(1 << node))
    }

    pub(crate) fn contains(self, node: usize) -> bool {
        self.0 & 1 << node != 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the nodes in their order.
    pub(crate) fn nodes(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |node| self.contains(*node))
    }
}

/// One node's answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// Not in yet.
    Pending,
    /// Yes.
    For,
    /// No, or no usable answer: it will not become a yes any more.
    Against,
}

/// The state of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tally {
    /// It may still go either way.
    Open,
    /// A quorum is for it.
    Carried,
    /// Too many are against it for a quorum ever to be for it.
    Rejected,
}

/// Returns whether a round waits for `node`: always, unless it is unresponsive and at least q nodes are not.
fn waits_for(node: usize, nodes: usize, unresponsive: NodeMask) -> bool {
    !unresponsive.contains(node) || nodes - unresponsive.len() < quorum(nodes)
}

/// Counts the ballots of `nodes` nodes. The vote is over as soon as it is certain: `for ≥ q`, or `against > n − q`.
/// Waiting for `against = q` would never end with an even number of nodes and a split vote.
///
/// While at least q nodes are responsive, pending unresponsive ones count as against at once, so a hung minority delays
/// no vote. With fewer, it waits for them.
pub(crate) fn tally(nodes: usize, ballot: impl Fn(usize) -> Ballot, unresponsive: NodeMask) -> Tally {
    let needed = quorum(nodes);
    let (mut carried, mut against) = (0, 0);
    for node in 0..nodes {
        match ballot(node) {
            Ballot::For => carried += 1,
            Ballot::Against => against += 1,
            Ballot::Pending if !waits_for(node, nodes, unresponsive) => against += 1,
            Ballot::Pending => {}
        }
    }
    if carried >= needed {
        Tally::Carried
    } else if against > nodes - needed {
        Tally::Rejected
    } else {
        Tally::Open
    }
}

/// One node's part in an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Vote {
    /// No answer to the acquire yet.
    #[default]
    Pending,
    /// Granted with this fence.
    Granted(u64),
    /// Granted with this fence, and asked to confirm a larger one.
    Confirming(u64),
    /// Acknowledged the attempt's fence by an exact confirm.
    Confirmed,
    /// Held by another.
    Held,
    /// No usable answer, or a confirm that was refused.
    Failed,
}

/// The next step of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for more votes.
    Open,
    /// A quorum has this fence: won, if `valid_until` is still ahead.
    Won(u64),
    /// A quorum granted, with different fences. This one, the largest granted so far, is the attempt's fence. Granted
    /// nodes below it must confirm it.
    Confirm(u64),
    /// A quorum is impossible now, and no awaited vote changes why.
    Lost,
}

/// Judges an attempt. An earlier [`Verdict::Confirm`] fixed the fence `decided`. `counts` are the nodes whose grants
/// count (not quarantined, not a replica, not a second name for the same server).
pub(crate) fn attempt(votes: &[Vote], decided: Option<u64>, counts: NodeMask, unresponsive: NodeMask) -> Verdict {
    let granted = |node: usize| match votes[node] {
        Vote::Granted(fence) | Vote::Confirming(fence) if counts.contains(node) => Some(fence),
        _ => None,
    };
    let ballot = |node: usize| match (votes[node], decided) {
        (Vote::Pending, _) => Ballot::Pending,
        _ if !counts.contains(node) => Ballot::Against,
        (Vote::Confirmed, _) | (Vote::Granted(_), None) => Ballot::For,
        (Vote::Granted(fence), Some(decided)) if fence == decided => Ballot::For,
        // Below the fence: its confirm is sent, or about to be.
        (Vote::Granted(fence), Some(decided)) if fence < decided => Ballot::Pending,
        (Vote::Confirming(_), _) => Ballot::Pending,
        _ => Ballot::Against,
    };
    match (tally(votes.len(), ballot, unresponsive), decided) {
        (Tally::Open, _) => Verdict::Open,
        (Tally::Rejected, _) if is_unexplained(votes, counts, unresponsive) => Verdict::Open,
        (Tally::Rejected, _) => Verdict::Lost,
        (Tally::Carried, Some(decided)) => Verdict::Won(decided),
        (Tally::Carried, None) => {
            let fences = || (0..votes.len()).filter_map(granted);
            // One same value from a quorum needs no second round: any quorum of the granting nodes may be chosen.
            let agreed = |fence: &u64| fences().filter(|other| other == fence).count() >= quorum(votes.len());
            match fences().find(agreed) {
                Some(fence) => Verdict::Won(fence),
                None => Verdict::Confirm(fences().max().unwrap_or(0)),
            }
        }
    }
}

/// Returns whether the votes to come still tell why an attempt is lost: to other owners, or for lack of answers. Those
/// two are different results, which must not depend on whose answers come first.
fn is_unexplained(votes: &[Vote], counts: NodeMask, unresponsive: NodeMask) -> bool {
    let nodes = votes.len();
    let enough = |number: usize| number > nodes - quorum(nodes);
    let number = |is_it: &dyn Fn(usize) -> bool| (0..nodes).filter(|node| is_it(*node)).count();
    let is_awaited = |node: usize| votes[node] == Vote::Pending && waits_for(node, nodes, unresponsive);
    let held = number(&|node| votes[node] == Vote::Held);
    let unanswered = number(&|node| match votes[node] {
        Vote::Pending => !is_awaited(node),
        Vote::Failed => true,
        // The node may show that others hold the lock, but it cannot grant it.
        Vote::Held => false,
        Vote::Granted(_) | Vote::Confirming(_) | Vote::Confirmed => !counts.contains(node),
    });
    !enough(held) && !enough(unanswered) && enough(unanswered + number(&is_awaited))
}

/// One node's answer about the key of an extension or a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyVote {
    /// Not in yet.
    #[default]
    Pending,
    /// It was ours: it lives longer, or is deleted. Also absent where a release had to be sent twice.
    Ours,
    /// The key is absent.
    Absent,
    /// Another owner's key.
    Foreign,
    /// Ours, but granted a larger fence: it cannot count before a quorum of others has been extended.
    Ahead,
    /// No usable answer; the key may still exist.
    Failed,
}

/// The outcome of an extension or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyVerdict {
    /// Wait for more votes.
    Open,
    /// A quorum had the lock.
    Carried,
    /// No quorum answered: the outcome is unknown.
    Unknown,
    /// Fewer than a quorum of votes for it can still come, now and later.
    Lost(LostReason),
}

/// Judges an extension or a release. Missing keys mean loss only when fewer than q votes can still come, because nodes
/// that did not answer may still hold theirs. Unknown only when no awaited answer can show a loss any more.
pub(crate) fn keys(votes: &[KeyVote], unresponsive: NodeMask) -> KeyVerdict {
    let nodes = votes.len();
    let needed = quorum(nodes);
    let count = |wanted| votes.iter().filter(|vote| **vote == wanted).count();
    let foreign = count(KeyVote::Foreign);
    let lost = foreign + count(KeyVote::Absent) + count(KeyVote::Ahead);
    if lost > nodes - needed {
        return KeyVerdict::Lost(if foreign >= needed { LostReason::Taken } else { LostReason::Deleted });
    }
    let ballot = |node: usize| match votes[node] {
        KeyVote::Pending => Ballot::Pending,
        KeyVote::Ours => Ballot::For,
        KeyVote::Absent | KeyVote::Foreign | KeyVote::Ahead | KeyVote::Failed => Ballot::Against,
    };
    let waited_for = |node: &usize| votes[*node] == KeyVote::Pending && waits_for(*node, nodes, unresponsive);
    let to_come = (0..nodes).filter(waited_for).count();
    match tally(nodes, ballot, unresponsive) {
        Tally::Open => KeyVerdict::Open,
        // Too few to carry it, but the votes to come may still show a loss.
        Tally::Rejected if lost + to_come > nodes - needed => KeyVerdict::Open,
        Tally::Carried => KeyVerdict::Carried,
        Tally::Rejected => KeyVerdict::Unknown,
    }
}

/// Returns when the quarantine after a change of identity begins. That is the server's own start if it is after its
/// last answer to us, else the moment we saw the change (the restart fell somewhere in between).
pub(crate) fn changed_at(seen: Moment, uptime: Duration, last_answer: Moment) -> Moment {
    let started = seen.before(uptime);
    if started > last_answer { started } else { seen }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// Each letter is a node: `f`ree, `t`aken or unknown (`-`).
    #[test]
    fn a_lock_is_locked_where_taken_nodes_leave_no_quorum() {
        let is_locked = |nodes: &str| {
            let presence = |node| match node {
                'f' => Ballot::For,
                't' => Ballot::Against,
                _ => Ballot::Pending,
            };
            is_locked(&nodes.chars().map(presence).collect::<Vec<_>>())
        };
        for locked in ["t", "tt", "ft", "-t", "tt-", "ttf", "ttt", "--tt", "fftt", "ttt--"] {
            assert_eq!(is_locked(locked), Some(true), "{locked}");
        }
        for free in ["f", "ff", "ff-", "fft", "ffft", "fff-", "fff--", "ffftt"] {
            assert_eq!(is_locked(free), Some(false), "{free}");
        }
        for unknown in ["-", "f-", "--", "f--", "t--", "ft-", "ff--", "fft-", "ff-t-", "fftt-"] {
            assert_eq!(is_locked(unknown), None, "{unknown}");
        }
    }

    /// Each letter is a node: `.` would grant, `-` unknown, `?` foreign, `+` shared, and any other letter is an owner.
    fn owners(nodes: &str) -> Vec<Owner> {
        let fingerprint = |letter: char| Fingerprint::parse(format!("{:016x}", u32::from(letter)).as_bytes()).unwrap();
        let owner = |letter| match letter {
            '.' => Owner::Nobody,
            '-' => Owner::Unknown,
            '?' => Owner::Foreign,
            '+' => Owner::Shared,
            letter => Owner::Ours(fingerprint(letter)),
        };
        nodes.chars().map(owner).collect()
    }

    #[test]
    fn a_lock_is_whose_key_a_quorum_shows() {
        let cases: [(LockState, &[&str]); 5] = [
            (LockState::Free, &[".", "..", "..-", "..a", "..?", "...a", "...--", "...aa", "...a?"]),
            (
                LockState::Held,
                &["a", "aa", "aa-", "-aa", "a.a", "aab", "aa?", "aaa", "aaa.", "aaa--", "aaabb", "a.a.a"],
            ),
            (LockState::Shared, &["+", "++", "++-", "+.+", "++a", "+++--", "+++?a"]),
            (LockState::Foreign, &["?", "??", "??-", "?.?", "??a", "???", "???--", "???aa"]),
            (
                LockState::Unknown,
                &[
                    "-", "--", ".-", "a-", "?-", "a.", "ab", "a?", ".--", "a--", "?--", "a.-", "ab-", "ab.", "a?.",
                    "a?-", "aabb", "aa..", "..--", "aa?b", "a+", "+?", "+.", "++a?", "..a--", "aa.--", "aab.-",
                    "aabb?", "a.b?-", "aa..-",
                ],
            ),
        ];
        for (expected, nodes) in cases {
            for nodes in nodes {
                assert_eq!(lock_state(&owners(nodes)).0, expected, "{nodes}");
            }
        }
    }

    #[test]
    fn states_have_texts() {
        let states = [LockState::Free, LockState::Held, LockState::Shared, LockState::Foreign, LockState::Unknown];
        assert_eq!(states.map(|state| state.to_string()), ["free", "held", "shared", "foreign", "unknown"]);
    }

    #[test]
    fn the_nodes_of_a_lock_are_those_of_the_owner_with_the_most() {
        let cases = [
            ("...", ""),
            ("-", ""),
            ("..a", "2"),
            ("aa.", "01"),
            ("a-a", "02"),
            ("a--", "0"),
            ("?--", "0"),
            ("abbb", "123"),
            ("aab-?", "01"),
            ("a??b-", "12"),
            ("bab.b", "024"),
        ];
        for (nodes, expected) in cases {
            let expected = expected.chars().map(|digit| digit.to_digit(10).unwrap() as usize);
            let expected = expected.fold(NodeMask::NONE, NodeMask::with);
            assert_eq!(lock_state(&owners(nodes)).1, expected, "{nodes}");
        }
    }

    #[test]
    fn a_lock_that_is_free_is_not_locked_and_one_with_an_owner_is() {
        for nodes in 1..=5 {
            for owners in every(&owners(".-?ab"), nodes) {
                let presence = |owner: &Owner| match owner {
                    Owner::Nobody => Ballot::For,
                    Owner::Ours(_) | Owner::Shared | Owner::Foreign => Ballot::Against,
                    Owner::Unknown => Ballot::Pending,
                };
                let locked = is_locked(&owners.iter().map(presence).collect::<Vec<_>>());
                match lock_state(&owners).0 {
                    LockState::Free => assert_eq!(locked, Some(false), "{owners:?}"),
                    LockState::Held | LockState::Shared | LockState::Foreign => {
                        assert_eq!(locked, Some(true), "{owners:?}");
                    }
                    LockState::Unknown => assert_ne!(locked, Some(false), "{owners:?}"),
                }
            }
        }
    }

    /// A lock that was won with a fence: some nodes granted it or less, and others too late to count.
    #[test]
    fn the_least_fence_is_not_above_the_holders() {
        let late = 9;
        for nodes in 1..=5 {
            for granted in every(&[1, 2, 3, late], nodes) {
                let counted = || granted.iter().copied().filter(|fence| *fence != late);
                if counted().count() < quorum(nodes) {
                    continue;
                }
                let fence = counted().max().unwrap();
                for shown in every_mask(nodes).filter(|shown| shown.len() >= quorum(nodes)) {
                    let shown: Vec<u64> =
                        (0..nodes).filter(|node| shown.contains(*node)).map(|node| granted[node]).collect();
                    let least = least_fence(nodes, shown.iter().copied()).expect("a quorum shows one");
                    assert!(least <= fence && shown.contains(&least), "{shown:?} of {granted:?}: {least}");
                    let agree = shown.iter().all(|other| *other == shown[0]);
                    assert!(!agree || least == shown[0], "{shown:?}: {least}");
                }
            }
        }
        let cases: [(usize, &[u64], Option<u64>); 6] = [
            (1, &[7], Some(7)),
            (1, &[], None),
            (3, &[5, 9, 5], Some(5)),
            (3, &[5, 7, 7], Some(7)),
            (3, &[7, 5], Some(5)),
            (3, &[7], None),
        ];
        for (nodes, shown, expected) in cases {
            assert_eq!(least_fence(nodes, shown.iter().copied()), expected, "{shown:?} of {nodes}");
        }
    }

    #[test]
    fn a_key_is_kept_while_a_quorum_keeps_it() {
        type Left = Option<u64>;
        let cases: [(usize, &[Left], Left); 9] = [
            (1, &[Some(5)], Some(5)),
            (1, &[None], None),
            (1, &[], Some(0)),
            (2, &[Some(5), Some(7)], Some(5)),
            (3, &[Some(9), Some(5), Some(7)], Some(7)),
            (3, &[Some(5), Some(7)], Some(5)),
            (3, &[Some(5), None], Some(5)),
            (3, &[None, Some(5), None], None),
            (5, &[Some(1), Some(9), Some(3), Some(7)], Some(3)),
        ];
        for (nodes, left, expected) in cases {
            let kept = kept_for(nodes, left.iter().map(|left| left.map(millis)));
            assert_eq!(kept, expected.map(millis), "{left:?} of {nodes}");
        }
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        #[serde(rename = "about")]
        _about: String,
        attempts: Vec<Case>,
        extensions: Vec<Case>,
        releases: Vec<Case>,
        leases: Vec<Lease>,
        proposals: Vec<Proposed>,
        restarts: Vec<Restart>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        name: String,
        votes: String,
        decided: Option<u64>,
        #[serde(default)]
        quarantined: Vec<usize>,
        #[serde(default)]
        unresponsive: Vec<usize>,
        verdict: String,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Lease {
        name: String,
        start_ms: u64,
        ttl_ms: u64,
        max_hold_ms: Option<u64>,
        #[serde(default)]
        margin_ms: u64,
        drift_us: u64,
        valid_until_us: u64,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Proposed {
        wall_us: u64,
        highest: u64,
        proposal: u64,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Restart {
        name: String,
        seen_ms: u64,
        uptime_ms: u64,
        last_answer_ms: u64,
        changed_at_ms: u64,
    }

    fn table() -> Table {
        serde_json::from_str(include_str!("../../../tests/conformance/tables/quorum.json")).unwrap()
    }

    impl Case {
        /// Returns one vote for each node; `read` takes a word and its number.
        fn votes<V: Clone>(&self, read: impl Fn(&str, Option<u64>) -> Option<V>) -> Vec<V> {
            let vote = |text: &str| {
                let mut parts: Vec<_> = text.split(' ').collect();
                let times = parts.last().and_then(|part| part.strip_prefix('x')).map(|times| times.parse().unwrap());
                if times.is_some() {
                    parts.pop();
                }
                let number = parts.get(1).map(|number| number.parse().unwrap());
                let vote = read(parts[0], number).unwrap_or_else(|| panic!("{}: {text}", self.name));
                vec![vote; times.unwrap_or(1)]
            };
            self.votes.split(", ").flat_map(vote).collect()
        }

        fn unresponsive(&self) -> NodeMask {
            mask(&self.unresponsive)
        }
    }

    fn mask(nodes: &[usize]) -> NodeMask {
        nodes.iter().fold(NodeMask::NONE, |mask, node| mask.with(*node))
    }

    fn without(nodes: usize, left_out: NodeMask) -> NodeMask {
        (0..nodes).filter(|node| !left_out.contains(*node)).fold(NodeMask::NONE, NodeMask::with)
    }

    fn millis(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn attempts_in_the_table() {
        for case in table().attempts {
            let votes = case.votes(|word, number| match (word, number) {
                ("pending", None) => Some(Vote::Pending),
                ("granted", Some(fence)) => Some(Vote::Granted(fence)),
                ("confirming", Some(fence)) => Some(Vote::Confirming(fence)),
                ("confirmed", None) => Some(Vote::Confirmed),
                ("held", None) => Some(Vote::Held),
                ("failed", None) => Some(Vote::Failed),
                _ => None,
            });
            let counts = without(votes.len(), mask(&case.quarantined));
            let verdict = match attempt(&votes, case.decided, counts, case.unresponsive()) {
                Verdict::Open => "open".to_owned(),
                Verdict::Won(fence) => format!("won {fence}"),
                Verdict::Confirm(fence) => format!("confirm {fence}"),
                Verdict::Lost => "lost".to_owned(),
            };
            assert_eq!(verdict, case.verdict, "{}", case.name);
        }
    }

    #[test]
    fn extensions_and_releases_in_the_table() {
        let table = table();
        for (case, carried) in table
            .extensions
            .iter()
            .map(|case| (case, "carried"))
            .chain(table.releases.iter().map(|case| (case, "done")))
        {
            let votes = case.votes(|word, _| match word {
                "pending" => Some(KeyVote::Pending),
                "extended" | "deleted" => Some(KeyVote::Ours),
                "absent" | "gone" => Some(KeyVote::Absent),
                "foreign" | "taken" => Some(KeyVote::Foreign),
                "ahead" => Some(KeyVote::Ahead),
                "failed" => Some(KeyVote::Failed),
                _ => None,
            });
            let verdict = match keys(&votes, case.unresponsive()) {
                KeyVerdict::Open => "open".to_owned(),
                KeyVerdict::Carried => carried.to_owned(),
                KeyVerdict::Unknown => "unknown".to_owned(),
                KeyVerdict::Lost(reason) => format!("lost {reason}"),
            };
            assert_eq!(verdict, case.verdict, "{}", case.name);
        }
    }

    #[test]
    fn instants_in_the_table() {
        for lease in table().leases {
            let ttl = millis(lease.ttl_ms);
            let start = at(lease.start_ms);
            let limit = lease.max_hold_ms.map(|max_hold| start.after(millis(max_hold)));
            assert_eq!(drift(ttl), Duration::from_micros(lease.drift_us), "{}", lease.name);
            let until = valid_until(start, ttl, millis(lease.margin_ms), limit);
            assert_eq!(until, Moment::from_nanos(lease.valid_until_us * 1_000), "{}", lease.name);
        }
        for row in table().proposals {
            assert_eq!(proposal(row.wall_us, row.highest), row.proposal, "{} after {}", row.wall_us, row.highest);
        }
        for row in table().restarts {
            let changed = changed_at(at(row.seen_ms), millis(row.uptime_ms), at(row.last_answer_ms));
            assert_eq!(changed, at(row.changed_at_ms), "{}", row.name);
        }
    }

    #[test]
    fn any_two_quorums_share_a_node_and_none_is_larger_than_it_must_be() {
        for nodes in 1..=16 {
            assert!(2 * quorum(nodes) > nodes && 2 * (quorum(nodes) - 1) <= nodes);
        }
    }

    #[test]
    fn masks() {
        for nodes in 0..=16 {
            let all = NodeMask::all(nodes);
            assert_eq!(all.len(), nodes);
            assert!((0..16).all(|node| all.contains(node) == (node < nodes)));
            assert_eq!(without(nodes, NodeMask::NONE), all);
        }
        for (one, two) in every_mask(4).flat_map(|one| every_mask(4).map(move |two| (one, two))) {
            for node in 0..4 {
                assert_eq!(
                    one.union(two).contains(node),
                    one.contains(node) || two.contains(node),
                    "{one:?} and {two:?}"
                );
                for other in 0..4 {
                    let is_other = node == other;
                    assert_eq!(one.with(other).contains(node), one.contains(node) || is_other, "{one:?} with {other}");
                    assert_eq!(
                        one.without(other).contains(node),
                        one.contains(node) && !is_other,
                        "{one:?} without {other}"
                    );
                }
            }
        }
    }

    /// Returns every list of `length` items.
    fn every<T: Copy>(items: &[T], length: usize) -> Vec<Vec<T>> {
        (0..length).fold(vec![Vec::new()], |lists, _| {
            lists.iter().flat_map(|list| items.iter().map(move |item| [&list[..], &[*item]].concat())).collect()
        })
    }

    /// Returns every way in which one more vote can arrive.
    fn next<T: Copy + PartialEq>(votes: &[T], pending: T, others: &[T]) -> Vec<Vec<T>> {
        let filled = |node: usize| {
            others.iter().map(move |vote| {
                let mut votes = votes.to_vec();
                votes[node] = *vote;
                votes
            })
        };
        (0..votes.len()).filter(|node| votes[*node] == pending).flat_map(filled).collect()
    }

    fn every_mask(nodes: usize) -> impl Iterator<Item = NodeMask> {
        (0..1_u16 << nodes).map(NodeMask::from_bits)
    }

    #[test]
    fn a_tally_says_at_once_what_is_certain_and_keeps_to_it() {
        let others = [Ballot::For, Ballot::Against];
        for nodes in 1..=6 {
            for ballots in every(&[Ballot::Pending, Ballot::For, Ballot::Against], nodes) {
                let yes = ballots.iter().filter(|ballot| **ballot == Ballot::For).count();
                for unresponsive in every_mask(nodes) {
                    let hung_minority = nodes - unresponsive.len() >= quorum(nodes);
                    let may_come = |node: &usize| {
                        ballots[*node] == Ballot::Pending && !(hung_minority && unresponsive.contains(*node))
                    };
                    let most = yes + (0..nodes).filter(may_come).count();
                    let expected = match () {
                        () if yes >= quorum(nodes) => Tally::Carried,
                        () if most < quorum(nodes) => Tally::Rejected,
                        () => Tally::Open,
                    };
                    assert_eq!(
                        tally(ballots.len(), |node| ballots[node], unresponsive),
                        expected,
                        "{ballots:?}, {unresponsive:?}"
                    );
                }
                let verdict = tally(ballots.len(), |node| ballots[node], NodeMask::NONE);
                assert!(verdict != Tally::Open || ballots.contains(&Ballot::Pending), "{ballots:?}");
                for later in next(&ballots, Ballot::Pending, &others) {
                    assert!(
                        verdict == Tally::Open || tally(later.len(), |node| later[node], NodeMask::NONE) == verdict,
                        "{ballots:?}, {later:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_verdict_on_keys_stays_as_it_is() {
        let others = [KeyVote::Ours, KeyVote::Absent, KeyVote::Foreign, KeyVote::Ahead, KeyVote::Failed];
        for nodes in 1..=5 {
            for votes in every(&[&[KeyVote::Pending][..], &others].concat(), nodes) {
                let count = |wanted| votes.iter().filter(|vote| **vote == wanted).count();
                let verdict = keys(&votes, NodeMask::NONE);
                let gone = count(KeyVote::Absent) + count(KeyVote::Foreign) + count(KeyVote::Ahead);
                assert_eq!(verdict == KeyVerdict::Carried, count(KeyVote::Ours) >= quorum(nodes), "{votes:?}");
                let is_lost = matches!(verdict, KeyVerdict::Lost(_));
                assert!(!is_lost || nodes - gone < quorum(nodes), "{votes:?}: a quorum may still live");
                assert!(verdict != KeyVerdict::Open || votes.contains(&KeyVote::Pending), "{votes:?}");
                for later in next(&votes, KeyVote::Pending, &others) {
                    match (verdict, keys(&later, NodeMask::NONE)) {
                        // `Taken` may be found later.
                        (KeyVerdict::Open, _) | (KeyVerdict::Lost(_), KeyVerdict::Lost(_)) => {}
                        (verdict, now) => assert_eq!(now, verdict, "{votes:?}, {later:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn why_an_attempt_is_lost_does_not_depend_on_whose_answers_come_first() {
        let others = [Vote::Granted(7), Vote::Held, Vote::Failed];
        for nodes in [1, 3, 5, 7] {
            let is_outage = |votes: &[Vote]| {
                let failed = votes.iter().filter(|vote| **vote == Vote::Failed).count();
                nodes - failed < quorum(nodes)
            };
            for votes in every(&[&[Vote::Pending][..], &others].concat(), nodes) {
                if attempt(&votes, None, NodeMask::all(nodes), NodeMask::NONE) == Verdict::Lost {
                    for later in next(&votes, Vote::Pending, &others) {
                        assert_eq!(is_outage(&votes), is_outage(&later), "{votes:?}, {later:?}");
                    }
                }
            }
        }
    }

    fn vote() -> impl Strategy<Value = Vote> {
        prop_oneof![
            2 => Just(Vote::Pending),
            5 => (1_u64..5).prop_map(Vote::Granted),
            1 => (1_u64..5).prop_map(Vote::Confirming),
            2 => Just(Vote::Confirmed),
            1 => Just(Vote::Held),
            1 => Just(Vote::Failed),
        ]
    }

    /// Generates possible votes of 1 to 7 nodes: no node confirms before a fence is decided.
    fn votes() -> impl Strategy<Value = (Vec<Vote>, Option<u64>)> {
        (vec(vote(), 1..=7), prop::option::of(1_u64..5)).prop_map(|(mut votes, decided)| {
            for vote in &mut votes {
                match (&vote, decided) {
                    (Vote::Confirmed, None) => *vote = Vote::Held,
                    (Vote::Confirming(fence), None) => *vote = Vote::Granted(*fence),
                    (Vote::Confirming(fence), Some(decided)) if *fence >= decided => *vote = Vote::Granted(*fence),
                    _ => {}
                }
            }
            (votes, decided)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn an_attempt_wins_with_a_quorum_of_its_fence_only(
            (votes, decided) in votes(),
            counts in any::<u16>(),
            unresponsive in any::<u16>(),
        ) {
            let nodes = votes.len();
            let within = |bits: u16| NodeMask::from_bits(bits & ((1 << nodes) - 1));
            let (counts, unresponsive) = (within(counts), within(unresponsive));
            let number = |wanted: &dyn Fn(Vote) -> bool| {
                (0..nodes).filter(|node| counts.contains(*node) && wanted(votes[*node])).count()
            };
            let granted = |fence| number(&|vote| vote == Vote::Granted(fence));
            match attempt(&votes, decided, counts, unresponsive) {
                Verdict::Won(fence) => {
                    prop_assert!(decided.is_none_or(|decided| decided == fence));
                    prop_assert!(granted(fence) + number(&|vote| vote == Vote::Confirmed) >= quorum(nodes));
                }
                Verdict::Confirm(fence) => {
                    prop_assert_eq!(decided, None);
                    prop_assert!(granted(fence) > 0);
                    prop_assert_eq!(number(&|vote| matches!(vote, Vote::Granted(other) if other > fence)), 0);
                    prop_assert!(number(&|vote| matches!(vote, Vote::Granted(_))) >= quorum(nodes));
                    prop_assert!((1..5).all(|fence| granted(fence) < quorum(nodes)));
                }
                Verdict::Lost => {
                    // The nodes that are waited for cannot make a quorum any more.
                    let may_count = |node: &usize| match votes[*node] {
                        Vote::Pending => waits_for(*node, nodes, unresponsive),
                        _ if !counts.contains(*node) => false,
                        Vote::Confirmed => true,
                        Vote::Confirming(_) => waits_for(*node, nodes, unresponsive),
                        Vote::Granted(fence) => decided.is_none_or(|decided| {
                            fence == decided || fence < decided && waits_for(*node, nodes, unresponsive)
                        }),
                        Vote::Held | Vote::Failed => false,
                    };
                    prop_assert!((0..nodes).filter(may_count).count() < quorum(nodes));
                }
                Verdict::Open => {
                    let open = |vote: &Vote| match (vote, decided) {
                        (Vote::Pending | Vote::Confirming(_), _) => true,
                        (Vote::Granted(fence), Some(decided)) => *fence < decided,
                        _ => false,
                    };
                    prop_assert!(votes.iter().any(open));
                }
            }
        }

        #[test]
        fn an_attempt_that_is_over_stays_as_it_is((votes, decided) in votes(), later in vote()) {
            let all = NodeMask::all(votes.len());
            let verdict = attempt(&votes, decided, all, NodeMask::NONE);
            let answers = match later {
                Vote::Pending | Vote::Confirming(_) | Vote::Confirmed => vec![Vote::Failed],
                later => vec![later],
            };
            for later in next(&votes, Vote::Pending, &answers) {
                match (verdict, attempt(&later, decided, all, NodeMask::NONE)) {
                    (Verdict::Open, _) => {}
                    // Until it is decided, more grants may still agree or be larger.
                    (Verdict::Confirm(fence), Verdict::Confirm(other)) => prop_assert!(other >= fence),
                    (Verdict::Confirm(_), now) => prop_assert!(matches!(now, Verdict::Won(_))),
                    (verdict, now) => prop_assert_eq!(verdict, now),
                }
            }
        }

        #[test]
        fn a_lease_never_outlives_its_ttl_or_its_limit(
            start: u64,
            ttl in 0_u64..1 << 50,
            margin in 0_u64..1 << 50,
            limit: Option<u64>,
        ) {
            let (start, ttl, margin) = (Moment::from_nanos(start), Duration::from_nanos(ttl), Duration::from_nanos(margin));
            let until = valid_until(start, ttl, margin, limit.map(Moment::from_nanos));
            prop_assert!(until <= start.after(ttl));
            prop_assert!(margin > ttl || until.after(margin) <= start.after(ttl) || until == start);
            prop_assert!(limit.is_none_or(|limit| until <= Moment::from_nanos(limit)));
            prop_assert!(ttl.is_zero() || drift(ttl) > ttl / 100);
        }
    }
}
