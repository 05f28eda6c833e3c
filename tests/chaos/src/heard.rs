//! What the library tells of itself: its events, as they come, and its metrics.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use redlock::{Point, PointValue};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::journal::now_ns;
use crate::worker::Worker;

/// Records what the library logs in this process.
pub(crate) struct Heard(pub(crate) Arc<Worker>);

impl<S: Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || !metadata.target().starts_with("redlock::") {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        self.0.journal.write(&json!({
            "event": "heard",
            "at_ns": now_ns(),
            "logger": metadata.target(),
            "level": metadata.level().as_str(),
            "code": text.code,
            "text": text.message + &text.fields,
        }));
    }
}

/// An event in text.
#[derive(Default)]
struct Text {
    code: String,
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "code" => self.code = value.into(),
            "message" => self.message = value.into(),
            name => self.fields.extend([" ", name, "=", value]),
        }
    }
}

/// Returns the metrics of this process: the labels and the number of each point. That of a histogram is its count.
pub(crate) fn totals() -> BTreeMap<&'static str, Value> {
    let number = |point: &Point| match &point.value {
        PointValue::Number(number) => json!(number),
        PointValue::Histogram { count, .. } => json!(count),
        other => panic!("a value without a number: {other:?}"),
    };
    let labels = |point: &Point| point.labels.iter().cloned().collect::<BTreeMap<_, _>>();
    let metrics = redlock::stats().metrics.into_iter();
    metrics
        .map(|metric| (metric.name, metric.points.iter().map(|point| json!([labels(point), number(point)])).collect()))
        .collect()
}
