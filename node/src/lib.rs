//! The native half of the Node package `redlock-rs`: converts, calls the lock, converts back.
//!
//! Nothing here decides anything about locking. What fails comes back as a value ([`error::Failure`]), so that the
//! TypeScript half can throw an error of a real class with the caller's stack.
#![allow(clippy::must_use_candidate, reason = "called from JavaScript, which knows no such thing")]
#![allow(clippy::needless_pass_by_value, reason = "what JavaScript passes is converted into values")]

pub mod calls;
pub mod client;
mod convert;
pub mod error;
pub mod lock;
pub mod options;

use std::sync::Once;
use std::thread::{Builder, JoinHandle};

use napi_derive::napi;

/// Releases everything this process holds and waits for that, at most 500 ms. For the end of the process.
#[napi(catch_unwind)]
pub fn shutdown() {
    redlock::shutdown();
}

/// Shuts redlock down also where JavaScript cannot: its main thread, whose `exit` event is the only one that
/// comes at every end, may not know of the locks of its workers.
pub(crate) fn shut_down_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `at_exit` may be called at any time, as often as anyone likes, and does not unwind. The library is
        // linked so that it is never unloaded.
        #[allow(unsafe_code, reason = "there is no safe way to register it")]
        unsafe {
            libc::atexit(at_exit);
        }
    });
}

extern "C" fn at_exit() {
    // On a thread of its own: the thread that ends the process has lost its thread-locals. A panic stays there.
    let shutdown = Builder::new().spawn(redlock::shutdown);
    drop(shutdown.map(JoinHandle::join));
}
