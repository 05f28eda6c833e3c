//! A quorum of nodes is free, but one of them cannot grant, or its grants do not count because it has restarted: nobody may
//! ask on and on.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Leg, Network, Pace, World};
use redlock::{AnswerKind, ErrorKind};
use redlock_simulation::calm::{Calm, Counting, bits, in_virtual_time, stage};
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
        let (network, world, [client]) = stage::<Counting, 1>(3);
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
        let (network, world, clients) = stage::<Counting, PROCESSES>(3);
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
            // The last attempt may have met another one, which has the key for a moment where it counts.
            let is_held = error.nodes().iter().any(|answer| answer.kind == AnswerKind::Held);
            assert_eq!(error.kind(), if is_held { ErrorKind::Timeout } else { ErrorKind::Unavailable }, "{error}");
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

/// Calm, and every grant is counted, of whatever node.
#[derive(Debug, Default)]
struct Grants(AtomicUsize);

impl Network for Grants {
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate {
        Calm.fate(process, node, leg)
    }

    fn note(&self, line: &dyn Fn() -> String) {
        if line().contains("Granted") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One cluster is moving the slot of the semaphore, and can show that nobody has its permit, but not grant it. One grants it,
/// and in one a stranger has it. Seed 1842 found it.
#[test]
fn who_waits_for_a_permit_that_a_node_shows_and_cannot_grant_does_not_ask_on_and_on() {
    const PERMIT: &[u8] = b"redlock:slot:0:{pool}";
    /// Two for each pause, which grows to a quarter of a second at most and is half of that at least.
    const GRANTS_MOST: usize = 160;
    in_virtual_time(async {
        let network = Arc::new(Grants::default());
        let world = World::of_clusters(Arc::clone(&network) as Arc<dyn Network>, &[Pace::default(); 3]);
        let client = world.process(0, Pace::default(), bits(0)).expect("a client");
        let semaphore = client.semaphore("pool", 1).ttl(TTL);
        // The slot of the cluster keeps the fence.
        semaphore.acquire().await.expect("it is free").release().await.expect("it was held");
        let [moving, _, taken] = world.clusters() else { panic!("three clusters") };
        let from = moving.owner(PERMIT);
        let to = moving.primaries().into_iter().find(|server| !server.is(from)).expect("several shards").clone();
        moving.open(PERMIT, &to);
        taken.owner(PERMIT).take(PERMIT, 2 * TTL);
        let before = network.0.load(Ordering::Relaxed);
        let error = semaphore.clone().timeout(TIMEOUT).acquire().await.expect_err("one cluster can grant it");
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let grants = network.0.load(Ordering::Relaxed) - before;
        assert!((1..=GRANTS_MOST).contains(&grants), "{grants} grants in {TIMEOUT:?}");
        moving.move_all(PERMIT);
        moving.close(PERMIT, &to);
        moving.settle();
        let guard = semaphore.timeout(MOMENT).acquire().await.expect("two clusters can grant it");
        guard.release().await.expect("it is held");
    });
}

/// No server has all permits of the semaphore, nor both keys of any. None can be acquired, and each can be looked at.
#[test]
fn who_waits_for_a_permit_outlasts_an_open_slot() {
    const PERMITS: u32 = 3;
    const MOVED: [&str; 3] = ["redlock:slot:0:{pool}", "redlock:slot:1:{pool}", "redlock:fence::redlock:slot:2:{pool}"];
    /// Far longer than a call goes on while no quorum answers.
    const LONG: Duration = Duration::from_secs(60);
    in_virtual_time(async {
        let world = World::of_clusters(Arc::new(Calm), &[Pace::default()]);
        let [holder, other] = [0, 1].map(|index| {
            let bits = bits(u8::try_from(index).expect("few processes"));
            world.process(index, Pace::default(), bits).expect("a client")
        });
        let mut guards = Vec::new();
        for _ in 0..PERMITS {
            guards.push(holder.semaphore("pool", PERMITS).ttl(TTL).acquire().await.expect("one is free"));
        }
        let waiting = tokio::spawn(other.semaphore("pool", PERMITS).ttl(TTL).into_future());
        sleep(MOMENT).await;
        let [cluster] = world.clusters() else { panic!("one cluster") };
        let from = cluster.owner(b"{pool}");
        let to = cluster.primaries().into_iter().find(|server| !server.is(from)).expect("several shards").clone();
        cluster.open(b"{pool}", &to);
        for key in MOVED {
            cluster.move_key(key.as_bytes());
        }
        sleep(LONG).await;
        assert!(!waiting.is_finished(), "all permits are held");
        cluster.move_all(b"{pool}");
        cluster.close(b"{pool}", &to);
        cluster.settle();
        guards.swap_remove(0).release().await.expect("it is held");
        let guard = timeout(MOMENT, waiting).await.expect("soon").expect("no panic").expect("one is free");
        guard.release().await.expect("it is held");
    });
}
