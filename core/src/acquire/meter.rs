//! The meter of one call to acquire: how often it waited and how it ended, for the metrics and the call's span.
//!
//! A call is counted once, when its state is dropped, wherever that happens. A call that is dropped before its end was
//! cancelled.

use std::sync::Arc;

use crate::error::{Error, Waited};
use crate::hold::meter::HoldMeter;
use crate::process::Process;
use crate::process::context::LockContext;
use crate::process::metrics::{AcquireEnd, Counts};
use crate::sys::clock::Moment;
use crate::sys::log::{OpenSpan, span};

/// The meter of one call. Its drop counts the call.
#[derive(Debug)]
pub(crate) struct Meter {
    process: Arc<Process>,
    /// When the call began.
    pub(super) began: Moment,
    /// Where the lock is counted, if by its name.
    named: Option<Arc<Counts>>,
    /// The span of the call.
    pub(super) trace: OpenSpan,
    end: AcquireEnd,
    waited: Waited,
    /// Whether it is one of those that wait now.
    is_waiting: bool,
}

impl Meter {
    pub(crate) fn new(context: &LockContext, now: Moment) -> Self {
        let process = Arc::clone(&context.process);
        let trace = span!(
            "redlock.acquire",
            name = %context.spec.name,
            outcome = tracing::field::Empty,
            fence = tracing::field::Empty,
            contended = tracing::field::Empty,
            waits = tracing::field::Empty,
        );
        Self {
            began: now,
            named: process.metrics.named(&context.spec.name),
            process,
            trace,
            end: AcquireEnd::Cancelled,
            waited: Waited::default(),
            is_waiting: false,
        }
    }

    fn counts(&self) -> &Counts {
        self.process.metrics.of(self.named.as_ref())
    }

    /// Records that others have the lock, or were taking it.
    pub(crate) fn record_contention(&mut self) {
        self.waited.is_contended = true;
    }

    /// Counts one wait, and the call among those that wait until it ends.
    pub(crate) fn record_wait(&mut self) {
        self.waited.waits = self.waited.waits.saturating_add(1);
        if !self.is_waiting {
            self.is_waiting = true;
            self.counts().waiting.add();
        }
    }

    /// Returns the meter of the lock that the call has won.
    pub(crate) fn of_hold(&self) -> HoldMeter {
        HoldMeter::new(self.named.clone(), self.waited)
    }

    /// Records that the call ended, if `result` is an error. The error says then how the call waited.
    pub(crate) fn record_result<T>(&mut self, result: &mut Result<T, Error>) {
        if let Err(error) = result {
            self.end = error.kind().into();
            error.set_waited(self.waited);
        }
    }

    /// Records that the call ended with a lock.
    pub(crate) fn record_acquired(&mut self, fence: u64) {
        self.end = AcquireEnd::Acquired;
        self.trace.record("fence", fence);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let took = self.process.clock.now().since(self.began);
        let counts = self.counts();
        if self.is_waiting {
            counts.waiting.subtract();
        }
        counts.acquires[self.end as usize][usize::from(self.waited.is_contended)].record(took);
        if self.trace.is_wanted() {
            self.trace.record("outcome", self.end.as_str());
            // The bindings do not know these of a cancelled call, and every language has the same attributes.
            if self.end.is_answer() {
                self.trace.record("contended", self.waited.is_contended);
                self.trace.record("waits", self.waited.waits);
            }
        }
    }
}
