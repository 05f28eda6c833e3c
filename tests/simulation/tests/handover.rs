//! A lock goes from one call to another one of the same process.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Leg, Network, Pace, Program, Runtime};
use redlock::{Guard, Redlock};
use redlock_simulation::calm::{DELAY, bits, in_virtual_time, stage};
use tokio::sync::oneshot;

/// The last node's reply to the create comes so late that the lock is released first.
const LATE: Duration = Duration::from_millis(100);
const MOMENT: Duration = Duration::from_millis(30);
/// Longer than any story.
const LONG: Duration = Duration::from_secs(60);
/// Far below the time after which a waiter asks without news.
const SOON: Duration = Duration::from_millis(500);

#[derive(Default)]
struct LastIsLate(AtomicBool);

impl Network for LastIsLate {
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate {
        let is_late = process == 0 && node == 2 && leg == Leg::Reply && self.0.load(Ordering::Relaxed);
        Fate::Deliver(if is_late { LATE } else { DELAY })
    }
}

/// Begins to acquire the lock on `runtime`.
fn begin(runtime: &Runtime, client: &Redlock) -> oneshot::Receiver<Guard> {
    let (sender, acquired) = oneshot::channel();
    let lock = client.lock("job");
    runtime.spawn(async move { drop(sender.send(lock.acquire().await.expect("its turn comes"))) });
    acquired
}

/// Releases the lock on `runtime`.
async fn release(runtime: &Runtime, guard: Guard) {
    let (sender, released) = oneshot::channel();
    runtime.spawn(async move { drop(sender.send(guard.release().await)) });
    released.await.expect("the story goes on").expect("it was held");
}

/// The release goes behind an unanswered create, over the connection on which the process hears of changes: the node
/// does not report it there, and the first node reports nothing at all.
#[test]
fn a_waiter_learns_of_a_release_over_its_own_connection() {
    in_virtual_time(async {
        let (network, world, []) = stage::<LastIsLate, 0>(3);
        world.nodes()[0].lack(false, true);
        let [program, other] =
            [0, 1].map(|index| world.program(index, Pace::default(), bits(u8::try_from(index).expect("few"))));
        let [client, others] =
            [&program, &other].map(|program| program.client(&[0, 1, 2], &Redlock::builder()).expect("a client"));
        let [runtime, elsewhere] = [&program, &other].map(Program::runtime);
        let held = begin(&elsewhere, &others).await.expect("it is free");
        // It wins as a waiter does, over the connections that hear of changes.
        let first = begin(&runtime, &client);
        world.sleep(MOMENT).await;
        network.0.store(true, Ordering::Relaxed);
        release(&elsewhere, held).await;
        let first = first.await.expect("it is free");
        network.0.store(false, Ordering::Relaxed);
        let second = begin(&runtime, &client);
        world.sleep(MOMENT).await;
        let released = world.now();
        release(&runtime, first).await;
        let second = second.await.expect("it is free");
        let took = world.now().saturating_sub(released);
        assert!(took < SOON, "{took:?}");
        release(&runtime, second).await;
    });
}

/// The call beside it has one node for a moment, over the connection on which both of them hear of changes. The node does
/// not report that there. Seed 748 found it.
#[test]
fn a_set_learns_that_a_call_beside_it_has_given_a_name_back() {
    in_virtual_time(async {
        let (network, world, [client]) = stage::<LastIsLate, 1>(3);
        client.inspect("job").await.expect("all nodes answer");
        for node in &world.nodes()[1..] {
            node.take(b"job", LONG);
        }
        // An attempt that has the first node is lost only when the last one has answered.
        network.0.store(true, Ordering::Relaxed);
        let alone = tokio::spawn(client.lock("job").timeout(3 * LATE).into_future());
        // The next attempts of both begin within that time, and the set's is denied by what the other call has.
        world.sleep(MOMENT).await;
        let set = tokio::spawn(client.lock_all(["another", "job"]).into_future());
        alone.await.expect("no panic").expect_err("two nodes are taken");
        network.0.store(false, Ordering::Relaxed);
        world.sleep(SOON).await;
        let freed = world.now();
        world.nodes()[1].delete(b"job");
        let guard = set.await.expect("no panic").expect("two nodes are free");
        let took = world.now().saturating_sub(freed);
        assert!(took < SOON, "{took:?}");
        guard.release().await.expect("it is held");
    });
}
