//! Redis Cluster: one node, whichever of its servers has a name's slot, while slots move and servers fail over.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::{FakeSentinel, MASTER, Server, Shards, eventually, redis};
use redlock::{ErrorKind, Guard, Redlock};

const NAME: &str = "foo";

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

/// Whether a server has a key of a slot that is on its way there.
fn has_asked(server: &Server, key: &str) -> bool {
    let mut connection = server.connect();
    let _: redis::Value = redis::cmd("ASKING").query(&mut connection).unwrap();
    redis::cmd("EXISTS").arg(key).query(&mut connection).unwrap()
}

/// How many keys of a slot a server has, whoever may ask for them there.
fn keys_in(server: &Server, slot: &str) -> usize {
    redis::from_redis_value(server.command(&["CLUSTER", "COUNTKEYSINSLOT", slot])).unwrap()
}

/// Returns the primary and the replica that have the lock, as soon as both have it.
fn held_by_both(shards: &Shards) -> (&Server, &Server) {
    let (primary, replica) = (shards.owner(NAME), shards.replica(shards.shard(NAME), 0));
    eventually("the replica has it", || has(replica, NAME));
    (primary, replica)
}

/// A lock is not lost for this time.
async fn stays_held(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err() && guard.is_held(), "{lost:?}");
}

/// As behind a proxy or in a container: the host is the one that this client has reached.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_follows_its_slot_to_a_server_that_is_named_by_its_port_alone() {
    let shards = Shards::start(2, 0);
    for server in &shards.servers {
        let option = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"];
        if server.try_command(&option).is_err() {
            return; // Redis 6.2 names every host.
        }
    }
    let redlock = client(&shards);
    let (from, to) = (shards.owner(NAME), shards.other(NAME));
    let guard = redlock.lock(NAME).await.unwrap();
    shards.open(NAME, from, to);
    shards.move_all(NAME, from, to);
    // The server answers ASK.
    guard.extend().await.unwrap();
    shards.close(NAME, from, to);
    // The server answers MOVED.
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
    assert!(!has(to, NAME));
}

/// Names, with their keys that have moved to the other server: none, the fence alone, the lock alone, or both.
const MOVED: [(&str, &[&str]); 4] =
    [("a", &[]), ("b", &["redlock:fence:{b}"]), ("c", &["c"]), ("d", &["d", "redlock:fence:{d}"])];

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_outlives_an_open_slot() {
    const TTL: Duration = Duration::from_secs(4);
    let shards = Shards::start(2, 0);
    let redlock = client(&shards);
    let mut held = Vec::new();
    for (name, moved) in MOVED {
        let (from, to) = (shards.owner(name), shards.other(name));
        let guard = redlock.lock(name).ttl(TTL).acquire().await.unwrap();
        shards.open(name, from, to);
        if !moved.is_empty() {
            shards.move_keys(moved, from, to);
        }
        held.push((name, from, to, guard));
    }
    for (name, .., guard) in &held {
        stays_held(guard, if *name == "a" { TTL + TTL / 2 } else { Duration::ZERO }).await;
    }
    for (name, from, to, guard) in held {
        guard.check().unwrap();
        let error = redlock.lock(name).timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error:?}");
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        assert!(!has_asked(to, name) && !has(from, name), "{name}");
        shards.move_all(name, from, to);
        shards.close(name, from, to);
        redlock.lock(name).timeout(Duration::ZERO).acquire().await.unwrap().release().await.unwrap();
    }
}

/// How many scripts a server has run, or refused because of where their keys are.
fn scripts(server: &Server) -> u64 {
    counts(server, &["calls=", "rejected_calls="])
}

/// How many scripts a server has refused because of where their keys are.
fn refused(server: &Server) -> u64 {
    counts(server, &["rejected_calls="])
}

/// The sum of these fields of the server's statistics of scripts.
fn counts(server: &Server, fields: &[&str]) -> u64 {
    let told: String = redis::from_redis_value(server.command(&["INFO", "commandstats"])).unwrap();
    let lines = told.lines().filter(|line| line.starts_with("cmdstat_eval"));
    let parts = lines.flat_map(|line| line.split([':', ',']));
    let values = parts.filter_map(|part| fields.iter().find_map(|field| part.strip_prefix(field)));
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

/// One permit has left the server, so that no server can be asked for all of them at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_a_permit_does_not_poll_while_the_slot_is_open() {
    const PERMITS: u32 = 3;
    const TIME: Duration = Duration::from_secs(6);
    /// Every 1.5 s at most: all of them at once, without the count of waiters, each alone, and the moved one elsewhere.
    const SCRIPTS_MOST: u64 = 6 * 6;
    let shards = Shards::start(2, 0);
    let (redlock, other) = (client(&shards), client(&shards));
    let (from, to) = (shards.owner(NAME), shards.other(NAME));
    let mut guards = Vec::new();
    for _ in 0..PERMITS {
        guards.push(redlock.semaphore(NAME, PERMITS).await.unwrap());
    }
    let waiter = tokio::spawn(other.semaphore(NAME, PERMITS).into_future());
    eventually("it waits", || has(from, "redlock:waiters::redlock:slot:0:{foo}"));
    shards.open(NAME, from, to);
    shards.move_keys(&["redlock:slot:1:{foo}"], from, to);
    let before = scripts(from) + scripts(to);
    tokio::time::sleep(TIME).await;
    let asked = scripts(from) + scripts(to) - before;
    assert!((1..=SCRIPTS_MOST).contains(&asked), "{asked} scripts");
    assert!(!waiter.is_finished(), "all permits are held");
    shards.move_all(NAME, from, to);
    shards.close(NAME, from, to);
    let slot = guards[0].slot();
    guards.swap_remove(0).release().await.unwrap();
    let guard = tokio::time::timeout(harness::LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.slot(), slot);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_a_planned_failover_and_a_dead_primary() {
    let shards = Shards::start(3, 1);
    let redlock = client(&shards);
    let guard = redlock.lock(NAME).ttl(Duration::from_secs(8)).acquire().await.unwrap();
    let (primary, replica) = held_by_both(&shards);
    shards.fail_over(shards.shard(NAME));
    guard.extend().await.unwrap();
    shards.settled();
    // What it has granted may be lost.
    let error = redlock.lock("{foo}2").restart_delay(LONG).timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    replica.kill();
    shards.promoted(primary);
    stays_held(&guard, Duration::from_secs(10)).await;
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

/// First for the slot of the lock alone, then for all slots because another one lacks a primary.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_says_so_and_is_used_again_afterwards() {
    const DOWN: &str = "CLUSTERDOWN (the cluster has slots without a primary";
    /// What the map tells once it was asked for again.
    const UNASSIGNED: &str = "does not have a primary for this name's slot now";
    let shards = Shards::start(2, 0);
    let redlock = client(&shards);
    for (coverage, lost, told) in [("no", NAME, &[DOWN, UNASSIGNED][..]), ("yes", "bar", &[DOWN])] {
        let guard = redlock.lock(NAME).await.unwrap();
        let (asked, owner, slot) = (shards.owner(NAME), shards.owner(lost), shards.slot(lost).to_string());
        for server in &shards.servers {
            server.command(&["CONFIG", "SET", "cluster-require-full-coverage", coverage]);
        }
        eventually("the lock's server is down", || {
            for server in &shards.servers {
                // One may have heard of the slot again from another one.
                drop(server.try_command(&["CLUSTER", "DELSLOTS", &slot]));
            }
            asked.try_command(&["EXISTS", NAME]).is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
        });
        let error = guard.extend().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(told.iter().any(|text| error.to_string().contains(text)), "{error}");
        guard.check().unwrap();
        let error = redlock.lock("{foo}2").timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(told.iter().any(|text| error.to_string().contains(text)), "{error}");
        owner.command(&["CLUSTER", "ADDSLOTS", &slot]);
        shards.settled();
        // It is the same server as before.
        let lock = redlock.lock("{foo}2").restart_delay(LONG);
        tokio::time::timeout(harness::LIMIT, lock.acquire()).await.unwrap().unwrap().release().await.unwrap();
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_owed_to_a_dead_primary_goes_to_the_next_one() {
    let shards = Shards::start(3, 1);
    let redlock = client(&shards);
    let guard = redlock.lock(NAME).await.unwrap();
    let (primary, replica) = held_by_both(&shards);
    primary.kill();
    drop(guard);
    shards.promoted(replica);
    eventually("it is released", || !has(replica, NAME));
}

/// Nothing goes round in circles: a call begins again five times, and sends each of its requests on five times.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_name_each_other_give_a_clear_error() {
    /// An attempt at a lock is not sent on.
    const ATTEMPTS_MOST: u64 = 1 + 5;
    const REQUESTS_MOST: u64 = (1 + 5) * (1 + 5);
    let shards = Shards::start(2, 0);
    let redlock = client(&shards);
    let (one, two) = (shards.owner(NAME), shards.other(NAME));
    let (slot, ids) = (shards.slot(NAME).to_string(), [one, two].map(id));
    let elsewhere = redlock.lock("bar").await.unwrap();
    // A renewal would be counted too.
    let guard = redlock.lock(NAME).auto_renew(false).acquire().await.unwrap();
    // A server that has keys of a slot cannot be told that another one has it.
    shards.open(NAME, one, two);
    shards.move_all(NAME, one, two);
    for (server, named) in [(one, &ids[1]), (two, &ids[0])] {
        server.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", named]);
    }
    let asked = AtomicU64::new(refused(one) + refused(two));
    let asked_since = || {
        let now = refused(one) + refused(two);
        now - asked.swap(now, Ordering::SeqCst)
    };

    let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().await.unwrap_err();
    let attempts = asked_since();
    assert!((1..=ATTEMPTS_MOST).contains(&attempts), "{attempts} attempts");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = "does not have this name's slot, and sends requests on to 127.0.0.1:";
    assert!(error.to_string().contains(text), "{error}");

    let error = redlock.lock(NAME).is_locked().await.unwrap_err();
    let requests = asked_since();
    assert!((1..=REQUESTS_MOST).contains(&requests), "{requests} requests of a look");
    assert_eq!(error.kind(), ErrorKind::Unavailable);

    let error = guard.extend().await.unwrap_err();
    let requests = asked_since();
    assert!((1..=REQUESTS_MOST).contains(&requests), "{requests} requests of an extension");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("stays valid for as long as it was") && text.contains("sends requests on to"), "{text}");
    guard.check().unwrap();

    // The background goes on with it, so that its requests are not counted.
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("it is retried in the background") && text.contains("sends requests on to"), "{text}");
    assert_eq!(keys_in(two, &slot), 2, "the lock and its fence");

    for server in [two, one] {
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]);
    }
    eventually("it is released", || !has(two, NAME));
    redlock.lock(NAME).await.unwrap().release().await.unwrap();
    elsewhere.release().await.unwrap();
}

fn id(server: &Server) -> String {
    redis::from_redis_value(server.command(&["CLUSTER", "MYID"])).unwrap()
}

#[tokio::test]
async fn without_any_server_the_error_says_why() {
    let redlock = Redlock::builder().nodes("redis+cluster://127.0.0.1:1,127.0.0.1:2").build().unwrap();
    let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("the servers of the cluster do not tell its map"), "{text}");
}

/// A cluster, a single server and one that a sentinel names, of which one dies.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_all_kinds_make_a_redlock() {
    for dead in 0..3 {
        let shards = Shards::start(2, 0);
        let [single, named] = [(); 2].map(|()| Server::builder().tcp(true).start());
        let sentinel = FakeSentinel::start();
        sentinel.tells(named.port(), 1);
        let sentinels = format!("redis+sentinel://127.0.0.1:{}/{MASTER}", sentinel.port());
        let urls = vec![shards.url(), single.url(), sentinels];
        let redlock = Redlock::builder().nodes(urls).ttl(LONG).restart_delay(Duration::ZERO).build().unwrap();
        let servers = [shards.owner(NAME), &single, &named];
        let guard = redlock.lock(NAME).await.unwrap();
        eventually("all have it", || servers.iter().all(|server| server.get(NAME).is_some()));
        guard.extend().await.unwrap();
        servers[dead].kill();
        guard.extend().await.unwrap();
        assert!(redlock.lock(NAME).is_locked().await.unwrap());
        let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        guard.release().await.unwrap();
        let mut alive = servers.iter().filter(|server| server.answers());
        eventually("none has it", || alive.clone().all(|server| server.get(NAME).is_none()));
        assert!(!redlock.lock(NAME).is_locked().await.unwrap());
        let guard = redlock.lock(NAME).await.unwrap();
        assert!(alive.all(|server| server.get(NAME).is_some()), "both are needed");
        guard.release().await.unwrap();
    }
}

/// It takes writes again for a moment when it goes on, until it hears of the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_primary_is_left_and_nobody_goes_back_to_it() {
    let shards = Shards::start(3, 1);
    let (redlock, other) = (client(&shards), client(&shards));
    let guard = redlock.lock(NAME).ttl(Duration::from_secs(15)).acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock(NAME).into_future());
    let (primary, replica) = held_by_both(&shards);
    primary.freeze();
    shards.promoted(replica);
    let before = replica.asked(&["pexpire"]);
    eventually("it is extended there", || replica.asked(&["pexpire"]) > before);
    primary.thaw();
    stays_held(&guard, Duration::from_secs(3)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    let guard = tokio::time::timeout(harness::LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert!(replica.get(NAME).is_some());
    guard.release().await.unwrap();
}
