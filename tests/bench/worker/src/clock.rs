//! The two clocks of every figure, and that of the wall.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// `CLOCK_MONOTONIC`, which all processes of a machine share.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Microseconds of the Unix epoch, which clients propose as a fence.
#[must_use]
pub fn wall_us() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime)) / 1000
}

/// Processor time of this process, all its threads together.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

#[expect(clippy::cast_sign_loss, reason = "no clock is ever negative")]
fn nanoseconds(at: Timespec) -> u64 {
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}
