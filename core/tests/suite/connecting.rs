//! Connecting to a node: how often it is tried, and what is left out where a node takes offence.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::collections::HashSet;
use std::future::IntoFuture;
use std::thread;
use std::time::{Duration, Instant};

use harness::redis::{self, from_redis_value};
use harness::{LIMIT, Proxy, Server, eventually};
use redlock::{ErrorKind, Redlock, blocking};

use super::{Call, end};

/// Most connects to one node in a second.
const MOST_PER_SECOND: u64 = 20;
/// Locks that do not end by themselves within a test.
const LONG: Duration = Duration::from_secs(60);

const NAME: &str = "foo";

/// A client whose connects and calls end by what the node does, however long a busy machine takes for it.
fn client(url: &str) -> Redlock {
    let builder = Redlock::builder().nodes(url).ttl(LONG).restart_delay(Duration::ZERO);
    builder.connect_timeout(LIMIT).node_timeout(LIMIT).timeout(LIMIT).build().unwrap()
}

/// The connections of clients other than this one, by their ids.
fn connections(server: &Server) -> HashSet<u64> {
    let list: String = from_redis_value(server.command(&["CLIENT", "LIST", "TYPE", "normal"])).unwrap();
    let id = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("id=")?.parse().ok());
    list.lines().filter(|line| !line.contains("cmd=client")).filter_map(id).collect()
}

/// Asks for `count` locks at once.
fn wait_for(redlock: &Redlock, count: usize) -> Vec<Call> {
    (0..count).map(|i| tokio::spawn(redlock.lock(format!("job:{i}")).into_future())).collect()
}

/// Now that the server is back, each of the calls gets its lock.
async fn are_served(calls: Vec<Call>) {
    for call in calls {
        drop(end(call).await.unwrap());
    }
}

/// How much a count grows in a second and a half of `trouble`. The time begins before the count and ends after it, so
/// that a busy machine, which counts late, makes it longer.
fn growth(mut count: impl FnMut() -> u64, trouble: impl FnOnce()) -> (u64, Duration) {
    let (start, before) = (Instant::now(), count());
    trouble();
    eventually("a second and a half", || start.elapsed() >= Duration::from_millis(1500));
    (count() - before, start.elapsed())
}

fn connects(proxy: &Proxy) -> u64 {
    u64::try_from(proxy.connections()).unwrap()
}

/// Most connects in this time, and one for each lane that had begun before.
fn most(time: Duration) -> u64 {
    MOST_PER_SECOND * u64::try_from(time.as_millis()).unwrap() / 1000 + 4
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_up_is_connected_to_twenty_times_a_second_at_most() {
    for word in [None, Some("EVAL")] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        let redlock = client(&proxy.url());
        let (mut held, mut calls) = (Vec::new(), Vec::new());
        for i in 0..20 {
            held.push(redlock.lock(format!("held:{i}")).await.unwrap());
        }
        let trouble = || {
            match word {
                Some(word) => proxy.end_at(word, usize::MAX),
                None => proxy.cut_replies_after(0),
            }
            proxy.reset();
            calls = wait_for(&redlock, 300);
        };
        let (count, time) = growth(|| connects(&proxy), trouble);
        assert!(count <= most(time), "{word:?}: {count} connects in {time:?}");
        let before = connects(&proxy);
        eventually("it is tried again", || connects(&proxy) > before);
        proxy.let_go();
        are_served(calls).await;
        for guard in held {
            guard.extend().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_threads_together_keep_to_the_pace() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    proxy.cut_replies_after(0);
    let client = blocking::Redlock::from(client(&proxy.url()));
    assert_eq!(client.lock(NAME).timeout(Duration::ZERO).acquire().unwrap_err().kind(), ErrorKind::Unavailable);
    let until = Instant::now() + Duration::from_millis(1500);
    let threads = || {
        thread::scope(|scope| {
            for i in 0..16 {
                let client = &client;
                scope.spawn(move || {
                    // It asks far more often than it may connect.
                    eventually("the time is over", || {
                        let refused = client.lock(format!("job:{i}")).timeout(Duration::ZERO).acquire().unwrap_err();
                        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
                        assert!(refused.nodes()[0].answer.contains("closed"), "the last failure: {refused}");
                        Instant::now() >= until
                    });
                });
            }
        });
    };
    let (count, time) = growth(|| connects(&proxy), threads);
    assert!(count <= most(time), "{count} connects in {time:?}");
    proxy.let_go();
    let open = |client: &blocking::Redlock| client.lock(NAME).timeout(Duration::ZERO).acquire().is_ok();
    eventually("the node is back", || open(&client));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_named_as_such_and_keeps_nobody_deaf() {
    let server = Server::builder().tcp(true).start();
    let mut admin = server.connect();
    redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1).exec(&mut admin).unwrap();
    let redlock = client(&server.url());
    let mut calls = Vec::new();
    let rejected = || {
        let text: String = redis::cmd("INFO").arg("stats").query(&mut admin).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    let (count, time) = growth(rejected, || calls = wait_for(&redlock, 300));
    assert!(count <= most(time), "{count} connects in {time:?}");
    let once = blocking::Redlock::from(redlock.clone());
    // The server may close a connection before it gets to say why.
    eventually("the error says why", || {
        let refused = once.lock(NAME).timeout(Duration::ZERO).acquire().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        refused.nodes()[0].answer.contains("max number of clients")
    });
    redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1000).exec(&mut admin).unwrap();
    are_served(calls).await;
    is_told(&server, &redlock).await;
}

/// A waiter of `redlock` is told of the release.
async fn is_told(server: &Server, redlock: &Redlock) {
    let holder = redlock.lock(NAME).await.unwrap();
    let waiter = tokio::spawn(redlock.lock(NAME).into_future());
    eventually("the server will tell the waiter", || server.counted("tracking_total_keys") > 0);
    holder.release().await.unwrap();
    tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hang_up_makes_no_node_deaf() {
    for word in ["HELLO", "TRACKING"] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        proxy.end_at(word, 1);
        is_told(&server, &client(&proxy.url())).await;
        assert!(proxy.met() > 0, "{word} was sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_hangs_up_on_is_left_out() {
    for word in ["HELLO", "SETINFO", "\r\nINFO\r\n", "TRACKING", "EVALSHA", "DELIFEQ"] {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        proxy.end_at(word, usize::MAX);
        works(&server, &client(&proxy.url()), word).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_up_on_hashes_is_sent_texts() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    proxy.end_at("EVALSHA", usize::MAX);
    let redlock = client(&proxy.url());
    // Two connections of each lane find it out, at the latest when a busy machine has ended them, and the next ones stay.
    for _ in 0..10 {
        let before = connections(&server);
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(redlock.lock(NAME).timeout(LIMIT).await.unwrap().release().await);
        }
        // The background may connect meanwhile.
        if before.is_subset(&connections(&server)) && answers.iter().all(Result::is_ok) {
            return;
        }
    }
    panic!("connections end again and again");
}

/// Its timers do not wait for a server that takes its time.
#[tokio::test(start_paused = true)]
async fn a_runtime_whose_time_is_paused_connects() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    proxy.hold_requests();
    let lock = Redlock::new(proxy.url()).unwrap().lock(NAME);
    let asking = tokio::spawn(async move { lock.is_locked().await });
    // It runs ahead of every time limit at once.
    tokio::time::sleep(LIMIT).await;
    proxy.let_go();
    assert!(!asking.await.unwrap().unwrap());
}

/// Acquires, waits, extends and releases.
async fn works(server: &Server, redlock: &Redlock, what: &str) {
    let lock = || redlock.lock(NAME).timeout(LIMIT).into_future();
    let holder = lock().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let waiter = tokio::spawn(lock());
    // Its first request may be what ends the caller's connection, and must not end a release.
    eventually("it is counted", || server.get("redlock:waiters:{foo}").is_some());
    while let Err(error) = holder.extend().await {
        assert!(error.nodes()[0].answer.contains("closed") && holder.is_held(), "{what}: {error}");
    }
    holder.release().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let guard = waiter.await.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
    guard.release().await.unwrap_or_else(|error| panic!("{what}: {error}"));
}
