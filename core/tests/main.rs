//! The library as programs use it. One program, because the engine is compiled into each.
//!
//! What is in `suite` shares its process. Beside it stand the tests that watch the whole process, those whose crowds would keep
//! its background thread from others, and those that look at what blocking calls leave on its runtimes: [`harness::alone!`]
//! gives each of these a process of its own.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod faces;
mod mass;
#[cfg(all(feature = "__bindings", feature = "testing"))]
mod pacing;
mod secrets;
mod semaphore;
mod shared;
mod subscribers;
mod suite;
