//! What the library has logged in this process, as a subscriber of `tracing` hears it.

use std::fmt;
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, registry};

static HEARD: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// All events since the last call.
pub(crate) fn heard() -> Vec<Value> {
    std::mem::take(&mut HEARD.lock().expect("no panic while it is held"))
}

/// Begins to listen.
pub(crate) fn listen() {
    let subscriber = registry().with(Listener);
    tracing::subscriber::set_global_default(subscriber).expect("this program has no other subscriber");
}

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
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
