//! PURE: the pauses between tries.
//!
//! Chance enters as `unit`, a number in `[0, 1)`, so that the same seed gives the same pauses. `attempt` counts the
//! failed tries since the last success, from 0.

use std::time::Duration;

use crate::sys::clock::Moment;

/// About the length of a short critical section, so that the first try after a denial often wins.
const CONTENDED_FIRST: Duration = Duration::from_millis(8);
/// Four tries a second cost a server nothing and a waiter little.
const CONTENDED_MOST: Duration = Duration::from_millis(250);
/// Waiters that all know the moment at which a ttl ends are spread over this time.
const SPREAD: Duration = Duration::from_millis(10);
/// No answer causes a try at once: even an expired ttl gets a pause, or a loop would spin.
const SHORTEST: Duration = Duration::from_millis(1);

/// The delay in noticing a change that was not reported.
const BACKSTOP: Duration = Duration::from_secs(2);

/// The delay per position in the queue: less asks too early, more leaves the lock idle where many wait for it once.
const SLOT_FIRST: Duration = Duration::from_millis(2);
/// Without a minimum, all waiters for a lock that is held for long would ask at once.
const SLOT_LEAST: Duration = Duration::from_millis(1);
/// The slot's shrinkage with every denial, so that newcomers come later.
const DENIAL_DECAY: f64 = 0.9;
/// The longest a lock may lie idle because waiters in front have gone.
const WAKE_DELAY_MOST: Duration = Duration::from_millis(100);
/// Fixed slots fall into step with locks always held for the same time: then one waiter always comes too early.
const WAKE_DELAY_SPREAD: f64 = 0.4;
/// More would mix up the order of the last waiters.
const WAKE_DELAY_SPREAD_MOST: Duration = Duration::from_millis(3);
/// A base, and a share per waiter.
const HOLD_OFF: Duration = Duration::from_micros(500);
const HOLD_OFF_EACH: Duration = Duration::from_micros(1_250);

/// Waiters spread over the time of so many rounds rarely split the votes again.
const SPLIT_ROUNDS_MOST: u32 = 4;
/// The longest a lock may lie idle because waiters back off. A round takes longer where a process was stopped in it.
const SPLIT_MOST: Duration = Duration::from_secs(1);

/// Joins, renewals and leaves of readers each wake those who wait for a shared lock. A waiter asks for several of these at
/// once, and for more the longer readers come and go.
const GATHER_EACH: Duration = Duration::from_micros(100);
/// The longest that a lock may lie idle because its waiters gather changes.
const GATHER_MOST: Duration = Duration::from_millis(25);
/// For how long readers leave a lock that readers share, or shared just now, to a writer that waits. With several nodes, the
/// writer is told by each, asks a quorum of them whether it is free, and then tries. A reader needs the last step alone.
const DEFERENCE: Duration = Duration::from_millis(20);

/// A release reaches all nodes within about this time.
pub(crate) const NOTIFICATION_WINDOW: Duration = Duration::from_millis(2);

/// A node that cannot answer needs longer than a held lock.
const UNAVAILABLE_FIRST: Duration = Duration::from_millis(50);
/// The delay in noticing a recovered quorum.
const UNAVAILABLE_MOST: Duration = Duration::from_secs(1);

/// Twenty connects a second do not burden a server that cannot take any.
const RECONNECT_FIRST: Duration = Duration::from_millis(50);
/// The delay in noticing a recovered node.
const RECONNECT_MOST: Duration = Duration::from_secs(1);

/// A service that gives logins is asked again after a second.
const PROVIDER_FIRST: Duration = Duration::from_secs(1);
/// The delay in noticing that such a service has recovered.
const PROVIDER_MOST: Duration = Duration::from_secs(30);
/// The part of a login's life after which another one is asked for: late enough to use most of it, and with time for a
/// failed call.
const REFRESH_SHARE: f64 = 0.7;
/// Processes that began together ask at different times.
const REFRESH_SPREAD: f64 = 0.1;
/// A provider of logins that have hardly any life is not called without a pause.
const REFRESH_LEAST: Duration = Duration::from_millis(100);

/// A lock is renewed after a third of its ttl, so that two renewals may fail. The spread keeps locks apart.
const RENEWAL_SHARE: f64 = 1.0 / 3.0;
const RENEWAL_SPREAD: f64 = 0.1;
/// Renewals due within a thousandth of the ttl form one batch: one wake-up, one write to each node.
const RENEWAL_BATCH: u32 = 1_000;

/// Releases whose `node_timeout` ends within this part of it are handled together: each time wakes the background.
const UNHEARD_BATCH: u32 = 8;

/// A renewal that no quorum answered is retried after a twentieth of the ttl. That is often enough to outlast a short
/// outage, and does not spin with the shortest ttl.
const UNANSWERED_SHARE: u32 = 20;
const UNANSWERED_LEAST: Duration = Duration::from_millis(10);
const UNANSWERED_MOST: Duration = Duration::from_millis(500);

/// Renewals that a broken connection brings forward are spread over this time, or more for many locks: as many as a
/// node answers without keeping the last one waiting.
const RENEWAL_SPREAD_OF_MANY_LEAST: Duration = Duration::from_millis(50);
const RENEWAL_SPREAD_OF_MANY_EACH: Duration = Duration::from_micros(100);

/// The first release has just gone unanswered; a node is rarely back sooner.
const RELEASE_RETRY_FIRST: Duration = Duration::from_millis(50);
/// The delay in deleting a key with a short ttl after its node is back.
const RELEASE_RETRY_MOST: Duration = Duration::from_secs(2);
/// A release stays pending for one ttl at most. For a long one, some tens of tries suffice for a key that most likely
/// never comes.
const RELEASE_RETRY_TRIES: u32 = 16;

/// Returns the delay between a report that a lock may be free and the waiter's attempt. `position` 1 is first in the
/// queue, 0 is unknown; `denials` counts its denials. No waiter knows how long others hold the lock; early waiters are
/// denied and keep their order.
pub(crate) fn wake_delay(position: u32, denials: u32, unit: f64) -> Duration {
    let patience = DENIAL_DECAY.powi(i32::try_from(denials.saturating_sub(1)).unwrap_or(i32::MAX));
    let slot = SLOT_FIRST.mul_f64(patience).max(SLOT_LEAST);
    let pause = match position {
        // The first or only waiter loses no time.
        1 => return Duration::ZERO,
        0 => return SLOT_FIRST.saturating_mul(denials.saturating_sub(1)).min(WAKE_DELAY_MOST).mul_f64(unit),
        _ => slot.saturating_mul(position - 1),
    };
    if pause >= WAKE_DELAY_MOST {
        return WAKE_DELAY_MOST.mul_f64(1.0 - WAKE_DELAY_SPREAD / 4.0 * unit);
    }
    pause.saturating_sub(pause.mul_f64(WAKE_DELAY_SPREAD).min(WAKE_DELAY_SPREAD_MOST).mul_f64(unit))
}

/// Returns the pause after an attempt whose votes were split, the `splits`th in a row. The votes `took` so long.
/// Waiters that asked at about the same time are spread over one round, and over more after each further split. There
/// is no pause below what a timer can measure: at such latencies jitter separates the waiters.
pub(crate) fn split(splits: u32, took: Duration, unit: f64) -> Duration {
    let pause = took.saturating_mul(splits.min(SPLIT_ROUNDS_MOST)).min(SPLIT_MOST).mul_f64(unit);
    if pause < SHORTEST { Duration::ZERO } else { pause }
}

/// Returns the time between two requests of a writer that waits for readers, and has so far asked `in_vain` so many times.
pub(crate) fn gather(in_vain: u32, unit: f64) -> Duration {
    GATHER_EACH.saturating_mul(in_vain).min(GATHER_MOST).mul_f64(1.0 - unit / 4.0)
}

/// Returns how long a reader leaves the lock to writers that wait.
pub(crate) fn deference(unit: f64) -> Duration {
    DEFERENCE.mul_f64(1.0 - unit / 4.0)
}

/// Returns how long a process leaves a lock that it just released to the `waiting` processes denied meanwhile.
pub(crate) fn hold_off(waiting: u32, unit: f64) -> Duration {
    let pause = HOLD_OFF + HOLD_OFF_EACH.saturating_mul(waiting);
    pause.mul_f64(1.0 - WAKE_DELAY_SPREAD * unit).min(WAKE_DELAY_MOST)
}

/// Returns the time after which a waiter asks without a notification.
pub(crate) fn backstop(ttl_left: Option<Duration>, unit: f64) -> Duration {
    let free = ttl_left.map_or(Duration::MAX, |left| left.saturating_add(SPREAD.mul_f64(unit)));
    free.min(BACKSTOP.mul_f64(1.0 - unit / 4.0)).max(SHORTEST)
}

/// Returns the pause before the next try for a held lock; `ttl_left` is the shortest remaining ttl that nodes reported.
pub(crate) fn contended(attempt: u32, unit: f64, ttl_left: Option<Duration>) -> Duration {
    let pause = jittered(doubled(CONTENDED_FIRST, CONTENDED_MOST, attempt), unit);
    let free = ttl_left.map_or(Duration::MAX, |left| left.saturating_add(SPREAD.mul_f64(unit)));
    pause.min(free).max(SHORTEST)
}

/// Returns the pause before the next round without a reachable quorum.
pub(crate) fn unavailable(attempt: u32, unit: f64) -> Duration {
    jittered(doubled(UNAVAILABLE_FIRST, UNAVAILABLE_MOST, attempt), unit)
}

/// Returns the pause before the next connect to a node that no quorum needs.
pub(crate) fn reconnect(attempt: u32, unit: f64) -> Duration {
    jittered(doubled(RECONNECT_FIRST, RECONNECT_MOST, attempt), unit).max(RECONNECT_FIRST)
}

/// Returns the pause before a provider is called again after failures.
pub(crate) fn provider(failures: u32, unit: f64) -> Duration {
    jittered(doubled(PROVIDER_FIRST, PROVIDER_MOST, failures), unit).max(PROVIDER_FIRST)
}

/// Returns when to ask for another login in place of one that was asked for at `began` and lives for `lasts`.
pub(crate) fn refresh(began: Moment, lasts: Duration, unit: f64) -> Moment {
    began.after(lasts.mul_f64(REFRESH_SHARE + REFRESH_SPREAD * unit).max(REFRESH_LEAST))
}

/// Returns when to renew a lock that was acquired or renewed at `start` for `ttl`.
pub(crate) fn renewal(start: Moment, ttl: Duration, unit: f64) -> Moment {
    let spread = 1.0 + RENEWAL_SPREAD * (2.0 * unit - 1.0);
    start.after(ttl.mul_f64(RENEWAL_SHARE * spread)).rounded(ttl / RENEWAL_BATCH).max(start)
}

/// Returns the pause before retrying an unanswered renewal of a lock with this `ttl`.
pub(crate) fn unanswered(ttl: Duration, unit: f64) -> Duration {
    jittered((ttl / UNANSWERED_SHARE).clamp(UNANSWERED_LEAST, UNANSWERED_MOST), unit)
}

/// Returns the time over which this many early renewals, or repeated releases, spread.
pub(crate) fn renewal_spread(locks: usize) -> Duration {
    RENEWAL_SPREAD_OF_MANY_EACH
        .saturating_mul(u32::try_from(locks).unwrap_or(u32::MAX))
        .max(RENEWAL_SPREAD_OF_MANY_LEAST)
}

/// Returns the pause before a pending release of a lock with this `ttl` is retried. It has no jitter: retries go in
/// turn, and no caller waits for them.
pub(crate) fn release_retry(attempt: u32, ttl: Duration) -> Duration {
    doubled(RELEASE_RETRY_FIRST, RELEASE_RETRY_MOST.max(ttl / RELEASE_RETRY_TRIES), attempt)
}

/// Returns when to handle releases not answered by `due`: a little later, together with those of that time.
pub(crate) fn unheard(due: Moment, node_timeout: Duration) -> Moment {
    let step = node_timeout / UNHEARD_BATCH;
    due.after(step).rounded(step)
}

fn doubled(first: Duration, most: Duration, attempt: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(attempt)).min(most)
}

/// Returns between half of `pause` and all of it: enough to part waiters that began together, and never near zero.
fn jittered(pause: Duration, unit: f64) -> Duration {
    pause / 2 + (pause / 2).mul_f64(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn steps() {
        let contended: Vec<_> = (0..8).map(|attempt| contended(attempt, 0.0, None)).collect();
        assert_eq!(contended, [4, 8, 16, 32, 64, 125, 125, 125].map(ms));
        let unavailable: Vec<_> = (0..7).map(|attempt| unavailable(attempt, 0.0)).collect();
        assert_eq!(unavailable, [25, 50, 100, 200, 400, 500, 500].map(ms));
        let reconnect: Vec<_> = (0..8).map(|attempt| reconnect(attempt, 0.0)).collect();
        assert_eq!(reconnect, [50, 50, 100, 200, 400, 500, 500, 500].map(ms), "never sooner than the first");
        let release_retry: Vec<_> = (0..8).map(|attempt| release_retry(attempt, ms(32_000))).collect();
        assert_eq!(release_retry, [50, 100, 200, 400, 800, 1600, 2000, 2000].map(ms));
        assert_eq!(super::release_retry(30, ms(86_400_000)), ms(5_400_000));
    }

    #[test]
    fn waiters_that_split_the_votes_are_spread_over_rounds() {
        assert_eq!(split(0, ms(300), 0.5), Duration::ZERO, "the votes were not split");
        assert_eq!(split(1, ms(300), 0.0), Duration::ZERO);
        assert_eq!(split(1, ms(300), 0.5), ms(150));
        assert_eq!(split(2, ms(300), 0.5), ms(300));
        assert_eq!(split(u32::MAX, ms(200), 0.5), ms(400));
        assert_eq!(split(1, ms(600_000), 0.5), ms(500), "the process was stopped meanwhile");
        assert_eq!(split(1, Duration::from_micros(1_998), 0.5), Duration::ZERO, "a timer would take longer");
    }

    #[test]
    fn the_line_is_let_in_in_its_order() {
        for unit in [0.0, 0.5, 1.0] {
            assert_eq!(wake_delay(1, 7, unit), Duration::ZERO, "the first one loses no time");
            assert_eq!(wake_delay(0, 1, unit), Duration::ZERO, "nor whoever was denied but once");
        }
        assert_eq!(wake_delay(0, 3, 0.5), SLOT_FIRST);
        assert_eq!(wake_delay(0, u32::MAX, 1.0), WAKE_DELAY_MOST);
        assert_eq!(wake_delay(2, 1, 0.0), SLOT_FIRST);
        assert_eq!(wake_delay(3, 1, 0.0), 2 * SLOT_FIRST);
        assert_eq!(wake_delay(2, 1, 1.0), SLOT_FIRST.mul_f64(1.0 - WAKE_DELAY_SPREAD));
        assert_eq!(wake_delay(11, 1, 1.0), (10 * SLOT_FIRST).saturating_sub(WAKE_DELAY_SPREAD_MOST));
        assert_eq!(wake_delay(2, u32::MAX, 0.0), SLOT_LEAST);
        assert_eq!(wake_delay(u32::MAX, 1, 0.0), WAKE_DELAY_MOST);
        assert_eq!(wake_delay(u32::MAX, 1, 1.0), WAKE_DELAY_MOST.mul_f64(1.0 - WAKE_DELAY_SPREAD / 4.0));
    }

    #[test]
    fn who_has_released_leaves_the_lock_to_others_for_longer_the_more_there_are() {
        assert_eq!(hold_off(0, 0.0), HOLD_OFF);
        assert_eq!(hold_off(3, 0.0), HOLD_OFF + 3 * HOLD_OFF_EACH);
        assert_eq!(hold_off(0, 1.0), HOLD_OFF.mul_f64(1.0 - WAKE_DELAY_SPREAD));
        assert_eq!(hold_off(u32::MAX, 0.0), WAKE_DELAY_MOST);
    }

    #[test]
    fn a_waiter_gathers_changes_of_a_shared_lock_for_longer_each_time() {
        assert_eq!(gather(0, 0.0), Duration::ZERO, "the first time at once");
        assert_eq!(gather(40, 0.0), ms(4));
        assert_eq!(gather(40, 1.0), ms(3));
        assert_eq!(gather(u32::MAX, 0.0), GATHER_MOST);
        assert_eq!([0.0, 1.0].map(deference), [ms(20), ms(15)]);
    }

    #[test]
    fn a_waiter_asks_when_the_key_ends_or_after_a_while() {
        assert_eq!(backstop(None, 0.0), BACKSTOP);
        assert_eq!(backstop(None, 1.0), BACKSTOP.mul_f64(0.75));
        assert_eq!(backstop(Some(ms(300)), 0.0), ms(300));
        assert_eq!(backstop(Some(ms(300)), 1.0), ms(300) + SPREAD);
        assert_eq!(backstop(Some(Duration::ZERO), 0.0), SHORTEST);
    }

    #[test]
    fn haste_grows_with_what_is_to_be_done() {
        assert_eq!([0, 1, 500, 10_000].map(renewal_spread), [50, 50, 50, 1_000].map(ms));
    }

    #[test]
    fn renewals_come_early_apart_and_in_batches() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        assert_eq!(renewal(at(0), ms(3_000), 0.0), at(900));
        assert_eq!(renewal(at(0), ms(3_000), 0.5), at(999), "down to a multiple of 3 ms");
        assert_eq!(renewal(at(1), ms(3_000), 0.5), at(999));
        assert!(renewal(at(0), ms(3_000), 0.999_999) <= at(1_100));
    }

    #[test]
    fn renewals_are_tried_again_well_before_the_ttl_is_over() {
        for (ttl, least) in [(100, 5), (1_000, 25), (10_000, 250), (86_400_000, 250)] {
            assert_eq!(unanswered(ms(ttl), 0.0), ms(least));
            assert!(unanswered(ms(ttl), 0.999_999) < 2 * ms(least));
        }
    }

    #[test]
    fn jitter_reaches_both_ends() {
        assert_eq!(unavailable(9, 0.0), ms(500));
        assert_eq!(unavailable(9, 0.5), ms(750));
        assert!(unavailable(9, 0.999_999) > ms(999));
    }

    #[test]
    fn a_known_ttl_shortens_the_pause() {
        assert_eq!(contended(20, 0.0, Some(ms(3))), ms(3));
        assert_eq!(contended(20, 0.5, Some(ms(3))), ms(8));
        assert_eq!(contended(20, 0.0, Some(Duration::ZERO)), SHORTEST, "never at once");
        assert_eq!(contended(0, 0.0, Some(ms(5000))), ms(4), "and never lengthens it");
        assert_eq!(contended(0, 0.5, Some(Duration::MAX)), ms(6));
    }

    proptest! {
        #[test]
        fn bounds(attempt in prop_oneof![0..12_u32, any::<u32>()], unit in 0.0..1.0_f64, left in any::<Option<u16>>()) {
            let left = left.map(|left| ms(u64::from(left)));
            let pause = contended(attempt, unit, left);
            prop_assert!(pause >= SHORTEST && pause <= CONTENDED_MOST);
            if let Some(left) = left {
                prop_assert!(pause <= left.max(SHORTEST) + SPREAD);
            }
            prop_assert!((UNAVAILABLE_FIRST / 2..=UNAVAILABLE_MOST).contains(&unavailable(attempt, unit)));
            prop_assert!((RECONNECT_FIRST..=RECONNECT_MOST).contains(&reconnect(attempt, unit)));
            prop_assert!((RELEASE_RETRY_FIRST..=RELEASE_RETRY_MOST).contains(&release_retry(attempt, ms(32_000))));
        }

        #[test]
        fn never_shorter_after_more_attempts(attempt in 0..u32::MAX, unit in 0.0..1.0_f64) {
            prop_assert!(contended(attempt, unit, None) <= contended(attempt + 1, unit, None));
            prop_assert!(unavailable(attempt, unit) <= unavailable(attempt + 1, unit));
            prop_assert!(reconnect(attempt, unit) <= reconnect(attempt + 1, unit));
            prop_assert!(release_retry(attempt, ms(100_000)) <= release_retry(attempt + 1, ms(100_000)));
        }
    }

    #[test]
    fn unheard_releases_are_seen_to_together_and_never_early() {
        let node_timeout = Duration::from_millis(400);
        let due = |micros| Moment::from_nanos(7).after(Duration::from_micros(micros));
        let mut times: Vec<_> =
            (0..1_000_000).step_by(100).map(|micros| (due(micros), unheard(due(micros), node_timeout))).collect();
        assert!(times.iter().all(|(due, seen)| (*due..=due.after(node_timeout / 8)).contains(seen)));
        times.dedup_by_key(|(_, seen)| *seen);
        assert_eq!(times.len(), 20);
    }
}
