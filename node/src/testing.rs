//! What tests of programs with locks need.

use std::time::Duration;

use napi_derive::napi;
use redlock::bindings::options::Unit;
use redlock::testing;

use crate::client::{Name, bytes};
use crate::error::Failure;
use crate::lock::object;

/// A server inside this process that does what a test says.
#[derive(Debug, Default)]
#[napi]
pub struct TestServer(testing::MemoryServer);

#[napi]
impl TestServer {
    /// Makes a new server, without keys.
    #[napi(factory, catch_unwind)]
    pub fn start() -> Self {
        Self::default()
    }

    /// Returns its address.
    #[napi(catch_unwind)]
    pub fn url(&self) -> String {
        self.0.url().to_owned()
    }

    /// Has somebody else hold a name, for milliseconds or a day. Returns what was wrong with the arguments.
    #[napi(catch_unwind)]
    pub fn hold(&self, name: Name, ttl: Option<f64>) -> Option<Failure> {
        let ttl = ttl.map(|ttl| Unit::Millis.duration("ttl", ttl)).transpose();
        ttl.and_then(|ttl| self.0.hold(bytes(&name), ttl)).err().map(Failure::from)
    }

    /// Has somebody else release a name. Returns what was wrong with it.
    #[napi(catch_unwind)]
    pub fn release(&self, name: Name) -> Option<Failure> {
        self.0.release(bytes(&name)).err().map(Failure::from)
    }

    /// Deletes every key.
    #[napi(catch_unwind)]
    pub fn wipe(&self) {
        self.0.wipe();
    }

    /// Returns whether the server does what it is asked.
    #[napi(catch_unwind)]
    pub fn is_available(&self) -> bool {
        self.0.is_available()
    }

    /// Sets whether the server does what it is asked.
    #[napi(catch_unwind)]
    pub fn set_available(&self, available: bool) {
        self.0.set_available(available);
    }

    /// Moves the server's clock forward by milliseconds. Returns what was wrong with them.
    #[napi(catch_unwind)]
    pub fn advance(&self, by: f64) -> Option<Failure> {
        Unit::Millis.duration("by", by).map(|by: Duration| self.0.advance(by)).err().map(Failure::from)
    }
}

/// Has a lock lose what it holds. Returns why it does not hold it.
#[napi(catch_unwind)]
pub fn lose(queue: i64, lock: i64, reason: String) -> napi::Result<Option<Failure>> {
    Ok(object(queue, lock)?.lose(&reason).err().map(Failure::from))
}
