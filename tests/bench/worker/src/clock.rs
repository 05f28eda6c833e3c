//! The two clocks of every figure.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC`, which all processes of a machine share.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Processor time of this process, all its threads together.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

#[expect(clippy::cast_sign_loss, reason = "neither clock is ever negative")]
fn nanoseconds(at: Timespec) -> u64 {
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
