//! A server that refuses connections is tried twenty times a second at most, however many names wait, and is found when
//! it is back.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use harness::{LIMIT, Proxy, Server, eventually};
use redlock::Redlock;
use tokio::task::JoinSet;

use crate::suite::log::Log;

/// Most connects to one node in a second.
const MOST_PER_SECOND: u64 = 20;

/// How long connects are counted.
const SPAN: Duration = Duration::from_millis(1500);

/// What the library logs, connects that fail among it.
fn log() -> Log {
    let (log, level) = (Log::default(), tracing::Level::DEBUG);
    let writer = log.clone();
    tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(move || writer.clone()).init();
    log
}

/// Waits with `names` locks for a server that refuses connections, counts, and lets the server come back.
async fn refuses(names: usize) {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    proxy.refuse(true);
    let log = log();
    let tries = || u64::try_from(log.text().matches("no connection").count()).unwrap();
    let builder = Redlock::builder().nodes(proxy.url()).restart_delay(Duration::ZERO);
    let redlock = builder.timeout(LIMIT).build().unwrap();
    // Before all of them, and until after the count: a busy machine, which counts late, only makes it longer.
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..names {
        calls.spawn(redlock.lock(format!("job:{number}")).into_future());
    }
    eventually("it is tried again, and the span is over", || tries() > 1 && start.elapsed() >= SPAN);
    let (count, time) = (tries(), start.elapsed());
    // The first ones of each set of connections begin together.
    let most = MOST_PER_SECOND * u64::try_from(time.as_millis()).unwrap() / 1000 + 4;
    assert!(count <= most, "{names} names: {count} connects in {time:?}");
    proxy.refuse(false);
    while let Some(call) = tokio::time::timeout(LIMIT, calls.join_next()).await.expect("it is noticed") {
        drop(call.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_and_a_server_that_refuses() {
    harness::alone!();
    refuses(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_and_a_server_that_refuses() {
    harness::alone!();
    refuses(500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-all: five thousand calls"]
async fn masses_of_names_and_a_server_that_refuses() {
    harness::alone!();
    refuses(5_000).await;
}
