//! A server whose replies come in any pieces, with messages of its own between them, to tasks that may go away at any
//! moment: everybody gets the reply to their own request.
#![allow(clippy::disallowed_methods, reason = "a server lives in real time")]

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use redlock::Redlock;
use redlock_fuzz::play;
use tokio::runtime::{Builder, Runtime};

/// What a case is made of.
#[derive(Clone, Debug)]
struct Case {
    /// How many bytes are written at once, around and around.
    pieces: Vec<usize>,
    /// Behind which replies a message comes, around and around.
    messages: Vec<bool>,
    /// For each task, after how many polls each of its calls is dropped; to the end if `None`.
    tasks: Vec<Vec<Option<usize>>>,
    threads: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let call = prop_oneof![2 => Just(None), 1 => (1..4_usize).prop_map(Some)];
    let tasks = prop::collection::vec(prop::collection::vec(call, 1..6), 1..24);
    let pieces = prop::collection::vec(prop_oneof![1..8_usize, 8..200_usize], 1..6);
    (pieces, prop::collection::vec(any::<bool>(), 1..8), tasks, any::<bool>())
        .prop_map(|(pieces, messages, tasks, threads)| Case { pieces, messages, tasks, threads })
}

/// The fence that the server gave last for each name.
type Fences = Arc<Mutex<HashMap<Vec<u8>, u64>>>;

struct Server {
    port: u16,
    fences: Fences,
    is_over: Arc<AtomicBool>,
}

impl Server {
    fn start(case: &Case) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("it is bound").port();
        let (fences, is_over) = (Fences::default(), Arc::new(AtomicBool::new(false)));
        let (case, given, over) = (case.clone(), Arc::clone(&fences), Arc::clone(&is_over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => {
                        let (case, given, over) = (case.clone(), Arc::clone(&given), Arc::clone(&over));
                        thread::spawn(move || drop(converse(client, &case, &given, &over)));
                    }
                    Err(_) => thread::sleep(Duration::from_micros(200)),
                }
            }
        });
        Self { port, fences, is_over }
    }

    fn fence(&self, name: &str) -> Option<u64> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).get(name.as_bytes()).copied()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn converse(mut client: TcpStream, case: &Case, fences: &Fences, over: &AtomicBool) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(Duration::from_millis(20)))?;
    let (mut said, mut read) = (Vec::new(), [0; 4_096]);
    let (mut pieces, mut messages) = (case.pieces.iter().cycle(), case.messages.iter().cycle());
    while !over.load(Ordering::Relaxed) {
        match client.read(&mut read) {
            Ok(0) => return Ok(()),
            Ok(length) => said.extend(&read[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error),
        }
        let mut replies = Vec::new();
        while let Some((command, length)) = command(&said) {
            said.drain(..length);
            replies.extend(reply(&command, fences));
            if messages.next() == Some(&true) {
                replies.extend(b">2\r\n+invalidate\r\n*1\r\n$5\r\nother\r\n");
            }
        }
        let mut rest = &replies[..];
        while let (false, Some(size)) = (rest.is_empty(), pieces.next()) {
            let (piece, later) = rest.split_at(rest.len().min(*size));
            client.write_all(piece)?;
            rest = later;
        }
    }
    Ok(())
}

/// The first command in `bytes` and its length, if it is complete.
fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| {
        let end = bytes.get(*at..)?.windows(2).position(|pair| pair == b"\r\n")?;
        let text = std::str::from_utf8(&bytes[*at + 1..*at + end]).expect("a number");
        *at += end + 2;
        Some(text.parse::<usize>().expect("a number"))
    };
    let words = number(&mut at)?;
    let mut command = Vec::with_capacity(words);
    for _ in 0..words {
        let length = number(&mut at)?;
        command.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= bytes.len()).then_some((command, at))
}

fn reply(command: &[Vec<u8>], fences: &Fences) -> Vec<u8> {
    let has = |text: &str| command[1].windows(text.len()).any(|part| part == text.as_bytes());
    match command[0].as_slice() {
        b"HELLO" => b"%1\r\n+role\r\n+master\r\n".to_vec(),
        b"INFO" => {
            let info = "run_id:1\r\nuptime_in_seconds:1000000\r\nrole:master\r\n";
            format!("${}\r\n{info}\r\n", info.len()).into_bytes()
        }
        b"EVALSHA" => b"-NOSCRIPT No matching script.\r\n".to_vec(),
        b"EVAL" if has("Takes the lock") => {
            let mut fences = fences.lock().unwrap_or_else(PoisonError::into_inner);
            let fence = 1_000 + fences.values().copied().max().unwrap_or_default();
            fences.insert(command[3].clone(), fence);
            format!(":{fence}\r\n").into_bytes()
        }
        b"EVAL" if has("Deletes the lock") => b":1\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

fn runtime(threads: bool) -> Runtime {
    let mut builder = if threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().worker_threads(2).build().expect("a runtime")
}

/// Polls `future` at most so often, and then drops it.
async fn polled<T>(future: impl Future<Output = T>, mut most: usize) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if most == 1 => Poll::Ready(None),
        Poll::Pending => {
            most -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Acquires and releases one name. Returns the first fence that is not the server's.
async fn work(server: Arc<Server>, redlock: Redlock, name: String, calls: Vec<Option<usize>>) -> Result<(), String> {
    for most in calls {
        let lock = redlock.lock(&name);
        let Some(result) = polled(lock.acquire(), most.unwrap_or(usize::MAX)).await else { continue };
        let guard = result.map_err(|error| format!("{name}: {error}"))?;
        let (mine, servers) = (guard.fence(), server.fence(&name));
        if Some(mine) != servers {
            return Err(format!("{name} has the fence {mine}, and the server gave {servers:?}"));
        }
        polled(guard.release(), most.unwrap_or(usize::MAX)).await.transpose().map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn connection() {
    play("connection", &case(), |case| {
        let server = Arc::new(Server::start(&case));
        let runtime = runtime(case.threads);
        let outcome = runtime.block_on(async {
            let redlock = Redlock::builder().nodes(format!("redis://127.0.0.1:{}", server.port)).auto_renew(false);
            let redlock = redlock.node_timeout(Duration::from_secs(5)).build().expect("valid options");
            let tasks: Vec<_> = (0..)
                .zip(case.tasks.clone())
                .map(|(number, calls)| {
                    let (server, redlock) = (Arc::clone(&server), redlock.clone());
                    tokio::spawn(work(server, redlock, format!("name{number}"), calls))
                })
                .collect();
            for task in tasks {
                task.await.expect("no panic")?;
            }
            Ok(())
        });
        outcome.map_err(|why: String| TestCaseError::fail(why))
    });
}
