//! Where the logins of connections come from: files that change, and providers whose logins end.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::error::Error as _;
use std::future::IntoFuture;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harness::{LIMIT, Server, cluster, eventually, urls};
use redlock::{ErrorKind, Login, Redlock, blocking};

use super::current_thread;

const NAME: &str = "foo";

/// The life of a login in these tests.
const LIFE: Duration = Duration::from_secs(2);

/// A service that makes users and tokens on servers.
#[derive(Clone)]
struct Service {
    servers: Arc<Vec<Server>>,
    made: Arc<AtomicU64>,
    refuses: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    life: Duration,
}

impl Service {
    /// The tokens have this `life`.
    fn new(servers: Vec<Server>, life: Duration) -> Self {
        let (made, refuses, hangs) = Default::default();
        Self { servers: Arc::new(servers), made, refuses, hangs, life }
    }

    fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Waits until nothing keeps the provider of a client that is gone.
    fn assert_left(self) {
        eventually("the client's provider goes with it", || Arc::strong_count(&self.servers) == 1);
    }

    /// Makes a user with a token. The first one is not refused.
    fn login(&self) -> Result<Login, io::Error> {
        if self.refuses.load(Ordering::SeqCst) && self.made() > 0 {
            return Err(io::Error::other("the service says S3CR3T"));
        }
        let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        let (user, token) = (format!("user-{number}"), format!("S3CR3T-{number}"));
        for server in self.servers.iter() {
            server.command(&["ACL", "SETUSER", &user, "on", &format!(">{token}"), "~*", "+@all"]);
        }
        Ok(Login::new(user, token).lasting(self.life))
    }

    fn client(&self) -> redlock::Builder {
        let service = self.clone();
        Redlock::builder().nodes(urls(&*self.servers)).credentials(move || {
            let service = service.clone();
            async move {
                while service.hangs.load(Ordering::SeqCst) && service.made() > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                service.login()
            }
        })
    }
}

fn patient<Kind>(url: impl redlock::IntoNodes<Kind>) -> redlock::Builder {
    Redlock::builder().nodes(url).restart_delay(Duration::ZERO).timeout(LIMIT)
}

#[test]
fn a_password_file_that_cannot_be_used_is_named() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    let redlock = blocking::Redlock::from(Redlock::builder().nodes(server.url()).password_file(&path).build().unwrap());
    let answer = || {
        let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        error.nodes()[0].answer.clone()
    };
    let missing = answer();
    assert!(missing.contains("password_file") && missing.contains(&*path.to_string_lossy()), "{missing}");
    std::fs::write(&path, "\n").unwrap();
    eventually("an empty file is named", || answer().contains("is empty"));
    std::fs::write(&path, [0xff]).unwrap();
    eventually("a file that is not text is named", || answer().contains("is not UTF-8"));
}

#[test]
fn two_sources_of_one_login_are_refused() {
    let refused = |builder: redlock::Builder, text: &str| {
        let error = builder.build().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(text), "{error}");
    };
    refused(Redlock::builder().nodes("redis://u:p@h?password_file=/p"), "password_file");
    refused(Redlock::builder().nodes("redis://u@h"), "password_file");
    let provider = || async { Ok::<_, io::Error>(Login::new("", "")) };
    refused(Redlock::builder().nodes("redis://h").password_file("/p").credentials(provider), "credentials");
    refused(Redlock::builder().nodes("redis://u@h").credentials(provider), "user without a password");
    // An address with a login needs no other.
    let server = Server::builder().args(["--requirepass", "p"]).start();
    let url = format!("{}?pass=p", server.url());
    let failing = || async { Err::<Login, _>(io::Error::other("never called")) };
    let redlock = blocking::Redlock::from(patient(url).credentials(failing).build().unwrap());
    redlock.lock(NAME).acquire().unwrap().release().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_fails_or_hangs_leaves_the_old_login() {
    for hangs in [false, true] {
        let service = Service::new(cluster(1), LIFE);
        let redlock = service.client().timeout(LIMIT).node_timeout(LIMIT / 4).build().unwrap();
        // Before the first login: a busy machine may take any part of its life for what comes then.
        let fault = if hangs { &service.hangs } else { &service.refuses };
        fault.store(true, Ordering::SeqCst);
        let held = redlock.lock("held").await.unwrap();
        let start = Instant::now();
        while start.elapsed() < LIFE {
            held.extend().await.unwrap();
            // New connections log in with it, too.
            service.servers[0].end_connections();
            redlock.lock(NAME).await.unwrap().release().await.unwrap();
        }
        assert_eq!(service.made(), 1);
        fault.store(false, Ordering::SeqCst);
        eventually("it is called again", || service.made() >= 2);
        drop((held, redlock));
        service.assert_left();
    }
}

#[test]
fn a_provider_that_panics_has_failed() {
    let server = Server::start();
    let panics = || async { if true { panic!("S3CR3T") } else { Ok::<Login, io::Error>(Login::new("", "")) } };
    let redlock = blocking::Redlock::from(Redlock::builder().nodes(server.url()).credentials(panics).build().unwrap());
    let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().unwrap_err();
    assert!(error.to_string().contains("it panicked"), "{error}");
}

#[test]
fn a_provider_cannot_use_a_lock_of_its_own_client() {
    let server = Server::start();
    let own: Arc<Mutex<Option<Redlock>>> = Arc::default();
    let client = Arc::clone(&own);
    let provider = move || {
        let client = client.lock().unwrap().clone();
        async move {
            drop(client.expect("it is there").lock(NAME).await?);
            Ok::<_, redlock::Error>(Login::new("", ""))
        }
    };
    let redlock = Redlock::builder().nodes(server.url()).credentials(provider).build().unwrap();
    *own.lock().unwrap() = Some(redlock.clone());
    let redlock = blocking::Redlock::from(redlock);
    let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().unwrap_err();
    let cause = error.source().expect("the provider's error");
    assert!(cause.to_string().contains("of its own client"), "{cause}");
    own.lock().unwrap().take();
}

/// While it blocks, all that the background does goes on, also what it waits for itself.
#[test]
fn a_provider_can_wait_for_a_lock_of_another_client_and_block() {
    let server = Server::start();
    let other = blocking::Redlock::from(patient(server.url()).ttl(LIMIT / 4).build().unwrap());
    let held = other.lock("held").acquire().unwrap();
    let provider = move || {
        let other = other.clone();
        async move {
            other.lock("held").acquire()?.release()?;
            Ok::<_, redlock::Error>(Login::new("", ""))
        }
    };
    let builder = patient(server.url()).credentials(provider).connect_timeout(LIMIT);
    let redlock = blocking::Redlock::from(builder.build().unwrap());
    let call = std::thread::spawn(move || redlock.lock(NAME).acquire().unwrap().release().unwrap());
    let mut last = held.remaining();
    eventually("it is renewed", || {
        let before = std::mem::replace(&mut last, held.remaining());
        last > before
    });
    held.release().unwrap();
    call.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_rejected_is_asked_for_again() {
    let server = Server::start();
    server.command(&["ACL", "SETUSER", "app", "on", ">second", "~*", "+@all"]);
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let provider = move || {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move { Ok::<_, io::Error>(Login::new("app", if first { "first" } else { "second" })) }
    };
    let redlock = patient(server.url()).credentials(provider).build().unwrap();
    redlock.lock(NAME).await.unwrap().release().await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_called_once_for_all_that_need_a_login() {
    let service = Service::new(cluster(3), 2 * LIMIT);
    let redlock = service.client().timeout(LIMIT).build().unwrap();
    let calls: Vec<_> = (0..50).map(|i| tokio::spawn(redlock.lock(format!("job:{i}")).into_future())).collect();
    for call in calls {
        call.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(service.made(), 1);
    drop(redlock);
    service.assert_left();
}

#[test]
fn a_provider_that_hangs_at_first_is_named_and_leaves_the_node_alone() {
    let server = Server::start();
    let hangs = std::future::pending::<Result<Login, io::Error>>;
    let limit = Duration::from_millis(200);
    let builder = Redlock::builder().nodes(server.url()).credentials(hangs).connect_timeout(limit);
    let redlock = blocking::Redlock::from(builder.build().unwrap());
    let other = blocking::Redlock::new(server.url()).unwrap();
    for _ in 0..3 {
        let error = redlock.lock(NAME).timeout(Duration::ZERO).acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no login within 200ms"), "{error}");
        other.lock(NAME).timeout(Duration::ZERO).acquire().unwrap().release().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_is_dropped_after_its_runtime_sends_a_new_login() {
    let service = Service::new(cluster(3), LIFE);
    let redlock = service.client().build().unwrap();
    let client = redlock.clone();
    let guard = std::thread::spawn(move || current_thread().block_on(client.lock(NAME).into_future()).unwrap());
    let guard = guard.join().unwrap();
    eventually("there is another login", || service.made() >= 2);
    std::thread::spawn(move || drop(guard)).join().expect("a drop does not panic");
    eventually("no key stays", || service.servers.iter().all(|server| server.get(NAME).is_none()));
    drop(redlock);
    service.assert_left();
}
