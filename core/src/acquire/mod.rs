//! Acquiring: one try where the caller is, then waiting in the background.
//!
//! States: *trying* (the caller's lane; not if others of this process wait already, or if it has just released and others
//! want the lock) → *in line* at the name's gate → *in front* (attempts on the background's lane for waiting, asleep
//! between them) → *won* or *failed*. What may interrupt each await:
//!
//! - dropped while trying: the attempt's claim releases;
//! - dropped in line or in front: the receiver is gone, the background's wait ends, drops its attempt with it, and the next
//!   in line moves up;
//! - won, but dropped before it was received: the channel drops the lock, which releases it;
//! - won, but received after `valid_until`: released, and waiting goes on within the timeout;
//! - the caller's runtime ends: as dropping;
//! - the background cannot start: `unavailable`, before anything is sent;
//! - redlock is shut down: the background's wait ends, drops its attempt with it, and answers `unavailable`;
//! - the client is closed: the same, with `invalid_argument`; a call in its first attempt hears of it when that is over, unless it has
//!   won.
//!
//! Each call keeps its own timeout, in line too, at whose end it reports what the one in front has found out.
//!
//! Nodes that restarted and do not count yet (*bars*) are `unavailable` in every call, never `timeout`, and their time is
//! not part of the 10 s after which a call without a timeout gives up: what a call waits for is logged instead.
//!
//! May import `hold` and what lies below it.

pub(crate) mod attempt;
pub(crate) mod wakeup;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::acquire::attempt::AttemptState;
use crate::acquire::wakeup::Wakeup;
use crate::error::{Error, ErrorKind};
use crate::hold::lease::{Lease, Ownership};
use crate::hold::outcome::Outcome;
use crate::hold::owner::LeaseOwner;
use crate::hold::setnx;
use crate::net::ballots::Ballots;
use crate::net::connections::Connections;
use crate::options::Protocol;
use crate::process::context::LockContext;
use crate::process::waiters::{SharedOutcome, Waiter};
use crate::protocol::backoff;
use crate::protocol::outage::Outage;
use crate::protocol::positions::Positions;
use crate::sys::background;
use crate::sys::clock::Moment;
use crate::sys::log::log;

/// How long nodes that give no quorum are tried where the caller set no timeout.
const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);

/// A call to acquire, wherever it runs at the moment.
#[derive(Debug)]
pub(crate) struct Acquire {
    context: LockContext,
    began: Moment,
    deadline: Moment,
    /// When votes end at the latest: the deadline, or for a timeout of zero, which is one whole try, the time that one
    /// try may take.
    limit: Moment,
    state: AttemptState,
    attempts: u32,
    /// How long the background waits before its first attempt.
    pause: Duration,
    /// What the nodes said in the last attempt that gave them their time.
    last: Option<Arc<Ballots>>,
    /// For how long no quorum has answered, bars not counted.
    outage: Outage,
    /// Whether it was logged that bars are waited for.
    quarantine_logged: bool,
}

/// What an attempt came to.
#[derive(Debug)]
enum Step {
    Won(LeaseOwner),
    /// Others hold the lock, or were taking it.
    Denied(Arc<Ballots>),
    /// No quorum could be asked, or would answer: again after this time.
    Later(Duration),
}

/// The error of a call on the lock `name` of a client that is closed.
pub(crate) fn closed(name: &[u8]) -> Error {
    Error::invalid("the client is closed; make a new one").with_name(name)
}

/// Acquires within the spec's timeout.
///
/// # Errors
///
/// `timeout`, `unavailable`, `forbidden` or `invalid_argument`, with each node's answer.
pub(crate) async fn acquire(context: LockContext) -> Result<LeaseOwner, Error> {
    Acquire::begin(context)?.finish().await
}

/// One try, on `connections` where the protocol leaves the choice. Votes end at `limit` if that is sooner than `node_timeout`.
async fn attempt(
    context: &LockContext,
    connections: &Arc<Connections>,
    limit: Moment,
    state: &mut AttemptState,
) -> Outcome<Ownership> {
    context.process.lists.used(&context.set.list, &context.spec.name);
    match context.spec.settings.protocol {
        Protocol::Plain => attempt::attempt(context, connections, limit, state).await.map(Ownership::Fenced),
        Protocol::Setnx => setnx::attempt(context, connections, limit).await.map(Ownership::Setnx),
    }
}

fn shut_down(context: &LockContext) -> Error {
    let message = "redlock is shut down in this process, so no lock can be acquired";
    Error::new(ErrorKind::Unavailable, message).with_name(context.spec.name.bytes())
}

impl Acquire {
    /// The beginning of a call.
    ///
    /// # Errors
    ///
    /// `unavailable` if the background cannot be started, or ends with the process.
    pub(crate) fn begin(context: LockContext) -> Result<Self, Error> {
        if context.process.shutdown.has_started() {
            return Err(shut_down(&context));
        }
        context.process.background.start()?;
        let now = context.process.clock.now();
        let timeout = context.spec.settings.timeout;
        let deadline = timeout.map_or(Moment::NEVER, |timeout| now.after(timeout));
        let limit = match timeout {
            Some(Duration::ZERO) => {
                now.after(context.set.members.connect_timeout + 2 * context.spec.settings.node_timeout)
            }
            _ => deadline,
        };
        Ok(Self {
            context,
            began: now,
            deadline,
            limit,
            state: AttemptState::default(),
            attempts: 0,
            pause: Duration::ZERO,
            last: None,
            outage: Outage::default(),
            quarantine_logged: false,
        })
    }

    /// Attempts until the lock is won and has reached its user.
    pub(crate) async fn finish(mut self) -> Result<LeaseOwner, Error> {
        loop {
            let (rest, owner) = self.win().await?;
            match rest.activate(owner)? {
                Ok(owner) => return Ok(owner),
                Err(rest) => self = rest,
            }
        }
    }

    /// Attempts until won: the first of a call where the caller is, all others in the background. Who gets the lock has to
    /// [activate](Self::activate) it.
    pub(crate) async fn win(mut self) -> Result<(Self, LeaseOwner), Error> {
        if let Some(pause) = self.must_wait() {
            self.pause = pause;
        } else if self.attempts == 0
            && let Ok(runtime) = Handle::try_current()
            && let Some(owner) = self.first(&runtime).await?
        {
            return Ok((self, owner));
        }
        self.wait_out().await
    }

    /// The first attempt of a call, on `runtime`, where the caller is; `None` if the background goes on.
    pub(crate) async fn first(&mut self, runtime: &Handle) -> Result<Option<LeaseOwner>, Error> {
        let connections = self.context.set.connections(runtime);
        match self.attempt(&connections).await? {
            Step::Won(owner) => return Ok(Some(owner)),
            Step::Denied(_) => {}
            Step::Later(pause) => self.pause = pause,
        }
        Ok(None)
    }

    /// The lock reaches its user. If it could not be relied on any more it is released, and the call goes on.
    ///
    /// # Errors
    ///
    /// `unavailable` for a timeout of zero, which has no second try, and once redlock is shut down.
    pub(crate) fn activate(self, owner: LeaseOwner) -> Result<Result<LeaseOwner, Self>, Error> {
        if owner.activate() {
            return Ok(Ok(owner));
        }
        // Releases it.
        drop(owner);
        if self.context.process.shutdown.has_started() {
            return Err(shut_down(&self.context));
        }
        if self.is_one_try() {
            let message =
                "acquired too late and released: the nodes answered slower than the ttl allows; use a longer ttl";
            return Err(Error::new(ErrorKind::Unavailable, message).with_name(self.context.spec.name.bytes()));
        }
        Ok(Err(self))
    }

    /// For how long the way to the lock is closed to a call that begins now: zero to join the line behind others. Who
    /// gives it one try takes it, whoever waits, and who has less time than others are given has a try at once.
    pub(crate) fn must_wait(&self) -> Option<Duration> {
        if self.attempts > 0 || self.is_one_try() {
            return None;
        }
        let now = self.context.process.clock.now();
        let until = self.context.set.waiters.must_wait_until(&self.context.spec.keys.lock, now)?;
        (until < self.deadline).then(|| until.since(now))
    }

    fn is_one_try(&self) -> bool {
        self.context.spec.settings.timeout == Some(Duration::ZERO)
    }

    /// One attempt.
    async fn attempt(&mut self, connections: &Arc<Connections>) -> Result<Step, Error> {
        // One whole try leaves the nodes their time for its clean-up.
        let node_timeout = self.context.spec.settings.node_timeout;
        let limit = if self.is_one_try() { self.limit.before(node_timeout) } else { self.limit };
        let mut outcome = attempt(&self.context, connections, limit, &mut self.state).await;
        if matches!(&outcome, Outcome::Lost(ballots) if ballots.saw_closed()) && connections.clock.now() < limit {
            // An idle connection had been closed: that says nothing about the lock. At once, with a fresh token.
            outcome = attempt(&self.context, connections, limit, &mut self.state).await;
        }
        self.attempts = self.attempts.saturating_add(1);
        match outcome {
            Outcome::Won(won) => Ok(Step::Won(LeaseOwner::new(Lease::new(self.context.clone(), won)))),
            Outcome::Indistinct(ballots) => Err(self.indistinct(&ballots)),
            Outcome::Quarantined(until, ballots) => self.quarantined(until, &Arc::new(ballots)),
            Outcome::Lost(ballots) => {
                // An attempt that the timeout cut short says less than the one before it.
                if ballots.complete || self.last.is_none() {
                    self.last = Some(Arc::new(ballots));
                }
                self.lost()
            }
        }
    }

    /// What to do after a lost attempt.
    fn lost(&mut self) -> Result<Step, Error> {
        let Some(ballots) = self.last.clone() else { return Ok(Step::Later(Duration::ZERO)) };
        if ballots.is_forbidden() {
            let message = "a quorum of nodes refuses these credentials or rights; check user, password and ACL";
            return Err(self.error(ErrorKind::Forbidden, message, &ballots));
        }
        let now = self.context.process.clock.now();
        let quarantine = ballots.quarantined_for();
        if ballots.is_contended() {
            self.outage = Outage::default();
        } else if let Some(left) = quarantine {
            self.wait_for_quarantine(now, now.after(left), &ballots);
        } else {
            let lasts = self.outage.lasts(now);
            let endless = self.context.spec.settings.timeout.is_none();
            if endless && lasts >= UNAVAILABLE_AFTER {
                return Err(self.unavailable(&ballots));
            }
        }
        if now >= self.deadline {
            return Err(self.over(&ballots));
        }
        if ballots.is_contended() {
            return Ok(Step::Denied(ballots));
        }
        let unit = self.context.process.random.unit();
        let pause = backoff::unavailable(self.attempts.saturating_sub(1), unit);
        Ok(Step::Later(quarantine.map_or(pause, |left| pause.min(left))))
    }

    /// Bars leave no quorum before `until`.
    fn quarantined(&mut self, until: Moment, ballots: &Arc<Ballots>) -> Result<Step, Error> {
        let now = self.context.process.clock.now();
        self.last = Some(Arc::clone(ballots));
        if now >= self.deadline {
            return Err(self.unavailable(ballots));
        }
        self.wait_for_quarantine(now, until, ballots);
        Ok(Step::Later(until.since(now)))
    }

    /// Waiting for bars to end is not waiting for nodes to answer. Says once what is waited for.
    fn wait_for_quarantine(&mut self, now: Moment, until: Moment, ballots: &Ballots) {
        self.outage.quarantined(now, until);
        if now < self.deadline && !mem::replace(&mut self.quarantine_logged, true) {
            let (name, nodes, wait) =
                (&self.context.spec.name, ballots.quarantines(&self.context.set.members), until.since(now));
            log!(info, %name, %nodes, ?wait, "nodes restarted and do not count yet; waiting for them");
        }
    }

    /// Hands the waiting over to the background.
    async fn wait_out(mut self) -> Result<(Self, LeaseOwner), Error> {
        let (process, pause) = (Arc::clone(&self.context.process), mem::take(&mut self.pause));
        let (sender, receiver) = oneshot::channel();
        process.background.spawn(self.run(pause, sender));
        let (acquire, result) = receiver.await.map_err(|_| background::stopped())?;
        Ok((acquire, result?))
    }

    /// The background's part: attempts until won, failed or not wanted any more.
    async fn run(mut self, pause: Duration, mut sender: oneshot::Sender<(Self, Result<LeaseOwner, Error>)>) {
        let context = self.context.clone();
        let result = tokio::select! {
            biased;
            () = sender.closed() => return,
            () = context.process.shutdown.wait_started() => Err(shut_down(&context)),
            () = context.client.wait_started() => Err(closed(context.spec.name.bytes())),
            result = self.attempts(pause) => result,
        };
        // Not received: the lock inside is dropped, which releases it.
        drop(sender.send((self, result)));
    }

    /// One try, or in line and then attempts until won or failed.
    async fn attempts(&mut self, pause: Duration) -> Result<LeaseOwner, Error> {
        let set = Arc::clone(&self.context.set);
        if self.is_one_try() {
            return match self.attempt(&set.connections(&Handle::current())).await? {
                Step::Won(owner) => Ok(owner),
                Step::Denied(_) | Step::Later(_) => Err(self.over_unseen()),
            };
        }
        let waiter = set.waiters.enter(&self.context.spec.keys.lock);
        waiter.offer(self.last.as_ref());
        let clock = self.context.process.clock.clone();
        let first = clock.now().after(pause);
        let turn = async {
            let turn = waiter.turn().await;
            self.until_free(&waiter).await;
            clock.sleep_until(first).await;
            turn
        };
        let turn = tokio::select! {
            biased;
            turn = turn => Some(turn),
            () = clock.sleep_until(self.deadline) => None,
        };
        let latest = waiter.latest();
        self.last = latest.ballots.or_else(|| self.last.take());
        // Its turn may come in the instant in which its time is over.
        let Some(_turn) = turn.filter(|_| clock.now() < self.deadline) else {
            let is_ours = || waiter.former().is_some_and(|lease| lease.is_held());
            // Whatever the one in front had heard before it won.
            if is_ours() {
                self.last = Some(Arc::new(Ballots::held(set.members.len())));
            }
            return Err(self.over_unseen());
        };
        self.outage = latest.outage.known_since(self.began);
        let owner = self.in_front(&waiter).await?;
        waiter.won(&(Arc::clone(owner.lease()) as _));
        Ok(owner)
    }

    /// In front of the line: waits while the one that was in front before holds the lock. Cancel safe.
    async fn until_free(&self, waiter: &Waiter) {
        let clock = &self.context.process.clock;
        if let Some(lease) = waiter.former() {
            let connections = self.context.set.waiting_connections(&Handle::current());
            let mut wakeup = Wakeup::new(self.context.clone(), connections);
            tokio::select! {
                biased;
                () = waiter.handed_over(clock, &*lease) => {}
                () = wakeup.gone(&*lease, self.deadline) => {}
            }
        }
        waiter.hold_off(clock, self.deadline).await;
    }

    /// In front of the line: attempts, and sleep between them, until won or failed.
    async fn in_front(&mut self, waiter: &Waiter) -> Result<LeaseOwner, Error> {
        let clock = self.context.process.clock.clone();
        let connections = self.context.set.waiting_connections(&Handle::current());
        let mut wakeup = Wakeup::new(self.context.clone(), Arc::clone(&connections));
        let positions = Arc::new(Positions::new(connections.members.len()));
        self.state.positions = Some(Arc::clone(&positions));
        loop {
            if clock.now() >= self.deadline {
                return Err(self.over_unseen());
            }
            // A connection that is made is news too, but none to who has not asked over it yet.
            connections.connect_quorum(connections.connect_limit().min(self.deadline)).await;
            wakeup.note();
            let step = self.attempt(&connections).await;
            let is_won = matches!(step, Ok(Step::Won(_)));
            // What it heard before is over with that.
            waiter.publish(if is_won {
                SharedOutcome::default()
            } else {
                SharedOutcome { ballots: self.last.clone(), outage: self.outage }
            });
            match step? {
                Step::Won(owner) => return Ok(owner),
                Step::Denied(ballots) => wakeup.wait(&ballots, &positions, self.deadline).await,
                Step::Later(pause) => wakeup.sleep(clock.now().after(pause).min(self.deadline)).await,
            }
        }
    }

    /// The timeout is over, whatever was seen until then.
    fn over_unseen(&self) -> Error {
        if let Some(ballots) = &self.last {
            return self.over(ballots);
        }
        // Others of this process were in front all the time, and have not heard from the nodes yet: nothing is known.
        self.unavailable(&Ballots::new(self.context.set.members.len()))
    }

    /// The timeout is over.
    fn over(&self, ballots: &Ballots) -> Error {
        if ballots.is_contended() {
            let message = match self.context.spec.settings.timeout {
                Some(timeout) if !timeout.is_zero() => {
                    format!("not acquired within {timeout:?}: held by another owner")
                }
                _ => "not acquired: held by another owner".to_owned(),
            };
            self.error(ErrorKind::Timeout, message, ballots)
        } else {
            self.unavailable(ballots)
        }
    }

    fn unavailable(&self, ballots: &Ballots) -> Error {
        let message = "no quorum of nodes answered, so it is unknown whether the lock is free";
        self.error(ErrorKind::Unavailable, message, ballots)
    }

    fn indistinct(&self, ballots: &Ballots) -> Error {
        let message = "several addresses belong to the same server, so no quorum is possible; list each server once";
        self.error(ErrorKind::InvalidArgument, message, ballots)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>, ballots: &Ballots) -> Error {
        let restart_delay = self.context.spec.settings.restart_delay;
        let nodes = ballots.answers(&self.context.set.members, restart_delay, self.context.process.clock.now());
        Error::new(kind, message).with_name(self.context.spec.name.bytes()).with_nodes(nodes)
    }
}
