//! Nodes that do not report changes: waiters poll them.

use std::sync::Arc;
use std::time::Duration;

use redlock::testing::simulation::{Pace, World};
use redlock::{ErrorKind, Redlock};
use redlock_simulation::calm::{Counting, bits, in_virtual_time, stage};

const TTL: Duration = Duration::from_secs(30);

/// Nodes that do not report changes, and a client of theirs.
fn world(nodes: usize) -> (Arc<Counting>, World, Redlock) {
    let (network, world, [client]) = stage(nodes);
    for node in world.nodes() {
        node.lack(false, true);
    }
    (network, world, client)
}

/// A free minority is left alone.
#[test]
fn a_waiter_without_reports_looks_before_it_tries() {
    const TIMEOUT: Duration = Duration::from_secs(10);
    /// The caller's attempt and the background's, each of which may send the script again.
    const ATTEMPTS_MOST: usize = 4;
    in_virtual_time(async {
        let (network, world, client) = world(3);
        world.nodes()[0].take(b"job", TTL);
        world.nodes()[2].take(b"job", TTL);
        let lock = client.lock("job").ttl(TTL);
        let error = lock.clone().timeout(TIMEOUT).acquire().await.expect_err("a stranger has two nodes");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let attempts = network.acquires();
        assert!(attempts <= ATTEMPTS_MOST, "{attempts} attempts in {TIMEOUT:?}");
        // Its keys end, which nobody reports either.
        lock.timeout(TTL).acquire().await.expect("it is free soon").release().await.expect("it is held");
    });
}

/// The pauses are at most 16, 32, 64 and 128 ms, after the caller's attempt and the background's.
#[test]
fn pauses_double_from_one_attempt_to_the_next() {
    const TIMEOUT: Duration = Duration::from_millis(280);
    const ATTEMPTS: usize = 6;
    in_virtual_time(async {
        let (network, world, _) = world(2);
        let program = world.program(1, Pace::default(), bits(1));
        // Only the node whose acquires are counted.
        let client = program.client(&[1], &Redlock::builder()).expect("a client");
        let lock = client.lock("job").ttl(TTL);
        lock.acquire().await.expect("it is free").release().await.expect("it is held");
        world.nodes()[1].take(b"job", TTL);
        let before = network.acquires();
        let error = lock.timeout(TIMEOUT).acquire().await.expect_err("a stranger has it");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let attempts = network.acquires() - before;
        assert!(attempts >= ATTEMPTS, "{attempts} attempts in {TIMEOUT:?}");
    });
}
