//! Faults that need more than chance: each story forces the one interleaving in which its fault shows. The promise is kept
//! there; with the fault of a server planted, or with the patch in `tests/mutants` that names the story, it is not. All
//! other faults of servers are found by seeds, in `bites.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Fault, Leg, Network, Pace, World};
use redlock::{Guard, Redlock};
use redlock_simulation::calm::{bites, bits, holds, in_virtual_time};
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
        let ways = Arc::new(Ways::default());
        let world = World::new(Arc::clone(&ways) as Arc<dyn Network>, &vec![Pace::default(); nodes]);
        let client = |(index, ahead_micros): (usize, &i64)| {
            let pace = Pace { ahead_micros: *ahead_micros, ..Pace::default() };
            let bits = bits(u8::try_from(index).unwrap_or(0));
            world.process(index, pace, bits).expect("nodes enough, and not too many")
        };
        let clients = ahead_micros.iter().enumerate().map(client).collect();
        Self { ways, world, clients }
    }

    async fn share(&self, client: usize) -> Guard {
        let lock = self.clients[client].lock(NAME).shared().ttl(TTL).auto_renew(false).timeout(Duration::ZERO);
        lock.acquire().await.expect("it can be shared")
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
        let ways = Arc::new(Ways::default());
        let world = World::new(Arc::clone(&ways) as Arc<dyn Network>, &[Pace::default()]);
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

/// The same of two names. The first one has no later owner.
#[test]
fn several_names_are_not_put_back_below_a_later_fence_of_one_of_them() {
    bites(Fault::RestoreFirst, async || {
        let stage = Stage::new(3, &[0, AHEAD_MICROS, 0]);
        stage.ways.refuse(1, 2);
        stage.ways.refuse(2, 1);
        let lock = stage.clients[0].lock_all(["another", NAME]).ttl(TTL).auto_renew(false).timeout(Duration::ZERO);
        let first = lock.acquire().await.expect("both are free");
        // The node learns the scripts.
        stage.world.nodes()[0].delete(NAME.as_bytes());
        first.extend().await.expect("two nodes have it");
        sleep(DELAY * 10).await;
        assert!(stage.has_key(0), "it is put back");
        stage.world.nodes()[0].delete(NAME.as_bytes());
        // The extension finds one key gone, and what puts it back takes its time.
        stage.ways.slow_from("node 1: process 1 extend_all another, job", 0, 0, TTL / 5);
        first.extend().await.expect("two nodes have it");
        sleep(DELAY * 5).await;
        first.release().await.expect("two nodes have it");
        let second = stage.acquire_and_release(1).await;
        sleep(TTL / 4).await;
        // On the first node, and on the one that has not seen the second client.
        let lock = stage.clients[2].lock(NAME).ttl(TTL).timeout(Duration::ZERO);
        lock.acquire().await.is_ok_and(|third| third.fence() > second)
    });
}

/// The period of a reader ends, a writer has the lock for a while, and then the reader's acquire arrives once more: it begins
/// a period after the writer's.
#[test]
fn a_reader_is_not_extended_in_a_later_period() {
    bites(Fault::ExtendWithoutPeriod, async || {
        let stage = Stage::new(1, &[0, 0]);
        stage.ways.rules().echo = Some((0, DELAY * 100));
        let reader = stage.share(0).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        let writer = stage.acquire_and_release(1).await;
        assert!(writer > reader.fence());
        while !stage.has_key(0) {
            sleep(DELAY).await;
        }
        reader.extend().await.is_err()
    });
}

/// The same while a reader confirms its fence: a writer has had that node meanwhile, and a larger fence.
#[test]
fn a_reader_does_not_confirm_in_a_later_period() {
    bites(Fault::ConfirmWithoutPeriod, async || {
        let stage = Stage::new(3, &[0, 2 * AHEAD_MICROS, AHEAD_MICROS]);
        // The second and the third node have seen a large fence, the first one has not.
        stage.ways.refuse(2, 0);
        stage.acquire_and_release(2).await;
        stage.ways.refuse(0, 2);
        stage.ways.refuse(1, 1);
        stage.clients[1].inspect(NAME).await.expect("two nodes answer");
        stage.ways.slow_from("node 1: process 1 acquire_shared job with", 0, 0, DELAY * 40);
        stage.ways.rules().echo = Some((0, DELAY * 20));
        let lock = stage.clients[0].lock(NAME).shared().ttl(TTL).timeout(Duration::ZERO);
        let confirming = tokio::spawn(async move { lock.acquire().await });
        while stage.ways.rules().slow.is_empty() {
            sleep(DELAY / 10).await;
        }
        sleep(DELAY * 2).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        let writer = stage.acquire_and_release(1).await;
        confirming.await.expect("no panic").map_or(true, |reader| reader.fence() > writer)
    });
}

/// A reader is put back on a node after a writer has had the lock there, and has it on a quorum again.
#[test]
fn a_reader_is_not_put_back_below_a_later_fence() {
    bites(Fault::RestoreWithoutFence, async || {
        let stage = Stage::new(3, &[0, AHEAD_MICROS]);
        stage.ways.refuse(1, 1);
        let reader = stage.share(0).await;
        // The node learns the scripts.
        sleep(DELAY * 10).await;
        stage.world.nodes()[0].delete(NAME.as_bytes());
        reader.extend().await.expect("two nodes have it");
        sleep(DELAY * 10).await;
        assert!(stage.has_key(0), "it is put back");
        stage.world.nodes()[0].delete(NAME.as_bytes());
        // The extension finds the key gone, and what puts it back takes its time.
        stage.ways.slow_from("node 1: process 1 extend_shared job", 0, 0, TTL / 5);
        reader.extend().await.expect("two nodes have it");
        sleep(DELAY * 5).await;
        stage.world.nodes()[2].delete(NAME.as_bytes());
        stage.acquire_and_release(1).await;
        sleep(TTL / 4).await;
        stage.ways.rules().slow.clear();
        // On the first node, and on the one that has not seen the writer.
        reader.extend().await.is_err()
    });
}

/// A reader that is gone has its own end, however long another one is renewed.
#[test]
fn a_dead_reader_does_not_live_on_anothers_renewal() {
    bites(Fault::OneEndForAll, async || {
        let stage = Stage::new(1, &[0, 0, 0]);
        let living = stage.clients[0].lock(NAME).shared().ttl(TTL).acquire().await.expect("it can be shared");
        let dead = stage.share(1).await;
        // What its process still sends does not arrive.
        stage.ways.rules().slow.insert((1, 0), TTL * 100);
        sleep(TTL * 2).await;
        living.release().await.expect("it is renewed");
        let writer = stage.clients[2].lock(NAME).ttl(TTL).timeout(Duration::ZERO).acquire().await;
        drop(dead);
        writer.is_ok()
    });
}

/// Readers take turns so that one of them has the lock all the time, and a writer waits.
#[test]
fn readers_that_come_again_leave_the_lock_to_a_writer() {
    const HOLD: Duration = Duration::from_millis(400);
    bites(Fault::NoIntent, async || {
        let stage = Stage::new(1, &[0, 0, 0]);
        let readers = [0_usize, 1].map(|client| {
            let lock = stage.clients[client].lock(NAME).shared().ttl(TTL);
            tokio::spawn(async move {
                sleep(HOLD / 2 * u32::try_from(client).unwrap_or(0)).await;
                loop {
                    let guard = lock.acquire().await.expect("it can be shared, sooner or later");
                    sleep(HOLD).await;
                    guard.release().await.expect("it is held");
                }
            })
        });
        sleep(HOLD * 2).await;
        // The hold that has begun, and what it takes to be told.
        let writer = stage.clients[2].lock(NAME).ttl(TTL).timeout(HOLD * 3).acquire().await;
        for reader in readers {
            reader.abort();
        }
        writer.is_ok()
    });
}
