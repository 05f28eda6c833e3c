//! A worker's work while it holds the lock, on either face.

use std::path::Path;
use std::time::Duration;

use redlock::{Error, ErrorKind};

use crate::clock::now_ns;
use crate::counter::Counter;
use crate::line::{Line, say};
use crate::orders::Orders;

/// How often a holder asks whether it still holds the lock.
const LOOK: Duration = Duration::from_millis(20);
/// By how much more must remain than before, so that a renewal is worth a line, in nanoseconds.
const RENEWED_NS: u64 = 100_000_000;

/// One hold of the lock, from its acquire to its release or loss.
pub(crate) struct Hold<'a> {
    file: &'a Path,
    orders: &'a Orders,
    fence: u64,
    valid_until_ns: u64,
    end_ns: u64,
    kept: bool,
    lost: bool,
    /// The number to write at the end; `None` if the file must not be touched.
    counter: Option<Counter>,
}

/// The next step in a hold.
pub(crate) enum Next {
    /// Sleep so long, then look at the lock.
    Wait(Duration),
    Finish,
}

impl<'a> Hold<'a> {
    /// Reports the acquisition and reads the file.
    pub(crate) fn begin(file: &'a Path, orders: &'a Orders, fence: u64, remaining: impl FnOnce() -> Duration) -> Self {
        // The clock is read first: the recorded end of validity must not be later than the library means it.
        let at_ns = now_ns();
        let remaining_ns = nanos(remaining());
        let keep = orders.keep();
        say(&Line::Acquired { at_ns, fence, remaining_ns, kept: keep.is_some() });
        // 5 to 100 ms, different every time, so that the workers do not fall into step.
        let length = keep.unwrap_or_else(|| Duration::from_millis(5 + fence % 96));
        let end_ns = at_ns + nanos(length);
        let valid_until_ns = at_ns + remaining_ns;
        let counter = read(file, fence);
        Self { file, orders, fence, valid_until_ns, end_ns, kept: keep.is_some(), lost: false, counter }
    }

    pub(crate) fn next(&self) -> Next {
        let left = Duration::from_nanos(self.end_ns.saturating_sub(now_ns()));
        if self.lost || left.is_zero() || (self.kept && self.orders.stopped()) {
            return Next::Finish;
        }
        Next::Wait(left.min(LOOK))
    }

    /// Records the lock's own view of its state.
    pub(crate) fn look(&mut self, check: Result<(), Error>, remaining: impl FnOnce() -> Duration) {
        if let Err(error) = check {
            return self.lost(&error);
        }
        let at_ns = now_ns();
        let remaining_ns = nanos(remaining());
        if at_ns + remaining_ns > self.valid_until_ns + RENEWED_NS {
            self.valid_until_ns = at_ns + remaining_ns;
            say(&Line::Renewed { at_ns, fence: self.fence, remaining_ns });
        }
    }

    /// Writes the file, unless the lock is lost; returns whether there is something to release.
    pub(crate) fn finish(&mut self) -> bool {
        if self.lost {
            return false;
        }
        match self.counter.take().map(|counter| counter.write(self.file)) {
            Some(Ok(())) => say(&Line::Counted { fence: self.fence }),
            Some(Err(message)) => say(&Line::Damage { message: &message }),
            None => {}
        }
        true
    }

    pub(crate) fn released(&mut self, asked_ns: u64, result: Result<(), Error>) {
        match result {
            Ok(()) => say(&Line::Released { asked_ns, at_ns: now_ns(), fence: self.fence }),
            Err(error) if error.kind() == ErrorKind::Lost => self.lost(&error),
            Err(error) => failed("release", asked_ns, Some(self.fence), &error),
        }
    }

    /// How long to wait before the next round: 20 to 120 ms, which lets the others come first.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(20 + self.fence / 96 % 101)
    }

    fn lost(&mut self, error: &Error) {
        self.lost = true;
        let reason = error.reason().map_or("unknown", |reason| reason.as_str());
        say(&Line::Lost { at_ns: now_ns(), fence: self.fence, reason });
    }
}

/// Reports a failed call.
pub(crate) fn failed(call: &str, asked_ns: u64, fence: Option<u64>, error: &Error) {
    let message = error.to_string();
    say(&Line::Error { call, asked_ns, at_ns: now_ns(), fence, code: error.code(), message: &message });
}

/// The number to write next; `None` if the file is damaged or was written under a later lock.
fn read(file: &Path, fence: u64) -> Option<Counter> {
    let damage = match Counter::read(file) {
        Ok(last) if last.fence < fence => return Some(Counter { count: last.count + 1, fence }),
        Ok(last) => format!("holds fence {fence}, but the file has seen {} already", last.fence),
        Err(damage) => damage,
    };
    say(&Line::Damage { message: &damage });
    None
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than 500 years")
}
