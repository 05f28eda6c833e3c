//! Several names, of which each attempt asks for some, and gets all of them or none.

use redlock::testing::model::Ask;
use redlock::testing::simulation::Fault;
use redlock_model::fencing::{DURABLE, EXCLUDES, Ends, Fencing, GIVEN_UP, MONO, Mutant, NO_BRIDGE, REAL_TIME, UNIQUE};

use super::{assert_breaks, assert_holds};

/// Two attempts at two names each, of which they have one in common.
type Sets = Fencing<3, 2, 3>;

/// Two attempts at one name and at two, in this order.
type OneAndTwo = Fencing<3, 2, 2>;

fn sets() -> Sets {
    Sets { names: [&[0, 1], &[1, 2]], proposals: vec![1], first: vec![0], ..Sets::default() }
}

fn one_and_two() -> OneAndTwo {
    OneAndTwo { names: [&[1], &[0, 1]], proposals: vec![1], first: vec![0], ..OneAndTwo::default() }
}

#[test]
#[ignore = "make test-all: more than a million states"]
fn two_sets_whose_keys_end_one_by_one() {
    assert_holds(&sets(), 1_000_000);
}

#[test]
fn two_sets_of_names() {
    assert_holds(&Sets { ends: Ends::Together, ..sets() }, 10_000);
}

#[test]
#[ignore = "make test-all: almost a million states"]
fn two_sets_of_names_that_nodes_remember_differently() {
    assert_holds(&Sets { first: vec![0, 1], ends: Ends::Together, ..sets() }, 100_000);
}

#[test]
#[ignore = "make test-all: three million states"]
fn two_sets_and_the_name_that_they_have_in_common() {
    let (names, proposals): ([&[usize]; 3], _) = ([&[0, 1], &[1, 2], &[1]], vec![1]);
    let ends = Ends::Together;
    let model = Fencing::<3, 3, 3> { names, proposals, first: vec![0], restores: false, ends, ..Fencing::default() };
    assert_holds(&model, 2_000_000);
}

#[test]
fn a_set_whose_acquires_arrive_twice() {
    assert_holds(&OneAndTwo { copies: 1, restores: false, ..one_and_two() }, 10_000);
}

/// A lock that is given back, with nothing under way that makes its keys anew.
fn given_back(ask: Ask, mutant: Option<Mutant>) -> Sets {
    Sets { gives_up: Some(ask), restores: false, ends: Ends::Never, mutant, ..sets() }
}

/// The same of one name, which alone has a least time.
fn left(mutant: Option<Mutant>) -> Fencing<3, 2> {
    let (proposals, first, ends) = (vec![1], vec![0], Ends::Never);
    Fencing { proposals, first, gives_up: Some(Ask::Leave), restores: false, ends, mutant, ..Fencing::default() }
}

#[test]
fn nothing_is_left_of_what_was_given_back() {
    assert_holds(&given_back(Ask::Release, None), 500);
    assert_holds(&left(None), 50);
}

#[test]
fn every_rule_about_all_names_is_needed() {
    let with = |fault| OneAndTwo { mutant: Some(Mutant::Planted(fault)), ..one_and_two() };
    assert_breaks(&with(Fault::FloorOfFirst), &[UNIQUE, REAL_TIME]);
    assert_breaks(&with(Fault::TakesFree), &[EXCLUDES]);
    assert_breaks(&with(Fault::RestoreFirst), &[MONO]);
    assert_breaks(&Sets { mutant: Some(Mutant::Planted(Fault::ConfirmFirst)), ..sets() }, &[UNIQUE, DURABLE]);
    assert_breaks(&with(Fault::ExtendAny), &[NO_BRIDGE]);
    assert_breaks(&given_back(Ask::Release, Some(Mutant::Planted(Fault::ReleaseFirst))), &[GIVEN_UP]);
    assert_breaks(&left(Some(Mutant::Planted(Fault::LeaveForgotten))), &[GIVEN_UP]);
}
