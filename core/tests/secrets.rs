//! Passwords and tokens stand in no log, error or debug text, whatever fails.
//!
//! Everything that the process logs, from the crates below too, is collected at the finest level while a known secret is
//! pushed through every failure that can be caused from outside.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::error::Error as _;
use std::fmt::{Debug, Display};
use std::io::{self, Write};
use std::time::Duration;

use harness::{MASTER, Proxy, Server, eventually, redis};
use redlock::{Error, ErrorKind, Redlock, blocking};

use crate::suite::log::Log;
use crate::suite::one_worker;

/// Characters that a URL, a shell or a log format could trip over.
const SECRET: &str = "S3CR3T@:/?#[]%,+&= {}\\\"'$";
const ENCODED: &str = "S3CR3T%40%3A%2F%3F%23%5B%5D%25%2C%2B%26%3D%20%7B%7D%5C%22%27%24";
/// Part of every form of the secret, escaped or not.
const CORE: &str = "S3CR3T";

/// What was logged, and what was shown by [`Seen::show`].
#[derive(Clone, Default)]
struct Seen(Log);

impl Seen {
    /// Collects the logs of this process.
    fn start() -> Self {
        let seen = Self::default();
        let writer = seen.0.clone();
        // Also takes what crates write with `log`.
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .try_init()
            .unwrap();
        seen
    }

    fn add(&self, text: &str) {
        self.0.clone().write_all(text.as_bytes()).unwrap();
    }

    /// Takes down what a program could print of a value, which a person can read.
    fn show(&self, value: &impl Debug) {
        let shown = format!("{value:?}\n{value:#?}\n");
        assert!(shown.len() < 10_000, "{} bytes: {}", shown.len(), &shown[..1_000]);
        self.add(&shown);
    }

    fn error(&self, error: &Error) {
        self.show(error);
        self.add(&format!("{error}\n"));
        let mut source = error.source();
        while let Some(inner) = source {
            self.add(&format!("{inner:?}\n{inner}\n"));
            source = inner.source();
        }
        error.nodes().iter().for_each(|node| self.show(node));
    }

    /// Fails if `secret` was seen, without repeating it.
    fn lacks(&self, secret: impl Display) {
        let secret = secret.to_string();
        assert!(secret.len() >= 6, "too short to look for");
        if let Some(line) = self.0.text().lines().find(|line| line.contains(&secret)) {
            panic!("seen: {}", line.replace(&secret, "<SECRET>"));
        }
    }
}

/// A server that asks for the secret, with its addresses over both transports.
fn guarded() -> (Server, Vec<String>) {
    let server = Server::builder().tcp(true).args(["--requirepass", SECRET]).start();
    let urls = vec![
        format!("redis://:{ENCODED}@127.0.0.1:{}", server.port()),
        format!("unix://{}?pass={ENCODED}", server.socket().display()),
        format!("redis://default:{ENCODED}@127.0.0.1:{}/1?protocol=resp3", server.port()),
    ];
    (server, urls)
}

fn admin(server: &Server) -> redis::Connection {
    let mut connection = server.connect();
    redis::cmd("AUTH").arg(SECRET).exec(&mut connection).unwrap();
    connection
}

/// The token of the lock `foo`, which is held.
fn token(connection: &mut redis::Connection) -> String {
    let value: String = redis::cmd("GET").arg("foo").query(connection).unwrap();
    let token = value.split(':').next().unwrap().to_owned();
    assert_eq!(token.len(), 32);
    token
}

/// Tries everything that can be called, on both faces, and shows whatever comes of it. Returns the last error.
fn use_and_show(seen: &Seen, nodes: &[String]) -> Option<Error> {
    use_within(seen, nodes, Duration::from_millis(100))
}

/// The same with a lock that works, also on a busy machine.
fn works(seen: &Seen, node: &str) {
    let error = use_within(seen, &[node.to_owned()], harness::LIMIT);
    assert!(error.is_none(), "{error:?}");
}

/// The same with a lock that every call is refused at once.
fn is_refused(seen: &Seen, node: &str) {
    let error = use_within(seen, &[node.to_owned()], harness::LIMIT).unwrap();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

fn use_within(seen: &Seen, nodes: &[String], timeout: Duration) -> Option<Error> {
    let mut last = None;
    let mut note = |error: Error| {
        seen.error(&error);
        last = Some(error);
    };
    seen.show(&blocking::Redlock::builder().nodes(nodes));
    let builder = Redlock::builder().nodes(nodes).timeout(timeout).label("somebody");
    seen.show(&builder);
    let redlock = match builder.build() {
        Ok(redlock) => redlock,
        Err(error) => {
            note(error);
            return last;
        }
    };
    seen.show(&redlock);
    let runtime = one_worker();
    runtime.block_on(async {
        let lock = redlock.lock("foo");
        seen.show(&lock);
        seen.show(&redlock.election("foo"));
        seen.show(&redlock.list_locks("foo*"));
        seen.show(&redlock.setnx_lock("bar").try_acquire().await);
        seen.show(&redlock.inspect("foo").await);
        for lock in [lock.clone(), lock.ttl(Duration::from_secs(5))] {
            match lock.try_acquire().await {
                Ok(None) => {}
                Ok(Some(guard)) => {
                    seen.show(&guard);
                    seen.show(&redlock.inspect("foo").await);
                    let _ = guard.extend().await.map_err(&mut note);
                    seen.show(&guard);
                    let _ = guard.release().await.map_err(&mut note);
                }
                Err(error) => note(error),
            }
            drop(lock.acquire().await.map_err(&mut note));
            let _ = lock.run(async |guard| seen.show(guard)).await.map_err(&mut note);
        }
    });
    let blocking = blocking::Redlock::from(redlock);
    seen.show(&blocking);
    let lock = blocking.lock("foo");
    seen.show(&lock);
    match lock.acquire() {
        Ok(guard) => {
            seen.show(&guard);
            let _ = guard.extend().map_err(&mut note);
            let _ = guard.release().map_err(&mut note);
        }
        Err(error) => note(error),
    }
    last
}

#[test]
fn the_collector_collects() {
    harness::alone!();
    let seen = Seen::start();
    tracing::trace!(target: "redis", "traced by a crate");
    assert!(seen.0.text().contains("traced by a crate"));
    seen.lacks("not there");
    let told = std::panic::catch_unwind(|| seen.lacks("by a crate"));
    assert!(told.is_err());
}

#[test]
fn passwords_that_are_refused() {
    harness::alone!();
    let seen = Seen::start();
    // Wrong.
    let server = Server::builder().tcp(true).args(["--requirepass", "right"]).start();
    let port = server.port();
    let unix = format!("unix://{}", server.socket().display());
    for url in [
        format!("redis://:{ENCODED}@127.0.0.1:{port}"),
        format!("redis://{ENCODED}:{ENCODED}@127.0.0.1:{port}"),
        format!("{unix}?pass={ENCODED}"),
        format!("{unix}?user={ENCODED}&pass={ENCODED}&protocol=resp3"),
    ] {
        is_refused(&seen, &url);
    }
    // Not asked for, or not even known: servers quote the arguments of a command that they do not know.
    let open = Server::builder().tcp(true).start();
    let dumb = Server::builder()
        .tcp(true)
        .args(["--rename-command", "AUTH", "", "--rename-command", "HELLO", "", "--rename-command", "EVALSHA", ""])
        .args(["--rename-command", "EVAL", ""])
        .start();
    for (server, fails) in [(&open, false), (&dumb, true)] {
        for protocol in [2, 3] {
            let url = format!("redis://:{ENCODED}@127.0.0.1:{}?protocol=resp{protocol}", server.port());
            assert!(use_and_show(&seen, &[url]).is_some() || !fails);
        }
    }
    // Right, but without the rights.
    server_with_user(&open, "-@all");
    let url = format!("redis://user:{ENCODED}@127.0.0.1:{}", open.port());
    is_refused(&seen, &url);
    server_with_user(&open, "+@all -set");
    is_refused(&seen, &url);
    server_with_user(&open, "+@all");
    works(&seen, &url);
    seen.lacks(CORE);
}

fn server_with_user(server: &Server, rights: &str) {
    let password = format!(">{SECRET}");
    let rule = ["ACL", "SETUSER", "user", "reset", "on", &password, "~*", "&*"];
    server.command(&rule.into_iter().chain(rights.split(' ')).collect::<Vec<_>>());
}

#[test]
fn passwords_of_nodes_that_do_not_answer() {
    harness::alone!();
    let seen = Seen::start();
    let (server, urls) = guarded();
    let proxy = Proxy::to(&server);
    let through = proxy.url().replace("redis://", &format!("redis://:{ENCODED}@"));
    works(&seen, &through);
    let through = std::slice::from_ref(&through);
    // Broken off in the middle of the introduction and of scripts.
    for bytes in [0, 1, 10, 100, 3000] {
        proxy.reset();
        proxy.cut_replies_after(bytes);
        use_and_show(&seen, through);
        proxy.let_go();
    }
    proxy.drop_replies();
    proxy.reset();
    assert!(use_and_show(&seen, through).is_some());
    proxy.let_go();
    proxy.refuse(true);
    proxy.reset();
    assert!(use_and_show(&seen, through).is_some());
    // TLS to a port that does not speak it.
    let tls = format!("rediss://:{ENCODED}@127.0.0.1:{}", server.port());
    assert!(use_and_show(&seen, &[tls]).is_some());
    // No such host, no such socket.
    for url in [format!("redis://:{ENCODED}@host.invalid"), format!("unix:///no/such/socket?pass={ENCODED}")] {
        assert!(use_and_show(&seen, &[url]).is_some());
    }
    server.freeze();
    assert!(use_and_show(&seen, &urls[..2]).is_some());
    server.kill();
    assert!(use_and_show(&seen, &urls[..2]).is_some());
    seen.lacks(CORE);
}

#[test]
fn logins_of_files_and_providers() {
    harness::alone!();
    let seen = Seen::start();
    let server = Server::builder().tcp(true).args(["--requirepass", SECRET]).start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    for (password, works) in [(format!("{SECRET}\n"), true), (format!("{SECRET}{SECRET}"), false)] {
        std::fs::write(&path, &password).unwrap();
        let of_file = Redlock::builder().password_file(&path);
        let of_provider = Redlock::builder().credentials(move || {
            let login = redlock::Login::new("default", password.trim_end()).lasting(Duration::from_millis(200));
            std::future::ready(Ok::<_, io::Error>(login))
        });
        for builder in [of_file, of_provider] {
            seen.show(&builder);
            let redlock = blocking::Redlock::from(builder.nodes(server.url()).timeout(Duration::ZERO).build().unwrap());
            seen.show(&redlock);
            match redlock.lock("foo").acquire() {
                Ok(guard) => {
                    assert!(works);
                    guard.extend().unwrap();
                    guard.release().unwrap();
                }
                Err(error) => {
                    assert!(!works, "{error}");
                    seen.error(&error);
                }
            }
            seen.show(&redlock.diagnose().unwrap());
        }
    }
    // The text of a provider's error is the program's, and stands in the cause alone.
    let failing = || std::future::ready(Err::<redlock::Login, _>(io::Error::other(SECRET)));
    let redlock = blocking::Redlock::from(Redlock::builder().nodes(server.url()).credentials(failing).build().unwrap());
    let error = redlock.lock("foo").timeout(Duration::ZERO).acquire().unwrap_err();
    seen.show(&error);
    seen.add(&error.to_string());
    seen.lacks(CORE);
}

#[test]
fn logins_of_sentinels() {
    harness::alone!();
    let seen = Seen::start();
    let server = Server::builder().tcp(true).start();
    let monitored = format!("sentinel monitor {MASTER} 127.0.0.1 {} 1\n", server.port());
    let sentinel = Server::builder().tcp(true).sentinel(monitored).start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), SECRET).unwrap();
    let url = format!("redis+sentinel://127.0.0.1:{}/{MASTER}", sentinel.port());
    let url = format!("{url}?sentinel_user={CORE}&sentinel_password_file={}", file.path().display());
    for (password, works) in [(SECRET, true), ("another", false)] {
        sentinel.command(&["ACL", "SETUSER", CORE, "on", "resetpass", &format!(">{password}"), "+@all"]);
        let redlock = blocking::Redlock::new([url.as_str()]).unwrap();
        let diagnoses = redlock.diagnose().unwrap();
        let refused = format!("{diagnoses:?}").contains("WRONGPASS");
        assert_eq!(refused, !works, "{diagnoses:?}");
        seen.show(&redlock);
        seen.show(&diagnoses);
    }
    seen.lacks(CORE);
}

#[test]
fn tokens() {
    harness::alone!();
    let seen = Seen::start();
    let (server, urls) = guarded();
    let mut admin = admin(&server);
    let mut tokens = Vec::new();
    let url = urls[0].clone();
    let runtime = one_worker();
    runtime.block_on(async {
        let redlock = Redlock::new(&url).unwrap();
        let lock = redlock.lock("foo").ttl(Duration::from_secs(1)).timeout(harness::LIMIT);
        // Works, extended and inspected; a second one is denied.
        let guard = lock.acquire().await.unwrap();
        tokens.push(token(&mut admin));
        seen.show(&guard);
        seen.show(&redlock.inspect("foo").await.unwrap());
        seen.error(&redlock.lock("foo").timeout(Duration::from_millis(200)).acquire().await.unwrap_err());
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        // Dropped.
        let guard = lock.acquire().await.unwrap();
        tokens.push(token(&mut admin));
        drop(guard);
        // Taken, deleted, expired.
        let guard = lock.acquire().await.unwrap();
        tokens.push(token(&mut admin));
        redis::cmd("SET").arg("foo").arg("x").exec(&mut admin).unwrap();
        seen.error(&guard.lost().await);
        seen.show(&guard);
        seen.error(&guard.release().await.unwrap_err());
        redis::cmd("DEL").arg("foo").exec(&mut admin).unwrap();
        let guard = lock.acquire().await.unwrap();
        tokens.push(token(&mut admin));
        redis::cmd("DEL").arg("foo").exec(&mut admin).unwrap();
        seen.error(&guard.extend().await.unwrap_err());
        seen.error(&guard.release().await.unwrap_err());
        let guard = lock.clone().auto_renew(false).acquire().await.unwrap();
        tokens.push(token(&mut admin));
        seen.error(&guard.lost().await);
        seen.show(&guard);
        // A server that stops answering.
        let guard = lock.clone().ttl(Duration::from_secs(2)).acquire().await.unwrap();
        tokens.push(token(&mut admin));
        server.freeze();
        seen.error(&guard.extend().await.unwrap_err());
        seen.error(&guard.lost().await);
        server.thaw();
        eventually("it is released", || redis::cmd("EXISTS").arg("foo").query::<usize>(&mut admin).unwrap() == 0);
        let guard = lock.acquire().await.unwrap();
        tokens.push(token(&mut admin));
        server.kill();
        seen.error(&guard.extend().await.unwrap_err());
        seen.error(&guard.release().await.unwrap_err());
    });
    for token in tokens {
        // Neither a token nor the half of it by which an inspection tells owners apart.
        seen.lacks(&token[..16]);
    }
    seen.lacks(CORE);
}
