//! What a task does with locks, and what it writes down about it.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redlock::simulation::{Pace, World};
use redlock::{Error, ErrorKind, Guard, Redlock};
use redlock_history::{History, Kind, Record};
use tokio::time::sleep;

use crate::dice::Dice;

/// The names that everybody fights for.
pub(crate) const NAMES: [&str; 2] = ["apple", "{pear}s"];

/// Longest time that connecting may add to a call.
const CONNECT: Duration = Duration::from_secs(1);
/// How much later than promised anything may be: timers count whole milliseconds, and clocks differ.
const LATE: Duration = Duration::from_millis(100);

/// What all tasks of a run write to.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) history: History,
    /// What was wrong with the calls themselves.
    pub(crate) flaws: Vec<String>,
    /// What every task is doing, for a run that does not end.
    pub(crate) doing: Vec<(String, String)>,
    pub(crate) cancelled: usize,
    pub(crate) extended: usize,
}

/// One task of one process.
pub(crate) struct Task {
    pub(crate) world: World,
    pub(crate) redlock: Redlock,
    pub(crate) pace: Pace,
    /// Who it is, in records and trace.
    pub(crate) label: String,
    pub(crate) ttl: Duration,
    pub(crate) dice: Dice,
    pub(crate) book: Arc<Mutex<Book>>,
}

/// How a stretch of holding ended.
enum Held<T> {
    Still(T),
    Lost,
}

/// A guard with what was last written down about it.
struct Holding {
    guard: Guard,
    name: &'static str,
    valid_until_ns: AtomicU64,
    /// When that was looked at last.
    looked_ns: AtomicU64,
    ttl: Duration,
}

impl Task {
    pub(crate) async fn run(mut self, calls: usize) {
        for _ in 0..calls {
            let pause = self.dice.pick(&[0, 0, 10, 200]);
            let pause = self.dice.millis(0, pause);
            self.doing("pauses");
            sleep(pause).await;
            self.call().await;
        }
        self.doing("is done");
    }

    /// Acquires long locks and gives every one up half-way or at once: nothing may stay.
    pub(crate) async fn give_up(mut self, calls: usize) {
        for _ in 0..calls {
            let name = self.dice.pick(&NAMES);
            let lock = self.redlock.lock(name).ttl(Duration::from_secs(60)).timeout(Duration::from_secs(2));
            let (patience, polls) = self.patience();
            self.doing("gives up");
            if let Some(Ok(guard)) = cancelled(lock.acquire(), patience.min(Duration::from_millis(50)), polls).await {
                drop(guard);
            }
        }
        self.doing("is done");
    }

    fn book<T>(&self, write: impl FnOnce(&mut Book) -> T) -> T {
        write(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.world.now().as_nanos()).unwrap_or(u64::MAX)
    }

    fn doing(&self, what: &str) {
        self.book(|book| match book.doing.iter_mut().find(|(task, _)| *task == self.label) {
            Some((_, doing)) => what.clone_into(doing),
            None => book.doing.push((self.label.clone(), what.to_owned())),
        });
    }

    fn note(&self, what: &str) {
        self.world.note(|| format!("{}: {what}", self.label));
    }

    fn flaw(&self, what: &str) {
        let at = self.world.now();
        self.note(&format!("FLAW: {what}"));
        self.book(|book| book.flaws.push(format!("{} at {at:?}: {what}", self.label)));
    }

    fn record(&self, kind: Kind, name: &str, invoke_ns: u64, ok: bool, fence: Option<u64>, until: Option<u64>) {
        let until_text = until.map(|until| format!(", valid until {:?}", Duration::from_nanos(until)));
        let fence_text = fence.map(|fence| format!(", fence {fence}"));
        self.note(&format!(
            "{kind} {name} {}{}{}",
            if ok { "done" } else { "not done" },
            fence_text.unwrap_or_default(),
            until_text.unwrap_or_default()
        ));
        let record = Record {
            client: self.label.clone(),
            name: name.to_owned(),
            kind,
            invoke_ns,
            return_ns: Some(self.now_ns()),
            ok,
            fence,
            valid_until_ns: until,
            count: None,
            token: None,
        };
        self.book(|book| book.history.push(record));
    }

    /// In virtual time, until when the guard says that it can be relied on.
    fn valid_until_ns(&self, guard: &Guard) -> u64 {
        self.now_ns() + u64::try_from(self.pace.passes(guard.remaining()).as_nanos()).unwrap_or(u64::MAX)
    }

    /// When a caller loses patience: after a time, or at the n-th await.
    fn patience(&mut self) -> (Duration, u64) {
        let longest = self.dice.pick(&[0, 5, 50, 500, 5_000]);
        (self.dice.millis(0, longest), if self.dice.chance(500) { self.dice.between(1, 12) } else { u64::MAX })
    }

    /// One lock, from acquire to the end.
    async fn call(&mut self) {
        let name = self.dice.pick(&NAMES);
        let timeout = match self.dice.below(10) {
            0..=2 => Some(Duration::ZERO),
            3 => None,
            _ => Some(self.dice.millis(1, 4_000)),
        };
        let ttl = if self.dice.chance(100) { self.ttl * 2 } else { self.ttl };
        let auto_renew = self.dice.chance(500);
        let mut lock = self.redlock.lock(name).ttl(ttl).auto_renew(auto_renew);
        lock = match timeout {
            Some(timeout) => lock.timeout(timeout),
            None => lock.no_timeout(),
        };
        if self.dice.chance(100) {
            lock = lock.max_hold(ttl + self.dice.millis(0, 2_000));
        }
        let node_timeout = (ttl / 4).min(Duration::from_millis(500));
        let (patience, polls) =
            if self.dice.chance(250) { self.patience() } else { (Duration::from_secs(100_000), u64::MAX) };
        self.doing(&format!("acquires {name} (timeout {timeout:?}, patience {patience:?}, {polls} polls)"));
        self.note(&format!("acquires {name}, timeout {timeout:?}"));
        let invoke_ns = self.now_ns();
        let Some(result) = cancelled(lock.acquire(), patience, polls).await else {
            self.note("has given up");
            self.book(|book| book.cancelled += 1);
            return;
        };
        if let Some(timeout) = timeout {
            let promised = if timeout.is_zero() { CONNECT + 2 * node_timeout } else { timeout + node_timeout };
            self.in_time("acquire", invoke_ns, promised);
        }
        match result {
            Ok(guard) => {
                let valid_until_ns = self.valid_until_ns(&guard);
                self.record(Kind::Acquire, name, invoke_ns, true, Some(guard.fence()), Some(valid_until_ns));
                if !guard.held() {
                    self.flaw("acquire returned a lock that is not held");
                }
                let (valid_until_ns, looked_ns) = (AtomicU64::new(valid_until_ns), AtomicU64::new(self.now_ns()));
                self.hold(Holding { guard, name, valid_until_ns, looked_ns, ttl }, node_timeout).await;
            }
            Err(error) => {
                self.record(Kind::Acquire, name, invoke_ns, false, None, None);
                self.note(&error.to_string());
                let known = match error.kind() {
                    ErrorKind::Timeout => timeout.is_some(),
                    ErrorKind::Unavailable => true,
                    _ => false,
                };
                if !known {
                    self.flaw(&format!("acquire failed with {error}"));
                }
            }
        }
    }

    fn in_time(&self, what: &str, invoke_ns: u64, promised: Duration) {
        let took = Duration::from_nanos(self.now_ns() - invoke_ns);
        if took > promised + LATE {
            self.flaw(&format!("{what} took {took:?}, promised are {promised:?}"));
        }
    }

    async fn hold(&mut self, mut holding: Holding, node_timeout: Duration) {
        for _ in 0..self.dice.between(1, 4) {
            let held = match self.dice.below(6) {
                0 => self.extend(&mut holding, node_timeout).await,
                1 => {
                    self.check(&holding);
                    Held::Still(())
                }
                _ => {
                    let longest =
                        if self.ttl > Duration::from_secs(5) { 300 } else { self.dice.pick(&[20, 300, 3_000]) };
                    let rest = self.dice.millis(0, longest);
                    self.doing("holds");
                    self.during(&holding, sleep(rest)).await
                }
            };
            if matches!(held, Held::Lost) {
                self.check_lost(&holding);
                if self.dice.chance(500) {
                    // Never more than a no-op.
                    drop(holding.guard.release().await);
                }
                return;
            }
        }
        self.finish(holding, node_timeout).await;
    }

    /// Runs `future` while holding; writes down renewals, and a loss as soon as it is told.
    async fn during<T>(&self, holding: &Holding, future: impl Future<Output = T>) -> Held<T> {
        let mut future = pin!(future);
        let mut lost = pin!(holding.guard.lost());
        // Renewals come every third of the ttl.
        let step = (holding.ttl / 20).max(Duration::from_millis(1));
        loop {
            let value = tokio::select! {
                biased;
                error = &mut lost => {
                    self.lost(holding, &error);
                    return Held::Lost;
                }
                value = &mut future => Some(value),
                () = sleep(step) => None,
            };
            self.look(holding);
            if let Some(value) = value {
                return Held::Still(value);
            }
        }
    }

    /// Writes down a renewal.
    fn look(&self, holding: &Holding) {
        let valid_until_ns = self.valid_until_ns(&holding.guard);
        let before_ns = holding.valid_until_ns.load(Ordering::Relaxed);
        // It may have come at any time since the last look.
        let since_ns = holding.looked_ns.swap(self.now_ns(), Ordering::Relaxed);
        // The clocks' rates are rounded: less than a microsecond is no renewal.
        if holding.guard.held() && valid_until_ns > before_ns + 1_000 {
            let fence = Some(holding.guard.fence());
            holding.valid_until_ns.store(valid_until_ns, Ordering::Relaxed);
            self.book(|book| book.extended += 1);
            self.record(Kind::Extend, holding.name, since_ns, true, fence, Some(valid_until_ns));
        }
    }

    fn lost(&self, holding: &Holding, error: &Error) {
        self.note(&error.to_string());
        self.record(Kind::Lost, holding.name, self.now_ns(), true, Some(holding.guard.fence()), None);
    }

    fn check(&self, holding: &Holding) {
        if let Err(error) = holding.guard.check()
            && error.kind() != ErrorKind::Lost
        {
            self.flaw(&format!("check of a held lock failed with {error}"));
        }
    }

    fn check_lost(&self, holding: &Holding) {
        let guard = &holding.guard;
        let kind = guard.check().map_err(|error| error.kind());
        if kind != Err(ErrorKind::Lost) || guard.held() || !guard.remaining().is_zero() {
            self.flaw(&format!("a lock that was told lost answers {kind:?}"));
        }
    }

    async fn extend(&mut self, holding: &mut Holding, node_timeout: Duration) -> Held<()> {
        self.doing("extends");
        let to = self.dice.chance(300).then(|| self.ttl + self.dice.millis(0, 1_000));
        let invoke_ns = self.now_ns();
        let guard = &holding.guard;
        let call = async {
            match to {
                Some(ttl) => guard.extend_to(ttl).await,
                None => guard.extend().await,
            }
        };
        // Renewals go on meanwhile, and a loss is told by its own timer.
        let Held::Still(extension) = self.during(holding, call).await else { return Held::Lost };
        self.in_time("extend", invoke_ns, CONNECT + node_timeout);
        match extension {
            Ok(()) => {
                if let Some(ttl) = to {
                    holding.ttl = ttl;
                }
                let valid_until_ns = self.valid_until_ns(&holding.guard);
                holding.valid_until_ns.store(valid_until_ns, Ordering::Relaxed);
                let (fence, until) = (Some(holding.guard.fence()), Some(valid_until_ns));
                self.book(|book| book.extended += 1);
                self.record(Kind::Extend, holding.name, invoke_ns, true, fence, until);
                Held::Still(())
            }
            Err(error) => match error.kind() {
                ErrorKind::Lost => {
                    self.lost(holding, &error);
                    Held::Lost
                }
                ErrorKind::Unavailable => {
                    self.note(&error.to_string());
                    self.look(holding);
                    Held::Still(())
                }
                _ => {
                    self.flaw(&format!("extend failed with {error}"));
                    Held::Still(())
                }
            },
        }
    }

    async fn finish(&mut self, holding: Holding, node_timeout: Duration) {
        let Holding { guard, name, .. } = holding;
        let (fence, invoke_ns) = (Some(guard.fence()), self.now_ns());
        if self.dice.chance(250) {
            self.note("drops its guard");
            drop(guard);
            self.record(Kind::Release, name, invoke_ns, false, fence, None);
            return;
        }
        let (patience, polls) =
            if self.dice.chance(150) { self.patience() } else { (Duration::from_secs(100_000), u64::MAX) };
        self.doing("releases");
        self.note(&format!("releases {name}"));
        let result = cancelled(guard.release(), patience, polls).await;
        self.record(Kind::Release, name, invoke_ns, matches!(result, Some(Ok(()))), fence, None);
        self.in_time("release", invoke_ns, CONNECT + node_timeout);
        if let Some(Err(error)) = result {
            self.note(&error.to_string());
            if !matches!(error.kind(), ErrorKind::Lost | ErrorKind::Unavailable) {
                self.flaw(&format!("release failed with {error}"));
            }
        }
    }
}

/// Drops `future` after `patience` or at its `polls`-th poll, whichever is sooner; `None` then.
async fn cancelled<T>(future: impl Future<Output = T>, patience: Duration, polls: u64) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = pin!(sleep(patience));
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        left -= 1;
        if left == 0 || timer.as_mut().poll(cx).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
