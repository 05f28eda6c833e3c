//! The metrics of one endpoint, in plain atomics that are always on: how fast it answers, and how many releases are
//! pending there. The endpoint itself knows when it answered last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::scripts::ScriptId;
use crate::protocol::request::Request;
use crate::sys::histogram::{Count, Histogram, Reading, SECONDS};

/// The metrics of one endpoint.
#[derive(Debug)]
pub(crate) struct Traffic {
    evicts: AtomicBool,
    pub(crate) connections: Count,
    pub(crate) pending: Count,
    /// How long each script takes, the way to the server and back included.
    took: [Histogram; ScriptId::COUNT],
}

/// One pending release, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingCount(Arc<Traffic>);

impl Default for Traffic {
    fn default() -> Self {
        Self {
            evicts: AtomicBool::new(false),
            connections: Count::default(),
            pending: Count::default(),
            took: std::array::from_fn(|_| Histogram::new(&SECONDS)),
        }
    }
}

impl Traffic {
    /// Records a new connection, and whether the server may evict keys.
    pub(crate) fn connected(&self, evicts: bool) {
        self.connections.add();
        self.evicts.store(evicts, Ordering::Relaxed);
    }

    pub(crate) fn evicts(&self) -> bool {
        self.evicts.load(Ordering::Relaxed)
    }

    /// Records how long a script took.
    pub(crate) fn answered(&self, request: &Request, took: Duration) {
        self.took[ScriptId::of(request) as usize].record(took);
    }

    /// Returns the durations of each script that was answered.
    pub(crate) fn took(&self) -> impl Iterator<Item = (&'static str, Reading)> {
        ScriptId::ALL.into_iter().zip(&self.took).filter_map(|(id, took)| Some((id.as_str(), took.read()?)))
    }

    /// Counts one more pending release.
    pub(crate) fn count_pending(self: &Arc<Self>) -> PendingCount {
        self.pending.add();
        PendingCount(Arc::clone(self))
    }
}

impl Drop for PendingCount {
    fn drop(&mut self) {
        self.0.pending.subtract();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_stand_in_the_order_of_their_numbers() {
        assert!(ScriptId::ALL.into_iter().enumerate().all(|(index, id)| id as usize == index));
    }

    #[test]
    fn a_release_is_pending_until_it_is_dropped() {
        let traffic = Arc::new(Traffic::default());
        let counts = [traffic.count_pending(), traffic.count_pending()];
        assert_eq!(traffic.pending.read(), 2);
        drop(counts);
        assert_eq!(traffic.pending.read(), 0);
    }
}
