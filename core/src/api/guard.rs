//! The guard: one acquisition of a lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::lease::Lease;
use crate::hold::owner::LeaseOwner;

/// A held lock. Extended in the background until it is released, lost or dropped.
///
/// Dropping it queues its release before `drop` returns; it never blocks and never panics. Prefer
/// [`Guard::release`], which says whether the lock was held until then.
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

    fn shared(&self) -> &Arc<Lease> {
        self.0.lease()
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.shared().context.spec.name.bytes()
    }

    /// The fencing token: larger than that of every earlier holder of this name. A resource that remembers the largest
    /// it has seen, from the first access on, and refuses smaller ones is safe from holders that do not know yet that
    /// they are not.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.shared().fence
    }

    /// How long the lock can still be relied on without an extension; zero when it is not held. Compares a clock that
    /// goes on during a suspend with the end of the validity at this moment.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared().remaining().unwrap_or(Duration::ZERO)
    }

    /// Whether the lock is held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shared().remaining().is_ok()
    }

    /// Fails when the lock is not held at this moment.
    ///
    /// # Errors
    ///
    /// `lost` with its reason; `not_held` in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        self.shared().remaining().map(drop)
    }

    /// Keeps the lock for another ttl from now. Takes at most `node_timeout`, and the client's
    /// `connect_timeout` where connections have to be made.
    ///
    /// # Errors
    ///
    /// `lost` if it is lost; `unavailable` if no quorum answered, in which case it stays valid for as long as it was;
    /// `not_held` in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lock valid for at least as long as it was.
    pub async fn extend(&self) -> Result<(), Error> {
        self.check()?;
        hold::extend(Arc::clone(self.shared()), None).await
    }

    /// As [`Guard::extend`], with another ttl (100 ms to 24 h) which later renewals use too.
    ///
    /// # Errors
    ///
    /// As [`Guard::extend`]; `invalid_argument` for a ttl out of range.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::extend`].
    pub async fn extend_for(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = hold::checked(self.shared(), ttl)?;
        hold::extend(Arc::clone(self.shared()), Some(ttl)).await
    }

    /// Completes when the lock is lost, with the `lost` error; never after a release. Needs no reply of any node: it
    /// is told by a local timer. Cancel safe, and independent of the guard's life.
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
        Arc::clone(self.shared()).lost()
    }

    /// Releases the lock. Takes at most `node_timeout`, or 250 ms if that is longer, and the client's `connect_timeout`
    /// where connections have to be made.
    ///
    /// # Errors
    ///
    /// `lost` if it was lost before; `unavailable` if no quorum confirmed it in time. In every case the background
    /// finishes what is left to do.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the background finish.
    pub async fn release(self) -> Result<(), Error> {
        if self.shared().context.process.is_foreign() {
            return Err(self.shared().error(ErrorKind::NotHeld));
        }
        hold::release(self.0).await
    }
}
