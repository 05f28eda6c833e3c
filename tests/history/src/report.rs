//! What a check found.

use std::fmt;
use std::time::Duration;

use crate::record::{Kind, Record};

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
    /// How long the successful acquires took.
    pub waits: Waits,
    /// Everything that should not have been, grouped by the rule that it breaks and within one by name. The order of
    /// the records does not change it.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Whether nothing is wrong.
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
             {} denied, {} lost, {} violations",
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
            self.violations.len(),
        )
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

/// One acquisition and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The successful acquire.
    pub acquired: Record,
    /// The extension that reached furthest, if one reached further than the acquire.
    pub extended: Option<Record>,
    /// The release or the loss, whichever came first.
    pub ended: Option<Record>,
}

impl Hold {
    /// Until when the holder could rely on the lock, extensions counted; `None` where it knew no end.
    #[must_use]
    pub fn valid_until_ns(&self) -> Option<u64> {
        self.extended.as_ref().unwrap_or(&self.acquired).valid_until_ns
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { client, fence, .. } = &self.acquired;
        write!(f, "{client:?} (fence {}) held it from {}", fence.unwrap_or(0), At(self.acquired.over_ns()))?;
        let valid_until = self.valid_until_ns();
        let end = self.ended.as_ref().map(|ended| (ended.kind, ended_ns(ended)));
        match (end, valid_until) {
            (Some((kind, at)), valid_until) if valid_until.is_none_or(|valid_until| at <= valid_until) => {
                let what = if kind == Kind::Lost { "it was told of the loss" } else { "its release" };
                write!(f, " until {what} at {}", At(at))
            }
            (_, Some(valid_until)) => {
                let what = if self.extended.is_some() { "extended validity" } else { "validity" };
                write!(f, " until its {what} ended at {}", At(valid_until))
            }
            (_, None) => f.write_str(" and never gave it back"),
        }
    }
}

/// Something that should not have been. `Display` is one sentence for the person who has to find out why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A record that cannot be.
    Malformed {
        /// The record.
        record: Record,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// Two acquisitions of one name have the same fence.
    Duplicate {
        /// The acquire that returned first.
        first: Record,
        /// The other one.
        second: Record,
    },
    /// An acquire was invoked after another had returned and yet has the smaller fence.
    OutOfOrder {
        /// The acquire that had returned, with the largest fence of all that had.
        earlier: Record,
        /// The acquire with the fence that is too small.
        later: Record,
    },
    /// Two held one name at the same time.
    Overlap {
        /// The hold that began first.
        first: Box<Hold>,
        /// The hold that began before the first had ended.
        second: Box<Hold>,
    },
    /// The loss was told later than the end of the validity plus the slack.
    ToldLate {
        /// The hold; it `ended` with the record of the loss.
        hold: Box<Hold>,
    },
    /// The validity and the slack passed and the holder was not told, though the history goes on.
    NeverTold {
        /// The hold; if it has `ended`, then by a release that began too late.
        hold: Box<Hold>,
        /// The last time in the history.
        end_ns: u64,
    },
    /// An extension succeeded although the hold was over: lost is final.
    Revived {
        /// The hold without that extension.
        hold: Box<Hold>,
        /// The extension.
        extended: Record,
    },
}

impl Violation {
    /// The name of the lock concerned.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Malformed { record, .. } => &record.name,
            Self::Duplicate { second, .. } => &second.name,
            Self::OutOfOrder { later, .. } => &later.name,
            Self::Overlap { second, .. } => &second.acquired.name,
            Self::ToldLate { hold } | Self::NeverTold { hold, .. } | Self::Revived { hold, .. } => &hold.acquired.name,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?}: ", self.name())?;
        match self {
            Self::Malformed { record, flaw } => {
                let Record { client, kind, invoke_ns, return_ns, .. } = record;
                write!(f, "malformed {kind} by {client:?} from {} to {}: {flaw}", At(*invoke_ns), At(*return_ns))?;
                if let Some(fence) = record.fence {
                    write!(f, " (fence {fence})")?;
                }
                Ok(())
            }
            Self::Duplicate { first, second } => write!(
                f,
                "fence {} was given twice, to {:?} at {} and to {:?} at {}",
                second.fence.unwrap_or(0),
                first.client,
                At(first.over_ns()),
                second.client,
                At(second.over_ns()),
            ),
            Self::OutOfOrder { earlier, later } => write!(
                f,
                "{:?} got fence {} at {}, and {:?}, who asked only after that at {}, got the smaller fence {}",
                earlier.client,
                earlier.fence.unwrap_or(0),
                At(earlier.over_ns()),
                later.client,
                At(later.invoke_ns),
                later.fence.unwrap_or(0),
            ),
            Self::Overlap { first, second } => write!(f, "two holders at once: {first}, and {second}"),
            Self::ToldLate { hold } => {
                let valid_until = hold.valid_until_ns().unwrap_or(0);
                let told = hold.ended.as_ref().map_or(0, ended_ns);
                write!(f, "told late: {hold}, and heard of it {:?} later", Duration::from_nanos(told - valid_until))
            }
            Self::NeverTold { hold, end_ns } => {
                write!(f, "never told: {hold}, and heard nothing ")?;
                match &hold.ended {
                    Some(release) => write!(f, "before it released at {}", At(release.invoke_ns)),
                    None => write!(f, "until the end of the history at {}", At(*end_ns)),
                }
            }
            Self::Revived { hold, extended } => {
                write!(f, "revived: {hold}, and yet an extension asked for at {} succeeded", At(extended.invoke_ns))
            }
        }
    }
}

/// What is wrong with a malformed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// It returned before it was invoked.
    Backwards,
    /// It needs a fence and has none.
    NoFence,
    /// Nobody acquired this name with this fence.
    NeverAcquired,
    /// It was invoked before the acquire had returned.
    BeforeAcquired,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backwards => "it returned before it was invoked",
            Self::NoFence => "it has no fence",
            Self::NeverAcquired => "nobody acquired this fence",
            Self::BeforeAcquired => "it was invoked before the lock was acquired",
        })
    }
}

/// When a release or a loss ends a hold.
pub(crate) fn ended_ns(record: &Record) -> u64 {
    if record.kind == Kind::Lost { record.over_ns() } else { record.invoke_ns }
}

/// A time in seconds, with every digit that was recorded.
struct At(u64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
