//! The listeners to the events of this process, for languages that `tracing` does not reach.
//!
//! Each listener has a ring of records. An event is written into the rings on the thread that emits it, and that thread
//! never waits: a full ring loses its oldest record, those for debugging first, and counts it. The first record in an empty ring wakes the
//! listener, which then takes all records at once.
//!
//! What may interrupt it:
//!
//! - A listener is dropped: its ring is gone, and the next event forgets it.
//! - The process forks: the child begins without listeners, and never touches the parent's rings.
//! - The program has its own subscriber: that one hears the events, too.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::Level;

use crate::event::Event;
use crate::sys::clock::Clock;
use crate::sys::followers::Followers;
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::log_queue;
use crate::sys::mutex::Mutex;
use crate::texts::opaque;

/// The most records of one listener. Of a burst, the newest ones say the most.
const MOST: usize = 1_024;

/// One event, as it happened.
#[derive(Debug)]
pub struct Record {
    /// The event.
    pub event: &'static Event,
    /// When it happened, by the wall clock.
    pub at: SystemTime,
    /// What happened, for people.
    pub message: String,
    /// The fields in their order.
    pub fields: Vec<(&'static str, String)>,
    is_claimed: AtomicBool,
}

impl Record {
    /// Returns true once in the process, if a person has to know: of several listeners, one warns.
    pub fn claims(&self) -> bool {
        self.event.needs_person && !self.is_claimed.swap(true, Ordering::Relaxed)
    }
}

/// A listener. It hears what happens from its beginning until it is dropped.
#[derive(Debug)]
pub struct Events {
    /// `None` only during its drop.
    ring: Option<Arc<Ring>>,
    pid: Pid,
}

struct Ring {
    /// Called when the first record enters.
    wake: Box<dyn Fn() + Send + Sync>,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    kept: VecDeque<Arc<Record>>,
    lost: u64,
}

static RINGS: PerProcess<Followers<Ring>> = PerProcess::new();

impl Events {
    /// Begins to listen. `wake` is called on any thread when the first record is there to be taken; it must neither block
    /// nor panic.
    pub fn listen(wake: impl Fn() + Send + Sync + 'static) -> Self {
        log_queue::listen(record);
        let pid = Pid::now();
        let ring = Arc::new(Ring { wake: Box::new(wake), records: Mutex::default() });
        RINGS.of(pid, Followers::default).add(Arc::downgrade(&ring));
        Self { ring: Some(ring), pid }
    }

    /// Returns whether the listener belongs to another process. A forked child needs a new one.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.pid != Pid::now()
    }

    /// Takes all records, the oldest first, and how many older ones were lost since the last call.
    #[must_use]
    pub fn take(&self) -> (Vec<Arc<Record>>, u64) {
        let Some(ring) = self.ring.as_ref().filter(|_| !self.is_foreign()) else { return (Vec::new(), 0) };
        let Records { kept, lost } = mem::take(&mut *ring.records.lock());
        (kept.into(), lost)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Another thread of the parent may have been in the middle of a change.
            mem::forget(self.ring.take());
        }
    }
}

impl Ring {
    /// Puts a record in, and wakes the listener if it is the first. Returns how many were lost for it.
    fn put(&self, record: Arc<Record>) -> u64 {
        let (is_first, oldest) = {
            let mut records = self.records.lock();
            let is_of_debugging = |record: &Arc<Record>| record.event.level == Level::DEBUG;
            let oldest = (records.kept.len() >= MOST)
                .then(|| {
                    // One for debugging, because the others say more, or else the oldest of all.
                    let index = records.kept.iter().position(is_of_debugging).unwrap_or(0);
                    records.kept.remove(index)
                })
                .flatten();
            records.lost += u64::from(oldest.is_some());
            records.kept.push_back(record);
            (records.kept.len() == 1, oldest)
        };
        if is_first {
            (self.wake)();
        }
        u64::from(oldest.is_some())
    }
}

opaque!(Ring);

/// Writes an event into the rings.
fn record(event: &'static Event, fields: &[String], message: &str) {
    let fields = event.fields.iter().copied().zip(fields.iter().cloned()).collect();
    let at = UNIX_EPOCH + Duration::from_micros(Clock::System.wall_micros());
    let record = Record { event, at, message: message.to_owned(), fields, is_claimed: AtomicBool::new(false) };
    let record = Arc::new(record);
    for ring in RINGS.of(Pid::now(), Followers::default).all() {
        log_queue::counter().fetch_add(ring.put(Arc::clone(&record)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::event::{CONNECT_FAILED, LOCK_LOST, NODE_EVICTS};

    fn record(event: &'static Event, number: usize) -> Arc<Record> {
        let message = number.to_string();
        Arc::new(Record { event, at: UNIX_EPOCH, message, fields: Vec::new(), is_claimed: AtomicBool::new(false) })
    }

    fn ring(woken: &Arc<AtomicUsize>) -> Events {
        let woken = Arc::clone(woken);
        let wake = move || {
            woken.fetch_add(1, Ordering::Relaxed);
        };
        Events { ring: Some(Arc::new(Ring { wake: Box::new(wake), records: Mutex::default() })), pid: Pid::now() }
    }

    fn put(events: &Events, number: usize) -> u64 {
        events.ring.as_ref().unwrap().put(record(&LOCK_LOST, number))
    }

    #[test]
    fn the_first_record_wakes_and_a_full_ring_loses_the_oldest() {
        let woken = Arc::default();
        let events = ring(&woken);
        let lost: u64 = (0..MOST + 3).map(|number| put(&events, number)).sum();
        assert_eq!((lost, woken.load(Ordering::Relaxed)), (3, 1));
        let (records, lost) = events.take();
        assert_eq!((records.len(), lost, records[0].message.as_str()), (MOST, 3, "3"));
        put(&events, 0);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        let (records, lost) = events.take();
        assert_eq!((records.len(), lost), (1, 0));
    }

    #[test]
    fn what_is_for_debugging_is_lost_first() {
        let woken = Arc::default();
        let events = ring(&woken);
        let ring = events.ring.as_ref().unwrap();
        put(&events, 0);
        for number in 1..MOST {
            ring.put(record(&CONNECT_FAILED, number));
        }
        assert_eq!(put(&events, MOST), 1);
        let (records, _) = events.take();
        let kept: Vec<_> = records.iter().take(2).map(|record| record.message.as_str()).collect();
        assert_eq!(kept, ["0", "2"]);
    }

    #[test]
    fn one_listener_warns_of_what_needs_a_person() {
        let evicts = record(&NODE_EVICTS, 1);
        assert!(evicts.claims());
        assert!(!evicts.claims());
        assert!(!record(&LOCK_LOST, 1).claims(), "the program hears of it");
    }

    #[test]
    fn a_listener_hears_the_events_of_the_table_with_their_fields() {
        let events = Events::listen(|| {});
        crate::sys::log::log!(LOCK_LOST, name = %"a", reason = %"taken", "a held lock is lost");
        tracing::warn!(target: "redlock::lock", "not of the table");
        let (records, lost) = events.take();
        let heard = records.iter().find(|record| record.fields.contains(&("name", "a".to_owned()))).unwrap();
        assert_eq!(lost, 0);
        assert_eq!((heard.event.code, heard.message.as_str()), ("lock_lost", "a held lock is lost"));
        assert_eq!(heard.fields, [("name", "a".to_owned()), ("reason", "taken".to_owned())]);
        assert!(records.iter().all(|record| record.message != "not of the table"));
    }
}
