//! PURE: one waiter's positions in the queues of the nodes, and when it must keep its count there alive.
//!
//! A node counts its waiters under a key that lives for 5 s. A waiter without a position *joins*, which writes. During
//! the hold in which it got its position, its requests only read, and one every [`KEEP`] keeps the count alive. In the
//! next hold it joins anew, because the release has ended the count.
//!
//! The entries are locked only briefly, because an answer may come after its round.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::protocol::request::Wants;
use crate::sys::clock::Moment;

/// The interval at which a waiter keeps the count alive. The key lives for 1 s longer.
const KEEP: Duration = Duration::from_secs(4);

/// Nodes that were asked within this time are asked again together.
const TOGETHER: Duration = Duration::from_millis(200);

/// A waiter's position at each node.
#[derive(Debug)]
pub(crate) struct Positions(Mutex<Vec<Entry>>);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 means none.
    position: u32,
    /// The hold in which the position was given.
    hold: u64,
    /// When the last request was made that kept the count alive.
    kept: Moment,
    /// The request whose answer is awaited, and when it was made.
    asked: (Wants, Moment),
}

impl Positions {
    /// Creates an empty position for each node.
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(vec![Entry::default(); nodes]))
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().expect("no panic while holding this")
    }

    /// Returns the waiter's part of a request to `node`.
    pub(crate) fn asks(&self, node: usize, now: Moment) -> Wants {
        let mut entries = self.entries();
        let entry = &mut entries[node];
        let keep = entry.position > 0 && now >= entry.kept.after(KEEP);
        let wants = Wants { position: entry.position, hold: entry.hold, keep };
        entry.asked = (wants, now);
        wants
    }

    /// Records that `node` answered with this `position` in this `hold`. Position 0 means none.
    pub(crate) fn given(&self, node: usize, position: u32, hold: u64) {
        let mut entries = self.entries();
        let entry = &mut entries[node];
        let (wants, asked) = entry.asked;
        let unwritten = Wants { position, hold, keep: false };
        if wants != unwritten {
            entry.kept = asked;
        }
        (entry.position, entry.hold) = (position, hold);
    }

    /// Returns when the count must be kept alive next: [`Moment::NEVER`] without a position. A node that was due before
    /// `now` and has not answered is asked again with the others.
    pub(crate) fn due(&self, now: Moment) -> Moment {
        let due = |entry: &Entry| (entry.position > 0).then(|| entry.kept.after(KEEP + TOGETHER));
        self.entries().iter().filter_map(due).filter(|due| *due > now).min().unwrap_or(Moment::NEVER)
    }

    /// Returns the waiter's position: the lowest that a `quorum` of nodes, or all that gave one, does not exceed.
    pub(crate) fn position(&self, quorum: usize) -> u32 {
        let mut numbers: Vec<u32> =
            self.entries().iter().map(|entry| entry.position).filter(|position| *position > 0).collect();
        numbers.sort_unstable();
        numbers.get(quorum - 1).or(numbers.last()).copied().unwrap_or(0)
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
        let positions = Positions::new(1);
        assert_eq!(positions.due(at(0)), Moment::NEVER);
        assert_eq!(positions.asks(0, at(0)), Wants { position: 0, hold: 0, keep: false });
        positions.given(0, 3, 7);
        let known = Wants { position: 3, hold: 7, keep: false };
        for now in [0, 1, 3_999] {
            assert_eq!(positions.asks(0, at(now)), known, "{now}");
            positions.given(0, 3, 7);
            assert_eq!(positions.due(at(now)), at(4_200), "{now}: what only reads keeps nothing alive");
        }
        assert_eq!(positions.asks(0, at(4_200)), Wants { keep: true, ..known });
        assert_eq!(positions.due(at(4_200)), Moment::NEVER, "not again at once, whatever becomes of the answer");
        assert_eq!(positions.asks(0, at(4_300)), Wants { keep: true, ..known }, "it was not answered");
        positions.given(0, 3, 7);
        assert_eq!(positions.asks(0, at(5_000)), known);
        assert_eq!(positions.due(at(5_000)), at(8_500));
    }

    #[test]
    fn a_place_of_another_hold_or_a_lost_count_begins_anew() {
        let positions = Positions::new(1);
        positions.asks(0, at(0));
        positions.given(0, 3, 7);
        positions.asks(0, at(1_000));
        positions.given(0, 1, 8);
        assert_eq!(positions.asks(0, at(4_500)), Wants { position: 1, hold: 8, keep: false }, "joined at 1 s");
        positions.given(0, 0, 8);
        assert_eq!(positions.asks(0, at(4_600)).position, 0, "a node that counts nobody gives no place");
    }

    #[test]
    fn the_place_is_that_of_a_quorum() {
        for (numbers, position) in [
            ([0, 0, 0, 0, 0], 0),
            ([4, 0, 0, 0, 0], 4),
            ([4, 2, 0, 0, 0], 4),
            ([4, 2, 9, 1, 3], 3),
            ([1, 1, 1, 9, 9], 1),
        ] {
            let positions = Positions::new(5);
            for (node, given) in numbers.into_iter().enumerate() {
                positions.asks(node, at(0));
                positions.given(node, given, 1);
            }
            assert_eq!(positions.position(3), position, "{numbers:?}");
        }
    }
}
