//! Between JSON and the library's own types.

use std::time::Duration;

use redlock::bindings::options::{self, Scope, Unit};
use redlock::{Diagnosis, Error, Finding, LostReason, NodeState, NodeView};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A line of the suite; an op has some of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: String,
    pub(crate) client: u64,
    pub(crate) lock: u64,
    pub(crate) call: u64,
    pub(crate) nodes: Option<Vec<String>>,
    pub(crate) options: Map<String, Value>,
    pub(crate) ttl_ms: Option<f64>,
    pub(crate) limit_ms: u64,
    pub(crate) server: u64,
    pub(crate) action: String,
    pub(crate) available: bool,
    pub(crate) by_ms: f64,
    pub(crate) reason: String,
    name: String,
    text: Option<String>,
    /// A timeout, if there is one.
    #[serde(flatten)]
    pub(crate) timeout: Map<String, Value>,
}

impl Request {
    /// The name, which travels as hex digits, or as text.
    pub(crate) fn name(&self) -> Vec<u8> {
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let bytes = || self.name.as_bytes().chunks(2).map(|pair| byte(pair).expect("a name is hex digits"));
        self.text.as_ref().map_or_else(|| bytes().collect(), |text| text.clone().into())
    }
}

/// Milliseconds, or the `Duration` itself, in the form that serde gives it.
pub(crate) fn duration(option: &str, value: &Value) -> Result<Duration, Error> {
    let option = options::find(option.trim_end_matches("_ms"), Scope::Client)?.name;
    Duration::deserialize(value).or_else(|_| Unit::Millis.duration(option, value.as_f64().unwrap_or(f64::NAN)))
}

/// An error as the suite reads it.
pub(crate) struct Failure(pub(crate) Value);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(described(&error))
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self(json!({"code": "driver", "message": message}))
    }
}

pub(crate) fn described(error: &Error) -> Value {
    json!({
        "code": error.code(),
        "name": error.name(),
        "reason": error.reason().map(LostReason::as_str),
        "option": error.option(),
        "nodes": error.nodes().iter().map(|vote| (&vote.node, &vote.answer)).collect::<Vec<_>>(),
        "message": error.to_string(),
        "retryable": error.kind().is_retryable(),
    })
}

pub(crate) fn viewed(view: &NodeView) -> Value {
    let (state, label, fence, left) = match &view.state {
        NodeState::Held { label, fence, ttl_left } => ("held", label.as_deref(), Some(fence), *ttl_left),
        NodeState::Foreign { ttl_left } => ("foreign", None, None, *ttl_left),
        NodeState::Free => ("free", None, None, None),
        _ => ("unavailable", None, None, None),
    };
    json!({"node": view.node, "key": view.key, "state": state, "label": label, "fence": fence, "ttl_left_ms": left.map(ms)})
}

pub(crate) fn diagnosed(diagnosis: &Diagnosis) -> Value {
    let finding = |finding: &Finding| json!({"check": finding.check, "level": finding.level.as_str(), "message": finding.message});
    let findings: Vec<_> = diagnosis.findings.iter().map(finding).collect();
    json!({"node": diagnosis.node, "level": diagnosis.level().as_str(), "findings": findings})
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// `CLOCK_MONOTONIC`, the clock that all processes of a machine share.
pub(crate) fn now_ns() -> u128 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("the clock is not negative").as_nanos()
}
