//! The guard: one acquisition of a lock.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::acquire::attempt::Title;
use crate::api::client::in_background;
use crate::error::{Error, ErrorKind};
use crate::hold::extend::{self, Extended};
use crate::hold::lease::{Begun, Held, Owned};
use crate::hold::release;
use crate::options;

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
/// assert!(guard.held());
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
pub struct Guard(Owned);

impl Guard {
    pub(crate) fn new(owned: Owned) -> Self {
        Self(owned)
    }

    fn shared(&self) -> &Arc<Held> {
        self.0.held()
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.shared().place.spec.name.bytes()
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
    pub fn held(&self) -> bool {
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
        extend(Arc::clone(self.shared()), None).await
    }

    /// As [`Guard::extend`], with another ttl (100 ms to 24 h) which later renewals use too.
    ///
    /// # Errors
    ///
    /// As [`Guard::extend`]; `invalid` for a ttl out of range.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::extend`].
    pub async fn extend_to(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = checked(self.shared(), ttl)?;
        extend(Arc::clone(self.shared()), Some(ttl)).await
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
    /// assert!(!guard.held());
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
        if self.shared().place.process.is_foreign() {
            return Err(self.shared().error(ErrorKind::NotHeld));
        }
        release(self.0).await
    }
}

pub(crate) fn checked(held: &Held, ttl: Duration) -> Result<Duration, Error> {
    options::checked_ttl(ttl).map_err(|error| error.with_name(held.place.spec.name.bytes()))
}

/// Extends to `ttl`, or by the ttl in force, where the caller is, or in the background for a caller without a runtime.
pub(crate) async fn extend(held: Arc<Held>, ttl: Option<Duration>) -> Result<(), Error> {
    held.remaining()?;
    let extended = if let Ok(runtime) = Handle::try_current() {
        extend::extend(&held, &held.place.set.lane(&runtime), ttl).await
    } else {
        let (process, held) = (Arc::clone(&held.place.process), Arc::clone(&held));
        in_background(
            &process,
            async move { extend::extend(&held, &held.place.set.lane(&Handle::current()), ttl).await },
        )
        .await?
    };
    match extended {
        Extended::Done => {
            held.place.process.renewal.add(&held);
            Ok(())
        }
        Extended::Unknown(_, nodes) => {
            // Its end may have been what cut the round short.
            held.remaining()?;
            let message = "no quorum of nodes answered the extension; the lock stays valid for as long as it was";
            let error = Error::new(ErrorKind::Unavailable, message);
            Err(error.with_name(held.place.spec.name.bytes()).with_nodes(nodes))
        }
        Extended::Lost(loss) => {
            held.lose(&loss);
            Err(over(&held))
        }
        Extended::Over => Err(over(&held)),
    }
}

/// Why it is not held any more: what a round heard of a lock that was released meanwhile is no loss.
fn over(held: &Held) -> Error {
    held.remaining().err().unwrap_or_else(|| held.error(ErrorKind::NotHeld))
}

/// Releases where the caller is, or in the background for a caller without a runtime. Not for a forked child.
pub(crate) async fn release(owned: Owned) -> Result<(), Error> {
    let claim = match owned.held().begin_release()? {
        Begun::Release(Title::Plain(claim)) => claim,
        Begun::Release(Title::Setnx(grant)) => return grant.release(&owned.released()).await,
        Begun::Already => return Ok(()),
    };
    let held = owned.released();
    if let Ok(runtime) = Handle::try_current() {
        return release::release(&held, claim, &held.place.set.lane(&runtime)).await;
    }
    let process = Arc::clone(&held.place.process);
    in_background(
        &process,
        async move { release::release(&held, claim, &held.place.set.lane(&Handle::current())).await },
    )
    .await?
}
