//! A quorum of nodes is free, but one of them has restarted and its grants do not count yet: nobody may ask on and on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock::ErrorKind;
use redlock::testing::simulation::{Fate, Leg, Network, Pace, World};
use redlock_simulation::calm::{DELAY, bits, in_virtual_time};

const TTL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);

/// A look at the nodes every two seconds, with jitter, and the attempts before the first one.
const ATTEMPTS_MOST: usize = 20;

/// Calm, and every acquire is counted.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Network for Counting {
    fn fate(&self, _: usize, _: usize, _: Leg) -> Fate {
        Fate::Deliver(DELAY)
    }

    fn note(&self, line: &dyn Fn() -> String) {
        if line().starts_with("node 1: process 1 acquire ") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn who_waits_for_a_bar_to_end_does_not_ask_on_and_on() {
    in_virtual_time(async {
        let network = Arc::new(Counting::default());
        let world = World::new(Arc::clone(&network) as Arc<dyn Network>, &[Pace::default(); 3]);
        let client = world.process(0, Pace::default(), bits(0)).expect("a client");
        let lock = client.lock("job").ttl(TTL).timeout(TIMEOUT);
        // Seen before and after.
        lock.acquire().await.expect("it is free").release().await.expect("it was held");
        world.nodes()[2].crash(false);
        world.nodes()[2].start();
        client.inspect("job").await.expect("nodes answer");
        world.nodes()[0].take(b"job", 2 * TTL);
        let before = network.0.load(Ordering::Relaxed);
        let error = lock.acquire().await.expect_err("one node is held by a stranger, and one is barred");
        assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
        let attempts = network.0.load(Ordering::Relaxed) - before;
        assert!(attempts <= ATTEMPTS_MOST, "{attempts} attempts in {TIMEOUT:?}");
        // Once the bar has ended, the two free nodes are a quorum.
        let guard = client.lock("job").ttl(TTL).timeout(TTL).acquire().await.expect("the bar ends before the key");
        guard.release().await.expect("it is held");
    });
}
