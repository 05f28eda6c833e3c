//! The requests to a node and its answers: [`Request`] names a Lua script, [`Reply`] lists the results that a script
//! may return. The wire form of both lives with the node that speaks it.

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
    /// The key of the name's last fence.
    pub(crate) fence: Box<[u8]>,
    /// The waiters key, which counts the denied waiters.
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

/// The possible fences. From 2^53 on the servers' Lua cannot tell neighbours apart, and JavaScript cannot hold them.
pub(crate) const FENCES: Range<u64> = 1..1 << 53;

/// Returns a label from a lock's value, if any. Any client may have written it, so it is cut and cleaned before it
/// reaches a log or a screen.
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

/// A waiter's report of its position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// The position that the node gave it, 0 if none: then it joins.
    pub(crate) position: u32,
    /// The hold in which the position was given. In another one it joins anew.
    pub(crate) hold: u64,
    /// Whether to keep the count of the waiters alive.
    pub(crate) keep: bool,
}

/// A script and its arguments beside keys and token. Durations are whole milliseconds on the wire, `slack`
/// microseconds.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Takes the lock if it is free. Else counts the caller, if it `wants` to wait.
    Acquire {
        ttl: Duration,
        proposal: u64,
        slack: Duration,
        fence_ttl: Duration,
        label: Arc<str>,
        wants: Option<Wants>,
    },
    /// Remembers `fence` if the node still holds what it `granted`.
    Confirm { granted: u64, fence: u64, fence_ttl: Duration, label: Arc<str> },
    /// Extends the key.
    Extend { ttl: Duration, fence: u64, fence_ttl: Duration },
    /// Deletes the key if ours. `asks` for the number of waiters, whose count ends.
    Release { asks: bool },
    /// Restores a key that a node has forgotten.
    Restore { ttl: Duration, fence: u64, fence_ttl: Duration, label: Arc<str> },
    /// Looks, changes nothing. The token is not used.
    Inspect,
    /// Reports whether the lock is held and the caller's position; takes nothing.
    Peek { wants: Wants },
    /// In the older SETNX protocol: takes the lock if it is free or expired. The token is not used.
    SetnxAcquire { ttl: Duration },
    /// In the older SETNX protocol: deletes the key before our own `expiry`, a Unix second. The token is not used.
    SetnxRelease { expiry: u64 },
}

impl Action {
    /// Returns whether executing this can create the lock key, so that a delete must follow.
    pub(crate) fn creates(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Restore { .. } | Self::SetnxAcquire { .. })
    }

    /// Returns whether executing this twice does no more than once, so that it may be resent if its answer is missing.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.creates() && !matches!(self, Self::SetnxRelease { .. })
    }

    /// Returns whether executing this counts waiters, or ends that count.
    pub(crate) fn hints(&self) -> bool {
        matches!(self, Self::Acquire { wants: Some(_), .. } | Self::Release { asks: true } | Self::Peek { .. })
    }
}

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Acquire: ours now, with this fence.
    Granted(u64),
    /// Acquire in the SETNX protocol: ours up to this Unix second.
    GrantedUntil(u64),
    /// Acquire or peek: held. `ours` is the fence in the value if that is this attempt's own. `position` is the
    /// caller's position, 0 if unknown. `hold` is the holder's fence on the node, 0 if the value has none.
    Held { ours: Option<u64>, ttl_left: Option<Duration>, label: Option<Box<str>>, position: u32, hold: u64 },
    /// Confirm: the node remembers the fence.
    Confirmed,
    /// Confirm or restore: the node holds something else, or knows a larger fence.
    Refused,
    /// Extend: the key lives longer.
    Extended,
    /// Extend: ours, but granted after the fence was decided.
    Ahead,
    /// Extend or release: the key does not exist.
    Absent,
    /// Extend or release: the key is another's; with the owner's label where an extension could read one.
    Foreign(Option<Box<str>>),
    /// Release: deleted, and how many were denied meanwhile and wait.
    Deleted { waiting: u32 },
    /// Release in the SETNX protocol: too late, without effect.
    Late,
    /// Restore: the node has the lock again.
    Restored,
    /// Inspect or peek: the key's state.
    Seen(KeyState),
}

impl Reply {
    /// Returns whether the lock key changed or lives longer, so that its earlier readers are notified.
    pub(crate) fn changes(&self) -> bool {
        matches!(
            self,
            Self::Granted(_) | Self::GrantedUntil(_) | Self::Extended | Self::Deleted { .. } | Self::Restored
        )
    }

    /// Returns whether the lock key was read and left unchanged, so that the reader is notified of its next change.
    pub(crate) fn reads(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Seen(_) | Self::Absent | Self::Foreign(_) | Self::Ahead | Self::Late)
    }
}

/// An inspection's view of one node's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// No key.
    Free,
    /// A lock in this library's form.
    Ours { label: Option<Box<str>>, fence: u64, ttl_left: Option<Duration> },
    /// Something else: another library's lock, or a key of another type.
    Foreign { ttl_left: Option<Duration> },
}
