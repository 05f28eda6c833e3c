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

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use tokio::runtime::Id;

use crate::acquire::thread::{Caller, acquire_until, drive};
use crate::api::client::{self, IntoNodes};
use crate::api::diagnose::Diagnosis;
use crate::api::election::{self, Leader, is_outage, leader};
use crate::api::guard::{DetachedLock, guard_methods};
use crate::api::inspect::{self, LockView};
use crate::api::listing::Listing;
use crate::api::lock::{self, Fixed, Named, ignore_unconfirmed, none_if_denied};
use crate::credentials::Credentials;
use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::lease::Lease;
use crate::hold::owner::LeaseOwner;
use crate::options::{Options, Protocol};
use crate::process::Process;

/// A client without async; see [`crate::Redlock`].
#[derive(Clone, Debug)]
pub struct Redlock(client::Redlock);

impl Redlock {
    /// Makes a client for the node, or nodes, at these addresses; see [`crate::Redlock::new`].
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong address.
    pub fn new<Kind>(nodes: impl IntoNodes<Kind>) -> Result<Self, Error> {
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
        Builder(client::Redlock::builder())
    }

    /// Makes a lock with this name; see [`crate::Redlock::lock`].
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.lock(name))
    }

    /// Makes a lock of all these names; see [`crate::Redlock::lock_all`].
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Lock<Fixed> {
        Lock(self.0.lock_all(names))
    }

    /// Makes a semaphore; see [`crate::Redlock::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Lock<Fixed> {
        Lock(self.0.semaphore(name, permits))
    }

    /// Makes a lock that continues the hold with this text; see [`crate::Redlock::attach`].
    pub fn attach(&self, text: &str) -> Lock<Fixed> {
        Lock(self.0.attach(text))
    }

    /// Makes an election with this name; see [`crate::Redlock::election`].
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election(self.0.election(name))
    }

    /// Makes a lock with this name in the older SETNX protocol; see [`crate::Redlock::setnx_lock`].
    pub fn setnx_lock(&self, name: impl AsRef<[u8]>) -> SetnxLock {
        SetnxLock(self.lock(name))
    }

    /// Reads what the nodes show of this name; see [`crate::Redlock::inspect`].
    ///
    /// # Errors
    ///
    /// As [`crate::Redlock::inspect`]; `unavailable` also if the system cannot create a thread or an event queue.
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<LockView, Error> {
        let (client, name) = (self.0.clone(), name.as_ref().to_vec());
        self.drive(async move { client.inspect(name).await })
    }

    /// Reads what the nodes show of each slot of a semaphore; see [`crate::Redlock::inspect_semaphore`].
    ///
    /// # Errors
    ///
    /// As [`Redlock::inspect`]; `invalid_argument` also for a wrong number of permits.
    pub fn inspect_semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Result<Vec<LockView>, Error> {
        let (client, name) = (self.0.clone(), name.as_ref().to_vec());
        self.drive(async move { client.inspect_semaphore(name, permits).await })
    }

    /// Lists the locks that are held and match a pattern; see [`crate::Redlock::list_locks`].
    pub fn list_locks(&self, pattern: impl AsRef<[u8]>) -> LockListing {
        LockListing { listing: Listing::new(&self.0, pattern.as_ref()), page: Vec::new().into_iter(), is_over: false }
    }

    /// Waits until a lock is free, without taking it; see [`crate::Redlock::wait_free`].
    ///
    /// # Errors
    ///
    /// As [`crate::Redlock::wait_free`]; `unavailable` also if the system cannot create a thread or an event queue.
    pub fn wait_free(&self, name: impl AsRef<[u8]>, timeout: Option<Duration>) -> Result<bool, Error> {
        let (client, name) = (self.0.clone(), name.as_ref().to_vec());
        let waiting = async move { client.wait_free(name, timeout).await };
        drive(&Caller { process: &Process::current(), runtime: None, seats: None }, waiting)?
    }

    /// Deletes a lock that somebody else holds; see [`crate::Redlock::break_lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Redlock::break_lock`]; `unavailable` also if the system cannot create a thread or an event queue.
    pub fn break_lock(&self, name: impl AsRef<[u8]>, slot: Option<u32>) -> Result<Option<LockView>, Error> {
        let (client, name) = (self.0.clone(), name.as_ref().to_vec());
        self.drive(async move { client.break_lock(name, slot).await })
    }

    /// Finds out what each node can do and may lose; see [`crate::Redlock::diagnose`].
    ///
    /// # Errors
    ///
    /// `closed` if the client is closed, `unavailable` if the system cannot create a thread or an event queue.
    pub fn diagnose(&self) -> Result<Vec<Diagnosis>, Error> {
        let client = self.0.clone();
        self.drive(async move { client.diagnose().await })
    }

    fn drive<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (process, set) = self.0.session().nodes()?;
        drive(&Caller { process: &process, runtime: None, seats: Some(&set.seats) }, call)?
    }

    /// Closes the client and its clones, and releases their locks; see [`crate::Redlock::close`].
    pub fn close(self, limit: Duration) {
        let closing = self.0.closing(limit);
        // Without a thread or an event queue, the background goes on alone.
        drop(drive(&Caller { process: &Process::current(), runtime: None, seats: None }, closing));
    }
}

impl From<client::Redlock> for Redlock {
    fn from(client: client::Redlock) -> Self {
        Self(client)
    }
}

/// Makes a client without async; see [`crate::Builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder(client::Builder);

impl Builder {
    /// Sets the addresses of the nodes; see [`crate::Redlock::new`].
    pub fn nodes<Kind>(self, nodes: impl IntoNodes<Kind>) -> Self {
        Self(self.0.nodes(nodes))
    }

    fn options_mut(&mut self) -> &mut Options {
        &mut self.0.options
    }

    /// Sets the provider of logins; see [`crate::Builder::credentials`].
    pub fn credentials(self, credentials: impl Credentials) -> Self {
        Self(self.0.credentials(credentials))
    }

    crate::api::setters::client_setters!();

    crate::api::setters::option_setters!();

    /// Checks addresses and options and makes the client.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong address or option.
    pub fn build(self) -> Result<Redlock, Error> {
        self.0.build().map(Redlock)
    }
}

/// A lock without async; see [`crate::Lock`].
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock<Kind = Named>(lock::Lock<Kind>);

impl Lock {
    /// Makes the lock shared: many readers may have it at once, but none of them together with a writer; see
    /// [`crate::Lock::shared`].
    pub fn shared(self) -> Lock<Fixed> {
        Lock(self.0.shared())
    }
}

impl<Kind> Lock<Kind> {
    crate::api::setters::option_setters!();

    fn options_mut(&mut self) -> &mut Options {
        self.0.options_mut()
    }

    /// Acquires the lock, and waits for it until the timeout; see [`crate::Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_in(Protocol::Plain)
    }

    fn acquire_in(&self, protocol: Protocol) -> Result<Guard, Error> {
        let (owner, runtime) = acquire_until(self.0.context(Some(protocol))?, None)?.expect("nothing stops it");
        Ok(Guard { owner, runtime })
    }

    /// Tries once. Returns `None` if others hold the lock; see [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        none_if_denied(Lock(self.0.copied()).timeout(Duration::ZERO).acquire())
    }

    /// Asks the nodes whether the lock is held by anybody; see [`crate::Lock::is_locked`].
    ///
    /// # Errors
    ///
    /// As [`crate::Lock::is_locked`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        let context = self.0.context(None)?;
        drive(&Caller::asking(&context.clone()), inspect::is_locked(context))?
    }

    /// Acquires the lock, runs `body`, and releases the lock. Unlike the async form, it cannot stop `body` when the
    /// lock is lost, so `body` must check the guard.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; `lost` if the lock was lost before `body` returned, and `closed` if its client was closed.
    /// What `body` returned is dropped then, an error of its own too: it can write that down where it happens. A release
    /// that no quorum confirms is not an error here.
    pub fn run<T>(&self, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let output = body(&guard);
        ignore_unconfirmed(guard.release()).map(|()| output)
    }

    /// As [`Lock::run`], with a body that can fail; see [`crate::Lock::try_run`].
    ///
    /// # Errors
    ///
    /// That of `body`, or that of [`Lock::run`].
    pub fn try_run<T, E: From<Error>>(&self, body: impl FnOnce(&Guard) -> Result<T, E>) -> Result<T, E> {
        self.run(body)?
    }
}

impl From<Lock> for Lock<Fixed> {
    fn from(lock: Lock) -> Self {
        Self(lock.0.into())
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

    guard_methods!(fenced);

    /// Extends the lock, so that it lasts for its ttl from now; see [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// `lost`, `unavailable` or `not_held`.
    pub fn extend(&self) -> Result<(), Error> {
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
        drive(&Caller::of(self.lease(), self.runtime), hold::extend(lease, ttl.into()))?
    }

    /// Ends this hold without a release, and returns a text with which [`Redlock::attach`] goes on with it; see
    /// [`crate::Guard::detach`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::detach`].
    pub fn detach(&self) -> Result<DetachedLock, Error> {
        self.detach_by(None)
    }

    /// Works as [`Guard::detach`], but first extends the lock to this ttl; see [`crate::Guard::detach_for`].
    ///
    /// # Errors
    ///
    /// As [`Guard::detach`]; `invalid_argument` also for a ttl out of range; `unavailable` if no quorum answered.
    pub fn detach_for(&self, ttl: Duration) -> Result<DetachedLock, Error> {
        self.detach_by(Some(hold::checked(self.lease(), ttl)?))
    }

    fn detach_by(&self, ttl: Option<Duration>) -> Result<DetachedLock, Error> {
        let lease = Arc::clone(self.lease());
        self.check()?;
        drive(&Caller::of(self.lease(), self.runtime), hold::detach::detach(lease, ttl))?.map(DetachedLock::from)
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
        let caller = Caller { seats: None, ..Caller::of(self.lease(), self.runtime) };
        drive(&caller, async move { clock.timeout(limit, pin!(lease.lost())).await }).ok()?
    }

    /// Releases the lock; see [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// `lost`, `unavailable`, `closed` or `not_held`.
    pub fn release(self) -> Result<(), Error> {
        let lease = Arc::clone(self.lease());
        if lease.context.process.is_foreign() {
            return Err(lease.error(ErrorKind::NotHeld));
        }
        drive(&Caller::of(&lease, self.runtime), hold::release(self.owner))?
    }
}

/// The locks that are held, one after the other; made by [`Redlock::list_locks`]. An error, as of
/// [`crate::LockListing::next`], is the last that it returns.
#[derive(Debug)]
#[must_use = "nothing is listed until the next lock is asked for"]
pub struct LockListing {
    listing: Arc<Listing>,
    page: vec::IntoIter<LockView>,
    is_over: bool,
}

impl Iterator for LockListing {
    type Item = Result<LockView, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 && !self.is_over {
            let (client, listing) = (Redlock(self.listing.client().clone()), Arc::clone(&self.listing));
            let page = client.drive(async move { listing.page().await });
            self.is_over = page.as_ref().map_or(true, Vec::is_empty);
            match page {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
        self.page.next().map(Ok)
    }
}

/// An election among all that use its name, without async; see [`crate::Election`].
#[derive(Clone, Debug)]
#[must_use = "nobody leads until an election is run"]
pub struct Election(election::Election);

impl Election {
    fn options_mut(&mut self) -> &mut Options {
        self.0.options_mut()
    }

    crate::api::setters::candidate_setters!();

    /// Campaigns until it leads, and then runs `body` with the guard of its term. Returns what `body` returned, or `None`
    /// once the election was stopped.
    ///
    /// Unlike the async form, it cannot stop `body`, which must return soon after the guard is not held any more, and
    /// within the margin. If the term was lost, the candidate then campaigns again, and what `body` returned is dropped.
    ///
    /// # Errors
    ///
    /// As [`crate::Election::run`].
    pub fn run<T>(&self, mut body: impl FnMut(&Guard) -> T) -> Result<Option<T>, Error> {
        loop {
            let Some(guard) = self.campaign()? else { return Ok(None) };
            let output = body(&guard);
            let is_led_to_the_end = guard.lease().is_held_to_the_end();
            // It resigns, whether the term is over already or not. The background goes on with a release that fails.
            drop(guard.release());
            if is_led_to_the_end {
                return Ok(Some(output));
            }
        }
    }

    /// Ends the election for this candidate and its clones: a campaign ends, and `run` returns `None`. A leader learns of
    /// it from [`Election::is_stopped`], and `run` returns what its body returns.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Returns whether the election was stopped for this candidate.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// Asks the nodes who leads; see [`crate::Election::leader`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::leader`].
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        let context = self.0.context()?;
        drive(&Caller::asking(&context.clone()), inspect::inspect_known(context))?.map(leader)
    }

    /// Campaigns until it leads, and returns the guard of its term, or `None` once the election was stopped; see
    /// [`crate::Election::campaign`].
    ///
    /// # Errors
    ///
    /// As [`Election::run`].
    pub fn campaign(&self) -> Result<Option<Guard>, Error> {
        while !self.is_stopped() {
            match acquire_until(self.0.context()?, Some(self.0.stopped())) {
                Ok(None) => break,
                Ok(Some((owner, runtime))) => return Ok(Some(Guard { owner, runtime })),
                Err(error) if is_outage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
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
    /// As [`crate::SetnxLock::acquire`].
    pub fn acquire(&self) -> Result<SetnxGuard, Error> {
        self.0.acquire_in(Protocol::Setnx).map(SetnxGuard)
    }

    /// Tries once. Returns `None` if others hold the lock; see [`crate::SetnxLock::try_acquire`].
    ///
    /// # Errors
    ///
    /// As [`crate::SetnxLock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<SetnxGuard>, Error> {
        none_if_denied(self.clone().timeout(Duration::ZERO).acquire())
    }

    /// Acquires the lock, runs `body`, and releases the lock. Unlike the async form, it cannot stop `body` when the
    /// lock is lost, so `body` must check the guard.
    ///
    /// # Errors
    ///
    /// As [`SetnxLock::acquire`]; `lost` if the lock was lost before `body` returned, and `closed` if its client was
    /// closed. A release that the node does not confirm is not an error here.
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
    fn lease(&self) -> &Arc<Lease> {
        self.0.lease()
    }

    guard_methods!();

    /// Waits until the lock is lost, but for at most `limit`. Returns `None` if it is not lost by then.
    #[must_use]
    pub fn wait_lost(&self, limit: Duration) -> Option<Error> {
        self.0.wait_lost(limit)
    }

    /// Releases the lock; see [`crate::SetnxGuard::release`].
    ///
    /// # Errors
    ///
    /// `lost`, `unavailable`, `closed` or `not_held`.
    pub fn release(self) -> Result<(), Error> {
        self.0.release()
    }
}
