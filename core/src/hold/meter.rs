//! The meter of one hold: whether it is counted as held, for how long, and its span.
//!
//! A lock is counted from the moment at which its user has it until it is released or lost. A lock that was won and
//! never reached its user is not counted.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{LostReason, Waited};
use crate::process::Process;
use crate::process::metrics::{Counts, HoldEnd};
use crate::protocol::name::Name;
use crate::sys::clock::{Moment, SharedMoment};
use crate::sys::log::{OpenSpan, span};
use crate::sys::mutex::Mutex;

/// The meter of one hold.
#[derive(Debug)]
pub(crate) struct HoldMeter {
    /// Where the lock is counted, if by its name.
    named: Option<Arc<Counts>>,
    /// How its acquire waited.
    pub(crate) waited: Waited,
    /// When it began.
    began: SharedMoment,
    is_counted: AtomicBool,
    trace: Mutex<OpenSpan>,
}

impl HoldMeter {
    pub(crate) fn new(named: Option<Arc<Counts>>, waited: Waited) -> Self {
        Self {
            named,
            waited,
            began: SharedMoment::default(),
            is_counted: AtomicBool::new(false),
            trace: Mutex::default(),
        }
    }

    /// Returns where the lock is counted.
    pub(crate) fn counts<'a>(&'a self, process: &'a Process) -> &'a Counts {
        process.metrics.of(self.named.as_ref())
    }

    /// Begins to count the hold. Once, before anything can end it.
    pub(crate) fn begin(&self, process: &Process, now: Moment) {
        self.began.set(now);
        self.counts(process).held.add();
        self.is_counted.store(true, Ordering::Release);
    }

    /// Takes the hold back, because the lock does not reach its user.
    pub(crate) fn cancel(&self, process: &Process) {
        if self.is_counted.swap(false, Ordering::AcqRel) {
            self.counts(process).held.subtract();
        }
    }

    /// Begins the span of the hold within the caller's.
    pub(crate) fn trace_hold(&self, name: &Name, fence: u64) {
        // The older protocol does not have one.
        let fence = (fence > 0).then_some(fence);
        let trace = span!("redlock.hold", name = %name, fence, end = tracing::field::Empty);
        if !trace.is_wanted() {
            return;
        }
        let replaced = {
            let mut kept = self.trace.lock();
            // The end finds the span here, unless it came first.
            if self.is_counted.load(Ordering::Acquire) { mem::replace(&mut *kept, trace) } else { trace }
        };
        drop(replaced);
    }

    /// Ends the hold, which was lost for `reason`. Returns its span, of whose end a subscriber hears outside of every
    /// lock.
    pub(crate) fn lose(&self, process: &Process, reason: LostReason, now: Moment) -> Option<OpenSpan> {
        let took = self.stop(process, now)?;
        let counts = self.counts(process);
        counts.holds[HoldEnd::Lost as usize].record(took);
        counts.lost[reason as usize].add();
        Some(mem::take(&mut *self.trace.lock()))
    }

    /// Ends the hold for its release. Returns its meter while it is not known whether the lock was lost.
    pub(crate) fn release(&self, process: &Arc<Process>, now: Moment) -> Option<ReleaseMeter> {
        let took = self.stop(process, now)?;
        let trace = mem::take(&mut *self.trace.lock());
        let end = HoldEnd::Released;
        Some(ReleaseMeter { process: Arc::clone(process), named: self.named.clone(), took, trace, end, lost: None })
    }

    /// Ends the hold, which goes on elsewhere. Not while a lock of the engine is held.
    pub(crate) fn detach(&self, process: &Arc<Process>, now: Moment) {
        if let Some(mut meter) = self.release(process, now) {
            meter.end = HoldEnd::Detached;
        }
    }

    /// Stops to count the lock as held. Returns how long that was.
    fn stop(&self, process: &Process, now: Moment) -> Option<Duration> {
        if !self.is_counted.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.counts(process).held.subtract();
        Some(now.since(self.began.get()))
    }
}

/// The meter of a hold during its release. Its drop counts how the hold ended, and closes its span. Not while a lock of
/// the engine is held, because a subscriber hears of it.
#[derive(Debug)]
pub(crate) struct ReleaseMeter {
    process: Arc<Process>,
    named: Option<Arc<Counts>>,
    took: Duration,
    trace: OpenSpan,
    end: HoldEnd,
    lost: Option<LostReason>,
}

impl ReleaseMeter {
    /// Records that the release found the lock lost.
    pub(crate) fn record_loss(&mut self, reason: LostReason) {
        (self.end, self.lost) = (HoldEnd::Lost, Some(reason));
    }
}

impl Drop for ReleaseMeter {
    fn drop(&mut self) {
        let counts = self.process.metrics.of(self.named.as_ref());
        counts.holds[self.end as usize].record(self.took);
        if let Some(reason) = self.lost {
            counts.lost[reason as usize].add();
        }
        self.trace.record("end", self.end.as_str());
    }
}
