//! A lock by name in the older SETNX protocol, and its guard. They lack the calls that this protocol cannot support.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::api::guard::{Guard, guard_methods};
use crate::api::lock::{Lock, ignore_unconfirmed, none_if_denied};
use crate::error::Error;
use crate::hold::lease::Lease;
use crate::options::Protocol;
use crate::sys::future::unless;

/// A lock by name in the older SETNX protocol, on one node. [`Redlock::setnx_lock`](crate::Redlock::setnx_lock) makes
/// it, to share a key with code that still uses this protocol. For everything else use [`Lock`].
///
/// The key's value is the Unix second until which the lock is held. An older client sends `SETNX key value`. If that
/// fails, it sends `GET`, and `GETSET` once the time is over. Here, an acquire is one script on the server's clock, and
/// so is a release. So this library never overwrites a live holder. The older protocol has these limits:
///
/// - It has no fence, so a resource cannot recognize a late holder.
/// - It has no renewal, so the lock ends with its ttl.
/// - It does not exclude the older clients from each other. A client that stalls between `GET` and `GETSET`, or has
///   another ttl or a wrong clock, can make two holders.
/// - It has no second try for a release, because the key does not show its owner. If the answer to an acquire or a
///   release is lost with its connection, the key stays until its time is over.
///
/// Never use one name in both protocols. In this library, each protocol treats the other's key as held. But an older
/// client takes a plain key for one whose time is over, and overwrites it.
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

    /// Acquires the lock, and waits for it until the timeout. The whole call runs in the background.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; `invalid_argument` also if the client has several nodes, or if its `auto_renew` was set to
    /// true.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no key behind: the background receives the answer and releases the lock. Only if the
    /// connection breaks before the answer, a key may stay until its time is over.
    pub fn acquire(&self) -> impl Future<Output = Result<SetnxGuard, Error>> + Send + use<> {
        let acquiring = self.0.acquire_in(Protocol::Setnx);
        async move { acquiring.await.map(SetnxGuard) }
    }

    /// Tries once. Returns `None` if others hold the lock.
    ///
    /// # Errors
    ///
    /// As [`SetnxLock::acquire`] with a timeout of zero, except `timeout`.
    ///
    /// # Cancel safety
    ///
    /// As [`SetnxLock::acquire`].
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<SetnxGuard>, Error>> + Send + use<> {
        let acquiring = self.clone().timeout(Duration::ZERO).acquire();
        async move { none_if_denied(acquiring.await) }
    }

    /// Acquires the lock, runs `body`, and releases the lock, whatever `body` returned.
    ///
    /// # Errors
    ///
    /// As [`SetnxLock::acquire`]; `lost` as soon as the ttl is over, and `body` is then dropped at its current await;
    /// `closed` if the client was closed before `body` returned. A release that the node does not confirm is not an error
    /// here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and releases the lock.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(&SetnxGuard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let output = unless(guard.lost(), body(&guard)).await?;
        ignore_unconfirmed(guard.release().await).map(|()| output)
    }
}

impl IntoFuture for SetnxLock {
    type Output = Result<SetnxGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// A held lock of the older SETNX protocol. It is held until it is released or dropped, or until its ttl is over.
///
/// Dropping it queues its release and never blocks. It has no fence and no extensions, because the protocol does not
/// support them.
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct SetnxGuard(Guard);

impl SetnxGuard {
    fn lease(&self) -> &Arc<Lease> {
        self.0.lease()
    }

    guard_methods!();

    /// Completes with the `lost` error when the lock is lost, and never after a release; see [`Guard::lost`].
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        self.0.lost()
    }

    /// Releases the lock: the node deletes the key if its time is not over. Takes at most `node_timeout`, or 250 ms if
    /// that is longer, plus the client's `connect_timeout` if it has to connect.
    ///
    /// # Errors
    ///
    /// `lost` if the lock was lost before; `unavailable` if the node did not confirm the release in time. The release
    /// is sent only once, because a second one could delete the key of the next owner. `closed` if the client was
    /// closed while the lock was held.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the background finishes the release.
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }
}
