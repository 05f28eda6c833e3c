//! What a test does to a node in memory, and no client can. Connections hear of the keys that change, as those of a server
//! do.

use std::time::Duration;

use super::{MemoryNode, NodeState, SECOND, Store, micros, notify};
use crate::protocol::request::Request;
use crate::sys::clock::Clock;
use crate::transport::failure::Failure;

/// How far a clock can be moved, so that no time on it overflows: a century, in microseconds.
const AHEAD_MAX: u64 = 100 * 366 * 86_400 * SECOND;

impl MemoryNode {
    /// Executes a request of an owner outside of this process. With `seize`, whoever has the lock key loses it first.
    pub(crate) fn execute(&self, clock: &Clock, request: &Request, seize: bool) -> Result<(), Failure> {
        let mut shared = self.0.lock();
        let now = shared.now(clock);
        if seize {
            shared.store.delete(&request.keys.lock);
        }
        let answer = shared.store.execute(now, request);
        let told = shared.armed.remove(&*request.keys.lock).unwrap_or_default();
        drop(shared);
        notify(&told, None, &request.keys.lock);
        answer.map(drop)
    }

    /// Deletes every key.
    pub(crate) fn wipe(&self) {
        self.lose_keys(|shared| shared.store = Store::default());
    }

    /// Moves the node's clock forward, so that keys expire.
    pub(crate) fn advance(&self, clock: &Clock, by: Duration) {
        self.lose_keys(|shared| {
            shared.ahead = shared.ahead.saturating_add(micros(by)).min(AHEAD_MAX);
            let now = shared.now(clock);
            shared.store.expire(now);
        });
    }

    pub(crate) fn set_available(&self, available: bool) {
        self.0.lock().unavailable = !available;
    }

    pub(crate) fn is_available(&self) -> bool {
        !self.0.lock().unavailable
    }

    fn lose_keys(&self, lose: impl FnOnce(&mut NodeState)) {
        let mut shared = self.0.lock();
        let NodeState { store, armed, .. } = &*shared;
        let watched: Vec<_> = armed.keys().filter(|key| store.keys.contains_key(*key)).cloned().collect();
        lose(&mut shared);
        let gone = watched.into_iter().filter(|key| !shared.store.keys.contains_key(key)).collect::<Vec<_>>();
        let told: Vec<_> = gone.into_iter().filter_map(|key| shared.armed.remove_entry(&key)).collect();
        drop(shared);
        for (key, lines) in told {
            notify(&lines, None, &key);
        }
    }
}
