//! The one owner of a held lock, whose drop releases it.

use std::fmt;
use std::sync::Arc;

use crate::hold::lease::Lease;
use crate::hold::restore;

/// The one owner of a held lock. Dropping it queues the release and never blocks.
pub(crate) struct LeaseOwner(Option<Arc<Lease>>);

// Guards are logged. From a lease, the way leads to all that the process has.
impl fmt::Debug for LeaseOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(lease) = &self.0 else { return f.write_str("released") };
        f.debug_struct("Held")
            .field("name", &lease.context.spec.name)
            .field("fence", &lease.fence)
            .field("slot", &lease.slot)
            .finish_non_exhaustive()
    }
}

impl LeaseOwner {
    pub(crate) fn new(lease: Lease) -> Self {
        Self(Some(Arc::new(lease)))
    }

    /// Activates the lock for its user: from here on it is renewed, and its loss reported. Returns false if it has
    /// expired, its client is closed or redlock is shut down: dropping it releases.
    pub(crate) fn activate(&self) -> bool {
        let lease = self.lease();
        let process = &lease.context.process;
        // Before the look at the time, because a neighbour in the queue may end the lease at any moment.
        lease.meter.begin(process, process.clock.now());
        // This does not end the lease, which would be a loss of which its user is told.
        let late = !lease.is_valid();
        if late || lease.context.has_ended() {
            lease.meter.cancel(process);
            return false;
        }
        if !lease.context.spec.settings.at_least.is_zero() || lease.context.spec.detached.is_some() {
            lease.begin_use();
        }
        lease.context.process.schedule.add(Arc::clone(lease) as _);
        // What ended between the checks has not seen this lock on the schedule.
        if lease.context.has_ended() {
            lease.meter.cancel(process);
            return false;
        }
        lease.meter.trace_hold(&lease.context.spec.name, lease.fence);
        if !lease.missed.is_empty() {
            restore::make_up(lease);
        }
        true
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.0.as_ref().expect("taken only by drop and by released")
    }

    /// Leaves the lock to the process, because no code can release it any more. The schedule keeps it, and renews it until
    /// it is lost, reaches `max_hold` or the process shuts down.
    pub(crate) fn abandon(mut self) {
        let lease = self.0.take().expect("taken only here, by drop and by released");
        if lease.context.process.is_foreign() {
            std::mem::forget(lease);
        }
    }

    /// Returns the lock, whose release has begun: drop does nothing then.
    pub(crate) fn released(mut self) -> Arc<Lease> {
        self.0.take().expect("taken only by drop and by released")
    }
}

impl Drop for LeaseOwner {
    fn drop(&mut self) {
        let Some(lease) = self.0.take() else { return };
        if lease.context.process.is_foreign() {
            // The parent still holds it, and its sockets must not be touched.
            std::mem::forget(lease);
            return;
        }
        // Dropping the ownership does the rest.
        drop(lease.begin_release());
    }
}
