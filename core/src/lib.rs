//! A distributed lock for Redis and Valkey, on one node or on a quorum of independent nodes (Redlock).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), redlock::Error> {
//! # let redlock = redlock::Redlock::new("memory://crate")?;
//! let guard = redlock.lock("foo").await?;
//! // work; send guard.fence() along
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
#![doc = include_str!("../docs/promise.md")]
//!
#![doc = include_str!("../docs/flow.md")]
//!
#![doc = include_str!("../docs/protocol.md")]
//!
#![doc = include_str!("../docs/waiting.md")]
//!
#![doc = include_str!("../docs/compatibility.md")]
//!
#![doc = include_str!("../docs/processes.md")]
//!
#![doc = include_str!("../docs/moving.md")]
//!
#![doc = include_str!("../docs/how-we-know.md")]
#![forbid(unsafe_code)]

mod address;
mod attempt;
mod background;
mod backoff;
pub mod blocking;
mod cleanup;
mod client;
mod clock;
mod deadline;
mod error;
mod extend;
mod farewell;
mod fault;
mod footprint;
mod gate;
#[doc(hidden)]
pub mod given;
mod guard;
mod held;
#[doc(hidden)]
pub mod holder;
mod inspect;
mod lane;
mod line;
mod lock;
mod log;
mod lookout;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod model;
mod name;
mod node;
mod options;
mod outage;
mod owed;
mod pool;
mod process;
#[doc(hidden)]
pub mod queue;
mod quorum;
mod random;
mod release;
mod renew;
mod restore;
mod round;
mod script;
mod setnx;
mod setnx_lock;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod spawn;
mod token;
mod wait;
mod watch;

pub use client::{Builder, IntoNodes, Redlock};
pub use error::{Error, ErrorKind, LostReason, NodeAnswer};
pub use farewell::farewell;
pub use guard::Guard;
pub use inspect::{NodeState, NodeView};
pub use lock::Lock;
pub use setnx_lock::{SetnxGuard, SetnxLock};
