//! Delete follows create: where an acquire is unanswered, its release goes out on the same connection, right behind it.
//!
//! Over any other connection the release may be executed first, and the key that the acquire then creates stays for a
//! whole ttl. The simulation sees to calls that a runtime drives. These are those of blocking callers, whose connections
//! nobody drives once the call is over. They share the runtimes of their process, and with them the connections: each test
//! has a process of its own, or its calls would go out over several.
#![allow(clippy::disallowed_methods, reason = "a real server lives in real time")]

use std::time::Duration;

use harness::{Proxy, Server, eventually};
use redlock::{NodeState, blocking};

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
    connect_to_all(&redlock);
    (others, redlock)
}

/// Connects the calling thread's runtime to all nodes: they have all granted, and answered afterwards. Until its
/// connection is made, a quorum wins without a node, and nothing is sent to it. Also makes the scripts known. Leaves
/// nothing held.
fn connect_to_all(redlock: &blocking::Redlock) {
    eventually("all nodes answer", || {
        let Some(guard) = redlock.lock("warm-up").try_acquire().unwrap() else { return false };
        let view = redlock.inspect("warm-up").unwrap();
        guard.release().unwrap();
        view.nodes.iter().all(|node| matches!(node.state, NodeState::Held { .. }))
    });
}

/// The background hears nothing on its own connection either: all there is is the connection of the acquire, which
/// nobody drives once the call is over.
#[test]
fn after_a_blocking_attempt_that_nobody_answered() {
    harness::alone!();
    let (server, proxy) = stage();
    let redlock = blocking::Redlock::builder().nodes([proxy.url()]).ttl(Duration::from_secs(60)).build().unwrap();
    connect_to_all(&redlock);
    let before = server.scripts_asked();
    proxy.drop_replies();
    let lock = redlock.lock("unheard").node_timeout(Duration::from_millis(50)).timeout(Duration::ZERO);
    lock.acquire().unwrap_err();
    let is_released = || server.scripts_asked() >= before + 2 && server.get("unheard").is_none();
    eventually("it was executed, and its release behind it", is_released);
}

/// A blocking caller's connections are driven only while it calls.
#[test]
fn after_a_blocking_call_that_nobody_drives_any_more() {
    harness::alone!();
    let (slow, proxy) = stage();
    let (others, redlock) = among_three(&proxy);
    proxy.hold_connection(0);
    let guard = redlock.lock("undriven").acquire().unwrap();
    eventually("the acquire waits at the slow node", || proxy.requests_waiting() > 0);
    drop(guard);
    proxy.let_go();
    eventually("the key is gone", || slow.get("undriven").is_none() && others[0].get("undriven").is_none());
}

/// The release of the third node is lost with its connection, after the others had decided and the caller had gone.
#[test]
fn after_a_blocking_release_that_was_lost_on_the_way() {
    harness::alone!();
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
