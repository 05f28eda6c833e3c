//! A lock as an object, for languages where one object is acquired, released and acquired again. One object is one
//! holder at any time.
//!
//! Hidden: for the bindings. An object is *idle*, then *acquiring*, then *held*, and after a release idle again. One
//! mutex guards this state. No code awaits or drops anything while it holds the mutex. A lost lease stays in the
//! object, and the object reports the loss, until the lease is released or, outside of a block, another acquire
//! replaces it. What may interrupt a call:
//!
//! - An acquire that fails, is cancelled or panics drops its reservation, which makes the object idle again.
//! - A release takes the lease out of the object before it sends anything. A second release finds nothing to do.
//! - `interrupted` may use this object and others. It finds this object in the state in which the call has left it, so
//!   another acquire during an acquire fails with `already_held`.
//! - A fork: the child has an idle object of its own, and does not touch the parent's lease.
//! - A drop while the object is held releases the lock, as the drop of a guard does. A language that collects garbage
//!   first calls `abandon`, because a program without a reference to the object may still work under its lock.

use std::cell::Cell;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::race::OnceBox;
use tokio::runtime::Id;

use crate::acquire::thread::{Caller, Stop, acquire_unless, drive_unless};
use crate::api::client::Redlock;
use crate::api::inspect;
use crate::api::lock::{Fixed, Lock, ignore_unconfirmed};
use crate::bindings::calls::{Call, Taken};
use crate::error::{Error, ErrorKind, LostReason, Waited};
use crate::hold;
use crate::hold::detach::{Detaching, detach};
use crate::hold::lease::{Lease, NOT_HELD, OnLoss};
use crate::hold::owner::LeaseOwner;
use crate::options::{self, Protocol};
use crate::process::context::{LockContext, Spec};
use crate::process::waiters::Leaving;
use crate::protocol::shape::Shape;
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::texts::opaque;

/// The timeout of one call: left out (the lock's own timeout applies), none (the call waits for ever), or a duration.
pub type Timeout = Option<Option<Duration>>;

/// Makes the lock of the terms of an election.
pub fn term(client: &Redlock, name: &[u8]) -> Lock<Fixed> {
    Lock::new(Arc::clone(client.session()), Shape::Term(name.into()))
}

/// One lock object.
pub struct LockObject {
    origin: Origin,
    /// Whether the object that this one replaces had a lease.
    released: bool,
    local: PerProcess<ProcessLocal>,
    /// Whether this process, or the one that it was forked from, has a lease here. Known without asking for the pid.
    has_lease: AtomicBool,
    /// Whether the detached lock that it was made for was attached, so that an acquire is an acquire.
    attached: AtomicBool,
}

/// The name and the options of an object.
#[derive(Clone)]
enum Origin {
    Lock(Box<Lock<Fixed>>),
    /// Another object, whose options were checked, and other names.
    Named(Arc<LockObject>, Shape),
}

/// The part of an object that belongs to one process.
#[derive(Debug)]
struct ProcessLocal {
    spec: OnceBox<Arc<Spec>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The callbacks for the loss of each lease.
    listeners: Vec<Arc<dyn OnLoss>>,
    /// How the last acquire waited, if it failed.
    failed: Option<Waited>,
}

#[derive(Debug)]
enum Phase {
    Idle {
        /// Whether the object had a lease before, so that another release is not an error.
        released: bool,
    },
    Acquiring,
    Held(CurrentLease),
}

/// A lease and the runtime it belongs to.
#[derive(Debug)]
pub(crate) struct CurrentLease {
    pub(crate) owner: LeaseOwner,
    /// The runtime whose connections know about the lease; `None` for the background's.
    runtime: Option<Id>,
    /// Whether the end of a block releases it. If an exception keeps the program from entering the block, or if the
    /// block's coroutine is destroyed, only the drop of the object can.
    in_block: bool,
    /// Whether it was attached, and a block may still enter it.
    is_attached: bool,
}

/// A hold whose object was garbage-collected while it was held. No code can release it any more. It is renewed like any
/// other, until it is lost or reaches `max_hold`. Dropping it releases it.
#[derive(Debug)]
pub struct AbandonedHold(LeaseOwner);

/// The right to become the holder. Dropping it unused makes the object idle again.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// `None` once it is used.
    object: Option<Arc<LockObject>>,
    released: bool,
    in_block: bool,
}

impl LockObject {
    /// Makes an object for `lock`, not held.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong name or option.
    pub fn new(lock: impl Into<Lock<Fixed>>) -> Result<Arc<Self>, Error> {
        let object = Self::of(Origin::Lock(Box::new(lock.into())), false);
        object.context(Pid::now(), None)?;
        Ok(object)
    }

    /// Makes another object for the same lock, not held.
    #[must_use]
    pub fn fresh(&self) -> Arc<Self> {
        let origin = match &self.origin {
            Origin::Lock(lock) => Origin::Lock(Box::new(lock.anew())),
            Origin::Named(template, shape) => Origin::Named(Arc::clone(template), shape.anew()),
        };
        Self::of(origin, false)
    }

    /// Makes an object for another name with the same options, not held. Its first call checks the name. `released` says
    /// whether it replaces an object that was dropped after its release, so that another release is not an error.
    #[must_use]
    pub fn named(self: &Arc<Self>, name: &[u8], released: bool) -> Arc<Self> {
        Self::of(Origin::Named(Arc::clone(self), self.shape().named(name.into())), released)
    }

    /// Does as [`LockObject::named`] for several names.
    #[must_use]
    pub fn named_all(self: &Arc<Self>, names: &[&[u8]], released: bool) -> Arc<Self> {
        let shape = self.shape().named_all(names);
        Self::of(Origin::Named(Arc::clone(self), shape), released)
    }

    fn of(origin: Origin, released: bool) -> Arc<Self> {
        let local = PerProcess::dropped_if(ProcessLocal::shares_nothing);
        let (has_lease, attached) = (AtomicBool::new(false), AtomicBool::new(released));
        Arc::new(Self { origin, released, local, has_lease, attached })
    }

    fn shape(&self) -> &Shape {
        match &self.origin {
            Origin::Lock(lock) => lock.shape(),
            Origin::Named(_, shape) => shape,
        }
    }

    /// Returns the lock's name. Several names are joined by a comma and a space.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.shape().name()
    }

    /// Returns the names of the lock, sorted, each once.
    #[must_use]
    pub fn names(&self) -> Vec<&[u8]> {
        self.shape().names()
    }

    /// Returns the slot of the current lease, even if it is lost; `None` without a lease and outside of a semaphore.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.lease(Pid::now()).ok()?.slot
    }

    /// Returns the lock that has the options of this object, and perhaps another name.
    fn lock(&self) -> &Lock<Fixed> {
        match &self.origin {
            Origin::Lock(lock) => lock,
            Origin::Named(template, _) => template.lock(),
        }
    }

    /// Returns what errors show: each name behind the client's prefix.
    fn shown(&self) -> Vec<u8> {
        self.lock().session().shown(self.shape())
    }

    /// Returns the checked name and options. Each process has another default label.
    fn spec(&self, pid: Pid) -> Result<&Arc<Spec>, Error> {
        self.local(pid).spec.get_or_try_init(|| {
            let spec = match &self.origin {
                Origin::Lock(lock) => lock.spec(pid),
                Origin::Named(template, shape) => {
                    let settings = template.spec(pid)?.settings.clone();
                    self.lock().session().spec_with(shape, settings)
                }
            };
            spec.map(Box::new)
        })
    }

    /// Has the object lose its lock now, as a guard does with `Guard::lose`. For the tests of programs.
    ///
    /// # Errors
    ///
    /// `not_held` before an acquire and after a release; `invalid_argument` for an unknown reason.
    pub fn lose(&self, reason: &str) -> Result<(), Error> {
        let known = LostReason::ALL.into_iter().find(|known| known.as_str() == reason).ok_or_else(|| {
            let all = LostReason::ALL.map(LostReason::as_str).join(", ");
            Error::invalid(format!("reason must be one of {all}, not {reason:?}")).with_option("reason")
        })?;
        self.lease(Pid::now())?.lose(&known.into());
        Ok(())
    }

    /// Returns the fencing token of the current lease, even if it is lost.
    ///
    /// # Errors
    ///
    /// `not_held` before an acquire and after a release; `invalid_argument` in a protocol without fences.
    pub fn fence(&self) -> Result<u64, Error> {
        let pid = Pid::now();
        self.check_allowed(pid, Protocol::allows_fence)?;
        self.lease(pid).map(|lease| lease.fence)
    }

    /// Returns how the acquire of the current lease waited, or how the last one did if it failed. `None` during an
    /// acquire, after one that was refused or cancelled, and after a release.
    #[must_use]
    pub fn waited(&self) -> Option<Waited> {
        let state = self.local(Pid::now()).state.lock();
        match &state.phase {
            Phase::Held(current) => Some(current.owner.lease().meter.waited),
            _ => state.failed,
        }
    }

    /// Returns whether the lock is held at this moment.
    #[must_use]
    pub fn held(&self) -> bool {
        // Most objects are released before they are dropped, which asks this. The query for the pid is a system call.
        self.has_lease.load(Ordering::Acquire)
            && self.lease(Pid::now()).is_ok_and(|lease| lease.remaining_here().is_ok())
    }

    /// Returns for how long the lock is still valid; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease(Pid::now()).and_then(|lease| lease.remaining_here()).unwrap_or(Duration::ZERO)
    }

    /// Fails if the lock is not held at this moment.
    ///
    /// # Errors
    ///
    /// `lost` with its reason; `not_held` before an acquire, after a release and in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        self.lease(Pid::now())?.remaining_here().map(drop)
    }

    /// Returns whether the object had a lease, released it, and does nothing now. Such an object can be dropped and made
    /// anew with [`LockObject::named`].
    #[must_use]
    pub fn is_released(&self) -> bool {
        matches!(self.local(Pid::now()).state.lock().phase, Phase::Idle { released: true })
    }

    /// Takes the hold out of an object that is garbage-collected, and logs that. `None` if the
    /// lock is not held, or was acquired for a block. The drop of the object releases the latter.
    #[must_use]
    pub fn abandon(&self) -> Option<AbandonedHold> {
        if !self.held() || self.is_in_block() {
            return None;
        }
        let owner = self.take_lease(Pid::now()).ok()??.owner;
        log!(LOCK_ABANDONED, name = %owner.lease().context.spec.name,
            "the object of a held lock was garbage-collected, so the lock stays held: keep the object and release it, or \
             use `with` (Python) or `using` (Node)");
        Some(AbandonedHold(owner))
    }

    /// Returns whether the current lease was acquired for a block.
    #[must_use]
    pub fn is_in_block(&self) -> bool {
        matches!(&self.local(Pid::now()).state.lock().phase, Phase::Held(current) if current.in_block)
    }

    /// Acquires on the calling thread. Calls `waits` before the thread begins to wait, and `interrupted`, if given, every
    /// 25 ms. If one of them fails, the call ends with its error and leaves no key behind. `interrupted` may make calls like
    /// this one.
    ///
    /// # Errors
    ///
    /// `already_held`, and those of [`Lock::acquire`]; `timeout` also for a timeout of zero; those of `waits` and
    /// `interrupted`.
    pub fn acquire<E>(
        self: &Arc<Self>,
        timeout: Timeout,
        waits: impl FnOnce() -> Result<(), E>,
        interrupted: Option<impl FnMut() -> Result<(), E>>,
    ) -> Result<(), Stop<E>> {
        let pid = Pid::now();
        self.acquire_with(self.reserve(pid, false)?, pid, timeout, waits, interrupted)
    }

    /// Acquires as [`LockObject::acquire`] does, for a block that [`LockObject::release_at_exit`] ends. The first block of
    /// an attached lock goes on with its hold.
    ///
    /// # Errors
    ///
    /// Those of [`LockObject::acquire`], and `lost` if that hold was lost.
    pub fn enter<E>(
        self: &Arc<Self>,
        waits: impl FnOnce() -> Result<(), E>,
        interrupted: Option<impl FnMut() -> Result<(), E>>,
    ) -> Result<(), Stop<E>> {
        let pid = Pid::now();
        if self.enter_attached(pid)? {
            return Ok(());
        }
        self.acquire_with(self.reserve(pid, true)?, pid, None, waits, interrupted)
    }

    fn acquire_with<E>(
        &self,
        reservation: Reservation,
        pid: Pid,
        timeout: Timeout,
        waits: impl FnOnce() -> Result<(), E>,
        interrupted: Option<impl FnMut() -> Result<(), E>>,
    ) -> Result<(), Stop<E>> {
        let context = self.context(pid, timeout)?;
        let process = Arc::clone(&context.process);
        process.shutdown.park_if_shut_down();
        let asked = Cell::new(false);
        let interrupted = interrupted.map(|mut interrupted| {
            let asked = &asked;
            move || {
                asked.set(true);
                interrupted()
            }
        });
        let acquired = acquire_unless(context, waits, interrupted);
        // The acquire may have failed because the process is ending.
        process.shutdown.park_if_shut_down();
        let (owner, runtime) = match acquired {
            Ok(acquired) => acquired,
            Err(Stop::Failed(error)) => return Err(Stop::Failed(reservation.failed(error))),
            Err(interrupted) => return Err(interrupted),
        };
        // `interrupted` may have forked.
        let pid = if asked.get() { Pid::now() } else { pid };
        reservation.complete(pid, owner, runtime);
        Ok(())
    }

    /// Extends on the calling thread, to `ttl` or by the ttl in force.
    ///
    /// # Errors
    ///
    /// `not_held`, those of [`crate::Guard::extend_for`], and `invalid_argument` in a protocol without extensions.
    pub fn extend<E>(
        &self,
        ttl: Option<Duration>,
        interrupted: Option<impl FnMut() -> Result<(), E>>,
    ) -> Result<(), Stop<E>> {
        let Extension { lease, ttl, runtime } = self.extension(Pid::now(), ttl)?;
        drive_unless(&Caller::of(&Arc::clone(&lease), runtime), hold::extend(lease, ttl.into()), interrupted)
    }

    /// Has the end of a block release the current hold, as after [`LockObject::enter`].
    pub fn begin_block(&self) {
        if let Phase::Held(current) = &mut self.local(Pid::now()).state.lock().phase {
            current.in_block = true;
        }
    }

    /// Has the end of a block release the current hold, if it was attached. Returns whether it was.
    ///
    /// # Errors
    ///
    /// `lost` if it was attached, and lost since: the block would go on with another hold.
    pub fn enter_attached(&self, pid: Pid) -> Result<bool, Error> {
        if !self.has_lease.load(Ordering::Acquire) {
            return Ok(false);
        }
        let Ok(lease) = self.lease(pid) else { return Ok(false) };
        let held = lease.remaining_here();
        let mut state = self.local(pid).state.lock();
        let Phase::Held(current) = &mut state.phase else { return Ok(false) };
        if !mem::take(&mut current.is_attached) {
            return Ok(false);
        }
        current.in_block = held.is_ok();
        held.map(|_| true)
    }

    /// Ends the hold without a release, on the calling thread, after an extension to `ttl` if there is one. The drop of what
    /// is returned releases the lock, unless its text is taken.
    ///
    /// # Errors
    ///
    /// `not_held`, those of [`crate::Guard::detach_for`], and `invalid_argument` for the term of an election, and in a
    /// protocol whose keys do not show their owner.
    pub fn detach<E>(
        &self,
        ttl: Option<Duration>,
        interrupted: Option<impl FnMut() -> Result<(), E>>,
    ) -> Result<Detaching, Stop<E>> {
        let Extension { lease, ttl, runtime } = self.detaching(Pid::now(), ttl)?;
        drive_unless(&Caller::of(&Arc::clone(&lease), runtime), detach(lease, ttl), interrupted)
    }

    /// Releases on the calling thread. If the call is interrupted, the background finishes the release.
    ///
    /// # Errors
    ///
    /// `not_held` before an acquire, and those of [`crate::Guard::release`]. A second release is not an error.
    pub fn release<E>(&self, interrupted: Option<impl FnMut() -> Result<(), E>>) -> Result<(), Stop<E>> {
        let Some(CurrentLease { owner, runtime, .. }) = self.take_lease(Pid::now())? else { return Ok(()) };
        let lease = Arc::clone(owner.lease());
        drive_unless(&Caller::of(&lease, runtime), hold::release(owner), interrupted)
    }

    /// Releases at the end of a block. Works as [`LockObject::release`], but also succeeds if there is nothing to
    /// release, or if no quorum confirms the release.
    ///
    /// # Errors
    ///
    /// `lost` or `closed`.
    pub fn release_at_exit<E>(&self, interrupted: Option<impl FnMut() -> Result<(), E>>) -> Result<(), Stop<E>> {
        match self.release(interrupted) {
            Err(Stop::Failed(error)) => Ok(ignore_unconfirmed(Err(error))?),
            released => released,
        }
    }

    /// Asks the nodes whether anybody holds the lock; see [`Lock::is_locked`].
    ///
    /// # Errors
    ///
    /// `invalid_argument` or `closed`.
    pub fn is_locked(&self) -> Result<Call, Error> {
        let pid = Pid::now();
        self.check_allowed(pid, Protocol::allows_is_locked)?;
        let context = self.context(pid, None)?;
        let locked = inspect::is_locked(context.clone());
        Ok(Call::about(&context, async move { locked.await.map(Taken::IsLocked) }))
    }

    /// Reads whose the lock is; see [`Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    ///
    /// `invalid_argument` or `closed`.
    pub fn view(&self) -> Result<Call, Error> {
        let context = self.context(Pid::now(), None)?;
        let view = inspect::inspect_known(context.clone());
        Ok(Call::about(&context, async move { view.await.map(|view| Taken::Views(vec![view])) }))
    }

    /// Waits until the current hold is lost or released, but for at most `limit`. Fails with the loss, if there was one.
    ///
    /// # Errors
    ///
    /// `not_held` before an acquire, after a release and in a forked child.
    pub fn wait_lost(&self, limit: Option<Duration>) -> Result<Call, Error> {
        let lease = self.lease(Pid::now())?;
        let clock = lease.context.process.clock.clone();
        Ok(Call::waiting(async move {
            match limit.map(options::checked_timeout) {
                Some(limit) => drop(clock.timeout(limit, pin!(lease.ended())).await),
                None => lease.ended().await,
            }
            let loss = lease.remaining_here().err().filter(|error| error.kind() == ErrorKind::Lost);
            loss.map_or(Ok(Taken::Completed), Err)
        }))
    }

    /// Returns the options in force that the lock or its client was given, by name.
    #[must_use]
    pub fn given_options(&self) -> Vec<(&'static str, options::Value)> {
        let in_force = self.lock().options_in_force();
        let shared = self.shape().is_shared().then_some(("shared", options::Value::Flag(true)));
        let given = options::OPTIONS.iter().filter_map(|row| Some((row.name, (row.given)(&in_force)?)));
        shared.into_iter().chain(given).collect()
    }

    fn local(&self, pid: Pid) -> &ProcessLocal {
        self.local.of(pid, || ProcessLocal {
            spec: OnceBox::new(),
            state: Mutex::new(State {
                phase: Phase::Idle { released: self.released },
                listeners: Vec::new(),
                failed: None,
            }),
        })
    }

    /// Returns the context of an acquire with `timeout`.
    pub(crate) fn context(&self, pid: Pid, timeout: Timeout) -> Result<LockContext, Error> {
        let spec = self.spec(pid)?;
        let mut spec = Arc::clone(spec);
        if let Some(timeout) = timeout {
            Arc::make_mut(&mut spec).settings.timeout = timeout.map(options::checked_timeout);
        }
        if spec.detached.is_some() && self.attached.load(Ordering::Acquire) {
            Arc::make_mut(&mut spec).detached = None;
        }
        self.lock().session().context_of(pid, spec)
    }

    /// Begins an acquire, `in_block` for a hold that the end of a block releases.
    ///
    /// # Errors
    ///
    /// `already_held` while the lock is held or being acquired, and until the end of a block that has lost it.
    pub(crate) fn reserve(self: &Arc<Self>, pid: Pid, in_block: bool) -> Result<Reservation, Error> {
        let before = self.lease(pid).ok();
        if before.as_ref().is_some_and(|lease| lease.remaining_here().is_ok()) {
            return Err(self.already_held(HELD));
        }
        let mut state = self.local(pid).state.lock();
        let released = match &state.phase {
            Phase::Idle { released } => *released,
            Phase::Acquiring => return Err(self.already_held(ACQUIRING)),
            // Its client was closed.
            Phase::Held(current) if current.owner.lease().is_released() => true,
            Phase::Held(current) if before.is_some_and(|before| Arc::ptr_eq(&before, current.owner.lease())) => {
                // The check above found this lease lost, which is final. The end of a block has yet to say so, and would
                // release the next hold instead.
                if current.in_block {
                    return Err(self.already_held(IN_BLOCK));
                }
                true
            }
            Phase::Held(_) => return Err(self.already_held(HELD)),
        };
        let former = self.set_phase(&mut state, Phase::Acquiring);
        state.failed = None;
        drop(state);
        drop(former);
        Ok(Reservation { object: Some(Arc::clone(self)), released, in_block })
    }

    /// Begins an extension to `ttl`, or by the ttl in force.
    pub(crate) fn extension(&self, pid: Pid, ttl: Option<Duration>) -> Result<Extension, Error> {
        self.check_allowed(pid, Protocol::allows_extend)?;
        self.extension_of(pid, ttl)
    }

    /// Begins to detach the lock, after an extension to `ttl` if there is one.
    pub(crate) fn detaching(&self, pid: Pid, ttl: Option<Duration>) -> Result<Extension, Error> {
        self.spec(pid)?.allows_detach()?;
        self.extension_of(pid, ttl)
    }

    fn extension_of(&self, pid: Pid, ttl: Option<Duration>) -> Result<Extension, Error> {
        let state = self.local(pid).state.lock();
        let Phase::Held(current) = &state.phase else { return Err(self.not_held()) };
        let (lease, runtime) = (Arc::clone(current.owner.lease()), current.runtime);
        drop(state);
        let ttl = ttl.map(|ttl| hold::checked(&lease, ttl)).transpose()?;
        Ok(Extension { lease, ttl, runtime })
    }

    /// Takes the lease out of the object, for its release. Returns `None` if it was released before.
    ///
    /// # Errors
    ///
    /// `not_held` if there was no lease, or another acquire has begun.
    pub(crate) fn take_lease(&self, pid: Pid) -> Result<Option<CurrentLease>, Error> {
        let mut state = self.local(pid).state.lock();
        match self.set_phase(&mut state, Phase::Idle { released: true }) {
            Phase::Held(current) => Ok(Some(current)),
            Phase::Idle { released: true } => Ok(None),
            other => {
                self.set_phase(&mut state, other);
                Err(self.not_held())
            }
        }
    }

    /// Calls `listener` at the loss of each lease from now on, once for each. Also calls it for the current lease if
    /// that is lost already. A lease is current until it is released or another acquire begins.
    pub(crate) fn on_lost(&self, pid: Pid, listener: Arc<dyn OnLoss>) {
        // Asks outside the mutex, because a listener locks a mutex of its own.
        let mut ended = self.local(pid).state.lock().listeners.clone();
        ended.retain(|listener| listener.is_over());
        let mut state = self.local(pid).state.lock();
        state.listeners.retain(|listener| !ended.iter().any(|ended| Arc::ptr_eq(ended, listener)));
        state.listeners.push(listener.clone());
        let lease = match &state.phase {
            Phase::Held(current) => Some(Arc::clone(current.owner.lease())),
            _ => None,
        };
        drop(state);
        drop(ended);
        if let Some(lease) = lease {
            lease.on_lost(listener);
        }
    }

    /// Fails if the lock's protocol does not allow the call, whether the lock is held or not.
    fn check_allowed(&self, pid: Pid, allows: fn(Protocol) -> Result<(), Error>) -> Result<(), Error> {
        allows(self.spec(pid)?.settings.protocol).map_err(|error| error.with_name(&self.shown()))
    }

    /// Changes the phase, and returns the former one.
    fn set_phase(&self, state: &mut State, phase: Phase) -> Phase {
        self.has_lease.store(matches!(phase, Phase::Held(_)), Ordering::Release);
        mem::replace(&mut state.phase, phase)
    }

    fn lease(&self, pid: Pid) -> Result<Arc<Lease>, Error> {
        match &self.local(pid).state.lock().phase {
            // Its client may have been closed.
            Phase::Held(current) if !current.owner.lease().is_released() => Ok(Arc::clone(current.owner.lease())),
            _ => Err(self.not_held()),
        }
    }

    fn not_held(&self) -> Error {
        self.error(ErrorKind::NotHeld, NOT_HELD)
    }

    /// Makes the error for an object that is in use. Often it is one of a module, which many requests share.
    fn already_held(&self, what: &str) -> Error {
        let message = format!(
            "{what}; one object is one holder, so make a lock for each use: `with lock(name):` (Python), \
             `lock(name).using(…)` (Node)"
        );
        self.error(ErrorKind::AlreadyHeld, message)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_name(&self.shown())
    }
}

const HELD: &str = "this lock object already holds the lock";
const IN_BLOCK: &str =
    "this lock object has lost the lock, and its block has not ended (if that cannot end, release the object)";
const ACQUIRING: &str = "another thread or task is acquiring this lock object";

opaque!(LockObject);

/// An extension that begins.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) lease: Arc<Lease>,
    /// `None` for the ttl in force.
    pub(crate) ttl: Option<Duration>,
    /// The runtime that the lease belongs to.
    runtime: Option<Id>,
}

impl ProcessLocal {
    /// Returns whether it has neither a lease nor a listener. A parent's lease and its queues are not to be touched.
    fn shares_nothing(&self) -> bool {
        // If another thread had the mutex when the process forked, nothing here can be relied on.
        let Some(state) = self.state.try_lock() else { return false };
        matches!(state.phase, Phase::Idle { .. }) && state.listeners.is_empty()
    }
}

impl Reservation {
    /// Has the next call for the name begin behind this one, which is cancelled, until the result is dropped.
    pub(crate) fn leave(&self) -> Option<Leaving> {
        let context = self.object.as_ref()?.context(Pid::now(), None).ok()?;
        Some(context.listed.waiters.leave(&context.spec.keys))
    }

    /// Makes the object the holder of a lease that belongs to `runtime`, or to the background.
    pub(crate) fn complete(mut self, pid: Pid, owner: LeaseOwner, runtime: Option<Id>) {
        let object = self.object.take().expect("used once");
        let lease = Arc::clone(owner.lease());
        let mut state = object.local(pid).state.lock();
        let is_attached = lease.context.spec.detached.is_some() && !self.in_block;
        object.attached.store(true, Ordering::Release);
        object
            .set_phase(&mut state, Phase::Held(CurrentLease { owner, runtime, in_block: self.in_block, is_attached }));
        let listeners = state.listeners.clone();
        drop(state);
        for listener in listeners {
            lease.on_lost(listener);
        }
    }

    /// Makes the object idle again after the acquire failed with `error`, which it returns.
    pub(crate) fn failed(self, error: Error) -> Error {
        if let Some(object) = &self.object {
            object.local(Pid::now()).state.lock().failed = error.waited();
        }
        error
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(object) = &self.object else { return };
        let mut state = object.local(Pid::now()).state.lock();
        if matches!(state.phase, Phase::Acquiring) {
            object.set_phase(&mut state, Phase::Idle { released: self.released });
        }
    }
}

impl AbandonedHold {
    /// Leaves the lock to the process, whose shutdown releases it.
    pub fn leave(self) {
        self.0.abandon();
    }

    /// Returns whether the lock is held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.lease().is_valid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_object_shares_nothing_with_other_processes() {
        let redlock = Redlock::new("memory://lock-object-shares").unwrap();
        let object = LockObject::new(redlock.lock("foo")).unwrap();
        let pid = Pid::now();
        let local = object.local(pid);
        let shares_nothing = || local.shares_nothing();
        assert!(shares_nothing());
        let reservation = object.reserve(pid, false).unwrap();
        assert!(!shares_nothing());
        drop(reservation);
        object.acquire::<()>(None, || Ok(()), None::<fn() -> Result<(), ()>>).unwrap();
        assert!(!shares_nothing());
        object.release::<()>(None::<fn() -> Result<(), ()>>).unwrap();
        assert!(shares_nothing());
        let state = local.state.lock();
        assert!(!shares_nothing(), "a thread that is changing it may not exist in a child");
        drop(state);
    }

    #[test]
    fn a_dropped_reservation_makes_the_object_idle() {
        let redlock = Redlock::new("memory://lock-object-reservation").unwrap();
        let object = LockObject::new(redlock.lock("foo")).unwrap();
        let pid = Pid::now();
        let reservation = object.reserve(pid, false).unwrap();
        assert_eq!(object.reserve(pid, false).unwrap_err().kind(), ErrorKind::AlreadyHeld);
        drop(reservation);
        assert!(object.reserve(pid, false).is_ok());
        assert_eq!(object.take_lease(pid).unwrap_err().kind(), ErrorKind::NotHeld);
    }
}
