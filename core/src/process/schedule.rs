//! The schedule: renewals and local losses of all held locks, and claims that await answers, kept by the background.
//!
//! One task sleeps until the soonest entry is due: a renewal or the end of a validity. A lock that is acquired and
//! released before that costs one map entry and no wake-up, because only a sooner entry wakes the task.
//!
//! The task reports a loss by the clock, without waiting for a reply. It logs losses after all that is due, because a
//! subscriber may block and would delay other reports.
//!
//! A claim whose release answers may never be read stays on the schedule for the nodes' time, at the same cost.
//!
//! What may interrupt it:
//!
//! - A lock is released or lost: its entry is removed.
//! - A renewal is on its way: it is its own task, and finds the lock not held when it returns.
//! - The process forks: the child has its own, empty schedule.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{self, Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::LostReason;
use crate::net::connections::Members;
use crate::process::environment::Environment;
use crate::process::metrics::HoldEnd;
use crate::process::shutdown::Ending;
use crate::process::waiters::Waiters;
use crate::protocol::backoff;
use crate::protocol::name::Name;
use crate::protocol::shape::Names;
use crate::sys::clock::{Alarm, Moment};
use crate::sys::log::{OpenSpan, log};
use crate::sys::mutex::Mutex;
use crate::sys::on_drop::OnDrop;

/// A held lock, as the schedule sees it.
pub(crate) trait Timed: fmt::Debug + Send + Sync {
    /// Whether it is held on `members`.
    fn is_on(&self, members: &Members) -> bool;

    /// Returns its names.
    fn names(&self) -> &[Name];

    /// Returns it as those see it who wait for the lock of `names` in this process, if it keeps that lock from them.
    fn hold_of(&self, waiters: &Waiters, names: &Names) -> Option<OwnHold>;

    /// Returns what to do about it at `now`.
    fn next(&self, now: Moment) -> Next;

    /// Records its schedule entry and returns the former one. Fails if it must not have one any more.
    fn entered(&self, due: (Moment, u64)) -> Result<Option<(Moment, u64)>, NotHeld>;

    /// Ends it if its validity has ended.
    fn expire_if_due(&self) -> Option<Unlogged>;

    /// Plans its renewal `within` this time, as a node may have forgotten it, but not more often than after unanswered
    /// renewals. False if unchanged.
    fn bring_forward(&self, within: Duration) -> bool;

    /// Whether it may be missing on `node`, to which there is a new connection, while no renewal is planned that would find
    /// out.
    fn may_lack(&self, node: usize) -> bool;

    /// Whether it was acquired with this client.
    fn is_of(&self, client: &Arc<Ending>) -> bool;
}

/// What the schedule has done about a held lock.
pub(crate) trait Kept: Timed {
    /// Starts one renewal.
    fn renew(self: Arc<Self>);

    /// Restores it on `node`, `within` this time.
    fn restore(self: Arc<Self>, node: usize, within: Duration);

    /// Has the background connect to `node` once it can be reached.
    fn seek(&self, node: usize);

    /// Begins to release it: from here on it is not held. What is returned does the rest, and then waits until a quorum of
    /// nodes has answered what that left to the background. Where it is dropped, the background does the rest.
    fn release(self: Arc<Self>) -> (Releasing, Releasing);
}

/// A part of a release that has begun.
pub(crate) type Releasing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A lock that this process holds and waits for.
#[derive(Clone, Debug)]
pub(crate) struct OwnHold {
    /// The label; empty if it has none.
    pub(crate) label: Arc<str>,
    pub(crate) acquired: Moment,
    /// When its keys expire, unless it is renewed.
    pub(crate) kept_until: Moment,
}

/// The schedule's action for a due lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look again then.
    Sleep(Moment),
    /// Renew now, and look again then.
    Renew(Moment),
    /// Its validity has ended.
    Expired,
    /// No action any more.
    Done,
}

/// A lock that is not held any more.
#[derive(Debug)]
pub(crate) struct NotHeld;

/// A reported loss that is not logged yet. It is logged outside of every mutex, after other losses are reported.
#[derive(Debug)]
#[must_use = "a loss is logged"]
pub(crate) struct Unlogged {
    pub(crate) name: Name,
    pub(crate) reason: LostReason,
    /// `None` for a lock that has not reached its user.
    pub(crate) trace: Option<OpenSpan>,
}

impl Unlogged {
    pub(crate) fn log(self) {
        // A lock that has not reached its user was not held.
        if let Some(trace) = self.trace {
            log!(LOCK_LOST, name = %self.name, reason = %self.reason, "a held lock is lost");
            trace.record("end", HoldEnd::Lost.as_str());
        }
    }
}

/// The schedule of one process.
#[derive(Debug)]
pub(crate) struct Schedule {
    environment: Arc<Environment>,
    entries: sync::Mutex<Entries>,
    sooner: Notify,
    /// The nodes being sought: the memory address of their set, and their index.
    sought: Mutex<BTreeSet<(usize, usize)>>,
}

#[derive(Debug, Default)]
struct Entries {
    map: BTreeMap<(Moment, u64), Item>,
    /// The held locks by each of their names, as [`key`] says. A process may hold thousands, and wait for as many others.
    held: BTreeMap<(u64, usize), Arc<dyn Kept>>,
    next: u64,
    /// The end of the task's sleep; `None` before it starts.
    sleeping: Option<Moment>,
}

/// One due item.
#[derive(Debug)]
enum Item {
    /// A held lock to renew or end.
    Lock(Arc<dyn Kept>),
    /// A claim, to be dropped. Its unanswered releases are pending from then on.
    Claim(#[expect(dead_code, reason = "held to be dropped")] Box<dyn Any + Send>),
}

impl Item {
    /// Returns the lock, if it is held on `members`.
    fn lock_on(&self, members: &Members) -> Option<&Arc<dyn Kept>> {
        match self {
            Self::Lock(lease) if lease.is_on(members) => Some(lease),
            _ => None,
        }
    }
}

/// Returns the key of a lock with this name: a hash, so that none is compared byte by byte, and the lock's address.
fn key(name: &Name, lease: usize) -> (u64, usize) {
    let mut hasher = DefaultHasher::new();
    name.bytes().hash(&mut hasher);
    (hasher.finish(), lease)
}

/// Returns the address of a lock.
fn address(lease: &dyn Timed) -> usize {
    std::ptr::from_ref(lease).addr()
}

impl Schedule {
    pub(crate) fn new(environment: &Arc<Environment>) -> Self {
        let environment = Arc::clone(environment);
        Self { environment, entries: sync::Mutex::default(), sooner: Notify::new(), sought: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // A panic leaves no half-done state here: only a lock itself may be broken, and then leaves the schedule.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a held lock now and gives it its one schedule entry. Wakes the background only if that entry is the
    /// soonest.
    pub(crate) fn add(self: &Arc<Self>, lease: Arc<dyn Kept>) {
        if let Some(unlogged) = self.see_to(lease, self.entries()) {
            unlogged.log();
        }
    }

    /// Does as [`Schedule::add`], but returns a loss unlogged.
    fn see_to(self: &Arc<Self>, lease: Arc<dyn Kept>, entries: MutexGuard<'_, Entries>) -> Option<Unlogged> {
        // Decides and enters in one step, so that of two threads the better informed comes last.
        match lease.next(self.environment.clock.now()) {
            Next::Sleep(due) => self.enter(entries, lease, due),
            Next::Renew(end) => {
                self.enter(entries, Arc::clone(&lease), end);
                lease.renew();
            }
            Next::Expired => {
                drop(entries);
                return lease.expire_if_due();
            }
            Next::Done => {}
        }
        None
    }

    fn enter(self: &Arc<Self>, mut entries: MutexGuard<'_, Entries>, lease: Arc<dyn Kept>, due: Moment) {
        entries.next += 1;
        let entry = (due, entries.next);
        if let Ok(former) = lease.entered(entry) {
            if let Some(former) = former {
                entries.map.remove(&former);
            } else {
                for name in lease.names() {
                    entries.held.insert(key(name, address(&*lease)), Arc::clone(&lease));
                }
            }
            entries.map.insert(entry, Item::Lock(lease));
            self.look(entries, due);
        }
    }

    /// Returns the locks held on `members`.
    fn held_on(&self, members: &Members) -> Vec<Arc<dyn Kept>> {
        let held_on = |item: &Item| item.lock_on(members).cloned();
        self.entries().map.values().filter_map(held_on).collect()
    }

    /// Returns the last hold of this process that keeps the lock of `names` from its own `waiters`; `None` if it holds less
    /// than that takes, such as some slots of a semaphore.
    pub(crate) fn own_hold(&self, waiters: &Waiters, names: &Names) -> Option<OwnHold> {
        let entries = self.entries();
        let of_name = |name| entries.held.range(key(name, 0)..=key(name, usize::MAX));
        let held = names.each().iter().flat_map(of_name);
        let holds: Vec<OwnHold> = held.filter_map(|(_, lease)| lease.hold_of(waiters, names)).collect();
        let needed = names.permits().map_or(1, |permits| permits as usize);
        if holds.len() < needed { None } else { holds.into_iter().max_by_key(|hold| hold.acquired) }
    }

    /// Begins to seek `node` of `members`, until what is returned is dropped. `None` if it is sought already.
    pub(crate) fn begin_search(
        self: &Arc<Self>,
        members: &Arc<Members>,
        node: usize,
    ) -> Option<OnDrop<impl FnOnce() + Send + use<>>> {
        let (schedule, sought) = (Arc::clone(self), (Arc::as_ptr(members).addr(), node));
        let is_first = self.sought.lock().insert(sought);
        is_first.then(|| OnDrop::new(move || _ = schedule.sought.lock().remove(&sought)))
    }

    /// Whether any lock is held on `members`.
    pub(crate) fn holds_on(&self, members: &Members) -> bool {
        self.entries().map.values().any(|item| item.lock_on(members).is_some())
    }

    /// Renews soon what is held on `members`, because a connection to `node` has ended or is back. Seeks `node` if it
    /// is one of several.
    pub(crate) fn bring_forward(self: &Arc<Self>, members: &Members, node: usize) {
        let concerned = self.held_on(members);
        let within = backoff::renewal_spread(concerned.len());
        for lease in concerned.iter().filter(|lease| lease.bring_forward(within)) {
            self.add(Arc::clone(lease));
        }
        if let Some(lease) = concerned.first()
            && members.len() > 1
        {
            lease.seek(node);
        }
    }

    /// Restores held locks that may be missing on `node` of `members`, to which there is a new connection.
    pub(crate) fn reached(&self, members: &Members, node: usize) {
        if members.len() == 1 {
            return;
        }
        let mut lacking = self.held_on(members);
        lacking.retain(|lease| lease.may_lack(node));
        let within = if lacking.len() == 1 { Duration::ZERO } else { backoff::renewal_spread(lacking.len()) };
        for lease in lacking {
            lease.restore(node, within);
        }
    }

    /// Drops `claim` when `due`.
    pub(crate) fn drop_at(self: &Arc<Self>, claim: Box<dyn Any + Send>, due: Moment) {
        let mut entries = self.entries();
        entries.next += 1;
        let entry = (due, entries.next);
        entries.map.insert(entry, Item::Claim(claim));
        self.look(entries, due);
    }

    /// Drops all that is due, because the background has ended. It holds the process, which holds the schedule.
    pub(crate) fn clear(&self) {
        let (due, held) = {
            let mut entries = self.entries();
            (std::mem::take(&mut entries.map), std::mem::take(&mut entries.held))
        };
        drop((due, held));
    }

    /// Makes the task look at the schedule when something is `due`.
    fn look(self: &Arc<Self>, mut entries: MutexGuard<'_, Entries>, due: Moment) {
        match entries.sleeping {
            Some(sleeping) if sleeping <= due => {}
            Some(_) => {
                entries.sleeping = Some(due);
                drop(entries);
                self.sooner.notify_one();
            }
            None => {
                entries.sleeping = Some(due);
                drop(entries);
                let run = Arc::clone(self);
                self.environment.background.spawn(async move { run.run().await });
            }
        }
    }

    /// Begins to release every lock of `client`. What is returned does the rest.
    pub(crate) fn release_of(&self, client: &Arc<Ending>) -> Vec<(Releasing, Releasing)> {
        let of_client = |item: &Item| match item {
            Item::Lock(lease) if lease.is_of(client) => Some(Arc::clone(lease)),
            _ => None,
        };
        // A release takes the lock off the schedule.
        let leases: Vec<_> = self.entries().map.values().filter_map(of_client).collect();
        leases.into_iter().map(Kept::release).collect()
    }

    /// Removes a lock whose hold has ended, with its entry.
    pub(crate) fn remove(&self, lease: &dyn Timed, entry: Option<(Moment, u64)>) {
        let mut entries = self.entries();
        let removed = entry.and_then(|entry| entries.map.remove(&entry));
        for name in lease.names() {
            entries.held.remove(&key(name, address(lease)));
        }
        drop(entries);
        drop(removed);
    }

    /// Releases every lock on the schedule, as the process ends.
    pub(crate) fn release_all(&self) {
        let entries = std::mem::take(&mut self.entries().map);
        for item in entries.into_values() {
            if let Item::Lock(lease) = item {
                drop(lease.release());
            }
        }
    }

    async fn run(self: &Arc<Self>) {
        let clock = &self.environment.clock;
        let alarm = Alarm::new(clock);
        let mut unlogged = Vec::new();
        loop {
            let now = clock.now();
            while let Some((entries, item)) = self.next(now) {
                let Item::Lock(lease) = item else {
                    drop(entries);
                    continue;
                };
                // Still locked: whoever looks for all locks finds this one too. A panic takes this lock from the schedule, and
                // no other one.
                match catch_unwind(AssertUnwindSafe(|| self.see_to(Arc::clone(&lease), entries))) {
                    Ok(seen) => unlogged.extend(seen),
                    Err(_) => self.remove(&*lease, None),
                }
            }
            unlogged.drain(..).for_each(Unlogged::log);
            let until = {
                let mut entries = self.entries();
                let first = entries.map.keys().next().map_or(Moment::NEVER, |(due, _)| *due);
                // The entry that woke this task may be gone already. Its time is kept, because the next one is later, and
                // would wake the task too.
                let asked = entries.sleeping.filter(|asked| *asked > now).unwrap_or(Moment::NEVER);
                let until = first.min(asked);
                entries.sleeping = Some(until);
                until
            };
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = alarm.ring(until) => {}
            }
        }
    }

    /// Takes the soonest due item off the schedule, which stays locked until its caller is done with it.
    fn next(&self, now: Moment) -> Option<(MutexGuard<'_, Entries>, Item)> {
        let mut entries = self.entries();
        let item = entries.map.first_entry().filter(|entry| entry.key().0 <= now)?.remove();
        Some((entries, item))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::sys::background::Background;
    use crate::sys::clock::Clock;
    use crate::sys::random::Random;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A lock that is due a moment after it was added, and then again at once for some times, and then breaks, or says so.
    #[derive(Debug, Default)]
    struct Lock {
        is_due: AtomicBool,
        again: AtomicUsize,
        breaks: bool,
        seen: Notify,
        names: Vec<Name>,
        asked: AtomicUsize,
    }

    impl Timed for Lock {
        fn is_on(&self, _: &Members) -> bool {
            false
        }

        fn names(&self) -> &[Name] {
            &self.names
        }

        fn hold_of(&self, _: &Waiters, _: &Names) -> Option<OwnHold> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            None
        }

        fn next(&self, now: Moment) -> Next {
            if !self.is_due.swap(true, Ordering::Relaxed) {
                return Next::Sleep(now.after(Duration::from_millis(1)));
            }
            if self.again.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |again| again.checked_sub(1)).is_ok() {
                return Next::Sleep(now);
            }
            assert!(!self.breaks, "on purpose");
            self.seen.notify_one();
            Next::Done
        }

        fn entered(&self, _: (Moment, u64)) -> Result<Option<(Moment, u64)>, NotHeld> {
            Ok(None)
        }

        fn expire_if_due(&self) -> Option<Unlogged> {
            None
        }

        fn bring_forward(&self, _: Duration) -> bool {
            false
        }

        fn may_lack(&self, _: usize) -> bool {
            false
        }

        fn is_of(&self, _: &Arc<Ending>) -> bool {
            false
        }
    }

    impl Kept for Lock {
        fn renew(self: Arc<Self>) {}

        fn restore(self: Arc<Self>, _: usize, _: Duration) {}

        fn seek(&self, _: usize) {}

        fn release(self: Arc<Self>) -> (Releasing, Releasing) {
            (Box::pin(async {}), Box::pin(async {}))
        }
    }

    #[tokio::test]
    async fn a_lock_that_breaks_takes_no_other_one_from_the_schedule() {
        let environment = Arc::new(Environment::new(None, Clock::System, Random::System, Background::thread()));
        let schedule = Arc::new(Schedule::new(&environment));
        for _ in 0..2 {
            schedule.add(Arc::new(Lock { breaks: true, ..Lock::default() }));
            let other = Arc::new(Lock::default());
            schedule.add(Arc::clone(&other) as _);
            environment.clock.timeout(harness::LIMIT, pin!(other.seen.notified())).await.expect("it is due");
        }
    }

    /// A client that closes at that moment would not find it, and the lock would be renewed for ever.
    #[test]
    fn a_lock_that_is_due_does_not_leave_the_schedule_meanwhile() {
        let environment = Arc::new(Environment::new(None, Clock::System, Random::System, Background::thread()));
        let schedule = Arc::new(Schedule::new(&environment));
        let lock = Arc::new(Lock { again: AtomicUsize::new(100_000), ..Lock::default() });
        schedule.add(Arc::clone(&lock) as _);
        while lock.again.load(Ordering::SeqCst) > 0 {
            let is_there = !schedule.entries().map.is_empty();
            assert!(is_there || lock.again.load(Ordering::SeqCst) == 0);
        }
    }

    /// Locks that are released before anything is due wake the task once, not once each.
    #[tokio::test]
    async fn what_is_due_later_than_a_removed_entry_does_not_wake_the_task() {
        let environment = Arc::new(Environment::new(None, Clock::System, Random::System, Background::thread()));
        let schedule = Arc::new(Schedule::new(&environment));
        let woken = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut task = pin!(schedule.run());
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        for number in 1..=10 {
            let due = environment.clock.now().after(Duration::from_secs(50 + number));
            schedule.drop_at(Box::new(()), due);
            schedule.remove(&Lock::default(), Some((due, number)));
            assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    /// Each call that is denied asks for it, and each that waits for long, while the process may hold thousands.
    #[tokio::test]
    async fn what_a_process_holds_of_a_name_is_found_without_a_look_at_its_other_locks() {
        let environment = Arc::new(Environment::new(None, Clock::System, Random::System, Background::thread()));
        let schedule = Arc::new(Schedule::new(&environment));
        let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
        let locks = [vec![name("a")], vec![name("b"), name("c")], vec![name("c")]];
        let locks = locks.map(|names| Arc::new(Lock { names, ..Lock::default() }));
        let asked = || locks.each_ref().map(|lock| lock.asked.swap(0, Ordering::Relaxed));
        let ask = |text| schedule.own_hold(&Waiters::default(), &Names::One(name(text)));
        for lock in &locks {
            schedule.add(Arc::clone(lock) as _);
        }
        for (text, expected) in [("a", [1, 0, 0]), ("b", [0, 1, 0]), ("c", [0, 1, 1]), ("d", [0, 0, 0])] {
            assert!(ask(text).is_none());
            assert_eq!(asked(), expected, "{text}");
        }
        schedule.remove(&*locks[1], None);
        assert!(ask("c").is_none());
        assert_eq!(asked(), [0, 0, 1]);
        assert_eq!(schedule.entries().held.len(), 2);
    }
}
