//! A held lock: from the attempt that won it to its release or loss.
//!
//! May import `process` and what lies below it.

pub(crate) mod claim;
pub(crate) mod extend;
pub(crate) mod lease;
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
use crate::hold::extend::Extended;
use crate::hold::lease::{Begun, Held, Title};
use crate::hold::owner::Owned;
use crate::options;

/// `ttl`, if it can be extended to.
pub(crate) fn checked(held: &Held, ttl: Duration) -> Result<Duration, Error> {
    options::checked_ttl(ttl).map_err(|error| error.with_name(held.place.spec.name.bytes()))
}

/// Extends to `ttl`, or by the ttl in force, where the caller is, or in the background for a caller without a runtime.
pub(crate) async fn extend(held: Arc<Held>, ttl: Option<Duration>) -> Result<(), Error> {
    held.remaining()?;
    let extended = if let Ok(runtime) = Handle::try_current() {
        extend::extend(&held, &held.place.set.lane(&runtime), ttl, true).await
    } else {
        let (process, held) = (Arc::clone(&held.place.process), Arc::clone(&held));
        let call = async move { extend::extend(&held, &held.place.set.lane(&Handle::current()), ttl, true).await };
        process.background.run(call).await?
    };
    match extended {
        Extended::Done => {
            held.place.process.renewal.add(Arc::clone(&held) as _);
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
        Begun::Release(Title::Setnx(grant)) => {
            let held = owned.released();
            return grant.release().await?.map_or(Ok(()), |loss| Err(held.lost_error(loss)));
        }
        Begun::Already => return Ok(()),
    };
    let held = owned.released();
    if let Ok(runtime) = Handle::try_current() {
        return release::release(&held, claim, &held.place.set.lane(&runtime)).await;
    }
    let process = Arc::clone(&held.place.process);
    let call = async move { release::release(&held, claim, &held.place.set.lane(&Handle::current())).await };
    process.background.run(call).await?
}
