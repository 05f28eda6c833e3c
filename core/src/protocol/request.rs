//! What is asked of a node and what it can answer: one [`Request`] for each Lua script and one [`Reply`] for each
//! thing that a script may say. The wire form of both lives with the node that speaks it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::name::Name;
use crate::protocol::token::Token;

/// The keys of one lock name.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The lock key: the name itself.
    pub(crate) lock: Arc<[u8]>,
    /// Where a node remembers the name's last fence.
    pub(crate) fence: Box<[u8]>,
    /// Where those who were denied and wait are counted.
    pub(crate) want: Box<[u8]>,
}

impl Keys {
    pub(crate) fn of(name: &Name) -> Arc<Self> {
        Arc::new(Self {
            lock: Arc::clone(name.lock_key()),
            fence: name.fence_key().into(),
            want: name.want_key().into(),
        })
    }
}

/// What a fence can be. From 2^53 on the servers' Lua cannot tell neighbours apart, and JavaScript cannot hold them.
pub(crate) const FENCES: Range<u64> = 1..1 << 53;

/// A label from a lock's value. Anybody may have written it, so it is cut and cleaned before it reaches a log or a
/// screen. `None` where there is none.
pub(crate) fn label(bytes: &[u8]) -> Option<Box<str>> {
    let label: String = String::from_utf8_lossy(&bytes[..bytes.len().min(128)])
        .chars()
        .map(|character| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character })
        .collect();
    (!label.is_empty()).then(|| label.into())
}

/// One script with its arguments, for one node. Clones share their texts.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) keys: Arc<Keys>,
    pub(crate) token: Token,
    pub(crate) action: Action,
}

/// What a waiter says of its place in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// The place that the node gave it, 0 if it has none: then it joins.
    pub(crate) position: u32,
    /// The hold in which it was given the place. In another one it joins anew.
    pub(crate) hold: u64,
    /// Whether the count of the waiters is to be kept alive.
    pub(crate) keep: bool,
}

/// Which script, and what it needs beside keys and token. Durations are whole milliseconds on the wire.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Take the lock if it is free. If it is not and the caller `wants` to wait, count it.
    Acquire {
        ttl: Duration,
        proposal: u64,
        slack: Duration,
        fence_ttl: Duration,
        label: Arc<str>,
        wants: Option<Wants>,
    },
    /// Remember `fence` if the node still holds what it `granted`.
    Confirm { granted: u64, fence: u64, fence_ttl: Duration, label: Arc<str> },
    /// Live longer.
    Extend { ttl: Duration, fence: u64, fence_ttl: Duration },
    /// Delete if ours. `asks` how many are in line, which ends with that.
    Release { asks: bool },
    /// Put back what a node has forgotten.
    Restore { ttl: Duration, fence: u64, fence_ttl: Duration, label: Arc<str> },
    /// Look, change nothing. The token is not used.
    Inspect,
    /// As an acquire that takes nothing: is the lock held, and what is the caller's place in line?
    Peek { wants: Wants },
    /// In the older SETNX protocol: take the lock if it is free or its time is over. The token is not used.
    SetnxAcquire { ttl: Duration },
    /// In the older SETNX protocol: delete the key before our own `expiry`, a Unix second. The token is not used.
    SetnxRelease { expiry: u64 },
}

impl Action {
    /// Whether executing this can create the lock key, so that a delete must follow it.
    pub(crate) fn creates(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Restore { .. } | Self::SetnxAcquire { .. })
    }

    /// Whether executing this twice does no more than executing it once, so that it may be sent again where its answer
    /// was not heard.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.creates() && !matches!(self, Self::SetnxRelease { .. })
    }

    /// Whether executing this counts those who wait, or ends that count.
    pub(crate) fn hints(&self) -> bool {
        matches!(self, Self::Acquire { wants: Some(_), .. } | Self::Release { asks: true } | Self::Peek { .. })
    }
}

/// What a node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Acquire: ours now, with this fence.
    Granted(u64),
    /// Acquire in the SETNX protocol: ours up to this Unix second.
    GrantedUntil(u64),
    /// Acquire or peek: held. `ours` is the fence in the value if the value is this attempt's own; `position` is the
    /// caller's place in line, 0 if that is not known; `hold` is the holder's fence on the node, 0 if the value has none.
    Held { ours: Option<u64>, ttl_left: Option<Duration>, label: Option<Box<str>>, position: u32, hold: u64 },
    /// Confirm: the node remembers the fence.
    Confirmed,
    /// Confirm or restore: the node holds something else, or knows a larger fence.
    Refused,
    /// Extend: the key lives longer.
    Extended,
    /// Extend: ours, but granted after the fence was decided.
    Ahead,
    /// Extend or release: there is no such key.
    Absent,
    /// Extend or release: the key is another's; with the owner's label where an extension could read one.
    Foreign(Option<Box<str>>),
    /// Release: deleted, and how many were denied meanwhile and wait.
    Deleted { waiting: u32 },
    /// Release in the SETNX protocol: too late, nothing was done.
    Late,
    /// Restore: the node has the lock again.
    Restored,
    /// Inspect or peek: what is there.
    Seen(KeyState),
}

impl Reply {
    /// Whether the lock key is another now, or lives longer: whoever has read it before is told.
    pub(crate) fn changes(&self) -> bool {
        matches!(
            self,
            Self::Granted(_) | Self::GrantedUntil(_) | Self::Extended | Self::Deleted { .. } | Self::Restored
        )
    }

    /// Whether the lock key was read and left as it was: who did that is told of its next change.
    pub(crate) fn reads(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Seen(_) | Self::Absent | Self::Foreign(_) | Self::Ahead | Self::Late)
    }
}

/// What an inspection sees on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// No key.
    Free,
    /// A lock in this library's form.
    Ours { label: Option<Box<str>>, fence: u64, ttl_left: Option<Duration> },
    /// Something else: another library's lock, or a key of another type.
    Foreign { ttl_left: Option<Duration> },
}
