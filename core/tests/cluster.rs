//! Redis Cluster: one node, whichever of its servers has a name's slot, while slots move and servers fail over.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::{Server, Shards, eventually, redis};
use redlock::{ErrorKind, Level, Redlock};

const NAME: &str = "foo";
const FENCE: &str = "redlock:fence:{foo}";

/// Of locks that would not end by themselves within a test.
const LONG: Duration = Duration::from_secs(60);

fn client(shards: &Shards) -> Redlock {
    Redlock::builder().nodes(shards.url()).ttl(LONG).restart_delay(Duration::ZERO).build().unwrap()
}

/// Whether a server has a key, which it may have as a replica, or on its way elsewhere.
fn has(server: &Server, key: &str) -> bool {
    let mut connection = server.connect();
    let _: redis::Value = redis::cmd("READONLY").query(&mut connection).unwrap();
    redis::cmd("EXISTS").arg(key).query(&mut connection).unwrap_or(false)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_locked_on_the_server_that_has_its_slot() {
    let shards = Shards::start(3, 0);
    let redlock = client(&shards);
    for name in ["foo", "bar", "a", "b", "c{d}", "{e}f", "}g{"] {
        let guard = redlock.lock(name).await.unwrap();
        assert!(shards.owner(name).get(name).is_some(), "{name}");
        assert!(redlock.lock(name).is_locked().await.unwrap());
        let error = redlock.lock(name).timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        assert!(shards.owner(name).get(name).is_none(), "{name}");
        assert!(!redlock.lock(name).is_locked().await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_follows_its_slot() {
    let shards = Shards::start(2, 0);
    let redlock = client(&shards);
    let (from, to) = (shards.owner(NAME), shards.other(NAME));
    let guard = redlock.lock(NAME).await.unwrap();
    shards.migrate(NAME, from, to);
    guard.extend().await.unwrap();
    assert!(redlock.lock(NAME).is_locked().await.unwrap());
    shards.migrate(NAME, to, from);
    guard.release().await.unwrap();
    assert!(!has(from, NAME));
    // A migration bars nothing.
    let guard = redlock.lock(NAME).restart_delay(LONG).timeout(Duration::ZERO).acquire().await.unwrap();
    shards.migrate(NAME, from, to);
    guard.release().await.unwrap();
    redlock.lock(NAME).restart_delay(LONG).timeout(Duration::ZERO).acquire().await.unwrap().release().await.unwrap();
    assert!(to.get(NAME).is_none());
}

/// Nothing, the fence alone, the lock alone, or both have moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_outlives_an_open_slot() {
    let shards = Shards::start(2, 0);
    let redlock = client(&shards);
    for moved in [&[][..], &[FENCE], &[NAME], &[NAME, FENCE]] {
        let (from, to) = (shards.owner(NAME), shards.other(NAME));
        let ttl = Duration::from_secs(1);
        let guard = redlock.lock(NAME).ttl(ttl).auto_renew(true).acquire().await.unwrap();
        shards.open(NAME, from, to);
        if !moved.is_empty() {
            shards.move_keys(moved, from, to);
        }
        let begun = Instant::now();
        while begun.elapsed() < 3 * ttl {
            assert!(guard.is_held(), "{moved:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error:?}");
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        shards.move_all(NAME, from, to);
        shards.close(NAME, from, to);
        assert!(to.get(NAME).is_none(), "{moved:?}");
        assert!(!has(from, NAME));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_follows_the_slot() {
    let shards = Shards::start(2, 0);
    let (redlock, other) = (client(&shards), client(&shards));
    let (from, to) = (shards.owner(NAME), shards.other(NAME));
    let guard = redlock.lock(NAME).await.unwrap();
    let waiter = tokio::spawn(other.lock(NAME).into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    shards.migrate(NAME, from, to);
    guard.release().await.unwrap();
    let guard = tokio::time::timeout(harness::LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert!(to.get(NAME).is_some());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_a_planned_failover_and_a_dead_primary() {
    let shards = Shards::start(3, 1);
    let redlock = client(&shards);
    let guard = redlock.lock(NAME).ttl(Duration::from_secs(8)).acquire().await.unwrap();
    let shard = shards.servers.iter().position(|server| server.port() == shards.owner(NAME).port()).unwrap();
    let (primary, replica) = (&shards.servers[shard], shards.replica(shard, 0));
    eventually("the replica has it", || has(replica, NAME));
    shards.fail_over(shard);
    eventually("all know of it", || {
        shards
            .servers
            .iter()
            .all(|server| shards.owner_by(server, NAME).is_some_and(|owner| owner.port() == replica.port()))
    });
    guard.extend().await.unwrap();
    shards.settled();
    // What it has granted may be lost.
    let error = redlock.lock("{foo}2").restart_delay(LONG).timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    replica.kill();
    shards.promoted(primary);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        assert!(guard.is_held());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    guard.release().await.unwrap();
    assert!(primary.get(NAME).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_down_slows_no_name_of_another() {
    let shards = Shards::start(3, 0);
    let redlock = client(&shards);
    let names = ["foo", "bar", "a", "b", "c", "d", "e", "f"];
    redlock.lock(NAME).await.unwrap().release().await.unwrap();
    let dead = shards.owner(NAME);
    dead.freeze();
    let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let alive = shards.servers.iter().find(|server| server.port() != dead.port()).unwrap();
    for name in names.iter().filter(|name| shards.owner_by(alive, name).is_none_or(|owner| owner.port() != dead.port()))
    {
        redlock.lock(*name).timeout(Duration::ZERO).acquire().await.unwrap().release().await.unwrap();
    }
    dead.thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_owed_follows_the_slot() {
    let shards = Shards::start(2, 0);
    let redlock = client(&shards);
    let (from, to) = (shards.owner(NAME), shards.other(NAME));
    let guard = redlock.lock(NAME).await.unwrap();
    shards.migrate(NAME, from, to);
    drop(guard);
    eventually("it is released", || to.get(NAME).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_owed_to_a_dead_primary_goes_to_the_next_one() {
    let shards = Shards::start(3, 1);
    let redlock = client(&shards);
    let guard = redlock.lock(NAME).await.unwrap();
    let shard = shards.servers.iter().position(|server| server.port() == shards.owner(NAME).port()).unwrap();
    let (primary, replica) = (&shards.servers[shard], shards.replica(shard, 0));
    eventually("the replica has it", || has(replica, NAME));
    primary.kill();
    drop(guard);
    shards.promoted(replica);
    eventually("it is released", || !has(replica, NAME));
}

#[tokio::test]
async fn without_any_server_the_error_says_why() {
    let redlock = Redlock::builder().nodes("redis+cluster://127.0.0.1:1,127.0.0.1:2").build().unwrap();
    let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("no server of the cluster tells its map"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_nodes_of_a_redlock() {
    let clusters = [(); 3].map(|()| Shards::start(2, 0));
    let urls: Vec<_> = clusters.iter().map(Shards::url).collect();
    let redlock = Redlock::builder().nodes(urls).ttl(LONG).restart_delay(Duration::ZERO).build().unwrap();
    let guard = redlock.lock(NAME).await.unwrap();
    eventually("all have it", || clusters.iter().all(|shards| has(shards.owner(NAME), NAME)));
    clusters[0].migrate(NAME, clusters[0].owner(NAME), clusters[0].other(NAME));
    clusters[1].servers.iter().for_each(Server::kill);
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
    eventually("none has it", || [0, 2].iter().all(|number| !has(clusters[*number].owner(NAME), NAME)));
    // A client that has never seen the map of one of them.
    let urls = [clusters[0].url(), clusters[2].url(), "redis+cluster://127.0.0.1:1".to_owned()];
    let redlock = Redlock::builder().nodes(urls.to_vec()).ttl(LONG).build().unwrap();
    let guard = redlock.lock(NAME).await.unwrap();
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
}

/// It takes writes again for a moment when it goes on, until it hears of the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_primary_is_left_and_nobody_goes_back_to_it() {
    let shards = Shards::start(3, 1);
    let (redlock, other) = (client(&shards), client(&shards));
    let guard = redlock.lock(NAME).ttl(Duration::from_secs(8)).acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock(NAME).into_future());
    let shard = shards.servers.iter().position(|server| server.port() == shards.owner(NAME).port()).unwrap();
    let (primary, replica) = (&shards.servers[shard], shards.replica(shard, 0));
    eventually("the replica has it", || has(replica, NAME));
    primary.freeze();
    shards.promoted(replica);
    let before = extensions(replica);
    eventually("it is extended there", || extensions(replica) > before);
    primary.thaw();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(guard.is_held());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    let guard = tokio::time::timeout(harness::LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert!(replica.get(NAME).is_some());
    guard.release().await.unwrap();
}

/// How often a server has made a key live longer.
fn extensions(server: &Server) -> usize {
    let told: String = redis::from_redis_value(server.command(&["INFO", "commandstats"])).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("cmdstat_pexpire:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Every owner finds itself alone, and has a larger fence than the one before, while the slots of all names move to and
/// fro with thousands of keys.
#[tokio::test(flavor = "multi_thread")]
async fn owners_exclude_each_other_while_slots_move_to_and_fro() {
    const NAMES: usize = 4;
    const TASKS: usize = 3;
    const MOVES: usize = 3;
    let shards = Shards::start(2, 0);
    let names: Vec<_> = (0..NAMES).map(|number| format!("name{{{number}}}")).collect();
    for name in &names {
        let mut filling = redis::pipe();
        for key in 0..1_000 {
            filling.cmd("SET").arg(format!("{name}:{key}")).arg("x");
        }
        filling.exec(&mut shards.owner(name).connect()).unwrap();
    }
    let over = Arc::new(AtomicBool::new(false));
    let owners: Arc<Vec<_>> = Arc::new(names.iter().map(|_| (AtomicBool::new(false), AtomicU64::new(0))).collect());
    let mut tasks = Vec::new();
    for task in 0..NAMES * TASKS {
        let (redlock, name, number) = (client(&shards), names[task % NAMES].clone(), task % NAMES);
        let (over, owners) = (Arc::clone(&over), Arc::clone(&owners));
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while !over.load(Ordering::SeqCst) {
                let guard = redlock.lock(&name).ttl(Duration::from_secs(5)).acquire().await.unwrap();
                let (is_owned, last) = &owners[number];
                assert!(!is_owned.swap(true, Ordering::SeqCst), "two own {name}");
                assert!(last.swap(guard.fence(), Ordering::SeqCst) < guard.fence(), "the fence of {name} fell");
                tokio::time::sleep(Duration::from_millis(5)).await;
                guard.check().unwrap();
                is_owned.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
                turns += 1;
            }
            turns
        }));
    }
    for _ in 0..MOVES {
        for name in &names {
            shards.migrate(name, shards.owner(name), shards.other(name));
        }
    }
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        let turns: u64 = tokio::time::timeout(harness::LIMIT, task).await.unwrap().unwrap();
        assert!(turns > 0, "somebody never had a turn");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_with_slots_is_diagnosed() {
    let shards = Shards::start(3, 1);
    let found = client(&shards).diagnose().await.unwrap();
    let mut nodes: Vec<_> = found.iter().map(|diagnosis| diagnosis.node.clone()).collect();
    nodes.sort();
    let mut expected: Vec<_> =
        shards.servers[..3].iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    expected.sort();
    assert_eq!(nodes, expected);
    let unusable =
        found.iter().flat_map(|diagnosis| &diagnosis.findings).filter(|finding| finding.level == Level::Unusable);
    assert_eq!(unusable.count(), 0, "{found:?}");
}
