//! What the library offers to the tests of programs: servers in memory that do what a test says, and losses at will.

#![allow(clippy::disallowed_methods, reason = "a test owns its time limits and its pauses")]

use std::time::Duration;

use harness::LIMIT;
use redlock::testing::MemoryServer;
use redlock::{Error, ErrorKind, Guard, LockState, LostReason, NodeState, Redlock};
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(60);

fn one() -> (MemoryServer, Redlock) {
    let server = MemoryServer::new();
    let redlock = Redlock::builder().nodes(server.url()).ttl(LONG).timeout(Duration::ZERO).build().unwrap();
    (server, redlock)
}

fn waiter(redlock: &Redlock) -> JoinHandle<Result<Guard, Error>> {
    let lock = redlock.lock("foo").timeout(LIMIT);
    tokio::spawn(async move { lock.acquire().await })
}

#[tokio::test]
async fn each_server_is_new() {
    let ((one, first), (two, second)) = (one(), one());
    assert_ne!(one.url(), two.url());
    let _held = first.lock("foo").acquire().await.unwrap();
    assert!(second.lock("foo").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn somebody_else_holds_a_name_until_they_release_it() {
    let (server, redlock) = one();
    server.hold("foo", None).unwrap();
    let view = redlock.inspect("foo").await.unwrap();
    assert_eq!((view.state, view.label.as_deref()), (LockState::Held, Some("somebody else")));
    assert!(view.ttl_left > Some(Duration::from_secs(86_000)), "{view:?}");
    assert!(redlock.lock("foo").is_locked().await.unwrap());
    assert_eq!(redlock.lock("foo").acquire().await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(redlock.lock("bar").try_acquire().await.unwrap().is_some(), "another name");

    let waiting = waiter(&redlock);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    server.release("foo").unwrap();
    let guard = waiting.await.unwrap().unwrap();
    server.release("foo").unwrap();
    guard.extend().await.expect("somebody else released what they held, and no more");
    assert_eq!(server.hold("", None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(server.release("").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn somebody_else_takes_a_held_lock() {
    let (server, redlock) = one();
    let guard = redlock.lock("foo").acquire().await.unwrap();
    server.hold("foo", None).unwrap();
    assert_eq!(guard.extend().await.unwrap_err().reason(), Some(LostReason::Taken));
    server.release("foo").unwrap();
    let next = redlock.lock("foo").acquire().await.unwrap();
    assert!(next.fence() > guard.fence() + 1, "somebody else had a fence of their own");
}

#[tokio::test]
async fn a_renewal_finds_out_by_itself() {
    let (server, redlock) = one();
    let guard = redlock.lock("foo").ttl(Duration::from_millis(300)).acquire().await.unwrap();
    server.hold("foo", None).unwrap();
    let lost = tokio::time::timeout(LIMIT, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), Some(LostReason::Taken));
}

#[tokio::test]
async fn keys_expire_on_a_clock_that_is_moved() {
    let (server, redlock) = one();
    server.hold("foo", Some(LONG)).unwrap();
    let waiting = waiter(&redlock);
    server.advance(LONG / 2);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    server.advance(LONG / 2);
    let guard = waiting.await.unwrap().expect("it is told, and does not wait for the ttl");
    guard.check().expect("the clock of this program has not moved");
    server.advance(Duration::MAX);
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_some(), "no time overflows");
}

#[tokio::test]
async fn a_wiped_server_has_no_keys() {
    let (server, redlock) = one();
    server.hold("foo", None).unwrap();
    let waiting = waiter(&redlock);
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.wipe();
    let guard = waiting.await.unwrap().unwrap();
    server.wipe();
    let found = guard.extend().await.map_err(|error| error.reason());
    assert!(matches!(found, Ok(()) | Err(Some(LostReason::Deleted))), "{found:?}");
}

#[tokio::test]
async fn an_unavailable_server_answers_nothing_and_comes_back_at_once() {
    let (server, redlock) = one();
    redlock.lock("foo").acquire().await.unwrap().release().await.unwrap();
    for _ in 0..3 {
        server.set_available(false);
        assert!(!server.is_available());
        let error = redlock.lock("foo").acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("a test has made this server unavailable"), "{error}");
        let view = redlock.inspect("foo").await.unwrap();
        assert!(matches!(view.nodes[0].state, NodeState::Unavailable { .. }), "{view:?}");
        assert_eq!((view.state, view.holders, view.waiting), (LockState::Unknown, 0, None));
        server.set_available(true);
        assert!(server.is_available());
        redlock.lock("foo").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_on_an_unavailable_server_is_lost_at_the_end_of_its_ttl() {
    let (server, redlock) = one();
    let guard = redlock.lock("foo").ttl(Duration::from_millis(300)).acquire().await.unwrap();
    server.set_available(false);
    let lost = tokio::time::timeout(LIMIT, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), Some(LostReason::Unreachable));
}

#[tokio::test]
async fn a_quorum_of_servers() {
    let servers: [MemoryServer; 3] = Default::default();
    let redlock = Redlock::new(servers.each_ref().map(|server| server.url().to_owned()).to_vec()).unwrap();
    servers[0].hold("foo", None).unwrap();
    servers[1].set_available(false);
    let error = redlock.lock("foo").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.nodes().len(), 3, "{error}");
    servers[1].set_available(true);
    assert!(redlock.lock("foo").timeout(Duration::ZERO).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_guard_loses_its_lock_at_will() {
    let (_server, redlock) = one();
    for reason in LostReason::ALL {
        let guard = redlock.lock("foo").timeout(LIMIT).acquire().await.unwrap();
        guard.lose(reason);
        assert_eq!(guard.check().unwrap_err().reason(), Some(reason));
        assert_eq!(guard.lost().await.reason(), Some(reason));
        guard.lose(LostReason::Expired);
        assert_eq!(guard.release().await.unwrap_err().reason(), Some(reason), "once");
    }
    let lock = redlock.lock("foo").timeout(LIMIT);
    let run = lock.run(async |guard| {
        guard.lose(LostReason::Taken);
        std::future::pending::<()>().await;
    });
    let lost = tokio::time::timeout(LIMIT, run).await.expect("the body is cut off").unwrap_err();
    assert_eq!(lost.reason(), Some(LostReason::Taken));
}

#[test]
fn a_blocking_guard_too() {
    let server = MemoryServer::new();
    let redlock = redlock::blocking::Redlock::new(server.url()).unwrap();
    let guard = redlock.lock("foo").acquire().unwrap();
    guard.lose(LostReason::MaxHold);
    assert_eq!(guard.wait_lost(LIMIT).and_then(|error| error.reason()), Some(LostReason::MaxHold));
}
