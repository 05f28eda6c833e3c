//! A quorum of nodes is free, but one of them has restarted and its grants do not count yet: nobody may ask on and on.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use redlock::ErrorKind;
use redlock::testing::simulation::{Network, Pace, World};
use redlock_simulation::calm::{Counting, bits, in_virtual_time};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Far less than the pauses that add up while no quorum answers.
const MOMENT: Duration = Duration::from_secs(2);

/// A look at the nodes every two seconds, with jitter, and the attempts before the first one.
const ATTEMPTS_MOST: usize = 20;

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
        let before = network.acquires();
        let error = lock.acquire().await.expect_err("one node is held by a stranger, and one is barred");
        assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
        let attempts = network.acquires() - before;
        assert!(attempts <= ATTEMPTS_MOST, "{attempts} attempts in {TIMEOUT:?}");
        // Once the bar has ended, the two free nodes are a quorum.
        let guard = client.lock("job").ttl(TTL).timeout(TTL).acquire().await.expect("the bar ends before the key");
        guard.release().await.expect("it is held");
    });
}

/// One node hangs up and one does not count yet, so that nobody can win. Each attempt takes the lock on two nodes and
/// releases it, which is a change for all others.
#[test]
fn waiters_of_several_processes_do_not_wake_each_other_on_and_on() {
    const PROCESSES: usize = 3;
    in_virtual_time(async {
        let network = Arc::new(Counting::default());
        let world = World::new(Arc::clone(&network) as Arc<dyn Network>, &[Pace::default(); 3]);
        let clients: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let bits = bits(u8::try_from(process).expect("few processes"));
                world.process(process, Pace::default(), bits).expect("a client")
            })
            .collect();
        for client in &clients {
            client.inspect("job").await.expect("nodes answer");
        }
        world.nodes()[0].hang_up(true);
        world.nodes()[2].crash(false);
        world.nodes()[2].start();
        for client in &clients {
            client.inspect("job").await.expect("nodes answer");
        }
        let waiting: Vec<_> = clients
            .iter()
            .map(|client| tokio::spawn(client.lock("job").ttl(TTL).timeout(TIMEOUT).into_future()))
            .collect();
        for call in waiting {
            let error = call.await.expect("no panic").expect_err("only one node counts");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        let attempts = network.acquires();
        // Each is made twice, because a connection was closed during the first.
        assert!(attempts <= 2 * PROCESSES * ATTEMPTS_MOST, "{attempts} attempts in {TIMEOUT:?}");
        // A node that is back wakes them: long before the node counts again.
        let lock = clients[0].lock("job").ttl(TTL).timeout(TTL);
        let waiting = tokio::spawn(lock.into_future());
        sleep(TIMEOUT).await;
        world.nodes()[0].hang_up(false);
        let guard = timeout(MOMENT, waiting).await.expect("at once").expect("no panic").expect("two nodes count");
        guard.release().await.expect("it is held");
    });
}
