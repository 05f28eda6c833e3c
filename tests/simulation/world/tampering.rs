//! Servers that do one step wrong. Each fault changes what a request asks, the keys that it finds, or what it leaves and
//! answers: the store itself does its own step as always. And what a simulation does to a store that no client can.

#![cfg_attr(not(feature = "__simulation"), allow(dead_code, unreachable_pub, reason = "tests of the store use a part"))]

use std::cell::Cell;
use std::sync::Arc;

use super::shared::{self, Found};
use super::{Content, Entry, Store, Token, is_of};
use crate::protocol::request::{Action, FENCES, Keys, Reply, Request};
use crate::transport::failure::Failure;

/// Names each fault, and all of them.
macro_rules! faults {
    ($($(#[$doc:meta])* $fault:ident,)*) => {
        /// One wrong step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $fault,)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: &[Self] = &[$(Self::$fault),*];
        }
    };
}

faults! {
    /// The acquire takes a held lock.
    AcquireTakes,
    /// The acquire does not remember the fence.
    FenceForgotten,
    /// The confirm does not check that the value is still the granted one.
    BlindConfirm,
    /// The extend recreates the key.
    ExtendCreates,
    /// The extend compares the token alone, not the fence.
    ExtendByToken,
    /// The node says that it remembers a larger fence that another node has granted the lock, and does not.
    NotRaised,
    /// The restore writes a fence smaller than the node has granted since.
    RestoreBlindly,
    /// The re-key leaves the token as it is.
    RekeyKeepsToken,
    /// The re-key compares the token alone, not the fence.
    RekeyByToken,
    /// The re-key takes a key that another attachment has re-keyed.
    RekeyOfAny,
    /// The release does not compare the token.
    ReleaseBlindly,
    /// The SETNX acquire takes a key that has not expired.
    SetnxTakes,
    /// The fence of several names is above the first name's last fence only.
    FloorOfFirst,
    /// The acquire takes those of several names that are free.
    TakesFree,
    /// The confirm looks at the first of several names only.
    ConfirmFirst,
    /// The extend counts if any of several names is ours.
    ExtendAny,
    /// The release deletes the first of several names only.
    ReleaseFirst,
    /// The restore compares the first of several names' fences only.
    RestoreFirst,
    /// A lock that is left for its least time can still be extended.
    LeaveForgotten,
    /// A lock that is left gets its least time even if less was left.
    LeaveLengthens,
    /// The key of a shared lock ends with the owner that joined last.
    EndOfLast,
    /// All owners of a shared lock end with the last of them.
    OneEndForAll,
    /// The ends of owners are compared with the server's clock, although their key came from another server.
    EndsByTime,
    /// The release deletes the key that others share.
    ReleaseForAll,
    /// The node does not remember the fence of an owner that shares the lock.
    ReaderForgotten,
    /// Whoever joins those who share a lock gets the last fence, not the next one.
    JoinsWithCurrent,
    /// The extend of a shared lock does not look at the period.
    ExtendWithoutPeriod,
    /// The confirm of a shared lock does not look at the period.
    ConfirmWithoutPeriod,
    /// The restore of a shared lock begins a period with a fence smaller than the node has granted since.
    RestoreWithoutFence,
    /// Owners join those who share a lock although somebody waits for it alone.
    NoIntent,
    /// Somebody's sorted set under a lock key is changed as if its members were owners.
    DropsForeign,
}

std::thread_local! {
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Plants `fault` in the servers of this thread, in place of any other.
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Which locks a request is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Several,
    Shared,
}

impl Shape {
    fn of(keys: &Keys) -> Self {
        if keys.are_several() {
            Self::Several
        } else if keys.are_shared() {
            Self::Shared
        } else {
            Self::One
        }
    }
}

impl Store {
    /// Executes `request` in one step, with the fault that is planted.
    pub(crate) fn execute_tampered(&mut self, now: u64, request: &Request) -> Result<Reply, Failure> {
        let Some(fault) = PLANTED.get() else { return self.execute(now, request) };
        self.expire(now);
        let before = self.clone();
        let shape = Shape::of(&request.keys);
        let asked = before.instead(fault, shape, request);
        self.prepare(fault, shape, now, request);
        let reply = self.execute(now, &asked)?;
        Ok(self.spoil(fault, shape, &before, now, request, reply))
    }

    /// Returns what is asked in place of `request`.
    fn instead(&self, fault: Fault, shape: Shape, request: &Request) -> Request {
        let mut asked = request.clone();
        match (fault, shape, &mut asked.action) {
            (Fault::ExtendByToken, Shape::One, Action::Extend { fence, .. })
            | (Fault::ExtendWithoutPeriod, Shape::Shared, Action::Extend { fence, .. })
            | (Fault::RekeyByToken, _, Action::Rekey { fence, .. }) => *fence = FENCES.end,
            (Fault::ConfirmWithoutPeriod, Shape::Shared, Action::Confirm { granted, .. }) => *granted = FENCES.end,
            (Fault::NotRaised, _, Action::Extend { floor, .. }) => *floor = None,
            (Fault::RekeyOfAny, Shape::One | Shape::Several, Action::Rekey { former, .. }) => {
                let token = |keys: &Keys| Token::parse(self.lock_text(keys)?.get(..Token::LEN)?);
                let others = request.keys.each().filter_map(token).find(|token| *token != request.token);
                *former = others.unwrap_or(*former);
            }
            (Fault::ConfirmFirst, Shape::Several, Action::Confirm { .. }) => {
                asked.keys = Arc::new(request.keys.alone());
            }
            _ => {}
        }
        asked
    }

    /// Changes what the request is about to find.
    fn prepare(&mut self, fault: Fault, shape: Shape, now: u64, request: &Request) {
        let lock = &*request.keys.lock;
        match (fault, shape, &request.action) {
            (Fault::AcquireTakes, Shape::One, Action::Acquire { .. })
            | (Fault::SetnxTakes, _, Action::SetnxAcquire { .. }) => self.delete(lock),
            (Fault::ExtendCreates, Shape::One, Action::Extend { ttl, fence, .. }) if !self.keys.contains_key(lock) => {
                self.set(now, lock, request.token.value(*fence, ""), *ttl);
            }
            (Fault::ExtendAny, Shape::Several, Action::Extend { ttl, fence, .. })
                if request.keys.each().any(|keys| self.is_ours(keys, request)) =>
            {
                for keys in request.keys.each().filter(|keys| self.lock_entry(keys).is_none()).collect::<Vec<_>>() {
                    self.set(now, &keys.lock, request.token.value(*fence, ""), *ttl);
                }
            }
            (Fault::ReleaseBlindly, Shape::One, Action::Release { .. }) => {
                if let Some(Entry { value: Content::Text(value), .. }) = self.keys.get_mut(lock) {
                    *value = request.token.value(1, "");
                }
            }
            (Fault::RestoreBlindly, Shape::One, Action::Restore { .. })
            | (Fault::RestoreWithoutFence, Shape::Shared, Action::Restore { .. })
                if !self.keys.contains_key(lock) =>
            {
                self.delete(&request.keys.fence);
            }
            (Fault::RestoreFirst, Shape::Several, Action::Restore { .. })
            | (Fault::FloorOfFirst, Shape::Several, Action::Acquire { .. }) => {
                for keys in
                    request.keys.each().skip(1).filter(|keys| self.lock_entry(keys).is_none()).collect::<Vec<_>>()
                {
                    self.delete(&keys.fence);
                }
            }
            (Fault::TakesFree, Shape::Several, Action::Acquire { .. }) => {
                request.keys.each().for_each(|keys| self.delete(&keys.lock));
            }
            (Fault::LeaveLengthens, _, Action::Leave { rest, .. }) if !rest.is_zero() => {
                if let Some(entry) = self.keys.get_mut(lock) {
                    entry.expires = None;
                }
            }
            (Fault::NoIntent, Shape::Shared, Action::Acquire { .. } | Action::Peek { .. }) => {
                if matches!(self.found(now, lock), Found::Shared(_)) {
                    self.delete(&request.keys.want);
                }
            }
            (Fault::DropsForeign, Shape::Shared, _) => {
                if let Some((owners, Some(expires))) = self.owners(lock) {
                    let left = shared::score(*expires / shared::MILLISECOND) - shared::score(now / shared::MILLISECOND);
                    let last = owners.ends().map(|(end, _)| end).next_back();
                    if let Some(end) = last {
                        owners.remove_up_to(end - left);
                    }
                }
            }
            (Fault::EndsByTime, Shape::Shared, _) => {
                if let Found::Shared(period) = self.found(now, lock)
                    && let Some(entry) = self.keys.get_mut(lock)
                {
                    entry.expires = Some(period.end.unsigned_abs() * shared::MILLISECOND);
                }
            }
            _ => {}
        }
    }

    /// Changes what the request has left, and returns what is answered in place of `reply`.
    fn spoil(&mut self, fault: Fault, shape: Shape, before: &Self, now: u64, request: &Request, reply: Reply) -> Reply {
        let Keys { lock, fence: fence_key, want, .. } = &*request.keys;
        let (is_granted, is_carried) =
            (matches!(reply, Reply::Granted(_)), matches!(reply, Reply::Extended | Reply::Already | Reply::Ahead(_)));
        match (fault, shape, &request.action) {
            (Fault::FenceForgotten, Shape::One, _) | (Fault::ReaderForgotten, Shape::Shared, _) if is_granted => {
                self.copy(fence_key, before.entry(fence_key).cloned());
            }
            (Fault::BlindConfirm, Shape::One, Action::Confirm { fence, fence_ttl, .. }) => {
                if self.last_fence(fence_key).is_ok_and(|last| last < *fence) {
                    self.set(now, fence_key, fence.to_string().into_bytes(), *fence_ttl);
                }
                return Reply::Confirmed;
            }
            (Fault::NotRaised, _, Action::Extend { floor: Some(_), .. }) if reply == Reply::Extended => {
                return Reply::Raised;
            }
            (Fault::RekeyKeepsToken, Shape::One | Shape::Several, Action::Rekey { .. }) if is_carried => {
                request.keys.each().for_each(|keys| self.keep_value(before, keys));
            }
            (Fault::LeaveForgotten, _, Action::Leave { .. }) if matches!(reply, Reply::Deleted { .. }) => {
                self.keep_value(before, &request.keys);
            }
            (Fault::LeaveLengthens, _, Action::Leave { .. }) if !matches!(reply, Reply::Deleted { .. }) => {
                self.copy(lock, before.entry(lock).cloned());
            }
            (Fault::RestoreBlindly | Fault::RestoreFirst | Fault::FloorOfFirst, ..)
                if matches!(reply, Reply::Refused | Reply::Held { .. }) =>
            {
                request.keys.each().for_each(|keys| self.copy(&keys.fence, before.entry(&keys.fence).cloned()));
            }
            (Fault::RestoreWithoutFence, Shape::Shared, Action::Restore { level, .. }) => {
                if before.last_fence(fence_key).is_ok_and(|last| last > *level) {
                    self.copy(fence_key, before.entry(fence_key).cloned());
                }
            }
            (Fault::ExtendAny, Shape::Several, Action::Extend { .. }) => {
                request
                    .keys
                    .each()
                    .filter(|keys| before.lock_entry(keys).is_none())
                    .for_each(|keys| self.delete(&keys.lock));
            }
            (Fault::ReleaseFirst, Shape::Several, Action::Release { .. } | Action::Leave { .. }) => {
                for keys in request.keys.each().filter(|keys| before.is_ours(keys, request)).skip(1) {
                    self.copy(&keys.lock, before.lock_entry(keys).cloned());
                }
            }
            (Fault::TakesFree, Shape::Several, Action::Acquire { .. }) => {
                for keys in request.keys.each().filter(|keys| before.lock_entry(keys).is_some()) {
                    self.copy(&keys.lock, before.lock_entry(keys).cloned());
                    self.copy(&keys.fence, before.entry(&keys.fence).cloned());
                }
            }
            (Fault::NoIntent, Shape::Shared, Action::Acquire { .. } | Action::Peek { .. }) => {
                if matches!(before.found(now, lock), Found::Shared(_)) {
                    self.copy(want, before.entry(want).cloned());
                }
            }
            (Fault::EndsByTime, Shape::Shared, _) if !reply.changes() => self.copy(lock, before.entry(lock).cloned()),
            (Fault::ReleaseForAll, Shape::Shared, _) if matches!(reply, Reply::Deleted { .. }) => self.delete(lock),
            _ => return self.spoil_sharing(fault, shape, before, now, request, reply),
        }
        reply
    }

    /// The same of who has joined those who share a lock, or stays among them.
    fn spoil_sharing(
        &mut self,
        fault: Fault,
        shape: Shape,
        before: &Self,
        now: u64,
        request: &Request,
        reply: Reply,
    ) -> Reply {
        let Keys { lock, fence: fence_key, .. } = &*request.keys;
        let has_joined = matches!(
            reply,
            Reply::Granted(_) | Reply::Extended | Reply::Already | Reply::Raised | Reply::Restored | Reply::Ahead(_)
        );
        let Found::Shared(period) = before.found(now, lock) else { return reply };
        if shape != Shape::Shared || !has_joined {
            return reply;
        }
        match (fault, &request.action) {
            (Fault::JoinsWithCurrent, Action::Acquire { fence_ttl, .. }) => {
                let Ok(last) = before.last_fence(fence_key) else { return reply };
                self.set(now, fence_key, last.to_string().into_bytes(), *fence_ttl);
                return Reply::Granted(last);
            }
            (
                Fault::EndOfLast,
                Action::Acquire { ttl, .. }
                | Action::Extend { ttl, .. }
                | Action::Restore { ttl, .. }
                | Action::Rekey { ttl, .. },
            ) if !matches!(reply, Reply::Ahead(_)) || matches!(request.action, Action::Rekey { .. }) => {
                if let Some((_, expires)) = self.owners(lock) {
                    *expires = Some(shared::expires_at(now, period, period.now + shared::millis(*ttl)));
                }
            }
            (Fault::OneEndForAll, _) => {
                if let Some((owners, _)) = self.owners(lock) {
                    let all: Vec<_> = owners.ends().map(|(end, member)| (end, member.to_vec())).collect();
                    let last = all.iter().map(|(end, _)| *end).max().unwrap_or(period.end);
                    for (_, member) in &all {
                        owners.put(last, member);
                    }
                }
            }
            _ => {}
        }
        reply
    }

    fn lock_entry(&self, keys: &Keys) -> Option<&Entry> {
        self.keys.get(&*keys.lock)
    }

    fn lock_text(&self, keys: &Keys) -> Option<&[u8]> {
        match &self.lock_entry(keys)?.value {
            Content::Text(text) => Some(text),
            Content::Sorted(_) | Content::Other => None,
        }
    }

    fn is_ours(&self, keys: &Keys, request: &Request) -> bool {
        self.lock_text(keys).is_some_and(|text| is_of(text, request.token.as_bytes()))
    }

    /// Gives a lock key that is still there the value of before.
    fn keep_value(&mut self, before: &Self, keys: &Keys) {
        if let (Some(entry), Some(former)) = (self.keys.get_mut(&*keys.lock), before.lock_entry(keys)) {
            entry.value = former.value.clone();
        }
    }

    /// Puts any value under a key, as another client of the server could.
    pub(crate) fn put(&mut self, key: &[u8], value: Content, expires: Option<u64>) {
        self.keys.insert(key.to_vec(), Entry { value, expires });
    }

    /// Returns what is under a key; servers copy keys.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// Puts what another server has under a key, or has not.
    pub(crate) fn copy(&mut self, key: &[u8], entry: Option<Entry>) {
        match entry {
            Some(entry) => drop(self.keys.insert(key.to_vec(), entry)),
            None => self.delete(key),
        }
    }

    /// Changes every expiry as MIGRATE does to a server whose clock differs by so many microseconds.
    pub(crate) fn rebase(&mut self, by: i64) {
        let expiries = self.keys.values_mut().filter_map(|entry| entry.expires.as_mut());
        expiries.for_each(|expires| *expires = expires.saturating_add_signed(by));
    }

    /// Returns every key that has not expired, with its content.
    pub(crate) fn contents(&self, now: u64) -> impl Iterator<Item = (&[u8], &Content)> {
        let alive = move |entry: &Entry| entry.expires.is_none_or(|expires| expires > now);
        self.keys.iter().filter(move |(_, entry)| alive(entry)).map(|(key, entry)| (key.as_slice(), &entry.value))
    }
}
