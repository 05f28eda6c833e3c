//! Between JSON and the library's own types.

use std::time::{Duration, UNIX_EPOCH};

use redlock::bindings::options::{self, Scope, Unit};
use redlock::{Diagnosis, Error, Finding, Leader, LockView, LostReason, NodeState, NodeView, Point, PointValue, Stats};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A line of the suite; an op has some of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of some request")]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: String,
    pub(crate) client: u64,
    pub(crate) lock: u64,
    pub(crate) handle: u64,
    pub(crate) call: u64,
    pub(crate) election: u64,
    pub(crate) fail: bool,
    pub(crate) lingers: bool,
    pub(crate) detaches: bool,
    pub(crate) nodes: Option<Vec<String>>,
    pub(crate) options: Map<String, Value>,
    pub(crate) ttl_ms: Option<f64>,
    pub(crate) limit_ms: u64,
    pub(crate) most: usize,
    pub(crate) server: u64,
    pub(crate) action: String,
    pub(crate) available: bool,
    pub(crate) by_ms: f64,
    pub(crate) reason: String,
    name: String,
    names: Vec<String>,
    permits: Option<u32>,
    pub(crate) slot: Option<u32>,
    text: Option<String>,
    /// A timeout, if there is one.
    #[serde(flatten)]
    pub(crate) timeout: Map<String, Value>,
}

impl Request {
    /// The name, which travels as hex digits, or as text.
    pub(crate) fn name(&self) -> Vec<u8> {
        self.text.as_ref().map_or_else(|| unhex(&self.name), |text| text.clone().into())
    }

    /// The names.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.names.iter().map(|name| unhex(name)).collect()
    }

    /// The text of a detached lock.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// How many hold a semaphore at once.
    pub(crate) fn permits(&self) -> Result<u32, Failure> {
        self.permits.ok_or("a semaphore without permits does not compile".into())
    }
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(|pair| byte(pair).expect("a name is hex digits")).collect()
}

/// A name as hex digits.
pub(crate) fn hex(name: &[u8]) -> String {
    name.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
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
        "holder_label": error.holder_label(),
        "holder_ttl_left_ms": error.holder_ttl_left().map(|left| left.as_secs_f64() * 1_000.0),
        "held_by_this_process": error.is_held_by_this_process(),
        "message": error.to_string(),
        "retryable": error.kind().is_retryable(),
    })
}

pub(crate) fn viewed(view: &LockView) -> Value {
    let since = view.since.map(|since| since.duration_since(UNIX_EPOCH).expect("locks are younger than that"));
    json!({
        "name": view.name,
        "key": view.key,
        "slot": view.slot,
        "state": view.state.as_str(),
        "label": view.label,
        "fence": view.fence,
        "since_ms": since.map(ms),
        "ttl_left_ms": view.ttl_left.map(ms),
        "holders": view.holders,
        "quorum": view.quorum,
        "waiting": view.waiting,
        "nodes": view.nodes.iter().map(viewed_node).collect::<Vec<_>>(),
    })
}

fn viewed_node(view: &NodeView) -> Value {
    let (state, label, fence, left) = match &view.state {
        NodeState::Held { label, fence, ttl_left } => ("held", label.as_deref(), Some(fence), *ttl_left),
        NodeState::Foreign { ttl_left } => ("foreign", None, None, *ttl_left),
        NodeState::Free => ("free", None, None, None),
        _ => ("unavailable", None, None, None),
    };
    json!({"node": view.node, "key": view.key, "state": state, "label": label, "fence": fence, "ttl_left_ms": left.map(ms)})
}

pub(crate) fn leading(leader: Option<Leader>) -> Value {
    leader.map_or(Value::Null, |leader| json!({"label": leader.label, "term": leader.term}))
}

pub(crate) fn diagnosed(diagnosis: &Diagnosis) -> Value {
    let finding = |finding: &Finding| json!({"check": finding.check, "level": finding.level.as_str(), "message": finding.message});
    let findings: Vec<_> = diagnosis.findings.iter().map(finding).collect();
    json!({"node": diagnosis.node, "level": diagnosis.level().as_str(), "findings": findings})
}

/// The metrics by name. JSON has no infinity, so the last end of a histogram is null.
pub(crate) fn measured(stats: &Stats) -> Value {
    let point = |point: &Point| {
        let labels: Map<String, Value> =
            point.labels.iter().map(|(label, value)| ((*label).to_owned(), value.as_str().into())).collect();
        match &point.value {
            PointValue::Number(number) => json!({"labels": labels, "value": number}),
            PointValue::Histogram { count, sum, buckets, .. } => {
                let buckets: Vec<_> =
                    buckets.iter().map(|(end, inside)| (end.is_finite().then_some(end), inside)).collect();
                json!({"labels": labels, "count": count, "sum": sum, "buckets": buckets})
            }
            _ => Value::Null,
        }
    };
    let metrics: Map<String, Value> = stats
        .metrics
        .iter()
        .map(|metric| {
            let points: Vec<_> = metric.points.iter().map(point).collect();
            (metric.name.to_owned(), json!({"kind": metric.kind.as_str(), "about": metric.about, "points": points}))
        })
        .collect();
    json!({"metrics": metrics, "openmetrics": stats.to_openmetrics()})
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// `CLOCK_MONOTONIC`, the clock that all processes of a machine share.
pub(crate) fn now_ns() -> u128 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("the clock is not negative").as_nanos()
}
