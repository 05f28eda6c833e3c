//! Runtimes for callers without one: a thread that makes a blocking call drives a small runtime itself, so that its
//! request needs no hop to another thread and back.
//!
//! A runtime is *idle* in the pool or *driven* by exactly one thread. Between calls nobody drives it: replies wait in
//! its sockets, and a call first takes in what has arrived unless the last call is less than [`FRESH`] ago. What may
//! interrupt a call: nothing drops it half-way, except a panic, which unwinds through the runtime and drops it with its
//! connections.

use std::future::Future;
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::{Builder, Id, Runtime};

use crate::clock::{Clock, Moment};

/// Most idle runtimes kept; a burst of threads beyond it pays for its own connections.
const IDLE_MAX: usize = 64;

/// Time in which nothing worth a look can have arrived: a look costs two system calls, a call of a busy loop has five.
const FRESH: Duration = Duration::from_millis(1);

/// The idle runtimes of one process.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<Idle>>);

#[derive(Debug)]
struct Idle {
    runtime: Runtime,
    since: Moment,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.lock().expect("no panic while holding this")
    }

    /// Drives `future` to its end on the calling thread, on the runtime `home` if that is idle. Returns its output, and
    /// the runtime it ran on. Must not be called in a tokio context.
    pub(crate) fn drive<T>(
        &self,
        clock: &Clock,
        home: Option<Id>,
        future: impl Future<Output = T>,
    ) -> io::Result<(T, Id)> {
        let (runtime, look) = match self.take(home) {
            Some(idle) => (idle.runtime, clock.now().since(idle.since) > FRESH),
            None => (Builder::new_current_thread().enable_all().build()?, false),
        };
        let output = runtime.block_on(async {
            if look {
                // Once to look at the sockets, once to let the connections read: what arrived since the last call is
                // heard before anything is judged by it.
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            future.await
        });
        let id = runtime.handle().id();
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(Idle { runtime, since: clock.now() });
        }
        Ok((output, id))
    }

    fn take(&self, home: Option<Id>) -> Option<Idle> {
        let mut idle = self.idle();
        match home.and_then(|home| idle.iter().rposition(|idle| idle.runtime.handle().id() == home)) {
            Some(place) => Some(idle.remove(place)),
            // The one used last has the warmest connections.
            None => idle.pop(),
        }
    }
}
