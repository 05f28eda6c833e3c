//! Detaching a held lock: the end of a hold without a release. Whoever has the text may attach the lock, until it expires.
//!
//! States: *extending* (if a ttl was given) → *ending* (the lease is not held from here on, and nothing new is asked) →
//! *settling* (waits for what is under way, for as long as nodes may take to answer) → *detached*. What may interrupt each
//! await:
//!
//! - dropped while extending: the lock is held, perhaps for longer;
//! - dropped while settling, or before the text reached its user: the claim's drop releases, because nobody has the text;
//! - an extension of the lock that arrives later: it finds the key of another token, or lets the key live for longer, as the
//!   text allows;
//! - an acquire or a restore that arrives later: it finds another owner. A shared lock takes it in beside that one, so that a
//!   second attachment could win with it. So a reader is not detached while a node has not answered one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{Error, ErrorKind};
use crate::hold::claim::Claim;
use crate::hold::extend;
use crate::hold::lease::Lease;
use crate::process::context::{LockContext, Spec};
use crate::protocol::shape::Names;
use crate::sys::clock::Clock;

/// How often a reader looks whether its nodes have answered: its acquire is the rare case that is not told of.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// A lock that is detached, whose text has not reached its user yet. Dropping it releases the lock.
#[derive(Debug)]
pub struct Detaching {
    claim: Claim,
    text: Hidden,
}

/// A text that is not shown.
struct Hidden(String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden")
    }
}

impl Detaching {
    /// Returns the text, with which the lock is its user's.
    #[must_use]
    pub fn into_text(self) -> String {
        self.claim.hand_over();
        self.text.0
    }
}

/// Detaches the lock, after one extension to `ttl` if there is one. The ttl of renewals stays as it was.
/// Runs on the caller's runtime, or else in the background.
pub(crate) async fn detach(lease: Arc<Lease>, ttl: Option<Duration>) -> Result<Detaching, Error> {
    lease.remaining()?;
    if Handle::try_current().is_ok() {
        return detach_here(lease, ttl).await;
    }
    let process = Arc::clone(&lease.context.process);
    process.background.run(detach_here(lease, ttl)).await?
}

async fn detach_here(lease: Arc<Lease>, ttl: Option<Duration>) -> Result<Detaching, Error> {
    let (_, renewed) = lease.validity();
    if ttl.is_some() {
        extend(Arc::clone(&lease), ttl).await?;
    }
    let LockContext { process, spec, .. } = &lease.context;
    let (clock, limit, is_shared) =
        (&process.clock, spec.settings.node_timeout, matches!(spec.names, Names::Shared(..)));
    if is_shared {
        answered(clock, limit, || lease.is_unanswered()).await.ok_or_else(|| unanswered(spec, "is held as before"))?;
    }
    let (claim, detached) = lease.begin_detach(renewed)?;
    // What arrives later does no harm, but for what makes a reader of the former token again.
    clock.timeout(limit, pin!(lease.settled())).await;
    if is_shared && claim.footprint().is_unanswered() {
        return Err(unanswered(spec, "was released"));
    }
    Ok(Detaching { claim, text: Hidden(detached.to_text()) })
}

/// Waits until no answer is missing; `None` if that takes longer than `limit`.
async fn answered(clock: &Clock, limit: Duration, is_unanswered: impl Fn() -> bool) -> Option<()> {
    let end = clock.now().after(limit);
    while is_unanswered() {
        if clock.now() >= end {
            return None;
        }
        clock.sleep(LOOKS_EVERY).await;
    }
    Some(())
}

/// Returns the error of a reader of which a node may still execute an acquire.
fn unanswered(spec: &Spec, outcome: &str) -> Error {
    let message = format!("not detached: a node has not answered an acquire of this shared lock, which {outcome}");
    Error::new(ErrorKind::Unavailable, message).with_name(spec.name.bytes())
}
