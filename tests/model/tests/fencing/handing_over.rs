//! A lock that is handed over: it is detached, and then attached, by several at once.

use redlock::testing::simulation::Fault;
use redlock_model::fencing::{Ends, Fencing, HANDED_OVER, Mutant, NO_BRIDGE, ONE_ATTACHED};

use super::{assert_breaks, assert_holds};

/// The attempt that wins, another one, and those that attach the lock of the first.
type Handed<const A: usize, const K: usize = 1> = Fencing<3, A, K>;

fn handed<const A: usize, const K: usize>() -> Handed<A, K> {
    Fencing { attachments: 2, proposals: vec![1], first: vec![0], ..Fencing::default() }
}

#[test]
fn one_of_two_attachments_holds_the_lock() {
    assert_holds(&Fencing { copies: 1, ..handed::<1, 1>() }, 10_000);
}

#[test]
fn a_lock_that_is_handed_over_excludes_others() {
    assert_holds(&Fencing { attachments: 1, restores: false, ..handed::<2, 1>() }, 10_000);
}

#[test]
#[ignore = "make test-all: two million states"]
fn a_lock_that_is_handed_over_and_restored_excludes_others() {
    assert_holds(&Fencing { attachments: 1, ..handed::<2, 1>() }, 2_000_000);
}

#[test]
fn a_lock_of_several_names_is_handed_over() {
    assert_holds(&Fencing { names: [&[0, 1]], restores: false, ..handed::<1, 2>() }, 10_000);
}

#[test]
fn a_shared_lock_is_handed_over() {
    assert_holds(&Fencing { shared: [true], ..handed::<1, 1>() }, 10_000);
}

#[test]
fn every_rule_of_a_hand_over_is_needed() {
    let one = |fault| Fencing { copies: 1, mutant: Some(Mutant::Planted(fault)), ..handed::<1, 1>() };
    assert_breaks(&one(Fault::RekeyKeepsToken), &[ONE_ATTACHED, HANDED_OVER]);
    assert_breaks(&one(Fault::RekeyOfAny), &[ONE_ATTACHED]);
    assert_breaks(&one(Fault::RekeyByToken), &[ONE_ATTACHED]);
    let two = Fencing { attachments: 1, ends: Ends::Apart, ..handed::<2, 1>() };
    assert_breaks(&Fencing { mutant: Some(Mutant::Planted(Fault::RekeyByToken)), ..two }, &[NO_BRIDGE]);
}
