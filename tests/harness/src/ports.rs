//! TCP ports for servers and proxies: 20000 to 29999, one after the other for all processes of a user.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::TcpListener;
use std::ops::Range;

use rustix::fs::{FlockOperation, flock};

/// How far the port for the other servers of a cluster is from the one for clients; Redis 6.2 knows no other choice.
pub(crate) const BUS: u16 = 10_000;

/// Of servers for a cluster. Their other ports are below those that systems give to connections, which begin at 32768:
/// no connection has the port of a server that was killed and starts again.
const FOR_CLUSTERS: Range<u16> = 20_000..22_700;
const FOR_ALL: Range<u16> = 22_700..30_000;

/// A listener on a port of 127.0.0.1 that was free; drop it to give the port to a server.
pub(crate) fn listen() -> TcpListener {
    listen_in(FOR_ALL)
}

/// A listener as of [`listen`] for a server of a cluster: the port for the other servers was free, too.
pub(crate) fn listen_for_cluster() -> TcpListener {
    loop {
        let listener = listen_in(FOR_CLUSTERS);
        if TcpListener::bind(("127.0.0.1", port(&listener) + BUS)).is_ok() {
            return listener;
        }
    }
}

fn listen_in(ports: Range<u16>) -> TcpListener {
    for _ in ports.clone() {
        let number = count() % u64::from(ports.end - ports.start);
        let port = ports.start + u16::try_from(number).expect("fewer than all ports");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
    }
    panic!("no port is free in {ports:?}");
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
