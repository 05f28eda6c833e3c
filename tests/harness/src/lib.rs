//! Real servers and network faults for the tests of redlock.
//!
//! [`Server`] is one real Redis or Valkey process: started on a unix socket in a directory of its own, frozen,
//! killed, restarted and wiped by the test, and gone when the value is dropped or the test process dies.
//! [`Proxy`] stands in front of one server and delays, holds, loses or cuts what passes.
//! [`eventually`] waits for a state; no test has to sleep for a fixed time.
//!
//! ```
//! use redlock_harness::{Proxy, Server};
//!
//! let server = Server::start();
//! server.command(&["SET", "colour", "green"]);
//! assert_eq!(server.get("colour"), Some(b"green".to_vec()));
//!
//! let proxy = Proxy::to(&server);
//! proxy.hold_replies(); // requests arrive, answers do not
//! ```
//!
//! Everything here panics, with the server's log, where a test would have to give up.
#![allow(clippy::missing_panics_doc, reason = "every function here panics where a test would have to give up")]
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

mod child;
mod ports;
mod program;
mod proxy;
mod sentinels;
mod servers;
mod spawner;
mod tls;

pub use child::{is_alone, ran, test_around, this_test, this_test_without_threads};
pub use program::Program;
pub use proxy::Proxy;
pub use redis;
pub use sentinels::{FakeSentinel, MASTER, Sentinels};
pub use servers::{Builder, Server, cluster, urls};
pub use spawner::spawn;
pub use tls::{Authority, self_signed_with_a_strange_extension};

use std::time::{Duration, Instant};

/// How long [`eventually`] and everything else here waits before it gives up: far more than a healthy machine needs.
pub const LIMIT: Duration = Duration::from_secs(30);

/// How much later than promised a busy machine may be.
pub const SLACK: Duration = Duration::from_secs(1);

/// Waits until `state` is true, and panics with `what` after [`LIMIT`]. It asks every millisecond at first, and less often the
/// longer it has waited: many tests that wait at once must leave the processor to those that work.
pub fn eventually(what: &str, state: impl FnMut() -> bool) {
    within(LIMIT, what, state);
}

/// Waits until all servers have a key. A call ends with the majority, and the others get the key later.
pub fn all_have(servers: &[Server], key: &str) {
    eventually("all servers have the key", || servers.iter().all(|server| server.get(key).is_some()));
}

/// The same within `limit`.
pub(crate) fn within(limit: Duration, what: &str, mut state: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !state() {
        let waited = begun.elapsed();
        assert!(waited < limit, "waited {limit:?} in vain: {what}");
        std::thread::sleep((waited / 32).clamp(Duration::from_millis(1), Duration::from_millis(20)));
    }
}
