//! The native half of the Node package `redlock-rs`.
//!
//! It converts arguments, calls the engine, and converts the results. The engine makes all decisions about a lock. A
//! failed call returns a value ([`error::Failure`]), so that the TypeScript half can throw an error of the right class
//! with the caller's stack.
#![allow(clippy::must_use_candidate, reason = "called from JavaScript, which knows no such thing")]
#![allow(clippy::needless_pass_by_value, reason = "what JavaScript passes is converted into values")]

pub mod calls;
pub mod client;
pub mod command_line;
mod convert;
pub mod credentials;
pub mod error;
pub mod events;
mod host;
pub mod lock;
pub mod options;
mod sockets;
pub mod stats;
mod table;
pub mod testing;
mod wake;

use std::sync::Once;
use std::thread::{Builder, JoinHandle};

use napi_derive::napi;

/// Releases every lock held by this process, and waits up to 500 ms for the servers. For the end of the process.
#[napi(catch_unwind)]
pub fn shutdown() {
    redlock::shutdown();
}

/// Shuts redlock down at the end of the process, even if JavaScript does not. Only the main thread has an `exit` event
/// at every end, and it may not know of its workers' locks.
pub(crate) fn shut_down_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `at_exit` may be called at any time and any number of times, and does not unwind. The library is
        // linked so that it is never unloaded.
        #[allow(unsafe_code, reason = "there is no safe way to register it")]
        unsafe {
            libc::atexit(at_exit);
        }
    });
}

extern "C" fn at_exit() {
    // Uses another thread, because the thread that ends the process has no thread-locals any more. A panic stays there.
    let shutdown = Builder::new().spawn(redlock::shutdown);
    drop(shutdown.map(JoinHandle::join));
}
