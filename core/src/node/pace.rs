//! The pace at which a process connects to one node: at most twenty times a second while it cannot be reached, all
//! connections of the process together.
//!
//! States of a node:
//!
//! - *calm*: no connect or connection failed since the last connect, and every caller connects at once;
//! - *troubled*: from the end of a connection or the failure of a connect until one succeeds.
//!
//! In trouble:
//!
//! - one connect begins per [`GAP`]; other callers wait for its result;
//! - no connect begins sooner than [`GAP`] after the last failure: a caller that asks before gets this failure;
//! - a caller that is not urgent gets it for longer, doubling up to a second;
//! - a server's answer to one login is not an answer to another, and neither is a failure of one client's certificates:
//!   a caller with another address, which contains these, waits instead.
//!
//! The end of a connection that worked is not a failure, so one connect begins at once. The end of one that was not
//! asked says little: an urgent caller connects at once, and others at twice the distance each time. The same holds for
//! one that was asked soon after it was made, and never worked: its answer may have been on its way. If the next one
//! ends like that too, the node hangs up on requests, which is a failure. If a connection ended soon after it was made,
//! success means little: connects stay [`GAP`] apart for a while, even while they succeed. The end of a connection made
//! before the last success says nothing.
//!
//! [`Record`] decides, with time and chance as arguments. [`Pace`] shares one among all connections of a process. It is
//! locked only for the decision, never on the way of a request.

use std::mem;
use std::sync::MutexGuard;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::address::Address;
use crate::protocol::backoff;
use crate::sys::clock::Moment;
use crate::sys::mutex::Mutex;
use crate::transport::failure::Failure;

/// The interval of connects to a troubled node: twenty a second.
pub(crate) const GAP: Duration = Duration::from_millis(50);

/// A connection that ends sooner than this after it was made shows that making one proves little.
const BRIEF: Duration = Duration::from_secs(1);

/// A full server does not always get to say so before it closes the connection.
const FULL_FOR: Duration = Duration::from_secs(1);

/// The leave for a connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// At once.
    Granted,
    /// Not before this moment, unless something changes sooner.
    Waits(Moment),
    /// Not now. The last connect failed like this.
    Refused(Failure),
}

/// The knowledge about connects to one node.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The last failure, while the node is in trouble because of one.
    failure: Option<(Failure, Moment)>,
    /// The address that got it, if another one may not get it.
    refused: Option<Address>,
    /// Whether no connect succeeded since a connection ended or could not be made.
    troubled: bool,
    /// Until when connects are apart although they succeed.
    apart_until: Moment,
    /// Failures in a row since a connection last worked.
    failures: u32,
    /// When a connection first ended soon after it was made, asked and without an answer, since one last worked.
    ended_early: Option<Moment>,
    /// When callers that are not urgent connect again.
    retry_at: Moment,
    /// When the last connect began, if any.
    began: Option<Moment>,
    /// When one last succeeded.
    connected: Moment,
    /// When the server last reported too many clients.
    full: Option<Moment>,
    outage: Outage,
}

/// Whether it was reported that no connect succeeds.
#[derive(Debug, Default)]
enum Outage {
    #[default]
    None,
    /// For clients with this address.
    OfOne(Box<Address>),
    OfAll,
}

impl Record {
    /// Asks for leave to connect as `who`. A connect is `urgent` if a quorum needs it.
    pub(crate) fn ask(&mut self, who: &Address, now: Moment, urgent: bool) -> Leave {
        if self.troubled && !urgent && now < self.retry_at && self.failure.is_none() {
            return Leave::Refused(Failure::Closed);
        }
        if self.troubled
            && let Some((failure, failed)) = &self.failure
        {
            let open = if urgent { failed.after(GAP) } else { self.retry_at };
            let is_of_another = self.refused.as_ref().is_some_and(|other| other != who);
            if now < open && !is_of_another {
                return Leave::Refused(failure.clone());
            }
            if is_of_another && now < failed.after(GAP) {
                return Leave::Waits(failed.after(GAP));
            }
        }
        if (self.troubled || now < self.apart_until)
            && let Some(next) = self.began.map(|began| began.after(GAP)).filter(|next| now < *next)
        {
            return Leave::Waits(next);
        }
        self.began = Some(now);
        Leave::Granted
    }

    fn connected(&mut self, now: Moment) {
        self.troubled = false;
        (self.failure, self.retry_at) = (None, Moment::default());
        self.connected = now;
    }

    /// Returns the failure to report.
    fn failed(&mut self, who: &Address, began: Moment, failure: Failure, now: Moment, unit: f64) -> Failure {
        let failure = match failure {
            Failure::Full => {
                self.full = Some(now);
                Failure::Full
            }
            Failure::HungUp if self.full.is_some_and(|full| now < full.after(FULL_FOR)) => Failure::Full,
            failure => failure,
        };
        // Connects that began before the last failure say the same as it.
        if self.failure.as_ref().is_none_or(|(_, failed)| *failed <= began) {
            self.retry_at = now.after(backoff::reconnect(self.failures, unit));
            self.failures = self.failures.saturating_add(1);
        }
        self.retry_at = self.retry_at.max(now.after(GAP));
        self.refused = failure.is_of_one_client().then(|| who.clone());
        self.failure = Some((failure.clone(), now));
        self.troubled = true;
        failure
    }

    /// Records that the first request on a connection was answered.
    pub(crate) fn worked(&mut self) {
        (self.failures, self.ended_early) = (0, None);
    }

    /// Records the end of a connection, `made` then, that worked.
    pub(crate) fn ended(&mut self, made: Moment, now: Moment) {
        if now < made.after(BRIEF) {
            self.apart_until = now.after(BRIEF);
        }
        if made >= self.connected {
            self.troubled = true;
        }
    }

    /// Records the end of a connection, `made` then, that was asked but never worked.
    pub(crate) fn failed_early(&mut self, who: &Address, made: Moment, failure: Failure, now: Moment, unit: f64) {
        self.ended(made, now);
        // An idle connection may have ended long before it was asked.
        if made < self.connected || now >= made.after(BRIEF) {
            return;
        }
        match self.ended_early {
            None => self.postpone(now, unit),
            Some(first) if made >= first => drop(self.failed(who, made, failure, now, unit)),
            Some(_) => {}
        }
        self.ended_early.get_or_insert(now);
    }

    /// Records the end of a connection, `made` then, that was never asked.
    pub(crate) fn ended_unasked(&mut self, made: Moment, now: Moment, unit: f64) {
        self.ended(made, now);
        if now < made.after(BRIEF) {
            self.postpone(now, unit);
        }
    }

    fn moved(&mut self) {
        // The connects to the former server said nothing about this one, but were not fewer for that.
        *self = Self { began: self.began, outage: mem::take(&mut self.outage), ..Self::default() };
    }

    /// Records that `who` cannot connect. Returns whether an outage begins with that, which is to be reported.
    pub(crate) fn begins_outage(&mut self, who: &Address, failure: &Failure) -> bool {
        match (&self.outage, failure.is_of_one_client()) {
            (Outage::None, true) => self.outage = Outage::OfOne(Box::new(who.clone())),
            (Outage::None | Outage::OfOne(_), false) => self.outage = Outage::OfAll,
            (Outage::OfOne(_), true) | (Outage::OfAll, _) => return false,
        }
        true
    }

    /// Records that `who` has connected. Returns whether an outage ends with that, which is to be reported.
    pub(crate) fn ends_outage(&mut self, who: &Address) -> bool {
        let is_over = match &self.outage {
            Outage::None => false,
            Outage::OfOne(other) => **other == *who,
            Outage::OfAll => true,
        };
        if is_over {
            self.outage = Outage::None;
        }
        is_over
    }

    /// Returns when a caller that is not urgent may have leave, if no change comes before.
    pub(crate) fn leave_at(&self, now: Moment) -> Moment {
        self.retry_at.max(now.after(GAP))
    }

    /// Keeps callers that are not urgent away, for longer each time.
    fn postpone(&mut self, now: Moment, unit: f64) {
        self.retry_at = self.retry_at.max(now.after(backoff::reconnect(self.failures, unit)));
        self.failures = self.failures.saturating_add(1);
    }
}

/// The pace at which one process connects to one node.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    record: Mutex<Record>,
    /// Notifies of a connect's result.
    changed: Notify,
}

impl Pace {
    /// Returns the record, for what nobody waits for.
    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock()
    }

    /// Becomes ready when it is worth asking again before the time in [`Leave::Waits`].
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Records that another server is at the node's place.
    pub(crate) fn moved(&self) {
        self.record().moved();
        self.changed.notify_waiters();
    }

    /// Records that a connect succeeded: the node answered with its server info.
    pub(crate) fn connected(&self, now: Moment) {
        self.record().connected(now);
        self.changed.notify_waiters();
    }

    /// Records that a connect that `began` then failed. Returns the failure to report.
    pub(crate) fn failed(&self, who: &Address, began: Moment, failure: Failure, now: Moment, unit: f64) -> Failure {
        let failure = self.record().failed(who, began, failure, now, unit);
        self.changed.notify_waiters();
        failure
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Moment {
        // Some time after the clock's origin.
        Moment::from_nanos((1_000_000 + millis) * 1_000_000)
    }

    fn who(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    #[test]
    fn an_outage_is_reported_once() {
        let (mut record, one, two) = (Record::default(), who("redis://:one@a"), who("redis://:two@a"));
        let forbidden = Failure::Forbidden("WRONGPASS".into());
        assert!(!record.ends_outage(&one));
        assert!(record.begins_outage(&one, &forbidden));
        assert!(!record.begins_outage(&one, &forbidden) && !record.begins_outage(&two, &forbidden));
        assert!(!record.ends_outage(&two), "it is that of another login");
        assert!(record.begins_outage(&two, &refused()), "no login helps any more");
        assert!(!record.begins_outage(&one, &forbidden));
        record.moved();
        assert!(record.ends_outage(&two) && !record.ends_outage(&one));
    }

    fn refused() -> Failure {
        Failure::Unreachable("connection refused".into())
    }

    /// Each step is a millisecond and what happens then. A caller asks: it `goes`, `waits` until then, or is `refused` with
    /// the last failure, or `closed` without one; with `idly` it is not urgent. A connection is `connected` or has `worked`;
    /// a connect that began then has `failed`; a connection that was made then has `ended`, or did so `early`, before it
    /// worked, or `unasked`. Another server has `moved` to the node's place.
    fn play(what: &str, steps: &str) {
        let (pace, who) = (Pace::default(), who("redis://h"));
        let moment = |text: &str| at(text.parse().unwrap());
        for step in steps.split(", ") {
            let (now, step) = step.split_once(' ').unwrap();
            let (at_ms, now) = (now, moment(now));
            let (urgent, expected) = match step.split(' ').collect::<Vec<_>>()[..] {
                ["goes"] => (true, Leave::Granted),
                ["goes", "idly"] => (false, Leave::Granted),
                ["waits", until] => (true, Leave::Waits(moment(until))),
                ["refused"] => (true, Leave::Refused(refused())),
                ["refused", "idly"] => (false, Leave::Refused(refused())),
                ["closed", "idly"] => (false, Leave::Refused(Failure::Closed)),
                ref told => {
                    match told[..] {
                        ["connected"] => pace.connected(now),
                        ["worked"] => pace.record().worked(),
                        ["moved"] => pace.moved(),
                        ["failed", began] => drop(pace.failed(&who, moment(began), refused(), now, 0.0)),
                        ["ended", made] => pace.record().ended(moment(made), now),
                        ["unasked", made] => pace.record().ended_unasked(moment(made), now, 0.0),
                        ["early", made] => pace.record().failed_early(&who, moment(made), refused(), now, 0.0),
                        _ => panic!("{step}"),
                    }
                    continue;
                }
            };
            assert_eq!(pace.record().ask(&who, now, urgent), expected, "{what}: {step} at {at_ms} ms");
        }
    }

    #[test]
    fn failures() {
        play("nothing failed: everybody at once", "0 goes, 0 goes, 0 goes idly, 1 goes, 2 connected, 2 goes");
        play(
            "after a failure none for 50 ms, and then one",
            "0 goes, 5 failed 0, 5 refused, 54 refused, 55 goes, 56 waits 105, 105 goes",
        );
        play(
            "the others are free as soon as one has succeeded",
            "0 goes, 0 failed 0, 50 goes, 51 waits 100, 60 connected, 60 goes, 60 goes",
        );
        play(
            "who is not urgent comes at twice the distance each time",
            "0 goes idly, 0 failed 0, 49 refused idly, 50 goes idly, 50 failed 50, 99 refused idly, \
             100 goes idly, 100 failed 100, 199 refused idly, 199 goes, 199 failed 199, 398 refused idly, \
             399 goes idly",
        );
        play(
            "failures of connects that were under way together are one",
            "0 goes, 0 goes, 0 goes, 5 failed 0, 6 failed 0, 7 failed 0, 56 refused, 57 goes idly",
        );
    }

    #[test]
    fn another_server_has_not_failed_yet() {
        play(
            "the failures of the server before do not count",
            "0 goes, 0 failed 0, 50 goes, 50 failed 50, 60 refused idly, 60 moved, 60 goes idly",
        );
    }

    #[test]
    fn ends_of_connections() {
        play(
            "a connection that worked and ended: one connect at once, and the others after it",
            "0 goes, 1 connected, 2 worked, 5000 ended 1, 5000 goes, 5000 waits 5050, 5010 connected, \
             5010 goes, 5010 goes",
        );
        play(
            "and a failure if that one fails",
            "0 goes, 1 connected, 2 worked, 5000 ended 1, 5000 goes, 5001 failed 5000, 5001 refused, \
             5051 goes",
        );
        play(
            "what was connected before the last success says nothing by its end",
            "0 goes, 0 goes, 1 connected, 2 connected, 3 worked, 5000 ended 2, 5000 goes, 5001 connected, \
             5002 ended 1, 5002 goes, 5002 goes",
        );
        play(
            "a connection that ended soon keeps connects apart although they succeed",
            "0 goes, 1 connected, 1 worked, 10 ended 1, 10 waits 50, 50 goes, 51 connected, 51 waits 100, \
             1010 goes, 1010 goes",
        );
        play(
            "the end of a connection that nobody asked is no failure",
            "0 goes, 1 connected, 5000 unasked 1, 5000 goes idly, 5000 waits 5050",
        );
        play(
            "but who is not urgent does not come at once if it was short",
            "0 goes, 1 connected, 1 unasked 1, 1 waits 50, 50 closed idly, 51 goes idly, 51 connected, \
             51 unasked 51, 101 goes idly, 101 connected, 101 unasked 101, 200 closed idly, 200 goes",
        );
    }

    #[test]
    fn ends_before_the_first_answer() {
        play(
            "the end of a connection that never worked says little: the answer may have been on its way",
            "0 goes, 1 connected, 500 early 1, 500 closed idly, 500 goes, 500 waits 550",
        );
        play(
            "that of one that had stood for long says nothing: it may have ended long before it was asked",
            "0 goes, 1 connected, 5000 early 1, 5000 goes idly, 5000 waits 5050",
        );
        play(
            "nor does it if another one has been made since",
            "0 goes, 0 goes, 1 connected, 200 connected, 300 early 1, 300 goes idly",
        );
        play(
            "the end of the next one is a failure",
            "0 goes, 1 connected, 500 early 1, 500 goes, 501 connected, 510 early 501, 510 refused, 560 goes",
        );
        play(
            "unless it was made before the first one ended, or another one has worked since",
            "0 goes, 0 goes, 1 connected, 1 connected, 500 early 1, 500 early 1, 500 goes, 501 connected, \
             502 worked, 560 early 501, 560 goes",
        );
    }

    #[test]
    fn pauses_double_until_a_connection_works() {
        play(
            "doubling goes on until a connection works",
            "0 goes, 0 connected, 0 early 0, 50 goes, 50 connected, 50 early 50, 100 goes, 100 connected, \
             100 early 100, 199 refused idly, 200 goes idly, 200 connected, 200 worked, 201 early 200, \
             250 closed idly, 251 goes idly",
        );
    }

    #[test]
    fn a_full_server_that_only_hangs_up_is_full() {
        let (pace, who) = (Pace::default(), who("redis://h"));
        assert_eq!(pace.failed(&who, at(0), Failure::HungUp, at(0), 0.0), Failure::HungUp);
        assert_eq!(pace.failed(&who, at(50), Failure::Full, at(50), 0.0), Failure::Full);
        assert_eq!(pace.failed(&who, at(100), Failure::HungUp, at(100), 0.0), Failure::Full);
        assert_eq!(pace.record().ask(&who, at(100), true), Leave::Refused(Failure::Full));
        assert_eq!(pace.failed(&who, at(1050), Failure::HungUp, at(1050), 0.0), Failure::HungUp);
    }

    #[test]
    fn an_answer_to_one_login_is_none_to_another() {
        let (pace, wrong, right) = (Pace::default(), who("redis://:wrong@h"), who("redis://:right@h"));
        let forbidden = Failure::Forbidden("WRONGPASS".into());
        pace.failed(&wrong, at(0), forbidden.clone(), at(0), 0.0);
        assert_eq!(pace.record().ask(&wrong, at(49), true), Leave::Refused(forbidden));
        for urgent in [true, false] {
            assert_eq!(pace.record().ask(&right, at(49), urgent), Leave::Waits(at(50)));
        }
        assert_eq!(pace.record().ask(&right, at(50), false), Leave::Granted);
        // But an unreachable node is unreachable for every caller.
        pace.failed(&wrong, at(100), refused(), at(100), 0.0);
        assert_eq!(pace.record().ask(&right, at(149), true), Leave::Refused(refused()));
    }

    proptest! {
        /// Many callers ask as often as they like. Their connects fail after a while, or succeed and end at once.
        #[test]
        fn never_more_than_twenty_in_a_second(
            lasts in prop::collection::vec((0..400_u64, any::<bool>()), 1..50),
            asks in prop::collection::vec((0..30_u64, any::<bool>()), 1..600),
        ) {
            let (pace, who) = (Pace::default(), who("redis://h"));
            pace.failed(&who, at(0), refused(), at(0), 0.5);
            let (mut now, mut went, mut under_way) = (0, Vec::new(), Vec::<(u64, u64, bool)>::new());
            for (after, urgent) in asks {
                now += after;
                under_way.sort_unstable();
                while let Some((ends, began, made)) = under_way.first().copied().filter(|(ends, ..)| *ends <= now) {
                    under_way.remove(0);
                    if made {
                        pace.connected(at(ends));
                        pace.record().failed_early(&who, at(ends), refused(), at(ends), 0.5);
                    } else {
                        pace.failed(&who, at(began), refused(), at(ends), 0.5);
                    }
                }
                if pace.record().ask(&who, at(now), urgent) == Leave::Granted {
                    let (lasts, made) = lasts[went.len() % lasts.len()];
                    under_way.push((now + lasts, now, made));
                    went.push(now);
                }
            }
            prop_assert!(went.windows(2).all(|pair| pair[1] - pair[0] >= 50), "{went:?}");
        }

        #[test]
        fn who_is_not_urgent_asks_within_a_second(failures in 1..40_u64, unit in 0.0..1.0_f64) {
            let (pace, who) = (Pace::default(), who("redis://h"));
            for i in 0..failures {
                pace.failed(&who, at(i * 2000), refused(), at(i * 2000), unit);
            }
            let last = (failures - 1) * 2000;
            prop_assert_eq!(pace.record().ask(&who, at(last + 49), false), Leave::Refused(refused()));
            prop_assert_eq!(pace.record().ask(&who, at(last + 1000), false), Leave::Granted);
        }
    }
}
