//! What a task asks of locks.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redlock::testing::simulation::{Pace, World, validity};
use redlock::{Error, ErrorKind, Guard, Lock, LockState, LockView, Redlock};
use tokio::sync::Notify;

use crate::asked::{Asked, Patience};
use crate::book::{Pen, Pending, Tenure, nanos};
use crate::cast::Clients;
use crate::dice::Dice;
use crate::hold::Holding;
use crate::plan::{LONG, MASS_MOST, Mix};
use crate::run::all;
use crate::shape::{NAMES, Shape};

/// How the names begin that are taken at once.
pub(crate) const MASS: &str = "mass-";

/// The names that are taken at once.
pub(crate) fn mass_names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| (0..MASS_MOST).map(|number| &*format!("{MASS}{number}").leak()).collect())
}

/// A task that gets less than most of a mass tries again, but not for ever: each time costs thousands of messages.
const MASSES_MOST: usize = 4;

/// The name of a lock in the older SETNX protocol.
pub(crate) const OLDER: &str = "older";

/// Longest time that connecting may add to a call.
pub(crate) const CONNECT: Duration = Duration::from_secs(2);
/// Least time that a release gives the nodes.
pub(crate) const RELEASE: Duration = Duration::from_millis(250);
/// How much later than promised anything may be: timers count whole milliseconds, and clocks differ.
const LATE: Duration = Duration::from_millis(100);

/// The tasks of one process, and what each has still to do.
#[derive(Debug)]
pub(crate) struct Crew {
    left: Vec<AtomicUsize>,
    busy: AtomicUsize,
    done: Notify,
}

impl Crew {
    pub(crate) fn new(tasks: usize, calls: usize) -> Self {
        let left = (0..tasks).map(|_| AtomicUsize::new(calls)).collect();
        Self { left, busy: AtomicUsize::new(tasks), done: Notify::new() }
    }

    /// The tasks that are not done yet.
    pub(crate) fn busy(&self) -> Vec<usize> {
        (0..self.left.len()).filter(|task| self.left[*task].load(Ordering::Relaxed) > 0).collect()
    }

    /// Another call for `task`, if there is one left.
    fn begin(&self, task: usize) -> bool {
        self.left[task].load(Ordering::Relaxed) > 0
    }

    /// A call of `task` is over, be it because its process is.
    fn end(&self, task: usize) {
        if self.left[task].fetch_sub(1, Ordering::Relaxed) == 1 && self.busy.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.notify_one();
        }
    }

    /// Waits until all are done. Cancel safe.
    pub(crate) async fn done(&self) {
        while self.busy.load(Ordering::Relaxed) > 0 {
            self.done.notified().await;
        }
    }
}

/// One call of a task; over when dropped.
struct Turn<'a>(&'a Crew, usize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

/// One task of one process.
#[expect(clippy::struct_excessive_bools, reason = "what the plan says, each apart from the others")]
pub(crate) struct Task {
    pub(crate) pen: Pen,
    pub(crate) clients: Clients,
    pub(crate) pace: Pace,
    pub(crate) ttl: Duration,
    /// Whether every lock has that ttl.
    pub(crate) one_ttl: bool,
    /// Whether its clock may stand still, so that a lock seems to live longer.
    pub(crate) stalls: bool,
    /// Whether nodes end and start again.
    pub(crate) restarts: bool,
    /// Whether nothing but an owner deletes a key before its time.
    pub(crate) keeps_keys: bool,
    /// How many locks it takes and drops at once, until it has had most of them.
    pub(crate) mass: usize,
    /// How often it has done so to the end.
    pub(crate) masses: usize,
    /// How long a message and its answer take, unless they are held up.
    pub(crate) journey: Duration,
    /// Whether there is one node, which locks of the older protocol need.
    pub(crate) one_node: bool,
    /// Whether the names of one lock have to be in one slot.
    pub(crate) are_clusters: bool,
    /// What it locks beside single names.
    pub(crate) mix: Mix,
    /// How many of its calls in a thousand it leaves alone.
    pub(crate) neglected_per_thousand: u64,
    /// What it neither polls nor drops any more; never locked, but a task has to be `Sync`.
    pub(crate) neglected: Mutex<Vec<<Lock as IntoFuture>::IntoFuture>>,
    pub(crate) dice: Dice,
}

impl Task {
    /// Calls until none are left.
    pub(crate) async fn run(mut self, crew: &Crew, number: usize) {
        while crew.begin(number) {
            let _turn = Turn(crew, number);
            let mut pause = self.dice.pick(&[0, 0, 10, 200]);
            if self.clients.are_brief() && pause > 0 {
                // As requests to a service that is not busy.
                pause = self.dice.pick(&[10, 200, 3_000]);
            }
            let pause = self.dice.millis(0, pause);
            self.pen.doing("pauses");
            self.pen.world.sleep(pause).await;
            self.call().await;
        }
        self.pen.doing("is done");
        if self.neglected.get_mut().is_ok_and(|neglected| !neglected.is_empty()) {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for one lock, however long it takes, and gives it back soon.
    pub(crate) async fn take_turns(mut self, crew: &Crew, number: usize) {
        while crew.begin(number) {
            let _turn = Turn(crew, number);
            let shape = self.turn();
            let asked = Asked::plainly(shape.lock(&self.client()).no_timeout(), shape, LONG);
            self.pen.begins(&format!("waits for its turn at {}", asked.shape.told()));
            let pending = asked.pending(&self.pen);
            match asked.lock.acquire().await {
                Ok(guard) => {
                    let mut tenure = pending.win(&asked.won(&self.pen, self.pace, &guard));
                    self.pen.world.sleep(self.dice.millis(0, 30)).await;
                    tenure.release();
                    drop(guard.release().await);
                }
                Err(error) => {
                    pending.fail();
                    self.pen.flaw(&format!("acquire failed with {error}"));
                }
            }
        }
        self.pen.doing("is done");
    }

    /// What to wait for in turns: the first name, alone or with another one, or a permit.
    fn turn(&mut self) -> Shape {
        match self.dice.below(4) {
            0 if self.mix.sets > 0 => Shape::All(vec![NAMES[0], NAMES[2]]),
            1 if self.mix.permits > 0 => Shape::Permit(NAMES[0], self.mix.usual_permits),
            2 if self.mix.shared > 0 => Shape::Shared(NAMES[0]),
            _ => Shape::One(NAMES[0]),
        }
    }

    /// Acquires long locks and gives every one up half-way or at once: nothing may stay.
    pub(crate) async fn give_up(mut self, crew: &Crew, number: usize) {
        while crew.begin(number) {
            let _turn = Turn(crew, number);
            let shape = self.shape();
            let lock = shape.lock(&self.client()).timeout(Duration::from_secs(2));
            let asked = Asked::plainly(lock, shape, Duration::from_secs(60));
            let mut patience = self.patience();
            patience.time = patience.time.min(Duration::from_millis(50));
            self.pen.begins(&format!("gives up {}", asked.shape.told()));
            let pending = asked.pending(&self.pen);
            let acquired = cancelled(&self.pen.world, asked.lock.acquire(), patience).await;
            pending.fail();
            drop(acquired);
        }
        self.pen.doing("is done");
    }

    pub(crate) fn client(&mut self) -> Redlock {
        self.clients.any(&mut self.dice)
    }

    pub(crate) fn valid_until_ns(&self, guard: &Guard) -> u64 {
        valid_until_ns(&self.pen, self.pace, guard)
    }

    fn patience(&mut self) -> Patience {
        let longest = self.dice.pick(&[0, 5, 50, 500, 5_000]);
        let time = self.dice.millis(0, longest);
        Patience { time, polls: if self.dice.chance(500) { self.dice.between(1, 12) } else { u64::MAX } }
    }

    /// Usually without end.
    pub(crate) fn patience_mostly(&mut self) -> Patience {
        if self.dice.chance(200) { self.patience() } else { Patience::ENDLESS }
    }

    async fn call(&mut self) {
        if self.mass > 0 && self.dice.chance(100) {
            return self.take_mass().await;
        }
        match self.dice.below(20) {
            _ if self.dice.chance(self.mix.elections) => self.elect().await,
            0 => self.inspect().await,
            1 | 2 => self.run_under().await,
            3..=5 if self.one_node => self.acquire_older().await,
            6 | 7 => self.try_acquire().await,
            _ => self.acquire().await,
        }
    }

    /// Many locks at once, which are dropped at once, or cancelled on the way.
    async fn take_mass(&mut self) {
        let names = &mass_names()[..self.mass];
        let client = self.client();
        let patience = if self.dice.chance(500) {
            // While the answers are on their way.
            let journey = u64::try_from(self.journey.as_millis()).unwrap_or(0);
            Patience { time: self.dice.millis(1, 1 + journey), polls: u64::MAX }
        } else {
            Patience::ENDLESS
        };
        self.pen.begins(&format!("takes {} locks at once ({patience:?})", names.len()));
        let calls = names.iter().map(|name| {
            let shape = Shape::One(name);
            let asked = Asked::plainly(shape.lock(&client).timeout(Duration::ZERO), shape, LONG);
            let (pending, call) = (asked.pending(&self.pen), asked.lock.clone().into_future());
            async move { (asked, pending, call.await) }
        });
        let ended = Mutex::new(Vec::new());
        let taking = all(calls
            .map(|call| {
                Box::pin(async {
                    let end = call.await;
                    ended.lock().unwrap_or_else(PoisonError::into_inner).push(end);
                })
            })
            .collect());
        let is_done = cancelled(&self.pen.world, taking, patience).await.is_some();
        self.pen.note(if is_done { "has them" } else { "has cancelled what is left" });
        let mut held = Vec::new();
        for (asked, pending, result) in ended.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match result {
                Ok(guard) if guard.is_held() => {
                    held.push((pending.win(&asked.won(&self.pen, self.pace, &guard)), guard));
                }
                // Its time ran out while the task waited for the others, and nobody looked.
                Ok(_) => pending.fail(),
                Err(error) => {
                    pending.fail();
                    self.failed("acquire", Some(Duration::ZERO), &error);
                }
            }
        }
        self.pen.note(&format!("drops {} guards at once", held.len()));
        self.masses += usize::from(is_done);
        if held.len() > names.len() / 2 || self.masses == MASSES_MOST {
            self.mass = 0;
        }
        for (mut tenure, guard) in held {
            tenure.release();
            drop(guard);
        }
    }

    /// One lock, from acquire to the end.
    async fn acquire(&mut self) {
        let asked = self.asks();
        if self.neglected_per_thousand > 0
            && self.dice.chance(self.neglected_per_thousand)
            && let Some(timeout) = asked.timeout
        {
            return self.neglect(asked, timeout).await;
        }
        self.pen.begins(&format!("acquires {}", asked.told()));
        let pending = asked.pending(&self.pen);
        match cancelled(&self.pen.world, asked.lock.acquire(), asked.patience).await {
            None => self.gave_up(pending),
            Some(result) => {
                self.answered("acquire", pending.invoke_ns(), &asked);
                self.acquired(pending, &asked, result).await;
            }
        }
    }

    /// One lock, whose acquire is begun and then neither polled nor dropped.
    async fn neglect(&mut self, asked: Asked, timeout: Duration) {
        let longest = self.dice.pick(&[100, 500, 2_000]);
        // Usually past the attempt that is made where the caller is.
        let patience = Patience { time: self.dice.millis(20, longest), ..Patience::ENDLESS };
        let asked = Asked { patience, ..asked };
        self.pen.begins(&format!("acquires, to neglect it, {}", asked.told()));
        let pending = asked.pending(&self.pen);
        let mut call = asked.lock.clone().into_future();
        let result = match cancelled(&self.pen.world, &mut call, patience).await {
            Some(result) => result,
            // Where clocks run as they like nobody knows when what is left of it has run out.
            None if self.dice.chance(500) && !self.stalls => {
                self.pen.note("never polls again");
                pending.neglect(timeout);
                return self.neglected.get_mut().unwrap_or_else(PoisonError::into_inner).push(call);
            }
            None => {
                let longest = self.dice.pick(&[500, 2_000, 60_000]);
                let rest = self.dice.millis(0, longest);
                self.pen.note(&format!("does not poll for {rest:?}"));
                self.pen.world.sleep(rest).await;
                call.await
            }
        };
        self.acquired(pending, &asked, result).await;
    }

    async fn try_acquire(&mut self) {
        let asked = Asked { timeout: Some(Duration::ZERO), ..self.asks() };
        self.pen.begins(&format!("tries {}", asked.told()));
        let pending = asked.pending(&self.pen);
        match cancelled(&self.pen.world, asked.lock.try_acquire(), asked.patience).await {
            None => self.gave_up(pending),
            Some(result) => {
                self.answered("try_acquire", pending.invoke_ns(), &asked);
                match result.transpose() {
                    None => pending.fail(),
                    Some(result) => self.acquired(pending, &asked, result).await,
                }
            }
        }
    }

    pub(crate) fn gave_up(&self, pending: Pending) {
        self.pen.note("has given up");
        self.pen.book.open().cancelled += 1;
        pending.fail();
    }

    async fn acquired(&mut self, pending: Pending, asked: &Asked, result: Result<Guard, Error>) {
        match result {
            Ok(guard) => {
                if !guard.is_held() {
                    self.pen.flaw("acquire returned a lock that is not held");
                }
                asked.compare(&self.pen, &guard);
                let won = asked.won(&self.pen, self.pace, &guard);
                let tenure = pending.win(&won);
                Holding::new(guard, tenure, won.until_ns, asked).hold(self).await;
            }
            Err(error) => {
                pending.fail();
                self.failed("acquire", asked.timeout, &error);
            }
        }
    }

    pub(crate) fn failed(&self, what: &str, timeout: Option<Duration>, error: &Error) {
        self.pen.note(&error.to_string());
        if !self.restarts && error.nodes().iter().any(|node| node.answer.starts_with("restarted")) {
            self.pen.flaw(&format!("no node has restarted, but {what} says {error}"));
        }
        let known = match error.kind() {
            ErrorKind::Timeout => timeout.is_some(),
            ErrorKind::Unavailable => true,
            _ => false,
        };
        if !known {
            self.pen.flaw(&format!("{what} failed with {error}"));
        }
    }

    /// An acquire came back.
    fn answered(&self, what: &str, invoke_ns: u64, asked: &Asked) {
        let node_timeout = node_timeout(asked.ttl);
        let votes = if asked.shape.is_permit() { 5 } else { 2 };
        match asked.timeout {
            Some(Duration::ZERO) => self.in_time(what, invoke_ns, CONNECT + votes * node_timeout),
            Some(timeout) => self.in_time(what, invoke_ns, timeout),
            None => {}
        }
    }

    /// A call took no longer than `promised` on its own clock, and stood still for the rest.
    pub(crate) fn in_time(&self, what: &str, invoke_ns: u64, promised: Duration) {
        let took = Duration::from_nanos(self.pen.now_ns() - invoke_ns);
        let stopped = self.pen.fate.stopped_since(invoke_ns);
        let late = LATE + if stopped.is_zero() { Duration::ZERO } else { promised };
        if took.saturating_sub(stopped) > self.pace.passes(promised) + late {
            self.pen.flaw(&format!("{what} took {took:?}, promised are {promised:?}"));
        }
    }

    /// Something under a lock, which is released by itself.
    async fn run_under(&mut self) {
        let asked = self.asks();
        self.pen.begins(&format!("runs under {}", asked.told()));
        let pending = asked.pending(&self.pen);
        let longest = self.dice.pick(&[20, 300, 3_000]);
        let rest = self.dice.millis(0, longest);
        let (mut pending, mut tenure) = (Some(pending), None);
        let run = run_body(self, &asked, &mut pending, &mut tenure, rest);
        let result = cancelled(&self.pen.world.clone(), run, asked.patience).await;
        if let Some(pending) = pending {
            match result {
                Some(Err(error)) => {
                    self.answered("run", pending.invoke_ns(), &asked);
                    pending.fail();
                    self.failed("run", asked.timeout, &error);
                }
                _ => self.gave_up(pending),
            }
            return;
        }
        let Some(mut tenure) = tenure else { return };
        match result {
            Some(Err(error)) if error.kind() == ErrorKind::Lost && !tenure.is_releasing() => {
                tenure.lost(error.reason());
            }
            Some(Err(error)) if error.kind() != ErrorKind::Lost => self.pen.flaw(&format!("run failed with {error}")),
            _ => {}
        }
    }

    async fn inspect(&mut self) {
        let shape = self.shape();
        self.pen.begins(&format!("inspects {}", shape.told()));
        let (client, invoke_ns) = (self.client(), self.pen.now_ns());
        let patience = self.patience_mostly();
        let inspecting = async {
            match shape {
                Shape::Permit(name, permits) => client.inspect_semaphore(name, permits).await,
                _ => client.inspect(shape.names()[0]).await.map(|view| vec![view]),
            }
        };
        if let Some(result) = cancelled(&self.pen.world, inspecting, patience).await {
            // The node_timeout of the client's own options.
            self.in_time("inspect", invoke_ns, CONNECT + Duration::from_millis(500));
            let slots: Vec<Option<u32>> = match shape {
                Shape::Permit(_, permits) => (0..permits).map(Some).collect(),
                _ => vec![None],
            };
            match result {
                Ok(views) if !views.iter().all(is_whole) || !views.iter().map(|view| view.slot).eq(slots) => {
                    self.pen.flaw(&format!("inspect shows {views:?}"));
                }
                Ok(_) => {}
                Err(error) => self.pen.flaw(&format!("inspect failed with {error}")),
            }
        }
    }

    /// A lock of the older protocol, until it is released or lost.
    async fn acquire_older(&mut self) {
        let timeout = self.dice.millis(0, 4_000);
        let lock = self.client().setnx_lock(OLDER).ttl(self.ttl).timeout(timeout);
        let patience = self.patience_mostly();
        self.pen.begins(&format!("acquires {OLDER} (timeout {timeout:?}, {patience:?})"));
        let invoke_ns = self.pen.now_ns();
        let Some(result) = cancelled(&self.pen.world, lock.acquire(), patience).await else { return };
        self.in_time(
            "acquire",
            invoke_ns,
            if timeout.is_zero() { CONNECT } else { timeout } + 2 * node_timeout(self.ttl),
        );
        let guard = match result {
            Ok(guard) => guard,
            Err(error) => return self.failed("acquire", Some(timeout), &error),
        };
        let until_ns = self.pen.now_ns() + nanos(self.pace.passes(guard.remaining()));
        let mut tenure = self.pen.acquired_older(OLDER, invoke_ns, until_ns);
        let rest = self.dice.millis(0, 500);
        let lost = tokio::select! {
            biased;
            error = guard.lost() => Some(error),
            () = self.pen.world.sleep(rest) => None,
        };
        if let Some(error) = lost {
            return tenure.lost(error.reason());
        }
        tenure.release();
        self.pen.begins("releases in the older protocol");
        let patience = self.patience_mostly();
        let result = cancelled(&self.pen.world, guard.release(), patience).await;
        drop(tenure);
        if let Some(Err(error)) = result
            && !matches!(error.kind(), ErrorKind::Lost | ErrorKind::Unavailable)
        {
            self.pen.flaw(&format!("release failed with {error}"));
        }
    }
}

/// The whole of a run under a lock. Leaves in `tenure` whose lock it was.
async fn run_body(
    task: &Task,
    asked: &Asked,
    pending: &mut Option<Pending>,
    tenure: &mut Option<Tenure>,
    rest: Duration,
) -> Result<(), Error> {
    asked
        .lock
        .run(async |guard: &Guard| {
            asked.compare(&task.pen, guard);
            if let Some(pending) = pending.take() {
                *tenure = Some(pending.win(&asked.won(&task.pen, task.pace, guard)));
            }
            // Not as long as it would need a renewal.
            task.pen.world.sleep(rest.min(task.pace.passes(guard.remaining() / 2))).await;
            tenure.as_mut().map(Tenure::release);
        })
        .await
}

/// Whether the parts of a view agree: a lock with an owner is on a quorum and expires, one of ours has a fence, and one that
/// is shared has readers.
fn is_whole(view: &LockView) -> bool {
    let is_ours = matches!(view.state, LockState::Held | LockState::Shared);
    let has_owner = is_ours || view.state == LockState::Foreign;
    let (is_on_quorum, expires) = (view.holders >= view.quorum, view.ttl_left.is_some());
    [is_on_quorum, expires] == [has_owner; 2]
        && [view.fence.is_some(), view.since.is_some()] == [is_ours; 2]
        && view.readers.is_some_and(|readers| readers > 0) == (view.state == LockState::Shared)
}

pub(crate) fn node_timeout(ttl: Duration) -> Duration {
    (ttl / 4).clamp(Duration::from_millis(50), Duration::from_millis(500))
}

/// In virtual time, until when a lock can be relied on, or could before it was lost.
pub(crate) fn valid_until_ns(pen: &Pen, pace: Pace, guard: &Guard) -> u64 {
    match validity(guard) {
        Ok(left) => pen.now_ns() + nanos(pace.passes(left)),
        Err(over) => pen.now_ns().saturating_sub(nanos(pace.passes(over))),
    }
}

/// Runs `future` until its caller loses patience and drops it.
pub(crate) async fn cancelled<T>(world: &World, future: impl Future<Output = T>, patience: Patience) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = pin!(world.sleep(patience.time));
    let mut left = patience.polls;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        left -= 1;
        if left == 0 || timer.as_mut().poll(cx).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
