//! The clock that all processes of the machine share.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("time since the start of the machine");
    let nanos = u64::try_from(now.tv_nsec).expect("a fraction of a second");
    seconds * 1_000_000_000 + nanos
}
