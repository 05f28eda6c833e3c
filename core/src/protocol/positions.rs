//! PURE: the places of one waiter in the lines of the nodes, and when its count there has to be kept from lapsing.
//!
//! A node counts its waiters under a key that lives for 5 s. A waiter without a place *joins*, which writes. While the hold
//! lasts in which it was given its place, its requests only read, and one every [`KEEP`] keeps the count alive. In the next
//! hold it joins anew: the release has ended the count.
//!
//! The spots are locked for moments only: an answer may come after the round that asked for it.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::protocol::request::Wants;
use crate::sys::clock::Moment;

/// A waiter keeps the count alive this long after it did so last. The key lives for 1 s longer.
const KEEP: Duration = Duration::from_secs(4);

/// Nodes that were asked within this time are asked again together.
const TOGETHER: Duration = Duration::from_millis(200);

/// A waiter's place at each node.
#[derive(Debug)]
pub(crate) struct Line(Mutex<Vec<Spot>>);

#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    /// 0 is none.
    place: u32,
    /// The hold in which the place was given.
    hold: u64,
    /// When the last request was made that kept the count alive.
    kept: Moment,
    /// The request whose answer is awaited, and when it was made.
    asked: (Wants, Moment),
}

impl Line {
    /// For as many nodes, without a place.
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(vec![Spot::default(); nodes]))
    }

    fn spots(&self) -> MutexGuard<'_, Vec<Spot>> {
        self.0.lock().expect("no panic while holding this")
    }

    /// What the request says that `node` is sent `now`.
    pub(crate) fn asks(&self, node: usize, now: Moment) -> Wants {
        let mut spots = self.spots();
        let spot = &mut spots[node];
        let keep = spot.place > 0 && now >= spot.kept.after(KEEP);
        let wants = Wants { place: spot.place, hold: spot.hold, keep };
        spot.asked = (wants, now);
        wants
    }

    /// `node` has answered with this `place` in this `hold`. Place 0 is none.
    pub(crate) fn given(&self, node: usize, place: u32, hold: u64) {
        let mut spots = self.spots();
        let spot = &mut spots[node];
        let (wants, asked) = spot.asked;
        let unwritten = Wants { place, hold, keep: false };
        if wants != unwritten {
            spot.kept = asked;
        }
        (spot.place, spot.hold) = (place, hold);
    }

    /// When the count has to be kept alive next: [`Moment::NEVER`] without a place. A node that was due before `now` and has
    /// not answered is asked again with the others.
    pub(crate) fn due(&self, now: Moment) -> Moment {
        let due = |spot: &Spot| (spot.place > 0).then(|| spot.kept.after(KEEP + TOGETHER));
        self.spots().iter().filter_map(due).filter(|due| *due > now).min().unwrap_or(Moment::NEVER)
    }

    /// The waiter's place: the lowest that a `quorum` of nodes, or all that gave one, does not exceed.
    pub(crate) fn place(&self, quorum: usize) -> u32 {
        let mut places: Vec<u32> = self.spots().iter().map(|spot| spot.place).filter(|place| *place > 0).collect();
        places.sort_unstable();
        places.get(quorum - 1).or(places.last()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_waiter_joins_and_then_keeps_its_count_once_in_four_seconds() {
        let line = Line::new(1);
        assert_eq!(line.due(at(0)), Moment::NEVER);
        assert_eq!(line.asks(0, at(0)), Wants { place: 0, hold: 0, keep: false });
        line.given(0, 3, 7);
        let known = Wants { place: 3, hold: 7, keep: false };
        for now in [0, 1, 3_999] {
            assert_eq!(line.asks(0, at(now)), known, "{now}");
            line.given(0, 3, 7);
            assert_eq!(line.due(at(now)), at(4_200), "{now}: what only reads keeps nothing alive");
        }
        assert_eq!(line.asks(0, at(4_200)), Wants { keep: true, ..known });
        assert_eq!(line.due(at(4_200)), Moment::NEVER, "not again at once, whatever becomes of the answer");
        assert_eq!(line.asks(0, at(4_300)), Wants { keep: true, ..known }, "it was not answered");
        line.given(0, 3, 7);
        assert_eq!(line.asks(0, at(5_000)), known);
        assert_eq!(line.due(at(5_000)), at(8_500));
    }

    #[test]
    fn a_place_of_another_hold_or_a_lost_count_begins_anew() {
        let line = Line::new(1);
        line.asks(0, at(0));
        line.given(0, 3, 7);
        line.asks(0, at(1_000));
        line.given(0, 1, 8);
        assert_eq!(line.asks(0, at(4_500)), Wants { place: 1, hold: 8, keep: false }, "joined at 1 s");
        line.given(0, 0, 8);
        assert_eq!(line.asks(0, at(4_600)).place, 0, "a node that counts nobody gives no place");
    }

    #[test]
    fn the_place_is_that_of_a_quorum() {
        for (places, place) in [
            ([0, 0, 0, 0, 0], 0),
            ([4, 0, 0, 0, 0], 4),
            ([4, 2, 0, 0, 0], 4),
            ([4, 2, 9, 1, 3], 3),
            ([1, 1, 1, 9, 9], 1),
        ] {
            let line = Line::new(5);
            for (node, given) in places.into_iter().enumerate() {
                line.asks(node, at(0));
                line.given(node, given, 1);
            }
            assert_eq!(line.place(3), place, "{places:?}");
        }
    }
}
