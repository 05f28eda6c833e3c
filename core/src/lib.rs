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
#![doc = include_str!("../docs/which-lock.md")]
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
#![doc = include_str!("../docs/command-line.md")]
//!
#![doc = include_str!("../docs/observing.md")]
//!
#![doc = include_str!("../docs/setnx.md")]
//!
#![doc = include_str!("../docs/comparison.md")]
//!
#![doc = include_str!("../docs/moving.md")]
//!
#![doc = include_str!("../docs/how-we-know.md")]
#![forbid(unsafe_code)]

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("redlock runs on Linux and macOS only; elsewhere, no clock that counts suspend is known to it");

mod acquire;
mod address;
mod api;
#[doc(hidden)]
pub mod bindings;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod credentials;
mod error;
mod event;
mod fault;
mod hold;
mod net;
mod options;
mod process;
mod protocol;
mod sys;
#[cfg(any(feature = "testing", feature = "simulation"))]
pub mod testing;

pub use api::blocking;
pub use api::client::{Builder, IntoNodes, Redlock};
pub use api::diagnose::Diagnosis;
pub use api::election::{Election, Leader};
pub use api::guard::Guard;
pub use api::inspect::{LockView, NodeState, NodeView};
pub use api::lock::Lock;
#[cfg(feature = "metrics")]
pub use api::publish::publish_metrics;
pub use api::setnx::{SetnxGuard, SetnxLock};
pub use api::shutdown::{shutdown, shutdown_async};
pub use api::stats::{Metric, MetricKind, Point, PointValue, Stats, count_by_name, stats};
pub use credentials::{Credentials, Login};
pub use error::{Error, ErrorKind, LostReason, NodeAnswer};
pub use protocol::diagnosis::{Finding, Level};
pub use protocol::quorum::LockState;
