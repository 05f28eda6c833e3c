//! A held lock: from the attempt that won it to its release or loss.
//!
//! May import `process` and what lies below it.

pub(crate) mod attach;
pub(crate) mod claim;
pub(crate) mod detach;
pub(crate) mod extend;
pub(crate) mod lease;
pub(crate) mod meter;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod restore;
pub(crate) mod setnx;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind};
use crate::hold::extend::{Extended, Wait};
use crate::hold::lease::{Lease, Ownership, ReleaseBegun, Target};
use crate::hold::owner::LeaseOwner;
use crate::options;
use crate::process::context::Following;
use crate::process::metrics::ReleaseEnd;

/// Returns `ttl` if it is valid.
pub(crate) fn checked(lease: &Lease, ttl: Duration) -> Result<Duration, Error> {
    let checked = options::checked_ttl(ttl).and_then(|ttl| {
        options::checked_margin(lease.context.spec.settings.margin, ttl)?;
        Ok(ttl)
    });
    checked.map_err(|error| error.with_name(lease.context.spec.name.bytes()))
}

/// Extends the lock. Runs on the caller's runtime, or else in the background.
pub(crate) async fn extend(lease: Arc<Lease>, target: Target) -> Result<(), Error> {
    lease.remaining()?;
    let asked = Arc::clone(&lease);
    let extended = lease.context.listed.somewhere(async move { extend_here(&asked, target).await }).await?;
    match extended {
        Extended::Done => {
            lease.context.process.schedule.add(Arc::clone(&lease) as _);
            Ok(())
        }
        Extended::Unknown(_, nodes) => {
            // The lease's end may have cut the round short.
            lease.remaining()?;
            let message = "no quorum of nodes answered the extension; the lock stays valid for as long as it was";
            let error = Error::new(ErrorKind::Unavailable, message);
            Err(error.with_name(lease.context.spec.name.bytes()).with_nodes(nodes))
        }
        Extended::Lost(loss) => {
            lease.lose(&loss);
            Err(over(&lease))
        }
        Extended::Over => Err(over(&lease)),
    }
}

/// Extends the lock over the connections of this runtime, and once more wherever it has moved meanwhile.
async fn extend_here(lease: &Arc<Lease>, target: Target) -> Extended {
    let connections = lease.context.set().connections(&Handle::current());
    let end = connections.connect_limit().after(lease.context.spec.settings.node_timeout);
    let mut way = Following::new(&connections, end);
    let mut extended = extend::extend(lease, &connections, target, Wait::Call).await;
    while matches!(extended, Extended::Unknown(..)) && way.moves_on(&lease.context) {
        extended = extend::extend(lease, &way.connections, target, Wait::Until(end)).await;
    }
    extended
}

/// Returns why the lock is not held. A round's result is not a loss if the lock was released meanwhile.
fn over(lease: &Lease) -> Error {
    lease.remaining().err().unwrap_or_else(|| lease.error(ErrorKind::NotHeld))
}

/// Releases the lock on the caller's runtime, or else in the background. Not for a forked child.
pub(crate) async fn release(owner: LeaseOwner) -> Result<(), Error> {
    let begun = owner.lease().begin_release();
    finish_release(owner.released(), begun).await
}

/// Does the rest of a release that has `begun`. Cancel safe: the background finishes it.
pub(crate) async fn finish_release(lease: Arc<Lease>, begun: Result<ReleaseBegun, Error>) -> Result<(), Error> {
    let process = Arc::clone(&lease.context.process);
    let (ownership, mut meter) = match begun {
        Ok(ReleaseBegun::Release(ownership, meter)) => (ownership, meter),
        Ok(ReleaseBegun::Already) => return Ok(()),
        Err(error) => {
            if error.kind() == ErrorKind::Lost {
                process.metrics.releases[ReleaseEnd::Lost as usize].add();
            }
            return Err(error);
        }
    };
    let result = release_keys(lease, ownership).await;
    let end = match &result {
        Ok(()) => ReleaseEnd::Released,
        Err(error) if error.kind() == ErrorKind::Lost => ReleaseEnd::Lost,
        Err(_) => ReleaseEnd::Unconfirmed,
    };
    process.metrics.releases[end as usize].add();
    if let (Some(meter), Some(reason)) = (&mut meter, result.as_ref().err().and_then(Error::reason)) {
        meter.record_loss(reason);
    }
    // Before the caller hears of the result and looks at the metrics.
    drop(meter);
    result
}

async fn release_keys(lease: Arc<Lease>, ownership: Ownership) -> Result<(), Error> {
    let claim = match ownership {
        Ownership::Fenced(claim) => claim,
        Ownership::Setnx(grant) => {
            return grant.release().await?.map_or(Ok(()), |loss| Err(lease.lost_error(loss)));
        }
    };
    if let Ok(Some(runtime)) = lease.context.listed.current_runtime() {
        return release::release(&lease, claim, &lease.context.set().connections(&runtime)).await;
    }
    let process = Arc::clone(&lease.context.process);
    let call =
        async move { release::release(&lease, claim, &lease.context.set().connections(&Handle::current())).await };
    process.background.run(call).await?
}
