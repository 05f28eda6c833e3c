//! What shares one process.

mod connecting;
mod credentials;
mod delete_follows_create;
mod diagnose;
mod errors;
mod hold;
mod layers;
mod log;
mod nodes;
#[cfg(feature = "__bindings")]
mod objects;
mod processes;
mod readme;
mod round_trips;
mod send_sync;
mod sentinel;
mod setnx;
mod single;
#[cfg(all(feature = "__bindings", feature = "metrics-0_24", feature = "redis-1", feature = "testing"))]
mod surface;
#[cfg(feature = "testing")]
mod tls;
mod waiting;
