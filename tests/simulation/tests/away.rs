//! A server that is far away, or busy.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlock::Redlock;
use redlock::testing::simulation::{Fate, Leg, Network, Node, World};
use redlock_simulation::calm::{self, in_virtual_time};
use tokio::time::sleep;

const NAME: &str = "job";

/// Of locks that do not end by themselves within a story.
const LONG: Duration = Duration::from_secs(600);

/// The way to a server that is far away, or back, in milliseconds. Two round trips take longer than a `node_timeout`.
const FAR: u64 = 170;

/// The least time after which a waiter asks although nothing has told of a change.
const BACKSTOP_LEAST: Duration = Duration::from_millis(1_500);

/// A server at a distance. What the second process asks is counted.
#[derive(Default)]
struct Distance {
    way_ms: AtomicU64,
    asked: AtomicU64,
}

impl Network for Distance {
    fn fate(&self, process: usize, _: usize, leg: Leg) -> Fate {
        // A socket takes a request at once, however far the server is.
        if leg == Leg::Write {
            return Fate::Deliver(Duration::ZERO);
        }
        self.asked.fetch_add(u64::from((process, leg) == (1, Leg::Request)), Ordering::Relaxed);
        Fate::Deliver(Duration::from_millis(self.way_ms.load(Ordering::Relaxed)))
    }
}

/// A server at this distance, and two processes.
fn stage(way_ms: u64) -> (Arc<Distance>, World, [Redlock; 2]) {
    let (distance, world, clients) = calm::stage::<Distance, 2>(1);
    distance.way_ms.store(way_ms, Ordering::Relaxed);
    (distance, world, clients)
}

/// The server is the same one, and has kept its data, but neither its connections nor the scripts.
fn restart(node: &Node) {
    node.crash(true);
    node.start();
}

#[test]
fn a_server_far_away_is_waited_for_without_asking() {
    in_virtual_time(async {
        let (distance, world, [holder, waiter]) = stage(FAR);
        // The server knows the scripts then.
        holder.lock(NAME).acquire().await.expect("it answers in time").release().await.expect("it answers in time");
        let guard = holder.lock(NAME).ttl(LONG).try_acquire().await.expect("it answers in time").expect("it is free");
        let renewed = holder.lock("renewed").ttl(4 * BACKSTOP_LEAST).acquire().await.expect("it answers in time");
        let waiting = tokio::spawn(waiter.lock(NAME).into_future());
        sleep(LONG / 100).await;
        let before = distance.asked.load(Ordering::Relaxed);
        sleep(10 * BACKSTOP_LEAST).await;
        let asked = distance.asked.load(Ordering::Relaxed) - before;
        assert!(asked <= 10, "{asked} questions");
        assert!(renewed.is_held(), "renewals are answered in time");
        let released = world.now();
        guard.release().await.expect("it answers in time");
        let guard = waiting.await.expect("no panic").expect("its turn comes");
        let took = world.now().saturating_sub(released);
        // The release, the notification, and a round trip.
        assert!(took <= Duration::from_millis(4 * FAR + 5), "{took:?}");
        guard.release().await.expect("it answers in time");
    });
}

/// Each of its answers comes in time, and all that a call needs take longer.
#[test]
fn a_server_far_away_may_have_hung_up_and_forgotten_the_scripts() {
    in_virtual_time(async {
        let (_, world, [client, _]) = stage(FAR);
        let node = &world.nodes()[0];
        let lock = client.lock(NAME).ttl(LONG).auto_renew(false).restart_delay(Duration::ZERO);
        lock.acquire().await.expect("it answers in time").release().await.expect("it answers in time");
        restart(node);
        let guard = lock.try_acquire().await.expect("it answers in time").expect("it is free");
        restart(node);
        guard.extend().await.expect("it answers in time");
        restart(node);
        guard.release().await.expect("it answers in time");
    });
}

#[test]
fn a_release_waits_longer_for_a_busy_server_than_other_requests() {
    for (way_ms, is_confirmed) in [(100, true), (150, false)] {
        in_virtual_time(async {
            let (distance, _, [client, _]) = stage(1);
            let lock = client.lock(NAME).node_timeout(Duration::from_millis(20)).auto_renew(false);
            lock.acquire().await.expect("it is free").release().await.expect("it is held");
            let guard = lock.acquire().await.expect("it is free");
            distance.way_ms.store(way_ms, Ordering::Relaxed);
            // The limit is 250 ms.
            assert_eq!(guard.release().await.is_ok(), is_confirmed, "{way_ms} ms each way");
        });
    }
}
