//! The pure transitions of the fencing protocol, for the model in tests/model: a node's action on a request, and a
//! client's verdict on the votes. They are the engine's own: `quorum` judges, and the nodes in memory execute.
//!
//! Time is left out, but for [`Node`]. A key lives until it is deleted, and no proposal is too far off a node's clock.

use std::array;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::node::memory::{Content, SortedSet, Store};
use crate::protocol::name::Name;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, NodeMask, Verdict, Vote};
use crate::protocol::request::{self, Action, KeyState, Reply, Request, Wants};
use crate::protocol::token::Token;
use crate::sys::random::{Random, SimulatedRandom};

/// Any time would do: no key expires, and the slack is wider than all proposals.
const NOW: u64 = 0;
const LONG: Duration = Duration::from_secs(60);

/// The most names of one lock.
pub const NAMES_MOST: usize = 3;

/// How many tokens there are.
const OWNERS: u8 = 16;

/// The owner of a lock that this one has left for the rest of its least time is so much more.
const LEFT: u8 = OWNERS;

/// The name of a lock that owners share is the first one.
static SHARED: LazyLock<Arc<request::Keys>> =
    LazyLock::new(|| request::Keys::of_shared(&Name::parse(*b"a").expect("a name"), "".into()));

/// The keys of a lock of one name, of two, and so on.
static NAMES: LazyLock<[Arc<request::Keys>; NAMES_MOST]> = LazyLock::new(|| {
    let names = ["a", "b", "c"].map(|name| Name::parse(name.as_bytes()).expect("a name"));
    array::from_fn(|more| match more {
        0 => request::Keys::of(&names[0]),
        more => request::Keys::of_all(&names[..=more]),
    })
});
static TOKENS: LazyLock<[Token; OWNERS as usize]> = LazyLock::new(|| {
    array::from_fn(|owner| {
        let owner = u8::try_from(owner).expect("a small number");
        Token::fresh(&Random::Simulated(SimulatedRandom(Arc::new(move |bytes: &mut [u8]| {
            bytes.fill(owner);
            // The halves of no token are alike.
            bytes[0] = u8::MAX;
        }))))
    })
});

/// One node's keys for one name. Owners are numbers below 16, one for each token, and as much more for what they left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keys {
    /// The owner of the lock key, and the fence in its value.
    pub lock: Option<(u8, u64)>,
    /// Who shares the lock key otherwise.
    pub shared: Option<Period>,
    /// The value of the fence key; 0 without one.
    pub fence: u64,
}

/// What is under the lock key of a shared lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    /// The fence with which this sharing began.
    pub fence: u64,
    /// A bit for each owner.
    pub owners: u16,
}

impl Period {
    /// Whether this one is among the owners.
    #[must_use]
    pub fn has(&self, owner: u8) -> bool {
        self.owners & 1 << owner != 0
    }

    /// The same without this owner; `None` without any.
    #[must_use]
    pub fn without(self, owner: u8) -> Option<Self> {
        let owners = self.owners & !(1 << owner);
        (owners != 0).then_some(Self { owners, ..self })
    }
}

/// A request to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Grant the lock.
    Acquire { proposal: u64 },
    /// Remember a fence, if the lock is as it was granted.
    Confirm { granted: u64, fence: u64 },
    /// Let the key live longer if no more was granted than this, and remember `floor`, if there is one.
    Extend { fence: u64, floor: Option<u64> },
    /// Put back a forgotten lock, unless more than `level` is remembered.
    Restore { fence: u64, level: u64 },
    /// Give the key of the `former` owner to this one. It must not count if more was granted than `fence`.
    Rekey { former: u8, fence: u64 },
    /// Delete the lock.
    Release,
    /// Leave the lock for the rest of its least time.
    Leave,
}

/// A node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// An acquire's fence, from now or from before.
    Granted(u64),
    /// The request is done.
    Done,
    /// The key lives longer, and the floor is remembered.
    Raised,
    /// The key is the owner's, or was given to it, but this larger fence was granted.
    Ahead(u64),
    /// It is not.
    Refused,
}

impl Keys {
    fn put(self, store: &mut Store, names: &request::Keys) {
        if let Some((owner, fence)) = self.lock {
            store.put(&names.lock, Content::Text(value(owner, fence)), None);
        }
        if let Some(period) = self.shared {
            store.put(&names.lock, Content::Sorted(sorted_set(period)), Some(NOW + micros(LONG)));
        }
        if self.fence > 0 {
            store.put(&names.fence, Content::Text(self.fence.to_string().into()), None);
        }
    }

    fn read(store: &Store, names: &request::Keys) -> Self {
        let mut keys = Self::default();
        for (key, content) in store.contents(NOW) {
            let Content::Text(text) = content else {
                if let (true, Content::Sorted(owners)) = (*key == *names.lock, content) {
                    keys.shared = Some(period(owners));
                }
                continue;
            };
            let text = || str::from_utf8(text).expect("what a script writes");
            if *key == *names.fence {
                keys.fence = text().parse().expect("digits");
            } else if *key == *names.lock {
                let (_, fence) = text().split_once(':').expect("a fence");
                let fence = fence.parse().expect("digits");
                let owner = (0..2 * OWNERS).find(|owner| value(*owner, fence) == text().as_bytes());
                keys.lock = Some((owner.expect("one of the tokens"), fence));
            }
        }
        keys
    }
}

/// Returns the value of an owner's lock.
fn value(owner: u8, fence: u64) -> Vec<u8> {
    let mut value = TOKENS[usize::from(owner % OWNERS)].value(fence, "");
    if owner >= LEFT {
        value[..Token::LEN].rotate_left(Token::LEN / 2);
    }
    value
}

/// Returns what a node has for such a period.
fn sorted_set(period: Period) -> SortedSet {
    let owners = (0..OWNERS).filter(|owner| period.has(*owner));
    let owners = owners.map(|owner| (millis(LONG), SHARED.member(&TOKENS[usize::from(owner)])));
    let began = [request::SHARED, period.fence.to_string().as_bytes()].concat();
    owners.chain([(i64::MAX, began)]).collect()
}

fn period(owners: &SortedSet) -> Period {
    let mut period = Period { fence: 0, owners: 0 };
    for (_, member) in owners.members() {
        if let Some(digits) = member.strip_prefix(request::SHARED) {
            period.fence = str::from_utf8(digits).ok().and_then(|fence| fence.parse().ok()).expect("digits");
        } else {
            let owner = (0..OWNERS).find(|owner| SHARED.member(&TOKENS[usize::from(*owner)]) == member);
            period.owners |= 1 << owner.expect("one of the tokens");
        }
    }
    period
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a minute")
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("a minute")
}

/// Executes a request of this owner for a lock of all names whose keys these are, in the order of the names. It may share a
/// lock of one name with others.
pub fn execute(keys: &mut [Keys], shares: bool, owner: u8, ask: Ask) -> Answer {
    let names = if shares { &*SHARED } else { &NAMES[keys.len() - 1] };
    let (ttl, slack, fence_ttl, label) = (LONG, LONG, LONG, "".into());
    let action = match ask {
        Ask::Acquire { proposal } => Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants: None },
        Ask::Confirm { granted, fence } => Action::Confirm { granted, fence, fence_ttl, label },
        Ask::Extend { fence, floor } => Action::Extend { ttl, fence, fence_ttl, floor },
        Ask::Restore { fence, level } => Action::Restore { ttl, fence, level, fence_ttl, label },
        Ask::Rekey { former, fence } => {
            Action::Rekey { former: TOKENS[usize::from(former)], ttl, fence, fence_ttl, back: false }
        }
        Ask::Release => Action::Release { asks: false, granted: None },
        Ask::Leave => Action::Leave { asks: false, rest: LONG },
    };
    let mut store = Store::default();
    keys.iter().zip(names.each()).for_each(|(keys, names)| keys.put(&mut store, names));
    let request = Request { keys: Arc::clone(names), token: TOKENS[usize::from(owner)], action };
    let reply = store.execute_tampered(NOW, &request).expect("every fence here is a small number");
    for (keys, names) in keys.iter_mut().zip(names.each()) {
        *keys = Keys::read(&store, names);
    }
    match reply {
        Reply::Granted(fence) | Reply::Held { ours: Some(fence), .. } => Answer::Granted(fence),
        Reply::Raised => Answer::Raised,
        Reply::Ahead(fence) => Answer::Ahead(fence),
        Reply::Confirmed | Reply::Extended | Reply::Already | Reply::Restored | Reply::Deleted { .. } => Answer::Done,
        _ => Answer::Refused,
    }
}

/// An attempt's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Next {
    /// Wait, or give up.
    Nothing,
    /// Confirm this fence, which is now the attempt's.
    Confirm(u64),
    /// It has won, with this fence.
    Win(u64),
}

/// An attempt's knowledge of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// No answer.
    #[default]
    Pending,
    /// It has granted this fence.
    Granted(u64),
    /// It has acknowledged the attempt's fence.
    Confirmed,
    /// It has refused.
    Refused,
}

/// Judges an attempt that has `decided` on a fence, or not yet, by the nodes whose bits are set in `counts`.
#[must_use]
pub fn next(parts: &[Part], decided: Option<u64>, counts: u16) -> Next {
    let vote = |part: &Part| match *part {
        Part::Pending => Vote::Pending,
        Part::Granted(fence) => Vote::Granted(fence),
        Part::Confirmed => Vote::Confirmed,
        Part::Refused => Vote::Held,
    };
    let votes: Vec<Vote> = parts.iter().map(vote).collect();
    match quorum::attempt(&votes, decided, NodeMask::from_bits(counts), NodeMask::NONE) {
        Verdict::Open | Verdict::Lost => Next::Nothing,
        Verdict::Confirm(fence) => Next::Confirm(fence),
        Verdict::Won(fence) => Next::Win(fence),
    }
}

/// Returns the quorum of `nodes` nodes.
#[must_use]
pub fn quorum(nodes: usize) -> usize {
    quorum::quorum(nodes)
}

/// Returns whether an extension has its quorum. `extended` says which nodes extended the key.
#[must_use]
pub fn is_extended(extended: &[bool]) -> bool {
    let vote = |extended: &bool| if *extended { KeyVote::Ours } else { KeyVote::Failed };
    let votes: Vec<KeyVote> = extended.iter().map(vote).collect();
    quorum::keys(&votes, NodeMask::NONE) == KeyVerdict::Carried
}

/// One node with a clock, for what depends on time: how long owners share a lock. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    store: Store,
    /// In microseconds.
    now: u64,
}

/// A request to a node with a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timely {
    /// Grant the lock, or count the owner if it `waits`.
    Acquire { ttl: u64, waits: bool },
    /// Let the lock live longer.
    Extend { ttl: u64, fence: u64 },
    /// Delete the lock.
    Release,
    /// Count the owner no more.
    Withdraw,
}

impl Node {
    /// A node whose clock says this, and that has nothing.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self { store: Store::default(), now: now * 1_000_000 }
    }

    /// The same with a sorted set of somebody else's under the lock key: two members, of which one would be past if this
    /// was a lock. It lives for so long.
    #[must_use]
    pub fn with_another(mut self, ttl: u64) -> Self {
        let set = SortedSet::from_iter([(1_000, b"one".to_vec()), (9_000_000, b"other".to_vec())]);
        self.store.put(&SHARED.lock, Content::Sorted(set), Some(self.now + ttl * 1_000_000));
        self
    }

    /// Time goes by.
    pub fn pass(&mut self, seconds: u64) {
        self.now += seconds * 1_000_000;
        self.store.expire(self.now);
    }

    /// The keys move to a node whose clock differs by so much.
    pub fn migrate(&mut self, ahead: i64) {
        let by = ahead * 1_000_000;
        self.now = self.now.saturating_add_signed(by);
        self.store.rebase(by);
    }

    /// Executes a request of this owner, for a lock that it shares or that it has alone.
    pub fn execute(&mut self, owner: u8, shares: bool, ask: Timely) -> Answer {
        let seconds = Duration::from_secs;
        let (slack, fence_ttl, label) = (LONG, LONG, "".into());
        let action = match ask {
            Timely::Acquire { ttl, waits } => {
                let wants = waits.then(|| {
                    // Whoever is counted under the only hold there is says so.
                    let position = self.waiting().min(1);
                    Wants { position, keep: position > 0, ..Wants::default() }
                });
                Action::Acquire { ttl: seconds(ttl), proposal: self.now, slack, fence_ttl, label, wants }
            }
            Timely::Extend { ttl, fence } => Action::Extend { ttl: seconds(ttl), fence, fence_ttl, floor: None },
            Timely::Release => Action::Release { asks: true, granted: None },
            Timely::Withdraw => Action::Withdraw,
        };
        let keys = if shares { &*SHARED } else { &NAMES[0] };
        let request = Request { keys: Arc::clone(keys), token: TOKENS[usize::from(owner)], action };
        let reply = self.store.execute_tampered(self.now, &request).expect("every fence here is a small number");
        match reply {
            Reply::Granted(fence) => Answer::Granted(fence),
            Reply::Extended | Reply::Deleted { .. } | Reply::Withdrawn { .. } => Answer::Done,
            _ => Answer::Refused,
        }
    }

    /// Deletes the lock key if its value is what this owner was granted, as DELIFEQ and DELEX do, or anything at all if the
    /// owner `is_blind`. Returns whether it has. An owner that `errs` takes another fence for the one that it was granted.
    pub fn delete_lock(&mut self, owner: u8, errs: bool, is_blind: bool) -> bool {
        let lock = &NAMES[0].lock;
        let under_lock = self.store.contents(self.now).find(|(key, _)| **key == **lock);
        let Some((_, Content::Text(value))) = under_lock else { return false };
        let fence =
            value.split(|byte| *byte == b':').nth(1).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        let is_as_granted = *value == self::value(owner, fence.unwrap_or(0)) && !errs;
        if is_as_granted || is_blind {
            self.store.delete(lock);
        }
        is_as_granted || is_blind
    }

    /// Ends the count of those who wait, as GETDEL does, and returns it.
    pub fn end_count(&mut self) -> u32 {
        let waiting = self.waiting();
        self.store.delete(&NAMES[0].want);
        waiting
    }

    /// Returns how many wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        match self.inspect() {
            Reply::Seen { waiting: Some(waiting), .. } => waiting,
            _ => 0,
        }
    }

    /// Returns whether owners share the lock and somebody waits for it.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        matches!(self.inspect(), Reply::Seen { state: KeyState::Shared { .. }, waiting: Some(1..), .. })
    }

    /// Returns whether what is under the lock key is what was there in the other one.
    #[must_use]
    pub fn has_the_same(&self, other: &Self) -> bool {
        let contents = |node: &Self| node.store.entry(&SHARED.lock).cloned();
        contents(self) == contents(other)
    }

    fn inspect(&self) -> Reply {
        let action = Action::Inspect { asks: true };
        let request = Request { keys: Arc::clone(&NAMES[0]), token: TOKENS[0], action };
        self.store.clone().execute(self.now, &request).expect("an inspection reads")
    }
}
