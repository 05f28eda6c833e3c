//! The one owner of a held lock, whose drop releases it.

use std::sync::Arc;

use crate::fault::{Fault, planted};
use crate::hold::lease::Held;
use crate::hold::restore;

/// The one owner of a held lock. Dropping it queues the release and never blocks.
#[derive(Debug)]
pub(crate) struct Owned(Option<Arc<Held>>);

impl Owned {
    pub(crate) fn new(held: Held) -> Self {
        let held = Arc::new(held);
        if planted(Fault::RenewedUntaken) {
            held.place.process.renewal.add(Arc::clone(&held) as _);
        }
        Self(Some(held))
    }

    /// The lock reaches its user: from here on it is renewed, and its loss is told. False if its validity has ended on
    /// the way; it is released then.
    pub(crate) fn take(&self) -> bool {
        let held = self.held();
        let late = !planted(Fault::LateGrant) && held.remaining_here().is_err();
        if late || held.place.process.shutdown.is_said() {
            return false;
        }
        held.place.process.renewal.add(Arc::clone(held) as _);
        // Said between the two, it has not seen this lock among those to give back.
        if held.place.process.shutdown.is_said() {
            return false;
        }
        if !held.missed().is_empty() {
            restore::make_up(held);
        }
        true
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        self.0.as_ref().expect("taken only by drop and by released")
    }

    /// The lock whose release has begun: nothing is left for drop to do.
    pub(crate) fn released(mut self) -> Arc<Held> {
        self.0.take().expect("taken only by drop and by released")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        if held.place.process.is_foreign() {
            // The parent still holds it, and its sockets must not be touched.
            std::mem::forget(held);
            return;
        }
        // The drop of its title does what is left to do.
        drop(held.begin_release());
    }
}
