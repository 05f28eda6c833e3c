//! The lease of a held lock: what its guard, the background's renewals and its listeners share.
//!
//! Phases: *held* → *released* or *lost*; both are final. Every change happens under one mutex, so that a release, a
//! loss and a late extension exclude each other: once the phase has left *held*, no extension counts, nothing is put
//! back on a node and nothing is told.
//!
//! `is_held` is true only before `valid_until` on the suspend-aware clock at the moment of asking, whatever the phase says.
//! The first call after the end makes the loss final.
//!
//! *Extensions.* Any number of them can be under way at once: renewals, and explicit ones on several threads. Each gets a
//! number when it begins, and its answer may come in any order:
//!
//! - `valid_until` never falls;
//! - only an explicit extension that names a ttl sets the ttl of later renewals, and of several the one that began last;
//! - a renewal with another ttl than the one that is in force by then leaves the planned renewal as it is;
//! - a renewal without a quorum says nothing if an extension that began after it reached one.
//!
//! *A loss* is told in this order, all of it outside of the mutex: the entry leaves the agenda, the title is dropped (the
//! release begins), waiting futures and listeners are told. Only then the loss is logged, because a subscriber is the
//! program's code and may block.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, LostReason, NodeAnswer};
use crate::fault::{Fault, planted};
use crate::hold::claim::Claim;
use crate::hold::outcome::{Loss, Won};
use crate::hold::setnx::Grant;
use crate::net::connections::Member;
use crate::net::footprint::Footprint;
use crate::process::context::LockContext;
use crate::process::schedule::{Next, NotHeld, Unlogged};
use crate::process::waiters::Ends;
use crate::protocol::backoff;
use crate::protocol::quorum::{self, NodeMask};
use crate::protocol::request::{Action, Request};
use crate::sys::clock::Moment;
use crate::sys::future::notified_until;

/// A key that would live for less than this is not put back on a node.
const LEAST_LEFT: Duration = Duration::from_millis(1);

/// What a won attempt may delete on the nodes, in each protocol. Dropped, it is released.
#[derive(Debug)]
pub(crate) enum Ownership {
    Fenced(Claim),
    Setnx(Grant),
}

/// A lock that was won.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) context: LockContext,
    /// Zero, and told to nobody, in a protocol that has none.
    pub(crate) fence: u64,
    /// Latest end, by `max_hold`.
    limit: Option<Moment>,
    /// The nodes to which the acquire could not be sent.
    missed: NodeMask,
    state: Mutex<State>,
    lost: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    valid_until: Moment,
    /// Until when the keys of a quorum live at least.
    kept_until: Moment,
    /// The ttl of later renewals.
    ttl: Duration,
    /// The number of the extension that has set the ttl; 0 for the acquire.
    ttl_by: u64,
    /// The number of the extension that began last.
    begun: u64,
    /// The highest number of an extension that reached its quorum.
    carried: u64,
    ownership: Option<Ownership>,
    /// When to renew next; `None` where nothing is to be renewed, or a renewal is on its way.
    renew_at: Option<Moment>,
    /// When the last renewal or extension began.
    asked: Moment,
    /// What each node said to the last renewal, if that found no quorum; empty while the first one is on its way.
    unanswered: Option<Vec<NodeAnswer>>,
    /// This lock's place on the agenda of renewals.
    due: Option<(Moment, u64)>,
    /// Who is told of a loss, beside those who await it.
    listeners: Vec<LossCallback>,
    /// The nodes that the lock is about to be put back on.
    restoring: NodeMask,
}

/// Who is told of a loss: once, with the error, by whoever notices it. Dropped unheard when the lock is released.
#[derive(Clone)]
pub(crate) struct LossCallback(Arc<dyn OnLoss>);

/// What a listener does. It must neither block nor panic.
pub(crate) trait OnLoss: Send + Sync {
    /// The lock is lost.
    fn heard(&self, error: Error);
    /// Whether this listener has been ended and need not be told any more.
    fn is_over(&self) -> bool;
}

impl LossCallback {
    pub(crate) fn new(hear: impl OnLoss + 'static) -> Self {
        Self(Arc::new(hear))
    }

    /// Whether it need not be told any more.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Whether both are the same.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One extension on its way, as it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extending {
    /// Which one it is, in the order in which they begin.
    number: u64,
    /// What it asks for.
    ttl: Duration,
    /// Whether `ttl` is that of later renewals, too.
    sets: bool,
}

impl fmt::Debug for LossCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Released,
    Lost(Loss),
}

/// How a release begins.
#[derive(Debug)]
pub(crate) enum ReleaseBegun {
    /// The keys are to be deleted.
    Release(Ownership),
    /// It was released before: nothing to do.
    Already,
}

impl Ends for Lease {
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.ended())
    }

    fn is_held(&self) -> bool {
        self.remaining_here().is_ok()
    }

    fn valid_until(&self) -> Moment {
        self.valid_until()
    }
}

impl Lease {
    pub(crate) fn new(context: LockContext, won: Won<Ownership>) -> Self {
        let limit = context.spec.settings.max_hold.map(|max_hold| won.acquired.after(max_hold));
        let ttl = context.spec.settings.ttl;
        let state = State {
            phase: Phase::Held,
            valid_until: won.valid_until,
            kept_until: won.acquired.after(ttl),
            ttl,
            ttl_by: 0,
            begun: 0,
            carried: 0,
            ownership: Some(won.right),
            renew_at: None,
            asked: won.acquired,
            unanswered: None,
            due: None,
            listeners: Vec::new(),
            restoring: NodeMask::NONE,
        };
        let (fence, missed) = (won.fence, won.missed);
        let lease = Self { context, fence, limit, missed, state: Mutex::new(state), lost: Notify::new() };
        lease.plan(&mut lease.state(), won.acquired, won.unit);
        lease
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding this")
    }

    fn now(&self) -> Moment {
        self.context.process.clock.now()
    }

    /// Whether the lock is renewed at all, and not as far as it may be.
    fn is_renewed(&self, state: &State) -> bool {
        self.context.spec.settings.auto_renew && self.limit.is_none_or(|limit| state.valid_until < limit)
    }

    /// Plans the next renewal after one that began at `start`; `unit` spreads it.
    fn plan(&self, state: &mut State, start: Moment, unit: f64) {
        state.renew_at = self.is_renewed(state).then(|| backoff::renewal(start, state.ttl, unit));
    }

    /// A node may have forgotten the lock: renew it `within` this time, but not more often than a renewal that nobody
    /// answers. False if nothing changes.
    pub(crate) fn bring_forward(&self, within: Duration) -> bool {
        let mut state = self.state();
        let Some(renew_at) = state.renew_at.filter(|_| state.phase == Phase::Held) else { return false };
        let random = &self.context.process.random;
        let soon = self.now().after(within.mul_f64(random.unit()));
        let soon = soon.max(state.asked.after(backoff::unanswered(state.ttl, random.unit())));
        state.renew_at = Some(renew_at.min(soon));
        soon < renew_at
    }

    /// How long the lock can still be relied on.
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

    /// As [`Lease::remaining`], for callers that know that this is not a forked child.
    pub(crate) fn remaining_here(&self) -> Result<Duration, Error> {
        let now = self.now();
        let state = self.state();
        match &state.phase {
            Phase::Held if now < state.valid_until => Ok(state.valid_until.since(now)),
            Phase::Held => Err(self.expire_now(state, now)),
            Phase::Lost(loss) => Err(self.lost_error(loss.clone())),
            Phase::Released => Err(self.error(ErrorKind::NotHeld)),
        }
    }

    /// Ends the lock if its validity has ended.
    pub(crate) fn expire_if_due(&self) -> Option<Unlogged> {
        let now = self.now();
        let state = self.state();
        (state.phase == Phase::Held && now >= state.valid_until).then(|| self.expire(state, now).1)
    }

    /// Ends a lock whose validity has ended, for who asks about it.
    fn expire_now(&self, state: MutexGuard<'_, State>, now: Moment) -> Error {
        let (loss, unlogged) = self.expire(state, now);
        unlogged.log();
        self.lost_error(loss)
    }

    /// Ends a lock whose validity has ended.
    fn expire(&self, mut state: MutexGuard<'_, State>, now: Moment) -> (Loss, Unlogged) {
        let loss = if self.limit.is_some_and(|limit| limit <= now) {
            LostReason::MaxHold.into()
        } else if let Some(nodes) = state.unanswered.take() {
            let nodes = if nodes.is_empty() { self.unheard() } else { nodes };
            Loss { reason: LostReason::Unreachable, nodes }
        } else {
            LostReason::Expired.into()
        };
        let unlogged = self.mark_lost(state, &loss);
        (loss, unlogged)
    }

    /// What there is to say of the nodes before any of them has answered a renewal.
    fn unheard(&self) -> Vec<NodeAnswer> {
        let unheard =
            |member: &Member| NodeAnswer { node: member.address.to_string(), answer: "no answer yet".to_owned() };
        self.context.set.members.nodes.iter().map(unheard).collect()
    }

    /// Ends a held lock and tells everybody but the log. Its title is dropped outside the mutex, which releases
    /// everywhere.
    fn mark_lost(&self, mut state: MutexGuard<'_, State>, loss: &Loss) -> Unlogged {
        let unlogged = Unlogged::new(&self.context.spec.name, loss.reason);
        state.phase = Phase::Lost(loss.clone());
        let ownership = state.ownership.take();
        let due = state.due.take();
        let listeners = std::mem::take(&mut state.listeners);
        drop(state);
        self.context.process.schedule.remove(due);
        drop(ownership);
        self.lost.notify_waiters();
        for LossCallback(listener) in listeners {
            listener.heard(self.lost_error(loss.clone()));
        }
        unlogged
    }

    /// Tells `listener` of the loss of this lock; at once if it is lost already. Each listener is told once. After a
    /// release there is nothing to tell.
    pub(crate) fn on_lost(&self, listener: LossCallback) {
        let mut state = self.state();
        let loss = match &state.phase {
            Phase::Held => {
                state.listeners.push(listener);
                return;
            }
            Phase::Released => return,
            Phase::Lost(loss) => loss.clone(),
        };
        drop(state);
        listener.0.heard(self.lost_error(loss));
    }

    /// Loses the lock if it is still held.
    pub(crate) fn lose(&self, loss: &Loss) {
        let state = self.state();
        if state.phase == Phase::Held {
            self.mark_lost(state, loss).log();
        }
    }

    /// Begins a release: from here on the lock is not held, and nothing is renewed or put back. Not for a forked child.
    ///
    /// # Errors
    ///
    /// `lost` where the lock was lost before.
    pub(crate) fn begin_release(&self) -> Result<ReleaseBegun, Error> {
        let now = self.now();
        let mut state = self.state();
        match &state.phase {
            Phase::Released => return Ok(ReleaseBegun::Already),
            Phase::Lost(loss) => return Err(self.lost_error(loss.clone())),
            Phase::Held if now >= state.valid_until => return Err(self.expire_now(state, now)),
            Phase::Held => state.phase = Phase::Released,
        }
        let ownership = state.ownership.take().expect("held locks have their title");
        let due = state.due.take();
        let listeners = std::mem::take(&mut state.listeners);
        drop(state);
        drop(listeners);
        self.context.process.schedule.remove(due);
        self.lost.notify_waiters();
        Ok(ReleaseBegun::Release(ownership))
    }

    /// Begins an extension to `ttl`, or by the ttl in force: what it has to ask, and the footprint its answers belong to.
    /// `None` when not held, and in a protocol without extensions.
    pub(crate) fn extension(&self, ttl: Option<Duration>) -> Option<(Extending, Request, Arc<Footprint>)> {
        let mut state = self.state();
        state.asked = self.now();
        state.begun += 1;
        let extending = Extending { number: state.begun, ttl: ttl.unwrap_or(state.ttl), sets: ttl.is_some() };
        let ttl = extending.ttl;
        let Some(Ownership::Fenced(claim)) = &state.ownership else { return None };
        claim.raise_ttl(ttl);
        let action = Action::Extend { ttl, fence: self.fence, fence_ttl: self.fence_ttl(ttl) };
        Some((extending, claim.request(action), Arc::clone(claim.footprint())))
    }

    /// What puts the lock back on a node, for as long as the others keep it. `queue` is called under the mutex with the
    /// ttl in force, so that a release that begins afterwards finds the footprint of what it queued; `None` when not
    /// held.
    pub(crate) fn restore<T>(&self, queue: impl FnOnce(Request, &Arc<Footprint>, Duration) -> T) -> Option<T> {
        let state = self.state();
        let Some(Ownership::Fenced(claim)) = &state.ownership else { return None };
        let left = state.kept_until.since(self.now());
        if left < LEAST_LEFT {
            return None;
        }
        let action = Action::Restore {
            ttl: left,
            fence: self.fence,
            fence_ttl: self.fence_ttl(state.ttl),
            label: Arc::clone(&self.context.spec.settings.label),
        };
        Some(queue(claim.request(action), claim.footprint(), state.ttl))
    }

    /// Begins to put the lock back on `node`. False while that is under way already.
    pub(crate) fn begin_restoring(&self, node: usize) -> bool {
        let mut state = self.state();
        let is_first = !state.restoring.contains(node);
        state.restoring = state.restoring.with(node);
        is_first
    }

    /// What was begun for `node` is over.
    pub(crate) fn end_restoring(&self, node: usize) {
        let mut state = self.state();
        state.restoring = state.restoring.without(node);
    }

    /// The nodes to which the acquire could not be sent.
    pub(crate) fn missed(&self) -> NodeMask {
        self.missed
    }

    /// Whether the lock may be missing on `node`, to which there is a new connection, and no renewal is planned that
    /// would find out: nothing was sent there, or it is not renewed and the node may have forgotten it.
    pub(crate) fn may_lack(&self, node: usize) -> bool {
        let state = self.state();
        let Some(Ownership::Fenced(claim)) = &state.ownership else { return false };
        !self.is_renewed(&state) || claim.footprint().has_nothing(node)
    }

    /// At least twice the ttl in force, so that no fence is forgotten while its lock may be held.
    fn fence_ttl(&self, ttl: Duration) -> Duration {
        self.context.spec.settings.fence_ttl.max(2 * ttl)
    }

    /// An extension that began at `start` reached its quorum. False if that came too late to count.
    pub(crate) fn extended(&self, start: Moment, extending: Extending) -> bool {
        let mut state = self.state();
        let late = state.phase != Phase::Held || self.now() >= state.valid_until;
        if late && planted(Fault::LateExtension) && state.phase != Phase::Released {
            state.phase = Phase::Held;
        } else if late {
            return false;
        }
        let Extending { number, ttl, sets } = extending;
        state.valid_until = state.valid_until.max(quorum::valid_until(start, ttl, self.limit));
        state.kept_until = state.kept_until.max(start.after(ttl));
        if sets && number > state.ttl_by {
            (state.ttl, state.ttl_by) = (ttl, number);
        }
        let is_last = number > state.carried;
        if is_last {
            state.carried = number;
            state.unanswered = None;
        }
        // Any other one says nothing of when the keys have to be renewed; what is planned is soon enough.
        if (is_last && ttl == state.ttl) || state.renew_at.is_none() {
            let unit = self.context.process.random.unit();
            self.plan(&mut state, start, unit);
        }
        true
    }

    /// A renewal found no quorum, but what each node said: try again soon.
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

    /// Until when the lock can be relied on.
    pub(crate) fn valid_until(&self) -> Moment {
        self.state().valid_until
    }

    /// What is to be done about this lock at `now`.
    pub(crate) fn next(&self, now: Moment) -> Next {
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
                // Until a quorum answers: the end of the validity may come before the renewal gives up.
                state.unanswered.get_or_insert_default();
                Next::Renew(state.valid_until)
            }
            Some(renew_at) => Next::Sleep(renew_at.min(state.valid_until)),
            None => Next::Sleep(state.valid_until),
        }
    }

    /// Notes the lock's place on the agenda and returns the one it had; an error if it must not have one any more.
    pub(crate) fn entered(&self, due: (Moment, u64)) -> Result<Option<(Moment, u64)>, NotHeld> {
        let mut state = self.state();
        if state.phase == Phase::Held { Ok(state.due.replace(due)) } else { Err(NotHeld) }
    }

    /// Waits until the lock is not held any more, be it released, lost or run out. Cancel safe.
    pub(crate) async fn ended(&self) {
        let not_held = || (self.state().phase != Phase::Held).then_some(());
        loop {
            let end = self.valid_until();
            if self.now() >= end {
                return;
            }
            // An extension moves the end, and tells nobody.
            if self.context.process.clock.timeout_at(end, notified_until(&self.lost, not_held)).await.is_some() {
                return;
            }
        }
    }

    /// Waits until the lock is lost; for ever once it is released. In a forked child it is not held from the start.
    /// Cancel safe.
    pub(crate) async fn lost(self: Arc<Self>) -> Error {
        if self.context.process.is_foreign() {
            return self.error(ErrorKind::NotHeld);
        }
        let loss = notified_until(&self.lost, || match &self.state().phase {
            Phase::Lost(loss) => Some(loss.clone()),
            Phase::Held | Phase::Released => None,
        });
        self.lost_error(loss.await)
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        let message = match kind {
            ErrorKind::NotHeld => "not held: it was released, or never acquired by this process",
            _ => "the call failed",
        };
        Error::new(kind, message).with_name(self.context.spec.name.bytes())
    }

    pub(crate) fn lost_error(&self, loss: Loss) -> Error {
        Error::lost(loss.reason).with_name(self.context.spec.name.bytes()).with_nodes(loss.nodes)
    }
}
