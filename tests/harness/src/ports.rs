//! TCP ports for servers and proxies: 20000 to 29999, a block of its own for each process.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;
/// Processes whose ids are close together (parallel test binaries) get blocks that do not touch.
const BLOCK: u32 = 50;

/// A listener on a port of 127.0.0.1 that was free; drop it to give the port to a server.
pub(crate) fn listen() -> TcpListener {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + process::id().wrapping_mul(BLOCK).wrapping_add(tried) % COUNT;
        let port = u16::try_from(port).expect("below 30000");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
    }
    panic!("no port is free between {FIRST} and {}", FIRST + COUNT - 1);
}

pub(crate) fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("a bound listener has an address").port()
}
