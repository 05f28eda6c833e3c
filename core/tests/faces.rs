//! The Rust faces wherever they may be called from: every kind of runtime, none at all, plain threads;
//! and every way to let go of a guard.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use harness::redis::cmd;
use harness::{Proxy, SLACK, Server, cluster, eventually, urls};
use redlock::{ErrorKind, LockState, LostReason, NodeState, NodeView, Redlock, blocking};

use crate::suite::{current_thread, one_worker};

/// Drives a future without any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Everything a lock can do, once.
async fn cycle(redlock: &Redlock) {
    let guard = redlock.lock("foo").acquire().await.unwrap();
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_none());
    guard.extend().await.unwrap();
    guard.check().unwrap();
    let view = redlock.inspect("foo").await.unwrap();
    assert!(view.state == LockState::Held && view.fence <= Some(guard.fence()), "{view:?}");
    // Not on every node: one may have been connected too late to be asked.
    let ours = |node: &NodeView| matches!(node.state, NodeState::Held { fence, .. } if fence == guard.fence());
    assert!(view.nodes.iter().any(ours), "{view:?}");
    guard.release().await.unwrap();
}

#[test]
fn a_client_outlives_its_first_runtime() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    for _ in 0..3 {
        let runtime = current_thread();
        runtime.block_on(cycle(&redlock));
        // A guard of the first runtime is used on the second one.
        let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
        drop(runtime);
        assert!(guard.is_held());
        let next = one_worker();
        next.block_on(guard.extend()).unwrap();
        next.block_on(guard.release()).unwrap();
        next.block_on(cycle(&redlock));
    }
}

#[test]
fn async_without_any_runtime() {
    let servers = cluster(3);
    let redlock = Redlock::new(urls(&servers)).unwrap();
    block_on(cycle(&redlock));
    block_on(cycle(&redlock));
    let guard = block_on(redlock.lock("foo").ttl(Duration::from_secs(1)).auto_renew(false).acquire()).unwrap();
    assert_eq!(block_on(guard.lost()).reason(), Some(LostReason::Expired));
}

/// Without a runtime, the background goes on with a call that is dropped.
#[test]
fn a_listing_whose_call_is_dropped_misses_nothing() {
    let redlock = Redlock::new("memory://listing").unwrap();
    let _guards: Vec<_> = ["a", "b"].map(|name| block_on(redlock.lock(name).acquire()).unwrap()).into();
    let mut held = redlock.list_locks("*");
    assert!(pin!(held.next()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let next = || block_on(held.next()).unwrap().map(|view| view.name);
    let mut names: Vec<_> = std::iter::from_fn(next).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
}

fn blocking_cycle(redlock: &blocking::Redlock) {
    let guard = redlock.lock("foo").acquire().unwrap();
    assert!(redlock.lock("foo").try_acquire().unwrap().is_none());
    guard.extend().unwrap();
    guard.check().unwrap();
    assert_eq!(redlock.inspect("foo").unwrap().state, LockState::Held);
    assert!(guard.wait_lost(Duration::from_millis(10)).is_none());
    guard.release().unwrap();
    assert!(redlock.lock("foo").run(blocking::Guard::is_held).unwrap());
    redlock.lock("foo").try_run(blocking::Guard::check).unwrap();
}

/// How many clients the server has beside those that ask. Servers before 7.0 do not name the subcommand.
fn clients(server: &Server) -> usize {
    let list: String = cmd("CLIENT").arg("LIST").query(&mut server.connect()).unwrap();
    let asks = |line: &str| line.contains("cmd=client|list ") || line.contains("cmd=client ");
    list.lines().filter(|line| !asks(line)).count()
}

/// They are on runtimes that no call drives any more.
#[test]
fn the_last_drop_of_a_blocking_client_closes_its_connections() {
    harness::alone!();
    let servers = cluster(5);
    let redlock = blocking::Redlock::new(urls(&servers)).unwrap();
    // A call ends with the majority, and nothing drives the connects to the others then.
    eventually("each node has a connection", || {
        blocking_cycle(&redlock);
        servers.iter().all(|server| clients(server) > 0)
    });
    let other = redlock.clone();
    drop(redlock);
    blocking_cycle(&other);
    drop(other);
    eventually("every connection is closed", || servers.iter().all(|server| clients(server) == 0));
}

/// Returns a client that stays, with a connection on the runtime of this thread's next call, and its server.
fn staying() -> (Server, blocking::Redlock) {
    let server = Server::start();
    let redlock = blocking::Redlock::new(server.url()).unwrap();
    blocking_cycle(&redlock);
    (server, redlock)
}

#[tokio::test]
async fn the_last_drop_inside_a_runtime_closes_connections_of_plain_threads() {
    harness::alone!();
    let (server, kept) = (Server::start(), Server::start());
    let other = blocking::Redlock::new(kept.url()).unwrap();
    // On one thread, so that both have connections on the same runtime.
    let (redlock, other) = thread::spawn(move || {
        let redlock = blocking::Redlock::new(server.url()).unwrap();
        for client in [&redlock, &other, &redlock, &other] {
            blocking_cycle(client);
        }
        ((redlock, server), other)
    })
    .join()
    .unwrap();
    let (redlock, server) = redlock;
    drop(redlock);
    eventually("the connection is closed", || clients(&server) == 0);
    assert!(clients(&kept) > 0, "the other client keeps its own");
    thread::spawn(move || blocking_cycle(&other)).join().unwrap();
    eventually("the other connection is closed", || clients(&kept) == 0);
}

/// The last handle may be what a call itself has, on the runtime that is driven for it.
#[test]
fn a_client_that_goes_during_its_last_call_closes_its_connections() {
    harness::alone!();
    let server = Server::start();
    let redlock = blocking::Redlock::new(server.url()).unwrap();
    let guard = redlock.lock("foo").acquire().unwrap();
    drop(redlock);
    guard.release().unwrap();
    eventually("the connection is closed", || clients(&server) == 0);
}

/// It outlasts the call, and what the call has left.
#[test]
fn a_connect_under_way_keeps_no_connection_of_a_client_that_is_gone() {
    harness::alone!();
    let (servers, (kept, _other)) = (cluster(3), staying());
    let proxy = Proxy::to(&servers[2]);
    proxy.hold_replies();
    let nodes = [servers[0].url(), servers[1].url(), proxy.url()];
    let builder = blocking::Redlock::builder().nodes(nodes).node_timeout(Duration::from_millis(50));
    let redlock = builder.connect_timeout(Duration::from_secs(2)).build().unwrap();
    redlock.lock("foo").acquire().unwrap().release().unwrap();
    drop(redlock);
    eventually("every connection is closed", || servers.iter().all(|server| clients(server) == 0));
    assert!(clients(&kept) > 0, "the other client keeps its own");
}

/// An answer that never comes keeps no connection open.
#[test]
fn a_silent_server_keeps_no_connection_of_a_client_that_is_gone() {
    harness::alone!();
    let server = Server::start();
    for is_alone in [true, false] {
        let _staying = (!is_alone).then(staying);
        let proxy = Proxy::to(&server);
        let redlock = blocking::Redlock::new(proxy.url()).unwrap();
        blocking_cycle(&redlock);
        proxy.hold_replies();
        let lock = redlock.lock("foo").ttl(Duration::from_millis(300)).node_timeout(Duration::from_millis(50));
        assert_eq!(lock.try_acquire().unwrap_err().kind(), ErrorKind::Unavailable);
        drop(lock);
        drop(redlock);
        eventually("the connections are closed", || clients(&server) == 0);
    }
}

#[test]
fn blocking_inside_a_runtime() {
    let server = Server::start();
    let redlock = blocking::Redlock::new(server.url()).unwrap();
    for mut builder in [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async { blocking_cycle(&redlock) });
        let redlock = redlock.clone();
        runtime.block_on(runtime.spawn_blocking(move || blocking_cycle(&redlock))).unwrap();
    }
}

#[tokio::test]
async fn a_lock_can_be_awaited_and_run() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    redlock.lock("foo").ttl(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let fence = redlock
            .lock("foo")
            .run(async |guard| {
                assert!(server.get("foo").is_some());
                tokio::task::yield_now().await;
                guard.fence()
            })
            .await
            .unwrap();
        assert_eq!(server.get("foo"), None);
        seen.push(fence);
    }
    assert!(seen.is_sorted_by(|one, two| one < two));
    let result: Result<(), &str> = redlock.lock("foo").run(async |_| Err("of the body")).await.unwrap();
    assert_eq!(result, Err("of the body"));
    let held = redlock.lock("foo").await.unwrap();
    let error = redlock.lock("foo").timeout(Duration::ZERO).run(async |_| panic!("never runs")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    held.release().await.unwrap();
}

/// Notes that it was dropped.
struct Dropped<'a>(&'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn run_drops_its_body_when_the_lock_is_lost() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let dropped = AtomicBool::new(false);
    let start = Instant::now();
    let lock = redlock.lock("foo").ttl(Duration::from_secs(1)).auto_renew(false);
    let body = async |_: &redlock::Guard| {
        let _dropped = Dropped(&dropped);
        std::future::pending::<()>().await;
    };
    let error = lock.run(body).await.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Lost, Some(LostReason::Expired)));
    assert!(dropped.load(Ordering::SeqCst));
    assert!(start.elapsed() < Duration::from_secs(1) + SLACK);
    // Found out only at the release: still an error.
    let error = redlock.lock("foo").run(async |_| server.command(&["DEL", "foo"])).await.unwrap_err();
    assert_eq!(error.reason(), Some(LostReason::Deleted));
}

#[test]
fn run_releases_when_it_is_dropped_or_its_body_panics() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let runtime = current_thread();
    runtime.block_on(async {
        let lock = redlock.lock("foo");
        let running = lock.run(async |_| std::future::pending::<()>().await);
        assert!(tokio::time::timeout(Duration::from_millis(100), running).await.is_err());
    });
    eventually("the key is gone", || server.get("foo").is_none());
    let panicking = redlock.lock("foo");
    let panicking = panicking.run(async |_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(|| runtime.block_on(panicking))).is_err());
    eventually("the key is gone", || server.get("foo").is_none());
    let blocking = blocking::Redlock::new(server.url()).unwrap();
    let panicking = || blocking.lock("foo").run(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    eventually("the key is gone", || server.get("foo").is_none());
}

#[test]
fn a_dropped_guard_leaves_no_key() {
    let servers = cluster(5);
    let gone = |how: &str| {
        eventually(&format!("the key is gone, {how}"), || servers.iter().all(|server| server.get("foo").is_none()));
    };
    for nodes in [urls(&servers[..1]), urls(&servers)] {
        // A key that stays does not go by itself meanwhile.
        let redlock = Redlock::builder().nodes(&nodes).ttl(Duration::from_secs(60)).build().unwrap();
        let blocking = blocking::Redlock::from(redlock.clone());
        let runtime = current_thread();
        runtime.block_on(async { drop(redlock.lock("foo").await.unwrap()) });
        gone("dropped in async code");
        let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
        let panicking = move || {
            let _guard = guard;
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        gone("dropped by a panic");
        let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
        drop(runtime);
        drop(guard);
        gone("dropped after its runtime");
        let runtime = current_thread();
        let task = runtime.spawn({
            let lock = redlock.lock("foo");
            async move {
                let _guard = lock.await.unwrap();
                panic!("on purpose");
            }
        });
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        gone("dropped by a task's panic");
        let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
        current_thread().block_on(async move { drop(guard) });
        gone("dropped on another runtime");
        let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
        thread::spawn(move || drop(guard)).join().unwrap();
        gone("dropped on another thread");
        drop(block_on(redlock.lock("foo").acquire()).unwrap());
        gone("dropped without any runtime");
        drop(blocking.lock("foo").acquire().unwrap());
        gone("dropped by a blocking caller");
        let panicking = || {
            let _guard = blocking.lock("foo").acquire().unwrap();
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        gone("dropped by a blocking caller's panic");
        let runtime = current_thread();
        let task = runtime.spawn({
            let lock = redlock.lock("foo");
            async move {
                let _guard = lock.await.unwrap();
                std::future::pending::<()>().await;
            }
        });
        runtime.block_on(async {
            while servers[0].get("foo").is_none() {
                tokio::task::yield_now().await;
            }
        });
        // Dropped by the runtime, with the task that holds it.
        drop(runtime);
        drop(task);
        gone("dropped by the end of its runtime");
    }
}

#[test]
fn a_dropped_acquire_leaves_no_key() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let redlock = Redlock::new(proxy.url()).unwrap();
    let runtime = current_thread();
    runtime.block_on(cycle(&redlock));
    // Each its own name: a call for the same one would wait until the create before cannot come any more.
    for (name, drop_runtime_first) in [("bar", false), ("baz", true)] {
        let lock = redlock.lock(name).ttl(Duration::from_secs(60)).node_timeout(Duration::from_secs(50));
        let runtime = current_thread();
        runtime.block_on(cycle(&redlock));
        proxy.hold_replies();
        let mut acquiring = Box::pin(lock.acquire());
        runtime.block_on(async {
            // Until the server has the key, while its reply is on the way.
            while server.get(name).is_none() {
                let step = tokio::time::timeout(Duration::from_millis(1), acquiring.as_mut());
                assert!(step.await.is_err());
            }
        });
        if drop_runtime_first {
            drop(runtime);
            drop(acquiring);
        } else {
            drop(acquiring);
            drop(runtime);
        }
        proxy.let_go();
        eventually("the key is gone", || server.get(name).is_none());
    }
    // While it waits in the background for another holder.
    let guard = runtime.block_on(redlock.lock("foo").acquire()).unwrap();
    runtime.block_on(async {
        let lock = redlock.lock("foo");
        assert!(tokio::time::timeout(Duration::from_millis(100), lock.acquire()).await.is_err());
    });
    runtime.block_on(guard.release()).unwrap();
    assert!(runtime.block_on(redlock.lock("foo").timeout(Duration::from_secs(9)).acquire()).is_ok());
    eventually("the key is gone", || server.get("foo").is_none());
}
