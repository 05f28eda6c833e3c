//! Waiting: woken although news were lost or late, asking nothing in between, and in line within a process.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use harness::redis::{self, from_redis_value};
use harness::{SLACK, Server, cluster, eventually, urls};
use redlock::{ErrorKind, Guard, Lock, Redlock};

use super::{Call, end, poll_once};

/// Of locks that would not end by themselves within a test.
const LONG: Duration = Duration::from_secs(60);
/// How late a change may be noticed that nothing has told of.
const BACKSTOP: Duration = Duration::from_secs(2);
/// How far two questions of one waiter are apart at least while nothing happens.
const BACKSTOP_LEAST: Duration = Duration::from_millis(1500);

const NAME: &str = "foo";

fn client(urls: impl IntoIterator<Item = String>) -> Redlock {
    Redlock::builder()
        .nodes(urls.into_iter().collect::<Vec<_>>())
        .ttl(LONG)
        // A busy machine answers late, and a node that is given up has other connections and counts than these tests know.
        .node_timeout(harness::LIMIT)
        .restart_delay(Duration::ZERO)
        .build()
        .unwrap()
}

fn all(servers: &[Server], command: &[&str]) {
    for server in servers {
        server.command(command);
    }
}

/// Somebody else has the lock.
fn take(servers: &[Server]) {
    all(servers, &["SET", NAME, "theirs", "NX", "PX", "60000"]);
}

/// How many scripts the servers have run.
fn asked(servers: &[Server]) -> u64 {
    servers.iter().map(Server::scripts_asked).sum()
}

/// How many keys a server will tell the next change of.
fn told(server: &Server) -> u64 {
    server.counted("tracking_total_keys")
}

/// Of how many keys a server tells whoever a script has denied a lock. Redis before 7.2 remembers all that the script was
/// given when it reads one: the fence key too, and the count of those who wait, which the script changes after that.
fn told_of_each(server: &Server) -> u64 {
    let text: String = from_redis_value(server.command(&["INFO", "server"])).unwrap();
    let version = text.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap();
    let old = ["6.", "7.0"].iter().any(|old| version.starts_with(old));
    if old { 2 } else { 1 }
}

/// Waits until a waiter was denied by all `servers`, which will tell it of the next change.
fn waits(servers: &[Server]) {
    eventually("all nodes have denied it", || servers.iter().all(|server| told(server) == told_of_each(server)));
}

/// The connections over which somebody waits: the server tells of changes there, and a script came last.
fn waiting_connections(server: &Server) -> Vec<String> {
    let list: String = from_redis_value(server.command(&["CLIENT", "LIST"])).unwrap();
    let field = |line: &str, name: &str| line.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned));
    let waits =
        |line: &&str| field(line, "flags=").unwrap().contains('t') && field(line, "cmd=").unwrap().starts_with("eval");
    list.lines().filter(waits).map(|line| field(line, "id=").unwrap()).collect()
}

/// Begins a call, which takes its place in line at once.
async fn begin(lock: Lock) -> Call {
    let mut call = lock.into_future();
    poll_once(&mut call).await;
    tokio::spawn(call)
}

/// Begins a call, and waits until it is in front and was denied by all `servers`.
fn front(servers: &[Server], lock: Lock) -> Call {
    let call = tokio::spawn(lock.into_future());
    waits(servers);
    call
}

/// So many servers on which somebody else has the lock, a client, and a call that waits in front.
fn waited_for(nodes: usize) -> (Vec<Server>, Redlock, Call) {
    let servers = cluster(nodes);
    let redlock = client(urls(&servers));
    take(&servers);
    let waiter = front(&servers, redlock.lock(NAME));
    (servers, redlock, waiter)
}

/// What `call` gets, which may take `limit` and what a busy machine adds.
async fn within(limit: Duration, what: &str, call: Call) -> Guard {
    let result = tokio::time::timeout(limit + SLACK, call).await;
    let result = result.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"));
    result.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Each of the calls gets the lock in its turn, and releases it.
async fn are_served_in_order(calls: Vec<Call>) {
    let uses = calls.into_iter().map(|call| {
        tokio::spawn(async {
            let guard = end(call).await.unwrap();
            let fence = guard.fence();
            guard.release().await.unwrap();
            fence
        })
    });
    let mut fences = Vec::new();
    for each in uses.collect::<Vec<_>>() {
        fences.push(each.await.unwrap());
    }
    assert!(fences.is_sorted(), "{fences:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_while_the_connection_was_away_is_noticed() {
    for nodes in [1, 5] {
        let (servers, _client, waiter) = waited_for(nodes);
        for server in &servers {
            // In one step, so that it can not be back before.
            let mut both = redis::pipe();
            both.atomic();
            for connection in waiting_connections(server) {
                both.cmd("CLIENT").arg("KILL").arg("ID").arg(connection);
            }
            both.cmd("DEL").arg(NAME);
            both.exec(&mut server.connect()).unwrap();
        }
        within(Duration::ZERO, "released without its hearing", waiter).await.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_one_process_are_served_in_the_order_of_their_arrival() {
    for nodes in [1, 5] {
        let (servers, redlock, first) = waited_for(nodes);
        let mut calls = vec![first];
        for _ in 1..50 {
            calls.push(begin(redlock.lock(NAME)).await);
        }
        all(&servers, &["DEL", NAME]);
        are_served_in_order(calls).await;
    }
}

#[tokio::test]
async fn calls_that_are_denied_together_are_served_in_their_order() {
    let redlock = Redlock::new("memory://denied-together").unwrap();
    let held = redlock.lock(NAME).await.unwrap();
    let calls: Vec<_> = (0..8).map(|_| tokio::spawn(redlock.lock(NAME).acquire())).collect();
    // Each has tried once.
    tokio::task::yield_now().await;
    held.release().await.unwrap();
    are_served_in_order(calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_try_passes_by_those_who_wait() {
    let (servers, redlock, first) = waited_for(1);
    let before = asked(&servers);
    assert!(redlock.lock(NAME).try_acquire().await.unwrap().is_none());
    // The one in front may have asked as well.
    assert!((1..=2).contains(&(asked(&servers) - before)));
    all(&servers, &["DEL", NAME]);
    within(Duration::ZERO, "somebody has tried", first).await.release().await.unwrap();
}

/// A lock that is won while its client is closed is returned or released: the key never stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_won_while_its_client_is_closed_does_not_leak() {
    const TURNS: usize = 20;
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        let other = client(urls(&servers));
        for turn in 0..TURNS {
            let closing = client(urls(&servers));
            let holder = other.lock(NAME).await.unwrap();
            let waiter = front(&servers, closing.lock(NAME));
            let release = tokio::spawn(holder.release());
            if turn % 2 == 0 {
                tokio::task::yield_now().await;
            }
            closing.close(SLACK).await;
            match end(waiter).await {
                // It is released, as every lock of the client.
                Ok(guard) => assert!(!guard.is_held()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
            }
            release.await.unwrap().unwrap();
            eventually("no key is left", || servers.iter().all(|server| server.get(NAME).is_none()));
        }
    }
}

/// The holder would not notice before its next renewal, hours later.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_deleted_by_hand_while_this_process_holds_them_are_noticed() {
    const DAY: Duration = Duration::from_secs(86_400);
    for nodes in [1, 3] {
        let servers = cluster(nodes);
        let redlock = client(urls(&servers));
        take(&servers);
        let first = front(&servers, redlock.lock(NAME).ttl(DAY));
        let second = begin(redlock.lock(NAME).ttl(DAY)).await;
        all(&servers, &["DEL", NAME]);
        let first = within(Duration::ZERO, "it is free", first).await;
        all(&servers, &["DEL", NAME]);
        let second = within(BACKSTOP, "deleted while this process holds it", second).await;
        assert!(second.fence() > first.fence());
        second.release().await.unwrap();
        drop(first);
    }
}

/// One after another in one process, each behind its own: nobody asks the servers for what this process knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_its_own_process_asks_nothing() {
    let (servers, redlock, first) = waited_for(1);
    let second = begin(redlock.lock(NAME)).await;
    all(&servers, &["DEL", NAME]);
    let guard = within(Duration::ZERO, "it is free", first).await;
    let (before, start) = (asked(&servers), Instant::now());
    eventually("a second has passed", || {
        let (asked, passed) = (asked(&servers), start.elapsed());
        assert!(asked == before || passed > BACKSTOP_LEAST);
        passed > Duration::from_secs(1)
    });
    guard.release().await.unwrap();
    within(Duration::ZERO, "told by its own process", second).await.release().await.unwrap();
}
