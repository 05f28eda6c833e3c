//! Waiting: woken although news were lost or late, asking nothing in between, and in line within a process.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::{IntoFuture, poll_fn};
use std::slice;
use std::task::Poll;
use std::time::{Duration, Instant};

use harness::redis::{self, from_redis_value};
use harness::{Link, Proxy, SLACK, Server, cluster, eventually};
use redlock::{Error, ErrorKind, Guard, Lock, Redlock};
use tokio::task::JoinHandle;

/// Of locks that would not end by themselves within a test.
const LONG: Duration = Duration::from_secs(60);
/// How late a change may be noticed that nothing has told of.
const BACKSTOP: Duration = Duration::from_secs(2);
/// How far two questions of one waiter are apart at least while nothing happens.
const BACKSTOP_LEAST: Duration = Duration::from_millis(1500);

const NAME: &str = "foo";

/// A call on its way.
type Call = JoinHandle<Result<Guard, Error>>;

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

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

/// The connections on which the server tells of changes and whose last command begins with this, by their ids.
fn told_connections(server: &Server, command: &str) -> Vec<String> {
    let list: String = from_redis_value(server.command(&["CLIENT", "LIST"])).unwrap();
    let field = |line: &str, name: &str| line.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned));
    let is_told =
        |line: &&str| field(line, "flags=").unwrap().contains('t') && field(line, "cmd=").unwrap().starts_with(command);
    list.lines().filter(is_told).map(|line| field(line, "id=").unwrap()).collect()
}

/// The connections over which somebody waits.
fn waiting_connections(server: &Server) -> Vec<String> {
    told_connections(server, "eval")
}

/// Begins a call, which takes its place in line at once.
async fn begin(lock: Lock) -> Call {
    let mut call = lock.into_future();
    poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
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

/// What `call` comes to.
async fn end(call: Call) -> Result<Guard, Error> {
    tokio::time::timeout(harness::LIMIT, call).await.expect("every call ends").unwrap()
}

/// What `call` gets, which may take `limit` and what a busy machine adds.
async fn within(limit: Duration, what: &str, call: Call) -> Guard {
    let result = tokio::time::timeout(limit + SLACK, call).await;
    let result = result.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"));
    result.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// The first attempt of a call is made before it waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_counted_from_its_second_attempt_on() {
    let servers = [Server::start()];
    let redlock = client(urls(&servers));
    // From here on the server knows the scripts.
    redlock.lock("other").await.unwrap().release().await.unwrap();
    take(&servers);
    let before = asked(&servers);
    let waiter = front(&servers, redlock.lock(NAME));
    let counted = || servers[0].asked(&["incr"]);
    eventually("all attempts but one are counted", || counted() + 1 == asked(&servers) - before);
    all(&servers, &["DEL", NAME]);
    within(Duration::ZERO, "free", waiter).await.release().await.unwrap();
}

/// A minority that is free is no reason to ask for the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_becomes_free_wakes_the_waiter() {
    let (servers, _client, waiter) = waited_for(5);
    for server in &servers[..2] {
        let before = asked(&servers);
        server.command(&["DEL", NAME]);
        eventually("it looks", || asked(&servers) > before);
    }
    let fence_key = format!("redlock:fence:{{{NAME}}}");
    assert!(servers.iter().all(|server| server.get(&fence_key).is_none()), "it has asked for the lock");
    servers[2].command(&["DEL", NAME]);
    within(Duration::ZERO, "three of five are free", waiter).await.release().await.unwrap();
}

/// News of one node is no reason to forget when the keys on the others end.
#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_that_nothing_tells_of_is_waited_for_while_another_node_changes() {
    const ENDS: Duration = Duration::from_secs(1);
    let server = || Server::builder().args(["--enable-debug-command", "local"]).start();
    let servers = [server(), server(), server()];
    let redlock = client(urls(&servers));
    all(&servers, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    take(&servers[..1]);
    all(&servers[1..], &["SET", NAME, "theirs", "PX", "1000"]);
    let end = Instant::now() + ENDS;
    let waiter = front(&servers, redlock.lock(NAME));
    // The last news comes when the keys of the others end, and the backstop would be later than a busy machine may be.
    while Instant::now() < end {
        let before = asked(&servers[..1]);
        servers[0].command(&["PEXPIRE", NAME, "60000"]);
        eventually("it looks", || asked(&servers[..1]) > before);
    }
    within(Duration::ZERO, "two of three have expired", waiter).await.release().await.unwrap();
}

/// Nothing is told of databases that are swapped.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nothing_tells_of_is_noticed_soon_enough() {
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        let redlock = client(urls(&servers));
        // Without a ttl, and with a long one.
        for take in [&["SET", NAME, "theirs"][..], &["SET", NAME, "theirs", "PX", "60000"]] {
            all(&servers, take);
            let waiter = front(&servers, redlock.lock(NAME));
            all(&servers, &["SWAPDB", "0", "1"]);
            within(BACKSTOP, "swapped away", waiter).await.release().await.unwrap();
            all(&servers, &["FLUSHALL"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_connection_was_closed_hears_of_the_release() {
    for nodes in [1, 5] {
        let (servers, _client, waiter) = waited_for(nodes);
        for server in &servers {
            let [before] = &waiting_connections(server)[..] else { panic!("one connection waits") };
            server.command(&["CLIENT", "KILL", "ID", before]);
            eventually(
                "it waits on a new connection",
                || matches!(&waiting_connections(server)[..], [after] if after != before),
            );
        }
        all(&servers, &["DEL", NAME]);
        within(Duration::ZERO, "its connection is new", waiter).await.release().await.unwrap();
    }
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
async fn a_release_while_nodes_could_not_be_reached_is_noticed() {
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
        let redlock = client(proxies.iter().map(Proxy::url));
        take(&servers);
        let waiter = front(&servers, redlock.lock(NAME));
        for proxy in &proxies {
            proxy.refuse(true);
            proxy.reset();
        }
        eventually("it has no connection", || servers.iter().all(|server| waiting_connections(server).is_empty()));
        all(&servers, &["DEL", NAME]);
        for proxy in &proxies {
            proxy.refuse(false);
        }
        within(BACKSTOP, "the nodes are back", waiter).await.release().await.unwrap();
    }
}

/// Makes the connections to all nodes: the first one is the caller's, the second one that of the waiters.
async fn connect(servers: &[Server], proxies: &[Proxy], redlock: &Redlock) {
    // It asks all nodes. A lock may be won before the last connection is made, and the background then makes one too.
    redlock.inspect("other").await.unwrap();
    assert!(proxies.iter().all(|proxy| proxy.connections() == 1));
    all(servers, &["SET", "other", "theirs"]);
    let waiter = front(servers, redlock.lock("other"));
    assert!(proxies.iter().all(|proxy| proxy.connections() == 2));
    // Had, and not cancelled, and in one attempt, which hears of all nodes at once: a clean-up would read the key behind
    // this, and have its connection told of the next change for as long as there is none.
    for proxy in proxies {
        proxy.connection(1).hold_replies();
    }
    all(servers, &["DEL", "other"]);
    proxies.iter().for_each(Proxy::let_go);
    within(Duration::ZERO, "the other one is free", waiter).await.release().await.unwrap();
    eventually("no key is left again", || servers.iter().all(|server| server.get("other").is_none()));
    eventually("nobody is told of the other one", || servers.iter().all(|server| told(server) == 0));
}

/// A vote ends when it is decided, and the answers that come later are those to a clean-up.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_grant_came_too_late_are_known_to_be_free() {
    let servers = cluster(5);
    let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
    let redlock = client(proxies.iter().map(Proxy::url));
    connect(&servers, &proxies, &redlock).await;
    let (taken, free) = servers.split_at(3);
    take(taken);
    let slow: Vec<_> = proxies[3..].iter().map(|proxy| proxy.connection(1)).collect();
    slow.iter().for_each(Link::hold_replies);
    let before: Vec<_> = free.iter().map(|server| asked(slice::from_ref(server))).collect();
    let waiter = front(taken, redlock.lock(NAME));
    eventually("they have granted and cleaned up", || {
        // An acquire and a release of the caller, then those of the waiter.
        let done = |(server, before): (&Server, &u64)| {
            asked(slice::from_ref(server)) >= before + 4 && server.get(NAME).is_none()
        };
        free.iter().zip(&before).all(done)
    });
    slow.iter().for_each(Link::let_go);
    taken[0].command(&["DEL", NAME]);
    within(Duration::ZERO, "three of five are free", waiter).await.release().await.unwrap();
}

/// The key is freed after the denial was given and before it has arrived.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_between_the_denial_and_the_sleep_is_not_missed() {
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        let proxies: Vec<_> = servers.iter().map(Proxy::to).collect();
        let redlock = client(proxies.iter().map(Proxy::url));
        connect(&servers, &proxies, &redlock).await;
        take(&servers);
        let waiting = |proxy: &Proxy| proxy.replies_waiting();
        for proxy in &proxies {
            proxy.connection(1).hold_replies();
        }
        let waiter = front(&servers, redlock.lock(NAME));
        eventually("the denials are on their way", || proxies.iter().all(|proxy| waiting(proxy) > 0));
        let denials: Vec<_> = proxies.iter().map(waiting).collect();
        all(&servers, &["DEL", NAME]);
        eventually("so is the news", || proxies.iter().zip(&denials).all(|(proxy, denial)| waiting(proxy) > *denial));
        proxies.iter().for_each(Proxy::let_go);
        within(Duration::ZERO, "freed before the denial was read", waiter).await.release().await.unwrap();
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_in_line_keeps_its_own_timeout_and_says_what_the_front_has_seen() {
    for nodes in [1, 5] {
        let (servers, redlock, first) = waited_for(nodes);
        let start = Instant::now();
        let mut calls = Vec::new();
        for timeout in [100, 500, 300].map(Duration::from_millis) {
            calls.push((timeout, begin(redlock.lock(NAME).timeout(timeout)).await));
        }
        for (timeout, call) in calls {
            let error = end(call).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            let held = error.nodes().iter().filter(|node| node.answer.contains("held")).count();
            assert!(held > nodes / 2, "{error}");
            assert!(start.elapsed() >= timeout, "ended before its timeout");
            assert!(start.elapsed() <= Duration::from_millis(500) + SLACK, "{timeout:?} took {:?}", start.elapsed());
        }
        servers.iter().for_each(Server::kill);
        let late = begin(redlock.lock(NAME).timeout(Duration::from_millis(1_500))).await;
        let error = end(late).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!first.is_finished());
    }
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

/// Others want the lock, so that it is left to them for 100 ms; who cannot wait for so long tries all the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_little_time_tries_although_others_come_first() {
    let servers = [Server::start()];
    let redlock = client(urls(&servers));
    for _ in 0..5 {
        let guard = redlock.lock(NAME).acquire().await.unwrap();
        all(&servers, &["SET", &format!("redlock:waiters:{{{NAME}}}"), "200"]);
        guard.release().await.unwrap();
        let guard = redlock.lock(NAME).timeout(Duration::from_millis(80)).acquire().await.expect("it is free");
        guard.release().await.unwrap();
    }
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

/// A connection goes after the second miss in a row, and one attempt is one miss.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_that_answers_a_waiter_late_once_keeps_its_connection() {
    let servers = [Server::start()];
    let [server] = &servers;
    let proxy = Proxy::to(server);
    // No answer is late by itself, on a busy machine either.
    let nodes = |url: String| Redlock::builder().nodes(url).node_timeout(Duration::from_secs(2)).build().unwrap();
    let holder = nodes(server.url()).lock(NAME).ttl(LONG).acquire().await.unwrap();
    let call = tokio::spawn(nodes(proxy.url()).lock(NAME).into_future());
    // Tracking begins while the connection is set up, and a server that is late then is given up at once.
    waits(&servers);
    let before = told_connections(server, "");
    proxy.delay_replies(Duration::from_millis(2_250));
    // The first answer since then is the one that is late; the next one must not be.
    let seen = proxy.replies_seen();
    eventually("the answer is late", || proxy.replies_seen() > seen);
    proxy.delay_replies(Duration::ZERO);
    holder.release().await.unwrap();
    let guard = call.await.unwrap().unwrap();
    assert_eq!(told_connections(server, ""), before);
    guard.release().await.unwrap();
}
