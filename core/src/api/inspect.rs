//! Inspection: one round that reads the state of a name on every node. It changes nothing and counts nothing.
//!
//! A round *asks* every node, and ends when every node has answered, when the answers suffice, or when the time is over.
//! A caller may drop it at any await: its answers are then dropped as they come.
//!
//! It asks over connections that nodes do not notify: those of the caller's runtime, or the background's own. On the
//! connections of waiters, each read of a waiters key would cause a notification of every waiter that comes.

use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;

use crate::error::{AnswerKind, Error, ErrorKind, NodeAnswer};
use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::process::context::{Following, LockContext};
use crate::protocol::quorum::{self, Ballot, LockState, Owner};
use crate::protocol::request::{Action, KeyState, Proof, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;
use crate::sys::future::join_all;
use crate::transport::failure::{Failure, in_millis};

/// A lock and what its nodes show of it together; see [`Redlock::inspect`](crate::Redlock::inspect).
///
/// Each node answers for itself, so a lock that changes hands meanwhile may show a state that it never had. A view is
/// for people and their dashboards: only an acquire says whether work may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockView {
    /// The name of the lock, with invalid UTF-8 replaced.
    pub name: String,
    /// The key on the nodes: the client's `key_prefix` and the name, or the key of the slot, with invalid UTF-8 replaced.
    pub key: String,
    /// Whose it is, as far as a quorum shows it.
    pub state: LockState,
    /// The label of the holder, by default `host:pid`; `None` if it has none, or the lock is not held.
    pub label: Option<String>,
    /// A lower bound of the holder's fence; `None` if the lock is neither held nor shared. Usually it is the fence
    /// itself, and on one node always. On several nodes, each shows only the fence that it granted. Of a shared lock, a
    /// lower bound of every reader's fence.
    pub fence: Option<u64>,
    /// About when the lock was acquired, or its sharing began, by the clocks of nodes and clients; `None` if it is
    /// neither held nor shared. It is read from the fence, so it is later than that where an earlier fence was ahead of
    /// the clocks.
    pub since: Option<SystemTime>,
    /// How long at least a quorum of nodes keeps a held, shared or foreign key unless it is extended; `None` for a key
    /// that does not expire. A shared key is kept for as long as its last reader.
    pub ttl_left: Option<Duration>,
    /// The number of nodes that have the lock of the holder. If there is none, of the owner that is on the most nodes.
    pub holders: usize,
    /// The number of nodes that is a quorum.
    pub quorum: usize,
    /// About how many processes wait for the lock; `None` if no node shows it, as without a right to the waiters key.
    /// The number is a hint: it is the largest of any node, and waiters that gave up are counted until the lock changes
    /// hands.
    pub waiting: Option<u32>,
    /// The slot of a semaphore; `None` for other locks.
    pub slot: Option<u32>,
    /// The number of readers of a shared lock, on the node with the most; `None` if it is not shared.
    pub readers: Option<u32>,
    /// The labels of readers on that node, at most 16; empty if it is not shared.
    pub labels: Vec<String>,
    /// What each node shows, in the order of the addresses.
    pub nodes: Vec<NodeView>,
}

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
    /// A shared lock of this library has the name.
    Shared {
        /// The number of readers.
        readers: u32,
        /// The labels of readers that have one, at most 16.
        labels: Vec<String>,
        /// The fence with which the sharing began on this node. No reader's is smaller.
        fence: u64,
        /// The time until the last reader's hold expires unless it is extended; `None` for a key that does not expire.
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

/// What a [`NodeState`] tells, whichever it is. Hidden: for the bindings and the program.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StateValues<'a> {
    pub label: Option<&'a str>,
    pub fence: Option<u64>,
    pub ttl_left: Option<Duration>,
    pub readers: Option<u32>,
    pub labels: &'a [String],
    pub error: Option<&'a str>,
}

impl NodeState {
    /// Returns the stable text of this state, and what it tells.
    #[doc(hidden)]
    #[must_use]
    pub fn values(&self) -> (&'static str, StateValues<'_>) {
        let none = StateValues::default();
        match self {
            Self::Free => ("free", none),
            Self::Held { label, fence, ttl_left } => {
                ("held", StateValues { label: label.as_deref(), fence: Some(*fence), ttl_left: *ttl_left, ..none })
            }
            Self::Shared { readers, labels, fence, ttl_left } => {
                let (readers, fence) = (Some(*readers), Some(*fence));
                ("shared", StateValues { readers, labels, fence, ttl_left: *ttl_left, ..none })
            }
            Self::Foreign { ttl_left } => ("foreign", StateValues { ttl_left: *ttl_left, ..none }),
            Self::Unavailable { error } => ("unavailable", StateValues { error: Some(error), ..none }),
        }
    }
}

/// What one node shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: KeyState,
    pub(super) waiting: Option<u32>,
    pub(super) proof: Option<Box<Proof>>,
}

/// One node's answer, or why the node could not be asked.
pub(super) type Answer = Result<Seen, Failure>;

/// What every node is asked.
pub(super) struct Question<T> {
    pub(super) request: Request,
    /// How long one node may take.
    pub(super) time: Duration,
    pub(super) read: fn(Reply) -> Result<T, Failure>,
    /// Whether enough is known.
    pub(super) decided: fn(&LockContext, &[Result<T, Failure>]) -> bool,
}

impl Question<Seen> {
    /// Returns the one that every node answers.
    pub(super) fn of_all(context: &LockContext, action: Action) -> Self {
        let (keys, token) = (Arc::clone(&context.spec.keys), Token::fresh(&context.process.random));
        let (request, time) = (Request { keys, token, action }, context.spec.settings.node_timeout);
        Self { request, time, read: seen, decided: |_, _| false }
    }

    /// Returns the one about whether the lock is held; how many wait, too, if that `counts`.
    fn if_held(context: &LockContext, counts: bool) -> Self {
        Self { decided: is_decided, ..Self::of_all(context, Action::Inspect { asks: counts }) }
    }
}

fn seen(reply: Reply) -> Result<Seen, Failure> {
    match reply {
        Reply::Seen { state, waiting, proof } => Ok(Seen { state, waiting, proof }),
        // One of several names.
        Reply::Held { ttl_left, .. } => Ok(Seen { state: KeyState::Foreign { ttl_left }, waiting: None, proof: None }),
        _ => Err(Failure::UnexpectedReply),
    }
}

/// Reads the state of the name on every node, and the number of those who wait.
pub(crate) async fn inspect(context: LockContext) -> Result<LockView, Error> {
    let answers = ask(&context, Question::of_all(&context, Action::Inspect { asks: true })).await?;
    Ok(view(&context, answers))
}

/// Reads the same, for a caller that has to know whose the lock is.
///
/// # Errors
///
/// Those of [`is_locked`].
pub(crate) async fn inspect_known(context: LockContext) -> Result<LockView, Error> {
    let answers = ask(&context, Question::of_all(&context, Action::Inspect { asks: true })).await?;
    if is_decided(&context, &answers) { Ok(view(&context, answers)) } else { Err(unknown(&context, &answers)) }
}

/// How many slots of a semaphore are asked about at once.
const SLOTS_AT_ONCE: u32 = 64;

/// Reads the state of each slot of a semaphore, and the number of those who wait.
pub(crate) async fn inspect_slots(context: &LockContext) -> Result<Vec<LockView>, Error> {
    let mut all = Vec::new();
    for part in parts(context) {
        let views = part.map(|slot| async move {
            let view = inspect(context.of_slot(slot)).await?;
            Ok(LockView { slot: Some(slot), ..view })
        });
        for view in join_all(views.collect()).await {
            all.push(view?);
        }
    }
    Ok(all)
}

/// Returns the slots of a semaphore, in parts that are asked about one after the other.
fn parts(context: &LockContext) -> impl Iterator<Item = Range<u32>> {
    let permits = context.spec.names.permits().unwrap_or(0);
    (0..permits).step_by(SLOTS_AT_ONCE as usize).map(move |first| first..(first + SLOTS_AT_ONCE).min(permits))
}

/// Returns whether an acquire would have to wait, because other keys leave no quorum for it.
///
/// # Errors
///
/// `unavailable` or `forbidden` if too few nodes answer to know.
pub(crate) async fn is_locked(context: LockContext) -> Result<bool, Error> {
    if context.spec.names.permits().is_none() {
        return is_taken(context).await;
    }
    let mut all = Ok(true);
    for part in parts(&context) {
        let mut is_known = false;
        for taken in join_all(part.map(|slot| is_taken(context.of_slot(slot))).collect()).await {
            if matches!(taken, Ok(false)) {
                return taken;
            }
            is_known |= taken.is_ok();
            all = all.and(taken);
        }
        // Nodes that tell nothing of these slots are not waited for again.
        if !is_known {
            break;
        }
    }
    all
}

/// Returns whether anybody holds the lock, asked over these connections, and how long the first node keeps it.
///
/// # Errors
///
/// Those of [`is_locked`].
pub(crate) async fn is_taken_on(
    context: &LockContext,
    connections: &Arc<Connections>,
) -> Result<(bool, Option<Duration>), Error> {
    let question = Question::if_held(context, false);
    let end = connections.connect_limit().after(question.time);
    let mut answers = question.unanswered(connections.members.len());
    question.ask_on(context, connections, end, &mut answers).await;
    if answers.contains(&Err(Failure::Closed)) {
        question.ask_on(context, connections, end, &mut answers).await;
    }
    let is_taken = quorum::is_locked(&ballots(context, &answers)).ok_or_else(|| unknown(context, &answers))?;
    Ok((is_taken, answers.iter().filter_map(key_state).filter_map(KeyState::ttl_left).min()))
}

/// Whether the answers say if the lock is held.
pub(super) fn is_decided(context: &LockContext, answers: &[Answer]) -> bool {
    quorum::is_locked(&ballots(context, answers)).is_some()
}

/// Returns the error of a call that ended `within` its timeout, before a quorum answered.
pub(crate) fn unanswered(context: &LockContext, within: Duration) -> Error {
    let silent = Err(Failure::Silent(in_millis(within.min(context.spec.settings.node_timeout))));
    unknown(context, &vec![silent; context.set().members.len()])
}

async fn is_taken(context: LockContext) -> Result<bool, Error> {
    // Readers leave a shared lock to those who wait for it.
    let counts = context.spec.names.are_shared();
    let answers = ask(&context, Question::if_held(&context, counts)).await?;
    quorum::is_locked(&ballots(&context, &answers)).ok_or_else(|| unknown(&context, &answers))
}

/// Asks every node until enough is known. On the caller's tokio runtime, or else in the background.
pub(super) async fn ask<T: Send + Sync + 'static>(
    context: &LockContext,
    question: Question<T>,
) -> Result<Vec<Result<T, Failure>>, Error> {
    let (listed, context) = (&context.listed, context.clone());
    listed.somewhere(async move { question.ask(&context).await }).await
}

impl<T> Question<T> {
    fn unanswered(&self, nodes: usize) -> Vec<Result<T, Failure>> {
        (0..nodes).map(|_| Err(Failure::Silent(self.time))).collect()
    }

    /// Asks over the connections of this runtime, and those without an answer once more if an idle connection was
    /// closed, which says nothing about the lock, and wherever the lock has moved meanwhile.
    async fn ask(&self, context: &LockContext) -> Vec<Result<T, Failure>> {
        let connections = context.set().connections(&Handle::current());
        let end = connections.connect_limit().after(context.spec.settings.node_timeout);
        let mut way = Following::new(&connections, end);
        let mut answers = self.unanswered(connections.members.len());
        self.ask_on(context, &connections, end, &mut answers).await;
        let mut is_closed = answers.iter().any(|answer| matches!(answer, Err(Failure::Closed)));
        while answers.iter().any(Result::is_err) && (mem::take(&mut is_closed) || way.moves_on(context)) {
            self.ask_on(context, &way.connections, end, &mut answers).await;
        }
        answers
    }

    /// Asks the nodes that have not answered. What a node has said stays said.
    async fn ask_on(
        &self,
        context: &LockContext,
        connections: &Arc<Connections>,
        end: Moment,
        answers: &mut [Result<T, Failure>],
    ) {
        connections.connect_quorum(connections.connect_limit().min(end)).await;
        let mut round = Round::untraced(connections, self.time, end);
        for (node, answer) in answers.iter_mut().enumerate().filter(|(_, answer)| answer.is_err()) {
            *answer = Err(Failure::Silent(self.time));
            round.ask(node, self.request.clone(), None);
        }
        while let Some((node, answer)) = round.next().await {
            answers[node] = answer.and_then(self.read);
            if (self.decided)(context, answers) {
                break;
            }
        }
    }
}

/// Returns what the answers say about another acquire: nodes that would grant it are for it. A free node whose grant would
/// not count says nothing: it may have lost the lock when it restarted.
fn ballots(context: &LockContext, answers: &[Answer]) -> Vec<Ballot> {
    let is_reader = context.spec.names.are_shared();
    let is_free = |answer: &Answer| match answer {
        Ok(Seen { state: KeyState::Shared { .. }, waiting, .. }) => {
            is_reader && waiting.is_none_or(|waiting| waiting == 0)
        }
        Ok(seen) => seen.state == KeyState::Free,
        Err(_) => false,
    };
    let ballot = |(node, answer): (usize, &Answer)| match answer {
        Err(_) => Ballot::Pending,
        Ok(_) if !is_free(answer) => Ballot::Against,
        Ok(_) if why_not_counted(context, node).is_some() => Ballot::Pending,
        Ok(_) => Ballot::For,
    };
    answers.iter().enumerate().map(ballot).collect()
}

/// Returns what the answers say about the lock's owner. Whether a free node counts is judged as for [`ballots`]. Keys
/// on a replica, and on a server that is listed twice, say nothing more than those on its master, or under its other
/// address.
fn owners(context: &LockContext, answers: &[Answer]) -> Vec<Owner> {
    let owner = |(node, answer): (usize, &Answer)| match (key_state(answer), why_not_counted(context, node)) {
        (None, _) | (Some(KeyState::Free), Some(_)) | (_, Some(Failure::Replica | Failure::Duplicate(_))) => {
            Owner::Unknown
        }
        (Some(KeyState::Free), None) => Owner::Nobody,
        (Some(KeyState::Ours { owner, .. }), _) => Owner::Ours(*owner),
        (Some(KeyState::Shared { .. }), _) => Owner::Shared,
        (Some(KeyState::Foreign { .. }), _) => Owner::Foreign,
    };
    answers.iter().enumerate().map(owner).collect()
}

fn key_state(answer: &Answer) -> Option<&KeyState> {
    answer.as_ref().ok().map(|seen| &seen.state)
}

/// Returns what the answers show together, and each of them.
pub(super) fn view(context: &LockContext, answers: Vec<Answer>) -> LockView {
    let (state, holders) = quorum::lock_state(&owners(context, &answers));
    let (mut holder, mut fences, mut left) = (None, Vec::new(), Vec::new());
    let mut most: Option<(u32, &[Box<str>])> = None;
    for (_, answer) in answers.iter().enumerate().filter(|(node, _)| holders.contains(*node)) {
        match key_state(answer) {
            Some(KeyState::Ours { label, fence, ttl_left, .. }) => {
                holder = holder.or_else(|| label.clone());
                fences.push(*fence);
                left.push(*ttl_left);
            }
            Some(KeyState::Shared { readers, labels, fence, ttl_left }) => {
                if most.is_none_or(|(most, _)| most < *readers) {
                    most = Some((*readers, labels));
                }
                fences.push(*fence);
                left.push(*ttl_left);
            }
            Some(KeyState::Foreign { ttl_left }) => left.push(*ttl_left),
            Some(KeyState::Free) | None => {}
        }
    }
    let (is_held, is_shared) = (state == LockState::Held, state == LockState::Shared);
    let fence = quorum::least_fence(answers.len(), fences).filter(|_| is_held || is_shared);
    let is_kept = is_held || is_shared || state == LockState::Foreign;
    let ttl_left = if is_kept { quorum::kept_for(answers.len(), left) } else { None };
    let most = most.filter(|_| is_shared);
    let labels = most.iter().flat_map(|(_, labels)| labels.iter().map(ToString::to_string)).collect();
    let readers = most.map(|(readers, _)| readers);
    let key = String::from_utf8_lossy(&context.spec.keys.lock).into_owned();
    LockView {
        name: String::from_utf8_lossy(context.spec.given_name()).into_owned(),
        state,
        label: holder.filter(|_| is_held).map(String::from),
        fence,
        since: fence.map(|fence| SystemTime::UNIX_EPOCH + Duration::from_micros(fence)),
        ttl_left,
        holders: holders.len(),
        quorum: quorum::quorum(answers.len()),
        waiting: answers.iter().filter_map(|answer| answer.as_ref().ok()?.waiting).max(),
        slot: None,
        readers,
        labels,
        nodes: node_views(context, &key, answers),
        key,
    }
}

fn node_views(context: &LockContext, key: &str, answers: Vec<Answer>) -> Vec<NodeView> {
    let view = |(node, answer)| NodeView { node: context.address(node), key: key.to_owned(), state: state(answer) };
    answers.into_iter().enumerate().map(view).collect()
}

fn why_not_counted(context: &LockContext, node: usize) -> Option<Failure> {
    let health = &context.set().members.health;
    health.why_not_counted(node, context.spec.settings.restart_delay, context.process.clock.now())
}

/// Returns the error for answers that do not tell whether the lock is held.
pub(super) fn unknown(context: &LockContext, answers: &[Answer]) -> Error {
    let forbids = |answer: &&Answer| matches!(answer, Err(Failure::Forbidden(_)));
    let may_forbid = answers.len() - quorum::quorum(answers.len());
    let (kind, message) = if answers.iter().filter(forbids).count() > may_forbid {
        (ErrorKind::Forbidden, "a quorum of nodes refuses these credentials or rights; check user, password and ACL")
    } else {
        (ErrorKind::Unavailable, "too few nodes answered to know whether it is held")
    };
    let mut message = message.to_owned();
    if answers.iter().any(|answer| answer.as_ref().is_err_and(Failure::is_of_connect)) {
        message = format!("{message}; {}", context.spec.origin);
    }
    let answer = |(node, answer): (usize, &Answer)| {
        let said = |kind, answer: &str| NodeAnswer { node: context.address(node), kind, answer: answer.to_owned() };
        match answer.as_ref().map(|seen| &seen.state) {
            Ok(KeyState::Free) => match why_not_counted(context, node) {
                None => said(AnswerKind::Free, "free"),
                Some(why) => why.of_node(context.address(node)),
            },
            Ok(KeyState::Shared { .. }) => said(AnswerKind::Held, "shared"),
            Ok(KeyState::Ours { .. } | KeyState::Foreign { .. }) => said(AnswerKind::Held, "held"),
            Err(failure) => failure.of_node(context.address(node)),
        }
    };
    let nodes = answers.iter().enumerate().map(answer).collect();
    let error = Error::new(kind, message).with_name(context.spec.name.bytes()).with_nodes(nodes);
    match answers.iter().filter_map(|answer| answer.as_ref().err()).find_map(Failure::cause) {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

fn state(answer: Answer) -> NodeState {
    match answer.map(|seen| seen.state) {
        Ok(KeyState::Free) => NodeState::Free,
        Ok(KeyState::Ours { label, fence, ttl_left, .. }) => {
            NodeState::Held { label: label.map(String::from), fence, ttl_left }
        }
        Ok(KeyState::Shared { readers, labels, fence, ttl_left }) => {
            NodeState::Shared { readers, labels: labels.into_iter().map(String::from).collect(), fence, ttl_left }
        }
        Ok(KeyState::Foreign { ttl_left }) => NodeState::Foreign { ttl_left },
        Err(failure) => NodeState::Unavailable { error: failure.to_string() },
    }
}
