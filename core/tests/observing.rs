//! What a program sees from outside: spans. Subscribers belong to the process.
#![allow(clippy::disallowed_methods, reason = "a test owns its time limits and its pauses")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::LIMIT;
use redlock::testing::MemoryServer;
use redlock::{ErrorKind, Redlock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Subscriber, info_span};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};

/// Waits until `state`, and lets other tasks run meanwhile.
async fn eventually(what: &str, mut state: impl FnMut() -> bool) {
    let all = async {
        while !state() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, all).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A layer that keeps what it was told of each span, as text.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Kept>>>);

#[derive(Clone, Debug, Default)]
struct Kept {
    id: u64,
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    answers: Vec<String>,
    is_closed: bool,
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().map(|parent| parent.name());
        let mut kept = Kept { id: id.into_u64(), name: span.name(), parent, ..Kept::default() };
        attributes.record(&mut Fields(&mut kept.fields));
        self.0.lock().unwrap().push(kept);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.with(id, |kept| values.record(&mut Fields(&mut kept.fields)));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        if let (Some(answer), Some(span)) = (fields.remove("answer"), context.event_span(event)) {
            self.with(&span.id(), |kept| kept.answers.push(answer));
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.with(&id, |kept| kept.is_closed = true);
    }
}

impl Spans {
    /// Changes the span with this id. A closed one may have had the same.
    fn with(&self, id: &Id, change: impl FnOnce(&mut Kept)) {
        let mut all = self.0.lock().unwrap();
        let kept = all.iter_mut().find(|kept| kept.id == id.into_u64() && !kept.is_closed);
        kept.map(change).unwrap();
    }

    /// The spans of a lock, in the order in which they began.
    fn named(&self, name: &str, lock: &str) -> Vec<Kept> {
        let kept = self.0.lock().unwrap();
        let is_meant = |kept: &&Kept| kept.name == name && kept.fields.get("name").is_some_and(|known| known == lock);
        kept.iter().filter(is_meant).cloned().collect()
    }
}

#[test]
fn an_acquire_and_a_hold_are_spans_of_the_caller() {
    harness::alone!();
    let spans = Spans::default();
    // If there is one subscriber alone, tracing asks the thread that comes first to a span, and that may be another test's.
    let _second = tracing::Dispatch::new(registry());
    tracing::subscriber::with_default(registry().with(spans.clone()), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(
            async {
                let server = MemoryServer::new();
                let redlock = Redlock::new(server.url()).unwrap();
                let guard = redlock.lock("traced").acquire().await.unwrap();
                let hold = spans.named("redlock.hold", "traced").remove(0);
                assert!(!hold.is_closed, "it is held");
                assert_eq!(hold.fields["fence"], guard.fence().to_string());
                assert!(redlock.lock("traced").try_acquire().await.unwrap().is_none());
                guard.release().await.unwrap();

                let guard = redlock.lock("traced to its loss").acquire().await.unwrap();
                server.wipe();
                assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);

                server.set_available(false);
                assert!(redlock.lock("traced").try_acquire().await.is_err());
                let lock = redlock.lock("traced");
                tokio::select! {
                    acquired = lock.acquire() => drop(acquired.unwrap()),
                    () = eventually("it waits", || spans.named("redlock.acquire", "traced").len() == 4) => {}
                }
                eventually("its span is closed", || spans.named("redlock.acquire", "traced")[3].is_closed).await;
            }
            .instrument(info_span!("caller")),
        );
    });
    let acquires = spans.named("redlock.acquire", "traced");
    let outcomes: Vec<_> = acquires.iter().map(|span| span.fields["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["acquired", "timeout", "unavailable", "cancelled"]);
    let [won, lost] = [&acquires[0], &acquires[1]];
    assert_eq!((won.parent, won.is_closed, lost.is_closed), (Some("caller"), true, true));
    assert_eq!((won.fields["contended"].as_str(), won.fields["waits"].as_str()), ("false", "0"));
    assert_eq!((lost.fields["contended"].as_str(), lost.fields["waits"].as_str()), ("true", "0"));
    let failed = &acquires[2].fields;
    assert_eq!((failed["contended"].as_str(), failed["waits"].as_str()), ("false", "0"));
    assert!(!acquires[3].fields.contains_key("contended") && !acquires[3].fields.contains_key("waits"));
    assert!(won.fields.contains_key("fence") && !lost.fields.contains_key("fence"));
    assert_eq!(won.answers, ["granted"]);
    assert!(lost.answers[0].starts_with("held by "), "{:?}", lost.answers);
    let hold = spans.named("redlock.hold", "traced").remove(0);
    assert_eq!((hold.parent, hold.is_closed, hold.fields["end"].as_str()), (Some("caller"), true, "released"));
    assert_eq!(spans.named("redlock.hold", "traced to its loss").remove(0).fields["end"], "lost");
}
