//! One name, which some attempts share with each other and others want alone.

use redlock::testing::model::Ask;
use redlock::testing::simulation::Fault;
use redlock_model::fencing::{DURABLE, Ends, Fencing, KEPT, Mutant, NO_BRIDGE, OWN_ORDER, REAL_TIME, UNIQUE};

use super::{assert_breaks, assert_holds};

/// Two attempts on three nodes, and all that may happen without a loss of data.
type Two = Fencing<3, 2>;

/// Three, of which some share the lock.
type Three = Fencing<3, 3>;

/// Whether an attempt shares the lock.
const R: bool = true;
const W: bool = false;

fn two(shared: [bool; 2]) -> Two {
    Two { shared, ..Two::default() }
}

/// In which order three begin matters little: whoever has begun may still be the last one that is heard. So one order of
/// each is looked at.
fn three(shared: [bool; 3]) -> Three {
    Three { shared, proposals: vec![1], first: vec![0], restores: false, ..Three::default() }
}

#[test]
fn two_of_whom_one_shares() {
    for shared in [[R, W], [W, R]] {
        assert_holds(&Two { proposals: vec![1], first: vec![0], ..two(shared) }, 10_000);
    }
}

#[test]
#[ignore = "make test-all: more than a million states"]
fn two_of_whom_one_shares_and_whose_proposals_differ() {
    assert_holds(&two([R, W]), 500_000);
    assert_holds(&two([W, R]), 500_000);
}

#[test]
#[ignore = "make test-all: two million states"]
fn two_who_share() {
    assert_holds(&two([R, R]), 1_500_000);
}

#[test]
#[ignore = "make test-all: more than a million states"]
fn two_whose_acquires_arrive_twice() {
    for shared in [[R, W], [W, R]] {
        assert_holds(&Two { proposals: vec![1], copies: 1, ..two(shared) }, 500_000);
    }
}

#[test]
#[ignore = "make test-all: three million states"]
fn three_of_whom_one_shares() {
    assert_holds(&three([W, W, R]), 2_000_000);
}

#[test]
#[ignore = "make test-all: fourteen million states"]
fn three_of_whom_two_share() {
    assert_holds(&three([W, R, R]), 10_000_000);
}

#[test]
#[ignore = "make test-all: two million states"]
fn one_loss_of_data_where_clocks_agree() {
    for shared in [[R, W], [W, R]] {
        assert_holds(&Two { losses: 1, ..two(shared) }, 1_000_000);
    }
}

/// Owners that give the lock back, with nothing under way that makes their keys anew.
fn given_back(mutant: Option<Mutant>) -> Three {
    Three { gives_up: Some(Ask::Release), ends: Ends::Never, mutant, ..three([R, R, W]) }
}

#[test]
#[ignore = "make test-all: a search of ten seconds"]
fn others_share_what_one_of_them_has_given_back() {
    assert_holds(&given_back(None), 1_000);
}

#[test]
fn somebody_wins() {
    assert_holds(&Three { ends: Ends::Never, ..three([W, R, R]) }, 200);
}

#[test]
fn every_rule_about_those_who_share_is_needed() {
    let planted = |fault| Some(Mutant::Planted(fault));
    let with = |shared, fault| Two { mutant: planted(fault), ..two(shared) };
    assert_breaks(&given_back(planted(Fault::ReleaseForAll)), &[KEPT]);
    assert_breaks(&with([R, W], Fault::ReaderForgotten), &[UNIQUE, REAL_TIME, DURABLE]);
    assert_breaks(&Three { mutant: planted(Fault::JoinsWithCurrent), ..three([R, R, W]) }, &[REAL_TIME]);
    assert_breaks(&with([R, W], Fault::ExtendWithoutPeriod), &[NO_BRIDGE]);
    // It takes an acquire that arrives twice: the second grant is of another period.
    let twice = Two { copies: 1, proposals: vec![1], ..with([R, W], Fault::ConfirmWithoutPeriod) };
    assert_breaks(&twice, &[UNIQUE, OWN_ORDER]);
    assert_breaks(&with([R, W], Fault::RestoreWithoutFence), &[NO_BRIDGE]);
}
