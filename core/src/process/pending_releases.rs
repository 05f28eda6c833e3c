//! What is owed: releases that nobody has seen answered, and that the background sends until a node says what came of
//! them.
//!
//! Each node of a set has a *ledger*. A debt in it is *ready* (to be sent, the oldest first), *sent* (on its way) or
//! *later* (answered, but not finally: sent again then). While a ledger has any debt, one task of the background, its
//! *payer*, sends what is ready, over the background's own connection. So thousands of releases that come to be owed at
//! once cost one task and one timer, and a node that is down is asked for by one.
//!
//! At most [`WINDOW`] releases are on their way to a node at a time, in the order in which they came to be owed; each
//! one's time begins when it is sent. A node is silent when it has answered none of them for `node_timeout`: answers that
//! take long because there are many releases say nothing against it. After silence, a broken connection or a refusal the
//! payer rests, and then sends one release, twice as many after each answer.
//!
//! A release that was queued right behind its create, on the same connection, is *listened to* first, for `node_timeout`,
//! by a task of its own. Then it is owed as all others, and still listened to for a while: its answer alone is final, as
//! long as the create may be on its way.
//!
//! What may interrupt a payer:
//!
//! - it waits for a connection: nothing is sent, and what is owed keeps its order;
//! - the connection breaks, or the node is silent: what was sent is ready again, in front, and one miss is counted,
//!   however many releases went unanswered;
//! - something new is owed while it rests: the rest ends, as that might be the first sign of a node that is back;
//! - a debt is older than its ttl: the key has expired, and the debt is let go;
//! - the background cannot start, or ends in a simulation: everything in the ledger is let go, and the keys expire;
//! - the process forks: the child has other ledgers, empty ones.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::fault::{Fault, planted};
use crate::net::connections::{Connections, Members};
use crate::net::node::{Connection, Failure};
use crate::process::environment::Environment;
use crate::process::shutdown::PendingWork;
use crate::process::waiters::Waiters;
use crate::protocol::backoff;
use crate::protocol::request::{Action, Keys, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;
use crate::sys::future::begun;
use crate::sys::log::log;
use crate::sys::task::spawn;

/// Most releases that are owed to one node at a time. Each takes some hundred bytes, less than the held lock that it
/// comes from, so that a program that could hold so many can owe them too. Only a program that gives up ten thousand
/// locks a second for more than a minute, while the node is down, owes more.
const MOST: usize = 1_000_000;

/// Most releases on their way to one node at a time. A server answers so many within some milliseconds: those who use
/// the same connection (renewals, event loops) hardly notice. More would be faster only over a long way.
const WINDOW: usize = 256;

/// The same in a process that is ending, which uses the connection for nothing else and has little time.
const WINDOW_AT_END: usize = 4_096;

/// For so many tries, a few seconds, a release that was queued behind its create is listened to: no longer, because its
/// connection is kept for it.
const LISTENED_TRIES: u32 = 6;

/// A release on its way.
pub(crate) type Releasing = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// The set of nodes that releases are owed to. Lives for as long as any is.
pub(crate) trait Creditors: fmt::Debug + Send + Sync {
    fn members(&self) -> &Members;
    fn connections(&self, runtime: &Handle) -> Arc<Connections>;
    fn waiters(&self) -> &Waiters;
    fn pending_releases(&self) -> &PendingReleases;
}

/// One token and what its releases need.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) environment: Arc<Environment>,
    pub(crate) set: Arc<dyn Creditors>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) token: Token,
    pub(crate) node_timeout: Duration,
    /// The ttl that the keys were given last.
    pub(crate) ttl: Duration,
}

impl Account {
    fn release(&self) -> Request {
        Request { keys: Arc::clone(&self.keys), token: self.token, action: Action::Release { asks: true } }
    }

    /// Queues the release on `connection` now, and returns the future of its answer.
    pub(crate) fn queue(&self, connection: Connection) -> Releasing {
        let request = self.release();
        begun(Box::pin(async move { connection.call_known(&request).await }))
    }

    fn tell_waiters(&self, answer: &Result<Reply, Failure>) {
        tell_waiters(&self.environment, self.set.waiters(), &self.keys, answer);
    }

    /// Owes a release to each of these nodes, beside those that were queued behind a create.
    pub(crate) fn owe(self, releases: Vec<(usize, Option<Releasing>)>) {
        let account = Arc::new(self);
        let until = account.environment.clock.now().after(account.ttl);
        let mut listened_to = Vec::new();
        for (node, behind) in releases {
            let unanswered = behind.is_some();
            let pending_work = PendingWork::new(&account.environment.shutdown);
            let pending = PendingRelease {
                account: Arc::clone(&account),
                node,
                behind,
                unanswered,
                until,
                attempt: 0,
                _pending_work: pending_work,
            };
            if unanswered {
                listened_to.push(pending);
            } else {
                pending.owe();
            }
        }
        if !listened_to.is_empty() {
            run(&account.environment, listen(Arc::clone(&account), listened_to));
        }
    }
}

/// Tells those of this process who wait, and leaves the lock to others if there are any.
pub(crate) fn tell_waiters(environment: &Environment, waiters: &Waiters, keys: &Keys, answer: &Result<Reply, Failure>) {
    if let Ok(Reply::Deleted { waiting }) = answer {
        waiters.released(&keys.lock, *waiting, environment.clock.now(), || environment.random.unit());
    }
}

/// Runs `task` in the background.
fn run(environment: &Environment, task: impl Future<Output = ()> + Send + 'static) {
    if planted(Fault::CleanUpWithCaller)
        && let Ok(runtime) = Handle::try_current()
    {
        drop(spawn(&runtime, task));
        return;
    }
    environment.background.spawn(task);
}

/// One node's release that nobody has seen answered.
struct PendingRelease {
    account: Arc<Account>,
    node: usize,
    /// The release queued behind an unanswered create, on the same connection, while it is listened to.
    behind: Option<Releasing>,
    /// Whether a create may still be on its way over another connection.
    unanswered: bool,
    /// When its key has expired.
    until: Moment,
    /// How often it was answered, but not finally.
    attempt: u32,
    _pending_work: PendingWork,
}

impl PendingRelease {
    /// Whether the release behind its create was answered, which ends the debt: it was executed right behind the create,
    /// so that whatever it found, nothing of the token is left, or will be. Not listened to any more after a failure.
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

    /// Enters the debt in the ledger, and sees to it that somebody pays.
    fn owe(self) {
        let (environment, set) = (Arc::clone(&self.account.environment), Arc::clone(&self.account.set));
        let node = self.node;
        let Entered { is_first, is_news, dropped, is_warning } = set.pending_releases().ledgers[node].enter(self);
        if dropped.is_some() && is_warning {
            log!(warn, node = %set.members().nodes[node].address,
                "too many pending releases for the node; leaving the oldest keys to expire"
            );
        }
        drop(dropped);
        if is_first {
            let paying = Paying { set, environment: Arc::clone(&environment), node, is_over: false };
            run(&environment, async move { Payer::new(paying).run().await });
        } else if is_news {
            set.pending_releases().ledgers[node].news.notify_one();
        }
    }
}

/// Waits for the answers to releases that were queued behind creates; what is not answered in time, or failed, is owed.
async fn listen(account: Arc<Account>, mut pending: Vec<PendingRelease>) {
    let connections = account.set.connections(&Handle::current());
    let mut timer = pin!(connections.clock.sleep(account.node_timeout));
    poll_fn(|cx| {
        pending.retain_mut(|pending| !pending.is_done(&connections, cx));
        let (open, failed): (Vec<_>, Vec<_>) = pending.drain(..).partition(|pending| pending.behind.is_some());
        pending = open;
        failed.into_iter().for_each(PendingRelease::owe);
        if pending.is_empty() { Poll::Ready(()) } else { timer.as_mut().poll(cx) }
    })
    .await;
    pending.into_iter().for_each(PendingRelease::owe);
}

/// What is owed to the nodes of one set.
#[derive(Debug)]
pub(crate) struct PendingReleases {
    ledgers: Vec<Ledger>,
}

impl PendingReleases {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { ledgers: (0..nodes).map(|_| Ledger::new(MOST)).collect() }
    }
}

/// What is owed to one node.
struct Ledger {
    most: usize,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<PendingRelease>,
    later: BTreeMap<(Moment, u64), PendingRelease>,
    next: u64,
    /// Whether there is a payer.
    paying: bool,
    /// Whether something came to be owed since the payer looked.
    news: bool,
    /// Whether a debt was let go for want of room since there was nothing owed.
    warned: bool,
}

/// What came of entering a debt.
struct Entered {
    /// Whether nobody pays yet.
    is_first: bool,
    /// Whether the payer does not know yet that there is something new.
    is_news: bool,
    /// The oldest debt, where there were too many.
    dropped: Option<PendingRelease>,
    /// Whether that was the first one to go.
    is_warning: bool,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

impl Ledger {
    fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), news: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding this")
    }

    fn enter(&self, pending: PendingRelease) -> Entered {
        let mut state = self.state();
        state.ready.push_back(pending);
        // What was asked for before is older than what is still to be asked for.
        let dropped = (state.ready.len() + state.later.len() > self.most)
            .then(|| state.later.pop_first().map(|(_, pending)| pending).or_else(|| state.ready.pop_front()))
            .flatten();
        let is_warning = dropped.is_some() && !std::mem::replace(&mut state.warned, true);
        let is_first = !std::mem::replace(&mut state.paying, true);
        let is_news = !std::mem::replace(&mut state.news, true);
        Entered { is_first, is_news, dropped, is_warning }
    }

    /// Whether something came to be owed since this was asked last.
    fn has_news(&self) -> bool {
        std::mem::take(&mut self.state().news)
    }

    /// When the first debt may be sent; now where one is ready, `None` where nothing is owed.
    fn due(&self, now: Moment) -> Option<Moment> {
        let state = self.state();
        if state.ready.is_empty() { state.later.keys().next().map(|(at, _)| *at) } else { Some(now) }
    }

    /// The next debt to be sent.
    fn take(&self, now: Moment) -> Option<PendingRelease> {
        let mut expired = Vec::new();
        let mut state = self.state();
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

    /// Has `pending` sent again at `at`, unless it will have expired.
    fn postpone(&self, pending: PendingRelease, at: Moment) {
        if at < pending.until {
            let mut state = self.state();
            state.next += 1;
            let entry = (at, state.next);
            state.later.insert(entry, pending);
        }
    }

    /// How many are sent again later.
    fn postponed(&self) -> usize {
        self.state().later.len()
    }

    /// Puts debts back in front, in their order: nobody knows whether they were paid.
    fn put_back(&self, pending: Vec<PendingRelease>) {
        let mut state = self.state();
        for pending in pending.into_iter().rev() {
            state.ready.push_front(pending);
        }
    }

    /// Lets go of what has expired.
    fn sweep(&self, now: Moment) {
        let mut state = self.state();
        let ready = std::mem::take(&mut state.ready);
        let (kept, expired): (VecDeque<_>, VecDeque<_>) = ready.into_iter().partition(|pending| pending.until > now);
        state.ready = kept;
        drop(state);
        drop(expired);
    }

    /// Ends the paying; false if something is owed.
    fn end(&self) -> bool {
        let mut state = self.state();
        let is_over = state.ready.is_empty() && state.later.is_empty();
        if is_over {
            *state = State::default();
        }
        is_over
    }

    /// Lets go of everything: nobody will pay.
    fn give_up(&self) {
        let state = std::mem::take(&mut *self.state());
        drop(state);
    }
}

/// The one who pays what is owed to a node, so that there is no second one.
struct Paying {
    set: Arc<dyn Creditors>,
    environment: Arc<Environment>,
    node: usize,
    is_over: bool,
}

impl Paying {
    fn ledger(&self) -> &Ledger {
        &self.set.pending_releases().ledgers[self.node]
    }
}

impl Drop for Paying {
    fn drop(&mut self) {
        if !self.is_over {
            self.ledger().give_up();
        }
    }
}

/// A release that was sent.
struct Sent {
    pending: PendingRelease,
    connection: Connection,
    at: Moment,
    answer: Releasing,
}

/// A release that was answered, or not.
type Answered = (PendingRelease, Connection, Result<Reply, Failure>);

/// What a payer waits for.
enum Event {
    Answers(Vec<Answered>),
    Opened(Result<Connection, Failure>),
    News,
    Time,
}

/// A connection that is being made.
type Opening = Pin<Box<dyn Future<Output = Result<Connection, Failure>> + Send>>;

struct Payer {
    paying: Paying,
    connections: Arc<Connections>,
    sent: VecDeque<Sent>,
    /// So many of them, from the front, have been polled, and so have their places.
    queued: usize,
    /// How long the node may leave them all unanswered.
    patience: Duration,
    opening: Option<Opening>,
    /// How many releases may be on their way.
    window: usize,
    /// Rests since the last answer.
    rests: u32,
    /// Until when it rests.
    rest: Moment,
    /// When the node answered last.
    heard: Moment,
}

impl Payer {
    fn new(paying: Paying) -> Self {
        let connections = paying.set.connections(&Handle::current());
        Self {
            paying,
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

    /// Pays until nothing is owed.
    async fn run(mut self) {
        loop {
            let Some(until) = self.send() else {
                if self.paying.ledger().end() {
                    self.paying.is_over = true;
                    return;
                }
                continue;
            };
            match self.next(until).await {
                Event::Answers(answers) => self.answered(answers),
                Event::Opened(Ok(_)) | Event::News => {}
                Event::Opened(Err(_)) => self.rest(),
                Event::Time => self.look().await,
            }
        }
    }

    fn window(&self) -> usize {
        let is_whole = self.window == WINDOW;
        if is_whole && self.paying.environment.shutdown.has_started() { WINDOW_AT_END } else { self.window }
    }

    /// Sends what may be sent. Returns until when to wait for anything else, `None` if there is nothing to wait for.
    fn send(&mut self) -> Option<Moment> {
        let now = self.connections.clock.now();
        let is_resting = !self.paying.ledger().has_news() && now < self.rest;
        let mut due = self.paying.ledger().due(now);
        while !is_resting && self.opening.is_none() && self.sent.len() < self.window() {
            if due.is_none_or(|due| due > now) {
                break;
            }
            let Some(connection) = self.connections.current(self.paying.node) else {
                let (connections, node) = (Arc::clone(&self.connections), self.paying.node);
                self.opening = Some(Box::pin(async move { connections.get(node, false).await }));
                break;
            };
            if let Some(pending) = self.paying.ledger().take(now) {
                self.send_one(pending, connection, now);
            }
            due = self.paying.ledger().due(now);
        }
        if self.sent.is_empty() && self.opening.is_none() {
            return due.map(|due| if is_resting { due.max(self.rest) } else { due });
        }
        // While some are on their way, an answer makes room for others.
        let has_room = self.opening.is_none() && self.sent.len() < self.window();
        let due = due.filter(|due| has_room && *due > now).map(|due| due.max(self.rest));
        Some(due.unwrap_or(Moment::NEVER).min(self.silent_at()))
    }

    fn send_one(&mut self, mut pending: PendingRelease, connection: Connection, now: Moment) {
        if pending.is_done(&self.connections, &mut Context::from_waker(Waker::noop())) {
            return;
        }
        let (connections, node, request, over) =
            (Arc::clone(&self.connections), self.paying.node, pending.account.release(), connection.clone());
        // Polled, and so queued, before anything else of this task is.
        let answer: Releasing = Box::pin(async move {
            let _watched = connections.track_request(node);
            over.call_known(&request).await
        });
        let node_timeout = pending.account.node_timeout;
        self.patience = if self.sent.is_empty() { node_timeout } else { self.patience.max(node_timeout) };
        self.sent.push_back(Sent { pending, connection, at: now, answer });
    }

    /// When the node is silent: it has answered nothing since the first of those that were sent, or since its last answer.
    fn silent_at(&self) -> Moment {
        let first = self.sent.front();
        first.map_or(Moment::NEVER, |first| first.at.max(self.heard).after(self.patience))
    }

    async fn next(&mut self, until: Moment) -> Event {
        let clock = self.connections.clock.clone();
        let mut timer = pin!(clock.sleep_until(until));
        let set = Arc::clone(&self.paying.set);
        let mut news = pin!(set.pending_releases().ledgers[self.paying.node].news.notified());
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
            if news.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::News);
            }
            timer.as_mut().poll(cx).map(|()| Event::Time)
        })
        .await
    }

    /// Polls what was sent, and takes out what is answered. A connection answers in order: behind one that is not answered
    /// only those are looked at that were not polled yet, which queues them, unless `all` are to be.
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

    /// Takes answers down.
    fn answered(&mut self, answers: Vec<Answered>) {
        let (now, node) = (self.connections.clock.now(), self.paying.node);
        let (mut is_served, mut unheard) = (false, Vec::new());
        for (pending, connection, answer) in answers {
            pending.account.tell_waiters(&answer);
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
                    if failure.is_answer() {
                        self.heard = now;
                        self.again(pending, now);
                    } else {
                        unheard.push(pending);
                    }
                }
            }
        }
        self.paying.ledger().put_back(unheard);
        if is_served {
            self.connections.record_reply(node);
            (self.heard, self.rests, self.rest) = (now, 0, Moment::default());
        } else {
            self.rest();
        }
    }

    /// The node has executed the release of `pending`.
    fn paid(&self, mut pending: PendingRelease, reply: &Reply, now: Moment) {
        // Absent is final, unless a create may still be on its way over another connection.
        let is_over = matches!(reply, Reply::Deleted { .. }) || !pending.unanswered;
        if !is_over && !pending.is_done(&self.connections, &mut Context::from_waker(Waker::noop())) {
            self.again(pending, now);
        }
    }

    /// Has `pending` sent again after a while.
    fn again(&self, mut pending: PendingRelease, now: Moment) {
        // Thousands that are most likely paid already are no reason to keep the node busy.
        let pause = backoff::owed(pending.attempt, pending.account.ttl)
            .max(backoff::renewal_spread(self.paying.ledger().postponed()));
        let at = now.after(pause);
        pending.attempt += 1;
        if pending.attempt >= LISTENED_TRIES {
            pending.behind = None;
        }
        self.paying.ledger().postpone(pending, at);
    }

    /// Sends nothing for a while, unless something new is owed, and then little.
    fn rest(&mut self) {
        let now = self.connections.clock.now();
        if self.rest <= now {
            self.rest = now.after(backoff::owed(self.rests, Duration::ZERO));
            self.rests = self.rests.saturating_add(1);
            self.paying.ledger().sweep(now);
        }
        self.window = 1;
    }

    /// The time has come to send more, or the node is silent.
    async fn look(&mut self) {
        if self.silent_at() > self.connections.clock.now() {
            return;
        }
        // Something may have kept this thread from its sockets until now. What has arrived is heard before the node is
        // called silent.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            let answers = poll_fn(|cx| Poll::Ready(self.poll_sent(true, cx))).await;
            if !answers.is_empty() {
                return self.answered(answers);
            }
        }
        self.connections.record_timeout(self.paying.node);
        self.queued = 0;
        let unheard = self.sent.drain(..).map(|sent| sent.pending).collect();
        self.paying.ledger().put_back(unheard);
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Addresses;
    use crate::process::Process;
    use crate::protocol::name::Name;

    const TTL: Duration = Duration::from_secs(10);

    fn now() -> Moment {
        Moment::from_nanos(1)
    }

    /// A debt that expires `TTL` after `now`, for the lock of this number.
    fn pending(number: usize) -> PendingRelease {
        let process = Process::current();
        let set = process.set(&Addresses::parse(["memory://owed"]).unwrap()).unwrap();
        let name = Name::parse(number.to_string().as_bytes()).unwrap();
        let token = Token::fresh(&process.random);
        let pending_work = PendingWork::new(&process.shutdown);
        let account = Account {
            environment: process.environment(),
            set,
            keys: Keys::of(&name),
            token,
            node_timeout: TTL / 4,
            ttl: TTL,
        };
        let (account, until) = (Arc::new(account), now().after(TTL));
        PendingRelease {
            account,
            node: 0,
            behind: None,
            unanswered: false,
            until,
            attempt: 0,
            _pending_work: pending_work,
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
        let ledger = Ledger::new(3);
        for first in [0, 10] {
            let entered: Vec<_> = (first..first + 5).map(|number| ledger.enter(pending(number))).collect();
            let dropped: Vec<_> = entered.iter().map(|entered| entered.dropped.as_ref().map(number)).collect();
            assert_eq!(dropped, [None, None, None, Some(first), Some(first + 1)]);
            let warnings: Vec<_> = entered.iter().map(|entered| entered.is_warning).collect();
            assert_eq!(warnings, [false, false, false, true, false]);
            let payers = entered.iter().filter(|entered| entered.is_first).count();
            assert_eq!(payers, 1, "one pays for all");
            assert!(!ledger.end(), "something is owed");
            assert_eq!(taken(&ledger, now()), [first + 2, first + 3, first + 4]);
            // Normal again: the next one to go is news.
            assert!(ledger.end());
        }
    }

    #[test]
    fn what_was_asked_for_before_goes_before_what_was_not() {
        let ledger = Ledger::new(2);
        ledger.postpone(pending(0), now().after(TTL / 2));
        ledger.enter(pending(1));
        let entered = ledger.enter(pending(2));
        assert_eq!(entered.dropped.as_ref().map(number), Some(0));
    }

    #[test]
    fn what_went_unanswered_keeps_its_place() {
        let ledger = Ledger::new(MOST);
        (0..4).for_each(|number| drop(ledger.enter(pending(number))));
        let sent = [ledger.take(now()), ledger.take(now())].map(Option::unwrap);
        ledger.put_back(sent.into());
        assert_eq!(taken(&ledger, now()), [0, 1, 2, 3]);
    }

    #[test]
    fn a_debt_comes_again_in_time_and_goes_with_its_key() {
        let ledger = Ledger::new(MOST);
        let soon = now().after(TTL / 2);
        ledger.postpone(pending(0), soon);
        ledger.postpone(pending(1), now().after(TTL));
        assert_eq!((ledger.due(now()), taken(&ledger, now())), (Some(soon), vec![]));
        assert_eq!((taken(&ledger, soon), ledger.due(soon)), (vec![0], None));
        ledger.enter(pending(2));
        ledger.sweep(soon);
        assert_eq!(ledger.due(soon), Some(soon));
        ledger.sweep(now().after(TTL));
        assert_eq!(ledger.due(soon), None);
        ledger.enter(pending(3));
        assert_eq!(taken(&ledger, now().after(TTL)), [0; 0]);
    }
}
