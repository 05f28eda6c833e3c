//! The meter of one hold: whether it is counted as held, for how long, and its span.
//!
//! A lock is counted from the moment at which its user has it until it is released or lost. A lock that was won and
//! never reached its user is not counted.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::LostReason;
use crate::process::Process;
use crate::process::metrics::{Counts, HoldEnd};
use crate::protocol::name::Name;
use crate::sys::clock::Moment;
use crate::sys::log::{EndedTrace, Trace, span};

/// The meter of one hold.
#[derive(Debug)]
pub(crate) struct HoldMeter {
    /// Where the lock is counted, if by its name.
    named: Option<Arc<Counts>>,
    /// How often its acquire waited.
    waits: u32,
    /// In nanoseconds.
    began: AtomicU64,
    is_counted: AtomicBool,
    trace: Mutex<Trace>,
}

impl HoldMeter {
    pub(crate) fn new(named: Option<Arc<Counts>>, waits: u32) -> Self {
        Self { named, waits, began: AtomicU64::new(0), is_counted: AtomicBool::new(false), trace: Mutex::default() }
    }

    fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().expect("no panic while holding this")
    }

    /// Returns where the lock is counted.
    pub(crate) fn counts<'a>(&'a self, process: &'a Process) -> &'a Counts {
        process.metrics.of(self.named.as_ref())
    }

    /// Returns how often the acquire waited.
    pub(crate) fn waits(&self) -> u32 {
        self.waits
    }

    /// Begins to count the hold. Once, before anything can end it.
    pub(crate) fn begin(&self, process: &Process, now: Moment) {
        self.began.store(now.nanos(), Ordering::Relaxed);
        self.counts(process).hold_began();
        self.is_counted.store(true, Ordering::Release);
    }

    /// Takes the hold back, because the lock does not reach its user.
    pub(crate) fn cancel(&self, process: &Process) {
        if self.is_counted.swap(false, Ordering::AcqRel) {
            self.counts(process).hold_cancelled();
        }
    }

    /// Begins the span of the hold within the caller's.
    pub(crate) fn trace_hold(&self, name: &Name, fence: u64) {
        let trace = span!("redlock.hold", name = %name, fence, end = tracing::field::Empty);
        if !trace.is_wanted() {
            return;
        }
        let replaced = {
            let mut kept = self.trace();
            // The end finds the span here, unless it came first.
            if self.is_counted.load(Ordering::Acquire) { mem::replace(&mut *kept, trace) } else { trace }
        };
        drop(replaced);
    }

    /// Ends the hold, with the reason if the lock was lost. Returns its span, of whose end a subscriber hears outside of
    /// every lock.
    pub(crate) fn end(&self, process: &Process, lost: Option<LostReason>, now: Moment) -> Option<EndedTrace> {
        if !self.is_counted.swap(false, Ordering::AcqRel) {
            return None;
        }
        let (counts, began) = (self.counts(process), Moment::from_nanos(self.began.load(Ordering::Relaxed)));
        let end = if lost.is_some() { HoldEnd::Lost } else { HoldEnd::Released };
        counts.hold_ended(end, now.since(began));
        if let Some(reason) = lost {
            counts.was_lost(reason);
        }
        Some(mem::take(&mut *self.trace()).ended("end", end.as_str()))
    }
}
