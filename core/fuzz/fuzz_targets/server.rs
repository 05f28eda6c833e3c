//! A server that answers each command as it likes: every call ends in time, as a lock or with an error of a kind that
//! only servers cause.
#![allow(clippy::disallowed_methods, reason = "a server lives in real time")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use redlock::{Error, ErrorKind, blocking};
use redlock_fuzz::{SECRET, hides_secret, play};

const CONNECT: Duration = Duration::from_millis(50);
const NODE_TIMEOUT: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_millis(200);

/// Errors and values that servers send, whole and in part.
const KNOWN: [&str; 27] = [
    "+OK\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "_\r\n",
    ":0\r\n",
    ":1\r\n",
    ":-1\r\n",
    ":-2\r\n",
    ":1750000000000000\r\n",
    ":9223372036854775807\r\n",
    "-NOSCRIPT No matching script.\r\n",
    "-NOPERM no right\r\n",
    "-WRONGPASS invalid\r\n",
    "-LOADING\r\n",
    "-OOM command not allowed\r\n",
    "-MOVED 1 127.0.0.1:1\r\n",
    "-ERR unknown command\r\n",
    "-ERR max number of clients reached\r\n",
    "%1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
    "%1\r\n+role\r\n+replica\r\n",
    "*5\r\n$0\r\n\r\n:100\r\n$1\r\na\r\n:0\r\n:7\r\n",
    "*6\r\n:1\r\n:0\r\n:100\r\n$1\r\n7\r\n$1\r\na\r\n$16\r\n0123456789abcdef\r\n",
    ">2\r\n+invalidate\r\n*1\r\n$3\r\nfoo\r\n",
    ">0\r\n",
    "$99999999999\r\n",
    "*2147483647\r\n",
    "%2147483647\r\n",
];

#[derive(Clone, Debug)]
enum Answer {
    Bytes(Vec<u8>),
    /// The command itself, in an error.
    Echo,
    HangUp,
    Silence,
}

fn answer() -> impl Strategy<Value = Answer> {
    let info = prop::collection::vec(
        (select(&["run_id", "uptime_in_seconds", "role", "master_replid2", "maxmemory_policy"][..]), ".{0,12}"),
        0..6,
    )
    .prop_map(|lines| {
        let lines: Vec<_> = lines.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
        let text = lines.concat();
        format!("${}\r\n{text}\r\n", text.len()).into_bytes()
    });
    let known = || select(&KNOWN[..]).prop_map(|text| text.as_bytes().to_vec());
    let deep =
        (1..2_000_usize, known()).prop_map(|(depth, inner)| ["*1\r\n".repeat(depth).as_bytes(), &inner].concat());
    let array = prop::collection::vec(known(), 0..7).prop_map(|items| {
        let head = format!("*{}\r\n", items.len()).into_bytes();
        items.into_iter().fold(head, |all, item| [all, item].concat())
    });
    prop_oneof![
        12 => known().prop_map(Answer::Bytes),
        4 => info.prop_map(Answer::Bytes),
        3 => array.prop_map(Answer::Bytes),
        1 => deep.prop_map(Answer::Bytes),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Answer::Bytes),
        1 => Just(Answer::Echo),
        1 => Just(Answer::HangUp),
        1 => Just(Answer::Silence),
    ]
}

/// Serves every connection with the answers, from the first to the last and around again. Returns its port.
fn serve(answers: Vec<Answer>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let (answers, next) = (Arc::new(answers), Arc::new(AtomicUsize::new(0)));
    thread::spawn(move || {
        // Longer than any call lasts.
        listener.set_nonblocking(true).expect("a socket");
        for _ in 0..400 {
            match listener.accept() {
                Ok((client, _)) => {
                    let (answers, next) = (Arc::clone(&answers), Arc::clone(&next));
                    thread::spawn(move || drop(converse(client, &answers, &next)));
                }
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    port
}

fn converse(mut client: TcpStream, answers: &[Answer], next: &AtomicUsize) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut read = [0; 16_384];
    loop {
        let length = client.read(&mut read)?;
        if length == 0 {
            return Ok(());
        }
        let said = &read[..length];
        // A command begins where an array does; what its arguments hold does not matter here.
        let commands = said.windows(2).filter(|pair| pair[0] == b'*' && pair[1].is_ascii_digit()).count();
        for _ in 0..commands {
            match &answers[next.fetch_add(1, Ordering::Relaxed) % answers.len()] {
                Answer::Bytes(bytes) => client.write_all(bytes)?,
                Answer::Echo => {
                    let line: String =
                        String::from_utf8_lossy(said).chars().filter(|character| !character.is_control()).collect();
                    client.write_all(format!("-ERR {line}\r\n").as_bytes())?;
                }
                Answer::HangUp => return Ok(()),
                Answer::Silence => {}
            }
        }
    }
}

/// An error that a server may cause, and that does not show the password.
fn is_servers(error: &Error) -> Result<(), TestCaseError> {
    let expected = [ErrorKind::Timeout, ErrorKind::Unavailable, ErrorKind::Forbidden, ErrorKind::Lost];
    prop_assert!(expected.contains(&error.kind()), "{:?}", error);
    hides_secret(&format!("{error} {error:?}"))
}

#[test]
fn server() {
    play("server", &prop::collection::vec(answer(), 1..12), |answers| {
        let url = format!("redis://:{SECRET}@127.0.0.1:{}", serve(answers));
        let builder = blocking::Redlock::builder().nodes(url).connect_timeout(CONNECT);
        let client = builder.ttl(TTL).node_timeout(NODE_TIMEOUT).build().expect("valid options");
        match client.lock("fuzz").timeout(Duration::ZERO).acquire() {
            Ok(guard) => {
                guard.extend().or_else(|error| is_servers(&error))?;
                guard.release().or_else(|error| is_servers(&error))?;
            }
            Err(error) => is_servers(&error)?,
        }
        let view = client.inspect("fuzz").map_err(|error| TestCaseError::fail(error.to_string()))?;
        hides_secret(&format!("{view:?}"))
    });
}
