//! What a task does with a lock that it has.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlock::{Error, ErrorKind, Guard, LostReason};

use crate::asked::Asked;
use crate::book::{Pen, Tenure, nanos};
use crate::client::{CONNECT, RELEASE, Task, cancelled, node_timeout};

/// How a stretch of holding ended.
enum Held<T> {
    Still(T),
    Lost(Option<LostReason>),
}

/// A guard with what was last written down about it.
pub(crate) struct Holding {
    pub(crate) guard: Guard,
    pub(crate) tenure: Tenure,
    valid_until_ns: AtomicU64,
    acquired_ns: u64,
    /// When that was looked at last.
    looked_ns: AtomicU64,
    ttl: Duration,
    /// That of the acquire: an extension to another ttl does not change it.
    pub(crate) node_timeout: Duration,
    /// The longest ttl that was asked for, of which the answer may have come.
    pub(crate) longest: Duration,
    margin: Duration,
}

impl Holding {
    pub(crate) fn new(guard: Guard, tenure: Tenure, valid_until_ns: u64, asked: &Asked) -> Self {
        let acquired_ns = tenure.now_ns();
        let (valid_until_ns, looked_ns) = (AtomicU64::new(valid_until_ns), AtomicU64::new(acquired_ns));
        let Asked { ttl, margin, .. } = *asked;
        let node_timeout = node_timeout(ttl);
        Self { guard, tenure, valid_until_ns, acquired_ns, looked_ns, ttl, node_timeout, longest: ttl, margin }
    }

    /// Holds the lock for a while, and gives it back.
    pub(crate) async fn hold(mut self, task: &mut Task) {
        for _ in 0..task.dice.between(1, 4) {
            let held = match task.dice.below(7) {
                0 => self.extend(task).await,
                1 => {
                    self.check(&task.pen);
                    Held::Still(())
                }
                2 => self.write(task).await,
                _ => {
                    let longest =
                        if task.ttl > Duration::from_secs(5) { 300 } else { task.dice.pick(&[20, 300, 3_000]) };
                    let rest = task.dice.millis(0, longest);
                    task.pen.doing("holds");
                    self.during(task, task.pen.world.sleep(rest)).await
                }
            };
            if let Held::Lost(reason) = held {
                self.tenure.lost(reason);
                return self.lost(task).await;
            }
        }
        if task.mix.handed_over > 0 && task.dice.chance(task.mix.handed_over) {
            let Some(holding) = self.hand_over(task).await else { return };
            self = holding;
        }
        self.finish(task).await;
    }

    /// Runs `future` while holding; writes down renewals, and returns as soon as a loss is told.
    async fn during<T>(&self, task: &Task, future: impl Future<Output = T>) -> Held<T> {
        let mut future = pin!(future);
        let mut lost = pin!(self.guard.lost());
        // Renewals come every third of the ttl.
        let step = (self.ttl / 20).max(Duration::from_millis(1));
        loop {
            let value = tokio::select! {
                biased;
                error = &mut lost => {
                    self.told_lost(task, &error);
                    return Held::Lost(error.reason());
                }
                value = &mut future => Some(value),
                () = task.pen.world.sleep(step) => None,
            };
            self.look(task);
            if let Some(value) = value {
                return Held::Still(value);
            }
        }
    }

    /// Writes down a renewal, even if the lock is lost since.
    pub(crate) fn look(&self, task: &Task) {
        let valid_until_ns = task.valid_until_ns(&self.guard);
        let before_ns = self.valid_until_ns.load(Ordering::Relaxed);
        // It may have come at any time since the last look, and was asked for at most the longest ttl before its end.
        let looked_ns = self.looked_ns.swap(task.pen.now_ns(), Ordering::Relaxed);
        let since_ns =
            looked_ns.min(valid_until_ns.saturating_sub(nanos(task.pace.passes(self.longest)))).max(self.acquired_ns);
        // The clocks' rates are rounded: less than a microsecond is no renewal.
        if valid_until_ns > before_ns + 1_000 && !task.stalls {
            self.extended(since_ns, valid_until_ns);
        }
    }

    fn extended(&self, since_ns: u64, valid_until_ns: u64) {
        self.valid_until_ns.store(valid_until_ns, Ordering::Relaxed);
        self.tenure.extended(since_ns, valid_until_ns);
    }

    fn check(&self, pen: &Pen) {
        pen.begins("checks");
        if let Err(error) = self.guard.check()
            && error.kind() != ErrorKind::Lost
        {
            pen.flaw(&format!("check of a held lock failed with {error}"));
        }
    }

    /// Writes to what the lock protects, and does not look whether the lock is still held when that arrives. A reader takes as
    /// long to read.
    async fn write(&mut self, task: &mut Task) -> Held<()> {
        let most = task.dice.pick(&[0, 20, 500, 3_000]);
        let delay = task.dice.millis(0, most);
        let invoke_ns = task.pen.now_ns();
        task.pen.doing("writes");
        let (name, fence) = ((task.dice.pick(self.tenure.names()), self.tenure.slot), self.tenure.fence);
        let is_reader = self.tenure.is_shared();
        let mut writing = pin!(async {
            task.pen.world.sleep(delay).await;
            if !is_reader {
                task.pen.store(name, invoke_ns, fence);
            }
        });
        let held = self.during(task, &mut writing).await;
        if let Held::Lost(reason) = held {
            self.tenure.lost(reason);
            writing.await;
        }
        held
    }

    async fn extend(&mut self, task: &mut Task) -> Held<()> {
        task.pen.begins("extends");
        let to = (task.dice.chance(300) && !task.one_ttl).then(|| task.ttl + task.dice.millis(0, 1_000));
        let patience = task.patience_mostly();
        self.longest = self.longest.max(to.unwrap_or_default());
        let invoke_ns = task.pen.now_ns();
        let guard = &self.guard;
        let call = async {
            match to {
                Some(ttl) => guard.extend_for(ttl).await,
                None => guard.extend().await,
            }
        };
        let call = cancelled(&task.pen.world, call, patience);
        // Renewals go on meanwhile, and a loss is told by its own timer.
        let extension = match self.during(task, call).await {
            Held::Still(extension) => extension,
            Held::Lost(reason) => return Held::Lost(reason),
        };
        let Some(extension) = extension else { return Held::Still(()) };
        task.in_time("extend", invoke_ns, CONNECT + self.node_timeout);
        match extension {
            Ok(()) => {
                self.ttl = to.unwrap_or(self.ttl);
                self.extended(invoke_ns, task.valid_until_ns(&self.guard));
                Held::Still(())
            }
            Err(error) => self.not_extended(task, &error),
        }
    }

    fn not_extended(&self, task: &Task, error: &Error) -> Held<()> {
        task.pen.note(&error.to_string());
        match error.kind() {
            ErrorKind::Lost => {
                self.told_lost(task, error);
                return Held::Lost(error.reason());
            }
            ErrorKind::Unavailable => self.look(task),
            _ => task.pen.flaw(&format!("extend failed with {error}")),
        }
        Held::Still(())
    }

    /// A loss is told, for a reason that may be none.
    pub(crate) fn told_lost(&self, task: &Task, error: &Error) {
        task.pen.note(&error.to_string());
        self.look(task);
        let is_over = task.pen.now_ns() >= self.valid_until_ns.load(Ordering::Relaxed);
        if task.keeps_keys && !is_over && matches!(error.reason(), Some(LostReason::Deleted | LostReason::Taken)) {
            task.pen.flaw(&format!("a lock whose keys are there was told lost: {error}"));
        }
    }

    /// After a loss was told.
    async fn lost(self, task: &mut Task) {
        let Self { guard, mut tenure, margin, .. } = self;
        let kind = guard.check().map_err(|error| error.kind());
        if kind != Err(ErrorKind::Lost) || guard.is_held() || !guard.remaining().is_zero() {
            task.pen.flaw(&format!("a lock that was told lost answers {kind:?}"));
        }
        if !margin.is_zero() && task.dice.chance(700) {
            // Its user stops in the margin, or later.
            let most = u64::try_from(task.pace.passes(margin).as_millis()).unwrap_or(0);
            task.pen.world.sleep(task.dice.millis(0, 2 * most)).await;
        }
        // At most what is left of the margin is given up by that.
        tenure.release();
        if task.dice.chance(500) {
            drop(guard.release().await);
        }
    }

    async fn finish(self, task: &mut Task) {
        let Self { guard, mut tenure, node_timeout, .. } = self;
        tenure.release();
        let invoke_ns = task.pen.now_ns();
        if task.dice.chance(250) {
            task.pen.note("drops its guard");
            drop(guard);
            return;
        }
        let patience = task.patience_mostly();
        task.pen.begins("releases");
        let result = cancelled(&task.pen.world, guard.release(), patience).await;
        drop(tenure);
        task.in_time("release", invoke_ns, CONNECT + node_timeout.max(RELEASE));
        if let Some(Err(error)) = result {
            task.pen.note(&error.to_string());
            if !matches!(error.kind(), ErrorKind::Lost | ErrorKind::Unavailable) {
                task.pen.flaw(&format!("release failed with {error}"));
            }
        }
    }
}
