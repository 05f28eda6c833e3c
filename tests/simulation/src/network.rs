//! The weather between processes and nodes, and the trace of a run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Leg, Network};
use redlock_history::{Kind, Record};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::book::{Shared, nanos, seen};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::shape::lock_of;

/// Messages in one run, more than any run that comes to an end needs: a server that tells nothing is polled.
const MESSAGES_MOST: u64 = 400_000;

/// As many more on each node for each lock that is taken together with others. That happens several times in a run, and
/// a release whose create was never answered is sent again until its ttl is over.
const MESSAGES_EACH: u64 = 500;

/// What is wrong with a key that was left.
const LENGTHENED: &str = "is kept for longer";

/// For how long refusals are counted.
pub(crate) const REFUSED_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Weather {
    /// Where time is virtual; who writes a trace may be elsewhere.
    runtime: Handle,
    start: Instant,
    state: Mutex<State>,
    messages: AtomicU64,
    messages_most: u64,
    flooded: Notify,
    trace: Option<Mutex<Vec<String>>>,
    book: OnceLock<Shared>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    least_ms: u64,
    delay_ms: u64,
    late_per_thousand: u64,
    lost_per_ten_thousand: u64,
    twice_per_thousand: u64,
    /// When each node last refused each process.
    refused: BTreeMap<(usize, usize), VecDeque<Duration>>,
    /// The most of them within a while.
    refused_most: usize,
}

impl Weather {
    pub(crate) fn new(plan: &Plan, dice: Dice, traced: bool) -> Self {
        let state = State {
            dice,
            least_ms: plan.unusual.least_ms,
            delay_ms: plan.delay_ms,
            late_per_thousand: plan.late_per_thousand,
            lost_per_ten_thousand: plan.lost_per_ten_thousand,
            twice_per_thousand: plan.twice_per_thousand,
            refused: BTreeMap::new(),
            refused_most: 0,
        };
        Self {
            runtime: Handle::current(),
            start: Instant::now(),
            state: Mutex::new(state),
            messages: AtomicU64::new(0),
            messages_most: MESSAGES_MOST + MESSAGES_EACH * (plan.nodes.len() * plan.unusual.mass) as u64,
            flooded: Notify::new(),
            trace: traced.then(Mutex::default),
            book: OnceLock::new(),
        }
    }

    /// What nodes grant is written there.
    pub(crate) fn write_to(&self, book: &Shared) {
        drop(self.book.set(book.clone()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing is lost, held up or doubled.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.late_per_thousand = 0;
        state.lost_per_ten_thousand = 0;
        state.twice_per_thousand = 0;
    }

    /// What was noted so far.
    pub(crate) fn trace(&self) -> Vec<String> {
        let lines = |trace: &Mutex<Vec<String>>| trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.trace.as_ref().map(lines).unwrap_or_default()
    }

    /// Waits until there have been more messages than in any run that comes to an end.
    pub(crate) async fn flooded(&self) {
        self.flooded.notified().await;
    }

    /// How often a node refused one process within [`REFUSED_WITHIN`], at most.
    pub(crate) fn refused_most(&self) -> usize {
        self.state().refused_most
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

impl Network for Weather {
    fn fate(&self, _process: usize, _node: usize, leg: Leg) -> Fate {
        if self.messages.fetch_add(1, Ordering::Relaxed) == self.messages_most {
            self.flooded.notify_one();
        }
        let mut state = self.state();
        let (least, delay, late, lost) =
            (state.least_ms, state.delay_ms, state.late_per_thousand, state.lost_per_ten_thousand);
        let dice = &mut state.dice;
        if leg == Leg::Write {
            // Usually written as soon as the connection's task runs.
            return Fate::Deliver(if dice.chance(late) { dice.millis(0, 30) } else { Duration::ZERO });
        }
        if dice.below(10_000) < lost {
            return if dice.chance(300) { Fate::Drop } else { Fate::Break };
        }
        let tail = if dice.chance(late) { dice.pick(&[30, 100, 300, 800, 2_500]) } else { 0 };
        Fate::Deliver(Duration::from_millis(least) + dice.millis(0, delay) + dice.millis(0, tail))
    }

    fn refused(&self, process: usize, node: usize, now: Duration) {
        let mut state = self.state();
        let times = state.refused.entry((process, node)).or_default();
        times.retain(|at| now < *at + REFUSED_WITHIN);
        times.push_back(now);
        let count = times.len();
        state.refused_most = state.refused_most.max(count);
    }

    fn echo(&self, _process: usize, _node: usize) -> Option<Duration> {
        let mut state = self.state();
        let twice = state.twice_per_thousand;
        let dice = &mut state.dice;
        (twice > 0 && dice.chance(twice)).then(|| {
            let most = dice.pick(&[0, 20, 500, 5_000]);
            dice.millis(0, most)
        })
    }

    fn granted(&self, node: usize, name: &str, token: &str, fence: u64) {
        if let (Some(book), Some((name, slot))) = (self.book.get(), lock_of(name)) {
            let now_ns = nanos(self.start.elapsed());
            let record = seen(Kind::Granted, &format!("node {}", node + 1), name, now_ns, now_ns, Some(fence));
            book.open().history.push(Record { token: Some(token.to_owned()), slot, ..record });
        }
    }

    fn lengthened(&self, node: usize, name: &str) {
        if let Some(book) = self.book.get() {
            let at = self.start.elapsed();
            let flaw = format!("node {} at {at:?}: {name} was left for its least time, and {LENGTHENED}", node + 1);
            book.open().flaws.push(flaw);
        }
    }

    fn note(&self, line: &dyn Fn() -> String) {
        if let Some(trace) = &self.trace {
            let _inside = self.runtime.enter();
            let line = format!("{:>9.3}  {}", self.start.elapsed().as_secs_f64(), line());
            trace.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }
}
