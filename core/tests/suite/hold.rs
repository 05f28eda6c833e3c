//! Holding a lock: renewal, the end of its validity, why it was lost and when that is told.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::pin::pin;
use std::time::{Duration, Instant};

use harness::redis::from_redis_value;
use harness::{Proxy, Server, all_have, cluster, eventually, urls};
use redlock::bindings::operator::attach_again;
use redlock::testing::MemoryServer;
use redlock::{Error, ErrorKind, Guard, LostReason, Point, PointValue, Redlock, blocking};

use super::{client, one_worker};

fn text(server: &Server) -> Option<String> {
    server.get("foo").map(|value| String::from_utf8(value).unwrap())
}

/// A lock whose next renewals are far away, held by the background's own connections.
fn held_in_the_background(servers: &[Server]) -> blocking::Guard {
    let guard = blocking::Redlock::new(urls(servers))
        .unwrap()
        .lock("foo")
        .ttl(FAR)
        .restart_delay(Duration::ZERO)
        .acquire()
        .unwrap();
    guard.extend().unwrap();
    all_have(servers, "foo");
    guard
}

/// No renewal is due by itself before three tenths of it.
const FAR: Duration = Duration::from_secs(60);
const NOT_BY_ITSELF: Duration = Duration::from_secs(17);

#[tokio::test]
async fn a_node_that_restarts_empty_gets_the_lock_back_at_once() {
    let servers = cluster(3);
    let guard = held_in_the_background(&servers);
    let start = Instant::now();
    servers[1].wipe();
    eventually("it comes back", || text(&servers[1]).is_some());
    assert!(start.elapsed() < NOT_BY_ITSELF);
    guard.check().unwrap();
    guard.release().unwrap();
}

#[tokio::test]
async fn a_restart_that_forgot_the_lock_is_told_at_once() {
    for nodes in [1, 3] {
        let servers = cluster(nodes);
        let guard = held_in_the_background(&servers);
        // All are down at once, so that none gets the lock back before the next one has forgotten it.
        let quorum = &servers[..=nodes / 2];
        quorum.iter().for_each(Server::kill);
        quorum.iter().for_each(Server::wipe);
        assert_eq!(guard.wait_lost(NOT_BY_ITSELF).unwrap().reason(), Some(LostReason::Deleted));
    }
}

#[tokio::test]
async fn a_node_that_is_reached_after_the_release_gets_nothing() {
    let servers = cluster(3);
    let proxy = Proxy::to(&servers[2]);
    proxy.refuse(true);
    let client = Redlock::new([servers[0].url(), servers[1].url(), proxy.url()]).unwrap();
    let guard = client.lock("foo").ttl(FAR).auto_renew(false).acquire().await.unwrap();
    guard.release().await.unwrap();
    proxy.refuse(false);
    let guard = client.lock("other").ttl(FAR).auto_renew(false).acquire().await.unwrap();
    eventually("the next lock gets there", || servers[2].get("other").is_some());
    assert_eq!(text(&servers[2]), None);
    guard.release().await.unwrap();
}

/// It could not be reached for a while, so that it is tried seldom, and is back. Another node has lost the key, so that it
/// decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_and_an_extension_connect_to_a_node_that_is_back() {
    for extends in [false, true] {
        let servers = cluster(3);
        let proxy = Proxy::to(&servers[2]);
        let client = Redlock::new([servers[0].url(), servers[1].url(), proxy.url()]).unwrap();
        let guard = client.lock("foo").ttl(FAR).await.unwrap();
        eventually("it has it", || text(&servers[2]).is_some());
        proxy.refuse(true);
        proxy.reset();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            let other = client.lock("other").node_timeout(Duration::from_secs(5));
            other.acquire().await.unwrap().release().await.unwrap();
        }
        servers[1].command(&["DEL", "foo"]);
        proxy.refuse(false);
        // A failure is told for so long, whoever asks.
        tokio::time::sleep(Duration::from_millis(60)).await;
        if extends {
            guard.extend().await.unwrap();
        } else {
            guard.release().await.unwrap();
        }
    }
}

/// What becomes of a release whose connection ends before the answer is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It was not executed, and another has taken the lock before.
    Taken,
    /// It was executed.
    Executed,
    /// It was executed, and another has taken the lock since.
    TakenSince,
}

/// Releases a lock on `nodes` nodes, one of them behind a proxy that breaks the connection under the release.
fn released_twice(fate: Fate, nodes: usize) -> Result<(), Error> {
    let servers = cluster(nodes);
    let proxy = Proxy::to(&servers[0]);
    let nodes: Vec<_> = [proxy.url()].into_iter().chain(urls(&servers[1..])).collect();
    let redlock = Redlock::builder().nodes(nodes).node_timeout(Duration::from_secs(5)).build().unwrap();
    let runtime = one_worker();
    let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
    eventually("all nodes have granted", || servers.iter().all(|server| text(server).is_some()));
    if fate == Fate::Taken {
        servers[0].command(&["SET", "foo", "another"]);
        proxy.hold_requests();
    } else {
        proxy.hold_replies();
    }
    let release = runtime.spawn(guard.release());
    match fate {
        Fate::Taken => eventually("the release is held back", || proxy.requests_waiting() > 0),
        _ => eventually("the release is executed", || text(&servers[0]).is_none()),
    }
    if fate == Fate::TakenSince {
        servers[0].command(&["SET", "foo", "another"]);
    }
    proxy.reset();
    proxy.let_go();
    runtime.block_on(release).unwrap()
}

#[test]
fn a_release_that_is_sent_again_and_finds_another_owner_is_a_loss() {
    for fate in [Fate::Taken, Fate::TakenSince] {
        let error = released_twice(fate, 1).unwrap_err();
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Lost, Some(LostReason::Taken)), "{fate:?}: {error}");
        // Says that the loss may be none.
        assert_eq!(error.nodes()[0].answer, "held by another when it was asked again", "{fate:?}");
        assert!(released_twice(fate, 3).is_ok(), "{fate:?}: the others had the lock");
    }
}

#[test]
fn a_release_that_is_sent_again_and_finds_nothing_is_done() {
    for nodes in [1, 3] {
        released_twice(Fate::Executed, nodes).unwrap();
    }
}

/// A node that has given the lock's key another token refuses the next question, and then the attachment is given up.
#[tokio::test]
async fn an_attachment_that_is_given_up_leaves_the_lock_to_the_next_one() {
    let servers = [(); 3].map(|()| MemoryServer::new());
    let available = |available: [bool; 3]| {
        servers.iter().zip(available).for_each(|(server, available)| server.set_available(available));
    };
    let redlock = Redlock::new(servers.each_ref().map(MemoryServer::url)).unwrap();
    let text = redlock.lock("foo").await.unwrap().detach().await.unwrap();
    available([true, false, false]);
    let attached = redlock.attach(text.as_str());
    {
        let mut attaching = pin!(attached.acquire());
        // The second one is longer than the pause before the next try.
        for (are, time) in [([true, false, false], 1), ([false; 3], 200)] {
            available(are);
            let early = tokio::time::timeout(Duration::from_millis(time), &mut attaching).await;
            assert!(early.is_err(), "no quorum answers");
        }
        available([true, false, false]);
    }
    let attach = |timeout| redlock.attach(text.as_str()).timeout(timeout).acquire();
    // It waits until the one before has ended. Else that may win the lock, which nobody would receive.
    assert_eq!(attach(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Unavailable);
    available([true, false, true]);
    attach(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
}

/// The server has not answered the first one, and does what that has asked when it goes on.
#[tokio::test]
async fn a_text_can_be_attached_again_at_once() {
    let servers = cluster(1);
    let redlock = client(&servers);
    let text = redlock.lock("foo").ttl(Duration::from_secs(60)).await.unwrap().detach().await.unwrap();
    let attached = redlock.attach(text.as_str());
    servers[0].freeze();
    let moment = Duration::from_millis(100);
    assert!(tokio::time::timeout(moment, attached.acquire()).await.is_err());
    let mut again = pin!(attached.acquire());
    assert!(tokio::time::timeout(moment, &mut again).await.is_err());
    servers[0].thaw();
    again.await.unwrap().release().await.unwrap();
}

async fn connect_to_all(redlock: &Redlock, servers: &[Server]) {
    let warm = redlock.lock("warm").await.unwrap();
    eventually("all nodes are connected to", || servers.iter().all(|server| server.get("warm").is_some()));
    warm.release().await.unwrap();
}

/// Whoever attaches the lock has another token, and would not delete it.
#[tokio::test]
async fn a_node_that_grants_after_the_lock_was_detached_keeps_no_key() {
    let servers = cluster(3);
    let redlock = client(&servers);
    connect_to_all(&redlock, &servers).await;
    servers[2].freeze();
    let detached = redlock.lock("foo").ttl(Duration::from_secs(60)).await.unwrap().detach().await.unwrap();
    // A client whose connection to that node is not made.
    let other = Redlock::new(urls(servers.iter().rev())).unwrap();
    other.attach(detached.as_str()).await.unwrap().release().await.unwrap();
    servers[2].thaw();
    // It does the acquire first.
    eventually("the fence is there", || servers[2].get("redlock:fence:{foo}").is_some());
    eventually("the key is gone", || text(&servers[2]).is_none());
}

/// The ttl of a text is for whom the text is.
#[tokio::test]
async fn a_detach_that_is_given_up_leaves_the_ttl_of_renewals() {
    const TTL: Duration = Duration::from_secs(20);
    let servers = cluster(3);
    let redlock = client(&servers);
    connect_to_all(&redlock, &servers).await;
    servers[2].freeze();
    let guard = redlock.lock("foo").ttl(TTL).await.unwrap();
    let detached = tokio::time::timeout(Duration::from_millis(100), Guard::detach_for(&guard, 3 * TTL)).await;
    assert!(detached.is_err(), "it waits for the third node");
    // An extension shortens no key.
    servers[0].command(&["PEXPIRE", "foo", "10000"]);
    guard.extend().await.unwrap();
    let left: u64 = from_redis_value(servers[0].command(&["PTTL", "foo"])).unwrap();
    assert!((10_001..=20_000).contains(&left), "{left}");
}

/// A detached lock, whose text a client attaches that does not reach the last node.
struct HandedOver {
    servers: Vec<Server>,
    proxy: Proxy,
    redlock: Redlock,
    text: String,
}

async fn handed_over_without_a_node() -> HandedOver {
    let servers = cluster(3);
    let proxy = Proxy::to(&servers[2]);
    let held = client(&servers).lock("foo").ttl(Duration::from_secs(60)).await.unwrap();
    eventually("every node has granted it", || servers.iter().all(|server| text(server).is_some()));
    let detached = held.detach().await.unwrap();
    proxy.refuse(true);
    let redlock = Redlock::new([servers[0].url(), servers[1].url(), proxy.url()]).unwrap();
    HandedOver { servers, proxy, redlock, text: detached.into() }
}

/// That node has the key of the former holder until then.
#[tokio::test]
async fn an_attached_lock_is_put_on_a_node_that_the_attach_did_not_reach() {
    let HandedOver { servers, proxy, redlock, text: detached } = handed_over_without_a_node().await;
    let guard = redlock.attach(&detached).await.unwrap();
    assert_ne!(text(&servers[2]), text(&servers[0]));
    proxy.refuse(false);
    eventually("it has the fresh token", || text(&servers[2]) == text(&servers[0]));
    guard.release().await.unwrap();
    eventually("no node has it", || servers.iter().all(|server| text(server).is_none()));
}

#[tokio::test]
async fn a_release_reaches_a_node_that_the_attach_did_not_reach() {
    let HandedOver { servers, proxy, redlock, text: detached } = handed_over_without_a_node().await;
    redlock.attach(&detached).await.unwrap().release().await.unwrap();
    proxy.refuse(false);
    eventually("no node has it", || servers.iter().all(|server| text(server).is_none()));

    // What was sent to it may be lost, too.
    let guard = redlock.lock("foo").ttl(Duration::from_secs(60)).await.unwrap();
    all_have(&servers, "foo");
    let detached = guard.detach().await.unwrap();
    proxy.hold_requests();
    redlock.attach(detached.as_str()).await.unwrap().release().await.unwrap();
    assert!(text(&servers[2]).is_some());
    proxy.reset();
    proxy.let_go();
    eventually("no node has it", || servers.iter().all(|server| text(server).is_none()));
}

/// It has the key of the other name, with the token of the text.
#[tokio::test]
async fn a_node_that_has_lost_one_of_several_names_is_given_all_or_keeps_none() {
    const NAMES: [&str; 2] = ["{foo}bar", "{foo}baz"];
    let servers = cluster(3);
    let redlock = client(&servers);
    let has = |names: &[&str]| servers.iter().all(|server| names.iter().all(|name| server.get(name).is_some()));
    let has_none = || servers.iter().all(|server| NAMES.iter().all(|name| server.get(name).is_none()));
    let values = |server: &Server| NAMES.map(|name| server.get(name));
    // Most times it answers before the others are a quorum.
    for extends in [false, false, false, true] {
        let guard = redlock.lock_all(NAMES).ttl(Duration::from_secs(60)).await.unwrap();
        eventually("all nodes have it", || has(&NAMES));
        let detached = guard.detach().await.unwrap();
        servers[0].command(&["DEL", NAMES[0]]);
        let guard = redlock.attach(detached.as_str()).await.unwrap();
        if extends {
            // An extension that is answered before the attach leaves it to the next one.
            let put_back = async {
                while values(&servers[0]) != values(&servers[2]) {
                    guard.extend().await.unwrap();
                }
            };
            tokio::time::timeout(Duration::from_secs(30), put_back).await.expect("it has the fresh token");
        }
        guard.release().await.unwrap();
        eventually("no node has it", has_none);
    }
}

#[tokio::test]
async fn a_text_that_has_lost_one_of_several_names_leaves_no_other() {
    let servers = cluster(1);
    let redlock = client(&servers);
    let guard = redlock.lock_all(["foo", "bar"]).ttl(Duration::from_secs(60)).await.unwrap();
    let detached = guard.detach().await.unwrap();
    servers[0].command(&["DEL", "bar"]);
    assert_eq!(redlock.attach(detached.as_str()).await.unwrap_err().reason(), Some(LostReason::Deleted));
    eventually("the other name is free", || text(&servers[0]).is_none());
}

/// As `redlock extend --token` does: the key is that of the text, before and after.
#[tokio::test]
async fn a_text_that_stays_as_it_is_keeps_its_key_on_a_node_that_was_not_reached() {
    let HandedOver { servers, proxy, redlock, text: detached } = handed_over_without_a_node().await;
    let guard = attach_again(&redlock, &detached).acquire().await.unwrap();
    drop(guard.detach().await.unwrap());
    assert_eq!(pending_releases(&proxy.url()), Some(0.0));
    assert_eq!(text(&servers[2]), text(&servers[0]));
}

#[tokio::test]
async fn a_text_that_stays_as_it_is_keeps_its_key_however_an_extension_ends() {
    let servers = cluster(3);
    let redlock = client(&servers);
    connect_to_all(&redlock, &servers).await;
    let guard = redlock.lock("foo").ttl(Duration::from_secs(60)).await.unwrap();
    all_have(&servers, "foo");
    let detached = guard.detach().await.unwrap();
    let extending = || attach_again(&redlock, detached.as_str()).acquire();
    servers[2].freeze();
    drop(extending().await.unwrap().detach().await.unwrap());
    servers[2].thaw();
    eventually("it has done all", || pending_releases(&servers[2].url()) == Some(0.0));
    assert_eq!(text(&servers[2]), text(&servers[0]), "also on a node that answers late");
    drop(extending().await.unwrap());
    drop(redlock.attach(detached.as_str()).await.expect("also if it is given up"));
}

/// How many releases a node is owed.
fn pending_releases(url: &str) -> Option<f64> {
    let stats = redlock::stats();
    let metric = stats.metrics.iter().find(|metric| metric.name == "redlock_releases_pending")?;
    let is_of = |point: &&Point| point.labels.iter().any(|(_, value)| value == url);
    match metric.points.iter().find(is_of)?.value {
        PointValue::Number(number) => Some(number),
        _ => None,
    }
}

/// It has given the key another token, and nobody could tell it to give that back.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_can_be_attached_again_after_its_node_was_away() {
    let servers = cluster(1);
    let proxy = Proxy::to(&servers[0]);
    let redlock = Redlock::new(proxy.url()).unwrap();
    let held = redlock.lock("foo").ttl(Duration::from_secs(60)).await.unwrap();
    let detached = held.detach().await.unwrap();
    let before = text(&servers[0]);
    proxy.hold_replies();
    // So long that it does not give the key back before the test has seen its token.
    let attached = redlock.attach(detached.as_str()).node_timeout(Duration::from_secs(5));
    let attaching = tokio::spawn(attached.timeout(Duration::ZERO).into_future());
    eventually("it has another token", || text(&servers[0]) != before);
    proxy.refuse(true);
    proxy.reset();
    assert_eq!(attaching.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.let_go();
    proxy.refuse(false);
    let attached = redlock.attach(detached.as_str()).timeout(Duration::from_secs(5)).acquire().await;
    attached.unwrap().release().await.unwrap();
}

/// What was asked over a connection that ended while it was idle may have come, or not.
#[tokio::test]
async fn an_ended_connection_changes_nothing_for_an_attachment() {
    for end in [None, Some(LostReason::Deleted), Some(LostReason::Taken)] {
        let servers = cluster(1);
        let proxy = Proxy::to(&servers[0]);
        let redlock = Redlock::new(proxy.url()).unwrap();
        let node_timeout = Duration::from_secs(5);
        let lock = || redlock.lock("foo").ttl(FAR).node_timeout(node_timeout).timeout(Duration::ZERO);
        let detached = lock().await.unwrap().detach().await.unwrap();
        let other = client(&servers);
        let _guard =
            if end == Some(LostReason::Taken) { Some(other.attach(detached.as_str()).await.unwrap()) } else { None };
        if end == Some(LostReason::Deleted) {
            servers[0].command(&["DEL", "foo"]);
        }
        proxy.reset();
        let start = Instant::now();
        let attached = redlock.attach(detached.as_str()).node_timeout(node_timeout).timeout(Duration::ZERO).await;
        match attached {
            Ok(guard) => {
                assert_eq!(end, None);
                guard.release().await.unwrap();
                drop(lock().await.unwrap());
            }
            Err(error) => assert_eq!(error.reason(), end, "{error}"),
        }
        assert!(start.elapsed() < node_timeout, "{:?}", start.elapsed());
    }
}
