//! What the scripts for one name and for several do, on a map: all of it, or nothing. They differ in one thing: for one
//! name, a key that is still there is not restored.

use std::time::Duration;

use super::{Content, Entry, FENCE_MAX, Step, Ttls, ahead, granted, is_of, micros};
use crate::protocol::request::{Keys, Reply, WAITING_MAX, Wants};
use crate::protocol::token::Token;
use crate::transport::failure::Failure;

impl Step<'_> {
    /// Returns the answer about the first lock that is held.
    pub(super) fn first_held(&mut self, wants: Option<Wants>) -> Option<Reply> {
        let is_held = |keys: &Keys| self.store.keys.contains_key(&*keys.lock);
        let first = self.request.keys.each().position(is_held)?;
        let mut held = self.request.keys.each().skip(first);
        let keys = held.next()?;
        let is_text = matches!(self.store.keys.get(&*keys.lock)?.value, Content::Text(_));
        // Nobody joins those who share a lock while somebody is counted there.
        let counts = is_text || !held.any(is_held);
        self.held(keys, wants.filter(|_| counts))
    }

    /// Returns the fence that the node grants: the proposal, near its clock and above the last one of every name.
    pub(super) fn next_fence(&self, proposal: u64, slack: Duration) -> Result<u64, Failure> {
        let mut last = 0;
        for keys in self.request.keys.each() {
            last = last.max(self.store.last_fence(&keys.fence)?);
            if last >= FENCE_MAX {
                return Err(Failure::of_code("FENCE"));
            }
        }
        let slack = micros(slack);
        Ok(proposal.max(self.now.saturating_sub(slack)).min(self.now + slack).max(last + 1))
    }

    pub(super) fn acquire(
        &mut self,
        (proposal, slack): (u64, Duration),
        (ttl, fence_ttl): Ttls,
        label: &str,
    ) -> Result<Reply, Failure> {
        let fence = self.next_fence(proposal, slack)?;
        for keys in self.request.keys.each() {
            self.set(&keys.lock, self.request.token.value(fence, label), ttl);
            self.set_number(&keys.fence, fence, fence_ttl);
        }
        Ok(Reply::Granted(fence))
    }

    pub(super) fn confirm(&mut self, granted: &[u8], fence: u64, fence_ttl: Duration) -> Result<Reply, Failure> {
        let holds = |keys: &Keys| match self.store.keys.get(&*keys.lock).map(|entry| &entry.value) {
            Some(Content::Text(value)) => value == granted,
            _ => false,
        };
        let keys = &self.request.keys;
        if !keys.each().all(holds) {
            return Ok(Reply::Refused);
        }
        let lasts: Vec<u64> = keys.each().map(|keys| self.store.last_fence(&keys.fence)).collect::<Result<_, _>>()?;
        for (keys, _) in keys.each().zip(lasts).filter(|(_, last)| *last < fence) {
            self.set_number(&keys.fence, fence, fence_ttl);
        }
        Ok(Reply::Confirmed)
    }

    pub(super) fn extend(&mut self, mine: u64, floor: Option<u64>, (ttl, fence_ttl): Ttls) -> Reply {
        match self.held_by(&[&self.request.token]) {
            Err(reply) => return reply,
            Ok(most) if most > mine => return Reply::Ahead(most),
            Ok(_) => {}
        }
        self.lengthen_all((ttl, fence_ttl));
        self.raise(floor, fence_ttl)
    }

    pub(super) fn release(&mut self, asks: bool) -> Reply {
        let (mut deleted, mut foreign, mut waiting) = (0, false, 0);
        for keys in self.request.keys.each() {
            match self.store.keys.get(&*keys.lock).map(|entry| &entry.value) {
                None => {}
                Some(Content::Text(value)) if is_of(value, self.request.token.as_bytes()) => {
                    self.store.delete(&keys.lock);
                    deleted += 1;
                    waiting += if asks { self.store.end_line(&keys.want) } else { 0 };
                }
                Some(_) => foreign = true,
            }
        }
        if deleted == self.request.keys.each().len() {
            Reply::Deleted { waiting: waiting.min(WAITING_MAX) }
        } else if foreign {
            Reply::Foreign(None)
        } else {
            Reply::Absent
        }
    }

    pub(super) fn restore(
        &mut self,
        (fence, level): (u64, u64),
        (ttl, fence_ttl): Ttls,
        label: &str,
    ) -> Result<Reply, Failure> {
        let (mut absent, mut most) = (Vec::new(), 0);
        for keys in self.request.keys.each() {
            let Some(entry) = self.store.keys.get(&*keys.lock) else {
                most = most.max(self.store.last_fence(&keys.fence)?);
                absent.push(keys);
                continue;
            };
            let Content::Text(value) = &entry.value else { return Ok(Reply::Refused) };
            let granted = granted(value, &self.request.token).filter(|_| self.request.keys.are_several());
            let Some(granted) = granted else { return Ok(Reply::Refused) };
            most = most.max(granted);
        }
        if most > level {
            return Ok(ahead(most));
        }
        for keys in absent {
            self.set_number(&keys.fence, level, fence_ttl);
            self.set(&keys.lock, self.request.token.value(fence, label), ttl);
        }
        // Those that were just written live for as long already.
        self.lengthen_all((ttl, fence_ttl));
        Ok(Reply::Restored)
    }

    /// Gives the keys of the `former` token the request's, and lets them live longer: of all names, or of none.
    pub(super) fn rekey(&mut self, former: &Token, level: u64, ttls: Ttls) -> Reply {
        let most = match self.held_by(&[former, &self.request.token]) {
            Ok(most) => most,
            Err(reply) => return reply,
        };
        self.lengthen_all(ttls);
        let mut reply = Reply::Already;
        for keys in self.request.keys.each() {
            if let Some(Entry { value: Content::Text(value), .. }) = self.store.keys.get_mut(&*keys.lock) {
                if value.starts_with(former.as_bytes()) {
                    reply = Reply::Extended;
                }
                value[..Token::LEN].copy_from_slice(self.request.token.as_bytes());
            }
        }
        if most > level { Reply::Ahead(most) } else { reply }
    }

    /// Returns the largest fence that one of these tokens was granted for a lock, or what is told if a lock is not theirs.
    fn held_by(&self, tokens: &[&Token]) -> Result<u64, Reply> {
        let (mut most, mut is_absent) = (0, false);
        for keys in self.request.keys.each() {
            match self.store.keys.get(&*keys.lock).map(|entry| &entry.value) {
                None => is_absent = true,
                Some(Content::Text(value)) => {
                    let granted = tokens.iter().find_map(|token| granted(value, token));
                    most = most.max(granted.ok_or_else(|| self.store.foreign(&keys.lock))?);
                }
                Some(_) => return Err(Reply::Foreign(None)),
            }
        }
        if is_absent { Err(Reply::Absent) } else { Ok(most) }
    }

    fn lengthen_all(&mut self, (ttl, fence_ttl): Ttls) {
        for keys in self.request.keys.each() {
            self.lengthen(&keys.lock, ttl, true);
            self.lengthen(&keys.fence, fence_ttl, false);
        }
    }
}
