//! Clients' actions with locks: fences, order, exclusion, losses.

use std::time::Duration;

use redlock_history::{Flaw, Kind, Record, Report, Rules, Violation};

use super::*;

/// Two clients in turn, the second waiting.
fn turns() -> Vec<Record> {
    vec![
        acquire("a", (0, 10), 1, 100),
        acquire("b", (5, 35), 2, 130),
        release("a", (30, 40), 1),
        release("b", (60, 70), 2),
    ]
}

#[test]
fn nothing_is_a_good_history() {
    assert_eq!(good(&STRICT, []), Report::default());
}

#[test]
fn taking_turns_is_good_and_counted() {
    let report = good(&STRICT, turns().into_iter().chain([denied("c", (12, 20))]));
    assert_eq!((report.records, report.names, report.clients), (5, 1, 3));
    assert_eq!((report.acquisitions, report.denied, report.losses), (2, 1, 0));
    assert_eq!(report.waits.median, Duration::from_nanos(10));
    assert_eq!(report.waits.longest, Duration::from_nanos(30));
    assert_eq!(
        report.to_string(),
        "5 records, 3 clients, 1 name: 2 acquisitions (wait median 10.0ns, 99 % 30.0ns, longest 30.0ns), 1 denied, 0 lost, \
         0 violations"
    );
}

#[test]
fn expiry_loss_and_a_failed_release_end_a_hold() {
    good(
        &STRICT,
        [
            acquire("a", (0, 10), 1, 50),
            lost("a", 55, 1),
            acquire("b", (20, 60), 2, 100),
            lost("b", 70, 2),
            acquire("c", (60, 71), 3, 200),
            failed(release("c", (80, 180), 3)),
            acquire("d", (90, 100), 4, 200),
            release("d", (195, 200), 4),
            // Released after its loss was told, as `with` does.
            failed(release("a", (130, 140), 1)),
        ],
    );
}

#[test]
fn a_loss_may_be_written_down_before_its_acquire() {
    good(&STRICT, [acquire("a", (0, 10), 1, 8), lost("a", 9, 1), acquire("b", (0, 10), 2, 50)]);
}

#[test]
fn an_extension_moves_the_end() {
    good(
        &STRICT,
        [
            acquire("a", (0, 10), 1, 50),
            extend("a", (20, 30), 1, 70),
            // An extension never shortens.
            extend("a", (31, 32), 1, 40),
            // The extension before it was invoked in time.
            extend("a", (65, 90), 1, 120),
            failed(extend("a", (100, 110), 1, 500)),
            lost("a", 121, 1),
            acquire("b", (0, 122), 2, 200),
        ],
    );
}

#[test]
fn a_failed_extension_moves_nothing() {
    good(
        &STRICT,
        [
            acquire("a", (0, 10), 1, 50),
            failed(extend("a", (20, 30), 1, 90)),
            acquire("b", (0, 52), 2, 99),
            release("a", (58, 60), 1),
            release("b", (70, 71), 2),
        ],
    );
}

#[test]
fn without_a_known_end_a_hold_lasts_until_it_is_released() {
    let open = |client, times, fence| record(client, Kind::Acquire, times, fence, None);
    good(
        &STRICT,
        [open("a", (0, 10), 1), release("a", (1000, 1010), 1), acquire("b", (900, 1005), 2, 1500), lost("b", 1500, 2)],
    );
    let violation = bad([open("a", (0, 10), 1), acquire("b", (500, 510), 2, 600), release("b", (520, 530), 2)]);
    assert!(matches!(violation, Violation::Overlap { .. }), "{violation}");
    assert!(violation.to_string().contains("never gave it back"), "{violation}");
}

#[test]
fn a_hold_at_the_end_of_the_history_owes_nothing() {
    good(&STRICT, [acquire("a", (0, 10), 1, 50), denied("b", (0, 60))]);
}

#[test]
fn a_fence_given_twice_is_caught() {
    let violation = bad([
        acquire("a", (0, 10), 7, 100),
        release("a", (20, 30), 7),
        acquire("b", (40, 50), 7, 140),
        release("b", (60, 70), 7),
    ]);
    let Violation::Duplicate { first, second } = &violation else { panic!("{violation}") };
    assert_eq!((first.client.as_str(), second.client.as_str()), ("a", "b"));
    assert_eq!(
        violation.to_string(),
        "lock \"foo\": fence 7 was given twice, to \"a\" at 0.000000010 s and to \"b\" at 0.000000050 s"
    );
}

#[test]
fn losses_of_a_fence_given_twice_find_their_own_acquire() {
    let violation =
        bad([acquire("a", (0, 10), 7, 50), lost("a", 55, 7), acquire("a", (60, 70), 7, 140), lost("a", 145, 7)]);
    assert!(matches!(violation, Violation::Duplicate { .. }), "{violation}");
}

#[test]
fn a_smaller_fence_later_is_caught() {
    let violation = bad([
        acquire("a", (0, 10), 2, 100),
        release("a", (20, 30), 2),
        acquire("b", (40, 50), 1, 140),
        release("b", (60, 70), 1),
    ]);
    let Violation::OutOfOrder { earlier, later } = &violation else { panic!("{violation}") };
    assert_eq!((earlier.fence, later.fence), (Some(2), Some(1)));
    assert!(violation.to_string().contains("got the smaller fence 1"), "{violation}");
}

#[test]
fn two_holders_at_once_are_caught() {
    let violation = bad([
        acquire("a", (0, 10), 1, 100),
        acquire("b", (20, 30), 2, 130),
        release("a", (50, 60), 1),
        release("b", (70, 80), 2),
    ]);
    let Violation::Overlap { first, second } = &violation else { panic!("{violation}") };
    assert_eq!((first.acquired.fence, second.acquired.fence), (Some(1), Some(2)));
    assert_eq!(
        violation.to_string(),
        "lock \"foo\": two holders at once: \"a\" (fence 1) held it from 0.000000010 s until its release at \
         0.000000050 s, and \"b\" (fence 2) held it from 0.000000030 s until its release at 0.000000070 s"
    );
}

#[test]
fn an_overlap_by_an_extension_is_caught() {
    let violation = bad([
        acquire("a", (0, 10), 1, 50),
        extend("a", (20, 30), 1, 90),
        acquire("b", (40, 60), 2, 150),
        lost("a", 95, 1),
        release("b", (100, 110), 2),
    ]);
    let Violation::Overlap { first, .. } = &violation else { panic!("{violation}") };
    assert_eq!(first.valid_until_ns(), Some(90));
    assert!(violation.to_string().contains("extended validity ended at 0.000000090 s"), "{violation}");
}

#[test]
fn a_loss_told_late_is_caught() {
    let violation = bad([acquire("a", (0, 10), 1, 50), lost("a", 61, 1)]);
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
    assert!(violation.to_string().contains("heard of it 11ns later"), "{violation}");
    good(&STRICT, [acquire("a", (0, 10), 1, 50), lost("a", 60, 1)]);
}

#[test]
fn a_loss_told_late_after_an_extension_is_caught() {
    let violation = bad([acquire("a", (0, 10), 1, 50), extend("a", (20, 30), 1, 70), lost("a", 81, 1)]);
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
}

#[test]
fn a_loss_never_told_is_caught() {
    let violation = bad([acquire("a", (0, 10), 1, 50), denied("b", (0, 61))]);
    let Violation::NeverTold { end_ns: 61, .. } = &violation else { panic!("{violation}") };
    assert!(violation.to_string().contains("until the end of the history at 0.000000061 s"), "{violation}");
}

#[test]
fn a_release_after_the_end_does_not_excuse_silence() {
    let violation = bad([acquire("a", (0, 10), 1, 50), failed(release("a", (61, 70), 1))]);
    let Violation::NeverTold { .. } = &violation else { panic!("{violation}") };
    assert!(violation.to_string().contains("before it released at 0.000000061 s"), "{violation}");
    good(&STRICT, [acquire("a", (0, 10), 1, 50), failed(release("a", (60, 70), 1)), lost("a", 80, 1)]);
}

#[test]
fn an_extension_after_a_loss_was_told_is_caught() {
    let violation = bad([acquire("a", (0, 10), 1, 50), lost("a", 30, 1), extend("a", (31, 35), 1, 90)]);
    assert!(matches!(violation, Violation::Revived { .. }), "{violation}");
    assert!(violation.to_string().contains("asked for at 0.000000031 s succeeded"), "{violation}");
}

#[test]
fn an_extension_after_the_release_is_caught() {
    let released = |at| [acquire("a", (0, 10), 1, 50), release("a", (20, 30), 1), extend("a", (at, 40), 1, 90)];
    let violation = bad(released(31));
    assert!(matches!(violation, Violation::Revived { .. }), "{violation}");
    // While the release is going on, another thread may still come first.
    good(&STRICT, released(25));
}

#[test]
fn an_extension_after_the_validity_is_caught() {
    let violation = bad([acquire("a", (0, 10), 1, 50), extend("a", (61, 65), 1, 120), release("a", (58, 70), 1)]);
    assert!(matches!(violation, Violation::Revived { .. }), "{violation}");
}

#[test]
fn a_release_of_what_nobody_acquired_is_caught() {
    assert_eq!(flaw(turns().into_iter().chain([release("a", (80, 90), 3)])), Flaw::NeverAcquired);
    assert_eq!(flaw(turns().into_iter().chain([named("bar", release("a", (80, 90), 1))])), Flaw::NeverAcquired);
    assert_eq!(flaw([failed(acquire("a", (0, 10), 1, 50)), release("a", (20, 30), 1)]), Flaw::NeverAcquired);
}

#[test]
fn an_extension_or_a_loss_of_what_nobody_acquired_is_caught() {
    assert_eq!(flaw([failed(extend("a", (0, 10), 1, 50))]), Flaw::NeverAcquired);
    assert_eq!(flaw([lost("a", 10, 1)]), Flaw::NeverAcquired);
}

#[test]
fn a_release_before_the_acquire_is_caught() {
    assert_eq!(flaw([acquire("a", (0, 10), 1, 50), release("a", (5, 20), 1)]), Flaw::BeforeAcquired);
}

#[test]
fn a_record_without_its_fence_is_caught() {
    let unfenced = |record| Record { fence: None, ..record };
    assert_eq!(flaw([unfenced(acquire("a", (0, 10), 1, 50))]), Flaw::NoFence);
    assert_eq!(flaw(turns().into_iter().chain([unfenced(release("a", (80, 90), 1))])), Flaw::NoFence);
}

#[test]
fn a_record_that_returns_before_it_was_invoked_is_caught() {
    assert_eq!(flaw([acquire("a", (10, 0), 1, 50), release("a", (20, 30), 1)]), Flaw::Backwards);
    assert_eq!(flaw([acquire("a", (0, 10), 1, 50), release("a", (30, 20), 1)]), Flaw::Backwards);
    assert_eq!(flaw([denied("a", (10, 0))]), Flaw::Backwards);
}

#[test]
fn a_rule_that_is_off_finds_nothing() {
    let overlap = [acquire("a", (0, 10), 1, 100), acquire("b", (20, 30), 2, 130)];
    let disorder = [acquire("a", (0, 10), 2, 15), acquire("b", (20, 30), 1, 130)];
    let silence = [acquire("a", (0, 10), 1, 50), denied("b", (0, 61))];
    let revival = [acquire("a", (0, 10), 1, 50), extend("a", (61, 65), 1, 120)];
    good(&Rules { exclusion: false, ..Rules::default() }, overlap);
    good(&Rules { order: false, ..Rules::default() }, disorder);
    good(&Rules::default(), silence);
    good(&Rules::default(), revival);
}

#[test]
fn faults_add_up() {
    let violations = judge(
        [
            acquire("a", (0, 10), 2, 100),
            acquire("b", (20, 30), 1, 130),
            acquire("c", (40, 50), 2, 150),
            release("b", (5, 6), 9),
            lost("a", 120, 2),
        ],
        &STRICT,
    )
    .violations;
    let shape: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert_eq!(shape.len(), 6, "{shape:#?}");
    for (sentence, word) in
        shape.iter().zip(["malformed", "twice", "smaller", "two holders", "two holders", "told late"])
    {
        assert!(sentence.contains(word), "{sentence:?} should speak of {word:?}");
    }
}

#[test]
fn a_lock_won_after_a_larger_fence_is_caught() {
    // b was granted it first. It can only return late because its keys were gone when a's acquire was granted.
    let asked = |at, fence, valid_until| {
        let a = [acquire("a", (0, 10), 2, 100), release("a", (20, 21), 2)];
        [&a[..], &[acquire("b", (at, 30), fence, valid_until), release("b", (40, 41), fence)]].concat()
    };
    let late = |fence, valid_until| asked(10, fence, valid_until);
    let violation = bad(late(1, 100));
    let Violation::Superseded { first, second } = &violation else { panic!("{violation}") };
    assert_eq!((first.acquired.fence, second.acquired.fence), (Some(2), Some(1)));
    assert!(violation.to_string().contains("won when it was over"), "{violation}");
    good(&STRICT, late(3, 100));
    // It had ended when it returned, and no client relied on it.
    good(&STRICT, late(1, 30));
    good(&Rules { exclusion: false, ..STRICT }, late(1, 100));
    // It was invoked after the other returned, so the order of the fences is enough.
    assert!(matches!(bad(asked(11, 1, 100)), Violation::OutOfOrder { .. }));
}

#[test]
fn an_extension_that_bridges_another_hold_is_caught() {
    let rules = Rules { exclusion: false, ..STRICT };
    let bridged = |at| {
        let b = [acquire("b", (5, 30), 2, 100), release("b", (35, 36), 2)];
        [&b[..], &[acquire("a", (0, 10), 1, 50), extend("a", (at, 45), 1, 90), release("a", (50, 51), 1)]].concat()
    };
    let violation = one(bridged(31), &rules);
    let Violation::Bridged { newer, extended } = &violation else { panic!("{violation}") };
    assert_eq!((newer.fence, extended.invoke_ns), (Some(2), 31));
    assert!(violation.to_string().contains("who asked at 0.000000031 s, extended fence 1"), "{violation}");
    // It was invoked before the other returned.
    good(&rules, bridged(30));
    good(&Rules { order: false, ..rules }, bridged(31));
    // With exclusion, it also counts as two holders at once.
    let violations = judge(bridged(31), &STRICT).violations;
    assert!(matches!(violations[..], [Violation::Bridged { .. }, Violation::Overlap { .. }]), "{violations:#?}");
}

#[test]
fn what_failed_or_never_came_back_carries_no_obligation() {
    let gone = |record| Record { return_ns: None, ..failed(record) };
    let unknown: [fn(Record) -> Record; 2] = [failed, gone];
    for unknown in unknown {
        let between = [
            // The fence of a again, a too small one and a too large one, all while a or b hold.
            unknown(acquire("c", (41, 50), 1, 140)),
            unknown(acquire("d", (41, 50), 0, 140)),
            unknown(acquire("e", (41, 50), 9, 140)),
            unknown(extend("a", (25, 28), 1, 500)),
        ];
        good(&STRICT, turns().into_iter().chain(between));
    }
}

#[test]
fn a_success_that_is_not_over_is_caught() {
    let open = |record| Record { return_ns: None, ..record };
    assert_eq!(flaw([open(acquire("a", (0, 10), 1, 50))]), Flaw::NotOver);
    assert_eq!(flaw(turns().into_iter().chain([open(release("a", (32, 40), 1))])), Flaw::NotOver);
    assert_eq!(flaw(turns().into_iter().chain([open(lost("b", 50, 2))])), Flaw::NotOver);
}
