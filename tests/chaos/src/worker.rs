//! The process, and its orders.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Args;
use crate::journal::Journal;

/// The worker's command line.
#[derive(Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
enum Order {
    Epoch(Epoch),
    Rest,
    Prove { name: String },
}

#[derive(Deserialize)]
pub(crate) struct Epoch {
    /// The names of locks by their purpose.
    pub(crate) names: HashMap<String, Vec<String>>,
    /// By purpose, the names of which several can be locked together.
    pub(crate) sets: HashMap<String, Vec<Vec<String>>>,
    /// The permits of each semaphore, as most callers count them.
    pub(crate) permits: u32,
    /// How often a hand asks for what.
    shapes: BTreeMap<Shape, f64>,
    /// How often a hand does what.
    ways: BTreeMap<Way, f64>,
}

impl Epoch {
    /// The shape to ask for next; `unit` is random.
    pub(crate) fn shape(&self, unit: f64) -> Shape {
        chosen(&self.shapes, unit)
    }

    /// Whether locks are handed over.
    pub(crate) fn hands_over(&self) -> bool {
        self.ways.contains_key(&Way::Hand)
    }

    /// What to do next; `unit` is random.
    pub(crate) fn way(&self, unit: f64) -> Way {
        chosen(&self.ways, unit)
    }
}

fn chosen<T: Copy>(choices: &BTreeMap<T, f64>, unit: f64) -> T {
    let mut left = unit * choices.values().sum::<f64>();
    let chosen = choices.iter().find(|(_, often)| {
        left -= *often;
        left < 0.0
    });
    *chosen.expect("they go up to their sum").0
}

/// What a lock is on; `hand.py` says what they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shape {
    One,
    Set,
    Slot,
    Term,
    Shared,
}

/// What a hand may do; `hand.py` says what they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    Brief,
    Busy,
    Block,
    Cancel,
    Try,
    Long,
    Manual,
    Lease,
    Stale,
    Hand,
}

/// What all hands share.
pub(crate) struct Worker {
    pub(crate) args: Args,
    pub(crate) journal: Journal,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    epoch: Option<Arc<Epoch>>,
    proof: Option<String>,
    over: bool,
    /// How many hands rest.
    parked: usize,
}

impl Worker {
    pub(crate) fn new(args: Args) -> Self {
        let journal = Journal::new(&args.journal);
        Self { args, journal, told: Mutex::default() }
    }

    /// The ttl of most locks.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs_f64(self.args.ttl)
    }

    /// Obeys until the end of input.
    pub(crate) fn listen(&self) {
        for line in io::stdin().lines().map_while(Result::ok) {
            let order = serde_json::from_str(&line).expect("an order");
            let mut told = self.told();
            match order {
                Order::Epoch(epoch) => told.epoch = Some(Arc::new(epoch)),
                Order::Rest => {
                    told.epoch = None;
                    self.say_if_resting(&told);
                }
                Order::Prove { name } => told.proof = Some(name),
            }
        }
        let mut told = self.told();
        told.epoch = None;
        told.over = true;
    }

    /// The lock to use now, unless the hands rest.
    pub(crate) fn epoch(&self) -> Option<Arc<Epoch>> {
        self.told().epoch.clone()
    }

    /// The name to prove with, once.
    pub(crate) fn take_proof(&self) -> Option<String> {
        self.told().proof.take()
    }

    /// Whether the process should end.
    pub(crate) fn over(&self) -> bool {
        self.told().over
    }

    /// Counts one more resting hand.
    pub(crate) fn park(&self) {
        let mut told = self.told();
        told.parked += 1;
        self.say_if_resting(&told);
    }

    /// Counts one less resting hand.
    pub(crate) fn unpark(&self) {
        self.told().parked -= 1;
    }

    fn say_if_resting(&self, told: &Told) {
        if told.parked == self.args.hands {
            self.journal.write(&json!({"event": "resting"}));
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
