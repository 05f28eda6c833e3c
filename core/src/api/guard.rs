//! The guard: one acquisition of a lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::detach::Detaching;
use crate::hold::lease::Lease;
use crate::hold::owner::LeaseOwner;
use crate::texts::opaque;

/// Makes the methods that all guards have, on a struct with a method `lease`; with `fenced`, also those of guards that have
/// a fence.
macro_rules! guard_methods {
    () => {
        /// Returns the lock's name, without the client's `key_prefix`. Several names are joined by a comma and a space.
        #[must_use]
        pub fn name(&self) -> &[u8] {
            self.lease().context.spec.given_name()
        }

        /// Returns for how long the lock is still valid without an extension; zero if it is not held. Compares the
        /// current time with the end of the validity, on a clock that also counts suspend.
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
        /// `lost` with its reason; `not_held` if its client is closed or redlock is shut down, and in a forked child.
        pub fn check(&self) -> Result<(), Error> {
            self.lease().remaining().map(drop)
        }

        /// Has this guard lose its lock now, as if the background had found out, for tests of what a program does then.
        /// The keys are deleted in the background. After a release or a loss it does nothing.
        #[cfg(feature = "testing")]
        pub fn lose(&self, reason: $crate::error::LostReason) {
            self.lease().lose(&reason.into());
        }
    };
    (fenced) => {
        crate::api::guard::guard_methods!();

        /// Returns the fencing token, which is larger than that of every earlier holder of this name, of each of several
        /// names, or of this slot. A resource is safe if it remembers the largest token from the first access on, and
        /// rejects smaller ones. A former holder that does not know of its loss yet cannot harm such a resource.
        #[must_use]
        pub fn fence(&self) -> u64 {
            self.lease().fence
        }

        /// Returns the names of the lock, sorted, without the client's `key_prefix`: one, or those of
        /// [`lock_all`](crate::Redlock::lock_all).
        #[must_use]
        pub fn names(&self) -> Vec<&[u8]> {
            self.lease().context.spec.given_names()
        }

        /// Returns the slot of a semaphore, a number below its permits that no other holder has; `None` for other locks.
        #[must_use]
        pub fn slot(&self) -> Option<u32> {
            self.lease().slot
        }
    };
}
pub(crate) use guard_methods;

/// A held lock. The background extends it until it is released, lost or dropped.
///
/// Dropping it queues its release before `drop` returns. The drop never blocks and never panics. Prefer
/// [`Guard::release`], which reports whether the lock was held until then.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// # let redlock = redlock::Redlock::new("memory://guard-example")?;
/// let guard = redlock.lock("account:7").await?;
/// // Send the fence along with every access to what the lock protects.
/// let fence = guard.fence();
/// assert!(guard.is_held());
/// guard.extend().await?;
/// guard.release().await?;
///
/// let next = redlock.lock("account:7").await?;
/// assert!(next.fence() > fence);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard(LeaseOwner);

impl Guard {
    pub(crate) fn new(owner: LeaseOwner) -> Self {
        Self(owner)
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.0.lease()
    }

    guard_methods!(fenced);

    /// Extends the lock, so that it lasts for its ttl from now. It never shortens the time that is left. Takes at most
    /// `node_timeout`, plus the client's `connect_timeout` if it has to connect.
    ///
    /// # Errors
    ///
    /// `lost` if the lock is lost; `unavailable` if no quorum answered (the lock then stays valid for as long as
    /// before); `not_held` if its client is closed or redlock is shut down, and in a forked child.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock stays valid for at least as long as before.
    pub async fn extend(&self) -> Result<(), Error> {
        hold::extend(Arc::clone(self.lease()), None.into()).await
    }

    /// Works as [`Guard::extend`], but with another ttl (100 ms to 24 h). Later renewals use it too.
    ///
    /// # Errors
    ///
    /// As [`Guard::extend`]; `invalid_argument` for a ttl out of range.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::extend`].
    pub async fn extend_for(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = hold::checked(self.lease(), ttl)?;
        hold::extend(Arc::clone(self.lease()), Some(ttl).into()).await
    }

    /// Completes with the `lost` error when the lock is lost, and never after a release. A local timer completes it,
    /// without a reply from any node. Cancel safe. The future may outlive the guard.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// use redlock::{LostReason, Redlock};
    /// use std::time::Duration;
    ///
    /// let redlock = Redlock::new("memory://lost-example")?;
    /// let short = Duration::from_millis(100);
    /// let guard = redlock.lock("job").ttl(short).max_hold(short).acquire().await?;
    /// let error = guard.lost().await;
    /// assert_eq!(error.reason(), Some(LostReason::MaxHold));
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static {
        Arc::clone(self.lease()).lost()
    }

    /// Ends this hold without a release, and returns a text with which [`Redlock::attach`](crate::Redlock::attach) goes on
    /// with it, in this program or in another, also in Python or Node. Nobody renews the lock until then: the servers keep
    /// it for what is left of its ttl. The fence stays the same, as does the time since it was acquired, for `max_hold`
    /// and `at_least`. Releasing or dropping this guard then leaves the lock as it is.
    ///
    /// The text is a credential: whoever has it can take the lock. It does not show in `Debug`, and has neither addresses
    /// nor passwords. Waits for requests about the lock that are under way, for at most `node_timeout`.
    ///
    /// # Errors
    ///
    /// `lost` if the lock is lost; `not_held` if it was detached before, and in a forked child; `invalid_argument` for the
    /// term of an election; `unavailable` if a node has not answered an acquire of a shared lock, which is held as before, or
    /// was released: see [`Guard::is_held`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is held as before, or released.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://detach-example")?;
    /// let guard = redlock.lock("report:17").await?;
    /// let fence = guard.fence();
    /// let text = guard.detach().await?;
    /// assert!(!guard.is_held());
    ///
    /// // Elsewhere: a worker that was given the text.
    /// let guard = redlock.attach(text.as_str()).await?;
    /// assert_eq!((guard.name(), guard.fence()), (&b"report:17"[..], fence));
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn detach(&self) -> Result<DetachedLock, Error> {
        hold::detach::detach(Arc::clone(self.lease()), None).await.map(DetachedLock::from)
    }

    /// Works as [`Guard::detach`], but first extends the lock, so that the servers keep it for this ttl (100 ms to 24 h)
    /// from now. It never shortens the time that is left. Later renewals use the ttl that they had before.
    ///
    /// # Errors
    ///
    /// As [`Guard::detach`]; `invalid_argument` also for a ttl out of range; `unavailable` also if no quorum answered the
    /// extension: the lock is held as before.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::detach`].
    pub async fn detach_for(&self, ttl: Duration) -> Result<DetachedLock, Error> {
        let ttl = hold::checked(self.lease(), ttl)?;
        hold::detach::detach(Arc::clone(self.lease()), Some(ttl)).await.map(DetachedLock::from)
    }

    /// Releases the lock. Takes at most `node_timeout`, or 250 ms if that is longer, plus the client's
    /// `connect_timeout` if it has to connect.
    ///
    /// # Errors
    ///
    /// `lost` if the lock was lost before; `unavailable` if no quorum confirmed the release in time. In each case, the
    /// background finishes the release. `closed` if the client was closed while the lock was held; `not_held` in a forked
    /// child.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the background finishes the release.
    pub async fn release(self) -> Result<(), Error> {
        if self.lease().context.process.is_foreign() {
            return Err(self.lease().error(ErrorKind::NotHeld));
        }
        hold::release(self.0).await
    }
}

/// A detached lock as a text: see [`Guard::detach`]. Its characters are letters, digits, `-`, `_` and `.`.
///
/// It is a credential, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "without the text, the lock stays until its ttl has passed"]
pub struct DetachedLock(String);

impl DetachedLock {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Detaching> for DetachedLock {
    fn from(detaching: Detaching) -> Self {
        Self(detaching.into_text())
    }
}

impl From<DetachedLock> for String {
    fn from(detached: DetachedLock) -> Self {
        detached.0
    }
}

impl AsRef<str> for DetachedLock {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

opaque!(DetachedLock);
