//! The older SETNX protocol on a real server: what is its own in Rust, and what becomes of its answers.
#![allow(clippy::disallowed_methods, reason = "a real server lives in real time")]

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use harness::redis::from_redis_value;
use harness::{Proxy, Server, eventually};
use redlock::{ErrorKind, LostReason, Redlock, SetnxGuard, SetnxLock, blocking};
use tokio::runtime::Runtime;

/// How much longer than its ttl a key may live.
const WHOLE_SECONDS: Duration = Duration::from_secs(3);
/// Of keys that would not go by themselves within a test.
const LONG: Duration = Duration::from_secs(60);

fn client(server: &Server) -> Redlock {
    Redlock::new(server.url()).unwrap()
}

fn number(server: &Server, command: &[&str]) -> i64 {
    from_redis_value(server.command(command)).unwrap()
}

/// Whose tasks run while a test waits.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A lock on a server behind a proxy, whose connection is made and whose scripts are known.
async fn behind(proxy: &Proxy) -> SetnxLock {
    let redlock = Redlock::new(proxy.url()).unwrap();
    redlock.setnx_lock("warm-up").await.unwrap().release().await.unwrap();
    redlock.setnx_lock("foo").ttl(LONG).node_timeout(Duration::from_secs(1))
}

#[tokio::test]
async fn a_body_ends_with_the_lock() {
    let server = Server::start();
    let redlock = client(&server);
    assert_eq!(redlock.setnx_lock("foo").run(async |guard: &SetnxGuard| guard.is_held()).await.ok(), Some(true));
    assert_eq!(server.get("foo"), None);
    let endless = async |_: &SetnxGuard| std::future::pending::<()>().await;
    let error = redlock.setnx_lock("foo").ttl(Duration::from_secs(1)).run(endless).await.unwrap_err();
    assert_eq!(error.reason(), Some(LostReason::Expired));
}

#[test]
fn the_blocking_face_works_with_and_without_a_runtime() {
    let server = Server::start();
    let redlock = blocking::Redlock::new(server.url()).unwrap();
    let guard = redlock.setnx_lock("foo").ttl(LONG).acquire().unwrap();
    assert!(redlock.setnx_lock("foo").try_acquire().unwrap().is_none());
    guard.check().unwrap();
    assert!(guard.is_held() && guard.remaining() > Duration::ZERO && guard.wait_lost(Duration::ZERO).is_none());
    assert_eq!(guard.name(), b"foo");
    guard.release().unwrap();
    assert_eq!(server.get("foo"), None);
    assert!(redlock.setnx_lock("foo").run(blocking::SetnxGuard::is_held).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        redlock.setnx_lock("foo").acquire().unwrap().release().unwrap();
    });
    let bare = client(&server).setnx_lock("foo");
    let mut acquire = pin!(bare.acquire());
    let mut polled = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    eventually("it is won without a runtime", || {
        polled.is_ready() || {
            polled = acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            polled.is_ready()
        }
    });
}

#[test]
fn a_key_whose_grant_nobody_heard_is_left_to_its_expiry() {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    let runtime = runtime();
    let lock = runtime.block_on(behind(&proxy)).timeout(Duration::ZERO).node_timeout(harness::LIMIT);
    let deleted = server.asked(&["del"]);
    proxy.hold_replies();
    let acquire = runtime.spawn(async move { lock.acquire().await });
    eventually("it is granted", || server.get("foo").is_some());
    proxy.reset();
    proxy.let_go();
    let error = runtime.block_on(acquire).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "by our own key: {error}");
    let left = Duration::from_millis(number(&server, &["PTTL", "foo"]).try_into().unwrap());
    assert!(left <= LONG + WHOLE_SECONDS, "{left:?}");
    assert_eq!(server.asked(&["del"]), deleted);
}

#[test]
fn a_release_without_a_connection_is_sent_when_there_is_one() {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    let runtime = runtime();
    let lock = runtime.block_on(behind(&proxy));
    let guard = runtime.block_on(lock.acquire()).unwrap();
    proxy.refuse(true);
    proxy.reset();
    // Over a connection whose end is not noticed yet it would be lost.
    let other = Redlock::new(proxy.url()).unwrap().setnx_lock("bar");
    eventually("the end of the connection is noticed", || {
        runtime.block_on(other.try_acquire()).is_err_and(|error| error.to_string().contains("refused"))
    });
    let error = runtime.block_on(guard.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(server.get("foo").is_some());
    proxy.refuse(false);
    eventually("it is sent after all", || server.get("foo").is_none());
}
