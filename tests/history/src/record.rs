//! The records of clients.

use std::fmt;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

/// What a [`Record`] is about: a call of a client, something seen on a node, or a time of trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A lock was asked for; `ok` says whether it was won.
    #[default]
    Acquire,
    /// A held lock was extended, by the holder or by renewal.
    Extend,
    /// A held lock was released. The hold ends at the invocation, whatever the result. A program that kills a holder
    /// writes a release with `ok: false` for it: from then on nobody relies on the lock.
    Release,
    /// The holder was notified that its lock is lost; `return_ns` is when.
    Lost,
    /// What the lock protects was written to under `fence`; `ok` says whether it was accepted. It remembers the largest
    /// fence that it has accepted, for each name, and refuses smaller ones. If it was only read, which `shared` says, it
    /// is refused only after a larger fence that wrote.
    Write,
    /// The `count` of the accepted writes was read from what the lock protects.
    Read,
    /// A node was seen to have the lock's key, with `fence` in its value (none if there is none), at some time from
    /// `invoke_ns` to `return_ns`; `client` names the node. It is recorded only while nothing keeps pending releases
    /// from that node.
    Key,
    /// The fence of a node became `fence` while it had the lock's key, by a grant or by a confirmation, at some time
    /// from `invoke_ns` to `return_ns`; `client` names the node.
    Granted,
    /// Two clients may hold at once: a node's clock jumped, it lost data, or keys were deleted. It ends when grants can
    /// be relied on again; earlier grants can be when they were extended. `client` names the cause, and an empty `name`
    /// means all locks.
    Lapse,
    /// Two servers may grant, each for itself, because one has taken the other's place: an acquire and an extension of
    /// the two sides are in no order. `client` names the cause, and an empty `name` means all locks.
    Divided,
    /// Calls may take long, because no quorum can be expected to answer in time. `client` names the cause, and an empty
    /// `name` means all locks.
    Outage,
    /// The process of `client` was stopped. Without an end it was killed. `name` is empty.
    Stopped,
}

impl Kind {
    /// Whether it is a client's action, or something that it was notified of.
    pub(crate) fn is_call(self) -> bool {
        !matches!(self, Self::Key | Self::Granted) && !self.is_period()
    }

    /// Whether it is a time of trouble.
    pub(crate) fn is_period(self) -> bool {
        matches!(self, Self::Lapse | Self::Divided | Self::Outage | Self::Stopped)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// One call, one reported loss, one observation on a node, or one time of trouble.
///
/// All times are nanoseconds of one clock that every client of the history shares: `CLOCK_MONOTONIC` or
/// `CLOCK_BOOTTIME` for processes of one machine, virtual time in a simulation. `invoke_ns` is read before the call
/// and `return_ns` after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The name of the lock. It comes first so that records sort by name, by slot and then by time. For a lock of several
    /// names, which are in `names`, it is for the reader alone.
    pub name: String,
    /// The slot of a permit: `name` is then that of its semaphore. A denied acquire has none, and neither has one that
    /// never came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// When the call was made. For [`Kind::Lost`] the same as `return_ns`, or when the holder began to listen.
    pub invoke_ns: u64,
    /// When the call returned, or the time of trouble ended. For [`Kind::Lost`]: when the holder was notified. `None`
    /// if it has not by the end of the history. `ok` is false then, and the result is unknown.
    #[serde(deserialize_with = "Option::deserialize")]
    pub return_ns: Option<u64>,
    /// The caller: a text that identifies one holder among the others.
    pub client: String,
    /// The kind of the record.
    pub kind: Kind,
    /// Whether the call succeeded.
    pub ok: bool,
    /// The fence of the lock concerned; of calls about a lock, only a failed acquire has none.
    pub fence: Option<u64>,
    /// After a successful acquire or extend: until when the holder may rely on the lock, never later than the library
    /// means it (read the clock first and ask for the time that remains after that). `None` there means that the
    /// holder knows no end (a driver that does not see renewals): the hold lasts until it is released or lost. For an
    /// acquire that never came back: until when a key of it may be left, if that is known.
    pub valid_until_ns: Option<u64>,
    /// For a write that was accepted, if the store counts: how many were, from the first of the history to this one.
    /// For a read: how many were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// For a grant, if known: a text that identifies the token of its acquire, such as a hash. Without it, attempts
    /// with one fence on different nodes count as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The single names of a lock of several. Each is judged by itself. A key, a write and a read are about one name each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// For each acquire of a semaphore, whatever came of it: how many permits its caller allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// After a successful acquire with `at_least`: until when no other client may get the lock, even after its release.
    /// Never later than the library means it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_until_ns: Option<u64>,
    /// After a successful acquire with a margin: for how long after the end of the validity no other client may get the
    /// lock, unless it was released, taken or deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin_ns: Option<u64>,
    /// For a loss: its reason. Without one the validity has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// For a successful acquire of an election: the term that the leader was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Whether a call was about a shared lock: its caller is a reader, and may hold the lock together with other readers.
    /// Of a write, whether it only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// Which lock a record is about: its name, and the slot if it is one permit of a semaphore.
pub(crate) type LockId<'a> = (&'a str, Option<u32>);

/// The reason of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The validity ended.
    Expired,
    /// No quorum answered the renewals until the validity ended.
    Unreachable,
    /// It was held for as long as its caller allows.
    MaxHold,
    /// Another client has the keys.
    Taken,
    /// The keys are gone.
    Deleted,
}

impl Record {
    /// Makes a record of a successful call, which is all that is known of it.
    #[must_use]
    pub fn new(client: &str, kind: Kind, name: &str, (invoke_ns, return_ns): (u64, u64)) -> Self {
        Self {
            name: name.to_owned(),
            invoke_ns,
            return_ns: Some(return_ns),
            client: client.to_owned(),
            kind,
            ok: true,
            ..Self::default()
        }
    }

    /// Which lock it is about. A record of several names is about none of them: see [`singles`](crate::single::singles).
    pub(crate) fn lock(&self) -> LockId<'_> {
        (&self.name, self.slot)
    }

    /// The single names of the lock, or the only one.
    pub(crate) fn single_names(&self) -> &[String] {
        if self.names.is_empty() { std::slice::from_ref(&self.name) } else { &self.names }
    }

    /// Whether it is a loss because time ran out, so that the keys stay for the margin.
    pub(crate) fn is_loss_by_time(&self) -> bool {
        self.kind == Kind::Lost && !matches!(self.reason, Some(Reason::Taken | Reason::Deleted))
    }

    /// When the call was over, if ever; never before it was made, whatever a broken record says.
    pub(crate) fn over_ns(&self) -> u64 {
        self.return_ns.map_or(u64::MAX, |return_ns| return_ns.max(self.invoke_ns))
    }

    /// Whether it returned without success. Of a call that never returned this is unknown.
    pub(crate) fn failed(&self) -> bool {
        !self.ok && self.return_ns.is_some()
    }

    /// The last time in it.
    pub(crate) fn last_ns(&self) -> u64 {
        self.return_ns.unwrap_or(self.invoke_ns).max(self.invoke_ns)
    }
}

/// Reads JSON lines, one record each. Empty lines are skipped; any other line that is not a record is an error.
pub fn read(input: impl BufRead) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for (i, line) in input.lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            let record = serde_json::from_str(&line);
            records.push(record.map_err(|cause| io::Error::other(format!("line {}: {cause}", i + 1)))?);
        }
    }
    Ok(records)
}
