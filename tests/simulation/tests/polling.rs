//! Nodes that do not report changes: a waiter looks at them, and takes no key before a quorum is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock::ErrorKind;
use redlock::testing::simulation::{Fate, Leg, Network, Pace, World};
use redlock_simulation::calm::{DELAY, bits, in_virtual_time};

const TTL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The caller's attempt, the background's, and one when the script is sent.
const ATTEMPTS_MOST: usize = 4;

/// Calm, and every request for the last node's key is counted.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Network for Counting {
    fn fate(&self, _: usize, _: usize, _: Leg) -> Fate {
        Fate::Deliver(DELAY)
    }

    fn note(&self, line: &dyn Fn() -> String) {
        let line = line();
        if line.starts_with("node 3: ") && line.contains(" acquire ") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_waiter_without_reports_looks_before_it_tries() {
    in_virtual_time(async {
        let network = Arc::new(Counting::default());
        let world = World::new(Arc::clone(&network) as Arc<dyn Network>, &[Pace::default(); 3]);
        for node in world.nodes() {
            node.lack(false, true);
        }
        let client = world.process(0, Pace::default(), bits(0)).expect("a client");
        world.nodes()[0].take(b"job", TTL);
        world.nodes()[1].take(b"job", TTL);
        let lock = client.lock("job").ttl(TTL);
        let error = lock.clone().timeout(TIMEOUT).acquire().await.expect_err("a stranger has two nodes");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let attempts = network.0.load(Ordering::Relaxed);
        assert!(attempts <= ATTEMPTS_MOST, "{attempts} attempts in {TIMEOUT:?}");
        // Its keys end, which nobody reports either.
        lock.timeout(TTL).acquire().await.expect("it is free soon").release().await.expect("it is held");
    });
}
