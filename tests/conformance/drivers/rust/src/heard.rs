//! What the library has logged in this process, and its spans, as a subscriber of `tracing` hears of them.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};

static HEARD: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// The spans that have ended.
static SPANS: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// Whether spans are kept.
static TRACES: AtomicBool = AtomicBool::new(false);

/// All events since the last call.
pub(crate) fn heard() -> Vec<Value> {
    std::mem::take(&mut HEARD.lock().expect("no panic while it is held"))
}

/// All spans that have ended since the last call. The first one begins to keep them.
pub(crate) fn spans() -> Vec<Value> {
    TRACES.store(true, Ordering::Relaxed);
    std::mem::take(&mut SPANS.lock().expect("no panic while it is held"))
}

/// Begins to listen.
pub(crate) fn listen() {
    let subscriber = registry().with(Listener);
    tracing::subscriber::set_global_default(subscriber).expect("this program has no other subscriber");
}

struct Listener;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if TRACES.load(Ordering::Relaxed) && attributes.metadata().target().starts_with("redlock::") {
            let mut fields = Fields(Map::new());
            attributes.record(&mut fields);
            context.span(id).expect("it has begun").extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("it has not ended");
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it ends now");
        if let Some(Fields(attributes)) = span.extensions_mut().remove::<Fields>() {
            let parent = span.parent().map(|parent| parent.name());
            let span = json!({"name": span.name(), "parent": parent, "attributes": attributes});
            SPANS.lock().expect("no panic while it is held").push(span);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        if let (Some(answer), Some(span)) = (fields.0.remove("answer"), context.event_span(event))
            && let Some(Fields(attributes)) = span.extensions_mut().get_mut::<Fields>()
        {
            attributes.insert("answer".to_owned(), answer);
        }
        let (Some(topic), Some(code)) = (metadata.target().strip_prefix("redlock::"), fields.0.remove("code")) else {
            return;
        };
        let message = fields.0.remove("message");
        let level = metadata.level().as_str().to_lowercase();
        let event = json!({"code": code, "topic": topic, "level": level, "message": message, "fields": fields.0});
        HEARD.lock().expect("no panic while it is held").push(event);
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
