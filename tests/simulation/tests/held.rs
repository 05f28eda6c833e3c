//! Held locks: extensions that are answered in another order than they began, and nodes that the acquire did not reach.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Leg, Network, Pace, Program, Runtime, World};
use redlock::{ErrorKind, Guard, NodeState, Redlock};
use redlock_simulation::calm::{DELAY, bits, in_virtual_time, stage};
use tokio::sync::oneshot;

/// Less than the seconds that the older protocol counts.
const BRIEF: Duration = Duration::from_millis(400);
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);

/// Less than the `node_timeout` of the shortest ttl here, so that every answer counts.
const LATE: Duration = Duration::from_millis(400);

/// More than the `node_timeout` of two requests.
const SLOW: Duration = Duration::from_secs(3);

/// The defaults of `connect_timeout`, and of `node_timeout` with a long ttl.
const CONNECT: Duration = Duration::from_secs(2);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// Calm, but the next replies can be late. Connects are counted.
#[derive(Default)]
struct Delaying {
    late: AtomicUsize,
    connects: AtomicUsize,
    /// Whether requests to the last node take so long that their connections are given up.
    slow: AtomicBool,
}

impl Delaying {
    /// Waits until a reply is on its way that will be late.
    async fn delays_one(&self, world: &World) {
        self.late.store(1, Ordering::Relaxed);
        while self.late.load(Ordering::Relaxed) > 0 {
            world.sleep(STEP).await;
        }
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::Relaxed)
    }
}

impl Network for Delaying {
    fn fate(&self, _: usize, node: usize, leg: Leg) -> Fate {
        match leg {
            Leg::Request if node == 2 && self.slow.load(Ordering::Relaxed) => return Fate::Deliver(SLOW),
            Leg::Connect => self.connects.fetch_add(1, Ordering::Relaxed),
            Leg::Reply if self.late.load(Ordering::Relaxed) > 0 => {
                self.late.fetch_sub(1, Ordering::Relaxed);
                return Fate::Deliver(LATE);
            }
            _ => 0,
        };
        Fate::Deliver(DELAY)
    }
}

#[derive(Clone)]
struct Stage {
    network: Arc<Delaying>,
    world: World,
    program: Arc<Program>,
    client: Redlock,
}

impl Stage {
    fn new(nodes: usize) -> Self {
        let (network, world, []) = stage(nodes);
        let program = Arc::new(world.program(0, Pace::default(), bits(0)));
        let order: Vec<usize> = (0..nodes).collect();
        let client = program.client(&order, &Redlock::builder()).expect("a client");
        Self { network, world, program, client }
    }

    /// Looks at `guard` for a while, in which it would run out many times.
    async fn watches(&self, guard: &Guard, look: impl Fn(Duration)) {
        for _ in 0..600 {
            self.world.sleep(20 * STEP).await;
            look(guard.remaining());
        }
    }
}

/// Runs `story` on a runtime of the program's callers, whose connections are its own.
async fn on<T: Send + 'static>(runtime: &Runtime, story: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, over) = oneshot::channel();
    runtime.spawn(async move { drop(sender.send(story.await)) });
    over.await.expect("the story comes to its end")
}

/// Never less than what is left when a renewal is due.
fn as_long_as(ttl: Duration) -> impl Fn(Duration) {
    move |remaining| assert!(remaining > ttl * 6 / 10, "{remaining:?} of {ttl:?}")
}

#[test]
fn a_renewal_that_is_answered_late_leaves_the_ttl_of_an_extension_in_force() {
    in_virtual_time(async {
        let stage = Stage::new(1);
        let caller = stage.program.runtime();
        on(&caller, async move {
            let guard = stage.client.lock("job").ttl(SHORT).acquire().await.expect("it is free");
            // The first renewal connects; of a later one only the answer is left to come.
            stage.world.sleep(SHORT / 2).await;
            stage.network.delays_one(&stage.world).await;
            guard.extend_for(LONG).await.expect("the node answers");
            assert!(guard.remaining() > LONG * 9 / 10);
            stage.world.sleep(LATE).await;
            stage.watches(&guard, as_long_as(LONG)).await;
            guard.release().await.expect("it was held all the time");
        })
        .await;
    });
}

/// Extends by this ttl, or by the one in force.
async fn extend(guard: &Guard, ttl: Option<Duration>) {
    let answer = match ttl {
        Some(ttl) => guard.extend_for(ttl).await,
        None => guard.extend().await,
    };
    answer.expect("the node answers");
}

/// Two extensions by these ttls begin one after the other, and are answered in the other order. Returns the lock, and the
/// runtime on which its story goes on.
async fn extended_twice(stage: &Stage, [first, last]: [Option<Duration>; 2]) -> (Arc<Guard>, Runtime) {
    let (one, two) = (stage.program.runtime(), stage.program.runtime());
    let story = stage.clone();
    let guard = on(&one, async move { story.client.lock("job").ttl(SHORT).acquire().await });
    let guard = Arc::new(guard.await.expect("it is free"));
    let (extended, story) = (Arc::clone(&guard), stage.clone());
    let late = on(&one, async move {
        story.network.late.store(1, Ordering::Relaxed);
        extend(&extended, first).await;
    });
    let (extended, story) = (Arc::clone(&guard), stage.clone());
    let next = on(&two, async move {
        while story.network.late.load(Ordering::Relaxed) > 0 {
            story.world.sleep(STEP).await;
        }
        extend(&extended, last).await;
    });
    tokio::join!(late, next);
    (guard, two)
}

#[test]
fn an_extension_by_the_ttl_in_force_does_not_set_it() {
    for ttls in [[None, Some(LONG)], [Some(LONG), None]] {
        in_virtual_time(async {
            let stage = Stage::new(1);
            let (guard, runtime) = extended_twice(&stage, ttls).await;
            on(&runtime, async move { stage.watches(&guard, as_long_as(LONG)).await }).await;
        });
    }
}

#[test]
fn of_two_extensions_the_one_that_began_last_sets_the_ttl() {
    in_virtual_time(async {
        let stage = Stage::new(1);
        let (guard, runtime) = extended_twice(&stage, [Some(LONG), Some(BETWEEN)]).await;
        on(&runtime, async move {
            assert!(guard.remaining() > BETWEEN, "the longer one was granted all the same");
            stage.world.sleep(LONG).await;
            let look = as_long_as(BETWEEN);
            stage
                .watches(&guard, |remaining| {
                    look(remaining);
                    assert!(remaining <= BETWEEN, "{remaining:?}");
                })
                .await;
        })
        .await;
    });
}

/// Long before anything is renewed, and without any renewal. A node that is away is tried again, but only for as long as
/// the lock is held.
#[test]
fn a_node_that_comes_after_the_win_gets_the_lock_with_the_ttl_that_is_left() {
    const TTL: Duration = Duration::from_secs(3_600);
    const AWAY: Duration = Duration::from_secs(600);
    const SOON: Duration = Duration::from_secs(3);
    for auto_renew in [false, true] {
        in_virtual_time(async {
            let stage = Stage::new(3);
            let (world, late) = (stage.world.clone(), stage.world.nodes()[2].clone());
            let other = world.process(1, Pace::default(), bits(1)).expect("a client");
            let left = async || match &other.inspect("job").await.expect("nodes answer").nodes[2].state {
                NodeState::Held { ttl_left, .. } => Some(ttl_left.expect("it expires")),
                _ => None,
            };
            late.crash(false);
            let (caller, story) = (stage.program.runtime(), stage.clone());
            let guard = on(&caller, async move {
                story.client.lock("job").ttl(TTL).auto_renew(auto_renew).restart_delay(SHORT).acquire().await
            });
            let guard = guard.await.expect("a quorum grants");
            world.sleep(AWAY).await;
            for _ in 0..2 {
                late.start();
                world.sleep(SOON).await;
                assert!(guard.is_held());
                // The other one's connection, too, is found to have ended.
                left().await;
                let left = left().await.expect("it has the lock");
                assert!(left >= guard.remaining() && (auto_renew || left + AWAY < TTL + SOON), "{left:?}");
                late.crash(false);
                world.sleep(AWAY).await;
            }
            let away = stage.network.connects();
            assert!(away as u64 <= 2 * 3 * AWAY.as_secs(), "{away} connects");
            // Nothing is owed to a node that is there.
            late.start();
            world.sleep(SOON).await;
            on(&caller, guard.release()).await.expect("it is held");
            world.sleep(SOON).await;
            late.crash(false);
            world.sleep(SOON).await;
            let released = stage.network.connects();
            world.sleep(AWAY).await;
            assert_eq!(stage.network.connects(), released, "nobody needs the node any more");
        });
    }
}

#[test]
fn a_release_waits_for_a_restoring_that_its_node_has_not_executed_yet() {
    in_virtual_time(async {
        let stage = Stage::new(3);
        let world = stage.world.clone();
        let other = world.process(1, Pace::default(), bits(1)).expect("a client");
        let (caller, story) = (stage.program.runtime(), stage.clone());
        // One that is not renewed is restored over each new connection of the background, which the other one opens.
        let guards = on(&caller, async move {
            let guard = story.client.lock("job").ttl(Duration::from_secs(3_600)).auto_renew(false).acquire().await?;
            Ok::<_, redlock::Error>((guard, story.client.lock("other").ttl(SHORT).acquire().await?))
        });
        let (guard, renewed) = guards.await.expect("all nodes grant");
        stage.network.slow.store(true, Ordering::Relaxed);
        world.sleep(SHORT).await;
        stage.network.slow.store(false, Ordering::Relaxed);
        on(&caller, guard.release()).await.expect("it is held");
        world.sleep(LONG).await;
        for node in other.inspect("job").await.expect("nodes answer").nodes {
            assert!(matches!(node.state, NodeState::Free), "{node:?}");
        }
        on(&caller, renewed.release()).await.expect("it is held");
    });
}

/// A server far away, which has restarted while its connection was idle.
#[derive(Default)]
struct Far(AtomicBool);

impl Network for Far {
    fn fate(&self, _: usize, _: usize, leg: Leg) -> Fate {
        let late = match leg {
            _ if !self.0.load(Ordering::Relaxed) => DELAY,
            Leg::Connect => Duration::from_millis(1_800),
            _ => Duration::from_millis(150),
        };
        Fate::Deliver(late)
    }
}

/// It connects again, and is told that the script is not known: both lengthen it, but not beyond its limit.
#[test]
fn a_release_over_a_connection_that_ended_keeps_its_limit() {
    in_virtual_time(async {
        let (network, world, []) = stage::<Far, 0>(1);
        let program = world.program(0, Pace::default(), bits(0));
        let client = program.client(&[0], &Redlock::builder()).expect("a client");
        on(&program.runtime(), async move {
            let guard = client.lock("job").auto_renew(false).acquire().await.expect("it is free");
            world.nodes()[0].crash(true);
            world.nodes()[0].start();
            network.0.store(true, Ordering::Relaxed);
            let began = world.now();
            let released = guard.release().await;
            let took = world.now().saturating_sub(began);
            assert!(took > CONNECT, "{took:?}, {released:?}");
            assert!(took <= CONNECT + NODE_TIMEOUT + STEP, "{took:?}, {released:?}");
        })
        .await;
    });
}

/// At most 256 are on their way at a time, so all of them together take longer than a node may take for an answer.
#[test]
fn a_healthy_node_that_is_owed_much_is_not_taken_for_silent() {
    const MANY: usize = 600;
    in_virtual_time(async {
        let stage = Stage::new(1);
        let (caller, story) = (stage.program.runtime(), stage.clone());
        let guards = on(&caller, async move {
            let mut guards = Vec::with_capacity(MANY);
            for number in 0..MANY {
                let lock = story.client.lock(format!("job:{number}")).ttl(6 * LONG).auto_renew(false);
                guards.push(lock.acquire().await.expect("it is free"));
            }
            guards
        });
        let guards = guards.await;
        // The background releases them, over the one connection that it makes.
        caller.end();
        stage.network.late.store(usize::MAX, Ordering::Relaxed);
        let (began, connects) = (stage.world.now(), stage.network.connects());
        drop(guards);
        let is_kept = |(key, _): &(String, String)| key.starts_with("job:");
        while stage.world.nodes()[0].keys().iter().any(is_kept) {
            stage.world.sleep(STEP).await;
        }
        assert!(stage.world.now() > began + NODE_TIMEOUT);
        stage.world.sleep(LONG).await;
        assert_eq!(stage.network.connects(), connects + 1, "none was given up");
    });
}

/// A network that one process cannot connect over for a while.
#[derive(Default)]
struct Cut(AtomicBool);

impl Network for Cut {
    fn fate(&self, process: usize, _: usize, leg: Leg) -> Fate {
        if process == 0 && leg == Leg::Connect && self.0.load(Ordering::Relaxed) {
            return Fate::Break;
        }
        Fate::Deliver(DELAY)
    }
}

/// In the older protocol, a release deletes whatever key is there until its own time is over.
#[test]
fn a_release_of_the_older_protocol_spares_the_next_owner_after_a_restart() {
    in_virtual_time(async {
        let (network, world, []) = stage::<Cut, 0>(1);
        let [one, two] =
            [0, 1].map(|index| world.program(index, Pace::default(), bits(u8::try_from(index).expect("few"))));
        let [first, second] = [(&one, BRIEF), (&two, LONG)].map(|(program, ttl)| {
            program.client(&[0], &Redlock::builder()).expect("a client").setnx_lock("older").ttl(ttl)
        });
        let node = world.nodes()[0].clone();
        let guard = on(&one.runtime(), async move { first.acquire().await.expect("it is free") }).await;
        network.0.store(true, Ordering::Relaxed);
        node.crash(false);
        // A release over a connection whose end is not known yet would not be sent again.
        world.sleep(STEP).await;
        let unconfirmed = on(&one.runtime(), guard.release()).await;
        assert_eq!(unconfirmed.expect_err("the node is down").kind(), ErrorKind::Unavailable);
        node.start();
        let held = on(&two.runtime(), async move { second.acquire().await.expect("it is free") }).await;
        network.0.store(false, Ordering::Relaxed);
        // It tries again within a second, and before its time is over.
        world.sleep(4 * BRIEF).await;
        assert!(node.keys().iter().any(|(key, _)| key == "older"), "it was deleted");
        drop(held);
    });
}
