//! A lock as an object, for the languages where a lock is one: acquired, released and acquired again, and one holder at
//! any time.
//!
//! Hidden: for the bindings. States, under one mutex that is never held while anything is awaited or dropped: *idle* →
//! *acquiring* → *holding* → *idle*. A hold that is lost stays, and tells so, until it is released or another acquire
//! takes its place. What may interrupt it:
//!
//! - an acquire that fails, is cancelled or panics gives its reservation back, which makes the object what it was;
//! - a release takes the hold out before it sends anything, so that a second one finds nothing to do;
//! - `interrupted` uses this object, or others: it finds this one in the state in which the call has left it, so that
//!   another acquire during an acquire is `already_held`;
//! - a fork: the child's object is another one, idle, and the parent's hold is not touched;
//! - dropped while holding: the lock is released, as when a guard is dropped.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{fmt, mem};

use once_cell::race::OnceBox;
use tokio::runtime::Id;

use crate::api::blocking::{acquire_unless, drive_unless};
use crate::api::lock::{Lock, ignore_unconfirmed};
use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::lease::{Lease, LossCallback};
use crate::hold::owner::LeaseOwner;
use crate::options::{self, Protocol};
use crate::process::context::{LockContext, Spec};
use crate::sys::fork::{PerProcess, Pid};

/// A timeout as a call can give it: not at all (the lock's own), none (for ever), or one.
pub type Timeout = Option<Option<Duration>>;

/// One lock object.
pub struct Holder {
    lock: Lock,
    own: PerProcess<Own>,
}

/// What an object has of its own in each process.
#[derive(Debug)]
struct Own {
    spec: OnceBox<Arc<Spec>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Who is told of the loss of any hold.
    /// Who is told of the loss of every hold.
    listeners: Vec<LossCallback>,
}

#[derive(Debug)]
enum Phase {
    Idle {
        /// Whether there is an acquisition that a release could be about.
        released: bool,
    },
    Acquiring,
    Holding(Hold),
}

/// A hold, and where it lives.
#[derive(Debug)]
pub(crate) struct Hold {
    owner: LeaseOwner,
    /// The runtime whose connections know about it.
    home: Option<Id>,
}

/// The right to become the holder. Dropped unused, it makes the object idle again.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// `None` once it is used.
    holder: Option<Arc<Holder>>,
    released: bool,
}

impl Holder {
    /// An object for `lock`, not held.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong name or option.
    pub fn new(lock: Lock) -> Result<Arc<Self>, Error> {
        let holder = Self { lock, own: PerProcess::new() };
        holder.context(Pid::now(), None)?;
        Ok(Arc::new(holder))
    }

    /// Another object for the same lock, not held.
    #[must_use]
    pub fn fresh(&self) -> Arc<Self> {
        Arc::new(Self { lock: self.lock.clone(), own: PerProcess::new() })
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.lock.name()
    }

    /// The fencing token of the hold, lost or not.
    ///
    /// # Errors
    ///
    /// `not_held` before an acquire and after a release; `invalid_argument` in a protocol without fences.
    pub fn fence(&self) -> Result<u64, Error> {
        let pid = Pid::now();
        self.allowed(pid, Protocol::allows_fence)?;
        self.hold(pid).map(|lease| lease.fence)
    }

    /// Whether the lock is held at this moment.
    #[must_use]
    pub fn held(&self) -> bool {
        self.hold(Pid::now()).is_ok_and(|lease| lease.remaining_here().is_ok())
    }

    /// How long the lock can still be relied on; zero when it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold(Pid::now()).and_then(|lease| lease.remaining_here()).unwrap_or(Duration::ZERO)
    }

    /// Fails when the lock is not held at this moment.
    ///
    /// # Errors
    ///
    /// `lost` with its reason; `not_held` before an acquire, after a release and in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        self.hold(Pid::now())?.remaining_here().map(drop)
    }

    /// Acquires on the calling thread. `interrupted` is asked every 25 ms if there is one; if it fails, the call ends with that, and
    /// leaves no key behind. It may make calls like this one.
    ///
    /// # Errors
    ///
    /// `already_held`, and those of [`Lock::acquire`]; `timeout` also for a timeout of zero.
    pub fn acquire<E>(
        self: &Arc<Self>,
        timeout: Timeout,
        interrupted: Option<impl FnMut() -> Result<(), E>>,
    ) -> Result<Result<(), Error>, E> {
        let pid = Pid::now();
        let begun = self.reserve(pid).and_then(|reservation| Ok((reservation, self.context(pid, timeout)?)));
        let (reservation, context) = match begun {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        let process = Arc::clone(&context.process);
        process.shutdown.park_if_shut_down();
        let acquired = acquire_unless(context, interrupted);
        // It may have failed because the process is ending.
        process.shutdown.park_if_shut_down();
        // Asked anew: what the caller did when it was asked may have forked.
        Ok(acquired?.map(|(owner, home)| reservation.hold(Pid::now(), Hold { owner, home })))
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
    ) -> Result<Result<(), Error>, E> {
        let Extension { lease, ttl, home } = match self.extension(Pid::now(), ttl) {
            Ok(begun) => begun,
            Err(error) => return Ok(Err(error)),
        };
        let process = Arc::clone(&lease.context.process);
        let driven = drive_unless(&process, home, hold::extend(lease, ttl), interrupted)?;
        Ok(driven.map(|((), _)| ()))
    }

    /// Releases on the calling thread. An interruption leaves the rest to the background.
    ///
    /// # Errors
    ///
    /// `not_held` before an acquire, and those of [`crate::Guard::release`]. Releasing again is no error.
    pub fn release<E>(&self, interrupted: Option<impl FnMut() -> Result<(), E>>) -> Result<Result<(), Error>, E> {
        match self.part(Pid::now()) {
            Ok(Some(hold)) => release(hold, interrupted),
            Ok(None) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Releases at the end of a block: as [`Holder::release`], and silent where there is nothing to release, or no
    /// quorum that confirms it.
    ///
    /// # Errors
    ///
    /// `lost`.
    pub fn leave<E>(&self, interrupted: Option<impl FnMut() -> Result<(), E>>) -> Result<Result<(), Error>, E> {
        Ok(ignore_unconfirmed(self.release(interrupted)?))
    }

    fn own(&self, pid: Pid) -> &Own {
        self.own.of(pid, || Own {
            spec: OnceBox::new(),
            state: Mutex::new(State { phase: Phase::Idle { released: false }, listeners: Vec::new() }),
        })
    }

    /// Where an acquire with `timeout` is made from.
    pub(crate) fn context(&self, pid: Pid, timeout: Timeout) -> Result<LockContext, Error> {
        let spec = self.own(pid).spec(pid, &self.lock)?;
        let spec = match timeout {
            None => Arc::clone(spec),
            Some(timeout) => {
                let mut settings = spec.settings.clone();
                settings.timeout = timeout.map(options::checked_timeout);
                Arc::new(Spec { name: spec.name.clone(), keys: Arc::clone(&spec.keys), settings })
            }
        };
        self.lock.session().context_of(pid, spec)
    }

    /// Begins an acquire.
    ///
    /// # Errors
    ///
    /// `already_held` while it is held or being acquired.
    pub(crate) fn reserve(self: &Arc<Self>, pid: Pid) -> Result<Reservation, Error> {
        let before = self.hold(pid).ok();
        if before.as_ref().is_some_and(|hold| hold.remaining_here().is_ok()) {
            return Err(self.error(ErrorKind::AlreadyHeld, HOLDING));
        }
        let mut state = self.own(pid).state();
        let released = match &state.phase {
            Phase::Idle { released } => *released,
            Phase::Acquiring => return Err(self.error(ErrorKind::AlreadyHeld, ACQUIRING)),
            // Lost, as was just seen: that is final, and told.
            Phase::Holding(hold) if before.is_some_and(|before| Arc::ptr_eq(&before, hold.owner.lease())) => true,
            Phase::Holding(_) => return Err(self.error(ErrorKind::AlreadyHeld, HOLDING)),
        };
        let former = mem::replace(&mut state.phase, Phase::Acquiring);
        drop(state);
        drop(former);
        Ok(Reservation { holder: Some(Arc::clone(self)), released })
    }

    /// What an extension to `ttl`, or by the ttl in force, is about.
    pub(crate) fn extension(&self, pid: Pid, ttl: Option<Duration>) -> Result<Extension, Error> {
        self.allowed(pid, Protocol::allows_extend)?;
        let state = self.own(pid).state();
        let Phase::Holding(hold) = &state.phase else { return Err(self.not_held()) };
        let (shared, home) = (Arc::clone(hold.owner.lease()), hold.home);
        drop(state);
        let ttl = ttl.map(|ttl| hold::checked(&shared, ttl)).transpose()?;
        Ok(Extension { lease: shared, ttl, home })
    }

    /// Takes the hold out, to be released; `None` if it was released before.
    ///
    /// # Errors
    ///
    /// `not_held` if there was none.
    pub(crate) fn part(&self, pid: Pid) -> Result<Option<Hold>, Error> {
        let mut state = self.own(pid).state();
        match mem::replace(&mut state.phase, Phase::Idle { released: true }) {
            Phase::Holding(hold) => Ok(Some(hold)),
            Phase::Idle { released: true } => Ok(None),
            other => {
                state.phase = other;
                Err(self.not_held())
            }
        }
    }

    /// Tells `listener` of the loss of every hold from now on, once each, and of the present one if it is lost already: a
    /// hold is the present one until it is released or another acquire begins.
    pub(crate) fn on_lost(&self, pid: Pid, listener: LossCallback) {
        // Asked outside of the mutex: a listener has one of its own.
        let mut over = self.own(pid).state().listeners.clone();
        over.retain(LossCallback::is_over);
        let mut state = self.own(pid).state();
        state.listeners.retain(|listener| !over.iter().any(|over| over.same(listener)));
        state.listeners.push(listener.clone());
        let lease = match &state.phase {
            Phase::Holding(hold) => Some(Arc::clone(hold.owner.lease())),
            _ => None,
        };
        drop(state);
        drop(over);
        if let Some(lease) = lease {
            lease.on_lost(listener);
        }
    }

    /// Fails where the lock's protocol does not allow the call, held or not.
    fn allowed(&self, pid: Pid, allows: fn(Protocol) -> Result<(), Error>) -> Result<(), Error> {
        allows(self.own(pid).spec(pid, &self.lock)?.settings.protocol).map_err(|error| error.with_name(self.name()))
    }

    fn hold(&self, pid: Pid) -> Result<Arc<Lease>, Error> {
        match &self.own(pid).state().phase {
            Phase::Holding(hold) => Ok(Arc::clone(hold.owner.lease())),
            _ => Err(self.not_held()),
        }
    }

    fn not_held(&self) -> Error {
        self.error(ErrorKind::NotHeld, "not held: it was released, or never acquired by this object in this process")
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, message).with_name(self.name())
    }
}

const HOLDING: &str = "this lock object already holds the lock; create a second object for a second holder";
const ACQUIRING: &str = "another thread or task is acquiring this lock object; create one object for each";

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("name", &String::from_utf8_lossy(self.name()))
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// What an extension is about.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) lease: Arc<Lease>,
    /// `None` for the ttl in force.
    pub(crate) ttl: Option<Duration>,
    /// Where the hold lives.
    home: Option<Id>,
}

impl Own {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding this")
    }

    /// The lock's name and options, checked; each process has a label of its own.
    fn spec(&self, pid: Pid, lock: &Lock) -> Result<&Arc<Spec>, Error> {
        self.spec.get_or_try_init(|| lock.spec(pid).map(Box::new))
    }
}

impl Reservation {
    /// Becomes the holder.
    pub(crate) fn hold(mut self, pid: Pid, hold: Hold) {
        let holder = self.holder.take().expect("used once");
        let shared = Arc::clone(hold.owner.lease());
        let mut state = holder.own(pid).state();
        state.phase = Phase::Holding(hold);
        let listeners = state.listeners.clone();
        drop(state);
        for listener in listeners {
            shared.on_lost(listener);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(holder) = &self.holder else { return };
        let mut state = holder.own(Pid::now()).state();
        if matches!(state.phase, Phase::Acquiring) {
            state.phase = Phase::Idle { released: self.released };
        }
    }
}

impl Hold {
    /// A hold that lives in the background.
    pub(crate) fn in_background(owner: LeaseOwner) -> Self {
        Self { owner, home: None }
    }

    /// What is to be released.
    pub(crate) fn into_owner(self) -> LeaseOwner {
        self.owner
    }
}

fn release<E>(hold: Hold, interrupted: Option<impl FnMut() -> Result<(), E>>) -> Result<Result<(), Error>, E> {
    let process = Arc::clone(&hold.owner.lease().context.process);
    let driven = drive_unless(&process, hold.home, hold::release(hold.owner), interrupted)?;
    Ok(driven.map(|((), _)| ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_given_back() {
        let redlock = crate::Redlock::new("memory://holder-reservation").unwrap();
        let holder = Holder::new(redlock.lock("foo")).unwrap();
        let pid = Pid::now();
        let reservation = holder.reserve(pid).unwrap();
        assert_eq!(holder.reserve(pid).unwrap_err().kind(), ErrorKind::AlreadyHeld);
        drop(reservation);
        assert!(holder.reserve(pid).is_ok());
        assert_eq!(holder.part(pid).unwrap_err().kind(), ErrorKind::NotHeld);
    }
}
