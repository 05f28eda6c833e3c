//! Shared locks on real servers: masses of readers are in order, and what a node has forgotten comes back.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use harness::redis::{Value, from_redis_value};
use harness::{LIMIT, Proxy, Server, cluster, eventually};
use redlock::{ErrorKind, Guard, Lock, LockState, Redlock};
use tokio::task::JoinSet;

use crate::suite::{Call, end};

const NAME: &str = "page";
const WAITERS: &str = "redlock:waiters:{page}";

/// Of locks that would not end by themselves within a test.
const LONG: Duration = Duration::from_secs(60);
/// Of locks whose end is waited for.
const SHORT: Duration = Duration::from_secs(2);

/// A client that shares nothing with others, as that of another process.
pub(crate) fn client_apart(servers: &[Server]) -> (Vec<Proxy>, Redlock) {
    let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    // A busy machine answers late, and a node that is given up is not asked.
    let builder = Redlock::builder().nodes(urls).ttl(LONG).node_timeout(Duration::from_secs(10));
    (proxies, builder.restart_delay(Duration::ZERO).build().unwrap())
}

/// A lock with this ttl. A busy machine answers late all the same.
fn lasting<Kind>(lock: Lock<Kind>, ttl: Duration) -> Lock<Kind> {
    lock.ttl(ttl).node_timeout(ttl / 2)
}

fn is_free(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.command(&["EXISTS", NAME]) == Value::Int(0))
}

/// How many owners the node has, the one that stands for the period not counted.
fn readers(server: &Server) -> i64 {
    let members: i64 = from_redis_value(server.command(&["ZCARD", NAME])).unwrap();
    (members - 1).max(0)
}

fn all_have(servers: &[Server], number: i64) -> bool {
    servers.iter().all(|server| readers(server) == number)
}

/// Whether a quorum of nodes counts somebody who waits. A node that was slow may lack a reader, and is free.
fn is_counted(servers: &[Server]) -> bool {
    servers.iter().filter(|server| server.get(WAITERS).is_some()).count() > servers.len() / 2
}

fn begin<Kind>(lock: Lock<Kind>) -> Call {
    tokio::spawn(lock.into_future())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_readers_share_one_name() {
    for servers in [cluster(1), cluster(5)] {
        const READERS: i64 = 1_000;
        let servers = &servers[..];
        let (_proxies, client) = client_apart(servers);
        let start = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..READERS {
            calls.spawn(client.lock(NAME).shared().into_future());
        }
        let guards: Vec<_> = calls.join_all().await.into_iter().map(Result::unwrap).collect();
        println!("{READERS} readers on {} nodes after {:?}", servers.len(), start.elapsed());
        // A node that was slow is not asked after the verdict of the others.
        let quorum = i64::try_from(servers.len() / 2 + 1).unwrap();
        eventually("a quorum has each", || servers.iter().map(readers).sum::<i64>() >= READERS * quorum);
        let view = client.inspect(NAME).await.unwrap();
        assert_eq!((view.state, view.labels.len()), (LockState::Shared, 16));
        assert!(view.readers.unwrap() > 0 && servers.len() > 1 || view.readers == Some(1_000));
        assert!(client.lock(NAME).try_acquire().await.unwrap().is_none());
        for guard in &guards {
            guard.check().unwrap();
        }
        let writer = begin(client.lock(NAME));
        drop(guards);
        end(writer).await.unwrap().release().await.unwrap();
        eventually("nothing is left", || is_free(servers));
    }
}

/// A waiting reader does not stand behind a waiting writer of its own process, and a reader that waits lets others pass once
/// the lock can be shared.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_process_wait_as_those_of_several_do() {
    let servers = cluster(1);
    let (_proxies, client) = client_apart(&servers);
    let writer = client.lock(NAME).await.unwrap();
    let readers: Vec<_> = (0..10).map(|_| begin(client.lock(NAME).shared())).collect();
    eventually("a reader waits", || is_counted(&servers));
    // It may be first.
    let lock = client.lock(NAME);
    let next = tokio::spawn(async move { lock.acquire().await.unwrap().release().await });
    tokio::task::yield_now().await;
    writer.release().await.unwrap();
    let mut held = Vec::new();
    for reader in readers {
        held.push(end(reader).await.unwrap());
    }
    assert!(held.iter().all(Guard::is_held), "all at once");
    drop(held);
    tokio::time::timeout(LIMIT, next).await.expect("every call ends").unwrap().unwrap();
    eventually("nothing is left", || is_free(&servers));
}

/// The one that came last at once, and the first when a quorum remembers the fence of the last one: no writer can have been
/// between them then.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_forgot_gets_its_readers_back() {
    let servers = cluster(3);
    let (_proxies, client) = client_apart(&servers);
    let lock = || lasting(client.lock(NAME).shared(), SHORT);
    let first = lock().await.unwrap();
    eventually("every node has it", || all_have(&servers, 1));
    let second = lock().await.unwrap();
    eventually("every node has both", || all_have(&servers, 2));
    servers[1].command(&["DEL", NAME]);
    eventually("the node has both again", || readers(&servers[1]) == 2);
    for reader in [first, second] {
        reader.check().unwrap();
        reader.release().await.unwrap();
    }
    let reader = lock().await.unwrap();
    eventually("every node has it", || all_have(&servers, 1));
    servers[2].wipe();
    eventually("the node has it again after a restart", || readers(&servers[2]) == 1);
    reader.check().unwrap();
    reader.release().await.unwrap();
    eventually("nothing is left", || is_free(&servers));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_without_data_nobody_shares_for_a_ttl() {
    let server = Server::start();
    let client = Redlock::builder().nodes(server.url()).ttl(SHORT * 2).build().unwrap();
    let lost = client.lock(NAME).shared().await.unwrap();
    server.wipe();
    let error = client.lock(NAME).shared().timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let error = tokio::time::timeout(LIMIT, lost.lost()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Lost);
    client.lock(NAME).shared().await.unwrap().release().await.unwrap();
}

/// Who waits for a lock that a thousand others renew is told a thousand times, and does not ask as often.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_does_not_ask_for_each_reader_that_renews() {
    const READERS: i64 = 300;
    let servers = cluster(1);
    let [(_one, one), (_other, other)] = [client_apart(&servers), client_apart(&servers)];
    let mut calls = JoinSet::new();
    for _ in 0..READERS {
        calls.spawn(lasting(one.lock(NAME).shared(), SHORT * 3).into_future());
    }
    let guards: Vec<_> = calls.join_all().await.into_iter().map(Result::unwrap).collect();
    let writer = begin(other.lock(NAME));
    eventually("the writer is counted", || is_counted(&servers));
    let of_writer = || {
        let text: String = from_redis_value(servers[0].command(&["GET", WAITERS])).unwrap();
        text.parse::<u64>().unwrap()
    };
    assert_eq!(of_writer(), 1);
    let (start, before) = (Instant::now(), servers[0].scripts_asked());
    eventually("each was renewed", || start.elapsed() > SHORT * 3);
    let asked = servers[0].scripts_asked() - before;
    println!("{asked} scripts for {READERS} readers in {:?}", start.elapsed());
    // Some three renewals each, and what the writer asks.
    let renewals = u64::try_from(READERS * 4).unwrap();
    let writers = u64::try_from(start.elapsed().as_millis() / 15).unwrap();
    assert!(asked < renewals + writers, "{asked} scripts, at most {renewals} renewals");
    drop(guards);
    end(writer).await.unwrap().release().await.unwrap();
}
