//! Faults that need more than chance: each story forces the one interleaving in which its fault shows. The promise is kept
//! there; with the fault of a server planted, or with the patch in `tests/mutants` that names the story, it is not. All
//! other faults of servers are found by seeds, in `bites.rs`, or by the model, in `tests/model`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Fault, Leg, Network, Pace, World};
use redlock::{Guard, Redlock};
use redlock_simulation::calm::{self, bites, bits, holds, in_virtual_time};
use tokio::time::sleep;

const NAME: &str = "job";
const TTL: Duration = Duration::from_secs(10);

/// What every leg of a message takes, unless a story says otherwise.
const DELAY: Duration = Duration::from_millis(10);

/// How far a client's wall clock is ahead that takes much larger fences than others.
const AHEAD_MICROS: i64 = 30 * 1_000_000;

/// A network in which a story says what is slow, refused or doubled.
#[derive(Default)]
struct Ways(Mutex<Rules>);

#[derive(Default)]
struct Rules {
    /// Pairs of process and node that cannot reach each other.
    refused: Vec<(usize, usize)>,
    /// What a node has to have executed until the requests of a process to a node take longer.
    slow_from: Option<(&'static str, (usize, usize), Duration)>,
    slow: BTreeMap<(usize, usize), Duration>,
    /// After what time the next request of a process arrives once more.
    echo: Option<(usize, Duration)>,
}

impl Ways {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, process: usize, node: usize) {
        self.rules().refused.push((process, node));
    }

    /// Once a node has executed what a line of the trace begins with, what `process` sends to `node` takes so much longer.
    fn slow_from(&self, line: &'static str, process: usize, node: usize, by: Duration) {
        self.rules().slow_from = Some((line, (process, node), by));
    }
}

impl Network for Ways {
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate {
        let rules = self.rules();
        match leg {
            Leg::Connect if rules.refused.contains(&(process, node)) => Fate::Break,
            Leg::Write => Fate::Deliver(Duration::ZERO),
            Leg::Request => Fate::Deliver(DELAY + rules.slow.get(&(process, node)).copied().unwrap_or_default()),
            _ => Fate::Deliver(DELAY),
        }
    }

    fn echo(&self, process: usize, _: usize) -> Option<Duration> {
        self.rules().echo.take_if(|(of, _)| *of == process).map(|(_, later)| later)
    }

    fn note(&self, line: &dyn Fn() -> String) {
        let line = line();
        let mut rules = self.rules();
        if let Some((_, way, by)) =
            rules.slow_from.take_if(|(from, ..)| line.starts_with(*from) && line.contains("Ok("))
        {
            rules.slow.insert(way, by);
        }
    }
}

/// Nodes, and clients in processes of their own whose wall clocks differ.
struct Stage {
    ways: Arc<Ways>,
    world: World,
    clients: Vec<Redlock>,
}

impl Stage {
    fn new(nodes: usize, ahead_micros: &[i64]) -> Self {
        let (ways, world, []) = calm::stage::<Ways, 0>(nodes);
        let client = |(index, ahead_micros): (usize, &i64)| {
            let pace = Pace { ahead_micros: *ahead_micros, ..Pace::default() };
            let bits = bits(u8::try_from(index).unwrap_or(0));
            world.process(index, pace, bits).expect("nodes enough, and not too many")
        };
        let clients = ahead_micros.iter().enumerate().map(client).collect();
        Self { ways, world, clients }
    }

    async fn acquire(&self, client: usize) -> Guard {
        let lock = self.clients[client].lock(NAME).ttl(TTL).auto_renew(false).timeout(Duration::ZERO);
        lock.acquire().await.expect("the lock is free for this client")
    }

    fn has_key(&self, node: usize) -> bool {
        self.world.nodes()[node].keys().iter().any(|(key, _)| key == NAME)
    }

    async fn acquire_and_release(&self, client: usize) -> u64 {
        let guard = self.acquire(client).await;
        let fence = guard.fence();
        guard.release().await.expect("it is held");
        fence
    }
}

/// The machine sleeps past the end of the validity while the answer to an extension is on its way.
#[test]
fn an_extension_does_not_count_after_the_end_of_the_validity() {
    holds(async || {
        let (_, world, []) = calm::stage::<Ways, 0>(1);
        let (client, machine) = world.machine(0, Pace::default(), bits(0)).expect("a client");
        let lock = client.lock(NAME).ttl(TTL).auto_renew(false);
        let guard = Arc::new(lock.acquire().await.expect("it is free"));
        // The node learns the script.
        guard.extend().await.expect("it is held");
        sleep(TTL / 2).await;
        let extension = tokio::spawn({
            let guard = Arc::clone(&guard);
            async move { guard.extend().await }
        });
        // The node has extended the key by then, and the client has not heard of it.
        sleep(DELAY * 3 / 2).await;
        assert!(!extension.is_finished());
        machine.suspended(TTL * 6 / 10);
        let extended = extension.await.expect("no panic");
        extended.is_err() && !guard.is_held()
    });
}

/// A grant goes before its confirm arrives, and another client takes that node and the third one.
#[test]
fn a_confirm_does_not_count_where_the_grant_has_gone() {
    bites(Fault::BlindConfirm, async || {
        let stage = Stage::new(3, &[0, 0, AHEAD_MICROS]);
        // The second and the third node have seen a large fence, the first one has not.
        stage.ways.refuse(2, 0);
        stage.acquire_and_release(2).await;
        stage.ways.refuse(0, 2);
        stage.ways.refuse(1, 1);
        stage.clients[1].inspect(NAME).await.expect("two nodes answer");
        stage.ways.slow_from("node 1: process 1 acquire job with", 0, 0, DELAY * 20);
        let lock = stage.clients[0].lock(NAME).ttl(TTL).timeout(Duration::ZERO);
        let confirming = tokio::spawn(async move { lock.acquire().await });
        while stage.ways.rules().slow.is_empty() {
            sleep(DELAY / 10).await;
        }
        sleep(DELAY * 2).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        let other = stage.acquire(1).await;
        let result = confirming.await.expect("no panic");
        other.check().expect("its keys are there");
        result.is_err()
    });
}

/// The key is deleted, another client has the lock for a while, and then an acquire of the first one arrives once more.
#[test]
fn an_extension_does_not_count_where_the_key_was_granted_anew() {
    bites(Fault::ExtendByToken, async || {
        let stage = Stage::new(1, &[0, 0]);
        stage.ways.rules().echo = Some((0, DELAY * 100));
        let first = stage.acquire(0).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        let second = stage.acquire_and_release(1).await;
        assert!(second > first.fence());
        while !stage.has_key(0) {
            sleep(DELAY).await;
        }
        first.extend().await.is_err()
    });
}

/// The same of an acquire that is late, and has reached only one of the nodes that the other client had.
#[test]
fn a_grant_that_is_ahead_does_not_count_before_a_quorum_remembers_it() {
    holds(async || {
        let stage = Stage::new(3, &[0, AHEAD_MICROS]);
        for client in &stage.clients {
            client.inspect(NAME).await.expect("all nodes answer");
        }
        stage.ways.rules().slow.insert((0, 2), DELAY * 30);
        let first = stage.acquire(0).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        let second = stage.acquire_and_release(1).await;
        assert!(second > first.fence() && !stage.has_key(2));
        while !stage.has_key(2) {
            sleep(DELAY).await;
        }
        sleep(DELAY * 2).await;
        stage.ways.rules().slow.clear();
        first.extend().await.is_err()
    });
}

/// Another client has left its larger fence on one node alone. Then one of the others goes away.
#[test]
fn a_node_that_is_ahead_keeps_a_lock() {
    in_virtual_time(async {
        let stage = Stage::new(3, &[0, AHEAD_MICROS]);
        stage.ways.refuse(1, 0);
        stage.ways.refuse(1, 1);
        let alone = stage.clients[1].lock(NAME).ttl(TTL).timeout(Duration::ZERO);
        alone.acquire().await.expect_err("it reaches one node");
        stage.clients[0].inspect(NAME).await.expect("all nodes answer");
        stage.ways.rules().slow.insert((0, 2), DELAY);
        let lock = stage.clients[0].lock(NAME).ttl(TTL).timeout(Duration::ZERO);
        let guard = lock.acquire().await.expect("it is free");
        sleep(TTL / 2).await;
        stage.world.nodes()[0].crash(true);
        sleep(TTL * 3).await;
        guard.check().expect("two nodes have it");
        guard.release().await.expect("two nodes have it");
    });
}

/// The acquire does not reach a node, and another client has the lock for a while, there and on a node that loses the key.
#[test]
fn a_lock_is_not_put_back_above_a_fence_that_no_quorum_remembers() {
    holds(async || {
        let stage = Stage::new(3, &[0, AHEAD_MICROS]);
        stage.ways.refuse(0, 2);
        let first = stage.acquire(0).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        let second = stage.acquire_and_release(1).await;
        assert!(second > first.fence());
        stage.ways.rules().refused.clear();
        // The background connects to the third node, and asks it to take the lock back.
        sleep(TTL / 2).await;
        first.extend().await.is_err()
    });
}

/// What puts a lock back on a node arrives after its release, and after another client has had the lock.
#[test]
fn a_lock_is_not_put_back_below_a_later_fence() {
    bites(Fault::RestoreBlindly, async || {
        let stage = Stage::new(3, &[0, AHEAD_MICROS, 0]);
        stage.ways.refuse(1, 2);
        stage.ways.refuse(2, 1);
        let first = stage.acquire(0).await;
        // The node learns the scripts.
        stage.world.nodes()[0].delete(NAME.as_bytes());
        first.extend().await.expect("two nodes have it");
        sleep(DELAY * 10).await;
        assert!(stage.has_key(0), "it is put back");
        stage.world.nodes()[0].delete(NAME.as_bytes());
        // The extension finds the key gone, and what puts it back takes its time.
        stage.ways.slow_from("node 1: process 1 extend job", 0, 0, TTL / 5);
        first.extend().await.expect("two nodes have it");
        sleep(DELAY * 5).await;
        first.release().await.expect("two nodes have it");
        let second = stage.acquire_and_release(1).await;
        sleep(TTL / 4).await;
        // On the first node, and on the one that has not seen the second client.
        stage.acquire_and_release(2).await > second
    });
}
