//! The weather between processes and nodes, and the trace of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::simulation::{Fate, Leg, Network};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::plan::Plan;

/// Messages in one run, far more than any run that comes to an end needs.
const MESSAGES_MOST: u64 = 2_000_000;

#[derive(Debug)]
pub(crate) struct Weather {
    start: Instant,
    state: Mutex<State>,
    messages: AtomicU64,
    trace: Option<Mutex<Vec<String>>>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    delay_ms: u64,
    late_per_thousand: u64,
    lost_per_ten_thousand: u64,
}

impl Weather {
    pub(crate) fn new(plan: &Plan, dice: Dice, traced: bool) -> Self {
        let state = State {
            dice,
            delay_ms: plan.delay_ms,
            late_per_thousand: plan.late_per_thousand,
            lost_per_ten_thousand: plan.lost_per_ten_thousand,
        };
        Self {
            start: Instant::now(),
            state: Mutex::new(state),
            messages: AtomicU64::new(0),
            trace: traced.then(Mutex::default),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing is lost or held up.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.late_per_thousand = 0;
        state.lost_per_ten_thousand = 0;
    }

    /// What was noted so far.
    pub(crate) fn trace(&self) -> Vec<String> {
        let lines = |trace: &Mutex<Vec<String>>| trace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.trace.as_ref().map(lines).unwrap_or_default()
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}

impl Network for Weather {
    fn fate(&self, _process: usize, _node: usize, leg: Leg) -> Fate {
        let messages = self.messages.fetch_add(1, Ordering::Relaxed);
        assert!(messages < MESSAGES_MOST, "more than {MESSAGES_MOST} messages: the run does not come to an end");
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

    fn note(&self, line: &dyn Fn() -> String) {
        if let Some(trace) = &self.trace {
            let line = format!("{:>9.3}  {}", self.start.elapsed().as_secs_f64(), line());
            trace.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }
}
