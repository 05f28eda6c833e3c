//! Tasks, runtimes and processes that stall or end while they acquire, hold or release a lock.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::io::{BufRead, BufReader};
use std::os::unix::net;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::{SLACK, Server, cluster, eventually, this_test, urls};
use redlock::{ErrorKind, Redlock};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{consts::SIGTERM, low_level::pipe};
use tokio::net::UnixStream;

use super::{client, current_thread, poll_once};

const TTL: Duration = Duration::from_secs(3);
/// Of keys that would not go by themselves within a test.
const LONG: Duration = Duration::from_secs(60);
/// How soon a process that is asked to end has released what it holds.
const END: Duration = Duration::from_secs(1);
/// The longest time that a shutdown waits for the servers.
pub(super) const SHUTDOWN: Duration = Duration::from_millis(500);

fn held(servers: &[Server], name: &str) -> bool {
    servers.iter().filter(|server| server.get(name).is_some()).count() > servers.len() / 2
}

fn gone(servers: &[Server], name: &str) -> bool {
    servers.iter().all(|server| server.get(name).is_none())
}

/// Polls a future that does not end, and leaves it.
async fn poll_for_a_while<T>(future: &mut Pin<Box<impl Future<Output = T>>>) {
    assert!(tokio::time::timeout(Duration::from_millis(100), future).await.is_err());
}

#[test]
fn a_wait_that_nobody_polls_any_more_blocks_for_one_ttl() {
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        let redlock = client(&servers);
        current_thread().block_on(async {
            let holder = redlock.lock("foo").await.unwrap();
            let first = holder.fence();
            let lock = redlock.lock("foo").ttl(TTL);
            let before = servers[0].scripts_asked();
            let mut stalled = Box::pin(lock.acquire());
            // Until it was denied in the call, and in the background, which waits then.
            while servers[0].scripts_asked() < before + 2 {
                poll_for_a_while(&mut stalled).await;
            }
            holder.release().await.unwrap();
            eventually("the background has won it", || held(&servers, "foo"));
            let guard = redlock.lock("foo").timeout(harness::LIMIT).await.unwrap();
            assert!(guard.fence() > first + 1, "somebody had it in between");
            // What was won for it is past, and not its release to give.
            drop(stalled);
            redlock.lock("bar").await.unwrap().release().await.unwrap();
            guard.extend().await.unwrap();
            guard.release().await.unwrap();
        });
    }
}

#[test]
fn a_release_goes_on_after_the_end_of_its_runtime() {
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        let redlock = client(&servers);
        let runtime = current_thread();
        let guards: Vec<_> =
            (0..20).map(|n| runtime.block_on(redlock.lock(format!("name:{n}")).ttl(LONG).acquire()).unwrap()).collect();
        servers.iter().for_each(Server::freeze);
        let mut tasks = Vec::new();
        runtime.block_on(async {
            for (n, guard) in guards.into_iter().enumerate() {
                if n % 2 == 0 {
                    tasks.push(tokio::spawn(guard.release()));
                    tokio::task::yield_now().await;
                } else {
                    drop(guard);
                }
            }
        });
        drop(runtime);
        servers.iter().for_each(Server::thaw);
        eventually("no key is left", || (0..20).all(|n| gone(&servers, &format!("name:{n}"))));
    }
}

/// The names whose first tries are broken off.
const TRIED: [&str; 2] = ["tried", "tried, too"];

/// What a program does when it is asked to end. Returns how long it waited for its shutdown.
async fn program(urls: Vec<String>, how: &str) -> Duration {
    let redlock = Redlock::builder().nodes(urls).ttl(LONG).build().unwrap();
    let (terminate, told) = net::UnixStream::pair().unwrap();
    pipe::register(SIGTERM, told).unwrap();
    terminate.set_nonblocking(true).unwrap();
    let terminate = UnixStream::from_std(terminate).unwrap();
    let guard = redlock.lock("held").await.unwrap();
    let work = async {
        let _dropped = redlock.lock("dropped").await.unwrap();
        println!("\nready");
        drop(redlock.lock("contended").await.unwrap());
    };
    tokio::select! {
        readable = terminate.readable() => readable.unwrap(),
        () = work => unreachable!("others hold it"),
    }
    // Broken off in their first tries. Nobody reads the answers, and the last requests are not even written.
    let mut tries = TRIED.map(|name| Box::pin(redlock.lock(name).into_future()));
    for tried in &mut tries {
        poll_once(tried).await;
    }
    drop((tries, guard));
    if how == "shutdown" { shut_down() } else { Duration::ZERO }
}

fn shut_down() -> Duration {
    let begun = Instant::now();
    redlock::shutdown();
    begun.elapsed()
}

/// The status of a program that had heard from its servers, and of one that had waited for them in vain.
const ENDED: i32 = 143;
const GAVE_UP: i32 = 144;

#[test]
fn a_process_that_is_asked_to_end_leaves_no_key() {
    const NAME: &str = "a_process_that_is_asked_to_end_leaves_no_key";
    if let (Ok(urls), Ok(how)) = (std::env::var("REDLOCK_TEST_URLS"), std::env::var("REDLOCK_TEST_HOW")) {
        let urls = urls.split(',').map(str::to_owned).collect();
        // Some shut down inside, some outside of the runtime.
        let waited = current_thread().block_on(program(urls, &how)) + shut_down();
        std::process::exit(if waited < SHUTDOWN { ENDED } else { GAVE_UP });
    }
    for how in ["drop", "shutdown"] {
        for nodes in [1, 5] {
            // Servers on a busy machine may need longer than a shutdown waits.
            eventually("the servers answer in time", || leaves_no_key(NAME, nodes, how));
        }
    }
}

/// Has a program end that uses its own servers. Returns false if it had to give up.
fn leaves_no_key(test: &str, nodes: usize, how: &str) -> bool {
    let servers = cluster(nodes);
    let contended = current_thread().block_on(client(&servers).lock("contended").acquire()).unwrap();
    let status = terminated(test, &servers, how).code();
    if status == Some(GAVE_UP) {
        return false;
    }
    assert_eq!(status, Some(ENDED));
    for name in TRIED.into_iter().chain(["held", "dropped"]) {
        assert!(gone(&servers, name), "{how} left {name}");
    }
    contended.check().unwrap();
    drop(contended);
    eventually("nobody who is gone takes it", || gone(&servers, "contended"));
    true
}

/// Runs `test` of this file in a process of its own, and ends it with SIGTERM when it is ready.
fn terminated(test: &str, servers: &[Server], how: &str) -> ExitStatus {
    let mut command = this_test(module_path!(), test);
    command.stdout(Stdio::piped());
    command.env("REDLOCK_TEST_URLS", urls(servers).join(",")).env("REDLOCK_TEST_HOW", how);
    let mut child = harness::spawn(command).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"));
    eventually("its call waits", || servers.iter().any(|server| server.get("redlock:waiters:{contended}").is_some()));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let asked = Instant::now();
    let status = child.wait().unwrap();
    assert!(asked.elapsed() < END + SLACK, "{:?}", asked.elapsed());
    status
}

/// Begins calls that wait, shuts redlock down, and waits for what they come to.
fn waits_and_shuts_down(urls: Vec<String>) {
    let redlock = Redlock::new(urls).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let calls: Vec<_> = [None, Some(LONG)]
            .into_iter()
            .map(|timeout| {
                let lock = redlock.lock("contended");
                let lock = if let Some(timeout) = timeout { lock.timeout(timeout) } else { lock };
                tokio::spawn(lock.into_future())
            })
            .collect();
        redlock.inspect("contended").await.unwrap();
        let blocking = redlock::blocking::Redlock::from(redlock.clone());
        let thread = thread::spawn(move || blocking.lock("contended").acquire().err().unwrap());
        // Behind them in line, and it hears what the one in front has seen.
        let error = redlock.lock("contended").timeout(2 * SLACK).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        redlock::shutdown();
        let said = Instant::now();
        let mut errors = Vec::new();
        for call in calls {
            let result = tokio::time::timeout(harness::LIMIT, call).await.expect("it is answered");
            errors.push(result.unwrap().unwrap_err());
        }
        eventually("the thread is answered", || thread.is_finished());
        errors.push(thread.join().unwrap());
        errors.push(redlock.lock("contended").acquire().await.unwrap_err());
        assert!(said.elapsed() < SLACK, "{:?}", said.elapsed());
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            assert!(error.to_string().contains("redlock is shut down in this process"), "{error}");
        }
    });
    println!("\nanswered");
}

#[test]
fn calls_that_wait_are_answered_when_the_process_shuts_down() {
    const NAME: &str = "calls_that_wait_are_answered_when_the_process_shuts_down";
    if let Ok(urls) = std::env::var("REDLOCK_TEST_URLS") {
        return waits_and_shuts_down(urls.split(',').map(str::to_owned).collect());
    }
    for nodes in [1, 5] {
        let servers = cluster(nodes);
        for server in &servers {
            server.command(&["SET", "contended", "theirs"]);
        }
        let mut command = this_test(module_path!(), NAME);
        command.stdout(Stdio::piped());
        command.env("REDLOCK_TEST_URLS", urls(&servers).join(","));
        let child = harness::spawn(command).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.lines().any(|line| line == "answered"), "{said}");
    }
}
