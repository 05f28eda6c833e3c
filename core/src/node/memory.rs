//! A node in memory: the transitions of the scripts on a map, for unit tests, first steps and the simulation. A
//! property test holds it equal to a real server.
//!
//! It excludes no client outside this process.

mod several;
mod shared;
mod slots;
mod sorted_set;
#[cfg(any(test, feature = "__simulation"))]
#[path = "../../../tests/simulation/world/tampering.rs"]
pub(crate) mod tampering;
#[cfg(feature = "testing")]
mod testing;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use crate::node::event::{EventSink, NodeEvent};
use crate::node::identity::{Identity, Role, ServerInfo};
use crate::node::scripts::micros;
use crate::protocol::request::{Action, FENCES, KeyState, Keys, Proof, Reply, Request, WAITING_MAX, Wants};
use crate::protocol::token::Token;
use crate::protocol::value::{Value, leading_digits, number};
use crate::sys::clock::Clock;
use crate::sys::mutex::Mutex;
use crate::transport::failure::Failure;

pub(crate) use sorted_set::SortedSet;

/// From 2^53 on Lua cannot tell neighbouring numbers apart; the scripts refuse to get there.
const FENCE_MAX: u64 = 9_007_199_254_740_990;

/// The lifetime of the waiters' count after the last of them joined, or kept it alive.
const WANT_KEEP: Duration = Duration::from_secs(5);
/// In microseconds.
const SECOND: u64 = 1_000_000;

/// The possible values of the SETNX protocol, in Unix seconds.
const SETNX_EXPIRIES: RangeInclusive<u64> = 1_000_000_000..=100_000_000_000;

/// The keys of one node. Time is an argument: microseconds on the node's own clock, for expiry and fences alike, as on
/// a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    keys: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    value: Content,
    /// In microseconds on the node's clock; `None` never expires.
    expires: Option<u64>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    /// A string.
    Text(Vec<u8>),
    /// A sorted set.
    Sorted(SortedSet),
    /// Any other type; only another client of a server can make one.
    #[cfg_attr(not(test), allow(dead_code, reason = "only tests put one there"))]
    Other,
}

impl Content {
    /// Returns the number, if this is all digits.
    fn digits(&self) -> Option<u64> {
        let Self::Text(text) = self else { return None };
        number(text).filter(|_| leading_digits(text).len() == text.len())
    }
}

impl Store {
    /// Deletes expired keys.
    pub(crate) fn expire(&mut self, now: u64) {
        self.keys.retain(|_, entry| entry.expires.is_none_or(|expires| expires > now));
    }

    /// Executes `request` in one step.
    pub(crate) fn execute(&mut self, now: u64, request: &Request) -> Result<Reply, Failure> {
        self.expire(now);
        let mut step = Step { store: self, now, request };
        if request.keys.are_shared() { step.execute_on_shared() } else { step.execute() }
    }

    /// Returns what is told of a lock that is another's.
    fn foreign(&self, lock: &[u8]) -> Reply {
        Reply::Foreign(self.keys.get(lock).and_then(|entry| parsed(&entry.value)?.label))
    }

    /// Returns how many wait; `None` if the key is not a count.
    fn waiting(&self, want: &[u8]) -> Option<u32> {
        let count = self.keys.get(want).map_or(Some(0), |entry| entry.value.digits())?;
        Some(u32::try_from(count).unwrap_or(WAITING_MAX).min(WAITING_MAX))
    }

    /// Ends the count of those who wait, and returns it.
    fn end_line(&mut self, want: &[u8]) -> u32 {
        let waiting = self.waiting(want).unwrap_or(0);
        self.keys.remove(want);
        waiting
    }

    /// Reads the fence key; 0 if there is none.
    fn last_fence(&self, key: &[u8]) -> Result<u64, Failure> {
        match self.keys.get(key).map(|entry| &entry.value) {
            None => Ok(0),
            Some(Content::Text(digits)) if leading_digits(digits).len() == digits.len() => {
                number(digits).ok_or_else(|| Failure::of_code("FENCE"))
            }
            Some(_) => Err(Failure::of_code("FENCE")),
        }
    }

    fn set(&mut self, now: u64, key: &[u8], value: Vec<u8>, ttl: Duration) {
        let entry = Entry { value: Content::Text(value), expires: Some(now.saturating_add(micros(ttl))) };
        self.keys.insert(key.to_vec(), entry);
    }

    pub(crate) fn ttl_left(&self, now: u64, key: &[u8]) -> Option<Duration> {
        let expires = self.keys.get(key)?.expires?;
        Some(Duration::from_micros(expires.saturating_sub(now)))
    }

    /// Returns the keys that begin with `prefix`, and have not expired.
    pub(crate) fn keys(&mut self, now: u64, prefix: &[u8]) -> Vec<Vec<u8>> {
        self.expire(now);
        self.keys.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    /// Deletes a key, as expiry or another client of the server could; for tests and faults.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }
}

/// The execution of one request.
struct Step<'a> {
    store: &'a mut Store,
    now: u64,
    request: &'a Request,
}

/// How long a lock is kept, and its fence.
type Ttls = (Duration, Duration);

impl Step<'_> {
    fn execute(&mut self) -> Result<Reply, Failure> {
        let Request { keys, token, action } = self.request;
        match action {
            Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants } => match self.first_held(*wants) {
                Some(held) => Ok(held),
                None => self.acquire((*proposal, *slack), (*ttl, *fence_ttl), label),
            },
            Action::Confirm { granted, fence, fence_ttl, label } => {
                self.confirm(&token.value(*granted, label), *fence, *fence_ttl)
            }
            Action::Extend { ttl, fence, fence_ttl, floor } => Ok(self.extend(*fence, *floor, (*ttl, *fence_ttl))),
            Action::Leave { asks, rest } if !keys.are_several() => Ok(self.leave(*asks, *rest)),
            Action::Release { asks, .. } | Action::Leave { asks, .. } => Ok(self.release(*asks)),
            Action::Restore { ttl, fence, level, fence_ttl, label } => {
                self.restore((*fence, *level), (*ttl, *fence_ttl), label)
            }
            Action::Rekey { former, ttl, fence, fence_ttl, .. } => Ok(self.rekey(former, *fence, (*ttl, *fence_ttl))),
            Action::Peek { wants } => Ok(self.first_held(Some(*wants)).unwrap_or(Reply::FREE)),
            Action::Inspect { .. } | Action::Look { .. } if keys.are_several() => {
                Ok(self.first_held(None).unwrap_or(Reply::FREE))
            }
            Action::Look { slots, wants, anyway } => Ok(self.look(slots, *wants, *anyway)),
            Action::Inspect { asks } => Ok(self.seen(*asks, false)),
            Action::Read => Ok(self.seen(true, true)),
            Action::Evict { .. } => Ok(Reply::Foreign(None)),
            Action::Withdraw if keys.are_several() => Ok(Reply::Refused),
            Action::Withdraw => Ok(self.withdraw()),
            Action::SetnxAcquire { ttl } => Ok(self.setnx_acquire(*ttl)),
            Action::SetnxRelease { expiry } => Ok(self.setnx_release(*expiry)),
        }
    }

    /// Returns the answer if the lock is held, with a position if the caller `wants` one.
    fn held(&mut self, keys: &Keys, wants: Option<Wants>) -> Option<Reply> {
        let value = parsed(&self.store.keys.get(&*keys.lock)?.value);
        // What is another's to those who share is never their own.
        let own = value.as_ref().filter(|value| !keys.are_shared() && value.is_of(&self.request.token));
        let ours = own.map(|value| value.fence);
        let hold = value.as_ref().map_or(0, |value| value.fence);
        let label = value.and_then(|value| value.label);
        let ttl_left = self.store.ttl_left(self.now, &keys.lock);
        let wants = wants.filter(|_| ours.is_none());
        let position = wants.map_or(0, |wants| self.line_up(&keys.want, wants, hold));
        Some(Reply::Held { ours, ttl_left, label, position, hold })
    }

    /// Counts one more waiter, unless counted in this `hold` already. Returns 0 if the key is not a count.
    fn line_up(&mut self, want: &[u8], wants: Wants, hold: u64) -> u32 {
        if wants.position > 0 && wants.hold == hold {
            match self.store.keys.get_mut(want) {
                None if wants.keep => {}
                Some(entry) if wants.keep => {
                    entry.expires = Some(self.now + micros(WANT_KEEP));
                    return wants.position;
                }
                _ => return wants.position,
            }
        }
        let count = self.store.keys.get(want).map_or(Some(0), |entry| entry.value.digits());
        let Some(count) = count else { return 0 };
        self.set_number(want, count + 1, WANT_KEEP);
        u32::try_from(count + 1).unwrap_or(u32::MAX)
    }

    /// Has the fence keys of an extended lock be at least `floor`, and answers the extension.
    fn raise(&mut self, floor: Option<u64>, fence_ttl: Duration) -> Reply {
        let Some(floor) = floor else { return Reply::Extended };
        for keys in self.request.keys.each() {
            match self.store.last_fence(&keys.fence) {
                Err(_) => return Reply::Extended,
                Ok(last) if last < floor => self.set_number(&keys.fence, floor, fence_ttl),
                Ok(_) => {}
            }
        }
        Reply::Raised
    }

    fn seen(&self, asks: bool, proves: bool) -> Reply {
        let Keys { lock, want, .. } = &*self.request.keys;
        let ttl_left = self.store.ttl_left(self.now, lock);
        let state = self.store.keys.get(&**lock).map_or(KeyState::Free, |entry| match parsed(&entry.value) {
            Some(value) => KeyState::Ours { owner: value.owner(), label: value.label, fence: value.fence, ttl_left },
            None => entry.shared(self.now, ttl_left).unwrap_or(KeyState::Foreign { ttl_left }),
        });
        let proof = match self.store.keys.get(&**lock).map(|entry| &entry.value) {
            Some(Content::Text(value)) if proves => Some(Box::new(Proof::of(value))),
            _ => None,
        };
        Reply::Seen { state, waiting: if asks { self.store.waiting(want) } else { None }, proof }
    }

    fn setnx_acquire(&mut self, ttl: Duration) -> Reply {
        let (lock, second) = (&self.request.keys.lock, self.now / SECOND);
        if let Some(entry) = self.store.keys.get(&**lock) {
            let expiry = setnx_expiry(&entry.value);
            if expiry.is_none_or(|expiry| second <= expiry) {
                let over = expiry.map(|expiry| Duration::from_micros((expiry + 1) * SECOND - self.now));
                let ttl_left = over.into_iter().chain(self.store.ttl_left(self.now, lock)).min();
                return Reply::Held { ours: None, ttl_left, label: None, position: 0, hold: 0 };
            }
        }
        let own = second + micros(ttl).div_ceil(SECOND) + 1;
        let entry = Entry { value: Content::Text(own.to_string().into()), expires: Some((own + 1) * SECOND) };
        self.store.keys.insert(lock.to_vec(), entry);
        Reply::GrantedUntil(own)
    }

    fn setnx_release(&mut self, expiry: u64) -> Reply {
        let lock = &self.request.keys.lock;
        if self.now / SECOND >= expiry {
            return Reply::Late;
        }
        match self.store.keys.get(&**lock).map(|entry| &entry.value) {
            None => Reply::Absent,
            Some(Content::Sorted(_) | Content::Other) => Reply::Foreign(None),
            Some(Content::Text(_)) => {
                self.store.delete(lock);
                Reply::Deleted { waiting: 0 }
            }
        }
    }

    /// Writes a text.
    fn set(&mut self, key: &[u8], value: Vec<u8>, ttl: Duration) {
        self.store.set(self.now, key, value, ttl);
    }

    /// Writes a fence, or a count.
    fn set_number(&mut self, key: &[u8], number: u64, ttl: Duration) {
        self.set(key, number.to_string().into_bytes(), ttl);
    }

    /// Makes a key live for at least `ttl`. A key without a ttl gets one only with `limit`.
    fn lengthen(&mut self, key: &[u8], ttl: Duration, limit: bool) {
        if let Some(entry) = self.store.keys.get_mut(key) {
            let until = self.now.saturating_add(micros(ttl));
            entry.expires = match entry.expires {
                Some(expires) => Some(expires.max(until)),
                None => limit.then_some(until),
            };
        }
    }
}

/// Returns whether a value is of the token, as a release reads it.
fn is_of(value: &[u8], token: &[u8]) -> bool {
    value.strip_prefix(token).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b':'))
}

/// Returns the fence that a value of the token has, as an extension reads it: not the whole form, only as much as safety
/// takes. `None` if the value is not of the token.
fn granted(value: &[u8], token: &Token) -> Option<u64> {
    let rest = value.strip_prefix(token.as_bytes())?.strip_prefix(b":")?;
    number(leading_digits(rest)).filter(|fence| *fence < FENCES.end)
}

/// Returns a restore's answer for this fence above the level. From the last fences on a node grants nothing: no other one
/// must remember that too.
fn ahead(fence: u64) -> Reply {
    if fence < FENCE_MAX { Reply::Ahead(fence) } else { Reply::Refused }
}

/// Reads a value in this library's form.
fn parsed(content: &Content) -> Option<Value<'_>> {
    let Content::Text(text) = content else { return None };
    Value::parse(text)
}

/// Returns the expiry in a value of the SETNX protocol, in whole Unix seconds; some clients write a fraction too.
fn setnx_expiry(content: &Content) -> Option<u64> {
    let Content::Text(text) = content else { return None };
    let whole = leading_digits(text);
    match &text[whole.len()..] {
        [] => {}
        [b'.', fraction @ ..] if !fraction.is_empty() && leading_digits(fraction).len() == fraction.len() => {}
        _ => return None,
    }
    number(whole).filter(|expiry| SETNX_EXPIRIES.contains(expiry))
}

/// A node in memory by name; every client of this process that names it shares it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryNode(Arc<Mutex<NodeState>>, Arc<str>);

/// The state shared by one node's connections.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    store: Store,
    /// The connections to notify of a key's next change, once.
    armed: HashMap<Vec<u8>, Vec<Weak<Subscriber>>>,
    /// How far the node's clock is ahead of the process's, in microseconds.
    ahead: u64,
    /// Whether the node refuses every request.
    unavailable: bool,
}

impl NodeState {
    /// Returns the time on the node's clock.
    fn now(&self, clock: &Clock) -> u64 {
        clock.wall_micros().saturating_add(self.ahead)
    }
}

/// The nodes in memory of one process, by name. The process owns them, so a forked child starts with none.
#[derive(Debug, Default)]
pub(crate) struct MemoryNodes(Mutex<HashMap<String, Weak<Mutex<NodeState>>>>);

impl MemoryNodes {
    /// Returns the node with this name, made at its first use. It lives while a client names it.
    pub(crate) fn named(&self, name: &str) -> MemoryNode {
        let mut nodes = self.0.lock();
        nodes.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = nodes.get(name).and_then(Weak::upgrade) {
            return MemoryNode(store, name.into());
        }
        let store = Arc::default();
        nodes.insert(name.to_owned(), Arc::downgrade(&store));
        MemoryNode(store, name.into())
    }
}

impl MemoryNode {
    pub(crate) fn connect(&self, clock: &Clock, events: Option<EventSink>) -> MemoryConnection {
        let events = events.filter(EventSink::tracks);
        MemoryConnection { shared: Arc::clone(&self.0), clock: clock.clone(), line: Arc::new(events) }
    }

    /// Identifies the node by its name: a store never restarts, and its grants do not outlive it.
    pub(crate) fn server_info(&self) -> ServerInfo {
        let run_id = format!("memory-{}", self.1);
        let identity = Identity { run_id, role: Role::Master, ..Identity::default() };
        ServerInfo { watched: true, ..ServerInfo::of(identity) }
    }
}

/// A connection to a node in memory: executes at the call.
#[derive(Clone, Debug)]
pub(crate) struct MemoryConnection {
    shared: Arc<Mutex<NodeState>>,
    clock: Clock,
    line: Arc<Subscriber>,
}

/// The receiver of one connection's notifications of changed keys.
type Subscriber = Option<EventSink>;

impl MemoryConnection {
    /// Calls `look` with the store and the time on its clock; fails while the node refuses requests.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Store, u64) -> T) -> Result<T, Failure> {
        let (mut shared, now) = self.open()?;
        Ok(look(&mut shared.store, now))
    }

    /// Locks the node; fails while it refuses requests.
    fn open(&self) -> Result<(MutexGuard<'_, NodeState>, u64), Failure> {
        let shared = self.shared.lock();
        let now = shared.now(&self.clock);
        // An answer, and not a broken connection: after one of those a node is left alone for a moment.
        if shared.unavailable { Err(Failure::of_code("TESTDOWN")) } else { Ok((shared, now)) }
    }

    pub(crate) fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let (mut shared, now) = self.open()?;
        let answer = shared.store.execute(now, request);
        // A release rings the bell, or might have.
        let bell = request.keys.bell().filter(|_| matches!(request.action, Action::Leave { .. }));
        let mut told = Vec::new();
        for key in request.keys.each().map(|keys| &*keys.lock).chain(bell) {
            match &answer {
                Ok(reply) if reply.changes() => told.push((key, shared.armed.remove(key).unwrap_or_default())),
                Ok(reply) if reply.reads() && self.line.is_some() => {
                    let lines = shared.armed.entry(key.to_vec()).or_default();
                    lines.retain(|line| line.strong_count() > 0 && !std::ptr::eq(line.as_ptr(), &raw const *self.line));
                    lines.push(Arc::downgrade(&self.line));
                }
                _ => {}
            }
        }
        drop(shared);
        for (key, told) in told {
            notify(&told, Some(&self.line), key);
        }
        answer
    }

    pub(super) fn reports_to(&self) -> Option<&EventSink> {
        self.line.as_ref().as_ref()
    }
}

/// Tells these connections, but not the `own` one, that `key` has changed.
fn notify(told: &[Weak<Subscriber>], own: Option<&Arc<Subscriber>>, key: &[u8]) {
    let others = told.iter().filter_map(Weak::upgrade);
    for line in others.filter(|line| own.is_none_or(|own| !Arc::ptr_eq(line, own))) {
        if let Some(events) = &*line {
            events.emit(NodeEvent::Changed(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::name::Name;
    use crate::protocol::request::Keys;
    use crate::sys::random::Random;

    #[test]
    fn a_key_lives_until_its_time_and_not_in_it() {
        let (mut store, second) = (Store::default(), Duration::from_secs(1));
        let mut acquire = |now, ttl| {
            let keys = Keys::of(&Name::parse(*b"foo").unwrap());
            let (slack, fence_ttl, label) = (Duration::ZERO, second, "".into());
            let action = Action::Acquire { ttl, proposal: 1, slack, fence_ttl, label, wants: None };
            store.execute(now, &Request { keys, token: Token::fresh(&Random::System), action }).unwrap()
        };
        assert_eq!(acquire(SECOND, second), Reply::Granted(SECOND));
        let ttl_left = Some(Duration::from_micros(1));
        let held = |hold| Reply::Held { ours: None, ttl_left, label: None, position: 0, hold };
        assert_eq!(acquire(2 * SECOND - 1, second), held(SECOND));
        assert_eq!(acquire(2 * SECOND, Duration::MAX), Reply::Granted(2 * SECOND));
        assert_eq!(acquire(u64::MAX - 1, second), held(2 * SECOND), "for ever");
    }

    #[test]
    fn a_node_is_shared_by_its_name_for_as_long_as_somebody_has_it() {
        let nodes = MemoryNodes::default();
        let (one, other) = (nodes.named("one"), nodes.named("other"));
        assert!(Arc::ptr_eq(&one.0, &nodes.named("one").0));
        assert!(!Arc::ptr_eq(&one.0, &other.0));
        drop(one);
        nodes.named("third");
        let mut left: Vec<String> = nodes.0.lock().keys().cloned().collect();
        left.sort_unstable();
        assert_eq!(left, ["other", "third"]);
    }

    /// Returns a connection that listens, and its number of notifications.
    fn listener(node: &MemoryNode) -> (MemoryConnection, Arc<Mutex<u32>>) {
        let told = Arc::new(Mutex::new(0));
        let count = Arc::clone(&told);
        let events = EventSink::new(true, move |heard| {
            assert!(matches!(heard, NodeEvent::Changed(b"foo")), "{heard:?}");
            *count.lock() += 1;
        });
        (node.connect(&Clock::System, Some(events)), told)
    }

    #[test]
    fn whoever_has_read_a_key_is_told_once_when_somebody_else_changes_it() {
        let node = MemoryNodes::default().named("node");
        let deaf = node.connect(&Clock::System, None);
        let ((one, told), (two, told_too)) = (listener(&node), listener(&node));
        let (keys, ttl) = (Keys::of(&Name::parse(*b"foo").unwrap()), Duration::from_secs(60));
        let token = Token::fresh(&Random::System);
        let ask = |connection: &MemoryConnection, action| {
            connection.call(&Request { keys: Arc::clone(&keys), token, action }).unwrap()
        };
        let fence_ttl = ttl * 2;
        let (slack, label) = (Duration::ZERO, Arc::from(""));
        let acquire = Action::Acquire { ttl, proposal: 1, slack, fence_ttl, label, wants: None };
        let counts = || (*told.lock(), *told_too.lock());
        let armed = || node.0.lock().armed.get(&*keys.lock).map_or(0, Vec::len);

        assert!(ask(&deaf, acquire.clone()).changes());
        for reads in [&one, &two, &deaf, &one] {
            assert!(ask(reads, Action::Inspect { asks: false }).reads());
        }
        let (gone, _) = listener(&node);
        ask(&gone, Action::Inspect { asks: false });
        drop(gone);
        ask(&two, Action::Inspect { asks: false });
        assert_eq!((armed(), counts()), (2, (0, 0)), "each that listens, once; nobody who is gone");
        assert!(ask(&deaf, Action::Release { asks: false, granted: None }).changes());
        assert_eq!((armed(), counts()), (0, (1, 1)));
        assert!(ask(&deaf, acquire.clone()).changes());
        assert_eq!(counts(), (1, 1), "once");
        for reads in [&one, &two] {
            ask(reads, Action::Inspect { asks: false });
        }
        assert!(ask(&one, Action::Release { asks: false, granted: None }).changes());
        assert_eq!(counts(), (1, 2), "of one's own change one knows");
    }

    /// The property test's clocks are no use at the edge of a second.
    #[test]
    fn a_setnx_lock_ends_at_whole_seconds() {
        let (mut store, granted) = (Store::default(), 1_700_000_000 * SECOND + 999_999);
        let mut ask = |now, action| {
            let keys = Keys::of(&Name::parse(*b"foo").unwrap());
            store.execute(now, &Request { keys, token: Token::fresh(&Random::System), action }).unwrap()
        };
        let ttl = Duration::from_millis(1_001);
        let (acquire, expiry) = (Action::SetnxAcquire { ttl }, 1_700_000_003);
        assert_eq!(ask(granted, acquire.clone()), Reply::GrantedUntil(expiry), "the ttl is rounded up");
        assert_eq!(ask(expiry * SECOND, Action::SetnxRelease { expiry }), Reply::Late);
        let last = (expiry + 1) * SECOND - 1;
        let ttl_left = Some(Duration::from_micros(1));
        assert_eq!(ask(last, acquire.clone()), Reply::Held { ours: None, ttl_left, label: None, position: 0, hold: 0 });
        assert_eq!(ask(last + 1, acquire), Reply::GrantedUntil(expiry + 4));
        let next = expiry + 4;
        assert_eq!(ask(next * SECOND - 1, Action::SetnxRelease { expiry: next }), Reply::Deleted { waiting: 0 });
    }
}
