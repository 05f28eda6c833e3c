//! The result of a check.

use std::fmt;
use std::time::Duration;

use crate::violation::Violation;

/// The outcome of a check. `Display` is a summary in one line; the violations print one sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many records were looked at.
    pub records: usize,
    /// How many different names they are about.
    pub names: usize,
    /// How many different clients wrote them.
    pub clients: usize,
    /// How many acquires succeeded.
    pub acquisitions: usize,
    /// How many acquires did not.
    pub denied: usize,
    /// How many losses were told.
    pub losses: usize,
    /// How many writes were accepted.
    pub writes: usize,
    /// How many pairs of holds overlapped where a lapse excuses it.
    pub excused: usize,
    /// How long the successful acquires took.
    pub waits: Waits,
    /// All violations, grouped by rule and sorted by name. The order of the records does not change it.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Whether there is no violation.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records, {} clients, {} name{}: {} acquisitions (wait median {:.1?}, 99 % {:.1?}, longest {:.1?}), \
             {} denied, {} lost, ",
            self.records,
            self.clients,
            self.names,
            if self.names == 1 { "" } else { "s" },
            self.acquisitions,
            self.waits.median,
            self.waits.p99,
            self.waits.longest,
            self.denied,
            self.losses,
        )?;
        for (count, what) in [(self.writes, "writes"), (self.excused, "overlaps excused")] {
            if count > 0 {
                write!(f, "{count} {what}, ")?;
            }
        }
        write!(f, "{} violations", self.violations.len())
    }
}

/// How long successful acquires took, from invocation to return; zero where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Half of them took no longer.
    pub median: Duration,
    /// All but one in a hundred took no longer.
    pub p99: Duration,
    /// None took longer.
    pub longest: Duration,
}

impl Waits {
    pub(crate) fn new(mut waits: Vec<u64>) -> Self {
        waits.sort_unstable();
        let at = |percent: usize| {
            let rank = (waits.len() * percent).div_ceil(100).saturating_sub(1);
            Duration::from_nanos(waits.get(rank).copied().unwrap_or(0))
        };
        Self { median: at(50), p99: at(99), longest: at(100) }
    }
}
