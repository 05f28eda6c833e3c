//! PURE: one waiter's positions in the queues of the nodes, and when it must keep its count there alive.
//!
//! A node counts its waiters under a key that lives for 5 s. A waiter without a position *joins*, which writes. During
//! the hold in which it got its position, its requests only read, and one every [`KEEP`] keeps the count alive. In the
//! next hold it joins anew, because the release has ended the count.
//!
//! While readers share the lock, no hold is told apart from the next (`hold` is 0, as behind a key of another library).
//! Then each request keeps the count alive, which joins anew if it has ended. The count keeps new readers away, so a
//! waiter that gives up takes it back ([`Positions::to_withdraw`]), also where an answer tells of it only then. A reader
//! that such a count has held off for [`PATIENCE`] ignores it.
//!
//! The entries are locked only briefly, because an answer may come after its round.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::protocol::quorum::NodeMask;
use crate::protocol::request::Wants;
use crate::sys::clock::Moment;
use crate::sys::mutex::Mutex;

/// The interval at which a waiter keeps the count alive. The key lives for 1 s longer.
const KEEP: Duration = Duration::from_secs(4);

/// Nodes that were asked within this time are asked again together.
const TOGETHER: Duration = Duration::from_millis(200);

/// For how long readers leave a lock that is shared to others who wait for it alone. A node counts those for as long after
/// the last one was there, so after this time they may just not get the lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last position that makes a reader wait for longer: it need not wait for other readers, which the node counts too.
const READERS_POSITION_MOST: u32 = 3;

/// What the waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// To have the lock alone, under one name or several.
    Alone,
    /// A slot of a semaphore.
    Slot,
    /// To share the lock.
    Shared,
}

/// A waiter's position at each node.
#[derive(Debug)]
pub(crate) struct Positions {
    sought: Sought,
    entries: Mutex<Vec<Entry>>,
    given_up: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 means none.
    position: u32,
    /// The hold in which the position was given.
    hold: u64,
    /// Since when each answer named that hold.
    since: Option<Moment>,
    /// How many answers in a row gave the same position in the same hold.
    unchanged: u32,
    /// Whether readers share the lock, and this one is kept off because a writer waits.
    is_held_off: bool,
    /// When the last request was made that kept the count alive.
    kept: Moment,
    /// The request whose answer is awaited, and when it was made.
    asked: (Wants, Moment),
    /// Whether the count was taken back.
    is_withdrawn: bool,
}

impl Positions {
    /// Creates an empty position for each node.
    pub(crate) fn new(nodes: usize, sought: Sought) -> Self {
        Self::of(sought, vec![Entry::default(); nodes])
    }

    fn of(sought: Sought, entries: Vec<Entry>) -> Self {
        Self { sought, entries: Mutex::new(entries), given_up: AtomicBool::new(false) }
    }

    /// Creates the positions of the waiter behind the one with these, which has waited since `began`. It has been held off
    /// for as long as both.
    pub(crate) fn behind(former: &Self, began: Moment) -> Self {
        let entry = |former: &Entry| Entry {
            position: 0,
            kept: Moment::default(),
            since: former.since.map(|since| since.max(began)),
            ..*former
        };
        let entries = former.entries.lock().iter().map(entry).collect();
        Self::of(former.sought, entries)
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.entries.lock().len()
    }

    /// Returns the waiter's part of a request to `node`. A reader that was kept off for long joins anyway, once.
    pub(crate) fn asks(&self, node: usize, now: Moment) -> Wants {
        let mut entries = self.entries.lock();
        let entry = &mut entries[node];
        let is_long = entry.since.is_some_and(|since| now >= since.after(PATIENCE));
        let wants = if entry.is_held_off && is_long {
            Wants::ANYWAY
        } else {
            let keep = entry.position > 0 && (now >= entry.kept.after(KEEP) || self.is_uncertain(entry));
            Wants { position: entry.position, hold: entry.hold, keep, anyway: false }
        };
        entry.asked = (wants, now);
        wants
    }

    /// Records that `node` answered with this `position` in this `hold`. Position 0 means none.
    pub(crate) fn given(&self, node: usize, position: u32, hold: u64) {
        self.record(node, position, hold, false);
    }

    /// Records that `node` keeps this reader off, because so many wait for the lock alone. It is not counted, and is behind
    /// all of them.
    pub(crate) fn held_off(&self, node: usize, waiting: u32, hold: u64) {
        self.record(node, waiting.saturating_add(1), hold, true);
    }

    fn record(&self, node: usize, position: u32, hold: u64, is_held_off: bool) {
        let mut entries = self.entries.lock();
        let entry = &mut entries[node];
        let (wants, asked) = entry.asked;
        let unwritten = Wants { position, hold, ..Wants::default() };
        if wants != unwritten {
            entry.kept = asked;
        }
        let is_same = hold == entry.hold && entry.since.is_some();
        if !is_same {
            entry.since = Some(asked);
        }
        entry.unchanged = if is_same && position == entry.position { entry.unchanged.saturating_add(1) } else { 0 };
        (entry.position, entry.hold, entry.is_held_off) = (position, hold, is_held_off);
    }

    /// Returns whether the answer does not tell the hold from the next one: readers share the lock, or it is another
    /// library's.
    fn is_uncertain(&self, entry: &Entry) -> bool {
        self.sought == Sought::Alone && entry.hold == 0
    }

    /// Whether the waiter is a reader that a waiting writer keeps off.
    pub(crate) fn are_held_off(&self) -> bool {
        self.entries.lock().iter().any(|entry| entry.is_held_off)
    }

    /// Returns how many times in a row a writer asked and nothing had changed for it, because readers come and go.
    pub(crate) fn in_vain(&self) -> u32 {
        let counts = |entry: &&Entry| self.is_uncertain(entry);
        self.entries.lock().iter().filter(counts).map(|entry| entry.unchanged).max().unwrap_or(0)
    }

    /// Records that the waiter gives up.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Returns the nodes that count a waiter that has given up and keep readers away for it, which it has to tell. Each is
    /// returned once: an answer that comes later is to a request that was executed before.
    pub(crate) fn to_withdraw(&self) -> NodeMask {
        let mut nodes = NodeMask::NONE;
        if self.given_up.load(Ordering::Relaxed) {
            for (node, entry) in self.entries.lock().iter_mut().enumerate() {
                if entry.position > 0 && self.is_uncertain(entry) && !mem::replace(&mut entry.is_withdrawn, true) {
                    nodes = nodes.with(node);
                }
            }
        }
        nodes
    }

    /// Returns when the count must be kept alive next: [`Moment::NEVER`] without a position. A node that was due before
    /// `now` and has not answered is asked again with the others.
    pub(crate) fn due(&self, now: Moment) -> Moment {
        let due = |entry: &Entry| (entry.position > 0).then(|| entry.kept.after(KEEP + TOGETHER));
        self.entries.lock().iter().filter_map(due).filter(|due| *due > now).min().unwrap_or(Moment::NEVER)
    }

    /// Returns the waiter's position: the lowest that a `quorum` of nodes, or all that gave one, does not exceed.
    pub(crate) fn position(&self, quorum: usize) -> u32 {
        let mut numbers: Vec<u32> =
            self.entries.lock().iter().map(|entry| entry.position).filter(|position| *position > 0).collect();
        numbers.sort_unstable();
        let position = numbers.get(quorum - 1).or(numbers.last()).copied().unwrap_or(0);
        if self.sought == Sought::Shared { position.min(READERS_POSITION_MOST) } else { position }
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
        let positions = Positions::new(1, Sought::Alone);
        assert_eq!(positions.due(at(0)), Moment::NEVER);
        assert_eq!(positions.asks(0, at(0)), Wants::default());
        positions.given(0, 3, 7);
        let known = Wants { position: 3, hold: 7, ..Wants::default() };
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
        let positions = Positions::new(1, Sought::Alone);
        positions.asks(0, at(0));
        positions.given(0, 3, 7);
        positions.asks(0, at(1_000));
        positions.given(0, 1, 8);
        assert_eq!(positions.asks(0, at(4_500)), Wants { position: 1, hold: 8, ..Wants::default() }, "joined at 1 s");
        positions.given(0, 0, 8);
        assert_eq!(positions.asks(0, at(4_600)).position, 0, "a node that counts nobody gives no place");
    }

    /// The last reader's release ends the count, and the next period does not look any different.
    #[test]
    fn a_waiter_behind_readers_keeps_its_count_with_each_request_and_takes_it_back() {
        let positions = Positions::new(2, Sought::Alone);
        for now in [0, 10, 20] {
            assert_eq!(positions.in_vain(), u32::try_from(now / 10).unwrap().saturating_sub(1));
            assert_eq!(
                positions.asks(0, at(now)),
                Wants { position: u32::from(now > 0), keep: now > 0, ..Wants::default() }
            );
            positions.given(0, 1, 0);
        }
        positions.asks(1, at(20));
        positions.given(1, 2, 7);
        assert_eq!(positions.to_withdraw(), NodeMask::NONE, "it waits");
        positions.give_up();
        assert_eq!(positions.to_withdraw(), NodeMask::NONE.with(0));
        assert_eq!(positions.to_withdraw(), NodeMask::NONE, "once");
        positions.given(0, 2, 0);
        assert_eq!(positions.in_vain(), 0, "it was counted anew");
        for sought in [Sought::Slot, Sought::Shared] {
            let others = Positions::new(1, sought);
            others.asks(0, at(0));
            others.given(0, 1, 0);
            assert!(!others.asks(0, at(1)).keep, "{sought:?}");
            others.give_up();
            assert_eq!(others.to_withdraw(), NodeMask::NONE, "{sought:?}");
        }
    }

    #[test]
    fn a_reader_that_one_hold_has_kept_off_for_five_seconds_joins_anyway() {
        let positions = Positions::new(1, Sought::Shared);
        positions.asks(0, at(1_000));
        positions.held_off(0, 1, 7);
        assert!(!positions.asks(0, at(5_999)).anyway && positions.are_held_off());
        positions.held_off(0, 2, 7);
        assert_eq!(positions.asks(0, at(6_000)), Wants::ANYWAY);
        positions.held_off(0, 1, 8);
        assert!(!positions.asks(0, at(6_001)).anyway, "another has had the lock meanwhile");
        for sought in [Sought::Alone, Sought::Shared] {
            let behind = Positions::new(1, sought);
            behind.asks(0, at(0));
            behind.given(0, 2, 7);
            assert!(!behind.asks(0, at(60_000)).anyway && !behind.are_held_off(), "a writer has it");
        }
    }

    /// Otherwise readers of one process, each of which comes again at once, would ignore others for ever.
    #[test]
    fn a_reader_behind_others_is_held_off_only_since_it_waits() {
        let first = Positions::new(1, Sought::Shared);
        first.asks(0, at(1_000));
        first.held_off(0, 1, 7);
        let behind = |began| Positions::behind(&first, at(began)).asks(0, at(6_000)).anyway;
        assert!(behind(500) && behind(1_000));
        assert!(!behind(1_001));
    }

    #[test]
    fn readers_do_not_wait_for_each_other() {
        let positions = Positions::new(1, Sought::Shared);
        positions.asks(0, at(0));
        positions.held_off(0, 39, 7);
        assert_eq!(positions.position(1), READERS_POSITION_MOST);
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
            let positions = Positions::new(5, Sought::Alone);
            for (node, given) in numbers.into_iter().enumerate() {
                positions.asks(node, at(0));
                positions.given(node, given, 1);
            }
            assert_eq!(positions.position(3), position, "{numbers:?}");
        }
    }
}
