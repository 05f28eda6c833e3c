//! What most programs and servers are not, and some are: one story for each kind that seeds draw as well.

use std::sync::Arc;
use std::time::Duration;

use redlock::testing::simulation::{Node, Pace, Program, World};
use redlock::{ErrorKind, Redlock};
use redlock_simulation::calm::{Calm, bits, in_virtual_time};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(10);

/// More than any list that is kept short.
const MANY: usize = 2_000;

fn world() -> World {
    World::new(Arc::new(Calm), &[Pace::default()])
}

fn client(program: &Program) -> Redlock {
    program.client(&[0], &Redlock::builder()).expect("one node")
}

/// Acquires once, with a client of its own, and drops it.
async fn serve(program: &Program) -> Result<(), ErrorKind> {
    let client = client(program);
    let lock = client.lock("job").ttl(TTL).timeout(Duration::ZERO);
    let guard = lock.acquire().await.map_err(|error| error.kind())?;
    guard.release().await.map_err(|error| error.kind())
}

fn holds(node: &Node, prefix: &str) -> usize {
    node.keys().iter().filter(|(key, _)| key.starts_with(prefix)).count()
}

/// A program that makes a client for each request remembers between two of them who the node was.
#[test]
fn a_restart_is_seen_by_a_process_whose_clients_are_short_lived() {
    in_virtual_time(async {
        let world = world();
        let program = world.program(0, Pace::default(), bits(0));
        let holder = world.process(1, Pace::default(), bits(1)).expect("one node");
        serve(&program).await.expect("it is free");
        let _held = holder.lock("job").ttl(TTL).acquire().await.expect("it is free");
        world.nodes()[0].crash(false);
        world.nodes()[0].start();
        assert_eq!(serve(&program).await, Err(ErrorKind::Unavailable), "the node has forgotten who holds it");
    });
}

/// Nothing is lost where a node gets its first replica.
#[test]
fn a_node_that_gets_a_replica_counts_at_once() {
    in_virtual_time(async {
        let world = world();
        let program = world.program(0, Pace::default(), bits(0));
        let kept = client(&program);
        kept.inspect("job").await.expect("the node answers");
        world.nodes()[0].attach_replica();
        world.nodes()[0].hang_up(true);
        world.nodes()[0].hang_up(false);
        sleep(Duration::from_secs(1)).await;
        serve(&program).await.expect("it is free, and nothing was lost");
    });
}

/// The handshake of a waiter's connection is cut once. It hears of the release all the same.
#[test]
fn a_waiter_whose_handshake_was_cut_once_is_told() {
    in_virtual_time(async {
        let world = world();
        let holder = world.process(0, Pace::default(), bits(0)).expect("one node");
        let waiter = world.process(1, Pace::default(), bits(1)).expect("one node");
        let held = holder.lock("job").ttl(TTL * 360).acquire().await.expect("it is free");
        world.nodes()[0].hang_up(true);
        let lock = waiter.lock("job").ttl(TTL);
        let waiting = tokio::spawn(async move { lock.acquire().await });
        sleep(Duration::from_millis(100)).await;
        world.nodes()[0].hang_up(false);
        sleep(TTL).await;
        assert!(!waiting.is_finished());
        held.release().await.expect("it is held");
        let guard = timeout(Duration::from_secs(1), waiting).await.expect("it is told").expect("no panic");
        guard.expect("it is free").release().await.expect("it is held");
    });
}

/// A server without INFO and CLIENT TRACKING takes part.
#[test]
fn a_server_that_lacks_optional_commands_is_used() {
    in_virtual_time(async {
        let world = world();
        world.nodes()[0].lack(true, true);
        let program = world.program(0, Pace::default(), bits(0));
        serve(&program).await.expect("it is free");
    });
}

/// No release is refused for want of room.
#[test]
fn guards_that_are_dropped_by_the_thousand_leave_no_key() {
    in_virtual_time(async {
        let world = world();
        let client = world.process(0, Pace::default(), bits(0)).expect("one node");
        let mut guards = Vec::new();
        for number in 0..MANY {
            guards.push(client.lock(format!("mass-{number}")).ttl(TTL * 360).acquire().await.expect("it is free"));
        }
        assert_eq!(holds(&world.nodes()[0], "mass-"), MANY);
        drop(guards);
        sleep(TTL).await;
        assert_eq!(holds(&world.nodes()[0], "mass-"), 0);
    });
}
