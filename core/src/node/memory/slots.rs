//! What the scripts for slots and for a least time do, on a map.

use std::sync::Arc;
use std::time::Duration;

use super::{Content, Step, is_of, micros};
use crate::protocol::request::{Keys, Reply, Wants};

/// How long a bell remembers its last ring.
const BELL_KEEP: Duration = Duration::from_secs(60);

/// The largest ring: what Lua can tell from its neighbours.
const RING_MAX: u64 = 9_007_199_254_740_991;

/// How many digits of the token of who rings are the ring.
const RING_DIGITS: usize = 13;

impl Step<'_> {
    pub(super) fn look(&mut self, slots: &[Arc<Keys>], wants: Option<Wants>, anyway: bool) -> Reply {
        let (mut free, mut ttl_left) = (Vec::new(), None);
        for (place, keys) in (0..).zip(slots) {
            if self.store.keys.contains_key(&*keys.lock) {
                ttl_left = ttl_left.into_iter().chain(self.store.ttl_left(self.now, &keys.lock)).min();
            } else {
                free.push(place);
            }
        }
        if let (Some(_), Some(bell)) = (wants, self.request.keys.bell())
            && !self.store.keys.contains_key(bell)
        {
            self.set_number(bell, 0, BELL_KEEP);
        }
        let wants = wants.filter(|_| anyway || free.is_empty());
        let bell = self.request.keys.bell().and_then(|bell| self.store.keys.get(bell));
        let hold = bell.and_then(|entry| entry.value.digits()).unwrap_or(0).min(RING_MAX);
        let position = wants.map_or(0, |wants| self.line_up(&self.request.keys.want, wants, hold));
        Reply::Slots { free, ttl_left, position, hold }
    }

    pub(super) fn leave(&mut self, asks: bool, rest: Duration) -> Reply {
        let keys = &self.request.keys;
        let Some(entry) = self.store.keys.get_mut(&*keys.lock) else { return Reply::Absent };
        let Content::Text(value) = &mut entry.value else { return Reply::Foreign(None) };
        let token = self.request.token.as_bytes();
        let (first, second) = token.split_at(token.len() / 2);
        let left = [second, first].concat();
        let is_held = is_of(value, token);
        if !is_held && !is_of(value, &left) {
            return Reply::Foreign(None);
        }
        let waiting = if rest.is_zero() {
            self.store.delete(&keys.lock);
            if asks { self.store.end_line(&keys.want) } else { 0 }
        } else {
            let until = self.now + micros(rest);
            if entry.expires.is_none_or(|expires| expires > until) {
                entry.expires = Some(until);
            }
            if is_held {
                value[..left.len()].copy_from_slice(&left);
            }
            if asks && keys.bell().is_some() { self.store.waiting(&keys.want).unwrap_or(0) } else { 0 }
        };
        if let Some(bell) = keys.bell().filter(|_| asks && waiting > 0) {
            self.ring(bell, token);
        }
        Reply::Deleted { waiting: if rest.is_zero() { waiting } else { 0 } }
    }

    fn ring(&mut self, bell: &[u8], token: &[u8]) {
        // What is not a number is not a bell.
        if self.store.keys.get(bell).is_some_and(|entry| entry.value.digits().is_none()) {
            return;
        }
        let ring = token[..RING_DIGITS].iter().fold(0, |ring, digit| {
            ring << 4 | u64::from(char::from(*digit).to_digit(16).expect("a token is hexadecimal"))
        });
        self.set_number(bell, ring, BELL_KEEP);
    }
}
