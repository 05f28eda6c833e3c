//! The older SETNX protocol on a real server: what it writes, whom it waits for, and that nothing is deleted twice.
#![allow(clippy::disallowed_methods, reason = "a real server lives in real time")]

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use harness::redis::from_redis_value;
use harness::{Proxy, SLACK, Server, eventually};
use redlock::{ErrorKind, LockState, LostReason, NodeState, Redlock, SetnxGuard, SetnxLock, blocking};
use tokio::runtime::Runtime;

/// How much longer than its ttl a key may live.
const WHOLE_SECONDS: Duration = Duration::from_secs(3);
/// Of keys that would not go by themselves within a test.
const LONG: Duration = Duration::from_secs(60);

fn client(server: &Server) -> Redlock {
    Redlock::new(server.url()).unwrap()
}

/// Seconds and microseconds on the server's clock.
fn time(server: &Server) -> (u64, u64) {
    from_redis_value(server.command(&["TIME"])).unwrap()
}

fn number(server: &Server, command: &[&str]) -> i64 {
    from_redis_value(server.command(command)).unwrap()
}

fn value(server: &Server, name: &str) -> u64 {
    String::from_utf8(server.get(name).unwrap()).unwrap().parse().unwrap()
}

fn put(server: &Server, name: &str, value: &str) {
    server.command(&["SET", name, value]);
}

/// How often the server has executed a command.
fn executed(server: &Server, command: &str) -> u64 {
    let stats: String = from_redis_value(server.command(&["INFO", "commandstats"])).unwrap();
    let prefix = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&prefix));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// How often it has executed a script.
fn scripts(server: &Server) -> u64 {
    executed(server, "eval") + executed(server, "evalsha")
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
async fn the_value_is_what_an_older_client_expects() {
    let server = Server::start();
    let redlock = client(&server);
    let (before, _) = time(&server);
    let guard = redlock.setnx_lock("foo").ttl(Duration::from_millis(2_500)).acquire().await.unwrap();
    let (after, micros) = time(&server);
    let (expiry, left) = (value(&server, "foo"), number(&server, &["PTTL", "foo"]));
    assert!((before + 4..=after + 4).contains(&expiry), "the ttl rounded up, and one: {expiry}, {before} to {after}");
    let over = i64::try_from((expiry + 1 - after) * 1000 - micros / 1000).unwrap();
    assert!((over - 500..=over + 1).contains(&left), "gone when others may take it: {left} of {over}");
    assert!(
        guard.is_held() && guard.remaining() > Duration::from_secs(1) && guard.remaining() < Duration::from_secs(3)
    );
    assert_eq!(guard.name(), b"foo");
    assert_eq!(number(&server, &["DBSIZE"]), 1, "no fence");
    let view = redlock.inspect("foo").await.unwrap();
    assert!(matches!(view.nodes[0].state, NodeState::Foreign { ttl_left: Some(_) }), "{view:?}");
    assert!(view.state == LockState::Foreign && view.ttl_left.is_some() && view.since.is_none(), "{view:?}");
    guard.release().await.unwrap();
    assert_eq!(server.get("foo"), None);
}

/// As the older clients do it: `SETNX`, else `GET`, and `GETSET` if that was over.
#[tokio::test]
async fn an_older_client_and_this_one_exclude_each_other() {
    let server = Server::start();
    let redlock = client(&server);
    let guard = redlock.setnx_lock("foo").ttl(LONG).await.unwrap();
    assert_eq!(number(&server, &["SETNX", "foo", &(time(&server).0 + 61).to_string()]), 0);
    assert!(value(&server, "foo") > time(&server).0, "not over");
    guard.release().await.unwrap();
    assert_eq!(number(&server, &["SETNX", "foo", &(time(&server).0 + 61).to_string()]), 1);
    assert!(redlock.setnx_lock("foo").try_acquire().await.unwrap().is_none());
    server.command(&["DEL", "foo"]);
    assert!(redlock.setnx_lock("foo").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn it_is_taken_over_when_its_time_is_over_and_not_before() {
    let server = Server::start();
    let redlock = client(&server);
    for over in ["1000000000".to_owned(), (time(&server).0 - 1).to_string(), format!("{}.9", time(&server).0 - 1)] {
        put(&server, "foo", &over);
        let guard = redlock.setnx_lock("foo").try_acquire().await.unwrap().expect(&over);
        assert!(value(&server, "foo") > time(&server).0, "{over}");
        assert!(number(&server, &["PTTL", "foo"]) > 0, "{over}");
        guard.release().await.unwrap();
    }
    let expiry = time(&server).0 + 1;
    put(&server, "foo", &expiry.to_string());
    let guard = redlock.setnx_lock("foo").timeout(Duration::from_secs(5)).acquire().await.unwrap();
    assert!(time(&server).0 > expiry);
    guard.release().await.unwrap();
}

/// The whole second in which it ends still belongs to the holder.
#[tokio::test]
async fn its_last_second_is_its_own() {
    let server = Server::start();
    let redlock = client(&server);
    drop(redlock.setnx_lock("warm-up").await.unwrap());
    loop {
        let (now, _) = time(&server);
        put(&server, "foo", &now.to_string());
        let taken = redlock.setnx_lock("foo").try_acquire().await.unwrap();
        if time(&server).0 == now {
            assert!(taken.is_none());
            return;
        }
    }
}

#[tokio::test]
async fn what_is_no_time_is_held() {
    let server = Server::start();
    let redlock = client(&server);
    for odd in ["", "0", "soon", "999999999", "100000000001", "-1700000000", "1.7e9", "0123456789abcdef:1"] {
        put(&server, "foo", odd);
        assert!(redlock.setnx_lock("foo").try_acquire().await.unwrap().is_none(), "{odd:?}");
        assert_eq!(server.get("foo").unwrap(), odd.as_bytes());
    }
    server.command(&["DEL", "foo"]);
    server.command(&["RPUSH", "foo", "1000000000"]);
    assert!(redlock.setnx_lock("foo").try_acquire().await.unwrap().is_none());
    assert_eq!(number(&server, &["LLEN", "foo"]), 1);
}

#[tokio::test]
async fn each_protocol_sees_the_others_key_as_held() {
    let server = Server::start();
    let redlock = client(&server);
    let setnx = redlock.setnx_lock("foo").await.unwrap();
    let plain = redlock.lock("bar").await.unwrap();
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_none());
    assert!(redlock.setnx_lock("bar").try_acquire().await.unwrap().is_none());
    setnx.release().await.unwrap();
    plain.release().await.unwrap();
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_some());
    assert!(redlock.setnx_lock("bar").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiter_gets_it_after_the_release() {
    let server = Server::start();
    let redlock = client(&server);
    let guard = redlock.setnx_lock("foo").ttl(LONG).await.unwrap();
    let error = redlock.setnx_lock("foo").timeout(Duration::from_millis(200)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let waiting = tokio::spawn({
        let lock = redlock.setnx_lock("foo");
        async move { lock.await }
    });
    drop(guard);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_ignores_what_a_loser_has_written() {
    let server = Server::start();
    let redlock = client(&server);
    let guard = redlock.setnx_lock("foo").ttl(LONG).await.unwrap();
    server.command(&["GETSET", "foo", &(time(&server).0 + 100).to_string()]);
    guard.release().await.unwrap();
    assert_eq!(server.get("foo"), None);
}

fn assert_lost(released: Result<(), redlock::Error>, reason: LostReason) {
    let error = released.unwrap_err();
    assert_eq!((error.kind(), error.reason(), error.name()), (ErrorKind::Lost, Some(reason), Some("foo")), "{error}");
}

#[tokio::test]
async fn a_release_says_what_was_lost() {
    let server = Server::start();
    let redlock = client(&server);
    let guard = redlock.setnx_lock("foo").await.unwrap();
    server.command(&["DEL", "foo"]);
    assert_lost(guard.release().await, LostReason::Deleted);
    let guard = redlock.setnx_lock("foo").await.unwrap();
    server.command(&["DEL", "foo"]);
    server.command(&["RPUSH", "foo", "another's"]);
    assert_lost(guard.release().await, LostReason::Taken);
    assert_eq!(number(&server, &["LLEN", "foo"]), 1);
}

#[tokio::test]
async fn it_ends_with_its_ttl_and_is_released_once() {
    let server = Server::start();
    let redlock = client(&server);
    let guard = redlock.setnx_lock("foo").ttl(Duration::from_secs(1)).await.unwrap();
    let before = scripts(&server);
    let error = tokio::time::timeout(Duration::from_secs(1) + SLACK, guard.lost()).await.unwrap();
    assert_eq!(error.reason(), Some(LostReason::Expired));
    assert!(!guard.is_held() && guard.remaining() == Duration::ZERO);
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    eventually("the release is sent all the same", || server.get("foo").is_none());
    assert_lost(guard.release().await, LostReason::Expired);
    assert_eq!(scripts(&server) - before, 1);
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

#[tokio::test]
async fn a_dropped_guard_is_released_once() {
    let server = Server::start();
    let guard = client(&server).setnx_lock("foo").ttl(LONG).await.unwrap();
    let before = scripts(&server);
    drop(guard);
    eventually("the key is gone", || server.get("foo").is_none());
    assert_eq!(scripts(&server) - before, 1);
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

#[tokio::test]
async fn memory_has_it_too() {
    let redlock = Redlock::new("memory://setnx").unwrap();
    let guard = redlock.setnx_lock("foo").await.unwrap();
    assert!(redlock.setnx_lock("foo").try_acquire().await.unwrap().is_none());
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(redlock.lock("foo").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn it_is_for_one_node_without_renewal() {
    let (server, other) = (Server::start(), Server::start());
    let several = Redlock::new([server.url(), other.url()]).unwrap();
    let error = several.setnx_lock("foo").acquire().await.unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidArgument, Some("foo")));
    assert!(error.to_string().contains("one node"), "{error}");
    let renewing = Redlock::builder().nodes(server.url()).auto_renew(true).build().unwrap();
    let error = renewing.setnx_lock("foo").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("auto_renew"), "{error}");
    assert!(renewing.lock("foo").try_acquire().await.unwrap().is_some(), "the client is good for the other protocol");
    let off = Redlock::builder().nodes(server.url()).auto_renew(false).build().unwrap();
    assert!(off.setnx_lock("bar").try_acquire().await.unwrap().is_some());
    assert_eq!(executed(&other, "info"), 0, "nothing was sent");
}

#[test]
fn a_node_that_restarted_grants_later() {
    let (server, runtime) = (Server::start(), runtime());
    let redlock = client(&server);
    runtime.block_on(async { redlock.setnx_lock("foo").await.unwrap().release().await.unwrap() });
    server.restart();
    eventually("the restart is seen", || {
        let error = runtime.block_on(redlock.setnx_lock("foo").ttl(LONG).try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        error.to_string().contains("restarted")
    });
    let lock = redlock.setnx_lock("foo").restart_delay(Duration::ZERO);
    assert!(runtime.block_on(lock.try_acquire()).unwrap().is_some());
}

#[tokio::test]
async fn a_try_that_a_frozen_node_answers_late_is_released() {
    let server = Server::start();
    let redlock = client(&server);
    redlock.setnx_lock("warm-up").await.unwrap().release().await.unwrap();
    let before = (executed(&server, "set"), executed(&server, "del"));
    server.freeze();
    let lock = redlock.setnx_lock("foo").ttl(LONG).node_timeout(Duration::from_millis(200));
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.thaw();
    eventually("it was granted, and released", || {
        (executed(&server, "set"), executed(&server, "del")) == (before.0 + 1, before.1 + 1)
    });
    assert_eq!(server.get("foo"), None);
}

#[tokio::test]
async fn a_cancelled_try_is_released_when_its_answer_comes() {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    let lock = behind(&proxy).await;
    let before = scripts(&server);
    proxy.hold_requests();
    {
        let mut acquire = pin!(lock.acquire());
        assert!(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        eventually("it is sent", || proxy.requests_waiting() > 0);
    }
    proxy.let_go();
    eventually("it was granted, and released", || scripts(&server) == before + 2);
    assert_eq!(server.get("foo"), None);
}

#[test]
fn a_key_whose_grant_nobody_heard_is_left_to_its_expiry() {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    let runtime = runtime();
    let lock = runtime.block_on(behind(&proxy)).timeout(Duration::ZERO).node_timeout(harness::LIMIT);
    let deleted = executed(&server, "del");
    proxy.hold_replies();
    let acquire = runtime.spawn(async move { lock.acquire().await });
    eventually("it is granted", || server.get("foo").is_some());
    proxy.reset();
    proxy.let_go();
    let error = runtime.block_on(acquire).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "by our own key: {error}");
    let left = Duration::from_millis(number(&server, &["PTTL", "foo"]).try_into().unwrap());
    assert!(left <= LONG + WHOLE_SECONDS, "{left:?}");
    assert_eq!(executed(&server, "del"), deleted);
}

/// Whoever took the key after a release must not lose it to a second one.
#[test]
fn a_release_that_is_not_confirmed_is_not_sent_again() {
    for broken in [false, true] {
        let server = Server::builder().tcp(true).start();
        let proxy = Proxy::to(&server);
        let runtime = runtime();
        let lock = runtime.block_on(behind(&proxy));
        let guard = runtime.block_on(lock.acquire()).unwrap();
        let before = scripts(&server);
        proxy.hold_replies();
        let release = runtime.spawn(guard.release());
        eventually("it is executed", || server.get("foo").is_none());
        let successor = client(&server).setnx_lock("foo").ttl(LONG);
        let successor = runtime.block_on(successor.acquire()).unwrap();
        if broken {
            proxy.reset();
        }
        let error = runtime.block_on(release).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("once only"), "{error}");
        proxy.let_go();
        // A call later on the same connection, or on the next one, has its answer after anything that was sent before.
        let _kept = runtime.block_on(Redlock::new(proxy.url()).unwrap().setnx_lock("bar").acquire()).unwrap();
        assert_eq!(scripts(&server) - before, 3, "the release, and two acquires");
        successor.check().unwrap();
        assert!(server.get("foo").is_some());
    }
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
