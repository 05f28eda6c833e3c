//! Violations of the rules.

use std::fmt;
use std::time::Duration;

use crate::record::{Kind, Record};

/// One acquisition and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The successful acquire.
    pub acquired: Record,
    /// The extension that reached furthest, if one reached further than the acquire.
    pub extended: Option<Record>,
    /// The release or the loss, whichever was first.
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

/// A violation. `Display` is one sentence for the person who has to find the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A record that is impossible.
    Malformed {
        /// The record.
        record: Record,
        /// The reason.
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
    /// The validity and the slack passed without notifying the holder, though the history continues.
    NeverTold {
        /// The hold; if it has `ended`, then by a release that began too late.
        hold: Box<Hold>,
        /// The last time in the history.
        end_ns: u64,
    },
    /// An extension succeeded although the hold had ended: lost is final.
    Revived {
        /// The hold without that extension.
        hold: Box<Hold>,
        /// The extension.
        extended: Record,
    },
    /// An extension succeeded that was invoked after an acquire with a larger fence had returned: another client held
    /// the lock in the meantime.
    Bridged {
        /// The acquire that had returned, with the largest fence of all that had.
        newer: Record,
        /// The extension.
        extended: Record,
    },
    /// An acquire returned a valid lock after one with a larger fence had been acquired and released. The larger fence
    /// came later, so the keys of the other lock were gone.
    Superseded {
        /// The hold with the larger fence, which had ended.
        first: Box<Hold>,
        /// The hold that began after it.
        second: Box<Hold>,
    },
    /// A client got a lock that was still reserved: for its least time, or for the margin of a holder whose time had run out.
    TooSoon {
        /// The hold that had ended.
        first: Box<Hold>,
        /// The hold that began too soon.
        second: Box<Hold>,
        /// Until when no other client may get the lock.
        reserved_ns: u64,
    },
    /// A write was accepted after one with a larger fence.
    StaleWrite {
        /// The write that had been accepted, with the largest fence of all that had.
        earlier: Record,
        /// The write that should have been refused.
        later: Record,
    },
    /// A write was refused though no larger fence can have been accepted by then.
    Refused {
        /// The write.
        write: Record,
    },
    /// Two writes were accepted under one count: one of them is lost.
    CountedTwice {
        /// The write that was invoked first.
        first: Record,
        /// The other one.
        second: Record,
    },
    /// The count of a read or an accepted write is impossible.
    Miscounted {
        /// The read or the write.
        record: Record,
        /// The smallest possible count: as many as had been accepted or counted before, and this one.
        least: u64,
        /// The largest possible count: as many as had been invoked.
        most: u64,
    },
    /// A key was on a node though no client was left that may have one.
    Leaked {
        /// The key that was seen.
        key: Record,
        /// The hold with that fence, if there was one.
        hold: Option<Box<Hold>>,
    },
    /// A call returned too late, or not at all.
    Stuck {
        /// The call.
        call: Record,
        /// The time by which it had to return: the limit after its invocation, or after the last outage that it met.
        deadline_ns: u64,
    },
    /// An acquire waited for too long while no client had the lock.
    Idle {
        /// The acquire.
        call: Record,
        /// Since when it waited and no client had the lock.
        since_ns: u64,
        /// Until when this lasted.
        until_ns: u64,
    },
    /// An acquire succeeded without a quorum of grants.
    NoQuorum {
        /// The acquire.
        acquired: Record,
        /// How many nodes granted it.
        granted: usize,
    },
}

impl Violation {
    /// The name of the lock concerned.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.record().name
    }

    /// A record about the lock concerned.
    fn record(&self) -> &Record {
        match self {
            Self::ToldLate { hold } | Self::NeverTold { hold, .. } | Self::Revived { hold, .. } => &hold.acquired,
            Self::Overlap { second, .. } | Self::Superseded { second, .. } | Self::TooSoon { second, .. } => {
                &second.acquired
            }
            Self::Malformed { record, .. }
            | Self::Duplicate { second: record, .. }
            | Self::OutOfOrder { later: record, .. }
            | Self::Bridged { extended: record, .. }
            | Self::StaleWrite { later: record, .. }
            | Self::Refused { write: record }
            | Self::CountedTwice { second: record, .. }
            | Self::Miscounted { record, .. }
            | Self::Leaked { key: record, .. }
            | Self::Stuck { call: record, .. }
            | Self::Idle { call: record, .. }
            | Self::NoQuorum { acquired: record, .. } => record,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?}", self.name())?;
        if let Some(slot) = self.record().slot {
            write!(f, ", slot {slot}")?;
        }
        f.write_str(": ")?;
        match self {
            Self::Malformed { record, flaw } => malformed(f, record, *flaw),
            Self::Duplicate { first, second } => {
                let (fence, to) = (fence(second), [first, second].map(|won| (&won.client, At(won.over_ns()))));
                let [(first, first_at), (second, second_at)] = to;
                write!(f, "fence {fence} was given twice, to {first:?} at {first_at} and to {second:?} at {second_at}")
            }
            Self::OutOfOrder { earlier, later } => {
                let (client, asked, smaller) = (&later.client, At(later.invoke_ns), fence(later));
                let earlier = Under(earlier);
                write!(
                    f,
                    "{earlier} came back, and {client:?}, who asked only at {asked}, got the smaller fence {smaller}"
                )
            }
            Self::Overlap { first, second } => write!(f, "two holders at once: {first}, and {second}"),
            Self::TooSoon { first, second, reserved_ns } => {
                let reserved = At(*reserved_ns);
                write!(f, "too soon: {first}, which kept it from others until {reserved}, and yet {second}")
            }
            Self::Superseded { first, second } => write!(f, "won when it was over: {first}, and only then {second}"),
            Self::Bridged { newer, extended } => {
                let (client, asked, fence) = (&extended.client, At(extended.invoke_ns), fence(extended));
                let newer = Under(newer);
                write!(
                    f,
                    "bridged: {newer} came back, and yet {client:?}, who asked at {asked}, extended fence {fence}"
                )
            }
            Self::Revived { hold, extended } => {
                write!(f, "revived: {hold}, and yet an extension asked for at {} succeeded", At(extended.invoke_ns))
            }
            Self::ToldLate { hold } => {
                let valid_until = hold.valid_until_ns().unwrap_or(0);
                let told = hold.ended.as_ref().map_or(0, ended_ns);
                write!(f, "told late: {hold}, and heard of it {:?} later", Duration::from_nanos(told - valid_until))
            }
            Self::NeverTold { hold, end_ns } => match &hold.ended {
                Some(release) => {
                    let at = At(release.invoke_ns);
                    write!(f, "never told: {hold}, and heard nothing before it released at {at}")
                }
                None => {
                    write!(f, "never told: {hold}, and heard nothing until the end of the history at {}", At(*end_ns))
                }
            },
            Self::StaleWrite { earlier, later } => {
                write!(f, "stale write: {} wrote, and only then {}", Under(earlier), Under(later))
            }
            Self::Refused { write } => {
                write!(f, "refused: {} was not let write, though no larger fence can have written before", Under(write))
            }
            Self::CountedTwice { first, second } => {
                let count = second.count.unwrap_or(0);
                write!(f, "lost update: {} and {} both wrote number {count}", Under(first), Under(second))
            }
            Self::Miscounted { record, least, most } => {
                let Record { client, kind, .. } = record;
                let (at, count) = (At(record.over_ns()), record.count.unwrap_or(0));
                write!(
                    f,
                    "miscounted: the {kind} of {client:?} at {at} found {count} writes, there were {least} to {most}"
                )
            }
            Self::Leaked { key, hold } => leaked(f, key, hold.as_deref()),
            Self::Stuck { call, deadline_ns } => stuck(f, call, *deadline_ns),
            Self::Idle { call, since_ns, until_ns } => {
                let (client, since, until) = (&call.client, At(*since_ns), At(*until_ns));
                write!(f, "idle: {client:?} waited for it from {since} until {until}, and nobody had it")
            }
            Self::NoQuorum { acquired, granted } => {
                write!(f, "no quorum: {} was won with the grants of {granted} nodes only", Under(acquired))
            }
        }
    }
}

fn malformed(f: &mut fmt::Formatter<'_>, record: &Record, flaw: Flaw) -> fmt::Result {
    let Record { client, kind, invoke_ns, .. } = record;
    write!(f, "malformed {kind} by {client:?} from {} to ", At(*invoke_ns))?;
    match record.return_ns {
        Some(return_ns) => write!(f, "{}: {flaw}", At(return_ns))?,
        None => write!(f, "the end: {flaw}")?,
    }
    record.fence.map_or(Ok(()), |fence| write!(f, " (fence {fence})"))
}

fn leaked(f: &mut fmt::Formatter<'_>, key: &Record, hold: Option<&Hold>) -> fmt::Result {
    write!(f, "leaked: {:?} had its key at {}", key.client, At(key.invoke_ns))?;
    match (hold, key.fence) {
        (Some(hold), _) => write!(f, ", though {hold}"),
        (None, Some(fence)) => write!(f, ", of a fence {fence} that nobody won"),
        (None, None) => f.write_str(", without a fence, though nobody was left who may have it"),
    }
}

fn stuck(f: &mut fmt::Formatter<'_>, call: &Record, deadline_ns: u64) -> fmt::Result {
    let Record { client, kind, invoke_ns, .. } = call;
    let (asked, deadline) = (At(*invoke_ns), At(deadline_ns));
    write!(f, "stuck: {client:?} asked for {kind} at {asked}, which had to come back by {deadline}")?;
    match call.return_ns {
        Some(_) => write!(f, " and did at {}", At(call.over_ns())),
        None => f.write_str(" and did not"),
    }
}

/// The name, the fence and the time of a return.
struct Under<'a>(&'a Record);

impl fmt::Display for Under<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(record) = self;
        write!(f, "{:?} (fence {}) at {}", record.client, fence(record), At(record.over_ns()))
    }
}

fn fence(record: &Record) -> u64 {
    record.fence.unwrap_or(0)
}

/// The fault of a malformed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// It returned before it was invoked.
    Backwards,
    /// It reports an event, but not when that ended.
    NotOver,
    /// It needs a fence and has none.
    NoFence,
    /// It needs a count and has none.
    NoCount,
    /// No client acquired this name with this fence.
    NeverAcquired,
    /// It was invoked before the acquire had returned.
    BeforeAcquired,
    /// It won a permit of a semaphore, and its slot is none of those that its caller allows.
    OutsidePermits,
    /// Its term is not its fence.
    WrongTerm,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backwards => "it returned before it was invoked",
            Self::NotOver => "it has happened and is not over",
            Self::NoFence => "it has no fence",
            Self::NoCount => "it has no count",
            Self::NeverAcquired => "nobody acquired this fence",
            Self::BeforeAcquired => "it was invoked before the lock was acquired",
            Self::OutsidePermits => "its slot is not below its permits",
            Self::WrongTerm => "its term is not its fence",
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
