//! What the SETNX protocol promises in its older ways, where each of them breaks, and that one step does not.
//!
//! `--nocapture` shows the shortest way to where each of them breaks, whose last line makes the second holder.

use redlock_model::search;
use redlock_model::setnx::{Second, Setnx, State, Way};

/// A ttl, and one that differs.
const TTL: Second = 2;
const LONG: Second = 5;

/// The first second; what ends before it is expired.
const START: Second = 10;

/// Time for a lock to be won, to expire and to be taken over three times.
const SECONDS: Second = 3 * (TTL + 2);

/// Clients that do not stall, and find what one that crashed has left.
fn model<const N: usize>(clients: [(Way, Second); N]) -> Setnx<N> {
    let left = Some(START - 1);
    Setnx { clients, stall: 0, release_stall: 0, copies: 1, left, time: (START, START + SECONDS) }
}

fn one_holder<const N: usize>(state: &State<N>) -> bool {
    state.holders() <= 1
}

#[track_caller]
fn assert_one_holder<const N: usize>(model: &Setnx<N>) {
    for left in [None, model.left] {
        let model = Setnx { left, ..model.clone() };
        let states = search(&model, one_holder).unwrap_or_else(|trace| panic!("{model:?} has two holders:\n{trace}"));
        assert!(states > 100, "{model:?} has only {states} states");
    }
}

#[track_caller]
fn assert_two_holders<const N: usize>(model: &Setnx<N>) {
    let way = search(model, one_holder).expect_err("there is a way to two holders");
    println!("{model:?}:\n{way}");
}

#[test]
fn del_and_setnx_has_two_holders() {
    // Both see the lock that is over, and the second one deletes that of the first.
    let model = model([(Way::DelSetnx, TTL); 2]);
    assert_two_holders(&model);
}

#[test]
fn getset_has_one_holder_when_nobody_stalls_and_ttls_are_equal() {
    for way in [Way::GetsetExpired, Way::GetsetSame] {
        assert_one_holder(&model([(way, TTL); 2]));
        assert_one_holder(&model([(way, TTL); 3]));
    }
}

#[test]
fn getset_bears_one_second_in_an_attempt_or_in_a_release_and_not_in_both() {
    let rows = [((1, 0), true), ((0, 1), true), ((1, 1), false), ((2, 0), false), ((0, 2), false)];
    for way in [Way::GetsetExpired, Way::GetsetSame] {
        for ((stall, release_stall), one) in rows {
            let model = Setnx { stall, release_stall, ..model([(way, TTL); 2]) };
            let holds = search(&model, one_holder).is_ok();
            assert_eq!(holds, one, "{way:?}, {stall} in an attempt and {release_stall} in a release");
        }
    }
}

#[test]
fn getset_has_two_holders_when_ttls_differ() {
    // B is denied, but what it leaves ends long before A's lock.
    let model = model([(Way::GetsetExpired, LONG), (Way::GetsetExpired, TTL)]);
    assert_two_holders(&model);
}

#[test]
fn one_step_has_one_holder_whatever_happens() {
    // Nothing limits how long a client of this way, or its release, is on the way between any two steps.
    let way = Way::OneStep;
    assert_one_holder(&model([(way, TTL), (way, TTL)]));
    assert_one_holder(&model([(way, TTL), (way, LONG)]));
    assert_one_holder(&model([(way, 1), (way, TTL), (way, LONG)]));
}

#[test]
fn one_step_goes_on_after_a_crash() {
    // However it came to be: in the second after its value the key is anybody's, and until then is one ttl and a second.
    let model = model([(Way::OneStep, 1), (Way::OneStep, TTL), (Way::OneStep, LONG)]);
    let goes_on = |state: &State<3>| {
        let end = state.value().unwrap_or(state.now());
        let waits = end.saturating_sub(state.now());
        waits <= LONG + 1 && state.at(end.max(state.now()) + 1).acquire(TTL).is_some()
    };
    search(&model, goes_on).unwrap_or_else(|trace| panic!("nobody gets it after\n{trace}"));
}

#[test]
fn one_step_has_two_holders_when_a_release_looks_at_no_clock() {
    let model = model([(Way::OneStepBlind, TTL); 2]);
    assert_two_holders(&model);
}

#[test]
fn one_step_has_two_holders_when_a_release_is_sent_again() {
    // No value tells one's own lock from the next one, so a release that may have been executed must not be repeated.
    let model = Setnx { copies: 2, ..model([(Way::OneStep, TTL); 2]) };
    assert_two_holders(&model);
}

#[test]
fn one_step_and_getset_exclude_each_other_as_getset_does() {
    for way in [Way::GetsetExpired, Way::GetsetSame] {
        assert_one_holder(&model([(Way::OneStep, TTL), (way, TTL)]));
        assert_one_holder(&model([(Way::OneStep, TTL), (way, TTL), (way, TTL)]));
        assert_one_holder(&model([(Way::OneStep, TTL), (Way::OneStep, TTL), (way, TTL)]));
    }
}

#[test]
fn one_step_is_taken_over_too_early_when_getset_has_a_shorter_ttl() {
    let model = model([(Way::OneStep, LONG), (Way::GetsetExpired, TTL)]);
    assert_two_holders(&model);
}
