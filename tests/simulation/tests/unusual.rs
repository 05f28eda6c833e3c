//! A program that has thousands of locks at once, as seeds have it now and then.

use std::sync::Arc;
use std::time::Duration;

use redlock::testing::simulation::{Node, Pace, World};
use redlock_simulation::calm::{Calm, bits, in_virtual_time};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(10);

/// More than any list that is kept short.
const MANY: usize = 2_000;

fn holds(node: &Node, prefix: &str) -> usize {
    node.keys().iter().filter(|(key, _)| key.starts_with(prefix)).count()
}

/// No release is refused for want of room.
#[test]
fn guards_that_are_dropped_by_the_thousand_leave_no_key() {
    in_virtual_time(async {
        let world = World::new(Arc::new(Calm), &[Pace::default()]);
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
