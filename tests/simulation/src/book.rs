//! What is written down about a run, and by whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::LostReason;
use redlock::testing::simulation::World;
use redlock_history::{Kind, Reason, Record};

use crate::shape::Shape;

/// What all tasks of a run write to.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) history: Vec<Record>,
    /// Locks of the older SETNX protocol: what is said of fences means nothing there.
    pub(crate) older: Vec<Record>,
    /// What was wrong with the calls themselves.
    pub(crate) flaws: Vec<String>,
    /// What every task is doing, for a run that does not end.
    pub(crate) doing: BTreeMap<String, String>,
    /// Calls to the library.
    pub(crate) operations: usize,
    pub(crate) cancelled: usize,
    pub(crate) extended: usize,
    /// Keys whose node's clock was set back while they stood there, or that came back in a failover: index of the node,
    /// key and value.
    pub(crate) prolonged: BTreeSet<(usize, String, String)>,
    older_fence: u64,
    /// By name, and slot of a semaphore.
    stores: BTreeMap<(&'static str, Option<u32>), Store>,
}

/// What a lock protects: it remembers the largest fence and refuses smaller ones.
#[derive(Debug, Default)]
struct Store {
    largest: u64,
    writes: u64,
}

/// The book, shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Book>>);

impl Shared {
    pub(crate) fn open(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock, when it was released or not acquired, and its ttl.
type Owed = (Shape, u64, Duration);

/// When a process stood still, and whether it was killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    killed: Arc<AtomicBool>,
    stops: Arc<Mutex<Vec<(u64, u64)>>>,
    /// The locks that were released, or not acquired: to a node that is away the release is still owed.
    owed: Arc<Mutex<Vec<Owed>>>,
}

impl Fate {
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }

    fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    fn owes(&self, shape: &Shape, at_ns: u64, ttl: Duration) {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push((shape.clone(), at_ns, ttl));
    }

    pub(crate) fn stood_still(&self, from_ns: u64, to_ns: u64) {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).push((from_ns, to_ns));
    }

    /// For how long it has stood still since then.
    pub(crate) fn stopped_since(&self, since_ns: u64) -> Duration {
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = stops.iter().map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns.max(&since_ns))).sum();
        Duration::from_nanos(nanos)
    }
}

/// One task's way to write into the book.
#[derive(Clone, Debug)]
pub(crate) struct Pen {
    pub(crate) world: World,
    pub(crate) book: Shared,
    pub(crate) fate: Fate,
    /// Who it is, in records and trace.
    pub(crate) label: String,
}

impl Pen {
    pub(crate) fn now_ns(&self) -> u64 {
        nanos(self.world.now())
    }

    pub(crate) fn doing(&self, what: &str) {
        self.book.open().doing.insert(self.label.clone(), what.to_owned());
    }

    /// A call to the library begins.
    pub(crate) fn begins(&self, what: &str) {
        self.doing(what);
        self.note(what);
        self.book.open().operations += 1;
    }

    pub(crate) fn note(&self, what: &str) {
        self.world.note(|| format!("{}: {what}", self.label));
    }

    pub(crate) fn flaw(&self, what: &str) {
        let at = self.world.now();
        self.note(&format!("FLAW: {what}"));
        self.book.open().flaws.push(format!("{} at {at:?}: {what}", self.label));
    }

    fn write(&self, record: Record) {
        self.tell(&record);
        self.book.open().history.push(record);
    }

    fn tell(&self, record: &Record) {
        self.world.note(|| {
            let Record { client, kind, name, slot, ok, fence, valid_until_ns, .. } = record;
            let slot = slot.map(|slot| format!(" slot {slot}"));
            let until = valid_until_ns.map(|until| format!(", valid until {:?}", Duration::from_nanos(until)));
            let fence = fence.map(|fence| format!(", fence {fence}"));
            let done = if *ok { "done" } else { "not done" };
            let (slot, fence, until) = (slot.unwrap_or_default(), fence.unwrap_or_default(), until.unwrap_or_default());
            format!("{client}: {kind} {name}{slot} {done}{fence}{until}")
        });
    }

    /// A lock of the older protocol was acquired; what stands for its fence says nothing.
    pub(crate) fn acquired_older(&self, name: &'static str, invoke_ns: u64, until_ns: u64) -> Tenure {
        let fence = {
            let mut book = self.book.open();
            book.older_fence += 1;
            book.older_fence
        };
        let won = Won { fence, until_ns, slot: None, least_until_ns: None, margin_ns: None, is_term: false };
        let mut tenure = Tenure::new(self, &Shape::One(name), Duration::ZERO, &won);
        tenure.is_older = true;
        tenure.record_acquire(invoke_ns, &won);
        tenure
    }

    /// Keys are left, by who was killed or cares for a call no more.
    fn leave(&self, shape: &Shape, invoke_ns: u64, ttl: Duration) {
        // An extension may be on its way, and longer; a node's clock may be slower.
        let left_ns = self.now_ns() + nanos(3 * ttl + Duration::from_secs(2));
        self.write(shape.of(blank(&self.label, Kind::Acquire, invoke_ns, false, None, Some(left_ns))));
    }

    /// The process is killed: nobody pays what it may still owe.
    pub(crate) fn leave_owed(&self) {
        let owed = std::mem::take(&mut *self.fate.owed.lock().unwrap_or_else(PoisonError::into_inner));
        for (shape, at_ns, ttl) in owed {
            if at_ns + nanos(ttl) >= self.now_ns() {
                self.leave(&shape, at_ns, ttl);
            }
        }
    }

    /// Writes to what the lock protects. It arrives now; it was sent at `invoke_ns`.
    pub(crate) fn store(&self, (name, slot): (&'static str, Option<u32>), invoke_ns: u64, fence: u64) {
        let count = {
            let mut book = self.book.open();
            let store = book.stores.entry((name, slot)).or_default();
            (fence >= store.largest).then(|| {
                store.largest = fence;
                store.writes += 1;
                store.writes
            })
        };
        let record =
            Shape::One(name).of(blank(&self.label, Kind::Write, invoke_ns, count.is_some(), Some(fence), None));
        self.write(Record { return_ns: Some(self.now_ns()), slot, count, ..record });
    }
}

/// A record that is about no lock yet, of a call that has not come back.
fn blank(label: &str, kind: Kind, invoke_ns: u64, ok: bool, fence: Option<u64>, valid_until_ns: Option<u64>) -> Record {
    Record { return_ns: None, ok, fence, valid_until_ns, ..Record::new(label, kind, "", (invoke_ns, invoke_ns)) }
}

/// A record of what is no call: seen on a node, or a time of trouble.
pub(crate) fn seen(kind: Kind, client: &str, name: &str, from_ns: u64, to_ns: u64, fence: Option<u64>) -> Record {
    Record { fence, ..Record::new(client, kind, name, (from_ns, to_ns)) }
}

/// What came of an acquire.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) fence: u64,
    pub(crate) slot: Option<u32>,
    pub(crate) until_ns: u64,
    /// Until when nobody else may get it, if it has a least time.
    pub(crate) least_until_ns: Option<u64>,
    /// How long nobody else may get it after its time has run out.
    pub(crate) margin_ns: Option<u64>,
    /// Whether it is a term of an election.
    pub(crate) is_term: bool,
}

/// An acquire that has not come back.
#[derive(Debug)]
pub(crate) struct Pending {
    pen: Pen,
    shape: Shape,
    invoke_ns: u64,
    ttl: Duration,
    is_over: bool,
}

impl Pending {
    pub(crate) fn new(pen: &Pen, shape: &Shape, ttl: Duration) -> Self {
        Self { pen: pen.clone(), shape: shape.clone(), invoke_ns: pen.now_ns(), ttl, is_over: false }
    }

    pub(crate) fn invoke_ns(&self) -> u64 {
        self.invoke_ns
    }

    /// It came back without the lock, or was given up.
    pub(crate) fn fail(mut self) {
        self.is_over = true;
        self.record_failure();
    }

    fn record_failure(&self) {
        let record = self.shape.of(blank(&self.pen.label, Kind::Acquire, self.invoke_ns, false, None, None));
        self.pen.write(Record { return_ns: Some(self.pen.now_ns()), ..record });
        self.pen.fate.owes(&self.shape, self.pen.now_ns(), self.ttl);
    }

    /// It is neither polled nor dropped any more: until its `timeout` it may win, and keys are left then.
    pub(crate) fn neglect(mut self, timeout: Duration) {
        self.is_over = true;
        self.pen.leave(&self.shape, self.invoke_ns, self.ttl + timeout);
    }

    /// It came back with the lock.
    pub(crate) fn win(mut self, won: &Won) -> Tenure {
        self.is_over = true;
        let tenure = Tenure::new(&self.pen, &self.shape, self.ttl, won);
        tenure.record_acquire(self.invoke_ns, won);
        tenure
    }
}

impl Drop for Pending {
    /// Its runtime has ended: what it has asked for is taken back, unless nobody is there who could.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let pen = &self.pen;
        if pen.fate.is_killed() {
            pen.leave(&self.shape, self.invoke_ns, self.ttl);
        } else {
            self.record_failure();
        }
    }
}

/// A lock that somebody has.
#[derive(Debug)]
pub(crate) struct Tenure {
    pen: Pen,
    shape: Shape,
    pub(crate) slot: Option<u32>,
    pub(crate) fence: u64,
    pub(crate) ttl: Duration,
    /// Until when it is held while it is detached, and nobody releases it.
    pub(crate) detached_until_ns: Option<u64>,
    has_margin: bool,
    is_older: bool,
    /// When its release began, if it has.
    released_ns: Option<u64>,
    is_over: bool,
}

impl Tenure {
    fn new(pen: &Pen, shape: &Shape, ttl: Duration, won: &Won) -> Self {
        Self {
            pen: pen.clone(),
            shape: shape.clone(),
            slot: won.slot,
            fence: won.fence,
            ttl,
            detached_until_ns: None,
            has_margin: won.margin_ns.is_some(),
            is_older: false,
            released_ns: None,
            is_over: false,
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.pen.now_ns()
    }

    /// Whether it is one of several readers.
    pub(crate) fn is_shared(&self) -> bool {
        self.shape.is_shared()
    }

    /// The single names of the lock.
    pub(crate) fn names(&self) -> &[&'static str] {
        self.shape.names()
    }

    fn record_acquire(&self, invoke_ns: u64, won: &Won) {
        let Won { least_until_ns, margin_ns, .. } = *won;
        let term = won.is_term.then_some(won.fence);
        let record = self.of_now(Kind::Acquire, invoke_ns, true, Some(won.until_ns));
        self.push(Record { least_until_ns, margin_ns, term, ..record });
    }

    fn record(&self, kind: Kind, invoke_ns: u64, ok: bool, until_ns: Option<u64>) {
        self.push(self.of_now(kind, invoke_ns, ok, until_ns));
    }

    /// A record of a call that comes back now.
    fn of_now(&self, kind: Kind, invoke_ns: u64, ok: bool, until_ns: Option<u64>) -> Record {
        let record = self.shape.of(blank(&self.pen.label, kind, invoke_ns, ok, Some(self.fence), until_ns));
        Record { return_ns: Some(self.pen.now_ns()), slot: self.slot, ..record }
    }

    fn push(&self, record: Record) {
        self.pen.tell(&record);
        let mut book = self.pen.book.open();
        let history = if self.is_older { &mut book.older } else { &mut book.history };
        history.push(record);
    }

    /// It was extended by a call of `invoke_ns`, or by a renewal after that.
    pub(crate) fn extended(&self, invoke_ns: u64, until_ns: u64) {
        self.pen.book.open().extended += 1;
        self.record(Kind::Extend, invoke_ns, true, Some(until_ns));
    }

    /// It was told lost.
    pub(crate) fn lost(&mut self, reason: Option<LostReason>) {
        if !std::mem::replace(&mut self.is_over, true) {
            let reason = reason.and_then(reason_of);
            self.push(Record { reason, ..self.of_now(Kind::Lost, self.now_ns(), true, None) });
        }
    }

    pub(crate) fn is_releasing(&self) -> bool {
        self.released_ns.is_some()
    }

    /// Its release begins; it ends when this is dropped. Whatever comes of it: the background goes on with it, so that no
    /// key stays.
    pub(crate) fn release(&mut self) {
        self.released_ns = Some(self.now_ns());
    }
}

impl Drop for Tenure {
    /// It was released, or its runtime has ended, and its guard was dropped; or its process was killed.
    fn drop(&mut self) {
        // From then on others may have a lost one too, whatever is left of its margin.
        if !self.is_over || self.has_margin {
            // Nobody has a detached lock who could be told of its end.
            let until_ns = self.detached_until_ns.unwrap_or(u64::MAX);
            let invoke_ns = self.released_ns.unwrap_or_else(|| self.now_ns()).min(until_ns);
            let is_left = self.pen.fate.is_killed() || self.detached_until_ns.is_some();
            self.record(Kind::Release, invoke_ns, !is_left, None);
            if is_left && !self.is_older {
                self.pen.leave(&self.shape, invoke_ns, self.ttl);
            } else if !self.is_older {
                self.pen.fate.owes(&self.shape, invoke_ns, self.ttl);
            }
        } else if self.detached_until_ns.is_some() {
            self.pen.leave(&self.shape, self.now_ns(), self.ttl);
        }
    }
}

/// What the history calls a reason.
fn reason_of(reason: LostReason) -> Option<Reason> {
    match reason {
        LostReason::Expired => Some(Reason::Expired),
        LostReason::Unreachable => Some(Reason::Unreachable),
        LostReason::MaxHold => Some(Reason::MaxHold),
        LostReason::Taken => Some(Reason::Taken),
        LostReason::Deleted => Some(Reason::Deleted),
        _ => None,
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
