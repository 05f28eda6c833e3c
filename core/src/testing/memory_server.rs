//! A server in memory that does what a test says.
//!
//! Nothing here waits, so nothing can be interrupted. A forked child has servers of its own, all empty, as it has nodes
//! in memory of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::node::memory::MemoryNode;
use crate::process::Process;
use crate::protocol::name::{Name, WrongName};
use crate::protocol::request::{Action, Keys, Request};
use crate::protocol::token::Token;
use crate::sys::fork::{PerProcess, Pid};

/// The label of the owner who is not this program.
const SOMEBODY_ELSE: &str = "somebody else";

const A_DAY: Duration = Duration::from_secs(86_400);

/// A server inside this process that does what a test says. Each is new and empty, so tests that run side by side do
/// not meet. Its keys stay while it or a client of it exists.
///
/// Names here are whole keys: with the client's `key_prefix`, if it has one.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlock::testing::MemoryServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// let server = MemoryServer::new();
/// let redlock = redlock::Redlock::new(server.url())?;
/// server.hold("job", Some(Duration::from_secs(30)))?;
/// assert!(redlock.lock("job").try_acquire().await?.is_none());
///
/// // Its holder has crashed, and half a minute later the key expires.
/// server.advance(Duration::from_secs(30));
/// assert!(redlock.lock("job").try_acquire().await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryServer {
    name: String,
    url: String,
    local: PerProcess<Local>,
}

/// The part of a server that belongs to one process.
#[derive(Debug)]
struct Local {
    process: Arc<Process>,
    node: MemoryNode,
    /// That of somebody else.
    token: Token,
}

impl MemoryServer {
    /// Makes a new server, without keys. Sends nothing and cannot fail.
    #[must_use]
    pub fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("test-server-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let server = Self { url: format!("memory://{name}"), name, local: PerProcess::new() };
        server.local();
        server
    }

    /// Returns the address for a client, `memory://` and a name that no other server of this process has.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Has somebody else hold the lock `name` from now on, whoever held it before, until [`MemoryServer::release`] or
    /// for `ttl`; default a day.
    ///
    /// A lock of this program that held the name finds out at its next renewal, and is lost with the reason `taken`.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong name.
    pub fn hold(&self, name: impl AsRef<[u8]>, ttl: Option<Duration>) -> Result<(), Error> {
        let local = self.local();
        let ttl = ttl.unwrap_or(A_DAY);
        let proposal = local.process.clock.wall_micros();
        let (slack, fence_ttl) = (Duration::ZERO, ttl.saturating_mul(2).max(A_DAY));
        let action = Action::Acquire { ttl, proposal, slack, fence_ttl, label: SOMEBODY_ELSE.into(), wants: None };
        let request = local.request(name.as_ref(), action)?;
        local.execute(&request, true);
        Ok(())
    }

    /// Has somebody else release the lock `name`. Does nothing if they do not hold it.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong name.
    pub fn release(&self, name: impl AsRef<[u8]>) -> Result<(), Error> {
        let local = self.local();
        let request = local.request(name.as_ref(), Action::Release { asks: true, granted: None })?;
        local.execute(&request, false);
        Ok(())
    }

    /// Deletes every key, as a server does that restarts without persistence or is flushed.
    ///
    /// Held locks find out at their next renewal: they are put back, or lost with the reason `deleted`.
    pub fn wipe(&self) {
        self.local().node.wipe();
    }

    /// Sets whether the server does what it is asked. A new one does. While it refuses, calls fail with `unavailable`,
    /// and held locks are lost at the end of their ttl, with the reason `unreachable`.
    pub fn set_available(&self, available: bool) {
        self.local().node.set_available(available);
    }

    /// Returns whether the server does what it is asked.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.local().node.is_available()
    }

    /// Moves the server's clock forward, at most a century in all. Keys whose time comes expire, and who waits for them
    /// is told.
    ///
    /// The clock of this program stays as it is, so its held locks find out at their next renewal, as after a jump of a
    /// server's clock.
    pub fn advance(&self, by: Duration) {
        let local = self.local();
        local.node.advance(&local.process.clock, by);
    }

    fn local(&self) -> &Local {
        self.local.of(Pid::now(), || {
            let process = Process::current();
            Local { node: process.memory.named(&self.name), token: Token::fresh(&process.random), process }
        })
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl Local {
    fn request(&self, name: &[u8], action: Action) -> Result<Request, Error> {
        Ok(Request { keys: Keys::of(&Name::parse(name).map_err(WrongName::alone)?), token: self.token, action })
    }

    fn execute(&self, request: &Request, seize: bool) {
        let executed = self.node.execute(&self.process.clock, request, seize);
        executed.expect("a fence of the next centuries is within its limit");
    }
}
