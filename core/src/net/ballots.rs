//! The nodes' answers in a round: votes and failures, what they mean for the call, and their wording.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{AnswerKind, HeldBy, NodeAnswer};
use crate::net::connections::{Connections, Members};
use crate::net::round::{Delivery, Round};
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, NodeMask, Vote};
use crate::protocol::request::{Reply, Request};
use crate::sys::clock::Moment;
use crate::transport::failure::Failure;

/// A node's answer in a few words: another has the lock.
pub(crate) const HELD: &str = "held";

/// A node's answer in a few words: others share the lock, and the caller may not join them.
pub(crate) const HELD_OFF: &str = "shared, and a writer waits for it";

/// A node's answer in a few words: there is none.
pub(crate) const PENDING: &str = "no answer yet";

/// The nodes' answers in an attempt that was not won.
#[derive(Debug)]
pub(crate) struct Ballots {
    pub(crate) votes: Vec<Vote>,
    pub(crate) failures: Vec<Option<Failure>>,
    /// The shortest remaining ttl of any holder's key.
    pub(crate) ttl_left: Option<Duration>,
    /// The nodes that hold a reader off because a writer waits.
    pub(crate) held_off: NodeMask,
    /// Whether every node had its time to answer.
    pub(crate) complete: bool,
    /// The free nodes: they granted, and then deleted the key.
    pub(crate) freed: NodeMask,
    /// How long the votes took.
    pub(crate) took: Duration,
    /// When the last vote came.
    pub(crate) ended: Moment,
    /// Whether this process won with them.
    is_won: bool,
    owners: Owners,
}

/// What the keys of others say of their owners.
#[derive(Debug)]
enum Owners {
    /// On one node, the label. It is never split, and a denial there allocates no list.
    One(Option<Box<str>>),
    /// On several nodes, the fence and the label in each key.
    Several(Vec<(u64, Option<Box<str>>)>),
}

impl Ballots {
    /// Creates ballots without answers.
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            votes: vec![Vote::Pending; nodes],
            failures: vec![None; nodes],
            ttl_left: None,
            held_off: NodeMask::NONE,
            complete: true,
            freed: NodeMask::NONE,
            took: Duration::ZERO,
            ended: Moment::default(),
            is_won: false,
            owners: if nodes > 1 { Owners::Several(Vec::new()) } else { Owners::One(None) },
        }
    }

    /// Creates ballots of a call that had no time to ask.
    pub(crate) fn unasked(nodes: usize) -> Self {
        Self { votes: vec![Vote::Failed; nodes], complete: false, ..Self::new(nodes) }
    }

    /// Creates ballots of a lock that this process has won, as others see them.
    pub(crate) fn won(nodes: usize) -> Self {
        Self { votes: vec![Vote::Held; nodes], is_won: true, ..Self::new(nodes) }
    }

    fn quorum(&self) -> usize {
        quorum::quorum(self.votes.len())
    }

    /// Whether a quorum answered at all, granted or held.
    ///
    /// A node still pending at a verdict counts as answered: the verdict has waited for it if it could show an outage.
    pub(crate) fn is_contended(&self) -> bool {
        self.missing() == 0
    }

    /// Records that a node reported the key of another owner.
    pub(crate) fn report_owner(&mut self, fence: u64, label: Option<Box<str>>) {
        match &mut self.owners {
            Owners::One(only) => *only = label,
            Owners::Several(owners) => owners.push((fence, label)),
        }
    }

    /// Returns the holder `now`, as far as these answers tell: of several owners, the one that most nodes have.
    pub(crate) fn holder(&self, now: Moment) -> HeldBy {
        let most = match &self.owners {
            Owners::One(label) => label.as_deref(),
            Owners::Several(owners) => {
                let count = |owner: &&_| owners.iter().filter(|other| other == owner).count();
                owners.iter().max_by_key(count).and_then(|(_, label)| label.as_deref())
            }
        };
        let ttl_left = self.ttl_left.and_then(|left| left.checked_sub(now.since(self.ended)));
        HeldBy { label: most.map(str::to_owned), ttl_left, is_this_process: self.is_won }
    }

    /// Records the remaining ttl of an owner's key.
    pub(crate) fn report_ttl(&mut self, ttl_left: Option<Duration>) {
        self.ttl_left = self.ttl_left.into_iter().chain(ttl_left).min();
    }

    /// Whether nodes gave keys to different owners, this one among them, and none was seen to hold a quorum: several
    /// attempts met, and perhaps none of them won. A hint: one owner's fences may differ from node to node, and some
    /// keys may have been left behind.
    pub(crate) fn is_split(&self) -> bool {
        let Owners::Several(owners) = &self.owners else { return false };
        let is_granted = |vote: &Vote| matches!(vote, Vote::Granted(_) | Vote::Confirming(_) | Vote::Confirmed);
        let differ = owners.windows(2).any(|pair| pair[0] != pair[1]) || self.votes.iter().any(is_granted);
        let count = |owner| owners.iter().filter(|other| *other == owner).count();
        differ && owners.iter().map(count).max().is_some_and(|most| most < self.quorum())
    }

    /// Returns how many more answers a quorum needs.
    fn missing(&self) -> usize {
        let answers = |(vote, failure): &(&Vote, &Option<Failure>)| match (vote, failure) {
            (Vote::Failed, _) => false,
            // A quarantined node cannot grant, but it can report that others hold the lock.
            (Vote::Held, Some(Failure::Quarantined(_))) => true,
            (_, why_not_counted) => why_not_counted.is_none(),
        };
        self.quorum().saturating_sub(self.votes.iter().zip(&self.failures).filter(answers).count())
    }

    /// Returns for how long quarantines alone prevent a quorum. `None` if they do not, or if too few other nodes
    /// answer.
    pub(crate) fn quarantined_for(&self) -> Option<Duration> {
        let quarantine = |(vote, failure): (&Vote, &Option<Failure>)| match (vote, failure) {
            (Vote::Held, _) => None,
            (_, Some(Failure::Quarantined(left))) => Some(*left),
            _ => None,
        };
        quorum::quarantined_for(self.missing(), self.votes.iter().zip(&self.failures).filter_map(quarantine))
    }

    /// Lists quarantined nodes and when they count again, for a log.
    pub(crate) fn quarantines(&self, members: &Members) -> String {
        let quarantine = |(node, failure): (usize, &Option<Failure>)| match failure {
            Some(Failure::Quarantined(left)) => Some(format!("{} in {left:.1?}", members.nodes[node].address)),
            _ => None,
        };
        self.failures.iter().enumerate().filter_map(quarantine).collect::<Vec<_>>().join(", ")
    }

    /// Whether nodes that refuse our credentials or rights alone prevent a quorum.
    pub(crate) fn is_forbidden(&self) -> bool {
        let forbidden = |failure: &&Option<Failure>| matches!(failure, Some(Failure::Forbidden(_)));
        self.failures.iter().filter(forbidden).count() > self.votes.len() - self.quorum()
    }

    /// Whether an earlier connection broke during the attempt.
    pub(crate) fn saw_closed(&self) -> bool {
        self.failures.iter().any(|failure| matches!(failure, Some(Failure::Closed)))
    }

    /// Lists each node's answer, for an error. A quarantine is shown with the time it lasts from now on.
    pub(crate) fn answers(&self, members: &Members, restart_delay: Duration, now: Moment) -> Vec<NodeAnswer> {
        let answer = |(node, vote): (usize, &Vote)| {
            let address = members.address(node);
            let (kind, answer) = match (vote, &self.failures[node]) {
                (_, Some(Failure::Quarantined(left))) => {
                    let why = members.health.why_not_counted(node, restart_delay, now);
                    return why.unwrap_or(Failure::Quarantined(*left)).of_node(address);
                }
                (_, Some(failure)) => return failure.of_node(address),
                (Vote::Held, _) if self.held_off.contains(node) => (AnswerKind::Held, HELD_OFF),
                (Vote::Held, _) => (AnswerKind::Held, HELD),
                (Vote::Pending | Vote::Failed, None) => (AnswerKind::Pending, PENDING),
                (Vote::Granted(_) | Vote::Confirming(_) | Vote::Confirmed, None) => (AnswerKind::Done, "granted"),
            };
            NodeAnswer { node: address, kind, answer: answer.to_owned() }
        };
        self.votes.iter().enumerate().map(answer).collect()
    }

    pub(crate) fn fail(&mut self, node: usize, failure: Failure) {
        self.votes[node] = Vote::Failed;
        self.failures[node] = Some(failure);
    }
}

/// The nodes' answers to a request about the keys of a held lock.
#[derive(Debug)]
pub(crate) struct KeyBallots {
    votes: Vec<KeyVote>,
    answers: Vec<Option<Result<Reply, Failure>>>,
    sent: Vec<Delivery>,
}

/// Judges one node's answer.
type Judge<'a> = dyn FnMut(usize, &Result<Reply, Failure>, Delivery) -> KeyVote + Send + 'a;

impl KeyBallots {
    /// Creates ballots without answers. Nodes that are not asked already have their vote.
    pub(crate) fn new(votes: Vec<KeyVote>) -> Self {
        let nodes = votes.len();
        Self { votes, answers: vec![None; nodes], sent: vec![Delivery::InOrder; nodes] }
    }

    pub(crate) fn votes(&self) -> &[KeyVote] {
        &self.votes
    }

    /// Returns the nodes that may have executed the request, and whose answer was not read.
    pub(crate) fn unheard(&self) -> NodeMask {
        let is_unheard = |node: &usize| {
            matches!(
                self.answers[*node],
                None | Some(Err(Failure::Closed
                    | Failure::Silent(_)
                    // While a connection is made, one before may have been asked.
                    | Failure::Unconnected(..)
                    | Failure::NoLogin(_)
                    | Failure::UnexpectedReply))
            )
        };
        (0..self.votes.len()).filter(is_unheard).fold(NodeMask::NONE, NodeMask::with)
    }

    /// Whether a connection broke meanwhile.
    pub(crate) fn saw_closed(&self) -> bool {
        self.answers.contains(&Some(Err(Failure::Closed)))
    }

    fn fail(&mut self, node: usize, failure: Failure) {
        self.votes[node] = KeyVote::Failed;
        self.answers[node] = Some(Err(failure));
    }

    /// Asks all nodes but those that are left out, which fail.
    pub(crate) fn ask(&mut self, round: &mut Round, request: &Request) {
        for node in 0..self.votes.len() {
            if round.leaves_out(node) {
                self.fail(node, Failure::Unresponsive);
            } else {
                round.ask(node, request.clone(), None);
            }
        }
    }

    /// Reads answers until there is a verdict. `vote` says what an answer means. At the deadline the silent nodes fail.
    /// Cancel safe.
    pub(crate) async fn decide(&mut self, round: &mut Round, vote: &mut Judge<'_>) -> KeyVerdict {
        loop {
            match quorum::keys(&self.votes, round.unresponsive()) {
                KeyVerdict::Open => {}
                verdict => return verdict,
            }
            match round.next().await {
                Some((node, answer)) => {
                    self.sent[node] = round.sent(node);
                    self.votes[node] = vote(node, &answer, self.sent[node]);
                    self.answers[node] = Some(answer);
                }
                None => {
                    for node in
                        (0..self.votes.len()).filter(|node| self.votes[*node] == KeyVote::Pending).collect::<Vec<_>>()
                    {
                        self.fail(node, round.silence(node));
                    }
                }
            }
        }
    }

    /// Whether nodes that refuse our credentials or rights alone prevent a quorum.
    pub(crate) fn is_forbidden(&self) -> bool {
        let is_forbidden = |answer: &&Option<_>| matches!(answer, Some(Err(Failure::Forbidden(_))));
        self.answers.iter().filter(is_forbidden).count() > self.votes.len() - quorum::quorum(self.votes.len())
    }

    /// Lists each node's answer, for an error. `describe` words a vote and the reply it was read from.
    pub(crate) fn answers(
        &self,
        members: &Members,
        describe: impl Fn(KeyVote, Option<&Reply>, Delivery) -> String,
    ) -> Vec<NodeAnswer> {
        let answer = |(node, vote): (usize, &KeyVote)| {
            let address = members.address(node);
            let (kind, answer) = match (vote, &self.answers[node]) {
                (_, Some(Err(failure))) => return failure.of_node(address),
                (KeyVote::Pending, _) => (AnswerKind::Pending, PENDING.to_owned()),
                (vote, answer) => {
                    let reply = answer.as_ref().and_then(|answer| answer.as_ref().ok());
                    (kind(*vote), describe(*vote, reply, self.sent[node]))
                }
            };
            NodeAnswer { node: address, kind, answer }
        };
        self.votes.iter().enumerate().map(answer).collect()
    }
}

/// Returns what a node that has answered said of the keys.
fn kind(vote: KeyVote) -> AnswerKind {
    match vote {
        KeyVote::Ours => AnswerKind::Done,
        KeyVote::Absent => AnswerKind::Free,
        KeyVote::Foreign => AnswerKind::Held,
        KeyVote::Ahead | KeyVote::Pending | KeyVote::Failed => AnswerKind::Uncounted,
    }
}

/// Why no quorum has granted.
#[derive(Debug)]
pub(crate) enum NoQuorum {
    /// Too many nodes denied it, did not answer in time, or do not count for now.
    Lost(Arc<Ballots>),
    /// Quarantines prevent a quorum before this instant. No request was sent.
    Quarantined(Moment, Arc<Ballots>),
    /// Too many addresses lead to the same server for any quorum.
    Indistinct(Arc<Ballots>),
}

/// Checks that a quorum is possible, before anything is sent.
pub(crate) fn precheck(connections: &Connections, restart_delay: Duration) -> Result<(), NoQuorum> {
    let health = &connections.members.health;
    let nodes = connections.members.len();
    let now = connections.clock.now();
    if health.counts(restart_delay, now).len() >= quorum::quorum(nodes) {
        return Ok(());
    }
    let mut ballots = Ballots::new(nodes);
    for node in 0..nodes {
        if let Some(why_not_counted) = health.why_not_counted(node, restart_delay, now) {
            if why_not_counted == Failure::Replica {
                // A new connection asks for the role again, because the replica may have been promoted.
                connections.discard(node);
            }
            ballots.fail(node, why_not_counted);
        }
    }
    if health.distinct() < quorum::quorum(nodes) {
        return Err(NoQuorum::Indistinct(ballots.into()));
    }
    match health.quorum_at(restart_delay) {
        Some(until) if until > now => Err(NoQuorum::Quarantined(until, ballots.into())),
        // Replicas prevent a quorum. The attempt is lost like any other, because they may be promoted.
        _ => Err(NoQuorum::Lost(ballots.into())),
    }
}

/// Records why votes did not count, and which nodes the attempt did not wait for.
pub(crate) fn explain(connections: &Connections, ballots: &mut Ballots, restart_delay: Duration) {
    let now = connections.clock.now();
    let unresponsive = connections.members.health.unresponsive();
    for node in 0..ballots.votes.len() {
        if ballots.votes[node] == Vote::Pending && unresponsive.contains(node) {
            ballots.fail(node, Failure::Unresponsive);
        }
        if ballots.failures[node].is_none() {
            ballots.failures[node] = connections.members.health.why_not_counted(node, restart_delay, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each letter is an owner with its fence, a minus a grant of our own, a blank no answer.
    fn is_split(answers: &str) -> bool {
        let mut ballots = Ballots::new(answers.len());
        for (node, answer) in answers.chars().enumerate() {
            match answer {
                '-' => ballots.votes[node] = Vote::Granted(1),
                ' ' => {}
                owner => {
                    ballots.votes[node] = Vote::Held;
                    ballots.report_owner(u64::from(owner), None);
                }
            }
        }
        ballots.is_split()
    }

    #[test]
    fn votes_are_split_if_several_owners_met_and_none_was_seen_to_hold_a_quorum() {
        for split in ["-a", "ab", "-a ", "-ab", "abc", "aab b", "--aab", "--aa ", "aabbc"] {
            assert!(is_split(split), "{split:?}");
        }
        // A verdict comes early, so that the only owner was often not seen everywhere.
        for other in ["a", "-", "a ", "aa", "aa ", "aa  ", "-aa", "aa   ", "aaa  ", "aaab ", "--aaa", "   ", "---  "] {
            assert!(!is_split(other), "{other:?}");
        }
    }

    #[test]
    fn a_release_may_have_been_executed_where_its_answer_was_not_read() {
        let answers = [
            None,
            Some(Err(Failure::Closed)),
            Some(Err(Failure::Silent(Duration::ZERO))),
            Some(Ok(Reply::Absent)),
            Some(Err(Failure::Unreachable("refused".into()))),
            Some(Err(Failure::Between)),
        ];
        let mut ballots = KeyBallots::new(vec![KeyVote::Pending; answers.len()]);
        ballots.answers = answers.into();
        assert_eq!(ballots.unheard(), NodeMask::NONE.with(0).with(1).with(2));
    }

    #[test]
    fn owners_with_the_same_fence_are_told_apart_by_their_labels() {
        let mut ballots = Ballots::new(3);
        ballots.report_owner(7, Some("one".into()));
        ballots.report_owner(7, Some("other".into()));
        assert!(ballots.is_split());
        ballots.report_owner(7, Some("one".into()));
        assert!(!ballots.is_split());
    }
}
