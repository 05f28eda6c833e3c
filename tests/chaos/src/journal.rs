//! The record of a worker's events.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// A file to which lines are added; each is written whole, whatever happens to the process.
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn new(path: &Path) -> Self {
        Self(OpenOptions::new().append(true).create(true).open(path).expect("the journal can be written"))
    }

    pub(crate) fn write(&self, line: &Value) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).expect("the journal can be written");
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds: the clock that all processes of the machine share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("time since the start of the machine");
    let nanos = u64::try_from(now.tv_nsec).expect("a fraction of a second");
    seconds * 1_000_000_000 + nanos
}
