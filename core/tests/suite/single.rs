//! The life of a lock on one real server, from the async face.

use std::time::Duration;

use harness::Server;
use harness::redis::FromRedisValue;
use redlock::{ErrorKind, LockState, Redlock};

#[tokio::test]
async fn a_lock_is_acquired_extended_and_released() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let guard = redlock.lock("foo").acquire().await.unwrap();
    let value = String::from_utf8(server.get("foo").unwrap()).unwrap();
    assert_eq!(value.split(':').nth(1).unwrap(), guard.fence().to_string());
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_none());
    let before = guard.remaining();
    assert!(before > Duration::from_secs(9) && before < Duration::from_secs(10));
    guard.extend_for(Duration::from_secs(20)).await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(19));
    let fence = guard.fence();
    guard.release().await.unwrap();
    assert_eq!(server.get("foo"), None);
    let next = redlock.lock("foo").await.unwrap();
    assert!(next.fence() > fence);
    let view = redlock.inspect("foo").await.unwrap();
    assert_eq!((view.state, view.fence, view.holders), (LockState::Held, Some(next.fence()), 1), "{view:?}");
}

/// Without timers, tokio would panic.
#[test]
fn a_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let redlock = Redlock::new("memory://no-timers").unwrap();
    let guard = redlock::blocking::Redlock::new("memory://no-timers").unwrap().lock("other").acquire().unwrap();
    runtime.block_on(async {
        let refused = [
            redlock.lock("foo").acquire().await.map(drop),
            redlock.lock("foo").is_locked().await.map(drop),
            redlock.inspect("foo").await.map(drop),
            redlock.diagnose().await.map(drop),
            redlock.list_locks("*").next().await.map(drop),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("enable_all()"), "{error}");
        }
    });
    guard.release().unwrap();
}

#[tokio::test]
async fn a_waiter_gets_the_lock_after_its_release() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let guard = redlock.lock("foo").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let redlock = redlock.clone();
        async move { redlock.lock("foo").await }
    });
    let error = redlock.lock("foo").timeout(Duration::from_millis(200)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let fence = guard.fence();
    drop(guard);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn five_nodes_make_a_lock() {
    let servers = harness::cluster(5);
    let redlock = Redlock::new(servers.iter().map(Server::url).collect::<Vec<_>>()).unwrap();
    for _ in 0..50 {
        let guard = redlock.lock("foo").acquire().await.unwrap();
        assert!(redlock.lock("foo").try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

#[test]
fn blocking_works() {
    let server = Server::start();
    let redlock = redlock::blocking::Redlock::new(server.url()).unwrap();
    for _ in 0..50 {
        let guard = redlock.lock("foo").acquire().unwrap();
        assert!(redlock.lock("foo").try_acquire().unwrap().is_none());
        guard.release().unwrap();
    }
}

#[tokio::test]
async fn a_fence_key_takes_the_memory_that_the_page_states() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let used = || {
        let info = String::from_redis_value(server.command(&["INFO", "memory"])).unwrap();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        used.trim().parse::<usize>().unwrap()
    };
    // The first ones make tables and buffers grow.
    let names = |from: usize| (from..from + 2_000).map(|index| format!("order:{index:08}"));
    let mut before = 0;
    for from in [0, 2_000] {
        before = used();
        for name in names(from) {
            redlock.lock(name).await.unwrap().release().await.unwrap();
        }
    }
    let each = (used() - before) / 2_000;
    assert!((60..=200).contains(&each), "{each} bytes");
}
