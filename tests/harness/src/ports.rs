//! TCP ports for servers and proxies: 22700 to 29999, one after the other for all processes of a user.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::TcpListener;

use rustix::fs::{FlockOperation, flock};

/// Below are those of servers of clusters, which only the tests in Python start.
const FIRST: u16 = 22_700;
const COUNT: u16 = 7_300;

/// A listener on a port of 127.0.0.1 that was free; drop it to give the port to a server.
pub(crate) fn listen() -> TcpListener {
    for _ in 0..COUNT {
        let number = count() % u64::from(COUNT);
        let port = FIRST + u16::try_from(number).expect("fewer than all ports");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
    }
    panic!("no port is free from {FIRST} on");
}

pub(crate) fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("a bound listener has an address").port()
}

/// Returns how many ports were handed out before. The tests in Python count in the same file. A server binds its port
/// some time after it got it, and until then no other process may get the same one.
fn count() -> u64 {
    // One place, whatever TMPDIR says.
    let path = format!("/tmp/redlock-ports-{}", rustix::process::getuid().as_raw());
    let opened = File::options().read(true).append(true).create(true).open(path);
    let mut file = opened.expect("/tmp can be written to");
    flock(&file, FlockOperation::LockExclusive).expect("a local file can be locked");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("a text");
    let count = text.parse().unwrap_or(0);
    file.set_len(0).expect("it can be written to");
    file.rewind().expect("it is a file");
    write!(file, "{}", count + 1).expect("it can be written to");
    count
}
