//! Waiting for the slots of a semaphore: a release wakes who waits, and everybody asks seldom.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::time::{Duration, Instant};

use harness::{Proxy, Server, eventually, urls};
use redlock::{Guard, Redlock};
use tokio::task::JoinSet;

use crate::shared::client_apart;

const NAME: &str = "pool";
const PERMITS: u32 = 10;
const PROCESSES: usize = 100;

/// How often a waiter looks at least, although nothing happens.
const BACKSTOP_LEAST: Duration = Duration::from_millis(1_500);

/// How many wait, as far as the server knows.
fn waiting(server: &Server) -> usize {
    let count = server.get(format!("redlock:waiters::redlock:slot:0:{{{NAME}}}"));
    count.and_then(|count| String::from_utf8(count).ok()?.parse().ok()).unwrap_or(0)
}

/// Takes all slots.
async fn fill(client: &Redlock) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..PERMITS {
        guards.push(client.semaphore(NAME, PERMITS).acquire().await.unwrap());
    }
    guards
}

/// Calls that wait for a slot, each in a process of its own, as far as the server knows.
fn wait(clients: &[(Vec<Proxy>, Redlock)], server: &Server) -> JoinSet<Guard> {
    let mut calls = JoinSet::new();
    for (_, client) in clients {
        let lock = client.semaphore(NAME, PERMITS);
        calls.spawn(async move { lock.acquire().await.unwrap() });
    }
    eventually("all of them wait", || waiting(server) >= PROCESSES);
    calls
}

/// The next call that gets a slot.
async fn next(calls: &mut JoinSet<Guard>) -> Option<Guard> {
    let next = tokio::time::timeout(harness::LIMIT, calls.join_next()).await.expect("somebody gets the slot");
    next.map(Result::unwrap)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_a_hundred_waiters_once_each_and_all_get_a_slot() {
    harness::alone!();
    let servers = [Server::start()];
    let clients: Vec<_> = (0..PROCESSES).map(|_| client_apart(&servers)).collect();
    let mut holders = fill(&clients[0].1).await;
    let mut calls = wait(&clients, &servers[0]);
    let (before, start) = (servers[0].scripts_asked(), Instant::now());
    holders.remove(0).release().await.unwrap();
    holders.push(next(&mut calls).await.expect("one of them"));
    eventually("all others have looked, and wait again", || waiting(&servers[0]) >= PROCESSES - 1);
    // Each reads the bell and the slots. Who sees the free slot too may try it, and looks once more.
    let looks = 4.0 + start.elapsed().div_duration_f64(BACKSTOP_LEAST);
    let each = per_process(servers[0].scripts_asked() - before);
    assert!(each <= looks, "{each} scripts for each waiter, at most {looks}");
    drop(holders);
    while next(&mut calls).await.is_some() {}
}

fn per_process(scripts: u64) -> f64 {
    f64::from(u32::try_from(scripts).unwrap()) / f64::from(u32::try_from(PROCESSES).unwrap())
}

/// Otherwise nobody would be told where each node is the only one that has a free slot.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_counted_where_a_slot_is_free_that_no_quorum_has() {
    let servers: [_; 3] = std::array::from_fn(|_| Server::start());
    for (server, slots) in [(&servers[0], &[0][..]), (&servers[1], &[1]), (&servers[2], &[0, 1])] {
        for slot in slots {
            server.command(&["SET", &format!("redlock:slot:{slot}:{{{NAME}}}"), "another"]);
        }
    }
    let client = Redlock::builder().nodes(urls(&servers)).restart_delay(Duration::ZERO).build().unwrap();
    let call = tokio::spawn(async move { client.semaphore(NAME, 2).acquire().await.unwrap() });
    for server in &servers {
        eventually("it is counted", || waiting(server) > 0);
    }
    call.abort();
}
