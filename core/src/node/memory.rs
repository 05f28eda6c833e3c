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
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::node::event::{EventSink, NodeEvent};
use crate::node::identity::{Identity, Lacks, Role, ServerInfo};
use crate::protocol::request::{Action, FENCES, KeyState, Keys, Reply, Request, Wants};
use crate::protocol::token::Token;
use crate::protocol::value::{Value, leading_digits, number};
use crate::sys::clock::{Clock, Moment};
use crate::sys::mutex::Mutex;
use crate::transport::failure::Failure;

pub(crate) use sorted_set::SortedSet;

/// From 2^53 on Lua cannot tell neighbouring numbers apart; the scripts refuse to get there.
const FENCE_MAX: u64 = 9_007_199_254_740_990;

/// More are not reported.
const WAITING_MAX: u64 = 100_000;

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
        if request.keys.are_shared() {
            return self.execute_on_shared(now, request);
        }
        let are_several = request.keys.are_several();
        match &request.action {
            Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants } => {
                match self.first_held(now, request, *wants) {
                    Some(held) => Ok(held),
                    None => self.acquire(now, request, (*proposal, *slack), (*ttl, *fence_ttl), label),
                }
            }
            Action::Confirm { granted, fence, fence_ttl, label } => {
                self.confirm(now, request, &request.token.value(*granted, label), (*fence, *fence_ttl))
            }
            Action::Extend { ttl, fence, fence_ttl, floor } => {
                Ok(self.extend(now, request, (*fence, *floor), (*ttl, *fence_ttl)))
            }
            Action::Leave { asks, rest } if !are_several => Ok(self.leave(now, request, *asks, *rest)),
            Action::Release { asks, .. } | Action::Leave { asks, .. } => Ok(self.release(request, *asks)),
            Action::Restore { ttl, fence, level, fence_ttl, label } => {
                let restore = if are_several { Self::restore_all } else { Self::restore };
                restore(self, now, request, (*fence, *level), (*ttl, *fence_ttl), label)
            }
            Action::Rekey { former, ttl, fence, fence_ttl } => {
                Ok(self.rekey(now, request, former, *fence, (*ttl, *fence_ttl)))
            }
            Action::Peek { wants } => Ok(self.first_held(now, request, Some(*wants)).unwrap_or(Reply::FREE)),
            Action::Inspect { .. } | Action::Look { .. } if are_several => {
                Ok(self.first_held(now, request, None).unwrap_or(Reply::FREE))
            }
            Action::Look { slots, wants, anyway } => Ok(self.look(now, request, slots, (*wants, *anyway))),
            Action::Inspect { asks } => Ok(self.seen(now, &request.keys, *asks)),
            Action::Withdraw if are_several => Ok(Reply::Refused),
            Action::Withdraw => Ok(self.withdraw(now, &request.keys)),
            Action::SetnxAcquire { .. } | Action::SetnxRelease { .. } if are_several => Err(Failure::UnexpectedReply),
            Action::SetnxAcquire { ttl } => Ok(self.setnx_acquire(now, &request.keys.lock, *ttl)),
            Action::SetnxRelease { expiry } => Ok(self.setnx_release(now, &request.keys.lock, *expiry)),
        }
    }

    /// Returns the answer if the lock is held, with a position if the caller `wants` one.
    fn held(&mut self, now: u64, token: &Token, keys: &Keys, wants: Option<Wants>) -> Option<Reply> {
        let lock = &keys.lock;
        let value = parsed(&self.keys.get(&**lock)?.value);
        let ours = value.as_ref().filter(|value| value.is_of(token)).map(|value| value.fence);
        let hold = value.as_ref().map_or(0, |value| value.fence);
        let label = value.and_then(|value| value.label);
        let ttl_left = self.ttl_left(now, lock);
        let wants = wants.filter(|_| ours.is_none());
        let position = wants.map_or(0, |wants| self.line_up(now, &keys.want, wants, hold));
        Some(Reply::Held { ours, ttl_left, label, position, hold })
    }

    /// Counts one more waiter, unless counted in this `hold` already. Returns 0 if the key is not a count.
    fn line_up(&mut self, now: u64, want: &[u8], wants: Wants, hold: u64) -> u32 {
        if wants.position > 0 && wants.hold == hold {
            match self.keys.get_mut(want) {
                None if wants.keep => {}
                Some(entry) if wants.keep => {
                    entry.expires = Some(now + micros(WANT_KEEP));
                    return wants.position;
                }
                _ => return wants.position,
            }
        }
        let count = match self.keys.get(want) {
            None => 0,
            Some(entry) => match entry.value.digits() {
                Some(count) => count,
                None => return 0,
            },
        };
        self.set(now, want, (count + 1).to_string().into_bytes(), WANT_KEEP);
        u32::try_from(count + 1).unwrap_or(u32::MAX)
    }

    /// Has the fence keys of an extended lock be at least `floor`, and answers the extension.
    fn raise(&mut self, now: u64, keys: &Keys, floor: Option<u64>, fence_ttl: Duration) -> Reply {
        let Some(floor) = floor else { return Reply::Extended };
        for keys in keys.each() {
            match self.last_fence(&keys.fence) {
                Err(_) => return Reply::Extended,
                Ok(last) if last < floor => {
                    self.set(now, &keys.fence, floor.to_string().into_bytes(), fence_ttl);
                }
                Ok(_) => {}
            }
        }
        Reply::Raised
    }

    /// Ends the count of those who wait, and returns it.
    fn end_line(&mut self, want: &[u8]) -> u32 {
        let waiting = self.keys.remove(want).and_then(|entry| entry.value.digits()).unwrap_or(0).min(WAITING_MAX);
        u32::try_from(waiting).unwrap_or(0)
    }

    fn restore(
        &mut self,
        now: u64,
        request: &Request,
        (fence, level): (u64, u64),
        (ttl, fence_ttl): (Duration, Duration),
        label: &str,
    ) -> Result<Reply, Failure> {
        if self.keys.contains_key(&*request.keys.lock) {
            return Ok(Reply::Refused);
        }
        let last = self.last_fence(&request.keys.fence)?;
        if last > level {
            return Ok(ahead(last));
        }
        self.set(now, &request.keys.fence, level.to_string().into_bytes(), fence_ttl);
        self.set(now, &request.keys.lock, request.token.value(fence, label), ttl);
        Ok(Reply::Restored)
    }

    /// Gives the keys of the `former` token the request's, and lets them live longer: of all names, or of none.
    fn rekey(
        &mut self,
        now: u64,
        request: &Request,
        former: &Token,
        level: u64,
        (ttl, fence_ttl): (Duration, Duration),
    ) -> Reply {
        let held = match self.held_by(request, &[former, &request.token]) {
            Ok(held) => held,
            Err(reply) => return reply,
        };
        let most = held.iter().map(|(_, granted)| *granted).max().unwrap_or(0);
        let values: Vec<_> =
            held.into_iter().map(|(value, _)| [request.token.as_bytes(), &value[Token::LEN..]].concat()).collect();
        for (keys, value) in request.keys.each().zip(values) {
            self.lengthen(now, &keys.lock, ttl, true);
            self.lengthen(now, &keys.fence, fence_ttl, false);
            if let Some(entry) = self.keys.get_mut(&*keys.lock) {
                entry.value = Content::Text(value);
            }
        }
        if most > level { Reply::Ahead(most) } else { Reply::Extended }
    }

    /// Returns the value of every lock with the fence that one of these tokens was granted, or what is told if one is not
    /// theirs.
    fn held_by(&self, request: &Request, tokens: &[&Token]) -> Result<Vec<(&[u8], u64)>, Reply> {
        let (mut held, mut is_absent) = (Vec::new(), false);
        for keys in request.keys.each() {
            match self.keys.get(&*keys.lock).map(|entry| &entry.value) {
                None => is_absent = true,
                Some(Content::Text(value)) => {
                    let granted = tokens.iter().find_map(|token| granted(value, token));
                    held.push((&**value, granted.ok_or_else(|| self.foreign(&keys.lock))?));
                }
                Some(_) => return Err(Reply::Foreign(None)),
            }
        }
        if is_absent { Err(Reply::Absent) } else { Ok(held) }
    }

    /// Returns what is told of a lock that is another's.
    fn foreign(&self, lock: &[u8]) -> Reply {
        Reply::Foreign(self.keys.get(lock).and_then(|entry| parsed(&entry.value)?.label))
    }

    fn seen(&self, now: u64, keys: &Keys, asks: bool) -> Reply {
        let waiting = if asks { self.waiting(&keys.want) } else { None };
        Reply::Seen { state: self.inspect(now, &keys.lock), waiting }
    }

    fn inspect(&self, now: u64, lock: &[u8]) -> KeyState {
        let Some(entry) = self.keys.get(lock) else { return KeyState::Free };
        let ttl_left = self.ttl_left(now, lock);
        match parsed(&entry.value) {
            Some(value) => KeyState::Ours { owner: value.owner(), label: value.label, fence: value.fence, ttl_left },
            None => entry.shared(now, ttl_left).unwrap_or(KeyState::Foreign { ttl_left }),
        }
    }

    /// Returns how many wait; `None` if the key is not a count.
    fn waiting(&self, want: &[u8]) -> Option<u32> {
        let count = match self.keys.get(want) {
            None => 0,
            Some(entry) => entry.value.digits()?.min(WAITING_MAX),
        };
        u32::try_from(count).ok()
    }

    fn setnx_acquire(&mut self, now: u64, lock: &[u8], ttl: Duration) -> Reply {
        let second = now / SECOND;
        if let Some(entry) = self.keys.get(lock) {
            let expiry = setnx_expiry(&entry.value);
            if expiry.is_none_or(|expiry| second <= expiry) {
                let over = expiry.map(|expiry| Duration::from_micros((expiry + 1) * SECOND - now));
                let ttl_left = over.into_iter().chain(self.ttl_left(now, lock)).min();
                return Reply::Held { ours: None, ttl_left, label: None, position: 0, hold: 0 };
            }
        }
        let own = second + micros(ttl).div_ceil(SECOND) + 1;
        let entry = Entry { value: Content::Text(own.to_string().into()), expires: Some((own + 1) * SECOND) };
        self.keys.insert(lock.to_vec(), entry);
        Reply::GrantedUntil(own)
    }

    fn setnx_release(&mut self, now: u64, lock: &[u8], expiry: u64) -> Reply {
        if now / SECOND >= expiry {
            return Reply::Late;
        }
        match self.keys.get(lock).map(|entry| &entry.value) {
            None => Reply::Absent,
            Some(Content::Sorted(_) | Content::Other) => Reply::Foreign(None),
            Some(Content::Text(_)) => {
                self.keys.remove(lock);
                Reply::Deleted { waiting: 0 }
            }
        }
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

    /// Makes a key live for at least `ttl`. A key without a ttl gets one only with `limit`.
    fn lengthen(&mut self, now: u64, key: &[u8], ttl: Duration, limit: bool) {
        if let Some(entry) = self.keys.get_mut(key) {
            let until = now.saturating_add(micros(ttl));
            entry.expires = match entry.expires {
                Some(expires) => Some(expires.max(until)),
                None => limit.then_some(until),
            };
        }
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

    /// Returns the text under a key.
    pub(crate) fn text(&mut self, now: u64, key: &[u8]) -> Option<Vec<u8>> {
        self.expire(now);
        match &self.keys.get(key)?.value {
            Content::Text(text) => Some(text.clone()),
            Content::Sorted(_) | Content::Other => None,
        }
    }

    /// Deletes a key, as expiry or another client of the server could; for tests and faults.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }
}

/// Returns the fence that a node grants: the proposal, near its clock and above the `last` one.
fn fence_above(now: u64, proposal: u64, slack: Duration, last: u64) -> u64 {
    let slack = micros(slack);
    proposal.max(now.saturating_sub(slack)).min(now + slack).max(last + 1)
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

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
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
        MemoryConnection { shared: Arc::clone(&self.0), clock: clock.clone(), line: Arc::new(Subscriber { events }) }
    }

    /// Identifies the node by its name: a store never restarts, and its grants do not outlive it.
    pub(crate) fn server_info(&self) -> ServerInfo {
        let run_id = format!("memory-{}", self.1);
        let identity = Identity { run_id, role: Role::Master, ..Identity::default() };
        let (uptime, again) = (Duration::ZERO, Moment::NEVER);
        ServerInfo { identity, uptime, evicts: None, lacks: Lacks::default(), watched: true, again }
    }
}

/// A connection to a node in memory: executes at the call.
#[derive(Clone, Debug)]
pub(crate) struct MemoryConnection {
    shared: Arc<Mutex<NodeState>>,
    clock: Clock,
    line: Arc<Subscriber>,
}

/// One connection's notifications of changed keys.
#[derive(Debug)]
pub(crate) struct Subscriber {
    events: Option<EventSink>,
}

impl MemoryConnection {
    /// Calls `look` with the store and the time on its clock; fails while the node refuses requests.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Store, u64) -> T) -> Result<T, Failure> {
        let mut shared = self.shared.lock();
        if shared.unavailable {
            return Err(Failure::of_code("TESTDOWN"));
        }
        let now = shared.now(&self.clock);
        Ok(look(&mut shared.store, now))
    }

    pub(crate) fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let mut shared = self.shared.lock();
        if shared.unavailable {
            // An answer, and not a broken connection: after one of those a node is left alone for a moment.
            return Err(Failure::of_code("TESTDOWN"));
        }
        let now = shared.now(&self.clock);
        let answer = shared.store.execute(now, request);
        // A release rings the bell, or might have.
        let bell = request.keys.bell().filter(|_| matches!(request.action, Action::Leave { .. }));
        let mut told = Vec::new();
        for key in request.keys.each().map(|keys| &*keys.lock).chain(bell) {
            match &answer {
                Ok(reply) if reply.changes() => told.push((key, shared.armed.remove(key).unwrap_or_default())),
                Ok(reply) if reply.reads() && self.line.events.is_some() => {
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
        self.line.events.as_ref()
    }
}

/// Tells these connections, but not the `own` one, that `key` has changed.
fn notify(told: &[Weak<Subscriber>], own: Option<&Arc<Subscriber>>, key: &[u8]) {
    let others = told.iter().filter_map(Weak::upgrade);
    for line in others.filter(|line| own.is_none_or(|own| !Arc::ptr_eq(line, own))) {
        if let Some(events) = &line.events {
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
