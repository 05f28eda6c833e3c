//! Machines that stand still: time passes for the servers and for everybody else.
//!
//! Virtual time is the holder's own: its timers count it. What passes elsewhere in between is a step of the nodes' clocks,
//! and of the holder's clock where the operating system tells that it slept.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redlock::testing::simulation::{Machine, Pace, World};
use redlock::{Error, Guard, LostReason, Redlock};
use redlock_simulation::calm::{Calm, bits, in_virtual_time};
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(10);
const NIGHT: Duration = Duration::from_secs(8 * 3_600);
const NAP: Duration = Duration::from_secs(2);

/// How late a suspend is noticed where no timer of the operating system counts it, as no simulated one does.
const TICK: Duration = Duration::from_millis(255);

struct Stage {
    world: World,
    holder: Redlock,
    machine: Machine,
    other: Redlock,
}

impl Stage {
    fn new(nodes: usize) -> Self {
        let world = World::new(Arc::new(Calm), &vec![Pace::default(); nodes]);
        let (holder, machine) = world.machine(0, Pace::default(), bits(0)).expect("a client");
        let other = world.process(1, Pace::default(), bits(1)).expect("a client");
        Self { world, holder, machine, other }
    }

    async fn hold(&self) -> Guard {
        self.holder.lock("job").ttl(TTL).acquire().await.expect("it is free")
    }

    /// Time passes on the servers only.
    fn passes_elsewhere(&self, duration: Duration) {
        let micros = i64::try_from(duration.as_micros()).expect("some hours");
        self.world.nodes().iter().for_each(|node| node.step_clock(micros));
    }
}

/// Runs `story` on one node and on five, in virtual time.
fn on_one_and_five<F: Future<Output = ()>>(story: impl Fn(Stage) -> F) {
    for nodes in [1, 5] {
        in_virtual_time(async { story(Stage::new(nodes)).await });
    }
}

async fn told(guard: &Guard, within: Duration) -> Error {
    timeout(within, guard.lost()).await.expect("the loss is told in time")
}

#[test]
fn a_suspend_beyond_the_validity_is_told_as_the_machine_wakes_up() {
    on_one_and_five(|stage| async move {
        let guard = stage.hold().await;
        sleep(Duration::from_secs(1)).await;
        stage.machine.suspended(NIGHT);
        stage.passes_elsewhere(NIGHT);
        let woke = Instant::now();
        let error = told(&guard, TICK).await;
        assert!(woke.elapsed() <= TICK);
        assert_eq!(error.reason(), Some(LostReason::Expired));
        assert!(guard.check().is_err());
    });
}

#[test]
fn a_lock_that_expired_before_max_hold_is_not_lost_by_it() {
    on_one_and_five(|stage| async move {
        let lock = stage.holder.lock("job").ttl(TTL).max_hold(6 * TTL);
        let guard = lock.acquire().await.expect("it is free");
        stage.machine.suspended(NIGHT);
        assert_eq!(guard.check().expect_err("it is over").reason(), Some(LostReason::Expired));
        drop(guard);
        let guard = lock.acquire().await.expect("it is free");
        // A renewal has reached the limit by then.
        sleep(5 * TTL + 4 * NAP).await;
        stage.machine.suspended(NIGHT);
        assert_eq!(guard.check().expect_err("it is over").reason(), Some(LostReason::MaxHold));
    });
}

#[test]
fn who_asks_after_a_suspend_is_never_told_that_the_lock_is_held() {
    on_one_and_five(|stage| async move {
        let guard = stage.hold().await;
        stage.machine.suspended(TTL);
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(guard.check().expect_err("it is over").reason(), Some(LostReason::Expired));
        assert_eq!(guard.extend().await.expect_err("it is over").reason(), Some(LostReason::Expired));
    });
}

#[test]
fn a_lock_outlives_naps_that_leave_time_for_a_renewal() {
    on_one_and_five(|stage| async move {
        let guard = stage.hold().await;
        for _ in 0..20 {
            // Every renewal comes due while the machine sleeps.
            sleep(Duration::from_secs(2)).await;
            let before = guard.remaining();
            stage.machine.suspended(NAP);
            stage.passes_elsewhere(NAP);
            assert!(guard.remaining() + NAP <= before + Duration::from_millis(1), "it has not counted the nap");
            guard.check().expect("there is time left");
            sleep(TICK + Duration::from_millis(50)).await;
            assert!(guard.remaining() > TTL / 2, "it is not renewed in time: {:?}", guard.remaining());
        }
        guard.release().await.expect("it was held all the time");
    });
}

/// A virtual machine that is stopped and continued may not know: no clock of its own has moved. The next renewal tells,
/// and the fence protects until then.
#[test]
fn a_pause_that_no_clock_shows_is_told_by_the_next_renewal() {
    on_one_and_five(|stage| async move {
        let guard = stage.hold().await;
        stage.passes_elsewhere(NIGHT);
        let taker = stage.other.lock("job").ttl(TTL).acquire().await.expect("it has expired");
        assert!(taker.fence() > guard.fence());
        let error = told(&guard, TTL * 4 / 10).await;
        assert_eq!(error.reason(), Some(LostReason::Taken));
        assert!(error.nodes().iter().any(|node| node.answer == "held by process-2"), "{error}");
        assert_eq!(guard.release().await.expect_err("it is another's").reason(), Some(LostReason::Taken));
        taker.check().expect("nothing was taken from it");
        taker.release().await.expect("it is still held");
    });
}

/// Its release was on the way.
#[test]
fn a_lock_that_expires_during_its_release_was_not_deleted() {
    on_one_and_five(|stage| async move {
        let lock = stage.holder.lock("job").ttl(TTL).auto_renew(false);
        let guard = lock.acquire().await.expect("it is free");
        sleep(guard.remaining().saturating_sub(Duration::from_millis(1))).await;
        let mut release = Box::pin(guard.release());
        assert!(timeout(Duration::ZERO, release.as_mut()).await.is_err(), "it is on its way");
        let over = Duration::from_millis(200);
        stage.machine.suspended(over);
        stage.passes_elsewhere(over);
        assert_eq!(release.await.expect_err("it is over").reason(), Some(LostReason::Expired));
    });
}
