//! A network and processes in which nothing is left to chance, for stories that make their own trouble.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlock::Redlock;
use redlock::testing::simulation::{Fate, Fault, Leg, Network, Pace, World, plant};

use crate::dice::Dice;

/// What every message takes.
pub const DELAY: Duration = Duration::from_millis(1);

/// Every message takes a millisecond.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm;

impl Network for Calm {
    fn fate(&self, _: usize, _: usize, _: Leg) -> Fate {
        Fate::Deliver(DELAY)
    }
}

/// Calm, and every acquire that the second node executes is counted.
#[derive(Debug, Default)]
pub struct Counting(AtomicUsize);

impl Counting {
    /// How many there were so far.
    pub fn acquires(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Network for Counting {
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate {
        Calm.fate(process, node, leg)
    }

    fn note(&self, line: &dyn Fn() -> String) {
        let line = line();
        if line.starts_with("node 2: ") && line.contains(" acquire ") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Nodes over a network of this kind, and processes of their own, each with a client of all nodes.
///
/// # Panics
///
/// As [`World::new`].
#[must_use]
pub fn stage<N: Network + Default + 'static, const PROCESSES: usize>(
    nodes: usize,
) -> (Arc<N>, World, [Redlock; PROCESSES]) {
    let network = Arc::<N>::default();
    let world = World::new(Arc::clone(&network) as Arc<dyn Network>, &vec![Pace::default(); nodes]);
    let process = |index| world.process(index, Pace::default(), bits(u8::try_from(index).unwrap_or(0)));
    let clients = std::array::from_fn(|index| process(index).expect("a client"));
    (network, world, clients)
}

/// Different bits each time and for each process, which is all that tokens need in a short story.
pub fn bits(process: u8) -> impl Fn(&mut [u8]) + Send + Sync + 'static {
    let calls = AtomicU8::new(process * 100);
    move |bytes| bytes.fill(calls.fetch_add(1, Ordering::Relaxed))
}

/// Bits as a seed gives them, for a story with many processes.
pub fn chance(seed: u64) -> impl Fn(&mut [u8]) + Send + Sync + 'static {
    let dice = Mutex::new(Dice::new(seed));
    move |bytes| dice.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes)
}

/// Whether `story` ends well.
///
/// # Panics
///
/// If not, or as [`in_virtual_time`].
pub fn holds(story: impl AsyncFn() -> bool) {
    in_virtual_time(async { assert!(story().await, "the promise is not kept") });
}

/// Whether `story` ends well as it is, and does not with the `fault` of servers planted.
///
/// # Panics
///
/// If not, or as [`in_virtual_time`].
pub fn bites(fault: Fault, story: impl AsyncFn() -> bool) {
    for planted in [None, Some(fault)] {
        plant(planted);
        let kept = AtomicBool::new(false);
        in_virtual_time(async { kept.store(story().await, Ordering::Relaxed) });
        plant(None);
        assert_eq!(kept.into_inner(), planted.is_none(), "with {planted:?} planted");
    }
}

/// Runs `story` in virtual time.
///
/// # Panics
///
/// If no runtime can be made.
pub fn in_virtual_time(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without sockets").block_on(story);
}
