//! The lease of a held lock, shared by its guard, the background's renewals and its loss callbacks.
//!
//! Phases: *held* → *released*, *detached* or *lost*; these are final. Every change happens under one mutex, so that a release, a
//! loss and a late extension exclude each other. Once the phase has left *held*, no extension counts, the lock is not
//! put back on a node, and no loss is reported.
//!
//! `is_held` is true only before `valid_until` on the suspend-aware clock at the moment of asking, whatever the phase
//! says. The first call after the end makes the loss final.
//!
//! *Extensions.* Any number of them can be under way at once: renewals, and explicit ones on several threads. Each gets
//! a number when it begins. Their answers may come in any order:
//!
//! - `valid_until` never falls;
//! - only an explicit extension that names a ttl sets the ttl of later renewals, and of several the one that began
//!   last; that of a detach does not;
//! - a renewal with another ttl than the one in force by then leaves the planned renewal as it is;
//! - a renewal without a quorum is not recorded if an extension that began after it reached one.
//!
//! *A detach* ends the phase *held* as a release does, but nothing is deleted: the right to the keys goes over to the text.
//!
//! *A loss* is reported in this order, outside the mutex: the entry leaves the schedule, the ownership is dropped (the
//! release begins) or, after a loss by time, deferred until the margin has passed or the user has released the lock,
//! waiting futures and callbacks are notified. The loss is logged last, and the span of the hold closed,
//! because a subscriber is the program's code and may block.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::{AnswerKind, Error, ErrorKind, LostReason, NodeAnswer};
use crate::hold::claim::Claim;
use crate::hold::meter::{HoldMeter, ReleaseMeter};
use crate::hold::outcome::{Loss, Won};
use crate::hold::setnx::Grant;
use crate::net::ballots::PENDING;
use crate::net::connections::Members;
use crate::net::footprint::Footprint;
use crate::net::member::Member;
use crate::options::MAX_HOLD_MOST;
use crate::process::context::LockContext;
use crate::process::schedule::{Next, NotHeld, OwnHold, Timed, Unlogged};
use crate::process::shutdown::Ending;
use crate::process::waiters::{Ends, Waiters};
use crate::protocol::backoff;
use crate::protocol::detached::Detached;
use crate::protocol::name::Name;
use crate::protocol::quorum::{self, NodeMask};
use crate::protocol::request::{Action, Request};
use crate::protocol::shape::Names;
use crate::sys::clock::Moment;
use crate::sys::future::notified_until;
use crate::sys::on_drop::OnDrop;

pub(crate) const NOT_HELD: &str =
    "not held: it was released, its client was closed, or never acquired by this object in this process";

/// The shortest ttl with which a key is put back on a node.
const LEAST_LEFT: Duration = Duration::from_millis(1);

/// The right to delete a won attempt's keys, in each protocol. Dropping it releases them.
#[derive(Debug)]
pub(crate) enum Ownership {
    Fenced(Claim),
    Setnx(Grant),
}

/// A lock that was won.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) context: LockContext,
    /// The fence; zero, and never shown, in protocols without one.
    pub(crate) fence: u64,
    /// The slot of a semaphore.
    pub(crate) slot: Option<u32>,
    /// Latest end, by `max_hold`.
    limit: Option<Moment>,
    /// When it was acquired.
    acquired: Moment,
    /// The nodes to which the acquire could not be sent.
    pub(crate) missed: NodeMask,
    pub(crate) meter: HoldMeter,
    state: Mutex<State>,
    lost: Notify,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    valid_until: Moment,
    /// When the keys of a quorum expire at the earliest.
    kept_until: Moment,
    /// The ttl of later renewals.
    ttl: Duration,
    /// The number of the extension that set the ttl; 0 for the acquire.
    ttl_by: u64,
    /// The number of the extension that began last.
    begun: u64,
    /// How many extensions are under way.
    asking: u32,
    /// What the lock counts as on the nodes: its fence, or a larger one that a quorum remembers (see `extend`).
    level: u64,
    /// The floor of the extension that began last with one.
    floor: u64,
    /// The highest number of an extension that reached its quorum.
    carried: u64,
    ownership: Option<Ownership>,
    /// When to renew next; `None` if the lock is not renewed, or a renewal is on its way.
    renew_at: Option<Moment>,
    /// When the last renewal or extension began.
    asked: Moment,
    /// Each node's answer to the last renewal, if it found no quorum; empty while the first one is on its way.
    unanswered: Option<Vec<NodeAnswer>>,
    /// This lock's entry in the schedule.
    due: Option<(Moment, u64)>,
    /// The callbacks for a loss, beside the futures that await it.
    listeners: Vec<Arc<dyn OnLoss>>,
    /// The nodes where the lock is being restored.
    restoring: NodeMask,
    /// When the lock was lost.
    lost_at: Moment,
    /// The right to the keys of a lost lock whose margin has not passed yet. The schedule has it.
    deferred: Weak<Mutex<Option<Ownership>>>,
}

/// A callback for a loss, called once with the error on the thread that notices it. Dropped uncalled on a release. It must
/// neither block nor panic.
pub(crate) trait OnLoss: fmt::Debug + Send + Sync {
    /// Receives the loss.
    fn heard(&self, error: Error);
    /// Returns whether this callback has ended and need not be called.
    fn is_over(&self) -> bool;
}

/// The ttl that an extension asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// That of renewals.
    InForce,
    /// Another one, which later renewals use, too.
    New(Duration),
    /// Another one, for this extension alone.
    Once(Duration),
}

/// What is asked of a node that lacks the lock, in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RestoreStep {
    /// To give the former holder's keys the fresh token.
    Rekey,
    /// To delete what is left of the former holder's keys.
    ReleaseFormer,
    /// To take the lock back.
    Restore,
}

impl From<Option<Duration>> for Target {
    fn from(ttl: Option<Duration>) -> Self {
        ttl.map_or(Self::InForce, Self::New)
    }
}

/// One extension on its way, as it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extending {
    /// Its number, in the order in which extensions begin.
    number: u64,
    /// The requested ttl.
    ttl: Duration,
    /// Whether later renewals use `ttl`, too.
    sets: bool,
    /// The larger fence that the nodes are to remember.
    floor: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Held,
    Released,
    /// Somebody else has the right to its keys.
    Detached,
    Lost(Loss),
}

/// How a release begins.
#[derive(Debug)]
pub(crate) enum ReleaseBegun {
    /// The keys have to be deleted. After that the meter counts how the hold ended.
    Release(Ownership, Option<ReleaseMeter>),
    /// Its keys are not this process's any more, or their release has begun.
    Already,
}

impl State {
    /// Returns the right to the keys of a held lock, in the protocol with fences.
    fn claim(&self) -> Option<&Claim> {
        match &self.ownership {
            Some(Ownership::Fenced(claim)) => Some(claim),
            _ => None,
        }
    }
}

impl Ends for Lease {
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.ended())
    }

    fn valid_until(&self) -> Moment {
        self.valid_until()
    }
}

impl Timed for Lease {
    fn is_on(&self, members: &Members) -> bool {
        std::ptr::eq(&raw const *self.context.set().members, members)
    }

    fn names(&self) -> &[Name] {
        self.context.spec.names.each()
    }

    fn hold_of(&self, waiters: &Waiters, names: &Names) -> Option<OwnHold> {
        let is_same = std::ptr::eq(&raw const *self.context.listed.waiters, waiters);
        if !is_same || !self.context.spec.names.meet(names) || !self.is_valid() {
            return None;
        }
        let label = Arc::clone(&self.context.spec.settings.label);
        Some(OwnHold { label, acquired: self.acquired, kept_until: self.state().kept_until })
    }

    fn next(&self, now: Moment) -> Next {
        let mut state = self.state();
        if state.phase != Phase::Held {
            return Next::Done;
        }
        if now >= state.valid_until {
            return Next::Expired;
        }
        match state.renew_at {
            Some(renew_at) if renew_at <= now => {
                state.renew_at = None;
                // Stays until a quorum answers: the validity may end before the renewal gives up.
                state.unanswered.get_or_insert_default();
                Next::Renew(state.valid_until)
            }
            Some(renew_at) => Next::Sleep(renew_at.min(state.valid_until)),
            None => Next::Sleep(state.valid_until),
        }
    }

    fn entered(&self, due: (Moment, u64)) -> Result<Option<(Moment, u64)>, NotHeld> {
        let mut state = self.state();
        if state.phase == Phase::Held { Ok(state.due.replace(due)) } else { Err(NotHeld) }
    }

    fn expire_if_due(&self) -> Option<Unlogged> {
        let now = self.now();
        let state = self.state();
        (state.phase == Phase::Held && now >= state.valid_until).then(|| self.expire(state).1)
    }

    fn bring_forward(&self, within: Duration) -> bool {
        let mut state = self.state();
        let Some(renew_at) = state.renew_at.filter(|_| state.phase == Phase::Held) else { return false };
        let random = &self.context.process.random;
        let soon = self.now().after(within.mul_f64(random.unit()));
        let soon = soon.max(state.asked.after(backoff::unanswered(state.ttl, random.unit())));
        state.renew_at = Some(renew_at.min(soon));
        soon < renew_at
    }

    fn may_lack(&self, node: usize) -> bool {
        let state = self.state();
        // It is not renewed, and the node may have forgotten it; or its footprint there is empty.
        state.claim().is_some_and(|claim| !self.is_renewed(&state) || claim.footprint.has_nothing(node))
    }

    fn is_of(&self, client: &Arc<Ending>) -> bool {
        Arc::ptr_eq(&self.context.client, client)
    }
}

impl Lease {
    pub(crate) fn new(context: LockContext, (ownership, won): (Ownership, Won), meter: HoldMeter) -> Self {
        let limit = context.spec.settings.max_hold.map(|max_hold| won.acquired.after(max_hold));
        let ttl = context.spec.settings.ttl;
        let state = State {
            valid_until: won.valid_until,
            kept_until: won.asked.after(won.kept),
            ttl,
            level: won.level,
            ownership: Some(ownership),
            asked: won.asked,
            lost_at: Moment::NEVER,
            ..State::default()
        };
        let lease = Self {
            context,
            fence: won.fence,
            slot: won.slot,
            limit,
            acquired: won.acquired,
            missed: won.missed,
            meter,
            state: Mutex::new(state),
            lost: Notify::new(),
        };
        lease.plan(&mut lease.state(), won.asked, won.unit);
        if lease.is_behind() {
            lease.bring_forward(Duration::ZERO);
        }
        lease
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding this")
    }

    fn now(&self) -> Moment {
        self.context.process.clock.now()
    }

    /// Records that the lock has reached its user: from here on it is kept for its least time, and does not go back to its
    /// text.
    pub(crate) fn begin_use(&self) {
        if let Some(Ownership::Fenced(claim)) = &mut self.state().ownership {
            claim.begin_use();
        }
    }

    fn margin(&self) -> Duration {
        self.context.spec.settings.margin
    }

    /// Returns whether the lock is renewed and `max_hold` still allows it.
    fn is_renewed(&self, state: &State) -> bool {
        self.context.spec.settings.auto_renew && self.limit.is_none_or(|limit| state.valid_until < limit)
    }

    /// Plans the next renewal after one that began at `start`; `unit` spreads it.
    fn plan(&self, state: &mut State, start: Moment, unit: f64) {
        state.renew_at =
            self.is_renewed(state).then(|| backoff::renewal(start, state.ttl.saturating_sub(self.margin()), unit));
    }

    /// Returns how long the lock is still valid.
    ///
    /// # Errors
    ///
    /// `lost` from `valid_until` on; `not_held` after a release, and in a forked child.
    pub(crate) fn remaining(&self) -> Result<Duration, Error> {
        if self.context.process.is_foreign() {
            return Err(self.error(ErrorKind::NotHeld));
        }
        self.remaining_here()
    }

    /// Returns what [`Lease::remaining`] does, for callers known not to be a forked child.
    pub(crate) fn remaining_here(&self) -> Result<Duration, Error> {
        let now = self.now();
        Ok(self.valid_at(now)?.valid_until.since(now))
    }

    /// Locks the state of a lock that is valid `now`, else ends it if it has expired.
    fn valid_at(&self, now: Moment) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.state();
        match &state.phase {
            Phase::Held if now < state.valid_until => Ok(state),
            Phase::Held => Err(self.expire_now(state)),
            Phase::Lost(loss) => Err(self.lost_error(loss.clone())),
            Phase::Released | Phase::Detached => Err(self.error(ErrorKind::NotHeld)),
        }
    }

    /// Returns whether the lock is held and its validity has not ended.
    pub(crate) fn is_valid(&self) -> bool {
        let now = self.now();
        let state = self.state();
        state.phase == Phase::Held && now < state.valid_until
    }

    /// Returns whether its release has begun.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self.state().phase, Phase::Released | Phase::Detached)
    }

    /// Ends an expired lock, logs the loss and returns its error.
    fn expire_now(&self, state: MutexGuard<'_, State>) -> Error {
        let (loss, unlogged) = self.expire(state);
        unlogged.log();
        self.lost_error(loss)
    }

    /// Ends an expired lock.
    fn expire(&self, mut state: MutexGuard<'_, State>) -> (Loss, Unlogged) {
        // The present time does not tell: a process may stand still until the limit, and have lost the lock long before.
        let loss = if self.limit.is_some_and(|limit| limit <= state.valid_until) {
            LostReason::MaxHold.into()
        } else if let Some(nodes) = state.unanswered.take() {
            Loss { reason: LostReason::Unreachable, nodes: self.or_unheard(nodes) }
        } else {
            LostReason::Expired.into()
        };
        let unlogged = self.mark_lost(state, &loss);
        (loss, unlogged)
    }

    /// Returns each node's answer to the last renewals, if they found no quorum.
    pub(crate) fn last_answers(&self) -> Option<Vec<NodeAnswer>> {
        let nodes = self.state().unanswered.clone();
        nodes.map(|nodes| self.or_unheard(nodes))
    }

    /// Returns these answers, or those of nodes whose first one is on its way.
    fn or_unheard(&self, nodes: Vec<NodeAnswer>) -> Vec<NodeAnswer> {
        if !nodes.is_empty() {
            return nodes;
        }
        let unheard = |member: &Member| NodeAnswer {
            node: member.address.to_string(),
            kind: AnswerKind::Pending,
            answer: PENDING.to_owned(),
        };
        self.context.set().members.nodes.iter().map(unheard).collect()
    }

    /// Ends a held lock and notifies everything but the log. Drops its ownership outside the mutex, which releases
    /// everywhere: at once if others may have the lock, or else when the margin has passed, in which its user stops.
    fn mark_lost(&self, mut state: MutexGuard<'_, State>, loss: &Loss) -> Unlogged {
        state.phase = Phase::Lost(loss.clone());
        state.lost_at = self.now().min(state.valid_until);
        let ownership = state.ownership.take();
        let due = state.due.take();
        let listeners = std::mem::take(&mut state.listeners);
        let until = state.lost_at.after(self.margin());
        drop(state);
        // Before anybody hears of the loss and looks at the metrics.
        let trace = self.meter.lose(&self.context.process, loss.reason, self.now());
        let unlogged = Unlogged { name: self.context.spec.name.clone(), reason: loss.reason, trace };
        self.context.process.schedule.remove(self, due);
        match ownership {
            Some(ownership) if loss.reason.is_by_time() && !self.margin().is_zero() => {
                let deferred = Arc::new(Mutex::new(Some(ownership)));
                self.state().deferred = Arc::downgrade(&deferred);
                self.context.process.schedule.drop_at(Box::new(deferred), until);
            }
            ownership => drop(ownership),
        }
        self.lost.notify_waiters();
        for listener in listeners {
            listener.heard(self.lost_error(loss.clone()));
        }
        unlogged
    }

    /// Releases a lost lock before its margin has passed: its user has stopped.
    fn end_margin(&self) {
        let deferred = self.state().deferred.upgrade();
        drop(deferred.and_then(|deferred| deferred.lock().expect("no panic while holding this").take()));
    }

    /// Calls `listener` once when this lock is lost, at once if it is lost already. A release does not call it.
    pub(crate) fn on_lost(&self, listener: Arc<dyn OnLoss>) {
        let mut state = self.state();
        let loss = match &state.phase {
            Phase::Held => {
                state.listeners.push(listener);
                return;
            }
            Phase::Released | Phase::Detached => return,
            Phase::Lost(loss) => loss.clone(),
        };
        drop(state);
        listener.heard(self.lost_error(loss));
    }

    /// Whether the lock is held, or was until the program came to its end, in which nobody campaigns again.
    pub(crate) fn is_held_to_the_end(&self) -> bool {
        self.remaining().is_ok() || self.context.process.shutdown.has_started()
    }

    /// Returns the loss that a round has shown.
    pub(crate) fn loss(&self, reason: LostReason, nodes: Vec<NodeAnswer>) -> Loss {
        Loss { reason: reason.or_expired(self.now() >= self.state().kept_until), nodes }
    }

    /// Marks the lock lost if it is held.
    pub(crate) fn lose(&self, loss: &Loss) {
        let state = self.state();
        if state.phase == Phase::Held {
            self.mark_lost(state, loss).log();
        }
    }

    /// Begins a release: from here on the lock is not held, renewed or restored. Not for a forked child.
    ///
    /// # Errors
    ///
    /// `lost` if the lock was lost before; `closed` if its hold has ended with its client. A shutdown is the end of the
    /// program, in which nobody relies on the lock any more.
    pub(crate) fn begin_release(&self) -> Result<ReleaseBegun, Error> {
        let now = self.now();
        let mut state = self.state();
        match &state.phase {
            Phase::Released if self.context.client.has_started() => return Err(self.error(ErrorKind::Closed)),
            Phase::Released | Phase::Detached => return Ok(ReleaseBegun::Already),
            Phase::Lost(loss) => {
                let (error, lost_at) = (self.lost_error(loss.clone()), state.lost_at);
                drop(state);
                self.end_margin();
                return Err(error.lost_before_release(now.since(lost_at)));
            }
            Phase::Held if now >= state.valid_until => {
                let valid_until = state.valid_until;
                let error = self.expire_now(state);
                self.end_margin();
                return Err(error.lost_before_release(now.since(valid_until)));
            }
            Phase::Held => state.phase = Phase::Released,
        }
        let ownership = self.leave(state);
        let meter = self.meter.release(&self.context.process, now);
        Ok(ReleaseBegun::Release(ownership, meter))
    }

    /// Ends a hold that was neither lost nor expired, whose phase says so already. Returns the right to its keys, which are
    /// kept for the least time if they are released.
    fn leave(&self, mut state: MutexGuard<'_, State>) -> Ownership {
        let ownership = state.ownership.take().expect("held locks have their ownership");
        let at_least = self.context.spec.settings.at_least;
        if let (false, Ownership::Fenced(claim)) = (at_least.is_zero(), &ownership) {
            claim.keep_until(self.acquired.after(at_least));
        }
        let (due, listeners) = (state.due.take(), std::mem::take(&mut state.listeners));
        drop(state);
        drop(listeners);
        self.context.process.schedule.remove(self, due);
        self.lost.notify_waiters();
        ownership
    }

    /// Ends the hold without a release. Returns the right to its keys, and what the text says of the lock. Not for a
    /// forked child.
    ///
    /// # Errors
    ///
    /// `lost` and `not_held`.
    pub(crate) fn begin_detach(&self) -> Result<(Claim, Detached), Error> {
        let LockContext { process, spec, .. } = &self.context;
        let (now, wall) = (self.now(), process.clock.wall_micros());
        let mut state = self.valid_at(now)?;
        state.phase = Phase::Detached;
        let (level, kept_until, ttl) = (state.level, state.kept_until, state.ttl);
        let Ownership::Fenced(claim) = self.leave(state) else { unreachable!("it was allowed") };
        self.meter.detach(process, now);
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let detached = Detached {
            seat: spec.names.permits().zip(self.slot),
            is_shared: spec.names.are_shared(),
            names: spec.names.each().iter().map(|name| name.bytes().to_vec()).collect(),
            token: claim.token,
            keeps_token: false,
            fence: self.fence,
            level,
            acquired: wall.saturating_sub(micros(now.since(self.acquired))),
            end: wall + micros(kept_until.since(now)),
            ttl,
            max_hold: spec.settings.max_hold.filter(|max_hold| *max_hold < MAX_HOLD_MOST),
            at_least: spec.settings.at_least,
            margin: self.margin(),
            label: Arc::clone(&spec.settings.label),
        };
        Ok((claim, detached))
    }

    /// Returns the nodes that may still execute an acquire or a restore of the lock, which they have not answered.
    pub(crate) fn open_creates(&self) -> NodeMask {
        self.state().claim().map_or(NodeMask::NONE, |claim| claim.footprint.unanswered())
    }

    /// Waits until nothing is asked of the nodes any more about a lock that is not held. Cancel safe.
    pub(crate) async fn settled(&self) {
        notified_until(&self.lost, || {
            let state = self.state();
            (state.asking == 0 && state.restoring.is_empty()).then_some(())
        })
        .await;
    }

    /// Begins an extension. Returns its request and the footprint for the answers, or `None` if not held or in a protocol
    /// without extensions.
    pub(crate) fn extension(&self, target: Target) -> Option<(Extending, Request, Arc<Footprint>)> {
        let mut state = self.state();
        state.asked = self.now();
        state.begun += 1;
        let number = state.begun;
        let (sets, ttl) = match target {
            Target::InForce => (false, state.ttl),
            Target::New(ttl) => (true, ttl),
            Target::Once(ttl) => (false, ttl),
        };
        let kept = ttl.max(self.least_left());
        let claim = state.claim()?;
        claim.raise_ttl(kept);
        let highest = claim.footprint.highest();
        let fence = state.level;
        let floor = (highest > fence).then_some(highest);
        let action = Action::Extend { ttl: kept, fence, fence_ttl: self.fence_ttl(kept), floor };
        let begun = (Extending { number, ttl, sets, floor }, claim.request(action), Arc::clone(&claim.footprint));
        state.floor = floor.unwrap_or(state.floor);
        Some(begun)
    }

    /// Returns whether a node remembers more than the lock counts as, or than an extension has tried to make it count as.
    fn is_behind(&self) -> bool {
        let state = self.state();
        state.claim().is_some_and(|claim| claim.footprint.highest() > state.level.max(state.floor))
    }

    /// Records that a node has the lock by a grant of this fence, or has no lock and remembers it, above the level.
    pub(crate) fn found_ahead(self: &Arc<Self>, fence: u64) {
        if let Some(claim) = self.state().claim() {
            claim.footprint.remembered(fence);
        }
        self.catch_up();
    }

    /// Renews soon if a node that is ahead was found: it counts only after the next extension.
    pub(crate) fn catch_up(self: &Arc<Self>) {
        if self.is_behind() && self.bring_forward(Duration::ZERO) {
            self.context.process.schedule.add(Arc::clone(self) as _);
        }
    }

    /// Whether nodes may have the key of a former token, in place of which the lock was attached.
    pub(crate) fn has_former(&self) -> bool {
        self.state().claim().is_some_and(|claim| claim.former.is_some())
    }

    /// Queues one step of putting the lock back on a node while the others keep it. Calls `queue` under the mutex with the
    /// ttl in force, so that a later release finds the footprint of the request. Returns `None` if not held, or if too
    /// little time is left.
    pub(crate) fn restore<T>(
        &self,
        step: RestoreStep,
        queue: impl FnOnce(Request, &Arc<Footprint>, Duration) -> T,
    ) -> Option<T> {
        let state = self.state();
        let claim = state.claim()?;
        let left = state.kept_until.since(self.now());
        if left < LEAST_LEFT {
            return None;
        }
        let (ttl, fence_ttl) = (left.max(self.least_left()), self.fence_ttl(state.ttl));
        let request = match step {
            RestoreStep::Rekey => {
                let (former, _) = claim.former?;
                claim.request(Action::Rekey { former, ttl, fence: state.level, fence_ttl, back: false })
            }
            RestoreStep::ReleaseFormer => claim.release_of_former()?,
            RestoreStep::Restore => {
                let label = Arc::clone(&self.context.spec.settings.label);
                claim.request(Action::Restore { ttl, fence: self.fence, level: state.level, fence_ttl, label })
            }
        };
        Some(queue(request, &claim.footprint, state.ttl.max(self.context.spec.settings.at_least)))
    }

    /// Returns what is left of the least time. A release does not lengthen a key, so it must be kept for that anyway.
    fn least_left(&self) -> Duration {
        let at_least = self.context.spec.settings.at_least;
        if at_least.is_zero() { at_least } else { self.acquired.after(at_least).since(self.now()) }
    }

    /// Counts an extension as under way, until what is returned is dropped.
    pub(crate) fn begin_asking(self: &Arc<Self>) -> OnDrop<impl FnOnce() + Send + use<>> {
        self.state().asking += 1;
        let lease = Arc::clone(self);
        OnDrop::new(move || {
            let mut state = lease.state();
            state.asking -= 1;
            lease.tell_if_settled(state);
        })
    }

    /// Begins to restore the lock on `node`, until what is returned is dropped. `None` if that is under way already.
    pub(crate) fn begin_restoring(self: &Arc<Self>, node: usize) -> Option<OnDrop<impl FnOnce() + Send + use<>>> {
        let mut state = self.state();
        if state.restoring.contains(node) {
            return None;
        }
        state.restoring = state.restoring.with(node);
        let lease = Arc::clone(self);
        Some(OnDrop::new(move || {
            let mut state = lease.state();
            state.restoring = state.restoring.without(node);
            lease.tell_if_settled(state);
        }))
    }

    /// Notifies those who wait for what is under way about a lock that is not held any more.
    fn tell_if_settled(&self, state: MutexGuard<'_, State>) {
        let is_over = state.phase != Phase::Held;
        // Whom it wakes may look at the lock at once.
        drop(state);
        if is_over {
            self.lost.notify_waiters();
        }
    }

    /// Returns at least twice `ttl`, so that no fence expires while its lock may be held.
    fn fence_ttl(&self, ttl: Duration) -> Duration {
        self.context.spec.settings.fence_ttl.max(2 * ttl)
    }

    /// Records that an extension begun at `start` reached its quorum, and whether a quorum remembers its floor. Returns
    /// false if it came too late.
    pub(crate) fn extended(&self, start: Moment, extending: Extending, is_raised: bool) -> bool {
        let mut state = self.state();
        let late = state.phase != Phase::Held || self.now() >= state.valid_until;
        if late {
            return false;
        }
        let Extending { number, ttl, sets, floor } = extending;
        state.level = state.level.max(floor.filter(|_| is_raised).unwrap_or(0));
        state.valid_until = state.valid_until.max(quorum::valid_until(start, ttl, self.margin(), self.limit));
        state.kept_until = state.kept_until.max(start.after(ttl));
        if sets && number > state.ttl_by {
            (state.ttl, state.ttl_by) = (ttl, number);
        }
        let is_last = number > state.carried;
        if is_last {
            state.carried = number;
            state.unanswered = None;
        }
        // Other extensions do not show when the keys must be renewed: the planned renewal is soon enough.
        if (is_last && ttl == state.ttl) || state.renew_at.is_none() {
            let unit = self.context.process.random.unit();
            self.plan(&mut state, start, unit);
        }
        true
    }

    /// Records the answers to a renewal without a quorum, and plans a retry.
    pub(crate) fn unanswered(&self, extending: Extending, nodes: Vec<NodeAnswer>) {
        let mut state = self.state();
        if extending.number > state.carried {
            state.unanswered = Some(nodes);
        } else if state.renew_at.is_some() {
            return;
        }
        let pause = backoff::unanswered(state.ttl, self.context.process.random.unit());
        state.renew_at = Some(self.now().after(pause));
    }

    /// Returns until when the lock is valid, and the ttl of renewals.
    pub(crate) fn validity(&self) -> (Moment, Duration) {
        let state = self.state();
        (state.valid_until, state.ttl)
    }

    /// Returns until when the lock is valid.
    pub(crate) fn valid_until(&self) -> Moment {
        self.state().valid_until
    }

    /// Waits until the lock is released, lost or expired. Cancel safe.
    pub(crate) async fn ended(&self) {
        let not_held = || (self.state().phase != Phase::Held).then_some(());
        loop {
            let end = self.valid_until();
            if self.now() >= end {
                return;
            }
            // An extension moves the end without a notification.
            if self.context.process.clock.timeout_at(end, pin!(notified_until(&self.lost, not_held))).await.is_some() {
                return;
            }
        }
    }

    /// Waits until the lock is lost; for ever once it is released. Returns `not_held` at once in a forked child. Cancel
    /// safe.
    pub(crate) async fn lost(self: Arc<Self>) -> Error {
        if self.context.process.is_foreign() {
            return self.error(ErrorKind::NotHeld);
        }
        let loss = notified_until(&self.lost, || match &self.state().phase {
            Phase::Lost(loss) => Some(loss.clone()),
            Phase::Held | Phase::Released | Phase::Detached => None,
        });
        self.lost_error(loss.await)
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        let message = match kind {
            ErrorKind::NotHeld => NOT_HELD,
            ErrorKind::Closed => "its client was closed while it was held: others may have had the lock since then",
            _ => "the call failed",
        };
        Error::new(kind, message).with_name(self.context.spec.name.bytes())
    }

    pub(crate) fn lost_error(&self, loss: Loss) -> Error {
        Error::lost(loss.reason).with_name(self.context.spec.name.bytes()).with_nodes(loss.nodes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::thread;

    use super::*;
    use crate::Redlock;

    /// Looks at the lock where it is woken, as an executor may that polls there.
    struct Look(Arc<Lease>);

    impl Wake for Look {
        fn wake(self: Arc<Self>) {
            self.0.validity();
        }
    }

    #[tokio::test]
    async fn whoever_is_woken_can_look_at_the_lock() {
        let guard = Redlock::new("memory://woken").unwrap().lock("foo").await.unwrap();
        let lease = Arc::clone(guard.lease());
        let asking = lease.begin_asking();
        guard.release().await.unwrap();
        let mut settled = pin!(lease.settled());
        let waker = Waker::from(Arc::new(Look(Arc::clone(&lease))));
        assert!(settled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(asking);
            sender.send(())
        });
        ended.recv_timeout(harness::LIMIT).expect("it is told");
        settled.await;
    }
}
