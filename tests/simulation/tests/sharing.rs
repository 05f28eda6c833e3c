//! Readers that share a lock, and a writer that waits for it: neither keeps the other away for long.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redlock::Redlock;
use redlock::testing::simulation::{Fault, Node, Pace, World};
use redlock_simulation::calm::{Calm, DELAY, bites, chance, in_virtual_time};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const NAME: &str = "page";

/// Of locks that do not end by themselves within a story.
const TTL: Duration = Duration::from_secs(60);

/// So many calm nodes, and clients in processes of their own.
fn stage(nodes: usize, clients: u32) -> (World, Vec<Redlock>) {
    let world = World::new(Arc::new(Calm), &vec![Pace::default(); nodes]);
    let client = |number: u32| world.process(number as usize, Pace::default(), chance(number.into()));
    let clients = (0..clients).map(|number| client(number).expect("a client")).collect();
    (world, clients)
}

/// Whether a quorum of nodes counts somebody who waits.
fn is_counted(world: &World) -> bool {
    let counts = |node: &&Node| node.keys().iter().any(|(key, _)| key.starts_with("redlock:waiters:"));
    world.nodes().iter().filter(counts).count() > world.nodes().len() / 2
}

#[test]
fn readers_that_are_held_off_for_long_join_anyway() {
    const PATIENCE: Duration = Duration::from_secs(5);
    /// How late a change may be noticed that nothing has told of.
    const BACKSTOP: Duration = Duration::from_secs(2);
    for nodes in [1, 5] {
        in_virtual_time(async {
            let (world, clients) = stage(nodes, 3);
            let reader = |client: usize| clients[client].lock(NAME).shared().ttl(TTL);
            let _first = reader(0).acquire().await.expect("it is free");
            let writer = tokio::spawn(clients[1].lock(NAME).ttl(TTL).into_future());
            sleep(PATIENCE / 10).await;
            let error = reader(2).timeout(PATIENCE / 10).acquire().await.expect_err("a writer waits");
            assert!(error.to_string().contains(": shared, and a writer waits for it"), "{error}");
            assert!(error.nodes().iter().any(|node| node.answer == "shared, and a writer waits for it"), "{error}");
            let began = world.now();
            let second = reader(2).acquire().await.expect("it was held off for long");
            let waited = world.now().saturating_sub(began);
            assert!((PATIENCE..PATIENCE + BACKSTOP + 10 * DELAY).contains(&waited), "{nodes} nodes: {waited:?}");
            second.release().await.expect("it is held");
            let again = reader(2).try_acquire().await.expect("all nodes answer");
            assert!(again.is_none() && !writer.is_finished(), "once, and not for ever");
            writer.abort();
        });
    }
}

/// 32 readers that come again at once would leave it no gap otherwise.
#[test]
fn a_writer_waits_for_three_reader_holds_at_most() {
    const READERS: u32 = 32;
    const HOLD: Duration = Duration::from_millis(100);
    const ROUNDS: usize = 3;
    for nodes in [1, 5] {
        bites(Fault::NoIntent, async || {
            let (world, mut clients) = stage(nodes, READERS + 1);
            let writer = clients.pop().expect("it comes last").lock(NAME).ttl(TTL);
            // How many holds have begun since the writer was counted, of each reader.
            let begun: Arc<Vec<_>> = Arc::new(clients.iter().map(|_| AtomicU32::new(0)).collect());
            let mut readers = JoinSet::new();
            for (number, client) in (0..READERS).zip(clients) {
                let (lock, begun) = (client.lock(NAME).shared().ttl(TTL), Arc::clone(&begun));
                readers.spawn(async move {
                    loop {
                        let guard = lock.acquire().await.expect("it can be shared");
                        begun[number as usize].fetch_add(1, Ordering::Relaxed);
                        // No two of them keep step.
                        sleep(HOLD + number * DELAY).await;
                        guard.release().await.expect("it is held");
                    }
                });
            }
            for _ in 0..ROUNDS {
                sleep(5 * HOLD).await;
                let call = tokio::spawn(writer.clone().into_future());
                while !is_counted(&world) && !call.is_finished() {
                    sleep(DELAY).await;
                }
                begun.iter().for_each(|holds| holds.store(0, Ordering::Relaxed));
                let Ok(guard) = timeout(20 * HOLD, call).await else { return false };
                let most = begun.iter().map(|holds| holds.load(Ordering::Relaxed)).max();
                println!("{nodes} nodes: {most:?} holds");
                // The hold under way when it came is the first of the three.
                if most > Some(2) {
                    return false;
                }
                guard.expect("no panic").expect("all nodes answer").release().await.expect("it is held");
            }
            true
        });
    }
}
