//! What the scripts for one name and for several do, on a map: all of it, or nothing. Where the two differ, there are two
//! of them.

use std::time::Duration;

use super::{Content, FENCE_MAX, Store, WAITING_MAX, ahead, fence_above, granted, is_of};
use crate::protocol::request::{Keys, Reply, Request, Wants};
use crate::transport::failure::Failure;

impl Store {
    /// Returns the answer about the first lock that is held.
    pub(super) fn first_held(&mut self, now: u64, request: &Request, wants: Option<Wants>) -> Option<Reply> {
        let is_held = |keys: &Keys| self.keys.contains_key(&*keys.lock);
        let first = request.keys.each().position(is_held)?;
        let mut held = request.keys.each().skip(first);
        let keys = held.next()?;
        let is_text = matches!(self.keys.get(&*keys.lock)?.value, Content::Text(_));
        // Nobody joins those who share a lock while somebody is counted there.
        let counts = is_text || !held.any(is_held);
        self.held(now, &request.token, keys, wants.filter(|_| counts))
    }

    pub(super) fn acquire(
        &mut self,
        now: u64,
        request: &Request,
        (proposal, slack): (u64, Duration),
        (ttl, fence_ttl): (Duration, Duration),
        label: &str,
    ) -> Result<Reply, Failure> {
        let mut last = 0;
        for keys in request.keys.each() {
            last = last.max(self.last_fence(&keys.fence)?);
            if last >= FENCE_MAX {
                return Err(Failure::of_code("FENCE"));
            }
        }
        let fence = fence_above(now, proposal, slack, last);
        for keys in request.keys.each() {
            self.set(now, &keys.lock, request.token.value(fence, label), ttl);
            self.set(now, &keys.fence, fence.to_string().into_bytes(), fence_ttl);
        }
        Ok(Reply::Granted(fence))
    }

    pub(super) fn confirm(
        &mut self,
        now: u64,
        request: &Request,
        granted: &[u8],
        (fence, fence_ttl): (u64, Duration),
    ) -> Result<Reply, Failure> {
        let holds = |keys: &Keys| match self.keys.get(&*keys.lock).map(|entry| &entry.value) {
            Some(Content::Text(value)) => value == granted,
            _ => false,
        };
        if !request.keys.each().all(holds) {
            return Ok(Reply::Refused);
        }
        let lasts: Vec<u64> = request.keys.each().map(|keys| self.last_fence(&keys.fence)).collect::<Result<_, _>>()?;
        for (keys, last) in request.keys.each().zip(lasts) {
            if last < fence {
                self.set(now, &keys.fence, fence.to_string().into_bytes(), fence_ttl);
            }
        }
        Ok(Reply::Confirmed)
    }

    pub(super) fn extend(
        &mut self,
        now: u64,
        request: &Request,
        (mine, floor): (u64, Option<u64>),
        (ttl, fence_ttl): (Duration, Duration),
    ) -> Reply {
        let most = match self.held_by(request, &[&request.token]) {
            Ok(held) => held.iter().map(|(_, granted)| *granted).max().unwrap_or(0),
            Err(reply) => return reply,
        };
        if most > mine {
            return Reply::Ahead(most);
        }
        for keys in request.keys.each() {
            self.lengthen(now, &keys.lock, ttl, true);
            self.lengthen(now, &keys.fence, fence_ttl, false);
        }
        self.raise(now, &request.keys, floor, fence_ttl)
    }

    pub(super) fn release(&mut self, request: &Request, asks: bool) -> Reply {
        let (mut deleted, mut foreign, mut waiting) = (0, false, 0);
        for keys in request.keys.each() {
            match self.keys.get(&*keys.lock).map(|entry| &entry.value) {
                None => {}
                Some(Content::Text(value)) if is_of(value, request.token.as_bytes()) => {
                    self.keys.remove(&*keys.lock);
                    deleted += 1;
                    waiting += if asks { u64::from(self.end_line(&keys.want)) } else { 0 };
                }
                Some(_) => foreign = true,
            }
        }
        if deleted == request.keys.each().len() {
            Reply::Deleted { waiting: u32::try_from(waiting.min(WAITING_MAX)).unwrap_or(0) }
        } else if foreign {
            Reply::Foreign(None)
        } else {
            Reply::Absent
        }
    }

    pub(super) fn restore_all(
        &mut self,
        now: u64,
        request: &Request,
        (fence, level): (u64, u64),
        (ttl, fence_ttl): (Duration, Duration),
        label: &str,
    ) -> Result<Reply, Failure> {
        let (mut absent, mut most) = (Vec::new(), 0);
        for keys in request.keys.each() {
            let Some(entry) = self.keys.get(&*keys.lock) else {
                most = most.max(self.last_fence(&keys.fence)?);
                absent.push(keys);
                continue;
            };
            let Content::Text(value) = &entry.value else { return Ok(Reply::Refused) };
            let Some(granted) = granted(value, &request.token) else { return Ok(Reply::Refused) };
            most = most.max(granted);
        }
        if most > level {
            return Ok(ahead(most));
        }
        for keys in absent {
            self.set(now, &keys.fence, level.to_string().into_bytes(), fence_ttl);
            self.set(now, &keys.lock, request.token.value(fence, label), ttl);
        }
        // Those that were just written live for as long already.
        for keys in request.keys.each() {
            self.lengthen(now, &keys.lock, ttl, true);
            self.lengthen(now, &keys.fence, fence_ttl, false);
        }
        Ok(Reply::Restored)
    }
}
