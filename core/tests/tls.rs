//! `rediss://`: encrypted, with a certificate that is checked.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Program, SLACK, Server};
use redlock::{ErrorKind, Redlock, blocking};

/// The longest time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

fn server() -> Option<Server> {
    let program = Program::with_tls();
    if program.is_none() {
        println!("skipped: no server with TLS on this machine");
    }
    Some(Server::builder().program(program?).tls(true).start())
}

/// Runs `test` of this file in a process that trusts `authority` alone: what is trusted is read once per process.
fn child(test: &str, authority: &Path, url: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("REDLOCK_TEST_CHILD", url)
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_trusted_certificate_works() {
    if let Ok(url) = std::env::var("REDLOCK_TEST_CHILD") {
        let redlock = blocking::Redlock::new(&url).unwrap();
        for _ in 0..3 {
            let guard = redlock.lock("foo").timeout(Duration::from_secs(9)).acquire().unwrap();
            assert!(redlock.lock("foo").try_acquire().unwrap().is_none());
            guard.extend().unwrap();
            guard.release().unwrap();
        }
        runtime().block_on(async {
            let guard = Redlock::new(&url).unwrap().lock("foo").timeout(Duration::from_secs(9)).await.unwrap();
            guard.extend().await.unwrap();
            guard.release().await.unwrap();
        });
        return;
    }
    let Some(server) = server() else { return };
    let authority = server.authority().ca();
    for url in [server.url(), server.url().replace("127.0.0.1", "localhost")] {
        child("a_trusted_certificate_works", &authority, &url);
    }
    assert_eq!(server.get("foo"), None);
}

/// One try at `url` fails as unavailable, in time, on both faces; returns what the node is said to have answered.
fn refused(url: &str) -> String {
    let blocking = blocking::Redlock::new(url).unwrap();
    let redlock = Redlock::new(url).unwrap();
    let mut answer = String::new();
    let tries: [&dyn Fn() -> redlock::Error; 2] =
        [&|| blocking.lock("foo").timeout(Duration::ZERO).acquire().unwrap_err(), &|| {
            runtime().block_on(redlock.lock("foo").timeout(Duration::ZERO).acquire()).unwrap_err()
        }];
    for attempt in tries {
        let start = Instant::now();
        let error = attempt();
        assert!(start.elapsed() <= CONNECT_TIMEOUT + NODE_TIMEOUT + SLACK, "{:?}: {error}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        answer.clone_from(&error.nodes()[0].answer);
    }
    answer
}

#[test]
fn an_unknown_authority_is_refused_with_a_clear_error() {
    if let Ok(url) = std::env::var("REDLOCK_TEST_CHILD") {
        let answer = refused(&url);
        assert!(answer.to_lowercase().contains("certificate"), "{answer}");
        return;
    }
    let (Some(server), Some(other)) = (server(), server()) else { return };
    // Another authority than the server's.
    child("an_unknown_authority_is_refused_with_a_clear_error", &other.authority().ca(), &server.url());
    // And the system's own, whatever they are.
    refused(&server.url());
    assert_eq!(server.get("foo"), None);
}

#[test]
fn a_port_without_tls_is_refused_in_time() {
    let server = Server::builder().tcp(true).start();
    refused(&server.url().replace("redis://", "rediss://"));
    // A server that takes the connection and says nothing.
    server.freeze();
    let answer = refused(&server.url().replace("redis://", "rediss://"));
    assert!(answer.contains("no answer within"), "{answer}");
}

#[test]
fn a_port_with_tls_refuses_plain_text_in_time() {
    let Some(server) = server() else { return };
    refused(&server.url().replace("rediss://", "redis://"));
}
