//! The lock without async: the calling thread drives the engine itself.
//!
//! It works on any thread. Inside a tokio runtime, the call runs in the background and the thread parks.
//!
//! # Examples
//!
//! ```
//! # fn main() -> Result<(), redlock::Error> {
//! use redlock::blocking::Redlock;
//!
//! let redlock = Redlock::new("memory://blocking-example")?;
//! let guard = redlock.lock("job").acquire()?;
//! assert!(guard.is_held());
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::acquire::{self, Acquire};
use crate::api::client::{self, IntoNodes, Unparsed};
use crate::api::inspect::NodeView;
use crate::api::lock::{ignore_unconfirmed, none_if_denied};
use crate::api::session::Session;
use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::lease::Lease;
use crate::hold::owner::LeaseOwner;
use crate::options::{Options, Protocol};
use crate::process::Process;
use crate::process::context::LockContext;
use crate::sys::background;
use crate::sys::runtimes::{self, Break};

/// The time for which an interrupted call waits for its clean-up. The background finishes a longer one.
const CLEAN_UP: Duration = Duration::from_millis(20);

/// A client without async; see [`crate::Redlock`].
#[derive(Clone, Debug)]
pub struct Redlock(client::Redlock);

impl Redlock {
    /// Makes a client for the node, or nodes, at these addresses; see [`crate::Redlock::new`].
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong address.
    pub fn new(nodes: impl IntoNodes) -> Result<Self, Error> {
        client::Redlock::new(nodes).map(Self)
    }

    /// Makes a client for the nodes in `REDLOCK_URLS`; see [`crate::Redlock::from_env`].
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong address.
    pub fn from_env() -> Result<Self, Error> {
        client::Redlock::from_env().map(Self)
    }

    /// Returns a builder for a client with options; see [`crate::Redlock::builder`].
    pub fn builder() -> Builder {
        Builder { nodes: None, options: Options::default() }
    }

    /// Makes a lock with this name; see [`crate::Redlock::lock`].
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock { session: Arc::clone(self.0.session()), name: name.as_ref().into(), options: Options::default() }
    }

    /// Makes a lock with this name in the older SETNX protocol; see [`crate::Redlock::setnx_lock`].
    pub fn setnx_lock(&self, name: impl AsRef<[u8]>) -> SetnxLock {
        SetnxLock(self.lock(name))
    }

    /// Reads the state of this name on every node; see [`crate::Redlock::inspect`].
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong name, `unavailable` if the system cannot create a thread or an event queue.
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Vec<NodeView>, Error> {
        let (client, name) = (self.0.clone(), name.as_ref().to_vec());
        drive(&Process::current(), None, async move { client.inspect(name).await })?.0
    }
}

/// Works as [`Redlock::inspect`], but calls `interrupted`, if given, every 25 ms, and ends if that fails. Hidden: for
/// the bindings.
///
/// # Errors
///
/// Those of [`Redlock::inspect`]. The outer error is that of `interrupted`.
#[doc(hidden)]
pub fn inspect_unless<E>(
    client: &client::Redlock,
    name: &[u8],
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Result<Vec<NodeView>, Error>, E> {
    let driven = drive_unless(&Process::current(), None, client.inspect(name), interrupted)?;
    Ok(driven.map(|(views, _)| views))
}

impl From<client::Redlock> for Redlock {
    fn from(client: client::Redlock) -> Self {
        Self(client)
    }
}

/// Makes a client without async; see [`crate::Builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    nodes: Option<Unparsed>,
    options: Options,
}

impl Builder {
    /// Sets the addresses of the nodes; see [`crate::Redlock::new`].
    pub fn nodes(mut self, nodes: impl IntoNodes) -> Self {
        self.nodes = Some(Unparsed(nodes.into_nodes()));
        self
    }

    crate::api::setters::connect_timeout_setter!();

    crate::api::setters::option_setters!();

    /// Checks addresses and options and makes the client.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong address or option.
    pub fn build(self) -> Result<Redlock, Error> {
        let Self { nodes, options } = self;
        client::Builder { nodes, options }.build().map(Redlock)
    }
}

/// A lock by name, without async; see [`crate::Lock`].
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock {
    session: Arc<Session>,
    name: Arc<[u8]>,
    options: Options,
}

impl Lock {
    crate::api::setters::option_setters!();

    /// Acquires the lock, and waits for it until the timeout; see [`crate::Lock::acquire`].
    ///
    /// # Errors
    ///
    /// `timeout`, `unavailable`, `forbidden` or `invalid_argument`.
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_in(Protocol::Plain)
    }

    fn acquire_in(&self, protocol: Protocol) -> Result<Guard, Error> {
        let options = Options { protocol: Some(protocol), ..self.options.clone() };
        let context = self.session.context(Arc::clone(&self.name), options)?;
        if Handle::try_current().is_ok() {
            let process = Arc::clone(&context.process);
            let (owner, runtime) = drive(&process, None, acquire::acquire(context))?;
            return Ok(Guard { owner: owner?, runtime });
        }
        let never = None::<fn() -> Result<(), Infallible>>;
        let Ok(acquired) = acquire_here(context, never);
        acquired.map(|(owner, runtime)| Guard { owner, runtime })
    }

    /// Tries once. Returns `None` if others hold the lock; see [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    ///
    /// `unavailable`, `forbidden` or `invalid_argument`.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        none_if_denied(self.clone().timeout(Duration::ZERO).acquire())
    }

    /// Acquires the lock, runs `body`, and releases the lock. Unlike the async form, it cannot stop `body` when the
    /// lock is lost, so `body` must check the guard.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; `lost` if the lock was lost before `body` returned. A release that no quorum confirms is
    /// not an error here.
    pub fn run<T>(&self, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let output = body(&guard);
        ignore_unconfirmed(guard.release()).map(|()| output)
    }
}

/// A held lock, without async; see [`crate::Guard`].
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    owner: LeaseOwner,
    /// The runtime whose connections know about this lock; `None` for the background's.
    runtime: Option<Id>,
}

impl Guard {
    fn lease(&self) -> &Arc<Lease> {
        self.owner.lease()
    }

    /// Returns the lock's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.lease().context.spec.name.bytes()
    }

    /// Returns the fencing token; see [`crate::Guard::fence`].
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.lease().fence
    }

    /// Returns for how long the lock is still valid; see [`crate::Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease().remaining().unwrap_or(Duration::ZERO)
    }

    /// Returns whether the lock is held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lease().remaining().is_ok()
    }

    /// Fails if the lock is not held at this moment.
    ///
    /// # Errors
    ///
    /// `lost` with its reason; `not_held` in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        self.lease().remaining().map(drop)
    }

    /// Extends the lock, so that it lasts for its ttl from now; see [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// `lost`, `unavailable` or `not_held`.
    pub fn extend(&self) -> Result<(), Error> {
        self.check()?;
        self.extend_by(None)
    }

    /// Works as [`Guard::extend`], but with another ttl. Later renewals use it too.
    ///
    /// # Errors
    ///
    /// As [`Guard::extend`]; `invalid_argument` for a ttl out of range.
    pub fn extend_for(&self, ttl: Duration) -> Result<(), Error> {
        self.extend_by(Some(hold::checked(self.lease(), ttl)?))
    }

    fn extend_by(&self, ttl: Option<Duration>) -> Result<(), Error> {
        let lease = Arc::clone(self.lease());
        self.check()?;
        drive(&self.lease().context.process, self.runtime, hold::extend(lease, ttl))?.0
    }

    /// Waits until the lock is lost, but for at most `limit`. Returns `None` if it is not lost by then.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock::blocking::Redlock;
    /// use std::time::Duration;
    ///
    /// let redlock = Redlock::new("memory://wait-lost-example")?;
    /// let guard = redlock.lock("job").ttl(Duration::from_millis(100)).auto_renew(false).acquire()?;
    /// assert!(guard.wait_lost(Duration::ZERO).is_none());
    /// assert_eq!(guard.wait_lost(Duration::from_secs(5)).unwrap().code(), "lost");
    /// # Ok::<(), redlock::Error>(())
    /// ```
    #[must_use]
    pub fn wait_lost(&self, limit: Duration) -> Option<Error> {
        if let Err(error) = self.check() {
            return Some(error);
        }
        let lease = Arc::clone(self.lease());
        let clock = lease.context.process.clock.clone();
        let waited = drive(&self.lease().context.process, self.runtime, async move {
            tokio::select! {
                biased;
                error = lease.lost() => Some(error),
                () = clock.sleep(limit) => None,
            }
        });
        waited.ok()?.0
    }

    /// Releases the lock; see [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// `lost`, `unavailable` or `not_held`.
    pub fn release(self) -> Result<(), Error> {
        let process = Arc::clone(&self.lease().context.process);
        if process.is_foreign() {
            return Err(self.lease().error(ErrorKind::NotHeld));
        }
        drive(&process, self.runtime, hold::release(self.owner))?.0
    }
}

/// A lock by name in the older SETNX protocol, without async; see [`crate::SetnxLock`].
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct SetnxLock(Lock);

impl SetnxLock {
    crate::api::setters::setnx_setters!();

    /// Acquires the lock, and waits for it until the timeout; see [`crate::SetnxLock::acquire`].
    ///
    /// # Errors
    ///
    /// `timeout`, `unavailable`, `forbidden` or `invalid_argument`.
    pub fn acquire(&self) -> Result<SetnxGuard, Error> {
        self.0.acquire_in(Protocol::Setnx).map(SetnxGuard)
    }

    /// Tries once. Returns `None` if others hold the lock; see [`crate::SetnxLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// `unavailable`, `forbidden` or `invalid_argument`.
    pub fn try_acquire(&self) -> Result<Option<SetnxGuard>, Error> {
        none_if_denied(self.clone().timeout(Duration::ZERO).acquire())
    }

    /// Acquires the lock, runs `body`, and releases the lock. Unlike the async form, it cannot stop `body` when the
    /// lock is lost, so `body` must check the guard.
    ///
    /// # Errors
    ///
    /// As [`SetnxLock::acquire`]; `lost` if the lock was lost before `body` returned. A release that the node does not
    /// confirm is not an error here.
    pub fn run<T>(&self, body: impl FnOnce(&SetnxGuard) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let output = body(&guard);
        ignore_unconfirmed(guard.release()).map(|()| output)
    }
}

/// A held lock of the older SETNX protocol, without async; see [`crate::SetnxGuard`].
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct SetnxGuard(Guard);

impl SetnxGuard {
    /// Returns the lock's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.0.name()
    }

    /// Returns for how long the lock is still valid; see [`crate::SetnxGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns whether the lock is held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Fails if the lock is not held at this moment.
    ///
    /// # Errors
    ///
    /// `lost` with its reason; `not_held` in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// Waits until the lock is lost, but for at most `limit`. Returns `None` if it is not lost by then.
    #[must_use]
    pub fn wait_lost(&self, limit: Duration) -> Option<Error> {
        self.0.wait_lost(limit)
    }

    /// Releases the lock; see [`crate::SetnxGuard::release`].
    ///
    /// # Errors
    ///
    /// `lost`, `unavailable` or `not_held`.
    pub fn release(self) -> Result<(), Error> {
        self.0.release()
    }
}

/// Drives `call` on the calling thread, if possible on `runtime`. A tokio context forbids that: there, the call runs in
/// the background while the thread parks. Also returns the runtime that the call ran on; `None` for the background's.
fn drive<T: Send + 'static>(
    process: &Process,
    runtime: Option<Id>,
    call: impl Future<Output = T> + Send + 'static,
) -> Result<(T, Option<Id>), Error> {
    if Handle::try_current().is_err() {
        let (output, id) = process.pool.drive(&process.clock, runtime, call).map_err(no_event_queue)?;
        return Ok((output, Some(id)));
    }
    process.background.start()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    process.background.spawn(async move { drop(sender.send(call.await)) });
    Ok((receiver.recv().map_err(|_| background::stopped())?, None))
}

/// Acquires on the calling thread. The thread drives the first attempt. Then it waits for the background, and keeps
/// neither a runtime nor a connection. Calls `interrupted`, if given, every 25 ms. Not for a tokio context.
fn acquire_here<E>(
    context: LockContext,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Result<(LeaseOwner, Option<Id>), Error>, E> {
    match acquire(context, interrupted) {
        Ok(acquired) => Ok(Ok(acquired)),
        Err(Stop::Failed(error)) => Ok(Err(error)),
        Err(Stop::Interrupted(interruption)) => Err(interruption),
    }
}

/// The reason why an acquire ended without the lock.
enum Stop<E> {
    Failed(Error),
    Interrupted(E),
}

impl<E> From<Error> for Stop<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<E> From<Break<E>> for Stop<E> {
    fn from(early: Break<E>) -> Self {
        match early {
            Break::Interrupted(interruption) | Break::Forked(Some(interruption)) => Self::Interrupted(interruption),
            Break::Forked(None) => Self::Failed(forked()),
        }
    }
}

fn acquire<E>(
    context: LockContext,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<(LeaseOwner, Option<Id>), Stop<E>> {
    let process = Arc::clone(&context.process);
    let mut interrupted = or_forked(&process, interrupted);
    let mut acquire = Acquire::begin(context)?;
    if acquire.must_wait().is_none() {
        let first = async { acquire.first(&Handle::current()).await.map(|owner| (acquire, owner)) };
        let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
        let driven = process.pool.drive_unless(&process.clock, None, first, interrupted.as_mut(), afterwards);
        let (first, runtime) = driven.map_err(no_event_queue)??;
        acquire = match first? {
            (rest, None) => rest,
            (rest, Some(owner)) => match rest.activate(owner)? {
                Ok(owner) => return Ok((owner, Some(runtime))),
                Err(rest) => rest,
            },
        };
    }
    match runtimes::park_unless(acquire.finish(), interrupted) {
        Ok(owner) => Ok((owner?, None)),
        Err(early) => {
            if matches!(early, Break::Interrupted(_)) {
                let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
                drop(process.pool.drive(&process.clock, None, afterwards));
            }
            Err(early.into())
        }
    }
}

/// Wraps `interrupted`, so that the call also ends in a child that `interrupted` has forked.
fn or_forked<E>(
    process: &Process,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Option<impl FnMut() -> Result<(), Break<E>>> {
    interrupted.map(|mut interrupted| {
        move || {
            let result = interrupted();
            if process.is_foreign() { Err(Break::Forked(result.err())) } else { result.map_err(Break::Interrupted) }
        }
    })
}

/// Returns the error of a call in a child that was forked during the call.
fn forked() -> Error {
    Error::new(ErrorKind::Unavailable, "not finished: a signal handler forked during the call; call again in the child")
}

/// Works as [`acquire_here`], for callers of other languages. No panic may unwind into them, so it becomes an error.
pub(crate) fn acquire_unless<E>(
    context: LockContext,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Result<(LeaseOwner, Option<Id>), Error>, E> {
    catch_unwind(AssertUnwindSafe(|| acquire_here(context, interrupted))).unwrap_or_else(|_| Ok(Err(Error::panicked())))
}

/// Works as [`drive`], but calls `interrupted`, if given, every 25 ms, and ends if that fails. `interrupted` may make
/// such calls itself, and may fork. For callers of other languages: no panic may unwind into them, so it becomes an
/// error. Not for a tokio context.
pub(crate) fn drive_unless<T, E>(
    process: &Process,
    runtime: Option<Id>,
    call: impl Future<Output = Result<T, Error>>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Result<(T, Option<Id>), Error>, E> {
    // This runtime's connections send the dropped call's clean-up, as far as they can at once.
    let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
    let driven = catch_unwind(AssertUnwindSafe(|| {
        let interrupted = or_forked(process, interrupted);
        process.pool.drive_unless(&process.clock, runtime, call, interrupted, afterwards)
    }));
    match driven {
        Ok(Ok(Ok((output, id)))) => Ok(output.map(|output| (output, Some(id)))),
        Ok(Ok(Err(Break::Interrupted(interruption) | Break::Forked(Some(interruption))))) => Err(interruption),
        Ok(Ok(Err(Break::Forked(None)))) => Ok(Err(forked())),
        Ok(Err(error)) => Ok(Err(no_event_queue(error))),
        Err(_) => Ok(Err(Error::panicked())),
    }
}

fn no_event_queue(error: io::Error) -> Error {
    let message = "cannot create an event queue (epoll or kqueue); the limit on open files may be reached";
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_on_the_calling_thread_becomes_an_error() {
        let call = async { if true { panic!("on purpose") } else { Ok(()) } };
        let driven = drive_unless::<_, Infallible>(&Process::current(), None, call, Some(|| Ok(()))).unwrap();
        let error = driven.unwrap_err();
        assert!(error.to_string().contains("bug"), "{error}");
    }
}
