//! A node's clock is set back while it has a key. The key lives as much longer, by the node's clock alone. Only where no
//! server's clock steps back does a crashed holder block others for one ttl.

use std::time::Duration;

use redlock_simulation::{Outcome, Plan, Story, Trouble, tell};

const TTL: Duration = Duration::from_secs(30);

/// How far the clock is set back, in microseconds.
const BACK: i64 = 15 * 60 * 1_000_000;

fn on_one_node(story: impl AsyncFnOnce(&mut Story<'_>)) -> Outcome {
    tell(&Plan::quiet(Trouble::Clocks, 1, 2), story)
}

/// Seed 1508044 blamed the lock for this.
#[test]
fn the_key_of_a_killed_holder_lives_as_long_as_the_clock_was_set_back() {
    let outcome = on_one_node(async |story| {
        let hold = story.hold(0, TTL).await;
        story.kill(0, hold);
        story.step_clock(0, -BACK);
        story.wait(TTL * 4).await;
    });
    assert!(outcome.flaws.is_empty(), "{:#?}", outcome.flaws);
}

/// Seed 902262 blamed the lock for this. The holder gives a release up that could not be sent for one ttl: by then the
/// key has expired, unless the clock was set back.
#[test]
fn the_key_of_a_holder_that_stood_still_lives_as_long_as_the_clock_was_set_back() {
    let outcome = on_one_node(async |story| {
        let hold = story.hold(0, TTL).await;
        story.node(0).freeze();
        hold.give_back();
        story.wait(Duration::from_millis(10)).await;
        story.stop(0);
        // The frozen node never executes the release that it has been sent.
        story.node(0).crash(true);
        story.step_clock(0, -BACK);
        story.node(0).start();
        story.wait(TTL * 2).await;
        story.go_on(0);
    });
    assert!(outcome.flaws.is_empty(), "{:#?}", outcome.flaws);
}

/// Seed 77005077 blamed the lock for this. A release that could not be sent for one ttl is given up, because the key has
/// expired by then; and a server deletes what has expired by itself, so that a later step does not bring it back.
#[test]
fn a_key_that_has_expired_on_a_server_that_runs_does_not_come_back_with_its_clock() {
    let outcome = on_one_node(async |story| {
        let hold = story.hold(0, TTL).await;
        story.node(0).hang_up(true);
        hold.give_back();
        story.wait(TTL * 2).await;
        story.step_clock(0, -BACK);
        story.node(0).hang_up(false);
        story.wait(TTL).await;
    });
    assert!(outcome.flaws.is_empty(), "{:#?}", outcome.flaws);
}

/// Keys that were made after the step are not excused.
#[test]
fn a_key_that_is_never_given_back_is_a_leak_where_the_clock_was_set_back_before() {
    let outcome = on_one_node(async |story| {
        story.step_clock(0, -BACK);
        story.hold(0, TTL * 10).await.keep();
        story.wait(TTL).await;
    });
    assert!(outcome.flaws.iter().any(|flaw| flaw.contains("leaked")), "{:#?}", outcome.flaws);
}
