//! Delete follows create: where an acquire is unanswered, its release goes out on the same connection, right behind it.
//!
//! Over any other connection the release may be executed first, and the key that the acquire then creates stays for a
//! whole ttl. Each test holds the acquire's own connection back at a proxy, lets everything else pass, gives the lock
//! up in another way, lets go, and reads the server's MONITOR: on that connection a release must come next.
#![allow(clippy::disallowed_methods, reason = "a real server lives in real time")]

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harness::redis::{cmd, from_redis_value};
use harness::{LIMIT, Proxy, Server, eventually, is_alone, this_test};
use redlock::{ErrorKind, NodeState, Redlock, blocking};

/// What a server executes: (connection, command, first key), scripts' inner commands left out.
struct Monitor(Arc<Mutex<Vec<(String, String, String)>>>);

impl Monitor {
    fn of(server: &Server) -> Self {
        let mut connection = server.connect();
        connection.send_packed_command(&cmd("MONITOR").get_packed_command()).unwrap();
        connection.recv_response().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            // Ends with the server.
            while let Ok(value) = connection.recv_response() {
                let line: String = from_redis_value(value).unwrap();
                let Some((from, rest)) = line.split_once("] ") else { continue };
                let from = from.rsplit(' ').next().unwrap().to_owned();
                let words = words(rest);
                if from != "lua" && words.len() > 3 {
                    log.lock().unwrap().push((from, words[0].to_lowercase(), words[3].clone()));
                }
            }
        });
        Self(seen)
    }

    /// Connections and numbers of keys of the script calls for `name`: two keys for an acquire, one for a release.
    fn calls(&self, name: &str) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        let of_name = |(_, command, key): &&(String, String, String)| command.starts_with("eval") && key == name;
        seen.iter().filter(of_name).map(|(from, ..)| from.clone()).collect()
    }
}

/// The words of a MONITOR line: each in quotes, with `\"` and `\\` inside.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut inside, mut escaped) = (Vec::new(), String::new(), false, false);
    for character in line.chars() {
        match character {
            _ if escaped => {
                word.push(character);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' if inside => {
                words.push(std::mem::take(&mut word));
                inside = false;
            }
            '"' => inside = true,
            _ if inside => word.push(character),
            _ => {}
        }
    }
    words
}

/// Blocking callers of one process share their runtimes, and with them the connections: such a test has a process of
/// its own, or its calls would go out over several.
fn in_own_process(name: &str) -> bool {
    is_alone(this_test(module_path!(), name))
}

/// A server on TCP, where connections can be told apart, and a proxy in front of it.
fn stage() -> (Server, Proxy) {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    (server, proxy)
}

/// Two more servers, and a client of all three.
fn among_three(proxy: &Proxy) -> ([Server; 2], blocking::Redlock) {
    let others = [Server::start(), Server::start()];
    let nodes = [others[0].url(), proxy.url(), others[1].url()];
    let redlock = blocking::Redlock::builder().nodes(nodes).ttl(Duration::from_secs(60)).build().unwrap();
    connect_to_all_blocking(&redlock);
    (others, redlock)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Connects the current runtime to all nodes: they have all granted, and answered afterwards. Until its connection is
/// made, a quorum wins without a node, and nothing is sent to it. Also makes the scripts known. Leaves nothing held.
async fn connect_to_all(redlock: &Redlock) {
    let end = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < end, "some node does not answer");
        let Some(guard) = redlock.lock("warm-up").try_acquire().await.unwrap() else { continue };
        let view = redlock.inspect("warm-up").await.unwrap();
        guard.release().await.unwrap();
        if view.nodes.iter().all(|node| matches!(node.state, NodeState::Held { .. })) {
            return;
        }
    }
}

/// As [`connect_to_all`], for the runtime of the calling thread.
fn connect_to_all_blocking(redlock: &blocking::Redlock) {
    eventually("all nodes answer", || {
        let Some(guard) = redlock.lock("warm-up").try_acquire().unwrap() else { return false };
        let view = redlock.inspect("warm-up").unwrap();
        guard.release().unwrap();
        view.nodes.iter().all(|node| matches!(node.state, NodeState::Held { .. }))
    });
}

/// The first two script calls for `name` come from one connection: the acquire, and its release right behind it.
fn assert_release_is_right_behind(monitor: &Monitor, server: &Server, name: &str) {
    eventually("the key is gone", || monitor.calls(name).len() >= 2 && server.get(name).is_none());
    let calls = monitor.calls(name);
    assert_eq!(calls[0], calls[1], "the release took another connection: {calls:?}");
}

#[test]
fn after_a_cancelled_attempt() {
    let (server, proxy) = stage();
    let redlock = Redlock::new(proxy.url()).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        connect_to_all(&redlock).await;
        let monitor = Monitor::of(&server);
        proxy.hold_connection(0);
        let lock = redlock.lock("cancelled");
        let mut acquire = Box::pin(lock.acquire());
        eventually("the acquire waits at the node", || {
            let waker = std::task::Waker::noop();
            assert!(acquire.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
            proxy.requests_waiting() > 0
        });
        let waiting = proxy.requests_waiting();
        drop(acquire);
        eventually("the release waits behind it", || proxy.requests_waiting() > waiting);
        proxy.let_go();
        assert_release_is_right_behind(&monitor, &server, "cancelled");
    });
}

#[test]
fn after_a_failed_attempt() {
    let (server, proxy) = stage();
    let redlock = Redlock::new(proxy.url()).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        connect_to_all(&redlock).await;
        let monitor = Monitor::of(&server);
        proxy.hold_connection(0);
        let lock = redlock.lock("failed").node_timeout(Duration::from_millis(50)).timeout(Duration::ZERO);
        lock.acquire().await.unwrap_err();
        proxy.let_go();
        assert_release_is_right_behind(&monitor, &server, "failed");
    });
}

/// The background hears nothing on its own connection either: all there is is the connection of the acquire, which
/// nobody drives once the call is over.
#[test]
fn after_a_blocking_attempt_that_nobody_answered() {
    if !in_own_process("after_a_blocking_attempt_that_nobody_answered") {
        return;
    }
    let (server, proxy) = stage();
    let redlock = blocking::Redlock::builder().nodes([proxy.url()]).ttl(Duration::from_secs(60)).build().unwrap();
    connect_to_all_blocking(&redlock);
    let monitor = Monitor::of(&server);
    proxy.drop_replies();
    let lock = redlock.lock("unheard").node_timeout(Duration::from_millis(50)).timeout(Duration::ZERO);
    lock.acquire().unwrap_err();
    assert_release_is_right_behind(&monitor, &server, "unheard");
}

/// A blocking caller's connections are driven only while it calls.
#[test]
fn after_a_blocking_call_that_nobody_drives_any_more() {
    if !in_own_process("after_a_blocking_call_that_nobody_drives_any_more") {
        return;
    }
    let (slow, proxy) = stage();
    let (others, redlock) = among_three(&proxy);
    proxy.hold_connection(0);
    let guard = redlock.lock("undriven").acquire().unwrap();
    eventually("the acquire waits at the slow node", || proxy.requests_waiting() > 0);
    drop(guard);
    proxy.let_go();
    eventually("the key is gone", || slow.get("undriven").is_none() && others[0].get("undriven").is_none());
}

/// Where nobody drives the connection of the acquire any more, the answers that lie there are not waited for.
#[test]
fn a_release_in_another_place_needs_no_answer_from_there() {
    if !in_own_process("a_release_in_another_place_needs_no_answer_from_there") {
        return;
    }
    let (late, proxy) = stage();
    let (others, redlock) = among_three(&proxy);
    proxy.hold_replies();
    let guard = redlock.lock("elsewhere").node_timeout(Duration::from_secs(10)).acquire().unwrap();
    eventually("the late node has granted too", || late.get("elsewhere").is_some());
    proxy.let_go();
    // So that the late node's vote is needed.
    others[0].command(&["DEL", "elsewhere"]);
    let start = Instant::now();
    // In a tokio context blocking calls run in the background.
    runtime().block_on(async { guard.release() }).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "it has waited for {:?}", start.elapsed());
    eventually("no key is left", || late.get("elsewhere").is_none() && others[1].get("elsewhere").is_none());
}

/// A release that may have come before the acquire cannot tell from finding nothing that the lock was there.
#[test]
fn a_release_ahead_of_its_acquire_is_not_confirmed_by_nothing() {
    if !in_own_process("a_release_ahead_of_its_acquire_is_not_confirmed_by_nothing") {
        return;
    }
    let (late, proxy) = stage();
    let (others, redlock) = among_three(&proxy);
    proxy.hold_replies();
    let guard = redlock.lock("unsure").node_timeout(Duration::from_secs(2)).acquire().unwrap();
    eventually("the late node has granted too", || late.get("unsure").is_some());
    proxy.let_go();
    // One key is left of three: whoever released now held nothing, but only two answers say so.
    others[0].command(&["DEL", "unsure"]);
    late.command(&["DEL", "unsure"]);
    let error = runtime().block_on(async { guard.release() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.nodes().iter().any(|node| node.answer.contains("may still arrive")), "{error:?}");
    eventually("no key is left", || others[1].get("unsure").is_none());
}

/// The release of the third node is lost with its connection, after the others had decided and the caller had gone.
#[test]
fn after_a_blocking_release_that_was_lost_on_the_way() {
    if !in_own_process("after_a_blocking_release_that_was_lost_on_the_way") {
        return;
    }
    let (slow, proxy) = stage();
    let (_others, redlock) = among_three(&proxy);
    let guard = redlock.lock("lost").acquire().unwrap();
    // Also hears the answers that the acquire did not wait for.
    eventually("all nodes have granted", || redlock.inspect("lost").unwrap().holders == 3);
    proxy.hold_requests();
    let waiting = proxy.requests_waiting();
    guard.release().unwrap();
    eventually("the release waits at the slow node", || proxy.requests_waiting() > waiting);
    proxy.reset();
    proxy.let_go();
    eventually("the background sends it again", || slow.get("lost").is_none());
}
