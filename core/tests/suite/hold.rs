//! Holding a lock: renewal, the end of its validity, why it was lost and when that is told.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use harness::redis::from_redis_value;
use harness::{Proxy, SLACK, Server, all_have, cluster, eventually};
use redlock::bindings::operator::attach_again;
use redlock::testing::MemoryServer;
use redlock::{Error, ErrorKind, Guard, Lock, LockState, LostReason, NodeState, Point, PointValue, Redlock, blocking};

const TTL: Duration = Duration::from_secs(1);

fn client(servers: &[Server]) -> Redlock {
    Redlock::new(servers.iter().map(Server::url).collect::<Vec<_>>()).unwrap()
}

fn lock(servers: &[Server]) -> Lock {
    client(servers).lock("foo").ttl(TTL)
}

fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

fn text(server: &Server) -> Option<String> {
    server.get("foo").map(|value| String::from_utf8(value).unwrap())
}

/// Waits for the loss, and checks that everything agrees about it.
async fn lost(guard: &Guard) -> Error {
    let error = tokio::time::timeout(harness::LIMIT, guard.lost()).await.expect("the loss is told");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.name(), Some("foo"));
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.check().unwrap_err().reason(), error.reason());
    assert_eq!(guard.extend().await.unwrap_err().reason(), error.reason());
    // Also to those who ask later.
    assert_eq!(guard.lost().await.reason(), error.reason());
    error
}

#[test]
fn a_lock_is_renewed_while_its_runtime_is_not_driven() {
    let servers = cluster(3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(lock(&servers).into_future()).unwrap();
    let start = Instant::now();
    eventually("3 ttl have passed", || {
        guard.check().unwrap();
        start.elapsed() > 3 * TTL
    });
    runtime.block_on(guard.release()).unwrap();
}

#[tokio::test]
async fn a_loss_says_who_took_the_lock() {
    let servers = cluster(1);
    let guard = lock(&servers).await.unwrap();
    let other = client(&servers);
    assert!(other.lock("foo").try_acquire().await.unwrap().is_none(), "it has a connection now");
    servers[0].command(&["DEL", "foo"]);
    let taker = other.lock("foo").label("worker 7").timeout(Duration::ZERO).await.unwrap();
    let error = lost(&guard).await;
    assert_eq!(error.nodes()[0].answer, "held by worker 7");
    assert!(error.to_string().contains("worker 7"), "{error}");
    assert_eq!(guard.check().unwrap_err().nodes(), error.nodes());
    taker.check().unwrap();
}

/// A renewal that is still connecting when the validity ends has not been answered either.
#[tokio::test]
async fn a_lock_is_lost_as_unreachable_before_its_first_renewal_gives_up() {
    let servers = cluster(1);
    let proxy = Proxy::to(&servers[0]);
    let guard = Redlock::new(proxy.url()).unwrap().lock("foo").ttl(TTL).await.unwrap();
    proxy.hold_requests();
    let error = lost(&guard).await;
    assert_eq!(error.reason(), Some(LostReason::Unreachable));
    assert_eq!(error.nodes()[0].answer, "no answer yet");
    proxy.let_go();
    eventually("no key stays", || text(&servers[0]).is_none());
}

/// What came of the reply is none: the connection has closed, and the extension is sent over another one.
#[tokio::test]
async fn an_extension_survives_a_connection_that_closes_within_its_reply() {
    let servers = cluster(1);
    let proxy = Proxy::to(&servers[0]);
    let guard = Redlock::new(proxy.url()).unwrap().lock("foo").auto_renew(false).await.unwrap();
    proxy.connection(0).cut_replies_after(2);
    guard.extend().await.unwrap();
    assert_eq!(proxy.connections(), 2);
    guard.release().await.unwrap();
}

/// Each in its own time, but in batches: the server reads far less often than it is asked.
#[tokio::test]
async fn ten_thousand_locks_are_renewed() {
    const LOCKS: u64 = 10_000;
    const TTL: Duration = Duration::from_secs(15);
    harness::alone!();
    let servers = cluster(1);
    // However slow the machine is, an answer comes in time.
    let client = Redlock::builder().nodes(servers[0].url()).ttl(TTL).node_timeout(TTL / 4).build().unwrap();
    let mut guards = Vec::new();
    for part in 0..LOCKS / 100 {
        let lock = |i| client.lock(format!("job {part} {i}"));
        let acquire = |lock: Lock| async move { lock.acquire().await.unwrap() };
        guards.extend((0..100).map(lock).map(acquire).collect::<tokio::task::JoinSet<_>>().join_all().await);
    }
    let reads = || servers[0].counted("total_reads_processed");
    let (start, asked, read) = (Instant::now(), servers[0].scripts_asked(), reads());
    let mut extended = 0;
    while extended < LOCKS || start.elapsed() < TTL / 2 {
        tokio::time::sleep(TTL / 20).await;
        for guard in &guards {
            guard.check().unwrap();
        }
        extended = servers[0].scripts_asked() - asked;
    }
    let (elapsed, read) = (start.elapsed(), reads() - read);
    // Never sooner than three tenths of the ttl after the last one; the first ones were acquired long before.
    let rounds = 2 + elapsed.as_millis() * 10 / (TTL.as_millis() * 3);
    assert!(u128::from(extended) <= rounds * u128::from(LOCKS), "{extended} extensions in {elapsed:?}");
    assert!(read < extended / 5, "{read} reads for {extended} extensions");
}

/// Neither while its renewals are answered nor when all of them are refused.
#[tokio::test]
async fn a_short_ttl_is_no_hot_loop() {
    let shortest = Duration::from_millis(100);
    let servers = cluster(1);
    // A renewal that no answer ends in this time ends the lock, so that none is tried again.
    let short = client(&servers).lock("foo").ttl(shortest).node_timeout(shortest * 9 / 10);
    let guard = short.await.unwrap();
    let (start, asked) = (Instant::now(), servers[0].scripts_asked());
    while start.elapsed() < TTL {
        let run = servers[0].scripts_asked() - asked;
        // A busy machine loses it, and its release is a script too.
        if !guard.is_held() {
            break;
        }
        // Each three tenths of the ttl after the last one, less what they are rounded down by; the first was acquired
        // before.
        assert!(u128::from(run) <= start.elapsed().as_millis() / 29 + 1, "{run} in {:?}", start.elapsed());
        tokio::time::sleep(shortest / 10).await;
    }
    drop(guard);

    let guard = lock(&servers).await.unwrap();
    servers[0].command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let (start, asked) = (Instant::now(), servers[0].scripts_asked());
    assert_eq!(lost(&guard).await.reason(), Some(LostReason::Unreachable));
    // A twentieth of the ttl after the last one, or half of that.
    let run = servers[0].scripts_asked() - asked;
    assert!(u128::from(run) <= start.elapsed().as_millis() / 25 + 1, "{run} in {:?}", start.elapsed());
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
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
    for _ in 0..2 {
        servers[1].wipe();
        eventually("it comes back", || text(&servers[1]).is_some());
        // A client of the same nodes has the same connections.
        answers_are_read(&blocking::Redlock::new(urls(&servers)).unwrap());
    }
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
        servers[..quorum(nodes)].iter().for_each(Server::kill);
        servers[..quorum(nodes)].iter().for_each(Server::wipe);
        assert_eq!(guard.wait_lost(NOT_BY_ITSELF).unwrap().reason(), Some(LostReason::Deleted));
    }
}

/// Whoever restarts it every few milliseconds must not have it renewed as often.
#[tokio::test]
async fn a_connection_that_breaks_often_is_no_reason_to_renew_without_end() {
    let servers = cluster(1);
    let guard = held_in_the_background(&servers);
    let (before, start) = (servers[0].scripts_asked(), Instant::now());
    let mut broken = 0;
    eventually("its connections have been broken many times", || {
        let killed = servers[0].command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        broken += from_redis_value::<u64>(killed).unwrap();
        // After each one the next connection comes later, up to a second.
        broken >= 5
    });
    // One for each half of the shortest pause, of 250 ms.
    let paced = start.elapsed().as_millis() / 250 + 2;
    let extended = servers[0].scripts_asked() - before;
    assert!(u128::from(extended) <= paced, "{extended} extensions in {:?}", start.elapsed());
    guard.check().unwrap();
    eventually("the node may be connected to again", || guard.extend().is_ok());
    guard.release().unwrap();
}

/// Returns once the background has read all that the nodes had answered it. An answer to a restore that was not read
/// when its connection ends keeps the next restore away.
fn answers_are_read(client: &blocking::Redlock) {
    let read = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Inside a runtime, the background makes the call, over the connections on which it restores.
        let _inside = runtime.enter();
        eventually("all answers are read", || {
            let view = client.inspect("foo").unwrap();
            view.holders == view.nodes.len()
        });
    };
    // The test's own thread may have a runtime already.
    thread::scope(|scope| scope.spawn(read).join().unwrap());
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

#[tokio::test]
async fn nothing_overtakes_a_release() {
    // Nodes that answer at once, on a runtime that does nothing else before the next call.
    let redlock = Redlock::new(["memory://hold-1", "memory://hold-2", "memory://hold-3"]).unwrap();
    for _ in 0..3 {
        let guard = redlock.lock("foo").await.unwrap();
        let view = redlock.inspect("foo").await.unwrap();
        assert_eq!((view.state, view.holders), (LockState::Held, 3), "{view:?}");
        guard.release().await.unwrap();
        let view = redlock.inspect("foo").await.unwrap();
        assert_eq!((view.state, view.holders), (LockState::Free, 0), "{view:?}");
        assert!(view.nodes.iter().all(|node| node.state == NodeState::Free), "{view:?}");
    }
}

#[tokio::test]
async fn a_release_that_no_quorum_answers_is_finished_later() {
    for nodes in [1, 3] {
        let servers = cluster(nodes);
        let guard = client(&servers).lock("foo").ttl(Duration::from_secs(60)).await.unwrap();
        servers[..quorum(nodes)].iter().for_each(Server::freeze);
        let start = Instant::now();
        let error = guard.release().await.unwrap_err();
        assert!(start.elapsed() <= Duration::from_millis(1500) + SLACK);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        servers[..quorum(nodes)].iter().for_each(Server::thaw);
        eventually("no key stays", || servers.iter().all(|server| text(server).is_none()));
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
    let urls: Vec<_> = [proxy.url()].into_iter().chain(servers[1..].iter().map(Server::url)).collect();
    let redlock = Redlock::builder().nodes(urls).node_timeout(Duration::from_secs(5)).build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
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

#[test]
fn a_release_waits_longer_for_a_busy_server_than_other_requests() {
    let servers = cluster(1);
    let proxy = Proxy::to(&servers[0]);
    let redlock = Redlock::builder().nodes(proxy.url()).ttl(2 * TTL).auto_renew(false);
    let redlock = redlock.node_timeout(Duration::from_millis(20)).build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        redlock.lock("foo").await.unwrap().release().await.unwrap();
        let guard = redlock.lock("foo").await.unwrap();
        // More than the node_timeout, and less than the 250 ms of a release.
        proxy.delay_replies(Duration::from_millis(120));
        guard.release().await.unwrap();
    });
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
    available([true, false, true]);
    let attached = redlock.attach(text.as_str()).timeout(Duration::from_secs(5)).acquire().await;
    attached.unwrap().release().await.unwrap();
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
    let other = Redlock::new(servers.iter().rev().map(Server::url).collect::<Vec<_>>()).unwrap();
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
}

/// As `redlock extend --token` does: the key is that of the text, before and after.
#[tokio::test]
async fn a_text_that_stays_as_it_is_keeps_its_key_on_a_node_that_was_not_reached() {
    let HandedOver { servers, proxy, redlock, text: detached } = handed_over_without_a_node().await;
    let guard = attach_again(&redlock, &detached).acquire().await.unwrap();
    drop(guard.detach().await.unwrap());
    assert_eq!(pending_releases(&proxy), Some(0.0));
    assert_eq!(text(&servers[2]), text(&servers[0]));
}

/// How many releases a node is owed.
fn pending_releases(proxy: &Proxy) -> Option<f64> {
    let stats = redlock::stats();
    let metric = stats.metrics.iter().find(|metric| metric.name == "redlock_releases_pending")?;
    let is_of = |point: &&Point| point.labels.iter().any(|(_, value)| *value == proxy.url());
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
    let attaching = tokio::spawn(redlock.attach(detached.as_str()).timeout(Duration::ZERO).into_future());
    eventually("it has another token", || text(&servers[0]) != before);
    proxy.refuse(true);
    proxy.reset();
    assert_eq!(attaching.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.let_go();
    proxy.refuse(false);
    let attached = redlock.attach(detached.as_str()).timeout(Duration::from_secs(5)).acquire().await;
    attached.unwrap().release().await.unwrap();
}
