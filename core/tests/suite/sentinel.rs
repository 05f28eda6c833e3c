//! A node whose server sentinels name: it is found, followed through a failover, and asked for only while it is used.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::time::{Duration, Instant};

use harness::{FakeSentinel, MASTER, Program, SLACK, Sentinels, Server, eventually};
use redlock::{ErrorKind, Guard, LostReason, Redlock};

/// Long enough to outlive a planned failover here.
const TTL: Duration = Duration::from_secs(8);

/// So long that no renewal is due in a test.
const LONG_TTL: Duration = Duration::from_secs(600);

/// The pause between two questions to the sentinels.
const REST: Duration = Duration::from_secs(1);

fn client(url: String) -> Redlock {
    Redlock::new([url]).unwrap()
}

/// Acquires, and waits until the replica has the lock.
async fn held(all: &Sentinels, redlock: &Redlock, name: &str, ttl: Duration) -> Guard {
    let guard = redlock.lock(name).ttl(ttl).acquire().await.unwrap();
    eventually("both servers have it", || all.servers.iter().all(|server| server.get(name).is_some()));
    guard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_the_new_primary_never_had_is_lost() {
    let all = Sentinels::start();
    let redlock = client(all.url());
    let guard = held(&all, &redlock, "foo", LONG_TTL).await;
    all.servers[1].command(&["CONFIG", "SET", "replica-read-only", "no"]);
    all.servers[1].command(&["DEL", "foo"]);
    all.servers[0].kill();
    all.taken_over();
    let error = tokio::time::timeout(harness::LIMIT, guard.lost()).await.expect("the loss is told");
    assert_eq!(error.reason(), Some(LostReason::Deleted));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_primary_is_left_although_it_takes_writes() {
    let all = Sentinels::start();
    let redlock = client(all.url());
    let guard = held(&all, &redlock, "foo", LONG_TTL).await;
    all.servers[0].freeze();
    all.taken_over();
    eventually("the new one is used", || all.servers[1].asked(&["pexpire"]) > 0);
    // It takes itself for the primary until a sentinel tells it otherwise.
    all.sentinels.iter().for_each(Server::freeze);
    all.servers[0].thaw();
    assert!(all.is_primary(0));
    let other = redlock.lock("other").ttl(TTL).acquire().await.unwrap();
    assert!(all.servers[1].get("other").is_some() && all.servers[0].get("other").is_none());
    other.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_sentinel_answers_the_primary_stays() {
    let all = Sentinels::start();
    let redlock = client(all.url());
    redlock.lock("foo").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    all.sentinels.iter().for_each(Server::kill);
    // Their last answer does not serve a connect any more.
    tokio::time::sleep(REST).await;
    redlock.lock("foo").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    // Another connection is made to the same server.
    let blocking = redlock::blocking::Redlock::new([all.url()]).unwrap();
    tokio::task::spawn_blocking(move || blocking.lock("bar").ttl(TTL).acquire().unwrap().release().unwrap())
        .await
        .unwrap();
}

/// The address of a primary that fake sentinels name.
fn named_by(sentinels: &[FakeSentinel]) -> String {
    let places: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    format!("redis+sentinel://{}/{MASTER}", places.join(","))
}

/// Waits until each sentinel was asked, and its answer was followed.
fn asked_twice(sentinels: &[FakeSentinel]) {
    let before: Vec<_> = sentinels.iter().map(FakeSentinel::asked).collect();
    let is_asked = || sentinels.iter().zip(&before).all(|(sentinel, before)| sentinel.asked() >= before + 2);
    eventually("every sentinel is asked twice", is_asked);
}

async fn is_used(redlock: &Redlock, server: &Server) -> bool {
    let guard = redlock.lock("foo").ttl(TTL).acquire().await.unwrap();
    let is_used = server.get("foo").is_some();
    // Another primary may have come in between.
    drop(guard.release().await);
    is_used
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_once_a_second_by_all_clients_together() {
    let (server, sentinel) = (Server::builder().tcp(true).start(), [FakeSentinel::start()]);
    sentinel[0].tells(server.port(), 0);
    let clients = [(); 3].map(|()| client(named_by(&sentinel)));
    for redlock in &clients {
        assert!(is_used(redlock, &server).await);
    }
    let (before, begun) = (sentinel[0].asked(), Instant::now());
    eventually("they are asked again", || sentinel[0].asked() >= before + 4);
    assert!(begun.elapsed() >= 3 * REST, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_under_way_to_the_old_primary_is_given_up() {
    let servers = [(); 2].map(|()| Server::builder().tcp(true).start());
    let sentinel = [FakeSentinel::start()];
    sentinel[0].tells(servers[0].port(), 1);
    // It waits for the old primary for long.
    let patient =
        Redlock::builder().nodes(named_by(&sentinel)).connect_timeout(harness::LIMIT).restart_delay(Duration::ZERO);
    let redlock = patient.build().unwrap();
    servers[0].freeze();
    let lock = redlock.lock("foo").ttl(TTL);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    eventually("the sentinels were asked", || sentinel[0].asked() > 1);
    sentinel[0].tells(servers[1].port(), 2);
    let acquired = tokio::time::timeout(REST + SLACK, acquiring).await.expect("it does not wait").unwrap().unwrap();
    servers[0].thaw();
    assert!(servers[1].get("foo").is_some() && servers[0].get("foo").is_none());
    acquired.release().await.unwrap();
}

/// A program may make a client for each request.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_that_came_while_there_was_no_client_is_barred_too() {
    let servers = [(); 2].map(|()| Server::builder().tcp(true).start());
    let sentinel = [FakeSentinel::start()];
    sentinel[0].tells(servers[0].port(), 1);
    assert!(is_used(&client(named_by(&sentinel)), &servers[0]).await);
    // No restart can be seen.
    for server in &servers {
        server.command(&["ACL", "SETUSER", "default", "-info"]);
    }
    let (begun, delay) = (Instant::now(), Duration::from_secs(4));
    sentinel[0].tells(servers[1].port(), 2);
    asked_twice(&sentinel);
    let guard = client(named_by(&sentinel)).lock("foo").ttl(TTL).restart_delay(delay).acquire().await.unwrap();
    assert!(begun.elapsed() >= delay, "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_far_away_is_heard_the_next_time() {
    let (server, sentinel) = (Server::builder().tcp(true).start(), FakeSentinel::start());
    sentinel.tells(server.port(), 1);
    sentinel.answers_after(Duration::from_millis(400));
    let begun = Instant::now();
    assert!(is_used(&client(named_by(&[sentinel])), &server).await);
    assert!(begun.elapsed() < 2 * REST + SLACK, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_not_used_whatever_sentinels_tell() {
    let primary = Server::builder().tcp(true).start();
    let port = primary.port().to_string();
    let replica = Server::builder().tcp(true).args(["--replicaof", "127.0.0.1", &port]).start();
    let sentinel = [FakeSentinel::start()];
    sentinel[0].tells(replica.port(), 1);
    let redlock = client(named_by(&sentinel));
    let error = redlock.lock("foo").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert!(error.to_string().contains("is a replica"), "{error}");
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    assert!(is_used(&redlock, &replica).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_do_not_answer_cost_little() {
    let (server, sentinels) = (Server::builder().tcp(true).start(), [(); 3].map(|()| FakeSentinel::start()));
    sentinels[1].tells(server.port(), 0);
    let begun = Instant::now();
    assert!(is_used(&client(named_by(&sentinels)), &server).await);
    assert!(begun.elapsed() < Duration::from_millis(300) + SLACK, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_their_primary_are_asked_over_tls() {
    // As in the tests of TLS: the system may not have such a server.
    let Some(program) = Program::with_tls() else { return };
    let primary = Server::builder().program(program.clone()).tls(true).start();
    let monitored = format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n", primary.port());
    let sentinel = Server::builder().program(program).tls(true).sentinel(monitored).start();
    let trusted = tempfile::NamedTempFile::new().unwrap();
    let read = |server: &Server| std::fs::read_to_string(server.authority().ca()).unwrap();
    std::fs::write(trusted.path(), read(&primary) + &read(&sentinel)).unwrap();
    let place = format!("127.0.0.1:{}/{MASTER}", sentinel.port());
    let redlock = client(format!("rediss+sentinel://{place}?tls_ca={}", trusted.path().display()));
    assert!(is_used(&redlock, &primary).await);
    let error = client(format!("redis+sentinel://{place}")).lock("foo").timeout(Duration::ZERO).acquire().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_may_ask_for_a_login_and_give_few_rights() {
    let all = Sentinels::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret\n").unwrap();
    for sentinel in &all.sentinels {
        let rights = ["on", ">secret", "-@all", "+auth", "+sentinel|get-master-addr-by-name"];
        sentinel.command(&[&["ACL", "SETUSER", "lock"], &rights[..]].concat());
        sentinel.command(&["ACL", "SETUSER", "default", "-sentinel"]);
    }
    let url = format!("{}?sentinel_user=lock&sentinel_password_file={}", all.url(), file.path().display());
    client(url).lock("foo").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    let error = client(all.url()).lock("bar").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("NOPERM"), "{error}");
}
