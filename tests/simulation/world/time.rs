//! Virtual time, and clocks that differ from it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::sys::clock::SimulatedTime;

/// Wall time at the start of every simulation, in microseconds since the epoch.
const WALL_START: u64 = 1_750_000_000_000_000;

/// The paused time of the runtime that runs a whole simulation, for callers in another runtime's context.
#[derive(Clone, Debug)]
pub(super) struct Time {
    pub(super) runtime: Handle,
    start: Instant,
}

impl Time {
    /// Takes the current runtime's time, from now.
    pub(super) fn here() -> Self {
        Self { runtime: Handle::current(), start: Instant::now() }
    }

    pub(super) fn now(&self) -> Instant {
        let _inside = self.runtime.enter();
        Instant::now()
    }

    pub(super) fn passed(&self) -> Duration {
        self.now() - self.start
    }

    pub(super) fn sleep_until(&self, at: Instant) -> Sleep {
        let _inside = self.runtime.enter();
        sleep_until(at)
    }

    pub(super) fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    fn nanos(&self) -> u64 {
        nanos(self.passed())
    }
}

/// A clock's difference from virtual time, which begins at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The start of a process's suspend-aware clock. A node has no such clock.
    pub origin: Duration,
    /// How much faster it runs, in parts per million; more than minus a million.
    pub ppm: i64,
    /// How far its wall clock is ahead, in microseconds.
    pub ahead_micros: i64,
}

impl Pace {
    /// Returns what this clock shows after `nanos` of virtual time.
    fn shown(self, nanos: u64) -> u64 {
        let shown = i128::from(nanos) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        u64::try_from(shown).unwrap_or(0)
    }

    /// Returns the virtual time that passes while this clock shows `duration`, rounded down.
    #[must_use]
    pub fn passes(self, duration: Duration) -> Duration {
        let nanos = i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX / 1_000_000);
        let passed = nanos * 1_000_000 / i128::from(1_000_000 + self.ppm);
        Duration::from_nanos(u64::try_from(passed).unwrap_or(0))
    }

    fn wall_micros(self, nanos: u64) -> u64 {
        (WALL_START + self.shown(nanos) / 1_000).saturating_add_signed(self.ahead_micros)
    }
}

/// The wall clock of a node.
#[derive(Debug)]
pub(super) struct WallClock {
    time: Time,
    pace: Pace,
    step_micros: AtomicI64,
}

impl WallClock {
    pub(super) fn new(time: Time, pace: Pace) -> Self {
        Self { time, pace, step_micros: AtomicI64::new(0) }
    }

    pub(super) fn micros(&self) -> u64 {
        self.pace.wall_micros(self.time.nanos()).saturating_add_signed(self.step_micros.load(Ordering::Relaxed))
    }

    pub(super) fn step(&self, micros: i64) {
        self.step_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// The machine of one process, with its clocks.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Clocks>);

#[derive(Debug)]
struct Clocks {
    time: Time,
    pace: Pace,
    slept: AtomicU64,
    stalled: AtomicU64,
    step_micros: AtomicI64,
}

impl Machine {
    pub(super) fn new(time: Time, pace: Pace) -> Self {
        let (slept, stalled, step_micros) = Default::default();
        Self(Arc::new(Clocks { time, pace, slept, stalled, step_micros }))
    }

    pub(super) fn clocks(&self) -> Arc<dyn SimulatedTime> {
        Arc::clone(&self.0) as Arc<dyn SimulatedTime>
    }

    /// Suspends it for the last `duration`: its clocks have gone on, its timers have not. The nodes are elsewhere:
    /// [`Node::step_clock`](super::Node::step_clock) lets the time pass for them.
    pub fn suspended(&self, duration: Duration) {
        self.0.slept.fetch_add(nanos(duration), Ordering::Relaxed);
    }

    /// Stops its clocks for the last `duration`, which no clock may do.
    pub fn stalled(&self, duration: Duration) {
        self.0.stalled.fetch_add(nanos(duration), Ordering::Relaxed);
    }

    /// Sets the wall clock forward, or back.
    pub fn step_clock(&self, micros: i64) {
        self.0.step_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clocks {
    fn nanos(&self) -> u64 {
        let (slept, stalled) = (self.slept.load(Ordering::Relaxed), self.stalled.load(Ordering::Relaxed));
        (self.time.nanos() + slept).saturating_sub(stalled)
    }
}

impl SimulatedTime for Clocks {
    fn monotonic_nanos(&self) -> u64 {
        nanos(self.pace.origin) + self.pace.shown(self.nanos())
    }

    fn wall_micros(&self) -> u64 {
        self.pace.wall_micros(self.nanos()).saturating_add_signed(self.step_micros.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let until = self.monotonic_nanos().saturating_add(nanos(duration));
        Box::pin(async move {
            // No timer fires before its clock shows the time.
            while let Some(left) = until.checked_sub(self.monotonic_nanos()).filter(|left| *left > 0) {
                let left = self.pace.passes(Duration::from_nanos(left)).min(LONGEST);
                self.time.sleep(left + Duration::from_nanos(1)).await;
            }
        })
    }
}

/// Longer than any simulation.
const LONGEST: Duration = Duration::from_secs(1_000_000);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
