//! How many wait is counted on the nodes: each waiter once, and for as long as anybody waits.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use redlock::testing::simulation::{Pace, World};
use redlock_simulation::calm::{Calm, chance, in_virtual_time};
use tokio::time::sleep;

const WAITERS: u8 = 3;

/// Longer than a count is kept, many times.
const LONG: Duration = Duration::from_secs(60);

/// Shorter than any time in which a count could lapse and begin anew.
const LOOK: Duration = Duration::from_millis(50);

#[test]
fn the_count_of_the_waiters_neither_lapses_nor_begins_anew() {
    for nodes in [1, 5] {
        // A holder that renews three times a second, and one whose renewal is far away.
        for ttl in [Duration::from_secs(1), Duration::from_secs(3_600)] {
            in_virtual_time(async {
                let world = World::new(Arc::new(Calm), &vec![Pace::default(); nodes]);
                let holder = world.process(0, Pace::default(), chance(0)).expect("a client");
                let guard = holder.lock("job").ttl(ttl).acquire().await.expect("it is free");
                let calls: Vec<_> = (1..=WAITERS)
                    .map(|process| {
                        let bits = chance(process.into());
                        let waiter = world.process(process.into(), Pace::default(), bits).expect("a client");
                        tokio::spawn(waiter.lock("job").into_future())
                    })
                    .collect();
                sleep(Duration::from_secs(1)).await;
                let looks = LONG.as_millis() / LOOK.as_millis();
                for look in 0..looks {
                    sleep(LOOK).await;
                    for node in world.nodes() {
                        let count = node.keys().into_iter().find(|(key, _)| key.starts_with("redlock:waiters:"));
                        let count = count.map(|(_, count)| count);
                        assert_eq!(count, Some(WAITERS.to_string()), "{nodes} nodes, ttl {ttl:?}, look {look}");
                    }
                }
                guard.release().await.expect("it was held all the time");
                for call in calls {
                    call.abort();
                }
            });
        }
    }
}
