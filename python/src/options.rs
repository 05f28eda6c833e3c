//! The options of a client and of a lock, from keyword arguments.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use redlock::bindings::options::Protocol;
use redlock::{Builder, Lock};

use crate::duration::duration;
use crate::error::{invalid, raised};
use crate::name::text;

enum Given {
    Ttl(Duration),
    Timeout(Duration),
    NoTimeout,
    AutoRenew(bool),
    MaxHold(Duration),
    NodeTimeout(Duration),
    RestartDelay(Duration),
    FenceTtl(Duration),
    Label(String),
    Protocol(Protocol),
}

/// Options that were given, each converted.
pub(crate) struct Options(Vec<Given>);

/// Builder and lock have the same setters, but no trait in common.
macro_rules! set {
    ($options:expr, $target:expr) => {
        $options.0.into_iter().fold($target, |target, option| match option {
            Given::Ttl(ttl) => target.ttl(ttl),
            Given::Timeout(timeout) => target.timeout(timeout),
            Given::NoTimeout => target.no_timeout(),
            Given::AutoRenew(auto_renew) => target.auto_renew(auto_renew),
            Given::MaxHold(max_hold) => target.max_hold(max_hold),
            Given::NodeTimeout(node_timeout) => target.node_timeout(node_timeout),
            Given::RestartDelay(restart_delay) => target.restart_delay(restart_delay),
            Given::FenceTtl(fence_ttl) => target.fence_ttl(fence_ttl),
            Given::Label(label) => target.label(label),
            Given::Protocol(protocol) => target.protocol(protocol),
        })
    };
}

impl Options {
    pub(crate) fn parse(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        given
            .into_iter()
            .flatten()
            .map(|(option, value)| parse(option.extract()?, &value))
            .collect::<PyResult<_>>()
            .map(Self)
    }

    /// Sets what a client was given: its own options, and the defaults of its locks.
    pub(crate) fn of_client(given: Option<&Bound<'_, PyDict>>, mut builder: Builder) -> PyResult<Builder> {
        let mut options = Self(Vec::new());
        for (option, value) in given.into_iter().flatten() {
            match option.extract()? {
                option @ "connect_timeout" => builder = builder.connect_timeout(duration(option, &value)?),
                option => options.0.push(parse(option, &value)?),
            }
        }
        Ok(set!(options, builder))
    }

    pub(crate) fn of_lock(self, lock: Lock) -> Lock {
        set!(self, lock)
    }
}

fn parse(option: &str, value: &Bound<'_, PyAny>) -> PyResult<Given> {
    Ok(match option {
        "ttl" => Given::Ttl(duration(option, value)?),
        "timeout" if value.is_none() => Given::NoTimeout,
        "timeout" => Given::Timeout(duration(option, value)?),
        "auto_renew" => Given::AutoRenew(flag(option, value)?),
        "max_hold" => Given::MaxHold(duration(option, value)?),
        "node_timeout" => Given::NodeTimeout(duration(option, value)?),
        "restart_delay" => Given::RestartDelay(duration(option, value)?),
        "fence_ttl" => Given::FenceTtl(duration(option, value)?),
        "label" => Given::Label(text(option, value, "a str")?),
        "protocol" => {
            let name = text(option, value, "a str")?;
            Given::Protocol(redlock::bindings::options::protocol(&name).map_err(|error| raised(value.py(), &error))?)
        }
        _ => return Err(raised(value.py(), &redlock::bindings::options::unknown(option))),
    })
}

fn flag(option: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true());
    }
    let class = value.get_type().qualname()?;
    Err(invalid(format!("{option} is of type {class}, but must be True or False")))
}
