//! Stories of clusters, and of primaries that sentinels name, which seeds meet too rarely. The engine keeps the promise
//! there; a patch in `tests/mutants` that names a story breaks it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use redlock::testing::simulation::{Network, Node, Pace, Shards, World};
use redlock::{Guard, Redlock};
use redlock_simulation::calm::{Calm, bits, holds};
use tokio::time::{sleep, timeout};

const NAME: &str = "job";
const KEY: &[u8] = NAME.as_bytes();
const TTL: Duration = Duration::from_secs(10);

/// More than any message takes, and than it takes to begin again elsewhere; less than the pause between two looks of a waiter
/// that is not told.
const SOON: Duration = Duration::from_millis(500);

/// One cluster, or group with sentinels, and two clients in processes of their own that know it.
struct Stage {
    world: World,
    clients: Vec<Redlock>,
}

impl Stage {
    async fn new(world: fn(Arc<dyn Network>, &[Pace]) -> World) -> Self {
        let world = world(Arc::new(Calm) as Arc<dyn Network>, &[Pace::default()]);
        let client = |index: u8| world.process(usize::from(index), Pace::default(), bits(index)).expect("a client");
        let stage = Self { clients: (0..2).map(client).collect(), world };
        for client in &stage.clients {
            client.inspect(NAME).await.expect("it answers");
        }
        stage
    }

    fn group(&self) -> &Shards {
        &self.world.clusters()[0]
    }

    async fn acquire(&self, client: usize) -> Result<Guard, redlock::Error> {
        self.clients[client].lock(NAME).ttl(TTL).auto_renew(false).timeout(TTL / 4).acquire().await
    }

    /// Moves the lock's slot to another server at once, with all that is in it.
    fn migrate(&self) {
        let owner = self.group().owner(KEY);
        let to = self.group().primaries().into_iter().find(|server| !server.is(owner));
        let to = to.expect("there are several shards").clone();
        self.group().migrate(KEY, &to);
    }
}

/// The replica has not heard of the lock when it is promoted. Whether another client is refused. The former primary may
/// have `restarted` by then, and not have heard of it.
async fn a_replica_takes_over(world: fn(Arc<dyn Network>, &[Pace]) -> World, restarted: bool) -> bool {
    let stage = Stage::new(world).await;
    // The other client has heard nothing of the former primary for so long that a restart would not matter any more.
    sleep(TTL).await;
    let held = stage.acquire(0).await.expect("it is free");
    let primary = stage.group().owner(KEY).clone();
    stage.group().cut(&primary, SOON);
    primary.crash(true);
    stage.group().promote(&primary);
    if restarted {
        primary.start();
        let others = stage.group().servers().iter().filter(|server| !server.is(&primary));
        others.for_each(|server| stage.group().learn(server));
    } else {
        stage.group().settle();
    }
    let taken = stage.acquire(1).await;
    held.check().expect("its holder does not know of it yet");
    taken.is_err()
}

#[test]
fn a_server_that_was_promoted_does_not_count_for_a_ttl() {
    holds(async || a_replica_takes_over(World::of_clusters, false).await);
}

#[test]
fn a_server_that_was_promoted_does_not_count_although_its_former_primary_takes_itself_for_one() {
    holds(async || a_replica_takes_over(World::of_clusters, true).await);
}

/// It was replaced, and came back long ago. The other client was cut off from it, has the map of before, and asks for nothing
/// until it is the right one again.
#[test]
fn a_former_primary_that_is_promoted_again_does_not_count_for_a_ttl() {
    holds(async || {
        let stage = Stage::new(World::of_clusters).await;
        let first = stage.group().owner(KEY).clone();
        sleep(TTL).await;
        first.hang_up(true);
        take_over(&stage, &first, Duration::ZERO);
        // Whoever asks for the map now is told the one of before.
        sleep(TTL).await;
        first.start();
        stage.group().settle();
        drop(stage.clients[0].inspect(NAME).await);
        sleep(2 * TTL).await;
        let held = stage.acquire(0).await.expect("it is free");
        let second = stage.group().owner(KEY).clone();
        take_over(&stage, &second, SOON);
        stage.group().settle();
        first.hang_up(false);
        let taken = stage.acquire(1).await;
        held.check().expect("its holder does not know of it yet");
        taken.is_err()
    });
}

/// A primary ends, and its replica takes over, which lacks what is newer than that.
fn take_over(stage: &Stage, primary: &Node, lost: Duration) {
    stage.group().cut(primary, lost);
    primary.crash(true);
    stage.group().promote(primary);
}

#[test]
fn a_server_that_sentinels_name_anew_does_not_count_for_a_ttl() {
    holds(async || a_replica_takes_over(World::of_sentinels, false).await);
}

/// Two sentinels were cut off, and the former primary with them.
#[test]
fn a_former_primary_is_not_used_whoever_names_it() {
    holds(async || {
        let stage = Stage::new(World::of_sentinels).await;
        let primary = stage.group().owner(KEY).clone();
        stage.group().cut(&primary, Duration::ZERO);
        stage.group().promote(&primary);
        stage.group().hear(0);
        sleep(2 * TTL).await;
        // The first request goes over a connection that exists, and has the sentinels asked.
        drop(stage.acquire(0).await);
        sleep(2 * TTL).await;
        let held = stage.acquire(0).await.expect("it is free");
        held.check().expect("it is held");
        primary.keys().iter().all(|(key, _)| key != NAME)
    });
}

/// The slot moves while another process waits, and the lock is released a while after that.
#[test]
fn who_waits_follows_the_slot() {
    holds(async || {
        let stage = Stage::new(World::of_clusters).await;
        let held = stage.acquire(0).await.expect("it is free");
        let waiting = tokio::spawn(stage.clients[1].lock(NAME).ttl(TTL).into_future());
        sleep(SOON).await;
        stage.migrate();
        sleep(SOON).await;
        held.release().await.expect("it is held");
        timeout(SOON, waiting).await.is_ok_and(|acquired| acquired.expect("no panic").is_ok())
    });
}

/// The server that had the slot cannot be asked any more.
#[test]
fn what_is_given_back_is_released_where_its_slot_is_then() {
    holds(async || {
        let stage = Stage::new(World::of_clusters).await;
        let held = stage.acquire(0).await.expect("it is free");
        stage.group().owner(KEY).clone().hang_up(true);
        drop(held);
        stage.migrate();
        sleep(TTL / 2).await;
        stage.acquire(1).await.is_ok()
    });
}
