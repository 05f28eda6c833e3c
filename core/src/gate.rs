//! The gate of a name: of all calls in this process that wait for it, one at a time talks to the servers.
//!
//! A waiting call is *in line*, in the order of arrival, → *in front*, when those before it have won, failed or gone →
//! *out*. What may interrupt it: dropped anywhere, it leaves the line, and the next one moves up; the process forks: the
//! child has its own gates, without anybody in line. Only the background stands in line, whose tasks are always driven:
//! a caller that stops polling its future keeps nobody back.
//!
//! A gate also keeps its process from coming back at once after a release when others are known to want the lock: whoever
//! has just released is nearest, and would win every time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::attempt::Ballots;
use crate::clock::Moment;

/// The gates of one set of nodes. There is one for each name that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    state: Mutex<State>,
    /// How many gates and yields there are: the way past an empty house costs no lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    gates: HashMap<Vec<u8>, (usize, Arc<Gate>)>,
    /// Until when this process leaves a name to others.
    yields: HashMap<Vec<u8>, Moment>,
}

/// What the calls that wait for one name share.
#[derive(Debug, Default)]
struct Gate {
    turn: tokio::sync::Mutex<()>,
    told: Mutex<Told>,
}

/// What the front has found out, for those behind it and for the next one in front.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// What the nodes said last.
    pub(crate) ballots: Option<Arc<Ballots>>,
    /// Since when no quorum has answered.
    pub(crate) unavailable_since: Option<Moment>,
}

impl Gates {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding this")
    }

    fn recount(&self, state: &State) {
        self.count.store(state.gates.len() + state.yields.len(), Ordering::Release);
    }

    /// Joins the line at the gate of `key`.
    pub(crate) fn enter(self: &Arc<Self>, key: &[u8]) -> InLine {
        let mut state = self.state();
        let (calls, gate) = state.gates.entry(key.to_vec()).or_default();
        *calls += 1;
        let gate = Arc::clone(gate);
        self.recount(&state);
        InLine { gates: Arc::clone(self), key: key.to_vec(), gate }
    }

    /// Until when a call that begins `now` has to leave `key` to others; `now` itself if it only has to join the line.
    /// `None` for one that may try at once.
    pub(crate) fn closed_until(&self, key: &[u8], now: Moment) -> Option<Moment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let state = self.state();
        let yielded = state.yields.get(key).copied().filter(|until| *until > now);
        yielded.or_else(|| state.gates.contains_key(key).then_some(now))
    }

    /// Others want `key`, which this process has just released: it leaves it to them until then.
    pub(crate) fn yield_until(&self, key: &[u8], until: Moment, now: Moment) {
        let mut state = self.state();
        state.yields.retain(|_, until| *until > now);
        let yielded = state.yields.entry(key.to_vec()).or_insert(until);
        *yielded = until.max(*yielded);
        self.recount(&state);
    }
}

/// A place in the line at one gate.
#[derive(Debug)]
pub(crate) struct InLine {
    gates: Arc<Gates>,
    key: Vec<u8>,
    gate: Arc<Gate>,
}

/// The front of the line, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "held to be dropped")] tokio::sync::MutexGuard<'a, ()>);

impl InLine {
    /// Waits for the front of the line. Cancel safe, but only the place keeps its order if it is polled on.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn(self.gate.turn.lock().await)
    }

    /// Tells those behind what the front has found out.
    pub(crate) fn tell(&self, told: Told) {
        *self.gate.told.lock().expect("no panic while holding this") = told;
    }

    /// What the front has found out so far.
    pub(crate) fn told(&self) -> Told {
        self.gate.told.lock().expect("no panic while holding this").clone()
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut state = self.gates.state();
        if let Some((calls, _)) = state.gates.get_mut(&self.key) {
            *calls -= 1;
            if *calls == 0 {
                state.gates.remove(&self.key);
                self.gates.recount(&state);
            }
        }
    }
}
