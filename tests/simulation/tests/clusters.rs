//! Stories of clusters that seeds meet too rarely. The engine as it is keeps the promise there; with the fault planted it
//! does not.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlock::testing::simulation::{Fault, Network, Pace, Shards, World, plant};
use redlock::{Guard, Redlock};
use redlock_simulation::calm::{Calm, bits, in_virtual_time};
use tokio::time::{sleep, timeout};

const NAME: &str = "job";
const KEY: &[u8] = NAME.as_bytes();
const TTL: Duration = Duration::from_secs(10);

/// More than any message takes, and than it takes to begin again elsewhere; less than the pause between two looks of a waiter
/// that is not told.
const SOON: Duration = Duration::from_millis(500);

/// One cluster, and two clients in processes of their own that have its map.
struct Stage {
    world: World,
    clients: Vec<Redlock>,
}

impl Stage {
    async fn new() -> Self {
        let world = World::of_clusters(Arc::new(Calm) as Arc<dyn Network>, &[Pace::default()]);
        let client = |index: u8| world.process(usize::from(index), Pace::default(), bits(index)).expect("a client");
        let stage = Self { clients: (0..2).map(client).collect(), world };
        for client in &stage.clients {
            client.inspect(NAME).await.expect("the cluster answers");
        }
        stage
    }

    fn cluster(&self) -> &Shards {
        &self.world.clusters()[0]
    }

    async fn acquire(&self, client: usize) -> Result<Guard, redlock::Error> {
        self.clients[client].lock(NAME).ttl(TTL).auto_renew(false).timeout(TTL / 4).acquire().await
    }

    /// Moves the lock's slot to another server at once, with all that is in it.
    fn migrate(&self) {
        let owner = self.cluster().owner(KEY);
        let to = self.cluster().primaries().into_iter().find(|server| !server.is(owner));
        let to = to.expect("there are several shards").clone();
        self.cluster().open(KEY, &to);
        self.cluster().move_all(KEY);
        self.cluster().close(KEY, &to);
        self.cluster().settle();
    }
}

/// Whether `story` ends well as it is, and with the fault only if that is none.
fn bites(fault: Fault, story: impl AsyncFn() -> bool) {
    for planted in [None, Some(fault)] {
        plant(planted);
        let kept = AtomicBool::new(false);
        in_virtual_time(async { kept.store(story().await, Ordering::Relaxed) });
        plant(None);
        assert_eq!(kept.into_inner(), planted.is_none(), "with {planted:?} planted");
    }
}

/// The replica has not heard of the lock when it is promoted.
#[test]
fn a_server_that_was_promoted_does_not_count_for_a_ttl() {
    bites(Fault::PromotedCounts, async || {
        let stage = Stage::new().await;
        let held = stage.acquire(0).await.expect("it is free");
        let primary = stage.cluster().owner(KEY).clone();
        stage.cluster().cut(&primary, SOON);
        primary.crash(true);
        stage.cluster().promote(&primary);
        stage.cluster().settle();
        let taken = stage.acquire(1).await;
        held.check().expect("nobody has told its holder yet");
        taken.is_err()
    });
}

/// The slot moves while another process waits, and the lock is released a while after that.
#[test]
fn who_waits_follows_the_slot() {
    bites(Fault::WaiterStays, async || {
        let stage = Stage::new().await;
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
    bites(Fault::ReleaseStays, async || {
        let stage = Stage::new().await;
        let held = stage.acquire(0).await.expect("it is free");
        stage.cluster().owner(KEY).clone().hang_up(true);
        drop(held);
        stage.migrate();
        sleep(TTL / 2).await;
        stage.acquire(1).await.is_ok()
    });
}
