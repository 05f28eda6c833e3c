//! A lock in the older SETNX protocol by name, and its guard: what a lock of this library is, without what that protocol
//! cannot do.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use crate::api::guard::Guard;
use crate::api::lock::{Lock, left, tried, unless_lost};
use crate::error::Error;
use crate::options::Protocol;

/// A lock by name in the older SETNX protocol, on one node: made by [`Redlock::setnx_lock`](crate::Redlock::setnx_lock), for a key
/// that is shared with code which still uses that protocol. For everything else use [`Lock`].
///
/// The key's value is the Unix second up to which it is held: `SETNX key value`, and where that fails `GET`, and `GETSET`
/// once the time is over. Here each of acquire and release is one script on the server's clock, so that none of this
/// library overwrites a live holder. What the older protocol cannot give:
///
/// - no fence: nothing that a resource could tell a late holder by;
/// - no renewal: the lock ends with its ttl;
/// - no exclusion among the older clients: one that stalls between `GET` and `GETSET`, or has another ttl or a wrong
///   clock of its own, can make two holders;
/// - no second try for a release: nothing in the key tells whose it is, so where the answer to an acquire or a release
///   is lost with its connection, the key stays until its time is over.
///
/// Never use one name in both protocols. Here each sees the other's key as held; but older clients take a plain key for one
/// whose time is over, and overwrite it.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// use redlock::Redlock;
/// use std::time::Duration;
///
/// let redlock = Redlock::new("memory://setnx-example")?;
/// let guard = redlock.setnx_lock("job").ttl(Duration::from_secs(5)).acquire().await?;
/// assert!(redlock.setnx_lock("job").try_acquire().await?.is_none());
/// guard.check()?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct SetnxLock(Lock);

impl SetnxLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    crate::api::setters::setnx_setters!();

    /// Acquires the lock, waiting until the timeout. All of it runs in the background.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; `invalid_argument` also for a client of several nodes, or one whose `auto_renew` was switched on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no key behind: the background hears the answer and releases. Only where the connection
    /// breaks before that answer, the key, if there is one, stays until its time is over.
    pub async fn acquire(&self) -> Result<SetnxGuard, Error> {
        self.0.acquire_in(Protocol::Setnx).await.map(SetnxGuard)
    }

    /// Tries once: `None` if others hold the lock.
    ///
    /// # Errors
    ///
    /// As [`SetnxLock::acquire`] with a timeout of zero, `timeout` excepted.
    ///
    /// # Cancel safety
    ///
    /// As [`SetnxLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<SetnxGuard>, Error> {
        tried(self.clone().timeout(Duration::ZERO).acquire().await)
    }

    /// Acquires the lock, runs `body`, and releases the lock whatever `body` returned.
    ///
    /// # Errors
    ///
    /// As [`SetnxLock::acquire`]; `lost` as soon as the ttl is over, in which case `body` is dropped where it stands. A
    /// release that is not confirmed is no error here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and releases the lock.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(&SetnxGuard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let output = unless_lost(guard.lost(), body(&guard)).await?;
        left(guard.release().await).map(|()| output)
    }
}

impl IntoFuture for SetnxLock {
    type Output = Result<SetnxGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.acquire().await })
    }
}

/// A held lock of the older SETNX protocol, until it is released, dropped or its ttl is over.
///
/// Dropping it queues its release and never blocks. It has neither a fence nor extensions: that protocol cannot give
/// them.
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct SetnxGuard(Guard);

impl SetnxGuard {
    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.0.name()
    }

    /// How long the lock can still be relied on; zero when it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Whether the lock is held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Fails when the lock is not held at this moment.
    ///
    /// # Errors
    ///
    /// `lost` with its reason; `not_held` in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// Completes when the lock is lost, with the `lost` error; never after a release. See [`Guard::lost`].
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        self.0.lost()
    }

    /// Releases the lock: the node deletes the key while its time is not over. Takes at most `node_timeout`, or 250 ms if
    /// that is longer, and the client's `connect_timeout` where a connection has to be made.
    ///
    /// # Errors
    ///
    /// `lost` if it was lost before; `unavailable` if the node did not confirm it in time. It is sent once only: a second
    /// one could delete the key of the next owner.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the background finish.
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }
}
