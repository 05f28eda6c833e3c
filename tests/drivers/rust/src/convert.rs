//! Between JSON and the library's own types.

use std::time::Duration;

use redlock::{Error, LostReason, NodeState, NodeView, given};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

/// `CLOCK_MONOTONIC`, the clock that all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(Duration::from_secs(now.tv_sec.unsigned_abs()).as_nanos()).expect("the machine is young")
        + now.tv_nsec.unsigned_abs()
}

pub(crate) fn id(request: &Value, key: &str) -> u64 {
    request[key].as_u64().unwrap_or_default()
}

/// The addresses of nodes, unless they are left out.
pub(crate) fn nodes(request: &Value) -> Option<Vec<String>> {
    let nodes = request.get("nodes")?.as_array().into_iter().flatten();
    Some(nodes.filter_map(Value::as_str).map(String::from).collect())
}

/// A name, which travels as hex digits, or as text.
pub(crate) fn name(request: &Value) -> Vec<u8> {
    if let Some(text) = request["text"].as_str() {
        return text.into();
    }
    let hex = request["name"].as_str().unwrap_or_default().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    hex.chunks(2).map(|pair| byte(pair).expect("a name is hex digits")).collect()
}

pub(crate) fn options(request: &Value) -> &Map<String, Value> {
    request["options"].as_object().expect("the suite always sends options")
}

/// `key` in milliseconds, if it is there.
pub(crate) fn duration(request: &Value, key: &str) -> Result<Option<Duration>, Error> {
    request.get(key).map(|value| amount(key, value)).transpose()
}

/// Milliseconds, or the `Duration` itself, in the form that serde gives it.
pub(crate) fn amount(key: &str, value: &Value) -> Result<Duration, Error> {
    if value.is_object() {
        return Ok(serde_json::from_value(value.clone()).expect("this is a Duration"));
    }
    given::millis(key.trim_end_matches("_ms"), value.as_f64().unwrap_or(f64::NAN))
}

pub(crate) fn error(error: &Error) -> Value {
    json!({
        "code": error.code(),
        "name": error.name(),
        "reason": error.reason().map(LostReason::as_str),
        "nodes": error.nodes().iter().map(|vote| json!([vote.node, vote.answer])).collect::<Vec<_>>(),
        "message": error.to_string(),
        "retryable": error.kind().retryable(),
    })
}

pub(crate) fn views(views: &[NodeView]) -> Value {
    json!({"nodes": views.iter().map(view).collect::<Vec<_>>()})
}

fn view(view: &NodeView) -> Value {
    let ms = |left: &Option<Duration>| left.map(|left| left.as_secs_f64() * 1000.0);
    match &view.state {
        NodeState::Held { label, fence, ttl_left } => {
            json!({"node": view.node, "state": "held", "label": label, "fence": fence, "ttl_left_ms": ms(ttl_left)})
        }
        NodeState::Foreign { ttl_left } => {
            json!({"node": view.node, "state": "foreign", "ttl_left_ms": ms(ttl_left)})
        }
        NodeState::Free => json!({"node": view.node, "state": "free"}),
        _ => json!({"node": view.node, "state": "failed"}),
    }
}
