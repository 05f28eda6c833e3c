//! What time is it, on a clock that also runs while the machine sleeps? And which timer rings by it?
//!
//! | system | clock | timer |
//! | --- | --- | --- |
//! | Linux | `CLOCK_BOOTTIME` | timerfd |
//! | macOS | `CLOCK_MONOTONIC`, which follows `mach_continuous_time` | none: the clock is looked at every 250 ms |
//! | others | that of [`Instant`], which may stop in a sleep: [`MISSING`] | none |

pub(crate) use here::*;

#[cfg(any(target_os = "linux", target_os = "macos"))]
mod here {
    use rustix::time::{ClockId, clock_gettime};

    /// Why servers cannot be used on this system; `None` where they can.
    pub(crate) const MISSING: Option<&str> = None;

    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(target_os = "macos")]
    const CLOCK: ClockId = ClockId::Monotonic;

    /// Returns the time since an origin that only this process knows.
    pub(crate) fn nanos() -> u64 {
        let now = clock_gettime(CLOCK);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod here {
    use std::sync::LazyLock;
    use std::time::Instant;

    /// Why servers cannot be used on this system. A lease on a server ends during a sleep, and a holder whose clock stood
    /// still would not notice. Nodes in memory sleep with their holders.
    pub(crate) const MISSING: Option<&str> = Some(
        "redlock knows no clock of this system that runs while the machine sleeps, as Linux and macOS have, so only \
         memory:// nodes can be used",
    );

    #[expect(clippy::disallowed_methods, reason = "this file owns time")]
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// Returns the time since the first call.
    pub(crate) fn nanos() -> u64 {
        u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(target_os = "linux")]
pub(crate) mod timer {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
    use tokio::io::{Interest, unix::AsyncFd};

    /// A timer that counts sleep. It serves the runtime in which it is made.
    #[derive(Debug)]
    pub(crate) struct BootTimer(AsyncFd<OwnedFd>);

    impl BootTimer {
        pub(crate) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
            #[expect(
                deprecated,
                reason = "its successor is unsafe, for types that may change their descriptor: this cannot"
            )]
            AsyncFd::with_interest(timer, Interest::READABLE).map(Self)
        }

        /// Waits until this time, and sets the timer for that.
        pub(crate) async fn ring(&self, nanos: u64) -> io::Result<()> {
            const SECOND: u64 = 1_000_000_000;
            let whole = |number: u64| number.try_into().unwrap_or(i64::MAX);
            // All zeros would disarm it.
            let nanos = nanos.max(1);
            let it_value = Timespec { tv_sec: whole(nanos / SECOND), tv_nsec: whole(nanos % SECOND) };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            rustix::time::timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
            loop {
                let mut ready = self.0.readable().await?;
                // Setting the timer discards an unread expiry, but tokio may still remember that it was readable.
                let told = ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0; 8])?));
                if let Ok(told) = told {
                    return told.map(drop);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) mod timer {
    use std::io;

    /// There is none here.
    #[derive(Debug)]
    pub(crate) enum BootTimer {}

    impl BootTimer {
        pub(crate) fn new() -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        #[expect(clippy::unused_async, reason = "Linux has one")]
        pub(crate) async fn ring(&self, _: u64) -> io::Result<()> {
            match *self {}
        }
    }
}
