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
use super::{Content, Entry, Step, Store, Ttls, ahead};
use crate::protocol::request::{self, Action, FENCES, KeyState, Keys, Reply, SHARED, Wants};
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
    /// Returns what is under the lock key.
    pub(super) fn found(&self, now: u64, lock: &[u8]) -> Found {
        let Some(entry) = self.keys.get(lock) else { return Found::Free };
        entry.period(now).map_or(Found::Anothers, Found::Shared)
    }

    /// Returns the owners under a lock key that is shared, and when it expires.
    pub(super) fn owners(&mut self, lock: &[u8]) -> Option<(&mut SortedSet, &mut Option<u64>)> {
        let entry = self.keys.get_mut(lock)?;
        let Content::Sorted(owners) = &mut entry.value else { return None };
        Some((owners, &mut entry.expires))
    }
}

impl Step<'_> {
    pub(super) fn execute_on_shared(&mut self) -> Result<Reply, Failure> {
        match &self.request.action {
            Action::Acquire { ttl, proposal, slack, fence_ttl, wants, .. } => match self.denied(*wants) {
                Some(denied) => Ok(denied),
                None => self.share((*proposal, *slack), (*ttl, *fence_ttl)),
            },
            Action::Peek { wants } => Ok(self.denied(Some(*wants)).unwrap_or(Reply::FREE)),
            Action::Confirm { granted, fence, fence_ttl, .. } => self.confirm_shared(*granted, *fence, *fence_ttl),
            Action::Extend { ttl, fence, fence_ttl, floor } => {
                Ok(self.extend_shared(*fence, *floor, (*ttl, *fence_ttl)).unwrap_or_else(|reply| reply))
            }
            Action::Restore { ttl, fence, level, fence_ttl, .. } => {
                self.restore_shared((*fence, *level), (*ttl, *fence_ttl))
            }
            Action::Rekey { former, ttl, fence, fence_ttl, .. } => {
                Ok(self.rekey_shared(former, *fence, (*ttl, *fence_ttl)).unwrap_or_else(|reply| reply))
            }
            // Nobody leaves a shared lock for a least time.
            Action::Release { asks, .. } | Action::Leave { asks, .. } => Ok(self.release_shared(*asks)),
            Action::Look { .. }
            | Action::Read
            | Action::Evict { .. }
            | Action::SetnxAcquire { .. }
            | Action::SetnxRelease { .. } => Err(Failure::UnexpectedReply),
            Action::Inspect { asks } => Ok(self.seen(*asks, false)),
            Action::Withdraw => Ok(self.withdraw()),
        }
    }

    fn found(&self) -> Found {
        self.store.found(self.now, &self.request.keys.lock)
    }

    /// Returns the period of a lock that is shared, or what is told of any other.
    fn period(&self) -> Result<Period, Reply> {
        match self.found() {
            Found::Free => Err(Reply::Absent),
            Found::Anothers => Err(self.store.foreign(&self.request.keys.lock)),
            Found::Shared(period) => Ok(period),
        }
    }

    fn owners(&mut self) -> Option<(&mut SortedSet, &mut Option<u64>)> {
        self.store.owners(&self.request.keys.lock)
    }

    /// Returns what stands for this owner.
    fn member(&self) -> Vec<u8> {
        self.request.keys.member(&self.request.token)
    }

    /// Returns the answer if the lock cannot be shared now.
    fn denied(&mut self, wants: Option<Wants>) -> Option<Reply> {
        let keys = &self.request.keys;
        match self.found() {
            Found::Free => None,
            Found::Anothers => self.held(keys, wants),
            Found::Shared(period) => {
                let anyway = wants.is_some_and(|wants| wants.anyway);
                let waiting = self.store.waiting(&keys.want).filter(|waiting| *waiting > 0 && !anyway)?;
                let ttl_left = self.store.ttl_left(self.now, &keys.lock);
                Some(Reply::HeldOff { ttl_left, waiting, hold: period.fence })
            }
        }
    }

    fn share(&mut self, (proposal, slack): (u64, Duration), (ttl, fence_ttl): Ttls) -> Result<Reply, Failure> {
        let fence = self.next_fence(proposal, slack)?;
        self.set_number(&self.request.keys.fence, fence, fence_ttl);
        if let Found::Shared(period) = self.found() {
            self.join(period, &self.member(), ttl);
        } else {
            self.begin(fence, ttl);
            self.store.delete(&self.request.keys.want);
        }
        Ok(Reply::Granted(fence))
    }

    /// Begins a period with one owner.
    fn begin(&mut self, fence: u64, ttl: Duration) {
        let (at, ttl) = (self.now / MILLISECOND, millis(ttl));
        let period = [SHARED, fence.to_string().as_bytes()].concat();
        let owners = SortedSet::from_iter([(INFINITE, period), (score(at) + ttl, self.member())]);
        let expires = Some((at + ttl.unsigned_abs()) * MILLISECOND);
        self.store.keys.insert(self.request.keys.lock.to_vec(), Entry { value: Content::Sorted(owners), expires });
    }

    /// Adds an owner to a period, or lets its time end later.
    fn join(&mut self, period: Period, member: &[u8], ttl: Duration) {
        let now = self.now;
        let Some((owners, expires)) = self.owners() else { return };
        owners.drop_past(period);
        let end = period.now + millis(ttl);
        let old = owners.score(member);
        owners.put(old.map_or(end, |old| old.max(end)), member);
        *expires = Some(expires_at(now, period, end.max(period.end)));
    }

    /// Returns whether this is one of the owners, and its time has not ended.
    fn owns(&mut self, period: Period) -> bool {
        let member = self.member();
        self.owners().is_some_and(|(owners, _)| owners.has(&member, period))
    }

    fn confirm_shared(&mut self, granted: u64, fence: u64, fence_ttl: Duration) -> Result<Reply, Failure> {
        let Found::Shared(period) = self.found() else { return Ok(Reply::Refused) };
        if !self.owns(period) || period.fence > granted {
            return Ok(Reply::Refused);
        }
        let key = &self.request.keys.fence;
        if self.store.last_fence(key)? < fence {
            self.set_number(key, fence, fence_ttl);
        }
        Ok(Reply::Confirmed)
    }

    fn extend_shared(&mut self, mine: u64, floor: Option<u64>, (ttl, fence_ttl): Ttls) -> Result<Reply, Reply> {
        let period = self.period()?;
        if !self.owns(period) {
            return Err(Reply::Absent);
        }
        if period.fence > mine {
            return Err(Reply::Ahead(period.fence));
        }
        self.join(period, &self.member(), ttl);
        self.lengthen(&self.request.keys.fence, fence_ttl, false);
        Ok(self.raise(floor, fence_ttl))
    }

    fn restore_shared(&mut self, (mine, level): (u64, u64), (ttl, fence_ttl): Ttls) -> Result<Reply, Failure> {
        let fence = &self.request.keys.fence;
        let found = self.found();
        match found {
            Found::Anothers => return Ok(Reply::Refused),
            Found::Shared(period) if period.fence > level => return Ok(ahead(period.fence)),
            Found::Shared(_) | Found::Free => {}
        }
        let last = self.store.last_fence(fence)?;
        match found {
            Found::Shared(period) => self.join(period, &self.member(), ttl),
            _ if last > level => return Ok(ahead(last)),
            _ => self.begin(mine, ttl),
        }
        if last <= level {
            self.set_number(fence, level, fence_ttl);
        } else {
            self.lengthen(fence, fence_ttl, false);
        }
        Ok(Reply::Restored)
    }

    fn rekey_shared(&mut self, former: &Token, level: u64, (ttl, fence_ttl): Ttls) -> Result<Reply, Reply> {
        let period = self.period()?;
        let [member, former] = [self.member(), self.request.keys.member(former)];
        let (owners, _) = self.owners().ok_or(Reply::Absent)?;
        let living = [&member, &former].into_iter().filter(|member| owners.has(member, period));
        let end = living.filter_map(|member| owners.score(member)).max().ok_or(Reply::Absent)?;
        let reply = if owners.has(&former, period) { Reply::Extended } else { Reply::Already };
        owners.remove(&former);
        owners.put(end, &member);
        self.join(period, &member, ttl);
        self.lengthen(&self.request.keys.fence, fence_ttl, false);
        Ok(if period.fence > level { Reply::Ahead(period.fence) } else { reply })
    }

    fn release_shared(&mut self, asks: bool) -> Reply {
        let (now, member) = (self.now, self.member());
        let Keys { lock, want, .. } = &*self.request.keys;
        let period = match self.found() {
            Found::Free => return Reply::Absent,
            Found::Anothers => return Reply::Foreign(None),
            Found::Shared(period) => period,
        };
        let owners = self.owners().filter(|(owners, _)| owners.has(&member, period));
        let Some((owners, expires)) = owners else { return Reply::Absent };
        owners.drop_past(period);
        owners.remove(&member);
        let last = owners.ends().map(|(end, _)| end).next_back();
        if let Some(last) = last {
            *expires = Some(expires_at(now, period, last));
            let waiting = if asks { self.store.waiting(want).unwrap_or(0) } else { 0 };
            return Reply::Deleted { waiting };
        }
        self.store.delete(lock);
        Reply::Deleted { waiting: if asks { self.store.end_line(want) } else { 0 } }
    }

    /// Counts one waiter less, if the lock is shared.
    pub(super) fn withdraw(&mut self) -> Reply {
        let want = &self.request.keys.want;
        let Found::Shared(_) = self.found() else { return Reply::Refused };
        let Some(waiting) = self.store.waiting(want).and_then(|waiting| waiting.checked_sub(1)) else {
            return Reply::Refused;
        };
        match self.store.keys.get_mut(&**want) {
            Some(entry) if waiting > 0 => entry.value = Content::Text(waiting.to_string().into()),
            _ => self.store.delete(want),
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
    pub(crate) fn ends(&self) -> impl DoubleEndedIterator<Item = (Score, &[u8])> {
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
