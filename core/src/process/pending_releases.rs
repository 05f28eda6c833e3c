//! Pending releases: unanswered releases that the background retries until a node reports the outcome. One that gives a
//! key back to whom it is from is retried in the same way.
//!
//! Each node of a set has a *ledger* of them. While a ledger is not empty, one task, its *payer*, sends what is ready
//! over the background's own connection. So thousands of new pending releases cost one task and one timer, and one task
//! asks for a node that is down.
//!
//! States of a pending release:
//!
//! - *ready*: it is to be sent, the oldest first.
//! - *sent*: it is in flight.
//! - *later*: it was answered, but not finally, and is sent again then.
//!
//! At most [`WINDOW`] releases are in flight to a node, in the order in which they became pending. Each one's time
//! begins when it is sent. A node is silent when it has answered none of them for `node_timeout`. Slow answers to many
//! releases do not count against it, and answers on another connection do not hide silence on this one. After silence,
//! a broken connection or a refusal, the payer rests. Then it sends one release, and twice as many after each answer.
//!
//! A release queued right behind its create, on the same connection, is first awaited for `node_timeout` by its own
//! task, or for [`LISTENED_AT_END`] once the process ends. Then it is pending as all others, and still awaited for a
//! while: its answer alone is final while the create may be on its way.
//!
//! What may interrupt a payer:
//!
//! - It waits for a connection: it sends no release, and they keep their order.
//! - The connection breaks, or the node is silent: sent releases are ready again, in front. Silence counts one miss,
//!   however many were unanswered.
//! - A new release becomes pending during a rest: the rest ends, because the node may be back.
//! - A release is older than its ttl: the key has expired, and the release is dropped.
//! - A cluster moves the key: the server says where it is, and the release follows. Once the set does not have any key,
//!   or at each rest while the server does not answer, its ledgers hand their releases on.
//! - The background cannot start, or ends in a simulation: the ledger drops all releases, and the keys expire.
//! - The process forks: the child has its own, empty ledgers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::net::connections::{Connections, Members};
use crate::net::redirect::follow;
use crate::node::traffic::PendingCount;
use crate::node::way::OpenSlot;
use crate::node::{Answering, Connection};
use crate::process::environment::Environment;
use crate::process::shutdown::PendingWork;
use crate::process::waiters::{Leaving, Waiters};
use crate::protocol::backoff;
use crate::protocol::quorum::quorum;
use crate::protocol::request::{Action, Keys, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;
use crate::sys::future::idle_waker;
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::on_drop::OnDrop;
use crate::texts::opaque;
use crate::transport::failure::Failure;

/// Most pending releases of one node. Each takes some hundred bytes, less than the held lock that it comes from, so a
/// program that could hold so many can keep them too. Only ten thousand abandoned locks a second for more than a
/// minute, while the node is down, exceed it.
const MOST: usize = 1_000_000;

/// Most releases in flight to one node. A server answers so many within some milliseconds: other users of the
/// connection (renewals, event loops) hardly notice. More would be faster only over a long way.
const WINDOW: usize = 256;

/// The same in an ending process, which uses the connection for nothing else and has little time.
const WINDOW_AT_END: usize = 4_096;

/// Number of tries, over a few seconds, while the release behind its create is awaited. Its connection is kept that
/// long.
const LISTENED_TRIES: u32 = 6;

/// How long a release behind its create is awaited in an ending process: longer than servers take, and shorter than a
/// shutdown. On the connection of the thread that shuts down, no answer is read, and the release may not even be written.
const LISTENED_AT_END: Duration = Duration::from_millis(100);

/// The node set of pending releases. Lives as long as any of them.
pub(crate) trait Creditors: fmt::Debug + Send + Sync {
    fn members(&self) -> &Members;
    fn connections(&self, runtime: &Handle) -> Arc<Connections>;
    fn waiters(&self) -> &Waiters;
    fn ledger(&self, node: usize) -> &Ledger;

    /// Returns the set that has this key now, if it is another one because a cluster has changed.
    fn successor(&self, lock_key: &[u8]) -> Option<Arc<dyn Creditors>>;

    /// Whether clusters are among the nodes.
    fn is_routed(&self) -> bool;

    /// Whether no key is on this set any more, because a cluster has changed.
    fn is_abandoned(&self) -> bool;
}

/// One token and its releases' data.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) environment: Arc<Environment>,
    pub(crate) set: Arc<dyn Creditors>,
    /// The set of the client's addresses. While it lives, the other sets follow the maps of its clusters.
    #[expect(dead_code, reason = "held to be kept alive")]
    pub(crate) listed: Arc<dyn Creditors>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) token: Token,
    pub(crate) node_timeout: Duration,
    /// The ttl last given to the keys.
    pub(crate) ttl: Duration,
    /// Until when the lock is nobody's, if it has a least time.
    pub(crate) kept_until: Option<Moment>,
    /// What is sent in place of a release: it gives the keys back to whom they are from.
    pub(crate) key_back: Option<Request>,
}

impl Account {
    fn release(&self) -> Request {
        if let Some(key_back) = &self.key_back {
            return key_back.clone();
        }
        let rest = self.kept_until.map(|until| until.since(self.environment.clock.now()));
        Request { keys: Arc::clone(&self.keys), token: self.token, action: Action::give_up(&self.keys, true, rest) }
    }

    /// Queues the release on `connection` now, and returns the future of its answer.
    pub(crate) fn queue(&self, connection: Connection) -> Answering {
        connection.queue(self.release())
    }

    /// Counts a release that is pending on `node`.
    fn count(&self, node: usize) -> PendingCount {
        self.set.members().nodes[node].endpoint.traffic.count_pending()
    }

    fn tell_waiters(&self, answer: &Result<Reply, Failure>) {
        tell_waiters(&self.environment, self.set.waiters(), &self.keys, answer);
    }

    /// Makes a release pending on each of these nodes. One queued behind a create is awaited first; with it comes whether
    /// the node may have had a key of this token before that create.
    ///
    /// The call that they come from is `leaving` until so many have ended that a quorum of nodes is free, or until all keys are
    /// back.
    pub(crate) fn add_pending(self, releases: Vec<(usize, Option<(Answering, bool)>)>, leaving: Option<Leaving>) {
        let account = Arc::new(self);
        let nodes = account.set.members().len();
        let needless = if account.key_back.is_some() { 0 } else { nodes - quorum(nodes) };
        let blocking = releases.len().saturating_sub(needless);
        let leaving = leaving.filter(|_| blocking > 0);
        let leaving = leaving.map(|leaving| {
            Arc::new(Departing { blocking: AtomicUsize::new(blocking), leaving: Mutex::new(Some(leaving)) })
        });
        let until = account.environment.clock.now().after(account.ttl);
        let mut listened_to = Vec::new();
        for (node, behind) in releases {
            let keys = behind.as_ref().map_or(0, |(_, over_key)| 1 + u8::from(*over_key));
            let pending_work = PendingWork::new(&account.environment.shutdown);
            let count = account.count(node);
            let pending = PendingRelease {
                account: Arc::clone(&account),
                node,
                behind: behind.map(|(releasing, _)| releasing),
                keys,
                until,
                attempt: 0,
                _pending_work: pending_work,
                part: leaving.clone().map(Part),
                count,
            };
            if pending.behind.is_some() {
                listened_to.push(pending);
            } else {
                pending.enqueue();
            }
        }
        if !listened_to.is_empty() {
            account.environment.background.spawn(listen(Arc::clone(&account), listened_to));
        }
    }
}

/// Notifies this process's waiters of a deletion, and leaves the lock to others that wait.
pub(crate) fn tell_waiters(environment: &Environment, waiters: &Waiters, keys: &Keys, answer: &Result<Reply, Failure>) {
    if let Ok(Reply::Deleted { waiting }) = answer {
        let now = environment.clock.now();
        let hold_off = || match environment.random.unit() {
            unit if keys.are_shared() => backoff::deference(unit),
            unit => backoff::hold_off(*waiting, unit),
        };
        waiters.released(keys.line(), *waiting, now, hold_off);
        if keys.are_several() {
            // Those who wait for one of the names.
            keys.each().for_each(|keys| waiters.released(&keys.lock, *waiting, now, hold_off));
        }
    }
}

/// One node's unanswered release.
struct PendingRelease {
    account: Arc<Account>,
    node: usize,
    /// The release queued behind an unanswered create, on the same connection, while it is awaited.
    behind: Option<Answering>,
    /// How many keys are to be deleted until none can be left: 0 where any answer shows that, and otherwise the one of a
    /// create that may still be on its way over another connection, and the one that may have been there before.
    keys: u8,
    /// When its key expires.
    until: Moment,
    /// How often it was answered, but not finally.
    attempt: u32,
    _pending_work: PendingWork,
    /// Until its first answer, or while the node has a key that a late re-key would take.
    part: Option<Part>,
    count: PendingCount,
}

/// A call that leaves, until enough of its releases have ended.
struct Departing {
    /// How many releases have to end until a quorum of nodes is free.
    blocking: AtomicUsize,
    leaving: Mutex<Option<Leaving>>,
}

/// One of its releases.
struct Part(Arc<Departing>);

impl Drop for Part {
    fn drop(&mut self) {
        // Those that end later find it left.
        if self.0.blocking.fetch_sub(1, Ordering::AcqRel) == 1 {
            let leaving = self.0.leaving.lock().take();
            drop(leaving);
        }
    }
}

impl PendingRelease {
    /// Whether the release behind its create was answered, which settles it. It was executed right behind the create,
    /// so the token has no key left there, whatever it found. After a failure it is not awaited any more.
    fn is_done(&mut self, connections: &Connections, cx: &mut Context<'_>) -> bool {
        let Some(behind) = &mut self.behind else { return false };
        let Poll::Ready(answer) = behind.as_mut().poll(cx) else { return false };
        self.behind = None;
        if answer.is_err() {
            return false;
        }
        connections.record_reply(self.node);
        self.account.tell_waiters(&answer);
        true
    }

    /// Enters the release in the ledger, and makes sure that a payer runs.
    fn enqueue(self) {
        let (environment, set) = (Arc::clone(&self.account.environment), Arc::clone(&self.account.set));
        let node = self.node;
        let ledger = set.ledger(node);
        if ledger.enter(self, &set.members().nodes[node].address) {
            let (payers, own) = (Arc::clone(&set), Arc::clone(&environment));
            // Without its payer, nobody sends what is pending.
            let unpaid = OnDrop::new(move || payers.ledger(node).give_up());
            environment.background.spawn(async move {
                Payer::new(set, own, node).run().await;
                unpaid.cancel();
            });
        } else {
            ledger.added.notify_one();
        }
    }
}

/// Waits for answers to releases queued behind creates. Those that fail, or are not answered in time, enter the ledger.
async fn listen(account: Arc<Account>, mut pending: Vec<PendingRelease>) {
    let connections = account.set.connections(&Handle::current());
    let clock = &connections.clock;
    let ending = pin!(async {
        account.environment.shutdown.wait_started().await;
        clock.sleep(LISTENED_AT_END).await;
    });
    let mut timer = pin!(clock.timeout(account.node_timeout, ending));
    poll_fn(|cx| {
        pending.retain_mut(|pending| !pending.is_done(&connections, cx));
        let (open, failed): (Vec<_>, Vec<_>) = pending.drain(..).partition(|pending| pending.behind.is_some());
        pending = open;
        failed.into_iter().for_each(PendingRelease::enqueue);
        if pending.is_empty() { Poll::Ready(()) } else { timer.as_mut().poll(cx).map(drop) }
    })
    .await;
    // From here on the payer polls them now and then, and no task waits for them.
    pending.retain_mut(|pending| !pending.is_done(&connections, &mut Context::from_waker(idle_waker())));
    pending.into_iter().for_each(PendingRelease::enqueue);
}

/// One node's pending releases.
pub(crate) struct Ledger {
    most: usize,
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<PendingRelease>,
    later: BTreeMap<(Moment, u64), PendingRelease>,
    next: u64,
    /// Whether a payer runs.
    paying: bool,
    /// Whether a release became pending since the payer looked.
    added: bool,
    /// Whether a release was dropped for lack of room since the ledger was last empty.
    warned: bool,
}

opaque!(Ledger);

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { most: MOST, state: Mutex::default(), added: Notify::new() }
    }

    /// Enters a release of the node at `address`. If there are too many, the oldest is dropped, of which the first is
    /// warned about. Returns whether no payer runs yet.
    fn enter(&self, pending: PendingRelease, address: &impl fmt::Display) -> bool {
        let mut state = self.state.lock();
        state.ready.push_back(pending);
        // Postponed releases were sent before, so they are older than ready ones.
        let dropped = (state.ready.len() + state.later.len() > self.most)
            .then(|| state.later.pop_first().map(|(_, pending)| pending).or_else(|| state.ready.pop_front()))
            .flatten();
        let is_warning = dropped.is_some() && !mem::replace(&mut state.warned, true);
        let is_first = !mem::replace(&mut state.paying, true);
        state.added = true;
        drop(state);
        drop(dropped);
        if is_warning {
            log!(RELEASES_ABANDONED, node = %address,
                "too many pending releases for the node; leaving the oldest keys to expire"
            );
        }
        is_first
    }

    /// Whether a release became pending since the last call.
    fn was_added(&self) -> bool {
        mem::take(&mut self.state.lock().added)
    }

    /// Returns when the next release may be sent: now if one is ready, `None` if there is none.
    fn due(&self, now: Moment) -> Option<Moment> {
        let state = self.state.lock();
        if state.ready.is_empty() { state.later.keys().next().map(|(at, _)| *at) } else { Some(now) }
    }

    /// Takes the next release to send.
    fn take(&self, now: Moment) -> Option<PendingRelease> {
        let mut expired = Vec::new();
        let mut state = self.state.lock();
        while let Some(entry) = state.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let pending = entry.remove();
            state.ready.push_back(pending);
        }
        let taken = loop {
            match state.ready.pop_front() {
                Some(pending) if pending.until <= now => expired.push(pending),
                taken => break taken,
            }
        };
        drop(state);
        drop(expired);
        taken
    }

    /// Has `pending` sent again at `at`, unless its key will have expired.
    fn postpone(&self, pending: PendingRelease, at: Moment) {
        if at < pending.until {
            let mut state = self.state.lock();
            state.next += 1;
            let entry = (at, state.next);
            state.later.insert(entry, pending);
        }
    }

    /// Counts those to be sent again later.
    fn postponed(&self) -> usize {
        self.state.lock().later.len()
    }

    /// Puts releases back in front, in their order, because their outcome is unknown.
    fn put_back(&self, pending: Vec<PendingRelease>) {
        let mut state = self.state.lock();
        for pending in pending.into_iter().rev() {
            state.ready.push_front(pending);
        }
    }

    /// Drops ready releases that have expired.
    fn sweep(&self, now: Moment) {
        let mut state = self.state.lock();
        let ready = mem::take(&mut state.ready);
        let (kept, expired): (VecDeque<_>, VecDeque<_>) = ready.into_iter().partition(|pending| pending.until > now);
        state.ready = kept;
        drop(state);
        drop(expired);
    }

    /// Ends the payer; false if a release is pending.
    fn end(&self) -> bool {
        let mut state = self.state.lock();
        let is_over = state.ready.is_empty() && state.later.is_empty();
        if is_over {
            *state = State::default();
        }
        is_over
    }

    /// Takes the releases, of those that are not in flight, whose keys are on another set now, with that set.
    fn take_moved(&self, set: &dyn Creditors) -> Vec<(PendingRelease, Arc<dyn Creditors>)> {
        let successor = |pending: &PendingRelease| set.successor(&pending.account.keys.lock);
        let mut moved = Vec::new();
        let mut state = self.state.lock();
        let (ready, later) = (mem::take(&mut state.ready), mem::take(&mut state.later));
        let later = later.into_iter().map(|(at, pending)| (Some(at), pending));
        for (at, pending) in ready.into_iter().map(|pending| (None, pending)).chain(later) {
            match (successor(&pending), at) {
                (Some(set), _) => moved.push((pending, set)),
                (None, Some(at)) => drop(state.later.insert(at, pending)),
                (None, None) => state.ready.push_back(pending),
            }
        }
        moved
    }

    /// Drops everything: no payer will send it.
    fn give_up(&self) {
        let state = mem::take(&mut *self.state.lock());
        drop(state);
    }
}

/// A release that was sent.
struct Sent {
    pending: PendingRelease,
    connection: Connection,
    at: Moment,
    answer: Answering,
}

/// A release and its answer or failure.
type Answered = (PendingRelease, Connection, Result<Reply, Failure>);

/// An event that wakes a payer.
enum Event {
    Answers(Vec<Answered>),
    Opened(Result<Connection, Failure>),
    Added,
    Time,
}

/// A connection being made.
type Opening = Pin<Box<dyn Future<Output = Result<Connection, Failure>> + Send>>;

struct Payer {
    set: Arc<dyn Creditors>,
    environment: Arc<Environment>,
    node: usize,
    connections: Arc<Connections>,
    sent: VecDeque<Sent>,
    /// How many, from the front, were polled and so have their positions.
    queued: usize,
    /// How long the node may leave them all unanswered.
    patience: Duration,
    opening: Option<Opening>,
    /// How many releases may be in flight.
    window: usize,
    /// Rests since the last answer.
    rests: u32,
    /// Until when it rests.
    rest: Moment,
    /// When the node answered last on the connection of the oldest release in flight.
    heard: Moment,
}

impl Payer {
    fn new(set: Arc<dyn Creditors>, environment: Arc<Environment>, node: usize) -> Self {
        let connections = set.connections(&Handle::current());
        Self {
            set,
            environment,
            node,
            connections,
            sent: VecDeque::new(),
            queued: 0,
            patience: Duration::ZERO,
            opening: None,
            window: WINDOW,
            rests: 0,
            rest: Moment::default(),
            heard: Moment::default(),
        }
    }

    fn ledger(&self) -> &Ledger {
        self.set.ledger(self.node)
    }

    /// Sends until no release is pending.
    async fn run(mut self) {
        loop {
            let Some(until) = self.send() else {
                if self.ledger().end() {
                    return;
                }
                continue;
            };
            match self.next(until).await {
                Event::Answers(answers) => self.answered(answers),
                Event::Opened(Ok(_)) | Event::Added => {}
                Event::Opened(Err(_)) => self.rest(),
                Event::Time => self.look().await,
            }
        }
    }

    fn window(&self) -> usize {
        let is_whole = self.window == WINDOW;
        if is_whole && self.environment.shutdown.has_started() { WINDOW_AT_END } else { self.window }
    }

    /// Leaves the releases to the sets that have their keys now: where the set is abandoned, and where the server does not
    /// answer, because one that does says where a key has moved. They stay here while a slot does not have a primary.
    fn hand_on(&self) {
        if !self.set.is_routed() {
            return;
        }
        for (mut pending, set) in self.ledger().take_moved(&*self.set) {
            pending.account = Arc::new(Account { set, ..(*pending.account).clone() });
            pending.count = pending.account.count(pending.node);
            pending.enqueue();
        }
    }

    /// Sends as many releases as allowed. Returns until when to wait, `None` if there is nothing to wait for.
    fn send(&mut self) -> Option<Moment> {
        if self.set.is_abandoned() {
            self.hand_on();
        }
        let now = self.connections.clock.now();
        let is_resting = !self.ledger().was_added() && now < self.rest;
        let mut due = self.ledger().due(now);
        while !is_resting && self.opening.is_none() && self.sent.len() < self.window() {
            if due.is_none_or(|due| due > now) {
                break;
            }
            let Some(connection) = self.connections.current(self.node) else {
                let (connections, node) = (Arc::clone(&self.connections), self.node);
                self.opening = Some(Box::pin(async move { connections.get(node, false).await }));
                break;
            };
            if let Some(pending) = self.ledger().take(now) {
                self.send_one(pending, connection, now);
            }
            due = self.ledger().due(now);
        }
        if self.sent.is_empty() && self.opening.is_none() {
            return due.map(|due| if is_resting { due.max(self.rest) } else { due });
        }
        // While some are in flight, an answer makes room for others.
        let has_room = self.opening.is_none() && self.sent.len() < self.window();
        let due = due.filter(|due| has_room && *due > now).map(|due| due.max(self.rest));
        Some(due.unwrap_or(Moment::NEVER).min(self.silent_at()))
    }

    fn send_one(&mut self, mut pending: PendingRelease, connection: Connection, now: Moment) {
        if pending.is_done(&self.connections, &mut Context::from_waker(idle_waker())) {
            return;
        }
        let (connections, node, request, over) =
            (Arc::clone(&self.connections), self.node, pending.account.release(), connection.clone());
        // This task polls, and so queues, it before anything else.
        let answer: Answering = Box::pin(async move {
            let _watched = connections.track_request(node);
            let answer = over.call_known(&request).await;
            if answer.as_ref().err().is_some_and(Failure::is_redirect) {
                return follow(&connections, node, &request, (over, answer), OpenSlot::default()).await.1;
            }
            answer
        });
        let node_timeout = pending.account.node_timeout;
        self.patience = if self.sent.is_empty() { node_timeout } else { self.patience.max(node_timeout) };
        self.sent.push_back(Sent { pending, connection, at: now, answer });
    }

    /// Returns when the node is silent: `patience` after the oldest sent release or its last answer, whichever is
    /// later.
    fn silent_at(&self) -> Moment {
        let first = self.sent.front();
        first.map_or(Moment::NEVER, |first| first.at.max(self.heard).after(self.patience))
    }

    async fn next(&mut self, until: Moment) -> Event {
        let clock = self.connections.clock.clone();
        let mut timer = pin!(clock.sleep_until(until));
        let set = Arc::clone(&self.set);
        let mut added = pin!(set.ledger(self.node).added.notified());
        poll_fn(|cx| {
            let answers = self.poll_sent(false, cx);
            if !answers.is_empty() {
                return Poll::Ready(Event::Answers(answers));
            }
            if let Some(opening) = &mut self.opening
                && let Poll::Ready(result) = opening.as_mut().poll(cx)
            {
                self.opening = None;
                return Poll::Ready(Event::Opened(result));
            }
            if added.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Added);
            }
            timer.as_mut().poll(cx).map(|()| Event::Time)
        })
        .await
    }

    /// Polls sent releases, and takes out the answered ones. A connection answers in order: behind an unanswered
    /// release only unpolled ones are polled, which queues them, unless `all` are to be.
    fn poll_sent(&mut self, all: bool, cx: &mut Context<'_>) -> Vec<Answered> {
        let mut answers = Vec::new();
        let mut index = 0;
        while let Some(sent) = self.sent.get_mut(index) {
            let Poll::Ready(answer) = sent.answer.as_mut().poll(cx) else {
                index = if all { index + 1 } else { self.queued.max(index + 1) };
                continue;
            };
            self.queued -= usize::from(index < self.queued);
            answers.extend(self.sent.remove(index).map(|sent| (sent.pending, sent.connection, answer)));
        }
        self.queued = self.sent.len();
        answers
    }

    /// Records answers.
    fn answered(&mut self, answers: Vec<Answered>) {
        let (now, node) = (self.connections.clock.now(), self.node);
        let (mut is_served, mut unheard) = (false, Vec::new());
        for (pending, connection, answer) in answers {
            pending.account.tell_waiters(&answer);
            let is_heard = answer.as_ref().err().is_none_or(Failure::is_answer);
            if is_heard && self.sent.front().is_none_or(|first| first.connection.same(&connection)) {
                self.heard = now;
            }
            match &answer {
                Ok(reply) => {
                    is_served = true;
                    self.window = (2 * self.window).min(WINDOW);
                    self.paid(pending, reply, now);
                }
                Err(failure) => {
                    if failure.breaks_connection() {
                        self.connections.discard_if(node, &connection);
                    }
                    if is_heard {
                        self.again(pending, now);
                    } else {
                        unheard.push(pending);
                    }
                }
            }
        }
        self.ledger().put_back(unheard);
        if is_served {
            self.connections.record_reply(node);
            (self.rests, self.rest) = (0, Moment::default());
        } else {
            self.rest();
        }
    }

    /// Settles `pending`, which the node executed, or postpones it.
    fn paid(&self, mut pending: PendingRelease, reply: &Reply, now: Moment) {
        // The next call need not wait for a create that comes later than this, if it ever does. But a re-key would take a key
        // that has its former token, and an attach would take that for another owner's.
        if *reply != Reply::Already {
            pending.part = None;
        }
        // Absent is final, unless a create may still be on its way over another connection.
        if reply.has_given_up() {
            pending.keys = pending.keys.saturating_sub(1);
        }
        if pending.keys > 0 && !pending.is_done(&self.connections, &mut Context::from_waker(idle_waker())) {
            self.again(pending, now);
        }
    }

    /// Postpones `pending`.
    fn again(&self, mut pending: PendingRelease, now: Moment) {
        // Thousands that are most likely executed already should not keep the node busy.
        let pause = backoff::release_retry(pending.attempt, pending.account.ttl)
            .max(backoff::renewal_spread(self.ledger().postponed()));
        let at = now.after(pause);
        pending.attempt += 1;
        if pending.attempt >= LISTENED_TRIES {
            pending.behind = None;
        }
        self.ledger().postpone(pending, at);
    }

    /// Rests for a while, unless a release becomes pending, and then sends little.
    fn rest(&mut self) {
        let now = self.connections.clock.now();
        if self.rest <= now {
            self.rest = now.after(backoff::release_retry(self.rests, Duration::ZERO));
            self.rests = self.rests.saturating_add(1);
            self.ledger().sweep(now);
            self.hand_on();
        }
        self.window = 1;
    }

    /// Handles the timer: more may be sent, or the node is silent.
    async fn look(&mut self) {
        if self.silent_at() > self.connections.clock.now() {
            return;
        }
        // Something may have kept this thread from its sockets until now. Arrived answers are read before the node
        // counts as silent.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            let answers = poll_fn(|cx| Poll::Ready(self.poll_sent(true, cx))).await;
            if !answers.is_empty() {
                return self.answered(answers);
            }
        }
        let Some(silent) = self.sent.front().map(|first| first.connection.clone()) else { return };
        let (unheard, others): (VecDeque<_>, _) =
            mem::take(&mut self.sent).into_iter().partition(|sent| sent.connection.same(&silent));
        (self.sent, self.queued) = (others, 0);
        self.ledger().put_back(unheard.into_iter().map(|sent| sent.pending).collect());
        // A connection that was replaced says nothing about the node.
        if self.connections.is_current(self.node, &silent) {
            self.connections.record_timeout(self.node);
            self.rest();
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::{LIMIT, Server, eventually};

    use super::*;
    use crate::address::Addresses;
    use crate::process::Process;
    use crate::protocol::name::Name;
    use crate::sys::log::heard;

    const TTL: Duration = Duration::from_secs(10);

    fn now() -> Moment {
        Moment::from_nanos(1)
    }

    /// A release that expires `TTL` after `now`, for the lock of this number.
    fn pending(number: usize) -> PendingRelease {
        let process = Process::current();
        let set = process.set(&Addresses::parse(["memory://pending"]).unwrap()).unwrap();
        let name = Name::parse(number.to_string().as_bytes()).unwrap();
        let token = Token::fresh(&process.random);
        let pending_work = PendingWork::new(&process.shutdown);
        let account = Account {
            environment: Arc::clone(&process.environment),
            listed: Arc::clone(&set) as _,
            set,
            keys: Keys::of(&name),
            token,
            node_timeout: TTL / 4,
            ttl: TTL,
            kept_until: None,
            key_back: None,
        };
        let (count, until) = (account.count(0), now().after(TTL));
        PendingRelease {
            account: Arc::new(account),
            node: 0,
            behind: None,
            keys: 0,
            until,
            attempt: 0,
            _pending_work: pending_work,
            part: None,
            count,
        }
    }

    fn number(pending: &PendingRelease) -> usize {
        std::str::from_utf8(&pending.account.keys.lock).unwrap().parse().unwrap()
    }

    fn taken(ledger: &Ledger, now: Moment) -> Vec<usize> {
        std::iter::from_fn(|| ledger.take(now)).map(|pending| number(&pending)).collect()
    }

    #[test]
    fn the_oldest_goes_first_for_want_of_room_and_is_warned_about_once() {
        let ledger = Ledger { most: 3, ..Ledger::new() };
        for first in [0, 10] {
            let entered = (first..first + 5).map(|number| heard::text(|| ledger.enter(pending(number), &"a")));
            let (pays, said): (Vec<_>, Vec<_>) = entered.unzip();
            let is_warning = |text: &String| text.contains("releases_abandoned") && text.contains("node=a");
            assert_eq!(said.iter().map(is_warning).collect::<Vec<_>>(), [false, false, false, true, false]);
            assert_eq!(pays, [true, false, false, false, false], "one pays for all");
            assert!(!ledger.end(), "something is pending");
            assert_eq!(taken(&ledger, now()), [first + 2, first + 3, first + 4]);
            // The ledger was empty: the next drop warns again.
            assert!(ledger.end());
        }
    }

    #[test]
    fn what_was_asked_for_before_goes_before_what_was_not() {
        let ledger = Ledger { most: 2, ..Ledger::new() };
        ledger.postpone(pending(0), now().after(TTL / 2));
        (1..3).for_each(|number| _ = ledger.enter(pending(number), &"a"));
        assert_eq!(taken(&ledger, now().after(TTL / 2)), [1, 2]);
    }

    #[test]
    fn what_went_unanswered_keeps_its_place() {
        let ledger = Ledger::new();
        (0..4).for_each(|number| _ = ledger.enter(pending(number), &"a"));
        let sent = [ledger.take(now()), ledger.take(now())].map(Option::unwrap);
        ledger.put_back(sent.into());
        assert_eq!(taken(&ledger, now()), [0, 1, 2, 3]);
    }

    #[test]
    fn a_debt_comes_again_in_time_and_goes_with_its_key() {
        let ledger = Ledger::new();
        let soon = now().after(TTL / 2);
        ledger.postpone(pending(0), soon);
        ledger.postpone(pending(1), now().after(TTL));
        assert_eq!((ledger.due(now()), taken(&ledger, now())), (Some(soon), vec![]));
        assert_eq!((taken(&ledger, soon), ledger.due(soon)), (vec![0], None));
        ledger.enter(pending(2), &"a");
        ledger.sweep(soon);
        assert_eq!(ledger.due(soon), Some(soon));
        ledger.sweep(now().after(TTL));
        assert_eq!(ledger.due(soon), None);
        ledger.enter(pending(3), &"a");
        assert_eq!(taken(&ledger, now().after(TTL)), [0; 0]);
    }

    #[tokio::test]
    async fn a_release_that_was_answered_keeps_no_call_back_although_a_create_may_come() {
        let pending = PendingRelease { keys: 1, until: Moment::NEVER, ..pending(0) };
        let account = Arc::clone(&pending.account);
        let waiters = Arc::new(Waiters::default());
        let leaving = Mutex::new(Some(waiters.leave(&account.keys)));
        let part = Some(Part(Arc::new(Departing { blocking: AtomicUsize::new(1), leaving })));
        PendingRelease { part, ..pending }.enqueue();
        let left = pin!(waiters.left(&account.keys));
        assert!(account.environment.clock.timeout(LIMIT, left).await.is_some());
        // The call ends first, and the release may be in flight at any moment.
        eventually("it is sent again", || account.set.ledger(0).due(Moment::NEVER).is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn answers_on_another_connection_do_not_hide_a_silent_one() {
        const PATIENCE: Duration = Duration::from_millis(50);
        let server = Server::start();
        let process = Process::current();
        let set = process.set(&Addresses::parse([server.url()]).unwrap()).unwrap();
        let mut payer = Payer::new(set, Arc::clone(&process.environment), 0);
        let connections = Arc::clone(&payer.connections);
        let sends = async |payer: &mut Payer, number: usize| {
            let connection = connections.get(0, true).await.unwrap();
            let pending = PendingRelease { until: Moment::NEVER, ..pending(number) };
            payer.send_one(pending, connection.clone(), connections.clock.now());
            payer.patience = PATIENCE;
            payer.sent.back_mut().unwrap().answer = Box::pin(std::future::pending());
            connection
        };
        sends(&mut payer, 0).await;
        let silent_at = payer.silent_at();
        connections.discard(0);
        let other = sends(&mut payer, 1).await;
        connections.clock.sleep_until(silent_at).await;
        payer.answered(vec![(pending(2), other, Ok(Reply::Absent))]);
        assert_eq!(payer.silent_at(), silent_at);
        payer.look().await;
        assert_eq!(taken(payer.ledger(), connections.clock.now()), [0], "it is sent over the other connection");
        assert_eq!((payer.sent.len(), payer.window), (1, WINDOW), "the node itself is not silent");
        payer.ledger().give_up();
    }
}
