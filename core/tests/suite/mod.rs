//! The library as programs use it. Most of its tests share this one program, because the engine is compiled into each
//! program anew; a test that needs a process of its own starts this program again. Beside it stand those that watch
//! the whole process, those whose crowds would keep its background thread from others, and those that look at what
//! blocking calls leave on the runtimes of the process.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod connecting;
mod credentials;
mod delete_follows_create;
mod diagnose;
mod diagnose_cluster;
mod errors;
mod hold;
mod layers;
mod log;
mod nodes;
mod objects;
mod processes;
mod readme;
mod round_trips;
mod send_sync;
mod sentinel;
mod setnx;
mod single;
#[cfg(all(feature = "metrics", feature = "testing"))]
mod surface;
#[cfg(feature = "testing")]
mod testing;
mod tls;
mod waiting;
