//! PURE: how long no quorum of nodes has answered. Time in quarantine does not count: the nodes are there, and count
//! again at a known time.

use std::time::Duration;

use crate::sys::clock::Moment;

/// The time without an answering quorum, as one call knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outage {
    /// The beginning, moved forward by the time in quarantine.
    since: Option<Moment>,
    /// When quarantines last prevented a quorum, and when they end.
    quarantined: Option<(Moment, Moment)>,
}

impl Outage {
    /// Records that no quorum answers `now`, and returns for how long.
    pub(crate) fn lasts(&mut self, now: Moment) -> Duration {
        self.settle(now);
        now.since(*self.since.get_or_insert(now))
    }

    /// Records that quarantines prevent a quorum `now`, and end at `until`.
    pub(crate) fn quarantined(&mut self, now: Moment, until: Moment) {
        self.settle(now);
        self.quarantined = Some((now, until));
    }

    /// Returns the part of this outage since a call `began`.
    pub(crate) fn known_since(self, began: Moment) -> Self {
        let quarantined = self.quarantined.map(|(from, until)| (from.max(began), until));
        Self { since: self.since.map(|since| since.max(began)), quarantined }
    }

    /// Subtracts the time spent in quarantine. A quarantine that is found again before its end counts once.
    fn settle(&mut self, now: Moment) {
        if let Some((from, until)) = self.quarantined.take() {
            self.since = self.since.map(|since| since.after(now.min(until).since(from)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// An event at a second: no quorum answers, or quarantines until another second prevent one.
    enum Event {
        Fails(u64),
        Quarantined(u64, u64),
    }
    use Event::{Fails, Quarantined};

    #[test]
    fn time_behind_bars_is_never_counted() {
        let cases: [(&str, &[Event], u64); 7] = [
            ("failures alone", &[Fails(0), Fails(4), Fails(9)], 9),
            ("quarantines first", &[Quarantined(0, 60), Fails(60), Fails(65)], 5),
            ("quarantines in between", &[Fails(0), Quarantined(3, 60), Fails(60), Fails(61)], 4),
            (
                "a quarantine that is looked at again",
                &[Fails(0), Quarantined(3, 60), Quarantined(5, 60), Quarantined(50, 60), Fails(62)],
                5,
            ),
            (
                "quarantines and failures in turn",
                &[Fails(0), Quarantined(3, 60), Fails(10), Quarantined(12, 60), Fails(20), Fails(24)],
                9,
            ),
            ("a quarantine that ended unseen", &[Fails(0), Quarantined(3, 5), Fails(9)], 7),
            ("a quarantine without an end", &[Fails(0), Quarantined(3, 1_000_000), Fails(500_000)], 3),
        ];
        for (what, events, expected) in cases {
            let mut outage = Outage::default();
            let mut last = Duration::ZERO;
            for event in events {
                match *event {
                    Fails(now) => last = outage.lasts(at(now)),
                    Quarantined(now, until) => outage.quarantined(at(now), at(until)),
                }
            }
            assert_eq!(last, Duration::from_secs(expected), "{what}");
        }
    }

    #[test]
    fn a_call_that_began_later_counts_from_its_own_beginning() {
        let mut outage = Outage::default();
        outage.lasts(at(0));
        assert_eq!(outage.known_since(at(7)).lasts(at(9)), Duration::from_secs(2));
        outage.quarantined(at(8), at(20));
        assert_eq!(outage.known_since(at(12)).lasts(at(22)), Duration::from_secs(2));
        assert_eq!(outage.known_since(at(4)).lasts(at(22)), Duration::from_secs(6));
    }
}
