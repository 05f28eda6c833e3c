//! The events of the engine, for the channels of an environment.
//!
//! Each environment has one listener, however many queues it has: a test runner that loads the package again makes
//! another queue, and each event is still published once. The listener lives as long as one of the queues. An event wakes
//! the queue that was made last, and whichever queue is drained next takes the events.
//!
//! The background adds an event and wakes an event loop, and never touches JavaScript.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{self, Arc};
use std::time::UNIX_EPOCH;

use napi_derive::napi;
use redlock::bindings::Mutex;
use redlock::bindings::events::{Events, Record};

use crate::convert::{ms, number};
use crate::wake::Wake;

/// How many warnings are given in one process. A program that makes up addresses without end gets no more of them.
const MOST_WARNINGS: usize = 1_024;

thread_local! {
    static LISTENER: RefCell<Weak<Listener>> = const { RefCell::new(Weak::new()) };
}

/// The listener of one environment.
#[derive(Debug)]
pub(crate) struct Listener {
    events: Events,
    notifier: Arc<Notifier>,
}

/// Wakes the environment, from any thread.
#[derive(Debug, Default)]
struct Notifier {
    /// Whether there may be events to take.
    has_events: AtomicBool,
    queues: Mutex<Vec<sync::Weak<Wake>>>,
}

impl Listener {
    /// Returns the listener of this environment, which wakes the queue of `wake` from now on.
    pub(crate) fn join(wake: &Arc<Wake>) -> Rc<Self> {
        let listener = LISTENER.with_borrow_mut(|current| {
            current.upgrade().unwrap_or_else(|| {
                let listener = Rc::new(Self::new());
                *current = Rc::downgrade(&listener);
                listener
            })
        });
        listener.notifier.add(wake);
        listener
    }

    fn new() -> Self {
        let notifier = Arc::<Notifier>::default();
        let shared = Arc::clone(&notifier);
        Self { events: Events::listen(move || shared.notify()), notifier }
    }

    /// Whether there may be events to take.
    pub(crate) fn has_events(&self) -> bool {
        self.notifier.has_events.load(Ordering::Acquire)
    }

    /// Takes the events. Leaves out those that neither are about one of `topics` nor warn.
    pub(crate) fn take(&self, topics: &[String]) -> NativeEvents {
        // A record that is added between these two steps causes one wake-up too many. In the other order, it would cause
        // none.
        self.notifier.has_events.store(false, Ordering::Release);
        let (records, lost) = self.events.take();
        let events = records.iter().filter_map(|record| NativeEvent::of(record, topics)).collect();
        NativeEvents { events, lost: number(lost) }
    }
}

impl Notifier {
    fn add(&self, wake: &Arc<Wake>) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(wake));
        drop(queues);
        // The queue that was woken for them may have been collected as garbage since.
        if self.has_events.load(Ordering::Acquire) {
            wake.call();
        }
    }

    fn notify(&self) {
        self.has_events.store(true, Ordering::Release);
        let last = self.queues.lock().iter().rev().find_map(sync::Weak::upgrade);
        if let Some(wake) = last {
            wake.call();
        }
    }
}

/// The events that were taken.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NativeEvents {
    /// The events, the oldest first.
    pub events: Vec<NativeEvent>,
    /// How many were lost before the first of them.
    pub lost: i64,
}

/// One event.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NativeEvent {
    /// The stable name.
    pub code: &'static str,
    /// The topic.
    #[napi(ts_type = "'node' | 'lock' | 'process'")]
    pub topic: &'static str,
    /// How serious it is.
    #[napi(ts_type = "'debug' | 'info' | 'warn' | 'error'")]
    pub level: String,
    /// When it happened, in milliseconds since 1970.
    pub at: f64,
    /// What happened, and what the engine does now.
    pub message: String,
    /// The facts.
    pub fields: BTreeMap<&'static str, String>,
    /// Whether this environment is to warn of it.
    pub warns: bool,
}

impl NativeEvent {
    /// Converts a record that is about one of `topics`, or that this environment is to warn of.
    fn of(record: &Record, topics: &[String]) -> Option<Self> {
        let (event, warns) = (record.event, record.claims() && is_first(record));
        let topic = event.topic.as_str();
        if !warns && !topics.iter().any(|asked| asked == topic) {
            return None;
        }
        Some(Self {
            code: event.code,
            topic,
            level: event.level.as_str().to_ascii_lowercase(),
            at: record.at.duration_since(UNIX_EPOCH).map_or(0.0, ms),
            message: record.message.clone(),
            fields: record.fields.iter().cloned().collect(),
            warns,
        })
    }
}

/// Whether the process has not warned yet of this, at this node or lock. Some events come again with each try.
fn is_first(record: &Record) -> bool {
    static WARNED: Mutex<BTreeSet<(&'static str, String)>> = Mutex::new(BTreeSet::new());
    let about =
        record.fields.iter().find(|(field, _)| matches!(*field, "node" | "name")).map(|(_, about)| about.clone());
    let mut warned = WARNED.lock();
    warned.len() < MOST_WARNINGS && warned.insert((record.event.code, about.unwrap_or_default()))
}
