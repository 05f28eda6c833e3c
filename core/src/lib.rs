//! A distributed lock for Redis and Valkey, on one server or on a majority of independent servers (Redlock).
//!
//! Every acquire returns a *fencing token*, a number with which a database can refuse a holder that comes too late. A
//! background thread renews held locks. Programs in Python, Node.js and shell scripts use the same locks.
//!
//! ```sh
//! cargo add redlock-core
//! cargo add tokio --features macros,rt-multi-thread,time
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use redlock::{ErrorKind, Redlock};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), redlock::Error> {
//!     let redlock = Redlock::from_env()?; // REDLOCK_URLS, or redis://127.0.0.1:6379
//!
//!     // Waits until the lock is free. A guard that is dropped is released, too.
//!     let guard = redlock.lock("invoice:17").await?;
//!     println!("fencing token {}, held for {:?} unless it is renewed", guard.fence(), guard.remaining());
//!     guard.release().await?;
//!
//!     // Waits for at most 5 s. If the lock is lost, the body is dropped, and `run` fails with `lost`.
//!     let report = redlock.lock("report").timeout(Duration::from_secs(5));
//!     match report.run(async |guard| guard.fence()).await {
//!         Ok(fence) => println!("done, with fencing token {fence}"),
//!         Err(error) if error.kind() == ErrorKind::Timeout => println!("others hold it: {error}"),
//!         Err(error) => return Err(error),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Map of types
//!
//! | you want | take |
//! | --- | --- |
//! | a client for one server, several, Sentinel or a cluster | [`Redlock`]; [`Builder`] for options that only clients have |
//! | one holder at a time | [`Redlock::lock`] makes a [`Lock`], whose acquire returns a [`Guard`] |
//! | many readers | [`Lock::shared`] |
//! | several names, all or none | [`Redlock::lock_all`] |
//! | at most N holders | [`Redlock::semaphore`], and [`Guard::slot`] |
//! | a leader | [`Redlock::election`] makes an [`Election`] |
//! | the same without async | [`blocking::Redlock`] |
//! | to share a key with old SETNX code | [`Redlock::setnx_lock`] |
//! | to see who holds a lock | [`Redlock::inspect`] returns a [`LockView`] |
//! | to check servers before they are used | [`Redlock::diagnose`] returns a [`Diagnosis`] |
//! | short-lived logins, such as IAM tokens | [`Credentials`] |
//! | metrics | [`stats`] |
//! | to end a program | [`shutdown`], [`shutdown_async`] |
//!
//! Every error is an [`Error`] with an [`ErrorKind`]. Options are methods of [`Lock`], and of [`Builder`] for the locks of
//! a client: [`Lock::ttl`] is how long a crashed holder blocks others, [`Lock::timeout`] how long acquire waits, and
//! [`Lock::max_hold`] ends work that hangs. [All options][options] are a table.
//!
//! # What it promises
//!
//! - **Fencing.** Each acquire of a name returns a larger fence than every earlier one, as long as servers keep their
//!   data.
//! - **Exclusion.** A lock has at most one holder at a time, as long as clocks run at nearly the same rate and servers
//!   keep their data.
//! - **Liveness.** A crashed holder blocks others for at most one ttl, or for its `at_least` if that is longer. A minority
//!   of servers that is down or hangs delays no call by more than the first timeout.
//! - **Truth.** A lock is never reported as held after the end of its lease. A local timer reports the loss at that
//!   moment, without waiting for a server.
//!
//! [The whole promise][promise] has the conditions.
//!
//! # Cancel safety
//!
//! Every future of this crate can be dropped. A dropped acquire leaves no key behind. A dropped [`Guard`] is released by
//! the background thread. A dropped release continues in the background. A dropped extension leaves the lock valid for at
//! least as long as before. A program that ends right after such a drop
//! calls [`shutdown`] first.
//!
//! # Features
//!
//! By default `tls`, `cluster`, `sentinel` and `memory`, for the addresses that need them, and `blocking`. Without one of
//! them, its addresses are refused by its name. Others:
//!
//! - `tls-aws-lc`: TLS with AWS-LC instead of ring, for FIPS: with `rustls/fips`, its validated module.
//! - `testing`: servers in memory that do what a test says, and locks that are lost on demand.
//! - `redis-1`: the address of a node from a `redis::ConnectionInfo`.
//! - `serde`: views, findings, answers and metrics can be serialized.
//! - `metrics-0_24`: `publish_metrics`, for programs that export through the crate `metrics`.
//!
//! The program `redlock` is a crate of its own, `redlock-cli`.
//!
//! # Read on
//!
//! The guide of this documentation: [which lock do I need?][which], [using the fence][fence], [errors][errors],
//! [processes and signals][processes], [logs and metrics][observing], [waiting][waiting], [the protocol][protocol] and
//! [moving from another lock][moving]. [The site](https://redlock-rs.github.io/redlock/latest/) has the rest, among it
//! [is Redlock safe?][safe] and the tests behind each promise.
//!
//! [promise]: guide::promise
//! [which]: guide::which_lock
//! [fence]: guide::fence
//! [errors]: guide::errors
//! [processes]: guide::processes
//! [observing]: guide::observing
//! [waiting]: guide::waiting
//! [protocol]: guide::protocol
//! [moving]: guide::moving
//! [options]: https://redlock-rs.github.io/redlock/latest/reference/options/
//! [safe]: https://redlock-rs.github.io/redlock/latest/concepts/is-redlock-safe/
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "__tls",
        feature = "cluster",
        feature = "sentinel",
        feature = "memory",
        feature = "blocking",
        feature = "__bindings",
        feature = "__simulation"
    )),
    allow(
        dead_code,
        unreachable_code,
        unreachable_pub,
        unused_imports,
        unused_variables,
        reason = "what only one feature calls stands beside what it calls, and all are built together in tests"
    )
)]
#![forbid(unsafe_code)]

// Five files to read first: acquire/mod.rs, acquire/attempt.rs, protocol/quorum.rs, net/round.rs and hold/lease.rs.
// docs/architecture.md is the map of all others.

mod acquire;
mod address;
mod api;
#[cfg(feature = "__bindings")]
#[doc(hidden)]
pub mod bindings;
mod credentials;
mod error;
mod event;
mod hold;
mod net;
mod node;
mod options;
mod process;
mod protocol;
mod sys;
#[cfg(feature = "testing")]
pub mod testing;
mod texts;
mod transport;

#[cfg(feature = "blocking")]
pub use api::blocking;
pub use api::client::{Builder, IntoNodes, Redlock};
pub use api::diagnose::Diagnosis;
pub use api::election::{Election, Leader};
pub use api::guard::{DetachedLock, Guard};
pub use api::inspect::{LockView, NodeState, NodeView};
pub use api::listing::LockListing;
pub use api::lock::{Fixed, Lock, Named};
#[cfg(feature = "metrics-0_24")]
pub use api::publish::publish_metrics;
#[cfg(feature = "redis-1")]
pub use api::redis_1::NodeAddress;
pub use api::setnx::{SetnxGuard, SetnxLock};
pub use api::shutdown::{shutdown, shutdown_async};
pub use api::stats::{Metric, MetricKind, Point, PointValue, Stats, count_by_name, stats};
pub use credentials::{Credentials, Login};
pub use error::{AnswerKind, Error, ErrorKind, LostReason, NodeAnswer};
pub use protocol::diagnosis::{Finding, Level};
pub use protocol::quorum::LockState;

/// Pages about more than one type. The [site](https://redlock-rs.github.io/redlock/latest/) has them too, and others.
#[cfg(any(doc, doctest))]
pub mod guide {
    #[doc = include_str!("../docs/promise.md")]
    pub mod promise {}
    #[doc = include_str!("../docs/which-lock.md")]
    pub mod which_lock {}
    #[doc = include_str!("../docs/fence.md")]
    pub mod fence {}
    #[doc = include_str!("../docs/errors.md")]
    pub mod errors {}
    #[doc = include_str!("../docs/processes.md")]
    pub mod processes {}
    #[doc = include_str!("../docs/observing.md")]
    pub mod observing {}
    #[doc = include_str!("../docs/waiting.md")]
    pub mod waiting {}
    #[doc = include_str!("../docs/protocol.md")]
    pub mod protocol {}
    #[doc = include_str!("../docs/setnx.md")]
    pub mod setnx {}
    #[doc = include_str!("../docs/moving.md")]
    pub mod moving {}
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
