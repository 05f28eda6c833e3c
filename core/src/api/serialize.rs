//! The data types for serde: each field under its name, and what has a stable text as this text.
//!
//! Times are numbers of seconds, those of clocks since 1970, as they are in Python.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, SystemTimeError, UNIX_EPOCH};

use serde::ser::{Error as _, Serialize, SerializeStruct, Serializer};

use crate::api::diagnose::Diagnosis;
use crate::api::election::Leader;
use crate::api::inspect::{LockView, NodeView, StateValues};
use crate::api::openmetrics::le;
use crate::api::stats::{Metric, MetricKind, Point, PointValue, Stats};
use crate::error::{AnswerKind, ErrorKind, LostReason, NodeAnswer};
use crate::protocol::diagnosis::{Finding, Level};
use crate::protocol::quorum::LockState;

/// Writes values by their stable text.
macro_rules! texts {
    ($($type:ty),+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

/// Writes fields under their names.
macro_rules! fields {
    ($serializer:expr, $type:expr, $($name:ident: $value:expr),+) => {{
        let fields = [$(stringify!($name)),+].len();
        let mut writer = $serializer.serialize_struct($type, fields)?;
        $(writer.serialize_field(stringify!($name), &$value)?;)+
        writer.end()
    }};
}

/// Writes structs whose fields are all public: each as it is, or as what is said of it.
macro_rules! structs {
    ($($type:ident { $($field:ident $(: $value:expr)?),+ })+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($field),+ } = self;
                $($(let $field = $value;)?)+
                fields!(serializer, stringify!($type), $($field: $field),+)
            }
        }
    )+};
}

texts!(ErrorKind, Level, LockState, LostReason, MetricKind);

structs! {
    Diagnosis { node, findings }
    Finding { check, level, message }
    Leader { label, term }
    LockView {
        name, key, state, label, fence, since: since.map(since_1970).transpose().map_err(S::Error::custom)?,
        ttl_left: seconds(*ttl_left), holders, quorum, waiting, slot, readers, labels, nodes
    }
    Metric { name, kind, about, points }
    NodeAnswer { node, kind, answer }
    Point { labels: labels.iter().map(|(label, value)| (label, value)).collect::<BTreeMap<_, _>>(), value }
    Stats { metrics }
}

impl Serialize for AnswerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = |serializer: S, variant| serializer.serialize_str(variant);
        match self {
            Self::Done => unit(serializer, "done"),
            Self::Held => unit(serializer, "held"),
            Self::Free => unit(serializer, "free"),
            Self::Pending => unit(serializer, "pending"),
            Self::Unreachable => unit(serializer, "unreachable"),
            Self::Silent => unit(serializer, "silent"),
            Self::Uncounted => unit(serializer, "uncounted"),
            Self::Refused(code) => fields!(serializer, "AnswerKind", refused: code),
            Self::Forbidden(code) => fields!(serializer, "AnswerKind", forbidden: code),
            Self::Quarantined(left) => fields!(serializer, "AnswerKind", quarantined: left.as_secs_f64()),
        }
    }
}

/// The state's fields stand beside those of the node.
impl Serialize for NodeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (state, StateValues { label, fence, ttl_left, readers, labels, error }) = self.state.values();
        fields!(
            serializer,
            "NodeView",
            node: self.node,
            key: self.key,
            state: state,
            label: label,
            fence: fence,
            ttl_left: seconds(ttl_left),
            readers: readers,
            labels: labels,
            error: error
        )
    }
}

/// A number, or a histogram whose buckets are named as in the text of metrics.
impl Serialize for PointValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Histogram { count, sum, buckets } => {
                let buckets: Vec<_> = buckets.iter().map(|(end, inside)| (le(*end), inside)).collect();
                fields!(serializer, "PointValue", count: count, sum: sum, buckets: buckets)
            }
        }
    }
}

fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
}

fn since_1970(time: SystemTime) -> Result<f64, SystemTimeError> {
    time.duration_since(UNIX_EPOCH).map(|since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Error, Redlock};

    fn of(value: &impl Serialize) -> Value {
        serde_json::to_value(value).unwrap()
    }

    #[tokio::test]
    async fn a_view_has_the_state_of_each_node_beside_its_address() -> Result<(), Error> {
        let redlock = Redlock::builder().nodes("memory://serialize").label("worker").build()?;
        let guard = redlock.lock("job").acquire().await?;
        let view = of(&redlock.inspect("job").await?);
        assert_eq!((&view["name"], &view["state"], &view["holders"]), (&json!("job"), &json!("held"), &json!(1)));
        assert!(view["since"].as_f64() > Some(1e9) && view["ttl_left"].as_f64() < Some(10.0), "{view}");
        let node = &view["nodes"][0];
        assert_eq!((&node["node"], &node["state"]), (&json!("memory://serialize"), &json!("held")));
        assert_eq!((&node["label"], &node["fence"]), (&json!("worker"), &json!(guard.fence())));
        assert_eq!((&node["error"], &node["labels"]), (&Value::Null, &json!([])));

        let error = redlock.lock("job").timeout(Duration::ZERO).acquire().await.unwrap_err();
        let answer = json!({"node": "memory://serialize", "kind": "held", "answer": "held"});
        assert_eq!((of(&error.kind()), of(&error.nodes())), (json!("timeout"), json!([answer])));
        assert_eq!(of(&redlock.diagnose().await?)[0]["findings"][0]["level"], json!("ok"));
        Ok(())
    }

    #[test]
    fn an_answer_with_a_value_is_an_object() {
        assert_eq!(of(&AnswerKind::Refused("OOM".to_owned())), json!({"refused": "OOM"}));
        assert_eq!(of(&AnswerKind::Quarantined(Duration::from_millis(1_500))), json!({"quarantined": 1.5}));
    }

    #[test]
    fn the_last_bucket_has_no_end() {
        let point = PointValue::Histogram { count: 1, sum: 0.5, buckets: vec![(1.0, 1), (f64::INFINITY, 1)] };
        assert_eq!(of(&point), json!({"count": 1, "sum": 0.5, "buckets": [["1.0", 1], ["+Inf", 1]]}));
    }
}
