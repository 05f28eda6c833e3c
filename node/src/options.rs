//! What a caller may set, in milliseconds. Types were checked in TypeScript; amounts are checked by the lock.

use std::time::Duration;

use napi::bindgen_prelude::{Either, Either3, Null, Undefined};
use napi_derive::napi;
use redlock::{Builder, Error, Lock};

/// Options of a client or a lock; what is left out was not said.
#[derive(Debug)]
#[napi(object, object_to_js = false)]
pub struct Options {
    /// Lease on the server.
    pub ttl: Option<f64>,
    /// Longest wait; null is for ever.
    pub timeout: Option<Either<f64, Null>>,
    /// Whether the background extends the lock.
    pub auto_renew: Option<bool>,
    /// Longest time the lock may be kept.
    pub max_hold: Option<f64>,
    /// Longest wait for one node's vote.
    pub node_timeout: Option<f64>,
    /// How long the grants of a restarted node do not count.
    pub restart_delay: Option<f64>,
    /// How long a node remembers a fence.
    pub fence_ttl: Option<f64>,
    /// The label that inspection shows.
    pub label: Option<String>,
    /// How the lock stands on its nodes.
    pub protocol: Option<String>,
    /// Longest time for one connection; of a client alone.
    pub connect_timeout: Option<f64>,
}

/// `Builder` and `Lock` have the same setters and no trait in common.
macro_rules! apply {
    ($options:expr, $to:expr) => {{
        let (options, mut to) = ($options, $to);
        if let Some(ttl) = millis("ttl", options.ttl)? {
            to = to.ttl(ttl);
        }
        match options.timeout {
            Some(Either::A(timeout)) => to = to.timeout(redlock::bindings::options::millis("timeout", timeout)?),
            Some(Either::B(Null)) => to = to.no_timeout(),
            None => {}
        }
        if let Some(auto_renew) = options.auto_renew {
            to = to.auto_renew(auto_renew);
        }
        if let Some(max_hold) = millis("max_hold", options.max_hold)? {
            to = to.max_hold(max_hold);
        }
        if let Some(node_timeout) = millis("node_timeout", options.node_timeout)? {
            to = to.node_timeout(node_timeout);
        }
        if let Some(restart_delay) = millis("restart_delay", options.restart_delay)? {
            to = to.restart_delay(restart_delay);
        }
        if let Some(fence_ttl) = millis("fence_ttl", options.fence_ttl)? {
            to = to.fence_ttl(fence_ttl);
        }
        if let Some(label) = options.label {
            to = to.label(label);
        }
        if let Some(protocol) = options.protocol {
            to = to.protocol(redlock::bindings::options::protocol(&protocol)?);
        }
        Ok(to)
    }};
}

impl Options {
    pub(crate) fn on_builder(self, builder: Builder) -> Result<Builder, Error> {
        let builder = match millis("connect_timeout", self.connect_timeout)? {
            Some(connect_timeout) => builder.connect_timeout(connect_timeout),
            None => builder,
        };
        apply!(self, builder)
    }

    pub(crate) fn on_lock(self, lock: Lock) -> Result<Lock, Error> {
        apply!(self, lock)
    }
}

pub(crate) fn millis(option: &str, amount: Option<f64>) -> Result<Option<Duration>, Error> {
    amount.map(|amount| redlock::bindings::options::millis(option, amount)).transpose()
}

/// The timeout of one call: undefined for the lock's own, a number of milliseconds, or null for ever. In this order: napi
/// writes a message for every type that a value is not, and mostly none is given.
#[napi]
pub type Timeout = Either3<Undefined, f64, Null>;

#[expect(clippy::option_option, reason = "what the lock takes: not said, for ever, or this long")]
pub(crate) fn timeout(given: Timeout) -> Result<Option<Option<Duration>>, Error> {
    Ok(match given {
        Either3::A(()) => None,
        Either3::B(amount) => Some(Some(redlock::bindings::options::millis("timeout", amount)?)),
        Either3::C(Null) => Some(None),
    })
}
