//! What tests of programs with locks need.

use pyo3::prelude::*;
use redlock::testing;

use crate::convert::{self, Name, duration};
use crate::error::Raised;
use crate::lock::Handle;

/// A server inside this process that does what a test says. Each is new and empty, so tests do not meet.
///
/// Its keys stay while it or a client of it exists. Names here are whole keys, with the client's `key_prefix` if it has
/// one.
///
/// >>> import redlock
/// >>> from redlock.testing import MemoryServer
/// >>> server = MemoryServer()
/// >>> lock = redlock.Redlock(server.url).lock("job", timeout=0)
/// >>> server.hold("job", ttl=30)
/// >>> lock.acquire()
/// False
/// >>> server.advance(30)
/// >>> lock.acquire()
/// True
#[pyclass(frozen, module = "redlock.testing")]
#[derive(Debug)]
pub(crate) struct MemoryServer(testing::MemoryServer);

#[pymethods]
#[expect(clippy::needless_pass_by_value, reason = "an argument is converted to a value")]
impl MemoryServer {
    #[new]
    fn new() -> Self {
        Self(testing::MemoryServer::new())
    }

    /// The address for a client: `memory://` and a name that no other server of this process has.
    #[getter]
    fn url(&self) -> &str {
        self.0.url()
    }

    /// Whether the server does what it is asked; `True` at first.
    ///
    /// While it is `False`, calls raise `LockUnavailable`, and held locks are lost at the end of their ttl.
    #[getter]
    fn available(&self) -> bool {
        self.0.is_available()
    }

    #[setter]
    fn set_available(&self, available: bool) {
        self.0.set_available(available);
    }

    /// Have somebody else hold the lock `name` from now on, whoever held it before.
    ///
    /// They hold it until `release`, or for `ttl` seconds; by default a day. A lock of this program that held the name
    /// finds out at its next renewal, and is lost with the reason `taken`.
    ///
    /// Raises `LockInvalidArgument` for a wrong name or ttl.
    #[pyo3(signature = (name, ttl = None))]
    fn hold(&self, name: Name, ttl: Option<Bound<'_, PyAny>>) -> Result<(), Raised> {
        let ttl = convert::ttl(ttl)?;
        Ok(self.0.hold(&name.bytes, ttl)?)
    }

    /// Have somebody else release the lock `name`; nothing, if they do not hold it.
    ///
    /// Raises `LockInvalidArgument` for a wrong name.
    fn release(&self, name: Name) -> Result<(), Raised> {
        Ok(self.0.release(&name.bytes)?)
    }

    /// Delete every key, as a server does that restarts without persistence or is flushed.
    ///
    /// Held locks find out at their next renewal: they are put back, or lost with the reason `deleted`.
    fn wipe(&self) {
        self.0.wipe();
    }

    /// Move the server's clock forward by seconds or a `timedelta`, at most a century in all.
    ///
    /// Keys whose time comes expire. The clock of this program stays, so its held locks find out at their next renewal.
    ///
    /// Raises `LockInvalidArgument` for a wrong duration.
    fn advance(&self, by: Bound<'_, PyAny>) -> Result<(), Raised> {
        self.0.advance(duration("by", &by)?);
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<redlock.testing.MemoryServer {}>", self.0.url())
    }
}

/// Have `lock` lose what it holds now, as if the background had found out: in a block, a callback, everywhere.
///
/// `reason` is one of `LostReason`. The keys are deleted in the background. A lock that is lost already stays as it is.
///
/// Raises `LockNotHeld` before an acquire and after a release, and `LockInvalidArgument` for an unknown reason.
///
/// >>> import redlock
/// >>> from redlock.testing import lose
/// >>> lock = redlock.Redlock("memory://lose").lock("job")
/// >>> lock.acquire()
/// True
/// >>> lose(lock, "taken")
/// >>> lock.held
/// False
#[pyfunction]
#[pyo3(signature = (lock, reason = "expired"))]
pub(crate) fn lose(lock: &Bound<'_, Handle>, reason: &str) -> Result<(), Raised> {
    Ok(lock.get().object.lose(reason)?)
}
