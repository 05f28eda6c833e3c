//! The native half of the Node package `redlock-rs`: converts, calls the lock, converts back.
//!
//! Nothing here decides anything about locking. What fails comes back as a value ([`failure::Failure`]), so that the
//! TypeScript half can throw an error of a real class with the caller's stack.
#![allow(clippy::must_use_candidate, reason = "called from JavaScript, which knows no such thing")]
#![allow(clippy::needless_pass_by_value, reason = "what JavaScript passes is converted into values")]

pub mod client;
pub mod failure;
pub mod holder;
pub mod options;
pub mod queue;

use napi_derive::napi;

/// Releases everything this process holds and waits for that, at most 500 ms. For the end of the process.
#[napi(catch_unwind)]
pub fn farewell() {
    redlock::farewell();
}
