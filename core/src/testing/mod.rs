//! What tests of a program with locks need, without a server. Only with the feature `testing`.
//!
//! A [`MemoryServer`] stands for a server, and does on demand what is hard to have done by a real one. A guard loses its
//! lock on demand: see `Guard::lose`. In `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! redlock = { package = "redlock-core", version = "0.1", features = ["testing"] }
//! ```
//!
//! ```
//! use redlock::testing::MemoryServer;
//! use redlock::{LostReason, Redlock};
//!
//! /// The code under test: a job that runs on one server only.
//! async fn nightly(redlock: &Redlock) -> Result<Option<&'static str>, redlock::Error> {
//!     let Some(guard) = redlock.lock("cron:nightly").try_acquire().await? else { return Ok(None) };
//!     // The work: a loss ends it.
//!     tokio::select! {
//!         error = guard.lost() => return Err(error),
//!         () = tokio::task::yield_now() => {}
//!     }
//!     guard.release().await?;
//!     Ok(Some("done"))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), redlock::Error> {
//!     let server = MemoryServer::new();
//!     let redlock = Redlock::new(server.url())?;
//!     assert_eq!(nightly(&redlock).await?, Some("done"));
//!
//!     server.hold("cron:nightly", None)?;
//!     assert_eq!(nightly(&redlock).await?, None, "another server runs it");
//!     server.release("cron:nightly")?;
//!
//!     server.set_available(false);
//!     assert!(nightly(&redlock).await.is_err());
//!     server.set_available(true);
//!
//!     let guard = redlock.lock("cron:nightly").await?;
//!     guard.lose(LostReason::Taken);
//!     assert_eq!(guard.check().unwrap_err().reason(), Some(LostReason::Taken));
//!     Ok(())
//! }
//! ```
//!
//! May import everything.

mod memory_server;
#[cfg(feature = "__simulation")]
#[doc(hidden)]
#[path = "../../../tests/model/transitions.rs"]
pub mod model;
#[cfg(feature = "__simulation")]
#[doc(hidden)]
#[path = "../../../tests/simulation/world/mod.rs"]
pub mod simulation;

pub use memory_server::MemoryServer;
