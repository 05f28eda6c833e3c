//! PURE: which server of a cluster has a key, by the cluster's own answers.
//!
//! A key belongs to one of [`SLOTS`] slots, and each slot to one primary. A cluster tells which one in its answer to
//! CLUSTER SLOTS, and in the error MOVED to a request for a slot that is elsewhere. While a slot moves, the error ASK
//! names the server that may have the key already. See "Redis cluster specification" in the Redis documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::protocol::name::SLOTS;
use crate::protocol::place::Place;
use crate::sys::clock::Moment;

/// How long a map does not undo a correction: it does not tell its epoch, and its server may not know of the move yet.
const CORRECTION: Duration = Duration::from_secs(2);

/// Where a request is to be sent instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    /// Its host is empty where that is the host of the server that answered.
    pub(crate) place: Place,
}

impl Redirect {
    /// Reads the text behind MOVED or ASK: `slot host:port`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (slot, place) = text.split_once(' ')?;
        let (host, port) = place.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let place = Place { host: host.to_owned(), port: port.parse().ok().filter(|port| *port != 0)? };
        Some(Self { slot: slot.parse().ok().filter(|slot| *slot < SLOTS)?, place })
    }
}

/// Some slots and their primary, as a cluster tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) primary: Place,
}

/// What a server says of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) is_primary: bool,
    /// Since its start, in whole seconds.
    pub(crate) uptime: Duration,
    /// The name of the history of its data; empty if it does not tell.
    pub(crate) replid: String,
    /// The name of the history that its data continue.
    pub(crate) former_replid: String,
}

impl Standing {
    /// Whether a server that was known as a primary at `known` still is that primary `now`, and the one that is `promoted`
    /// does not continue its data. One that was restarted since may have been replaced, and not have heard of it.
    pub(crate) fn is_kept(&self, promoted: &Self, known: Moment, now: Moment) -> bool {
        self.is_primary
            && !self.replid.is_empty()
            && promoted.former_replid != self.replid
            && now.before(self.uptime) <= known
    }
}

/// The primary of each slot.
#[derive(Debug, Default)]
pub(crate) struct SlotMap {
    /// In the order in which they were first told.
    places: Vec<Place>,
    /// For each slot, the number of its primary in `places`; empty before anything was told.
    primaries: Vec<Option<u16>>,
    /// The slots that a server has reported elsewhere, and when.
    corrections: BTreeMap<u16, Moment>,
}

impl SlotMap {
    /// Returns the primary of `slot`; `None` if the cluster told none.
    pub(crate) fn primary(&self, slot: u16) -> Option<&Place> {
        self.number_of(slot).map(|number| &self.places[usize::from(number)])
    }

    /// Returns all primaries of slots, each once.
    pub(crate) fn primaries(&self) -> Vec<&Place> {
        let mut numbers: Vec<_> = self.primaries.iter().flatten().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| &self.places[usize::from(*number)]).collect()
    }

    /// Returns the servers that have lost slots to `place` by `told`.
    pub(crate) fn formers(&self, told: &[Told], place: &Place) -> Vec<Place> {
        let slots = told.iter().filter(|told| told.primary == *place).flat_map(|told| told.slots.clone());
        let mut formers: Vec<_> =
            slots.filter_map(|slot| self.primary(slot)).filter(|former| *former != place).collect();
        formers.sort_unstable();
        formers.dedup();
        formers.into_iter().cloned().collect()
    }

    /// Records that `slot` is at `place`, as a server has reported. Returns whether that is news.
    pub(crate) fn correct(&mut self, slot: u16, place: &Place, now: Moment) -> bool {
        self.corrections.insert(slot, now);
        if self.primary(slot) == Some(place) {
            return false;
        }
        self.put(slot..=slot, place);
        true
    }

    /// Records what a cluster has told of all slots. Slots that were corrected a moment ago stay. Returns whether there
    /// is news.
    pub(crate) fn replace(&mut self, told: &[Told], now: Moment) -> bool {
        self.corrections.retain(|_, at| at.after(CORRECTION) > now);
        let mut next = Self::default();
        for Told { slots, primary } in told {
            next.put(slots.clone(), primary);
        }
        for slot in self.corrections.keys() {
            if let Some(place) = self.primary(*slot) {
                next.put(*slot..=*slot, place);
            }
        }
        next.corrections = std::mem::take(&mut self.corrections);
        let starts: BTreeSet<u16> = next.starts().chain(self.starts()).collect();
        let is_news = starts.into_iter().any(|slot| next.primary(slot) != self.primary(slot));
        *self = next;
        is_news
    }

    /// Returns the first slots of all ranges of slots with one primary, or none.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(|slot| *slot == 0 || self.number_of(*slot) != self.number_of(*slot - 1))
    }

    fn number_of(&self, slot: u16) -> Option<u16> {
        self.primaries.get(usize::from(slot)).copied().flatten()
    }

    fn put(&mut self, slots: RangeInclusive<u16>, place: &Place) {
        let slots = *slots.start()..=(*slots.end()).min(SLOTS - 1);
        if slots.is_empty() {
            return;
        }
        let number = self.number(place);
        self.primaries.resize(usize::from(SLOTS), None);
        self.primaries[usize::from(*slots.start())..=usize::from(*slots.end())].fill(Some(number));
    }

    fn number(&mut self, place: &Place) -> u16 {
        let number = self.places.iter().position(|known| known == place).unwrap_or_else(|| {
            self.places.push(place.clone());
            self.places.len() - 1
        });
        u16::try_from(number).expect("there are no more servers than slots")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        Place { host: "10.0.0.1".into(), port }
    }

    fn told(slots: RangeInclusive<u16>, port: u16) -> Told {
        Told { slots, primary: place(port) }
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(1 + millis * 1_000_000)
    }

    #[test]
    fn what_a_redirect_says() {
        let parsed = |text| Redirect::parse(text).map(|redirect| (redirect.slot, redirect.place.to_string()));
        for (text, expected) in [
            ("3999 127.0.0.1:6381", Some((3999, "127.0.0.1:6381"))),
            ("0 :6381", Some((0, ":6381"))),
            ("1 ::1:6381", Some((1, "[::1]:6381"))),
            ("1 [::1]:6381", Some((1, "[::1]:6381"))),
            ("1 redis.internal:1", Some((1, "redis.internal:1"))),
            ("16384 a:1", None),
            ("1 a:0", None),
            ("1 a", None),
            ("", None),
        ] {
            assert_eq!(parsed(text), expected.map(|(slot, place)| (slot, place.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_map_is_replaced_and_corrected() {
        let mut map = SlotMap::default();
        assert_eq!(map.primary(1), None);
        let whole = [told(0..=8000, 1), told(8001..=16383, 2)];
        assert!(map.replace(&whole, at(0)));
        assert!(!map.replace(&whole, at(0)), "the same");
        assert_eq!(map.primaries(), [&place(1), &place(2)]);
        assert!(map.correct(7, &place(3), at(10)));
        assert!(!map.correct(7, &place(3), at(10)));
        assert_eq!((map.primary(7), map.primary(8)), (Some(&place(3)), Some(&place(1))));
        assert!(!map.replace(&whole, at(2_009)), "a server that does not know of it yet");
        assert_eq!(map.primary(7), Some(&place(3)));
        assert!(map.replace(&whole, at(2_010)), "it was told for two seconds");
        assert_eq!(map.primary(7), Some(&place(1)));
        assert!(map.replace(&[told(0..=99, 1)], at(3_000)));
        assert_eq!((map.primary(100), map.primaries()), (None, vec![&place(1)]));
    }

    #[test]
    fn a_primary_that_was_restarted_or_is_continued_is_not_kept() {
        let standing = |replid: &str, former_replid: &str| Standing {
            is_primary: true,
            uptime: Duration::from_millis(100),
            replid: replid.to_owned(),
            former_replid: former_replid.to_owned(),
        };
        let (kept, other, heir) = (standing("a", ""), standing("b", ""), standing("b", "a"));
        assert!(kept.is_kept(&other, at(50), at(150)), "it runs since then");
        assert!(!kept.is_kept(&other, at(50), at(151)), "it was started after that");
        assert!(!kept.is_kept(&heir, at(50), at(150)), "its data go on elsewhere");
        assert!(!standing("", "").is_kept(&other, at(50), at(150)), "it does not tell");
        assert!(!Standing { is_primary: false, ..kept }.is_kept(&other, at(50), at(150)));
    }

    #[test]
    fn who_had_the_slots_before() {
        let mut map = SlotMap::default();
        map.replace(&[told(0..=99, 1), told(100..=199, 2)], at(0));
        let next = [told(0..=49, 3), told(50..=99, 1), told(100..=199, 2), told(300..=301, 4)];
        assert_eq!(map.formers(&next, &place(3)), [place(1)]);
        assert_eq!(map.formers(&next, &place(2)), []);
        assert_eq!(map.formers(&next, &place(4)), [], "nobody had them");
        assert_eq!(map.formers(&[told(0..=199, 5)], &place(5)), [place(1), place(2)]);
    }
}
