//! The clock: the only file that reads time or sleeps, but for `boot_time.rs`, which asks the system.
//!
//! Validity is measured on a clock that counts suspend (`CLOCK_BOOTTIME` on Linux). A lease on a server expires during
//! a suspend, and a monotonic clock that stops would not notice. Wall time serves only the proposal of a fence. No
//! promise depends on it while the nodes keep their fence keys.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use crate::sys::boot_time;
use crate::sys::boot_time::timer::BootTimer;
use crate::sys::log::log;
use crate::texts::opaque;

/// Returns whether the current runtime has timers. Without them, tokio says so by a panic alone, and its text is on
/// standard error.
pub(crate) fn has_timers() -> bool {
    #[expect(clippy::disallowed_methods, reason = "this file owns sleeping")]
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// How long before its beginning a clock's origin is, in nanoseconds: 100 years. Most clocks begin with their machine,
/// and a lock may have been acquired before that, on another one.
const BEFORE_CLOCKS: u64 = 100 * 365 * 24 * 3_600 * 1_000_000_000;

/// An instant on the suspend-aware clock, in nanoseconds since an origin that only this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// An instant that never comes: more than 400 years away.
    pub const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns this instant plus `duration`, `NEVER` on overflow.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns this instant minus `duration`, not before the origin.
    pub(crate) fn before(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// Rounds this instant down to a multiple of `step`.
    pub(crate) fn rounded(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0 - self.0 % step)
    }

    /// Returns how long this instant is after `earlier`, zero if not after.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A moment that threads share.
#[derive(Debug, Default)]
pub(crate) struct SharedMoment(AtomicU64);

impl SharedMoment {
    pub(crate) const fn new(moment: Moment) -> Self {
        Self(AtomicU64::new(moment.0))
    }

    pub(crate) fn get(&self) -> Moment {
        Moment(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, moment: Moment) {
        self.0.store(moment.0, Ordering::Relaxed);
    }

    /// Makes it `moment` if that is earlier.
    pub(crate) fn bring_forward(&self, moment: Moment) {
        self.0.fetch_min(moment.0, Ordering::Relaxed);
    }

    /// Makes it `moment` if that is later.
    pub(crate) fn put_off(&self, moment: Moment) {
        self.0.fetch_max(moment.0, Ordering::Relaxed);
    }
}

/// A source of time. Production has one kind; a simulation gives every process its own.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The operating system's clocks and tokio's timers.
    System,
    /// Virtual time.
    Simulated(SimulatedClock),
}

impl Clock {
    /// Reads the suspend-aware clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        let nanos = match self {
            Self::System => boot_time::nanos(),
            Self::Simulated(clock) => clock.0.monotonic_nanos(),
        };
        Moment(nanos.saturating_add(BEFORE_CLOCKS))
    }

    /// Reads the wall clock, in microseconds since the Unix epoch.
    #[must_use]
    pub fn wall_micros(&self) -> u64 {
        match self {
            Self::System => {
                #[expect(clippy::disallowed_methods, reason = "this file owns time")]
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
            }
            Self::Simulated(clock) => clock.0.wall_micros(),
        }
    }

    /// Sleeps until `until`, or returns at once if that is past. Cancel safe.
    pub async fn sleep_until(&self, until: Moment) {
        if until == Moment::NEVER {
            return std::future::pending().await;
        }
        let left = until.since(self.now());
        if !left.is_zero() {
            self.sleep(left).await;
        }
    }

    /// Sleeps for `duration`. Cancel safe.
    pub async fn sleep(&self, duration: Duration) {
        match self {
            #[expect(clippy::disallowed_methods, reason = "this file owns sleeping")]
            Self::System => tokio::time::sleep(duration).await,
            Self::Simulated(clock) => clock.0.sleep(duration).await,
        }
    }

    /// Returns the output of `future` if it is ready within `limit`. As cancel safe as `future`, which the caller pins:
    /// moved in here it would take its room twice.
    pub(crate) fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T> + Unpin,
    ) -> impl Future<Output = Option<T>> {
        self.timeout_at(self.now().after(limit), future)
    }

    /// Returns the output of `future` if it is ready before `end`; see [`Clock::timeout`].
    pub(crate) fn timeout_at<T>(
        &self,
        end: Moment,
        mut future: impl Future<Output = T> + Unpin,
    ) -> impl Future<Output = Option<T>> {
        // The sleep is one type for all futures, and the rest is little to compile for each.
        let mut end: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(self.sleep_until(end));
        poll_fn(move |cx| match Pin::new(&mut future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => end.as_mut().poll(cx).map(|()| None),
        })
    }
}

/// A timer ready about once per `period` of polling, however many futures poll it in turn. It is armed once per period,
/// not once per call.
#[derive(Debug)]
pub(crate) struct Tick {
    period: Duration,
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Tick {
    pub(crate) const fn every(period: Duration) -> Self {
        Self { period, timer: None }
    }

    /// Becomes ready a period after it last was. Must be polled in the same runtime each time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[expect(clippy::disallowed_methods, reason = "this file owns sleeping")]
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.period)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        #[expect(clippy::disallowed_methods, reason = "this file owns time")]
        let next = tokio::time::Instant::now() + self.period;
        timer.as_mut().reset(next);
        Poll::Ready(())
    }
}

/// The delay in noticing a suspend where no timer of the operating system counts it.
const TICK: Duration = Duration::from_millis(250);

/// An alarm at an instant of the suspend-aware clock. After a suspend it rings as soon as the machine runs again on
/// Linux, elsewhere within `TICK` of that. It serves one runtime, in which it is made.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    timer: Option<BootTimer>,
}

impl Alarm {
    /// Makes an alarm in the runtime that will wait for it.
    #[must_use]
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            timer: match clock {
                Clock::System => boot_timer(),
                Clock::Simulated(_) => None,
            },
        }
    }

    /// Waits until `at` or less, so the caller must read the clock again. Waits for ever for [`Moment::NEVER`]. Cancel
    /// safe.
    pub async fn ring(&self, at: Moment) {
        if at == Moment::NEVER {
            return std::future::pending().await;
        }
        if let Some(timer) = &self.timer
            && timer.ring(at.nanos().saturating_sub(BEFORE_CLOCKS)).await.is_ok()
        {
            return;
        }
        self.clock.sleep(at.since(self.clock.now()).min(TICK)).await;
    }
}

/// Makes a timer that counts suspend. Where the system has none, that is no news.
fn boot_timer() -> Option<BootTimer> {
    let made = BootTimer::new();
    if let Err(error) = &made
        && error.kind() != ErrorKind::Unsupported
    {
        log!(CLOCK_POLLED, %error, "no suspend-aware timer available; checking every 250 ms");
    }
    made.ok()
}

/// Virtual time for a simulation.
#[derive(Clone)]
pub struct SimulatedClock(pub(crate) Arc<dyn SimulatedTime>);

/// The operations of a simulated clock.
pub(crate) trait SimulatedTime: Send + Sync {
    /// Reads the process's suspend-aware clock, in nanoseconds.
    fn monotonic_nanos(&self) -> u64;
    /// Reads the process's wall clock, in microseconds since the epoch.
    fn wall_micros(&self) -> u64;
    /// Sleeps until the suspend-aware clock has advanced by `duration`.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

opaque!(SimulatedClock);

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::os::fd::AsRawFd;

    #[cfg(target_os = "linux")]
    use rustix::process::{Resource, Rlimit};

    use super::*;
    #[cfg(target_os = "linux")]
    use crate::sys::log::heard;

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        let early = Moment::from_nanos(5);
        assert_eq!(early.before(Duration::from_secs(1)), Moment::from_nanos(0));
        assert_eq!(early.after(Duration::MAX), Moment::NEVER);
        assert_eq!(early.since(Moment::NEVER), Duration::ZERO);
        assert_eq!(early.after(Duration::from_nanos(7)).since(early), Duration::from_nanos(7));
        assert_eq!(Moment::from_nanos(17).rounded(Duration::from_nanos(5)), Moment::from_nanos(15));
        assert_eq!(early.rounded(Duration::ZERO), early);
    }

    #[tokio::test]
    async fn an_alarm_rings_at_the_instant_it_was_set_to_last() {
        let clock = Clock::System;
        let alarm = Alarm::new(&clock);
        #[cfg(target_os = "linux")]
        assert!(alarm.timer.is_some());
        for millis in [30, 0, 5] {
            let at = clock.now().after(Duration::from_millis(millis));
            let later = at.after(Duration::from_secs(3_600));
            assert!(!rings_soon(&alarm, later).await);
            while clock.now() < at {
                alarm.ring(at).await;
            }
            assert!(!rings_soon(&alarm, later).await, "it rings for what it was set to before");
        }
    }

    #[tokio::test]
    async fn an_alarm_for_never_does_not_ring() {
        let alarm = Alarm::new(&Clock::System);
        assert!(!rings_soon(&alarm, Moment::NEVER).await);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_alarm_without_a_timer_says_so_and_rings() {
        const ME: &str = "an_alarm_without_a_timer_says_so_and_rings";
        if !harness::is_alone(harness::this_test(module_path!(), ME)) {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first_free = rustix::io::dup(std::io::stdin()).unwrap().as_raw_fd();
        let files = Some(first_free.try_into().unwrap());
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }).unwrap();
        runtime.block_on(async {
            let (alarm, said) = heard::text(|| Alarm::new(&Clock::System));
            assert!(alarm.timer.is_none() && said.contains("clock_polled"), "{said}");
            let at = Clock::System.now().after(TICK + Duration::from_millis(10));
            while Clock::System.now() < at {
                alarm.ring(at).await;
            }
        });
    }

    async fn rings_soon(alarm: &Alarm, at: Moment) -> bool {
        tokio::select! {
            biased;
            () = alarm.ring(at) => true,
            () = Clock::System.sleep(Duration::from_millis(20)) => false,
        }
    }

    #[test]
    fn the_system_clock_goes_forward() {
        let clock = Clock::System;
        let first = clock.now();
        assert!(clock.now() >= first);
        // 2023-11-14, before this was written, to 2100-01-01.
        assert!((1_700_000_000_000_000..4_102_444_800_000_000).contains(&clock.wall_micros()));
    }
}
