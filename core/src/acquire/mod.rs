//! Acquiring: one try on the caller's runtime, then waiting in the background.
//!
//! States: *trying* (over the caller's connections; skipped if others of this process wait already, or if it has just
//! released and others want the lock) → *in the queue* of the name's waiters → *in front* (attempts over the
//! background's connections for waiting, asleep between them) → *won* or *failed*. What may interrupt each await:
//!
//! - dropped while trying: the attempt's claim releases;
//! - dropped in the queue or in front: the receiver is gone, so the background's wait ends and drops its attempt, and
//!   the next waiter moves up;
//! - won, but dropped before it was received: the channel drops the lock, which releases it;
//! - won, but received after `valid_until`: the lock is released, and waiting goes on within the timeout;
//! - the caller's runtime ends: as dropping;
//! - the background cannot start: `unavailable`, before any request is sent;
//! - redlock is shut down: the background's wait ends, drops its attempt, and answers `closed`;
//! - a cluster gives the name's slot to another server: the attempt is made again there, with a fresh token, and the
//!   front waits there from then on;
//! - the client is closed: the same. A call in its first attempt receives this after the attempt, and what it has won is
//!   released.
//!
//! After a split vote a call backs off for a random time before it tries again, in front of its queue too: the same
//! calls would split the next vote.
//!
//! A semaphore's queue moves on when its front has won, not when the lock is free again: another slot may be. So does a
//! shared lock's. Readers and writers of one name have a queue each. A writer that readers keep waiting is counted by the
//! nodes, which then deny new readers; where it gives up, it takes this back (`counted`).
//!
//! Each call keeps its own timeout, in the queue too. When it ends, the call reports the front's last answers.
//!
//! Nodes in *quarantine* after a restart are `unavailable` in every call, never `timeout`. Their time is not part of
//! the 10 s after which a call without a timeout gives up. The call logs that it waits for them.
//!
//! A call whose lock is detached attaches it instead (`attach`), and waits for nothing but answers.
//!
//! May import `hold` and what lies below it.

mod attach;
pub(crate) mod attempt;
mod counted;
mod front;
mod meter;
pub(crate) mod own_hold;
pub(crate) mod thread;
mod vacancy;
pub(crate) mod wakeup;

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::acquire::attempt::AttemptState;
use crate::acquire::meter::Meter;
use crate::acquire::wakeup::Wakeup;
use crate::error::{Error, ErrorKind, HeldBy};
use crate::hold::lease::{Lease, Ownership};
use crate::hold::outcome::Outcome;
use crate::hold::owner::LeaseOwner;
use crate::hold::setnx;
use crate::net::ballots::{self, Ballots, NoQuorum};
use crate::net::connections::Connections;
use crate::options::Protocol;
use crate::process::context::{Following, LockContext};
use crate::process::waiters::{Departure, Waiter};
use crate::protocol::backoff;
use crate::protocol::outage::Outage;
use crate::protocol::quorum::NodeMask;
use crate::sys::clock::Moment;
use crate::sys::log::log;
use crate::sys::on_drop::OnDrop;
use crate::transport::failure::{Failure, in_millis};

/// How long a call without a timeout tries nodes that give no quorum.
const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);

/// The votes in a single try at a semaphore: two attempts with their clean-ups, and a look between them.
const VOTES_FOR_SLOT: u32 = 5;

/// Why a call has not acquired that had no time for an answer.
const CUT_SHORT: &str = "the timeout ended before a quorum answered; use a longer one";

/// A call to acquire, wherever it runs at the moment.
#[derive(Debug)]
pub(crate) struct Acquire {
    context: LockContext,
    deadline: Moment,
    /// The latest end of votes: the deadline or, for a timeout of zero, the time that one whole try may take.
    limit: Moment,
    state: AttemptState,
    attempts: u32,
    /// How often the votes were split in a row.
    splits: u32,
    /// How long the background waits before its first attempt.
    pause: Duration,
    /// The slots of a semaphore that a look showed to be free, and nobody has tried since.
    free: Vec<u32>,
    /// Each node's answer in the last attempt that gave them their time.
    last: Option<Arc<Ballots>>,
    /// How long no quorum has answered, quarantine excluded.
    outage: Outage,
    /// Whether it wants to share a lock that its process has just had, and others wait for.
    defers: bool,
    /// Whether the wait for quarantined nodes was logged.
    quarantine_logged: bool,
    meter: Meter,
}

/// The result of an attempt.
#[derive(Debug)]
enum Step {
    Won(LeaseOwner),
    /// Others hold the lock, or were taking it: wait for news of it, but not before this time has passed.
    Denied(Arc<Ballots>, Duration),
    /// No quorum could be asked, or would answer: retry after this time.
    Later(Duration),
}

/// Returns the error of a call on a closed client.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client is closed; make a new one")
}

/// Acquires within the spec's timeout.
///
/// # Errors
///
/// `timeout`, `unavailable`, `forbidden` or `invalid_argument`, with each node's answer.
pub(crate) async fn acquire(context: LockContext) -> Result<LeaseOwner, Error> {
    let runtime = context.listed.current_runtime()?;
    Acquire::begin(context)?.finish(runtime).await
}

/// Runs one try, on `connections` if the protocol leaves the choice. Votes end after `node_timeout`, or at `limit` if
/// sooner.
async fn attempt(
    context: &LockContext,
    connections: &Arc<Connections>,
    limit: Moment,
    state: &mut AttemptState,
) -> Outcome<Ownership> {
    context.process.lists.used(&context.listed.list, context.spec.names.each());
    match context.spec.settings.protocol {
        Protocol::Plain => attempt::attempt(context, connections, limit, state)
            .await
            .map(|(claim, won)| (Ownership::Fenced(claim), won)),
        Protocol::Setnx => {
            setnx::attempt(context, connections, limit).await.map(|(grant, won)| (Ownership::Setnx(grant), won))
        }
    }
}

fn shut_down(context: &LockContext) -> Error {
    let message = "redlock is shut down in this process, so no lock can be acquired";
    Error::new(ErrorKind::Closed, message).with_name(context.spec.name.bytes())
}

/// Waits until the process or the client ends, and returns the error of a call that this ends.
pub(crate) async fn end_of(context: &LockContext) -> Error {
    tokio::select! {
        biased;
        () = context.process.shutdown.wait_started() => shut_down(context),
        () = context.client.wait_started() => closed().with_name(context.spec.name.bytes()),
    }
}

/// Returns the error of a call whose process or client has ended.
fn ended(context: &LockContext) -> Option<Error> {
    if context.process.shutdown.has_started() {
        return Some(shut_down(context));
    }
    context.client.has_started().then(|| closed().with_name(context.spec.name.bytes()))
}

impl Acquire {
    /// Begins a call.
    ///
    /// # Errors
    ///
    /// `unavailable` if the background cannot be started; `closed` if redlock is shut down or the client is closed.
    pub(crate) fn begin(context: LockContext) -> Result<Self, Error> {
        let now = context.process.clock.now();
        let mut meter = Meter::new(&context, now);
        let mut refusal = ended(&context).map_or_else(|| context.process.background.start().map(drop), Err);
        meter.record_result(&mut refusal);
        refusal?;
        let timeout = context.spec.settings.timeout;
        let deadline = timeout.map_or(Moment::NEVER, |timeout| now.after(timeout));
        let limit = match timeout {
            Some(Duration::ZERO) => {
                let votes = if context.spec.names.permits().is_some() { VOTES_FOR_SLOT } else { 2 };
                now.after(context.listed.members.connect_timeout + votes * context.spec.settings.node_timeout)
            }
            _ => deadline,
        };
        Ok(Self {
            context,
            deadline,
            limit,
            state: AttemptState { end: limit, trace: meter.trace.clone(), ..AttemptState::default() },
            attempts: 0,
            splits: 0,
            pause: Duration::ZERO,
            free: Vec::new(),
            last: None,
            outage: Outage::default(),
            defers: false,
            quarantine_logged: false,
            meter,
        })
    }

    /// Attempts until the lock is won and has reached its user; see [`Acquire::win`].
    pub(crate) async fn finish(mut self, runtime: Option<Handle>) -> Result<LeaseOwner, Error> {
        loop {
            let (rest, owner) = self.win(runtime.as_ref()).await?;
            match rest.activate(owner)? {
                Ok(owner) => return Ok(owner),
                Err(rest) => self = rest,
            }
        }
    }

    /// Attempts until won, first on the caller's `runtime`, if it goes on meanwhile, then in the background. The caller
    /// has to [activate](Self::activate) the lock.
    pub(crate) async fn win(mut self, runtime: Option<&Handle>) -> Result<(Self, LeaseOwner), Error> {
        if let Some(pause) = self.must_wait() {
            self.pause = pause;
            self.meter.record_contention();
            self.meter.record_wait();
        } else if self.attempts == 0
            && let Some(runtime) = runtime
            && let Some(owner) = self.first(runtime).await?
        {
            return Ok((self, owner));
        }
        self.wait_out().await
    }

    /// Makes a call's first attempt, on the caller's `runtime`. Returns `None` if the background goes on.
    pub(crate) async fn first(&mut self, runtime: &Handle) -> Result<Option<LeaseOwner>, Error> {
        if self.context.listed.waiters.is_any_left() {
            // On the heap, or every first attempt would carry the room for it.
            Box::pin(self.let_leave()).await;
        }
        let connections = self.context.set().connections(runtime);
        let mut step = self.attempt(&connections).await;
        self.meter.record_result(&mut step);
        match step? {
            Step::Won(owner) => return Ok(Some(owner)),
            Step::Denied(_, pause) | Step::Later(pause) => self.pause = pause,
        }
        self.meter.record_wait();
        Ok(None)
    }

    /// Waits until the cancelled calls of this process for the same name have left no key, for as long as nodes may take to
    /// answer.
    async fn let_leave(&self) {
        let LockContext { process, listed, spec, .. } = &self.context;
        let votes = if spec.names.permits().is_some() { VOTES_FOR_SLOT } else { 2 };
        let until = process.clock.now().after(spec.settings.node_timeout).min(self.limit_before(votes));
        process.clock.timeout_at(until, pin!(listed.waiters.left(&spec.keys))).await;
    }

    /// Hands the lock to its user. If it has expired, releases it and returns the call, which goes on.
    ///
    /// # Errors
    ///
    /// `unavailable` for a timeout of zero, which is one try; `closed` once redlock is shut down or the client is
    /// closed.
    pub(crate) fn activate(mut self, owner: LeaseOwner) -> Result<Result<LeaseOwner, Self>, Error> {
        if owner.activate() {
            self.meter.record_acquired(owner.lease().fence);
            return Ok(Ok(owner));
        }
        // Releases it, or gives it back.
        drop(owner);
        // It says that this process has the lock.
        self.last = None;
        let too_late = || {
            let message =
                "acquired too late and given up: the nodes answered slower than the ttl allows; use a longer ttl";
            Error::new(ErrorKind::Unavailable, message).with_name(self.context.spec.name.bytes())
        };
        let mut again = ended(&self.context).or_else(|| self.is_one_try().then(too_late)).map_or(Ok(()), Err);
        self.meter.record_result(&mut again);
        again?;
        Ok(Err(self))
    }

    /// Returns how long a call that begins now has to leave the lock to others; zero to join the queue behind them.
    /// `None` if it tries at once, as does a call with one try, or with less time than that.
    pub(crate) fn must_wait(&self) -> Option<Duration> {
        if self.attempts > 0 || self.is_one_try() || self.context.spec.detached.is_some() {
            return None;
        }
        let now = self.context.process.clock.now();
        let until = self.context.listed.waiters.must_wait_until(self.context.spec.keys.line(), now)?;
        (until < self.deadline).then(|| until.since(now))
    }

    fn is_one_try(&self) -> bool {
        self.context.spec.settings.timeout == Some(Duration::ZERO)
    }

    /// Makes one attempt, or for a slot as many as it takes to know whether one is free.
    async fn attempt(&mut self, connections: &Arc<Connections>) -> Result<Step, Error> {
        if let Some(detached) = self.context.spec.detached.clone() {
            self.attempts = self.attempts.saturating_add(1);
            return Box::pin(self.attach(connections, &detached)).await;
        }
        let outcome = match self.context.spec.names.permits() {
            // On the heap, or every attempt at a lock would carry the room for it.
            Some(permits) => Box::pin(self.attempt_at_a_slot(connections, permits)).await,
            None => self.attempt_at(connections, 1).await,
        };
        self.attempts = self.attempts.saturating_add(1);
        match outcome {
            Ok(won) => Ok(Step::Won(LeaseOwner::new(Lease::new(self.context.clone(), won, self.meter.of_hold())))),
            Err(NoQuorum::Indistinct(ballots)) => Err(self.indistinct(&ballots)),
            Err(NoQuorum::Quarantined(until, ballots)) => self.quarantined(until, &ballots),
            Err(NoQuorum::Lost(ballots)) => {
                if self.is_telling(&ballots) {
                    self.last = Some(ballots);
                }
                self.lost()
            }
        }
    }

    /// Returns whether these answers replace the last ones. Those of an attempt that the timeout cut short say less, unless
    /// no call of this process is answered by a quorum.
    fn is_telling(&mut self, ballots: &Ballots) -> bool {
        if ballots.is_contended() {
            self.outage = Outage::default();
            return true;
        }
        if ballots.complete {
            return true;
        }
        self.context.set().members.health.record_cut(ballots.ended.before(ballots.took));
        self.last.is_none() || !self.are_nodes_answering()
    }

    /// Returns whether a quorum of nodes answers calls of this process, if not this one.
    fn are_nodes_answering(&self) -> bool {
        self.context.set().members.health.is_answering(self.context.spec.settings.node_timeout)
    }

    /// Tries one slot, at random or of those that a look showed to be free. If others have it, looks which slots are free,
    /// and tries one of those. Each attempt at a slot is over, with its clean-up, before the next one begins: the keys of
    /// both would stand in the way of others.
    async fn attempt_at_a_slot(&mut self, connections: &Arc<Connections>, permits: u32) -> Outcome<Ownership> {
        let random = self.context.process.random.clone();
        let unit = random.unit();
        let free = mem::take(&mut self.free);
        self.state.slot = vacancy::choose(&free, unit).or_else(|| Some(vacancy::one_of(permits, unit)));
        let outcome = self.attempt_at(connections, VOTES_FOR_SLOT - 1).await;
        let is_contended = matches!(&outcome, Err(NoQuorum::Lost(ballots)) if ballots.is_contended());
        let limit = self.limit_before(2);
        if !is_contended || self.context.process.clock.now() >= limit {
            return outcome;
        }
        let there = self.context.moved_from(connections);
        let there = there.as_ref().unwrap_or(connections);
        let positions = self.state.positions.as_ref().map(|positions| (positions, false));
        let looked = vacancy::look(&self.context, there, positions, limit).await;
        let Some(slot) = vacancy::choose(&looked.free, random.unit()) else { return outcome };
        self.state.slot = Some(slot);
        self.attempt_at(there, 1).await
    }

    /// Makes one attempt, and again where the lock has moved. A single try leaves the nodes `node_timeout` for each of
    /// these `votes` that follow, its clean-up included.
    async fn attempt_at(&mut self, connections: &Arc<Connections>, votes: u32) -> Outcome<Ownership> {
        let limit = self.limit_before(votes);
        let mut outcome = attempt(&self.context, connections, limit, &mut self.state).await;
        if matches!(&outcome, Err(NoQuorum::Lost(ballots)) if ballots.saw_closed()) && connections.clock.now() < limit {
            // A closed idle connection says nothing about the lock: retries at once, with a fresh token.
            outcome = attempt(&self.context, connections, limit, &mut self.state).await;
        }
        let mut way = Following::new(connections, limit);
        while matches!(outcome, Err(NoQuorum::Lost(_) | NoQuorum::Quarantined(..))) && way.moves_on(&self.context) {
            // With a fresh token, and the health of the servers that are asked then.
            outcome = attempt(&self.context, &way.connections, limit, &mut self.state).await;
        }
        outcome
    }

    /// Returns when the call has to end, before these `votes` if it is a single try.
    fn limit_before(&self, votes: u32) -> Moment {
        if self.is_one_try() { self.limit.before(votes * self.context.spec.settings.node_timeout) } else { self.limit }
    }

    /// Decides the step after a lost attempt.
    fn lost(&mut self) -> Result<Step, Error> {
        let Some(ballots) = self.last.clone() else { return Ok(Step::Later(Duration::ZERO)) };
        if ballots.is_forbidden() {
            let message = "a quorum of nodes refuses these credentials or rights; check user, password and ACL";
            return Err(self.error(ErrorKind::Forbidden, message, &ballots));
        }
        let now = self.context.process.clock.now();
        let quarantine = ballots.quarantined_for();
        if ballots.is_contended() {
            self.meter.record_contention();
        } else if let Some(left) = quarantine {
            self.wait_for_quarantine(now, now.after(left), &ballots);
        } else {
            self.outage.lasts(now);
            let lasts = self.outage.known_since(self.meter.began).lasts(now);
            let endless = self.context.spec.settings.timeout.is_none();
            if endless && lasts >= UNAVAILABLE_AFTER {
                return Err(self.unavailable(&ballots));
            }
        }
        if now >= self.deadline {
            return Err(self.over(&ballots));
        }
        if ballots.is_contended() {
            let pause = self.split_pause(&ballots, now);
            return Ok(Step::Denied(ballots, pause));
        }
        self.splits = 0;
        let unit = self.context.process.random.unit();
        let pause = backoff::unavailable(self.attempts.saturating_sub(1), unit);
        Ok(Step::Later(quarantine.map_or(pause, |left| pause.min(left))))
    }

    /// Returns how long to back off if the votes were split. One more round fits before the deadline.
    fn split_pause(&mut self, ballots: &Ballots, now: Moment) -> Duration {
        if !ballots.is_split() {
            self.splits = 0;
            return Duration::ZERO;
        }
        self.splits = self.splits.saturating_add(1);
        let pause = backoff::split(self.splits, ballots.took, self.context.process.random.unit());
        pause.min(self.deadline.since(now).saturating_sub(ballots.took))
    }

    /// Postpones the call: quarantine ends at `until`.
    fn quarantined(&mut self, until: Moment, ballots: &Arc<Ballots>) -> Result<Step, Error> {
        let now = self.context.process.clock.now();
        self.last = Some(Arc::clone(ballots));
        if now >= self.deadline {
            return Err(self.unavailable(ballots));
        }
        self.wait_for_quarantine(now, until, ballots);
        Ok(Step::Later(until.since(now)))
    }

    /// Keeps quarantine out of the outage, and logs once that the call waits for it.
    fn wait_for_quarantine(&mut self, now: Moment, until: Moment, ballots: &Ballots) {
        self.outage.quarantined(now, until);
        if now < self.deadline && !mem::replace(&mut self.quarantine_logged, true) {
            let (name, nodes, wait) =
                (&self.context.spec.name, ballots.quarantines(&self.context.set().members), until.since(now));
            log!(QUARANTINE_AWAITED, %name, %nodes, wait = %format_args!("{:?}", in_millis(wait)), "nodes restarted and do not count yet; waiting for them");
        }
    }

    /// Hands the call over to the background. If its caller goes before it is over, the call leaves.
    async fn wait_out(mut self) -> Result<(Self, LeaseOwner), Error> {
        let (context, pause) = (self.context.clone(), mem::take(&mut self.pause));
        let ((sender, receiver), departure) = (oneshot::channel(), Departure::default());
        context.process.background.spawn(self.run(pause, sender, Arc::clone(&departure)));
        let leaves = OnDrop::new(|| {
            let LockContext { process, listed, spec, .. } = &context;
            if !process.is_foreign() {
                *departure.lock() = Some(listed.waiters.leave(&spec.keys));
            }
        });
        let outcome = receiver.await;
        leaves.cancel();
        let (acquire, result) = outcome.map_err(|_| Error::panicked())?;
        Ok((acquire, result?))
    }

    /// Runs the background's part: attempts until won, failed or cancelled. Once it is cancelled, it leaves until its end.
    async fn run(
        mut self,
        pause: Duration,
        mut sender: oneshot::Sender<(Self, Result<LeaseOwner, Error>)>,
        departure: Departure,
    ) {
        let _departure = departure;
        let (context, began) = (self.context.clone(), self.meter.began);
        let mut result = tokio::select! {
            biased;
            () = sender.closed() => return,
            error = end_of(&context) => Err(error),
            result = self.attempts(pause) => result,
            never = own_hold::warn(&context, began) => match never {},
        };
        self.meter.record_result(&mut result);
        // Not received: the lock inside is dropped, which releases it.
        drop(sender.send((self, result)));
    }

    /// Tries once, or joins the queue and attempts until won or failed.
    async fn attempts(&mut self, pause: Duration) -> Result<LeaseOwner, Error> {
        if self.context.spec.detached.is_some() {
            return Box::pin(self.attach_in_background(pause)).await;
        }
        let listed = Arc::clone(&self.context.listed);
        if self.is_one_try() {
            self.let_leave().await;
            let connections = self.context.set().connections(&Handle::current());
            return match self.attempt(&connections).await? {
                Step::Won(owner) => Ok(owner),
                Step::Denied(..) | Step::Later(_) => Err(self.over_unseen()),
            };
        }
        let waiter = listed.waiters.enter(self.context.spec.keys.line());
        waiter.offer(self.last.as_ref());
        let clock = self.context.process.clock.clone();
        let first = clock.now().after(pause);
        let turn = async {
            let turn = waiter.turn().await;
            let is_held_off = self.until_free(&waiter).await;
            clock.sleep_until(first).await;
            (turn, is_held_off)
        };
        let turn = clock.timeout_at(self.deadline, pin!(turn)).await;
        let latest = waiter.latest();
        self.last = latest.ballots.or_else(|| self.last.take());
        // It may reach the front just as its timeout ends.
        let Some((_turn, is_held_off)) = turn.filter(|_| clock.now() < self.deadline) else {
            return Err(self.over_unseen());
        };
        self.outage = latest.outage;
        self.defers = is_held_off && self.context.spec.names.are_shared();
        let owner = self.in_front(&waiter).await?;
        if !self.context.spec.names.has_room() {
            waiter.won(&(Arc::clone(owner.lease()) as _));
        }
        Ok(owner)
    }

    /// Waits at the front while the former front holds the lock, then for the hold-off. Returns whether there was one. Cancel
    /// safe.
    async fn until_free(&self, waiter: &Waiter) -> bool {
        let clock = &self.context.process.clock;
        if let Some(lease) = waiter.former() {
            let set = self.context.set();
            let connections = set.waiting_connections(&Handle::current());
            let mut wakeup = Wakeup::new(self.context.clone(), &set, connections);
            tokio::select! {
                biased;
                () = waiter.handed_over(clock, &*lease) => {}
                () = wakeup.gone(&*lease, self.deadline) => {}
            }
        }
        waiter.hold_off(clock, self.deadline).await
    }

    /// Returns the error of a timeout, even without answers.
    fn over_unseen(&self) -> Error {
        match &self.last {
            Some(ballots) => self.over(ballots),
            // Other calls of this process were always in front.
            None => self.over(&Ballots::unasked(self.context.listed.members.len())),
        }
    }

    /// Returns the timeout's error. If the timeout has cut the call's only attempt short, its queue knows more, or else the
    /// process knows whether the nodes answer.
    fn over(&self, ballots: &Ballots) -> Error {
        let known = if ballots.complete || ballots.is_contended() { None } else { self.known() };
        let ballots = known.as_deref().unwrap_or(ballots);
        if ballots.is_contended() || self.is_cut_short(ballots) {
            let holder = self.holder(ballots);
            let owner = if !ballots.is_contended() && !holder.is_this_process {
                CUT_SHORT.to_owned()
            } else if ballots.held_off == NodeMask::NONE {
                holder.to_string()
            } else {
                ballots::HELD_OFF.to_owned()
            };
            let message = match self.context.spec.settings.timeout {
                Some(timeout) if !timeout.is_zero() => format!("not acquired within {timeout:?}: {owner}"),
                _ => format!("not acquired: {owner}"),
            };
            self.error(ErrorKind::Timeout, message, ballots).with_holder(holder)
        } else {
            self.unavailable(ballots)
        }
    }

    /// Returns whether the timeout has left no time for these answers, while the nodes answer other calls.
    fn is_cut_short(&self, ballots: &Ballots) -> bool {
        let is_cut = !ballots.complete && !self.is_one_try() && ballots.quarantined_for().is_none();
        is_cut && self.are_nodes_answering()
    }

    /// Returns who holds the lock. A process knows its own holds better than the last answers do.
    fn holder(&self, ballots: &Ballots) -> HeldBy {
        let (process, names) = (&self.context.process, &self.context.spec.names);
        let now = process.clock.now();
        match process.schedule.own_hold(&self.context.listed.waiters, names) {
            // A semaphore has several holders.
            own if names.permits().is_some() => HeldBy { is_this_process: own.is_some(), ..HeldBy::default() },
            Some(own) => HeldBy {
                label: (!own.label.is_empty()).then(|| own.label.as_ref().to_owned()),
                ttl_left: Some(own.kept_until.since(now)),
                is_this_process: true,
            },
            None => ballots.holder(now),
        }
    }

    /// Returns what the front of the call's queue was answered last, if there is a queue.
    fn known(&self) -> Option<Arc<Ballots>> {
        self.context.listed.waiters.known(self.context.spec.keys.line())
    }

    fn unavailable(&self, ballots: &Ballots) -> Error {
        let mut message = "no quorum of nodes answered, so it is unknown whether the lock is free".to_owned();
        if ballots.failures.iter().flatten().any(Failure::is_of_connect) {
            message = format!("{message}; {}", self.context.spec.origin);
        }
        self.error(ErrorKind::Unavailable, message, ballots)
    }

    fn indistinct(&self, ballots: &Ballots) -> Error {
        let message = "several addresses belong to the same server, so no quorum is possible; list each server once";
        self.error(ErrorKind::InvalidArgument, message, ballots)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>, ballots: &Ballots) -> Error {
        let restart_delay = self.context.spec.settings.restart_delay;
        let nodes = ballots.answers(&self.context.set().members, restart_delay, self.context.process.clock.now());
        let error = Error::new(kind, message).with_name(self.context.spec.name.bytes()).with_nodes(nodes);
        match ballots.failures.iter().flatten().find_map(Failure::cause) {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redlock;
    use crate::hold::detach;
    use crate::options::Options;
    use crate::protocol::detached::Detached;
    use crate::sys::log::heard;

    /// A caller that was cancelled has done nothing that others would have to be kept from.
    #[tokio::test]
    async fn only_a_lock_that_has_reached_its_user_is_kept_for_its_least_time() {
        let redlock = Redlock::new("memory://least-time").unwrap();
        let (timeout, at_least) = (Some(Some(Duration::from_secs(5))), Some(Duration::from_secs(10)));
        let options = Options { timeout, at_least, ..Options::default() };
        let runtime = Handle::current();
        let begin = || Acquire::begin(redlock.session().context(&b"foo"[..].into(), &options).unwrap()).unwrap();
        let win = || begin().win(Some(&runtime));
        let (_, owner) = win().await.unwrap();
        drop(owner);
        let (rest, owner) = win().await.unwrap();
        let owner = rest.activate(owner).unwrap().unwrap();
        drop(owner);
        let again = async |name: &str| redlock.lock(name).timeout(Duration::from_millis(50)).acquire().await;
        assert_eq!(again("foo").await.unwrap_err().kind(), ErrorKind::Timeout);
        let guard = redlock.lock("bar").at_least(Duration::from_secs(10)).await.unwrap();
        // The caller does not wait for the text.
        drop(detach::detach(Arc::clone(guard.lease()), None).await.unwrap());
        assert_eq!(again("bar").await.unwrap_err().kind(), ErrorKind::Timeout);
    }

    /// On another machine, whose clock began later.
    #[tokio::test]
    async fn a_lock_that_was_acquired_before_this_machine_started_ends_at_its_max_hold() {
        const YEARS: Duration = Duration::from_secs(5 * 365 * 24 * 3_600);
        let redlock = Redlock::builder().nodes("memory://started-later").max_hold(YEARS).build().unwrap();
        let text = redlock.lock("foo").await.unwrap().detach().await.unwrap();
        let mut detached = Detached::parse(text.as_str()).unwrap();
        let left = Duration::from_secs(5);
        detached.acquired -= u64::try_from(YEARS.as_micros() - left.as_micros()).unwrap();
        let guard = redlock.attach(&detached.to_text()).await.unwrap();
        assert!(guard.remaining() <= left, "{:?}", guard.remaining());
    }

    #[tokio::test]
    async fn a_lock_that_expires_before_it_reaches_its_user_is_not_told_lost() {
        let redlock = Redlock::new("memory://too-late").unwrap();
        let options = Options { ttl: Some(Duration::from_millis(100)), ..Options::default() };
        let context = || redlock.session().context(&b"foo"[..].into(), &options).unwrap();
        let (rest, owner) = Acquire::begin(context()).unwrap().win(Some(&Handle::current())).await.unwrap();
        while owner.lease().is_valid() {
            owner.lease().context.process.clock.sleep(Duration::from_millis(10)).await;
        }
        let (rest, said) = heard::text(|| rest.activate(owner).unwrap().unwrap_err());
        assert_eq!(said, "");
        let owner = rest.finish(None).await.unwrap();
        assert!(owner.lease().is_valid());
    }
}
