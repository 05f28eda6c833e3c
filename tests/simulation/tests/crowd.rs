//! Many threads of one process, each with connections of its own.

use std::sync::Arc;
use std::time::Duration;

use redlock::Redlock;
use redlock::testing::simulation::{Pace, World};
use redlock_simulation::calm::{Calm, chance, in_virtual_time};
use tokio::sync::mpsc;

const THREADS: usize = 100;

/// The time between two connects to a node that cannot be reached.
const GAP: Duration = Duration::from_millis(50);

/// Connections that last longer prove that the node keeps them.
const BRIEF: Duration = Duration::from_secs(1);

/// Twice: before anything failed, and when all of them were closed.
#[test]
fn threads_that_begin_at_once_are_not_held_back() {
    in_virtual_time(async {
        let world = World::new(Arc::new(Calm), &[Pace::default()]);
        let program = world.program(0, Pace::default(), chance(0));
        let client = program.client(&[0], &Redlock::builder().restart_delay(Duration::ZERO)).expect("a client");
        let runtimes: Vec<_> = (0..THREADS).map(|_| program.runtime()).collect();
        for _ in 0..2 {
            let (began, (sender, mut acquired)) = (world.now(), mpsc::unbounded_channel());
            for (number, runtime) in runtimes.iter().enumerate() {
                let (lock, sender) = (client.lock(format!("job:{number}")).timeout(Duration::ZERO), sender.clone());
                runtime.spawn(async move { drop(sender.send(lock.acquire().await.map(drop))) });
            }
            for _ in 0..THREADS {
                acquired.recv().await.expect("all of them end").expect("it is free");
            }
            let took = world.now().saturating_sub(began);
            assert!(took < GAP, "{took:?}");
            world.sleep(2 * BRIEF).await;
            world.nodes()[0].crash(true);
            world.nodes()[0].start();
            world.sleep(GAP).await;
        }
    });
}
