//! What a client writes down, and a collection of it.

use std::fmt;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use crate::check::{Rules, check};
use crate::report::Report;

/// Which call (or event) a [`Record`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A lock was asked for; `ok` says whether it was won.
    Acquire,
    /// A held lock was extended, by the holder or by renewal.
    Extend,
    /// A held lock was given back. Whatever came of it, the hold ends when it was invoked. Whoever kills a holder
    /// writes a release with `ok: false` on its behalf: from then on nobody relies on the lock.
    Release,
    /// The holder was told that its lock is lost; `return_ns` is when.
    Lost,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
            Self::Lost => "lost",
        })
    }
}

/// One call that came back, or one loss that was told.
///
/// All times are nanoseconds of one clock that every client of the history shares: `CLOCK_MONOTONIC` or
/// `CLOCK_BOOTTIME` for processes of one machine, virtual time in a simulation. `invoke_ns` is read before the call
/// and `return_ns` after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Who made the call: anything that names one holder among the others.
    pub client: String,
    /// The name of the lock.
    pub name: String,
    /// Which call.
    pub kind: Kind,
    /// When the call was made. For [`Kind::Lost`] the same as `return_ns`, or when the holder began to listen.
    pub invoke_ns: u64,
    /// When the call came back. For [`Kind::Lost`]: when the holder was told.
    pub return_ns: u64,
    /// Whether the call did what it was asked to do.
    pub ok: bool,
    /// The fence of the lock concerned; only a failed acquire has none.
    pub fence: Option<u64>,
    /// After a successful acquire or extend: until when the holder may rely on the lock, never later than the library
    /// means it (read the clock first and ask for the time that remains after that). `None` there means that the
    /// holder knows no end (a driver that does not see renewals): the hold lasts until it is released or lost.
    pub valid_until_ns: Option<u64>,
}

impl Record {
    /// When the call was over; never before it was made, whatever a broken record says.
    pub(crate) fn over_ns(&self) -> u64 {
        self.return_ns.max(self.invoke_ns)
    }
}

/// Records collected in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    records: Vec<Record>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one record.
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// What was collected, in the order in which it was added.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// [`check`]s what was collected.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Report {
        check(&self.records, rules)
    }

    /// Reads JSON lines, one record each. Empty lines are passed over, anything else that is no record is an error.
    pub fn read(input: impl BufRead) -> Result<Self, ReadError> {
        let mut history = Self::new();
        for (i, line) in input.lines().enumerate() {
            let at = |cause| ReadError { line: i + 1, cause };
            let line = line.map_err(at)?;
            if !line.trim().is_empty() {
                history.push(serde_json::from_str(&line).map_err(|cause| at(cause.into()))?);
            }
        }
        Ok(history)
    }
}

impl Extend<Record> for History {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        self.records.extend(records);
    }
}

impl FromIterator<Record> for History {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        Self { records: records.into_iter().collect() }
    }
}

/// A line that is no record.
#[derive(Debug)]
pub struct ReadError {
    /// Which line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub cause: io::Error,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.cause)
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
