//! The queue of what the background logs, and the thread named `redlock-log` that passes it to the program's subscriber.
//!
//! A subscriber is the program's code: it may block, or make calls of this library. The background renews all locks, and
//! does not wait for it. Every other thread calls the subscriber itself, and delays only itself. The listener for
//! languages that `tracing` does not reach never blocks, and is called without the queue.
//!
//! States of the thread: *not started*, until the background logs for the first time; *passing on*, for ever. It passes on
//! in order. Beyond [`MOST`] entries, events are dropped and counted. The ends of spans are not: there are at most as many
//! as the program has spans open.
//!
//! What may interrupt it: a subscriber that blocks, which keeps the entries here; one that panics, which costs its entry; a
//! fork, after which the child has another background with another queue; the system gives no thread, which drops events.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use once_cell::race::OnceBox;
use tokio::sync::oneshot;
use tracing::level_filters::LevelFilter;

use crate::event::Event;
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::task::on_thread;

/// The most entries of the queue. Of a burst, the first ones say why.
const MOST: usize = 1_024;

/// Something to tell the subscriber.
type Entry = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The queue, if this thread is the background.
    static QUEUE: OnceCell<LogQueue> = const { OnceCell::new() };
    /// Whether this thread passes entries on.
    static PASSES_ON: Cell<bool> = const { Cell::new(false) };
}

/// Hears the fields of every event, and its message. It never blocks.
type Listener = fn(&'static Event, &[String], &str);

static LISTENER: OnceBox<Listener> = OnceBox::new();

static DROPPED: PerProcess<AtomicU64> = PerProcess::new();

#[derive(Debug, Default)]
struct LogQueue {
    waiting: Arc<AtomicUsize>,
    sender: OnceCell<Sender<Entry>>,
}

/// Makes what this thread logs from now on go through a queue.
pub(crate) fn begin() {
    QUEUE.with(|queue| drop(queue.set(LogQueue::default())));
}

/// Has the listener, of which there is one, hear all events on the threads that emit them.
pub(crate) fn listen(listener: Listener) {
    drop(LISTENER.set(Box::new(listener)));
}

/// Returns whether anybody hears an event.
pub(crate) fn is_heard(event: &Event) -> bool {
    event.level <= LevelFilter::current() || LISTENER.get().is_some()
}

/// Returns whether this thread passes on what the background logs. If it waited for the library, that would stay there.
pub(crate) fn is_here() -> bool {
    PASSES_ON.get()
}

/// Returns whether what this thread logs goes through a queue.
pub(crate) fn is_queued() -> bool {
    // At the end of a thread it may be gone.
    QUEUE.try_with(|queue| queue.get().is_some()).unwrap_or(false)
}

/// Returns how many events of this process were dropped before the program heard them.
pub(crate) fn dropped() -> u64 {
    counter().load(Ordering::Relaxed)
}

/// Counts the events that were dropped.
pub(crate) fn counter() -> &'static AtomicU64 {
    DROPPED.of(Pid::now(), AtomicU64::default)
}

/// Tells the subscriber of an event: now, or through the queue if this is the background's thread.
pub(crate) fn tell(event: impl FnOnce() + Send + 'static) {
    if is_queued() { put_in_queue(Box::new(event), MOST) } else { shielded(event) }
}

/// Works as [`tell`], for a change or the end of a span, which is not dropped.
pub(crate) fn tell_of_span(change: impl FnOnce() + Send + 'static) {
    if is_queued() { put_in_queue(Box::new(change), usize::MAX) } else { shielded(change) }
}

/// Drops and counts the entry if that many are waiting.
fn put_in_queue(entry: Entry, most: usize) {
    QUEUE.with(|queue| {
        let Some(queue) = queue.get() else { return };
        if queue.waiting.load(Ordering::Relaxed) >= most || !queue.put(entry) {
            counter().fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Tells of an event by its values, whose code is compiled once for all of them but for `emit`.
pub(crate) fn tell_values(event: &'static Event, values: Vec<String>, emit: fn(&[String])) {
    if let (Some(listener), Some((message, fields))) = (LISTENER.get(), values.split_last()) {
        shielded(|| listener(event, fields, message));
    }
    if event.level <= LevelFilter::current() {
        tell(move || emit(&values));
    }
}

/// Runs `work` and ignores a panic in it.
pub(crate) fn shielded(work: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(work)));
}

/// Waits until the subscriber has been told what this thread logged before, if that goes through a queue.
pub(crate) async fn passed_on() {
    let (sender, passed_on) = oneshot::channel();
    QUEUE.with(|queue| {
        if let Some(started) = queue.get().filter(|queue| queue.sender.get().is_some()) {
            started.put(Box::new(move || {
                let _ = sender.send(());
            }));
        }
    });
    // Without a queue, the sender is gone.
    drop(passed_on.await);
}

impl LogQueue {
    /// Returns false if the system gives no thread.
    fn put(&self, entry: Entry) -> bool {
        let Some(sender) = self.sender.get().or_else(|| self.start()) else { return false };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        sender.send(entry).is_ok()
    }

    fn start(&self) -> Option<&Sender<Entry>> {
        let (sender, entries) = mpsc::channel();
        let waiting = Arc::clone(&self.waiting);
        on_thread("redlock-log", move || pass_on(&entries, &waiting)).ok()?;
        Some(self.sender.get_or_init(|| sender))
    }
}

fn pass_on(entries: &Receiver<Entry>, waiting: &AtomicUsize) {
    PASSES_ON.set(true);
    for entry in entries {
        shielded(entry);
        waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use harness::LIMIT;

    use super::*;

    #[test]
    fn what_is_queued_is_passed_on_in_order_and_events_beyond_the_most_are_counted() {
        harness::alone!();
        let ((end, ended), (tells, told)) = (channel::<()>(), channel());
        let background = thread::spawn(move || {
            begin();
            let say = |number: usize| {
                let tells = tells.clone();
                move || tells.send((number, is_here())).unwrap()
            };
            tell(move || ended.recv().unwrap());
            (1..MOST + 3).for_each(|number| tell(say(number)));
            tell_of_span(say(MOST + 3));
        });
        background.join().unwrap();
        assert_eq!(dropped(), 3);
        end.send(()).unwrap();
        for number in (1..MOST).chain([MOST + 3]) {
            assert_eq!(told.recv_timeout(LIMIT).unwrap(), (number, true));
        }
    }

    #[test]
    fn all_others_are_told_on_their_own_threads() {
        let here = thread::current().id();
        let (tells, told) = channel();
        tell(move || tells.send(thread::current().id()).unwrap());
        assert_eq!(told.try_recv().unwrap(), here);
    }
}
