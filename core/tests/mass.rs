//! Thousands of locks that are given up at once: each of their keys goes, however many releases are owed.
//!
//! All keys would live for a minute, far longer than a test waits.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::redis::FromRedisValue;
use harness::{Proxy, Server, cluster, eventually, this_test, urls};
use redlock::{Guard, Redlock};

use crate::suite::{current_thread, poll_once};

/// Of keys that do not expire within a test.
const LONG: Duration = Duration::from_secs(60);
/// Longer than a busy machine takes for all acquires: a release is retried for one ttl after the loss, so the first lock
/// must not be lost that much earlier than the last.
const TTL: Duration = Duration::from_secs(8);
/// More than any test of single locks has, and little enough for a busy machine.
const MANY: usize = 2_000;

fn names() -> Vec<String> {
    (0..MANY).map(|n| format!("name:{n}")).collect()
}

/// How many of the locks have a key on `server`.
fn left(server: &Server) -> usize {
    let names = names();
    let command: Vec<&str> = ["EXISTS"].into_iter().chain(names.iter().map(String::as_str)).collect();
    usize::from_redis_value(server.command(&command)).unwrap()
}

fn none_is_left(servers: &[Server]) {
    eventually("no key is left", || servers.iter().all(|server| left(server) == 0));
}

async fn hold(redlock: &Redlock, count: usize) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(count);
    for name in names().into_iter().take(count) {
        guards.push(redlock.lock(name).await.unwrap());
    }
    guards
}

fn client(urls: impl IntoIterator<Item = String>, ttl: Duration) -> Redlock {
    Redlock::builder().nodes(urls.into_iter().collect::<Vec<_>>()).ttl(ttl).auto_renew(false).build().unwrap()
}

/// Half of the calls are granted and half are not written yet when all of them are dropped.
#[test]
fn calls_dropped_at_once_leave_no_key() {
    harness::alone!();
    for nodes in [1, 3] {
        let servers = cluster(nodes);
        let redlock = client(urls(&servers), LONG);
        let runtime = current_thread();
        runtime.block_on(async {
            redlock.lock("warm-up").await.unwrap().release().await.unwrap();
            let locks: Vec<_> = names().into_iter().map(|name| redlock.lock(name)).collect();
            let mut calls: Vec<_> = locks.iter().map(|lock| Box::pin(lock.acquire())).collect();
            let (granted, unwritten) = calls.split_at_mut(MANY / 2);
            for call in granted {
                poll_once(call).await;
            }
            // Over the same connections, so that those before it are granted too.
            redlock.lock("warm-up").await.unwrap().release().await.unwrap();
            for call in unwritten {
                poll_once(call).await;
            }
            drop(calls);
        });
        none_is_left(&servers);
    }
}

/// Their keys live on, as they do on a server whose clock has stood still.
#[test]
fn locks_lost_at_once_leave_no_key() {
    harness::alone!();
    let servers = cluster(1);
    let redlock = client([servers[0].url()], TTL);
    let guards = current_thread().block_on(hold(&redlock, MANY));
    let names = names();
    let script = "for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, 60000) end";
    let (count, names) = (MANY.to_string(), names.iter().map(String::as_str));
    let command: Vec<&str> = ["EVAL", script, &count].into_iter().chain(names).collect();
    servers[0].command(&command);
    servers[0].freeze();
    eventually("all are lost", || guards.iter().all(|guard| !guard.is_held()));
    servers[0].thaw();
    none_is_left(&servers);
}

#[test]
fn what_is_owed_to_a_node_that_is_cut_off_is_sent_when_it_is_back() {
    harness::alone!();
    let servers = cluster(1);
    let proxy = Proxy::to(&servers[0]);
    let redlock = client([proxy.url()], LONG);
    let runtime = current_thread();
    let guards = runtime.block_on(hold(&redlock, MANY));
    assert_eq!(left(&servers[0]), MANY);
    proxy.refuse(true);
    proxy.reset();
    drop(guards);
    let error = runtime.block_on(redlock.lock("other").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), redlock::ErrorKind::Unavailable);
    assert_eq!(left(&servers[0]), MANY);
    proxy.refuse(false);
    none_is_left(&servers);
}

/// So many that a busy machine mostly gives them back in time.
const HELD: usize = 600;
/// The longest time that a shutdown waits for the servers.
const SHUTDOWN: Duration = Duration::from_millis(500);
/// The status of a process that has waited for so long.
const GAVE_UP: i32 = 3;

#[test]
fn a_process_that_ends_gives_back_all_that_it_holds() {
    const NAME: &str = "a_process_that_ends_gives_back_all_that_it_holds";
    if let Ok(url) = std::env::var("REDLOCK_TEST_URL") {
        let runtime = current_thread();
        let guards = runtime.block_on(hold(&client([url], LONG), HELD));
        println!("\nholds {}", guards.len());
        let begun = Instant::now();
        redlock::shutdown();
        std::process::exit(if begun.elapsed() < SHUTDOWN { 0 } else { GAVE_UP });
    }
    eventually("a busy machine answers in time", || gives_all_back(NAME));
}

/// Returns false if the process had to give up.
fn gives_all_back(test: &str) -> bool {
    let servers = cluster(1);
    let mut command = this_test(module_path!(), test);
    command.stdout(Stdio::piped()).env("REDLOCK_TEST_URL", servers[0].url());
    let mut child = harness::spawn(command).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == format!("holds {HELD}")));
    match child.wait().unwrap().code() {
        Some(GAVE_UP) => return false,
        status => assert_eq!(status, Some(0)),
    }
    assert_eq!(left(&servers[0]), 0);
    true
}
