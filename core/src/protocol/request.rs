//! The requests to a node and its answers: [`Request`] names a Lua script, [`Reply`] lists the results that a script
//! may return. The wire form of both lives with the node that speaks it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::name::Name;
use crate::protocol::token::{Fingerprint, Token};
use crate::texts::opaque;

/// The keys of one lock: those of its name, or of its first name.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The lock key: the name itself.
    pub(crate) lock: Arc<[u8]>,
    /// The key of the name's last fence.
    pub(crate) fence: Box<[u8]>,
    /// The waiters key, which counts the denied waiters.
    pub(crate) want: Box<[u8]>,
    /// What no lock of one name has.
    more: Option<Box<More>>,
}

/// The keys of a lock of several names, of a slot, or of one that is shared.
#[derive(Debug)]
enum More {
    /// The keys of the other names, and what the names have in common.
    All { others: Box<[Keys]>, line: Arc<[u8]> },
    /// The key that wakes those who wait for a slot, and the lock key of the first slot with the number of permits.
    Slot { bell: Box<[u8]>, line: Arc<[u8]> },
    /// The label of this owner, which is part of what proves it; and the line, for readers do not queue behind a writer.
    Shared { label: Arc<str>, line: Arc<[u8]> },
}

impl Keys {
    /// Returns the keys of a lock of this name alone.
    pub(crate) fn of(name: &Name) -> Arc<Self> {
        Arc::new(Self::of_one(name))
    }

    fn of_one(name: &Name) -> Self {
        Self {
            lock: Arc::clone(name.lock_key()),
            fence: name.fence_key().into(),
            want: name.want_key().into(),
            more: None,
        }
    }

    /// Returns the keys of a lock of all these names, which are at least two, sorted and distinct.
    pub(crate) fn of_all(names: &[Name]) -> Arc<Self> {
        // No name begins so.
        let mut line = b"redlock:fence:".to_vec();
        for name in names {
            // With its length, or two sets of names could have the same line.
            line.extend(format!("{}:", name.bytes().len()).into_bytes());
            line.extend(name.bytes());
        }
        let others = names[1..].iter().map(Self::of_one).collect();
        let more = Some(Box::new(More::All { others, line: line.into() }));
        Arc::new(Self { more, ..Self::of_one(&names[0]) })
    }

    /// Returns the keys of permit `slot` of the semaphore with this name. All slots have one waiters key.
    pub(crate) fn of_slot(semaphore: &Name, permits: u32, slot: u32) -> Arc<Self> {
        let first = semaphore.slot_name(0);
        // Who allows fewer permits does not see every free slot, and must keep nobody back who allows more.
        let line = [first.lock_key(), format!("/{permits}").as_bytes()].concat().into();
        let more = Some(Box::new(More::Slot { bell: semaphore.bell_key().into(), line }));
        Arc::new(Self { want: first.want_key().into(), more, ..Self::of_one(&semaphore.slot_name(slot)) })
    }

    /// Returns the keys of a lock of this name alone that many owners share, for the one of them with this label.
    pub(crate) fn of_shared(name: &Name, label: Arc<str>) -> Arc<Self> {
        // No name begins so.
        let line = [SHARED, name.bytes()].concat().into();
        Arc::new(Self { more: Some(Box::new(More::Shared { label, line })), ..Self::of_one(name) })
    }

    /// Returns what a request about this key alone has.
    pub(crate) fn of_key(key: &[u8]) -> Arc<Self> {
        Arc::new(Self { lock: key.into(), fence: Box::default(), want: Box::default(), more: None })
    }

    /// Returns the same keys as those of a lock of one name.
    pub(crate) fn alone(&self) -> Self {
        Self { lock: Arc::clone(&self.lock), fence: self.fence.clone(), want: self.want.clone(), more: None }
    }

    /// Returns the keys of each name.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = &Self> + Clone {
        let others: &[Self] = match self.more.as_deref() {
            Some(More::All { others, .. }) => others,
            _ => &[],
        };
        let all = 1 + others.len();
        (0..all).map(move |index| if index == 0 { self } else { &others[index - 1] })
    }

    /// Returns whether the lock has several names.
    pub(crate) fn are_several(&self) -> bool {
        matches!(self.more.as_deref(), Some(More::All { .. }))
    }

    /// Returns whether they are those of one name and one owner, and nothing more.
    pub(crate) fn are_plain(&self) -> bool {
        self.more.is_none()
    }

    /// Returns whether many owners share the lock.
    pub(crate) fn are_shared(&self) -> bool {
        matches!(self.more.as_deref(), Some(More::Shared { .. }))
    }

    /// Returns what stands for this owner of a shared lock: it has the label, as it is found by nothing else.
    pub(crate) fn member(&self, token: &Token) -> Vec<u8> {
        match self.more.as_deref() {
            Some(More::Shared { label, .. }) if !label.is_empty() => {
                [token.as_bytes(), b":", label.as_bytes()].concat()
            }
            _ => token.as_bytes().to_vec(),
        }
    }

    /// Returns the key of a slot's bell.
    pub(crate) fn bell(&self) -> Option<&[u8]> {
        match self.more.as_deref() {
            Some(More::Slot { bell, .. }) => Some(bell),
            _ => None,
        }
    }

    /// Returns what all who wait for the same in one process share.
    pub(crate) fn line(&self) -> &Arc<[u8]> {
        match self.more.as_deref() {
            Some(More::All { line, .. } | More::Slot { line, .. } | More::Shared { line, .. }) => line,
            None => &self.lock,
        }
    }
}

/// What begins the name of a sharing period, and the line of a shared lock. No name and no token begins so.
pub(crate) const SHARED: &[u8] = b"redlock:shared:";

/// The possible fences. From 2^53 on the servers' Lua cannot tell neighbours apart, and JavaScript cannot hold them.
pub(crate) const FENCES: Range<u64> = 1..1 << 53;

/// The most waiters that are told, as in the scripts.
pub(crate) const WAITING_MAX: u32 = 100_000;

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

impl Request {
    /// Returns whether executing this counts waiters, ends that count, or reads it.
    pub(crate) fn hints(&self) -> bool {
        // Whoever wants to share a lock looks whether somebody waits for it alone.
        self.action.hints() || self.keys.are_shared() && matches!(self.action, Action::Acquire { .. })
    }
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
    /// Whether to share the lock although somebody waits for it alone. Means nothing to other locks.
    pub(crate) anyway: bool,
}

impl Wants {
    /// What a waiter reports that shares the lock although somebody waits for it alone.
    pub(crate) const ANYWAY: Self = Self { position: 0, hold: 0, keep: false, anyway: true };
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
    /// Extends the key if it was granted `fence` or less. Has the node remember `floor`, if there is one.
    Extend { ttl: Duration, fence: u64, fence_ttl: Duration, floor: Option<u64> },
    /// Deletes the key if ours. `asks` for the number of waiters, whose count ends. `granted` is the fence and the label
    /// that the node's value has, if they are known. They change nothing but the way.
    Release { asks: bool, granted: Option<(u64, Arc<str>)> },
    /// Gives up the key if ours: deletes it, or leaves it for the `rest`, in which nobody has it. `asks` as a release
    /// does, and rings a slot's bell for them.
    Leave { asks: bool, rest: Duration },
    /// Restores a key that a node has forgotten, with `fence` in it, unless the node remembers more than `level`.
    Restore { ttl: Duration, fence: u64, level: u64, fence_ttl: Duration, label: Arc<str> },
    /// Gives the key of the `former` token this one, and extends it: `back`, if it had this one before.
    Rekey { former: Token, ttl: Duration, fence: u64, fence_ttl: Duration, back: bool },
    /// Looks, changes nothing. The token is not used. `asks` for the number of waiters.
    Inspect { asks: bool },
    /// Looks for an operator, asks how many wait, and for what proves the owner.
    Read,
    /// Deletes the key of another library's lock if this is its value. The token is not used.
    Evict { value: Box<[u8]> },
    /// Reports whether the lock is held and the caller's position; takes nothing.
    Peek { wants: Wants },
    /// Reports which of these slots are free. If none is, or `anyway`, counts the caller, if it `wants` to wait. Takes
    /// nothing.
    Look { slots: Arc<[Arc<Keys>]>, wants: Option<Wants>, anyway: bool },
    /// Ends the count of one waiter, which gives up, while the lock is shared: nobody joins those who share it as long
    /// as somebody is counted. The token is not used.
    Withdraw,
    /// In the older SETNX protocol: takes the lock if it is free or expired. The token is not used.
    SetnxAcquire { ttl: Duration },
    /// In the older SETNX protocol: deletes the key before our own `expiry`, a Unix second. The token is not used.
    SetnxRelease { expiry: u64 },
}

impl Action {
    /// Returns the action that gives up the lock of `keys`. With a `rest`, it has a least time, of which so much is left.
    pub(crate) fn give_up(keys: &Keys, asks: bool, rest: Option<Duration>) -> Self {
        if rest.is_none() && keys.bell().is_none() {
            return Self::Release { asks, granted: None };
        }
        // Rounded up to the unit of the servers.
        let rest = rest.unwrap_or_default().as_nanos().div_ceil(1_000_000);
        Self::Leave { asks, rest: Duration::from_millis(u64::try_from(rest).unwrap_or(u64::MAX)) }
    }

    /// Returns whether executing this can give this token a lock key, so that a delete must follow.
    pub(crate) fn creates(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. } | Self::Restore { .. } | Self::SetnxAcquire { .. } | Self::Rekey { back: false, .. }
        )
    }

    /// Returns whether executing this twice does no more than once, so that it may be resent if its answer is missing.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.creates() && !matches!(self, Self::SetnxRelease { .. } | Self::Withdraw)
    }

    /// Returns whether it may be given up after it was sent, and asked anew over another connection: a fresh token makes
    /// up for a create that is executed after all.
    pub(crate) fn can_be_given_up(&self) -> bool {
        self.is_repeatable() || matches!(self, Self::Acquire { .. } | Self::Rekey { .. })
    }

    /// Returns whether a request about several names can be made of requests about each.
    pub(crate) fn is_divisible(&self) -> bool {
        matches!(self, Self::Extend { .. } | Self::Release { .. } | Self::Inspect { .. })
    }

    fn hints(&self) -> bool {
        matches!(
            self,
            Self::Acquire { wants: Some(_), .. }
                | Self::Release { asks: true, .. }
                | Self::Leave { asks: true, .. }
                | Self::Inspect { asks: true }
                | Self::Read
                | Self::Evict { .. }
                | Self::Look { .. }
                | Self::Peek { .. }
                | Self::Withdraw
        )
    }
}

/// What deletes one owner's key, and nobody else's: the token, or the whole value of another library's lock.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    Token(Token),
    Value(Box<[u8]>),
}

opaque!(Proof);

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
    /// Acquire or peek by one who would share the lock: others share it, and `waiting` callers wait for it alone. This one
    /// is not counted. `hold` is the fence with which this sharing began.
    HeldOff { ttl_left: Option<Duration>, waiting: u32, hold: u64 },
    /// Confirm: the node remembers the fence.
    Confirmed,
    /// Confirm or restore: the node holds something else. Withdraw: nothing was changed.
    Refused,
    /// Extend or re-key: the key lives longer, and is this token's.
    Extended,
    /// Re-key: the same, and it was this token's before.
    Already,
    /// Extend: the key lives longer, and the node remembers the floor.
    Raised,
    /// Extend: ours, but granted this larger fence. Restore: not put back, because the node remembers this larger fence.
    Ahead(u64),
    /// Extend or release: the key does not exist.
    Absent,
    /// Extend or release: the key is another's; with the owner's label where an extension could read one.
    Foreign(Option<Box<str>>),
    /// Release: deleted, or without this owner if others share it, and how many were denied meanwhile and wait. Leave: the
    /// same, or nobody's until it expires.
    Deleted { waiting: u32 },
    /// Look: which of the slots have no key, by their places among those that were asked for, and how long the first key
    /// of the others is kept at least. `position` as for [`Reply::Held`]; `hold` is the last ring of the bell.
    Slots { free: Vec<u32>, ttl_left: Option<Duration>, position: u32, hold: u64 },
    /// Release in the SETNX protocol: too late, without effect.
    Late,
    /// Restore: the node has the lock again.
    Restored,
    /// Withdraw: one waiter less is counted.
    Withdrawn { waiting: u32 },
    /// Inspect or peek: the key's state. `waiting` is how many wait; `None` if that was not asked, or is not known.
    /// Read: the same, with a proof of the owner if the key is a string.
    Seen { state: KeyState, waiting: Option<u32>, proof: Option<Box<Proof>> },
}

impl Reply {
    /// The answer to a peek at a free lock.
    pub(crate) const FREE: Self = Self::Seen { state: KeyState::Free, waiting: None, proof: None };

    /// Whether the node had a key of this token until a release, or until it was given back by a re-key.
    pub(crate) fn has_given_up(&self) -> bool {
        matches!(self, Self::Deleted { .. } | Self::Extended | Self::Ahead(_))
    }

    /// Returns whether the lock key changed or lives longer, so that its earlier readers are notified.
    pub(crate) fn changes(&self) -> bool {
        matches!(
            self,
            Self::Granted(_)
                | Self::GrantedUntil(_)
                | Self::Extended
                | Self::Already
                | Self::Raised
                | Self::Deleted { .. }
                | Self::Restored
                // Then the lock may be shared again. The script writes its time anew, so that readers are notified.
                | Self::Withdrawn { waiting: 0 }
        )
    }

    /// Returns whether the lock key was read and left unchanged, so that the reader is notified of its next change.
    pub(crate) fn reads(&self) -> bool {
        matches!(
            self,
            Self::Held { .. }
                | Self::HeldOff { .. }
                | Self::Seen { .. }
                | Self::Absent
                | Self::Foreign(_)
                | Self::Ahead(_)
                | Self::Late
        )
    }
}

/// An inspection's view of one node's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// No key.
    Free,
    /// A lock in this library's form.
    Ours { owner: Fingerprint, label: Option<Box<str>>, fence: u64, ttl_left: Option<Duration> },
    /// A lock that `readers` share: the labels of some of them, and the fence with which this sharing began.
    Shared { readers: u32, labels: Box<[Box<str>]>, fence: u64, ttl_left: Option<Duration> },
    /// Something else: another library's lock, or a key of another type.
    Foreign { ttl_left: Option<Duration> },
}

impl KeyState {
    /// Returns how long the node keeps it; `None` also if that is for ever.
    pub(crate) fn ttl_left(&self) -> Option<Duration> {
        match self {
            Self::Free => None,
            Self::Ours { ttl_left, .. } | Self::Shared { ttl_left, .. } | Self::Foreign { ttl_left } => *ttl_left,
        }
    }
}
