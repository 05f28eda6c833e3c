//! What happens in clusters, and to primaries that sentinels name: slots move, and replicas take over.
//!
//! Slots move in every run but those in which nodes forget under one ttl: at once, key by key, or open for a while, which
//! loses nothing. A planned failover loses nothing either, and is a trouble of nodes. A failover that loses the last writes is
//! one where nodes forget. Two primaries for a while void the promise for that time.

use std::time::Duration;

use redlock::testing::simulation::{Node, Shards, World};
use redlock_history::Kind;

use crate::book::{Shared, nanos, seen};
use crate::client::OLDER;
use crate::dice::Dice;
use crate::faults::{fail, mend};
use crate::plan::{Plan, Topology, Trouble};
use crate::run::all;
use crate::shape::NAMES;

/// Milliseconds until another server hears of a change, at most.
const GOSSIP_MS: u64 = 200;

/// Milliseconds for which a primary may not know that it has been replaced, at most.
const STALE_MS: u64 = 3_000;

/// The pause between two moves of a slot in calm, at least, without the ways of the messages: a new map is asked for once
/// a second.
const CALM_MS: u64 = 1_500;

/// The ways of messages that the pause has to leave time for: a server that is new to a process has to be found, connected
/// to and sent the script, before it can be asked for a vote that is then confirmed. A slot that moves sooner than that,
/// on all nodes at once, can be locked by nobody.
const WAYS: u64 = 12;

/// Makes trouble in the clusters, or groups, for as long as it is polled.
pub(crate) async fn trouble(world: World, plan: &Plan, book: &Shared, mut dice: Dice) {
    let clusters = world.clusters();
    // One after the other, or each by itself.
    let parts = if plan.majority_fails { clusters.chunks(1) } else { clusters.chunks(clusters.len()) };
    let movers = parts.map(|clusters| Mover { world: &world, clusters, plan, book, dice: dice.fork() });
    all(movers.map(|mover| Box::pin(mover.run())).collect()).await;
}

/// Moves a slot to and fro, at once, for as long as it is polled. Whoever waits has to follow.
pub(crate) async fn in_calm(world: World, plan: &Plan, mut dice: Dice) {
    if world.clusters().iter().all(|group| group.sentinels() > 0) {
        return std::future::pending().await;
    }
    let pause_ms = CALM_MS + WAYS * plan.unusual.least_ms;
    loop {
        world.sleep(dice.millis(pause_ms, 2 * pause_ms)).await;
        for cluster in world.clusters() {
            let to = another(cluster, NAMES[0], &mut dice);
            cluster.migrate(NAMES[0].as_bytes(), &to);
        }
    }
}

/// Another primary than the one that has a name.
fn another(cluster: &Shards, name: &str, dice: &mut Dice) -> Node {
    let owner = cluster.owner(name.as_bytes());
    let others = cluster.primaries().into_iter().filter(|primary| !primary.is(owner));
    let others: Vec<_> = others.collect();
    others[dice.index(others.len())].clone()
}

/// What happens to a cluster.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A slot moves.
    Move,
    /// A replica takes over as planned.
    Plan,
    /// A primary ends, and its replica takes over without the last writes.
    Lose,
    /// The same, but the former primary goes on for a while.
    Split,
    /// Primaries end or freeze, and nobody takes over.
    Fail,
}

/// A time in which servers forget what they granted. It is written down when it is over, also if all trouble ends in it.
struct Lapse<'a> {
    world: &'a World,
    book: &'a Shared,
    ttl: Duration,
    from_ns: u64,
}

impl<'a> Lapse<'a> {
    fn begin(world: &'a World, book: &'a Shared, ttl: Duration) -> Self {
        Self { world, book, ttl, from_ns: nanos(world.now()) }
    }
}

impl Drop for Lapse<'_> {
    fn drop(&mut self) {
        // For as long as any lock lives: quarantine holds back for less.
        let to_ns = nanos(self.world.now() + 2 * self.ttl + Duration::from_secs(1));
        self.book.open().history.push(seen(Kind::Lapse, "a failover", "", self.from_ns, to_ns, None));
    }
}

/// Makes trouble in some clusters, in one of them at a time.
struct Mover<'a> {
    world: &'a World,
    clusters: &'a [Shards],
    plan: &'a Plan,
    book: &'a Shared,
    dice: Dice,
}

impl Mover<'_> {
    async fn run(mut self) {
        let is_watched = self.plan.unusual.topology == Topology::Sentinels;
        let events: &[Event] = match self.plan.trouble {
            // Slots are not there to be moved, and a failover always loses the last writes.
            Trouble::None | Trouble::Network if is_watched => return std::future::pending().await,
            Trouble::Nodes | Trouble::Both if is_watched => &[Event::Fail],
            Trouble::Amnesia if is_watched => &[Event::Lose, Event::Split, Event::Split, Event::Fail],
            Trouble::Restarts => &[Event::Lose, Event::Lose, Event::Fail],
            Trouble::Amnesia => &[Event::Move, Event::Plan, Event::Lose, Event::Split, Event::Split, Event::Fail],
            Trouble::Nodes | Trouble::Both => &[Event::Move, Event::Move, Event::Plan, Event::Fail],
            _ => &[Event::Move],
        };
        loop {
            self.rest(self.plan.calm_ms).await;
            let cluster = &self.clusters[self.dice.index(self.clusters.len())];
            let event = self.dice.pick(events);
            let forgets = self.plan.trouble == Trouble::Amnesia && !matches!(event, Event::Move | Event::Plan);
            let lapse = forgets.then(|| Lapse::begin(self.world, self.book, self.plan.ttl));
            match event {
                Event::Move => self.migrate(cluster).await,
                Event::Plan => self.take_over(cluster).await,
                Event::Lose => self.lose(cluster).await,
                Event::Split => self.split(cluster).await,
                Event::Fail => self.fail(cluster).await,
            }
            drop(lapse);
            // Then a quarantine ends, in which nobody can have any lock.
            if self.dice.chance(50) || (!matches!(event, Event::Move) && self.dice.chance(500)) {
                self.world.sleep(self.plan.ttl * 4).await;
            }
        }
    }

    async fn rest(&mut self, most_ms: u64) {
        self.world.sleep(self.dice.millis(0, most_ms)).await;
    }

    async fn migrate(&mut self, cluster: &Shards) {
        let name = self.dice.pick(&[NAMES[0], NAMES[1], OLDER]);
        let (key, from, to) =
            (name.as_bytes(), cluster.owner(name.as_bytes()).clone(), another(cluster, name, &mut self.dice));
        let open_ms = self.dice.pick(&[0, 20, 500, 5_000]);
        cluster.open(key, &to);
        self.rest(open_ms).await;
        for _ in 0..self.dice.below(3) {
            let keys = cluster.keys_beside(key);
            if !keys.is_empty() {
                cluster.move_key(&keys[self.dice.index(keys.len())]);
            }
            self.rest(open_ms).await;
        }
        cluster.move_all(key);
        self.rest(open_ms).await;
        cluster.move_all(key);
        cluster.close(key, &to);
        self.rest(GOSSIP_MS).await;
        cluster.learn(&from);
        self.tell(cluster).await;
    }

    /// All servers that are up hear of what happened, and all sentinels.
    async fn tell(&mut self, cluster: &Shards) {
        for sentinel in 0..cluster.sentinels() {
            cluster.hear(sentinel);
            self.rest(GOSSIP_MS).await;
        }
        for server in cluster.servers().iter().filter(|server| server.is_up()) {
            self.rest(GOSSIP_MS / 4).await;
            cluster.learn(server);
        }
    }

    fn primary(&mut self, cluster: &Shards) -> Node {
        let primaries = cluster.primaries();
        primaries[self.dice.index(primaries.len())].clone()
    }

    /// How much of what was written last a replica lacks.
    fn lost(&mut self) -> Duration {
        Duration::from_millis(self.dice.pick(&[0, 5, 100, 1_000]))
    }

    async fn take_over(&mut self, cluster: &Shards) {
        let primary = self.primary(cluster);
        cluster.cut(&primary, Duration::ZERO);
        cluster.promote(&primary);
        cluster.learn(&primary);
        self.tell(cluster).await;
    }

    /// Promotes a replica that lacks what was written last. A key whose release it has not heard of lives for its ttl.
    fn promote(&self, cluster: &Shards, primary: &Node) {
        let promoted = cluster.replica(primary).clone();
        cluster.promote(primary);
        self.excuse_revived(cluster, primary, &promoted);
    }

    /// Excuses the keys that a promoted server has, and its former primary has not.
    fn excuse_revived(&self, cluster: &Shards, former: &Node, promoted: &Node) {
        let released = former.keys();
        let keys: Vec<_> = promoted.keys().into_iter().filter(|key| !released.contains(key)).collect();
        let mut book = self.book.open();
        for (index, server) in self.world.nodes().iter().enumerate() {
            if cluster.servers().iter().any(|other| other.is(server)) {
                book.prolonged.extend(keys.iter().map(|(key, value)| (index, key.clone(), value.clone())));
            }
        }
    }

    async fn lose(&mut self, cluster: &Shards) {
        let (primary, lost) = (self.primary(cluster), self.lost());
        cluster.cut(&primary, lost);
        primary.crash(true);
        let down_ms = self.dice.pick(&[30, 300, 6_000]);
        self.rest(down_ms).await;
        self.promote(cluster, &primary);
        self.tell(cluster).await;
        self.rest(2_000).await;
        primary.start();
        if cluster.sentinels() == 0 {
            // It has the map of before, and takes no requests until it has heard from others.
            self.rest(2_000).await;
        }
        cluster.learn(&primary);
    }

    async fn split(&mut self, cluster: &Shards) {
        let (primary, lost) = (self.primary(cluster), self.lost());
        let promoted = cluster.replica(&primary).clone();
        if self.dice.chance(500) {
            primary.freeze();
        }
        cluster.cut(&primary, lost);
        let down_ms = self.dice.pick(&[30, 300, 3_000]);
        self.rest(down_ms).await;
        self.promote(cluster, &primary);
        (0..cluster.sentinels()).for_each(|sentinel| cluster.hear(sentinel));
        for server in cluster.servers().iter().filter(|server| !server.is(&primary)) {
            cluster.learn(server);
        }
        self.rest(1_000).await;
        primary.thaw();
        self.rest(STALE_MS).await;
        // What was released at the former primary meanwhile.
        self.excuse_revived(cluster, &primary, &promoted);
        cluster.learn(&primary);
    }

    async fn fail(&mut self, cluster: &Shards) {
        let primary = self.primary(cluster);
        fail(&primary, self.plan, &mut self.dice);
        let down_ms = self.dice.pick(&[0, 300, 2_000, 6_000]);
        self.rest(down_ms).await;
        mend(&primary);
        self.rest(2_000).await;
        cluster.learn(&primary);
    }
}
