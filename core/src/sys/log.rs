//! Log events and spans, through `tracing`.
//!
//! A subscriber is the program's code: it may block or panic. So an event is emitted after the change that it
//! describes, outside of every lock, and a panic in a subscriber ends there. The same holds for spans, which are made,
//! changed and dropped outside of every lock. The background does not call a subscriber at all; see
//! [`log_queue`](crate::sys::log_queue).

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, Value};

use crate::event::Topic;
use crate::sys::log_queue::{is_queued, shielded, tell, tell_of_span};

/// Emits an event of the table: `log!(LOCK_LOST, name = %name, reason = %reason, "message")`, with the fields that it
/// has there. Never while a lock is held.
macro_rules! log {
    (@text $field:ident) => { ::std::string::ToString::to_string(&$field) };
    (@text $field:ident, $value:expr) => { ::std::string::ToString::to_string(&$value) };
    ($event:ident, $($(%)? $field:ident $(= %$value:expr)?,)* $message:literal $(,)?) => {
        if $crate::sys::log_queue::is_heard(&$crate::event::$event) {
            // Another thread may emit it.
            let values = ::std::vec![$($crate::sys::log::log!(@text $field $(, $value)?),)* ::std::format!($message)];
            $crate::sys::log_queue::tell_values(&$crate::event::$event, values, |values| {
                let [$($field,)* message] = values else { return };
                ::tracing::event!(
                    name: $crate::event::$event.code,
                    target: $crate::event::$event.topic.target(),
                    $crate::event::$event.level,
                    code = $crate::event::$event.code,
                    $($field = %$field,)*
                    "{message}"
                );
            });
        }
    };
}

pub(crate) use log;

/// Makes a span of the current one: `span!("redlock.hold", name = %name)`. Never while a lock is held, and not in the
/// background, which belongs to no span: there it makes none.
macro_rules! span {
    ($name:literal, $($fields:tt)+) => {
        $crate::sys::log::OpenSpan::new(|| {
            ::tracing::span!(
                target: $crate::event::Topic::Lock.target(),
                ::tracing::Level::INFO,
                $name,
                $($fields)+
            )
        })
    };
}

pub(crate) use span;

/// A span, or nothing if no subscriber wants it. Shared, because a subscriber hears of each copy of a span itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenSpan(Option<Arc<Span>>);

impl OpenSpan {
    pub(crate) fn new(make: impl FnOnce() -> Span) -> Self {
        if is_queued() {
            return Self::default();
        }
        let span = catch_unwind(AssertUnwindSafe(make)).ok();
        Self(span.filter(|span| !span.is_disabled()).map(Arc::new))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Sets a field that the span was made with.
    pub(crate) fn record(&self, field: &'static str, value: impl Value + Send + 'static) {
        if let Some(span) = self.0.clone() {
            tell_of_span(about(span, move |span| {
                span.record(field, value);
            }));
        }
    }

    /// Emits a node's answer within the span.
    pub(crate) fn answered(&self, node: &dyn Display, answer: &dyn Display) {
        if let Some(span) = self.0.clone().filter(|_| Level::DEBUG <= LevelFilter::current()) {
            let (node, answer) = (node.to_string(), answer.to_string());
            tell(about(span, move |span| {
                ::tracing::event!(
                    target: Topic::Lock.target(),
                    parent: span,
                    Level::DEBUG,
                    node = %node,
                    answer = %answer,
                    "node answered"
                );
            }));
        }
    }
}

/// Returns an entry that tells something of a span. The span may end with it, and the subscriber is told of that apart: a
/// panic during another one would abort the process.
fn about(span: Arc<Span>, tells: impl FnOnce(&Span) + Send + 'static) -> impl FnOnce() + Send + 'static {
    move || shielded(|| tells(&span))
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(span) = self.0.take().and_then(Arc::into_inner) {
            tell_of_span(move || drop(span));
        }
    }
}

/// Hears what a test logs.
#[cfg(test)]
pub(crate) mod heard {
    use std::io;
    use std::sync::Arc;

    use tracing::Dispatch;

    use crate::sys::mutex::Mutex;

    /// The text of a log.
    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Text {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs `work` and returns also the text of all that its thread logs meanwhile.
    pub(crate) fn text<T>(work: impl FnOnce() -> T) -> (T, String) {
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        let output = by(subscriber.with_writer(move || writer.clone()).finish(), work);
        let text = text.0.lock();
        (output, String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs `work`, whose thread logs to `subscriber` meanwhile.
    pub(crate) fn by<T>(subscriber: impl Into<Dispatch>, work: impl FnOnce() -> T) -> T {
        // If there is one subscriber alone, tracing asks the thread that comes first to an event whether it is wanted,
        // and that may be another test's.
        let _second = Dispatch::new(tracing_subscriber::registry());
        tracing::dispatcher::with_default(&subscriber.into(), work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use harness::LIMIT;
    use tracing::span::{Id, Record};
    use tracing::{Event, Subscriber, field};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;
    use crate::sys::log_queue;

    /// Panics whatever it is told.
    struct Panics;

    impl<S: Subscriber> Layer<S> for Panics {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            panic!("on purpose");
        }

        fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {
            panic!("on purpose");
        }

        fn on_close(&self, _: Id, _: Context<'_, S>) {
            panic!("on purpose");
        }
    }

    /// Sets a field at its end.
    struct Recorded(OpenSpan);

    impl Drop for Recorded {
        fn drop(&mut self) {
            self.0.record("outcome", "cancelled");
        }
    }

    #[test]
    fn a_subscriber_that_panics_at_an_event_and_at_the_end_of_its_span_costs_nothing_else() {
        harness::alone!();
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Panics)).unwrap();
        let [dropped, answered, recorded] = [(); 3].map(|()| span!("redlock.acquire", outcome = field::Empty));
        let unwound = thread::spawn(move || {
            let _ended = Recorded(dropped);
            panic!("on purpose");
        });
        assert!(unwound.join().is_err());
        let ((end, ended), (tells, told)) = (channel::<()>(), channel());
        let background = thread::spawn(move || {
            log_queue::begin();
            // What is queued behind this has the last of each span.
            tell(move || ended.recv().unwrap());
            answered.answered(&"node", &"granted");
            drop(answered);
            drop(Recorded(recorded));
            tell(move || tells.send(()).unwrap());
        });
        background.join().unwrap();
        end.send(()).unwrap();
        told.recv_timeout(LIMIT).unwrap();
    }
}
