//! The weather between processes and nodes, and the trace of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redlock::simulation::{Fate, Leg, Network};
use redlock_history::{Kind, Record};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::book::{Shared, nanos, seen};
use crate::dice::Dice;
use crate::plan::Plan;

/// Messages in one run, far more than any run that comes to an end needs.
const MESSAGES_MOST: u64 = 200_000;

#[derive(Debug)]
pub(crate) struct Weather {
    /// Where time is virtual; who writes a trace may be elsewhere.
    runtime: Handle,
    start: Instant,
    state: Mutex<State>,
    messages: AtomicU64,
    flooded: Notify,
    trace: Option<Mutex<Vec<String>>>,
    book: OnceLock<Shared>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    delay_ms: u64,
    late_per_thousand: u64,
    lost_per_ten_thousand: u64,
    twice_per_thousand: u64,
}

impl Weather {
    pub(crate) fn new(plan: &Plan, dice: Dice, traced: bool) -> Self {
        let state = State {
            dice,
            delay_ms: plan.delay_ms,
            late_per_thousand: plan.late_per_thousand,
            lost_per_ten_thousand: plan.lost_per_ten_thousand,
            twice_per_thousand: plan.twice_per_thousand,
        };
        Self {
            runtime: Handle::current(),
            start: Instant::now(),
            state: Mutex::new(state),
            messages: AtomicU64::new(0),
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

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

impl Network for Weather {
    fn fate(&self, _process: usize, _node: usize, leg: Leg) -> Fate {
        if self.messages.fetch_add(1, Ordering::Relaxed) == MESSAGES_MOST {
            self.flooded.notify_one();
        }
        let mut state = self.state();
        let (delay, late, lost) = (state.delay_ms, state.late_per_thousand, state.lost_per_ten_thousand);
        let dice = &mut state.dice;
        if leg == Leg::Write {
            // Usually written as soon as the connection's task runs.
            return Fate::Deliver(if dice.chance(late) { dice.millis(0, 30) } else { Duration::ZERO });
        }
        if dice.below(10_000) < lost {
            return if dice.chance(300) { Fate::Drop } else { Fate::Break };
        }
        let tail = if dice.chance(late) { dice.pick(&[30, 100, 300, 800, 2_500]) } else { 0 };
        Fate::Deliver(dice.millis(0, delay) + dice.millis(0, tail))
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
        if let Some(book) = self.book.get() {
            let now_ns = nanos(self.start.elapsed());
            let record = seen(Kind::Granted, &format!("node {}", node + 1), name, now_ns, now_ns, Some(fence));
            book.open().history.push(Record { token: Some(token.to_owned()), ..record });
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
