//! What the scripts of a shared lock do, on a map.
//!
//! # States
//!
//! A lock key is *free*; or *shared*, a sorted set in our form; or *another's*: a string, which is somebody's lock, or
//! anything else. The form: the highest member is `redlock:shared:<fence>` with the score `inf`. That is the fence with
//! which this sharing, a *period*, began. All other members are owners, `token[:label]`, with the end of their time as
//! score, in ms. The key expires when the last of them ends. A set in another form, or one that does not expire, is
//! somebody's data: nothing is written there.
//!
//! An owner's end counts on the key's own clock: the largest end minus what the key has left. Where the key moves to a
//! server with another clock, its time left moves along, and the scores stay as they are. An owner whose end has come is
//! *past*: it is like one that is not there, and the next script that changes the key drops it.
//!
//! # What may interrupt
//!
//! Nothing: a script runs alone. A server may refuse it before its first write, and in the middle if the user lacks a
//! right. All that is left then is a fence that nobody has, or that owners who are past were dropped. The key never stays
//! without an end, or with a clock that is wrong.

use std::time::Duration;

use super::sorted_set::{Score, SortedSet};
use super::{Content, Entry, FENCE_MAX, Store, ahead, fence_above, parsed};
use crate::protocol::request::{self, Action, FENCES, KeyState, Keys, Reply, Request, SHARED, Wants};
use crate::protocol::token::Token;
use crate::protocol::value::{leading_digits, number};
use crate::transport::failure::Failure;

/// The score of a period's member.
const INFINITE: Score = Score::MAX;

/// The most owners whose labels are told.
const LABELS_MOST: usize = 16;

/// In microseconds.
pub(super) const MILLISECOND: u64 = 1_000;

/// What is under a lock key, for those who would share it.
pub(super) enum Found {
    Free,
    Shared(Period),
    Anothers,
}

/// A period, at one moment. All in ms.
#[derive(Clone, Copy)]
pub(super) struct Period {
    /// The fence with which it began.
    fence: u64,
    /// The time on the key's own clock.
    pub(super) now: Score,
    /// When the last owner's time ends.
    pub(super) end: Score,
}

impl Store {
    pub(super) fn execute_on_shared(&mut self, now: u64, request: &Request) -> Result<Reply, Failure> {
        match &request.action {
            Action::Acquire { ttl, proposal, slack, fence_ttl, wants, .. } => {
                match self.denied(now, &request.keys, *wants) {
                    Some(denied) => Ok(denied),
                    None => self.share(now, request, (*proposal, *slack), (*ttl, *fence_ttl)),
                }
            }
            Action::Peek { wants } => Ok(self.denied(now, &request.keys, Some(*wants)).unwrap_or(Reply::FREE)),
            Action::Confirm { granted, fence, fence_ttl, .. } => {
                self.confirm_shared(now, request, *granted, (*fence, *fence_ttl))
            }
            Action::Extend { ttl, fence, fence_ttl, floor } => {
                Ok(self.extend_shared(now, request, (*fence, *floor), (*ttl, *fence_ttl)))
            }
            Action::Restore { ttl, fence, level, fence_ttl, .. } => {
                self.restore_shared(now, request, (*fence, *level), (*ttl, *fence_ttl))
            }
            Action::Rekey { former, ttl, fence, fence_ttl } => {
                Ok(self.rekey_shared(now, request, former, *fence, (*ttl, *fence_ttl)))
            }
            // Nobody leaves a shared lock for a least time.
            Action::Release { asks, .. } | Action::Leave { asks, .. } => Ok(self.release_shared(now, request, *asks)),
            Action::Look { .. } | Action::SetnxAcquire { .. } | Action::SetnxRelease { .. } => {
                Err(Failure::UnexpectedReply)
            }
            Action::Inspect { asks } => Ok(self.seen(now, &request.keys, *asks)),
            Action::Withdraw => Ok(self.withdraw(now, &request.keys)),
        }
    }

    /// Returns what is under the lock key.
    pub(super) fn found(&self, now: u64, lock: &[u8]) -> Found {
        let Some(entry) = self.keys.get(lock) else { return Found::Free };
        entry.period(now).map_or(Found::Anothers, Found::Shared)
    }

    /// Returns the period of a lock that is shared, or what is told of any other.
    fn period(&self, now: u64, lock: &[u8]) -> Result<Period, Reply> {
        match self.found(now, lock) {
            Found::Free => Err(Reply::Absent),
            Found::Anothers => Err(self.foreign(lock)),
            Found::Shared(period) => Ok(period),
        }
    }

    /// Returns the answer if the lock cannot be shared now.
    fn denied(&mut self, now: u64, keys: &Keys, wants: Option<Wants>) -> Option<Reply> {
        let ttl_left = self.ttl_left(now, &keys.lock);
        match self.found(now, &keys.lock) {
            Found::Free => None,
            Found::Anothers => {
                let value = parsed(&self.keys.get(&*keys.lock)?.value);
                let hold = value.as_ref().map_or(0, |value| value.fence);
                let label = value.and_then(|value| value.label);
                let position = wants.map_or(0, |wants| self.line_up(now, &keys.want, wants, hold));
                Some(Reply::Held { ours: None, ttl_left, label, position, hold })
            }
            Found::Shared(period) => {
                let anyway = wants.is_some_and(|wants| wants.anyway);
                let waiting = self.waiting(&keys.want).filter(|waiting| *waiting > 0 && !anyway)?;
                Some(Reply::HeldOff { ttl_left, waiting, hold: period.fence })
            }
        }
    }

    fn share(
        &mut self,
        now: u64,
        request: &Request,
        (proposal, slack): (u64, Duration),
        (ttl, fence_ttl): (Duration, Duration),
    ) -> Result<Reply, Failure> {
        let Keys { lock, fence: fence_key, want, .. } = &*request.keys;
        let last = self.last_fence(fence_key)?;
        if last >= FENCE_MAX {
            return Err(Failure::of_code("FENCE"));
        }
        let found = self.found(now, lock);
        let fence = fence_above(now, proposal, slack, last);
        self.set(now, fence_key, fence.to_string().into_bytes(), fence_ttl);
        let member = request.keys.member(&request.token);
        if let Found::Shared(period) = found {
            self.join(now, lock, period, &member, ttl);
        } else {
            self.begin(now, lock, fence, &member, ttl);
            self.keys.remove(&**want);
        }
        Ok(Reply::Granted(fence))
    }

    /// Begins a period with one owner.
    fn begin(&mut self, now: u64, lock: &[u8], fence: u64, member: &[u8], ttl: Duration) {
        let (at, ttl) = (now / MILLISECOND, millis(ttl));
        let period = [SHARED, fence.to_string().as_bytes()].concat();
        let owners = SortedSet::from_iter([(INFINITE, period), (score(at) + ttl, member.to_vec())]);
        let expires = Some((at + ttl.unsigned_abs()) * MILLISECOND);
        self.keys.insert(lock.to_vec(), Entry { value: Content::Sorted(owners), expires });
    }

    /// Adds an owner to a period, or lets its time end later.
    fn join(&mut self, now: u64, lock: &[u8], period: Period, member: &[u8], ttl: Duration) {
        let Some((owners, expires)) = self.owners(lock) else { return };
        owners.drop_past(period);
        let end = period.now + millis(ttl);
        let old = owners.score(member);
        owners.put(old.map_or(end, |old| old.max(end)), member);
        *expires = Some(expires_at(now, period, end.max(period.end)));
    }

    /// Returns the owners under a lock key that is shared, and when it expires.
    pub(super) fn owners(&mut self, lock: &[u8]) -> Option<(&mut SortedSet, &mut Option<u64>)> {
        let entry = self.keys.get_mut(lock)?;
        let Content::Sorted(owners) = &mut entry.value else { return None };
        Some((owners, &mut entry.expires))
    }

    /// Returns whether this is one of the owners, and its time has not ended.
    fn owns(&self, lock: &[u8], period: Period, member: &[u8]) -> bool {
        let content = self.keys.get(lock).map(|entry| &entry.value);
        matches!(content, Some(Content::Sorted(owners)) if owners.has(member, period))
    }

    fn confirm_shared(
        &mut self,
        now: u64,
        request: &Request,
        granted: u64,
        (fence, fence_ttl): (u64, Duration),
    ) -> Result<Reply, Failure> {
        let Found::Shared(period) = self.found(now, &request.keys.lock) else { return Ok(Reply::Refused) };
        let is_of_it = period.fence <= granted;
        if !self.owns(&request.keys.lock, period, &request.keys.member(&request.token)) || !is_of_it {
            return Ok(Reply::Refused);
        }
        if self.last_fence(&request.keys.fence)? < fence {
            self.set(now, &request.keys.fence, fence.to_string().into_bytes(), fence_ttl);
        }
        Ok(Reply::Confirmed)
    }

    fn extend_shared(
        &mut self,
        now: u64,
        request: &Request,
        (mine, floor): (u64, Option<u64>),
        (ttl, fence_ttl): (Duration, Duration),
    ) -> Reply {
        let lock = &request.keys.lock;
        let period = match self.period(now, lock) {
            Ok(period) => period,
            Err(reply) => return reply,
        };
        let member = request.keys.member(&request.token);
        if !self.owns(lock, period, &member) {
            return Reply::Absent;
        }
        if period.fence > mine {
            return Reply::Ahead(period.fence);
        }
        self.join(now, lock, period, &member, ttl);
        self.lengthen(now, &request.keys.fence, fence_ttl, false);
        self.raise(now, &request.keys, floor, fence_ttl)
    }

    fn restore_shared(
        &mut self,
        now: u64,
        request: &Request,
        (mine, level): (u64, u64),
        (ttl, fence_ttl): (Duration, Duration),
    ) -> Result<Reply, Failure> {
        let Keys { lock, fence, .. } = &*request.keys;
        let member = request.keys.member(&request.token);
        let found = self.found(now, lock);
        match found {
            Found::Anothers => return Ok(Reply::Refused),
            Found::Shared(period) if period.fence > level => return Ok(ahead(period.fence)),
            Found::Shared(_) | Found::Free => {}
        }
        let last = self.last_fence(fence)?;
        match found {
            Found::Shared(period) => self.join(now, lock, period, &member, ttl),
            _ if last > level => return Ok(ahead(last)),
            _ => self.begin(now, lock, mine, &member, ttl),
        }
        if last <= level {
            self.set(now, fence, level.to_string().into_bytes(), fence_ttl);
        } else {
            self.lengthen(now, fence, fence_ttl, false);
        }
        Ok(Reply::Restored)
    }

    fn rekey_shared(
        &mut self,
        now: u64,
        request: &Request,
        former: &Token,
        level: u64,
        (ttl, fence_ttl): (Duration, Duration),
    ) -> Reply {
        let lock = &request.keys.lock;
        let period = match self.period(now, lock) {
            Ok(period) => period,
            Err(reply) => return reply,
        };
        let members = [request.keys.member(&request.token), request.keys.member(former)];
        let Some((owners, _)) = self.owners(lock) else { return Reply::Absent };
        let ends = members.iter().filter(|member| owners.has(member, period)).filter_map(|member| owners.score(member));
        let Some(end) = ends.max() else { return Reply::Absent };
        let [member, former] = members;
        owners.remove(&former);
        owners.put(end, &member);
        self.join(now, lock, period, &member, ttl);
        self.lengthen(now, &request.keys.fence, fence_ttl, false);
        if period.fence > level { Reply::Ahead(period.fence) } else { Reply::Extended }
    }

    fn release_shared(&mut self, now: u64, request: &Request, asks: bool) -> Reply {
        let Keys { lock, want, .. } = &*request.keys;
        let period = match self.found(now, lock) {
            Found::Free => return Reply::Absent,
            Found::Anothers => return Reply::Foreign(None),
            Found::Shared(period) => period,
        };
        let member = request.keys.member(&request.token);
        let owners = self.owners(lock).filter(|(owners, _)| owners.has(&member, period));
        let Some((owners, expires)) = owners else { return Reply::Absent };
        owners.drop_past(period);
        owners.remove(&member);
        let last = owners.ends().map(|(end, _)| end).next_back();
        if let Some(last) = last {
            *expires = Some(expires_at(now, period, last));
            let waiting = if asks { self.waiting(want).unwrap_or(0) } else { 0 };
            return Reply::Deleted { waiting };
        }
        self.keys.remove(&**lock);
        Reply::Deleted { waiting: if asks { self.end_line(want) } else { 0 } }
    }

    /// Counts one waiter less, if the lock is shared.
    pub(super) fn withdraw(&mut self, now: u64, keys: &Keys) -> Reply {
        let Found::Shared(_) = self.found(now, &keys.lock) else { return Reply::Refused };
        let Some(waiting) = self.waiting(&keys.want).and_then(|waiting| waiting.checked_sub(1)) else {
            return Reply::Refused;
        };
        match self.keys.get_mut(&*keys.want) {
            Some(entry) if waiting > 0 => entry.value = Content::Text(waiting.to_string().into()),
            _ => drop(self.keys.remove(&*keys.want)),
        }
        Reply::Withdrawn { waiting }
    }
}

impl Entry {
    /// Returns the period, if a shared lock is here.
    fn period(&self, now: u64) -> Option<Period> {
        let Content::Sorted(owners) = &self.value else { return None };
        let left = score(self.expires? / MILLISECOND) - score(now / MILLISECOND);
        let mut highest = owners.members().rev();
        let (INFINITE, period) = highest.next()? else { return None };
        let fence = period.strip_prefix(SHARED).filter(|digits| leading_digits(digits).len() == digits.len());
        let fence = number(fence?).filter(|fence| FENCES.contains(fence))?;
        let (end, _) = highest.next().filter(|(end, _)| is_finite(*end))?;
        Some(Period { fence, now: end - left, end })
    }

    /// Returns what an inspection shows, if a shared lock is here.
    pub(super) fn shared(&self, now: u64, ttl_left: Option<Duration>) -> Option<KeyState> {
        let (period, Content::Sorted(owners)) = (self.period(now)?, &self.value) else { return None };
        let living = || owners.ends().rev().filter(|(end, _)| *end > period.now);
        let label = |member: &[u8]| member.get(Token::LEN + 1..).and_then(request::label);
        let labels = living().take(LABELS_MOST).filter_map(|(_, member)| label(member)).collect();
        let readers = u32::try_from(living().count()).unwrap_or(u32::MAX);
        Some(KeyState::Shared { readers, labels, fence: period.fence, ttl_left })
    }
}

impl SortedSet {
    /// Returns the owners of a shared lock with their ends, the last one last.
    pub(super) fn ends(&self) -> impl DoubleEndedIterator<Item = (Score, &[u8])> {
        self.members().filter(|(end, _)| is_finite(*end))
    }

    /// Returns whether this is one of the owners, and its time has not ended.
    fn has(&self, member: &[u8], period: Period) -> bool {
        self.score(member).is_some_and(|end| end > period.now)
    }

    fn drop_past(&mut self, period: Period) {
        self.remove_up_to(period.now);
    }
}

fn is_finite(score: Score) -> bool {
    score != Score::MIN && score != INFINITE
}

/// Returns when a key expires, in microseconds on the node's clock, that lives until `end` on its own one.
pub(super) fn expires_at(now: u64, period: Period, end: Score) -> u64 {
    (now / MILLISECOND).saturating_add_signed(end - period.now) * MILLISECOND
}

/// Returns a time on the node's clock as a score.
pub(super) fn score(millis: u64) -> Score {
    Score::try_from(millis).unwrap_or(INFINITE - 1)
}

pub(super) fn millis(duration: Duration) -> Score {
    Score::try_from(duration.as_millis()).unwrap_or(INFINITE - 1)
}
