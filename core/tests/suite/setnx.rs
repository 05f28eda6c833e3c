//! The older SETNX protocol on a real server: what is its own in Rust, and what becomes of its answers.
#![allow(clippy::disallowed_methods, reason = "a real server lives in real time")]

use std::time::Duration;

use harness::{Proxy, Server, eventually};
use redlock::{ErrorKind, LostReason, Redlock, SetnxGuard, SetnxLock};

use super::one_worker;

/// Of keys that would not go by themselves within a test.
const LONG: Duration = Duration::from_secs(60);

/// A lock on a server behind a proxy, whose connection is made and whose scripts are known.
async fn behind(proxy: &Proxy) -> SetnxLock {
    let redlock = Redlock::new(proxy.url()).unwrap();
    redlock.setnx_lock("warm-up").await.unwrap().release().await.unwrap();
    redlock.setnx_lock("foo").ttl(LONG).node_timeout(Duration::from_secs(1))
}

#[tokio::test]
async fn a_body_ends_with_the_lock() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    assert_eq!(redlock.setnx_lock("foo").run(async |guard: &SetnxGuard| guard.is_held()).await.ok(), Some(true));
    assert_eq!(server.get("foo"), None);
    let endless = async |_: &SetnxGuard| std::future::pending::<()>().await;
    let error = redlock.setnx_lock("foo").ttl(Duration::from_secs(1)).run(endless).await.unwrap_err();
    assert_eq!(error.reason(), Some(LostReason::Expired));
}

#[test]
fn a_release_without_a_connection_is_sent_when_there_is_one() {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    let runtime = one_worker();
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
