//! What a task is about to ask for.

use std::time::Duration;

use redlock::testing::simulation::Pace;
use redlock::{Fixed, Guard, Lock};

use crate::book::{Pen, Pending, Won, nanos};
use crate::client::{Task, valid_until_ns};
use crate::plan::LONG;
use crate::shape::{CONTESTED, NAMES, Shape};

/// A lock that is about to be asked for.
pub(crate) struct Asked {
    pub(crate) lock: Lock<Fixed>,
    pub(crate) shape: Shape,
    pub(crate) ttl: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) margin: Duration,
    pub(crate) patience: Patience,
}

/// When a caller gives up: after a time, or at the n-th await.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) time: Duration,
    pub(crate) polls: u64,
}

impl Patience {
    pub(crate) const ENDLESS: Self = Self { time: Duration::from_secs(100_000), polls: u64::MAX };
}

impl Asked {
    /// The options that come with the shape alone.
    pub(crate) fn plainly(lock: Lock<Fixed>, shape: Shape, ttl: Duration) -> Self {
        Self {
            lock: lock.ttl(ttl),
            shape,
            ttl,
            timeout: None,
            at_least: Duration::ZERO,
            margin: Duration::ZERO,
            patience: Patience::ENDLESS,
        }
    }

    /// How it is told.
    pub(crate) fn told(&self) -> String {
        let name = self.shape.told();
        let options = [("at least", self.at_least), ("margin", self.margin)];
        let given = options.iter().filter(|(_, value)| !value.is_zero());
        let given: Vec<String> = given.map(|(option, value)| format!(", {option} {value:?}")).collect();
        format!("{name} (timeout {:?}, {:?}{})", self.timeout, self.patience, given.concat())
    }

    pub(crate) fn pending(&self, pen: &Pen) -> Pending {
        Pending::new(pen, &self.shape, self.ttl)
    }

    /// A guard is what was asked for.
    pub(crate) fn compare(&self, pen: &Pen, guard: &Guard) {
        let mut names: Vec<&[u8]> = self.shape.names().iter().map(|name| name.as_bytes()).collect();
        names.sort_unstable();
        let (shape, slot) = (&self.shape, guard.slot());
        if guard.names() != names || slot.is_some() != shape.is_permit() {
            pen.flaw(&format!("a guard of {shape:?} has the names {:?} and slot {slot:?}", guard.names()));
        }
        if guard.remaining() > self.ttl.saturating_sub(self.margin) {
            pen.flaw(&format!("a lock with a margin of {:?} is valid for {:?}", self.margin, guard.remaining()));
        }
    }

    /// What a guard says that it has won, as late as it can be relied on and no later.
    pub(crate) fn won(&self, pen: &Pen, pace: Pace, guard: &Guard) -> Won {
        let passes_ns = |duration: Duration| nanos(pace.passes(duration));
        let until_ns = valid_until_ns(pen, pace, guard);
        // The drift makes that a little earlier than it was.
        let acquired_ns = until_ns.saturating_sub(passes_ns(self.ttl.saturating_sub(self.margin)));
        let least_until_ns = (!self.at_least.is_zero()).then(|| {
            // The clocks' rates, as far as the drift allows for them.
            let slack = self.at_least / 100 + Duration::from_millis(2);
            acquired_ns + passes_ns(self.at_least.saturating_sub(slack))
        });
        let margin_ns = (!self.margin.is_zero()).then(|| passes_ns(self.margin));
        Won { fence: guard.fence(), slot: guard.slot(), until_ns, least_until_ns, margin_ns, is_term: false }
    }
}

impl Task {
    /// One name mostly, or what else the plan has.
    pub(crate) fn shape(&mut self) -> Shape {
        let (mix, dice) = (self.mix, &mut self.dice);
        if dice.chance(mix.sets) {
            return Shape::several(dice, self.are_clusters);
        }
        let name = dice.pick(&NAMES[..CONTESTED]);
        if dice.chance(mix.permits) {
            let permits = if dice.chance(mix.other_permits) { dice.between(1, 4) } else { mix.usual_permits.into() };
            return Shape::Permit(name, u32::try_from(permits).unwrap_or(1));
        }
        if mix.shared > 0 && dice.chance(mix.shared) {
            return Shape::Shared(name);
        }
        Shape::One(if mix.sets > 0 && dice.chance(200) { dice.pick(&NAMES) } else { name })
    }

    pub(crate) fn asks(&mut self) -> Asked {
        let shape = self.shape();
        let timeout = match self.dice.below(10) {
            0..=2 => Some(Duration::ZERO),
            3 => None,
            _ => Some(self.dice.millis(1, 4_000)),
        };
        let ttl = if self.dice.chance(100) && !self.one_ttl { self.ttl * 2 } else { self.ttl };
        let auto_renew = self.dice.chance(500);
        let mut lock = shape.lock(&self.client()).ttl(ttl).auto_renew(auto_renew);
        lock = match timeout {
            Some(timeout) => lock.timeout(timeout),
            None => lock.no_timeout(),
        };
        if self.dice.chance(100) {
            lock = lock.max_hold(ttl + self.dice.millis(0, 2_000));
        }
        let (mut at_least, margin) = (Duration::ZERO, self.margin());
        if self.dice.chance(self.mix.at_least) && !matches!(shape, Shape::All(_) | Shape::Shared(_)) {
            let most = self.dice.pick(&[200, 2_000, 6_000]);
            at_least = self.dice.millis(1, most).min(ttl);
        }
        let lock = if at_least.is_zero() { lock } else { lock.at_least(at_least) };
        let lock = if margin.is_zero() { lock } else { lock.margin(margin) };
        Asked { lock, shape, ttl, timeout, at_least, margin, patience: self.patience_mostly() }
    }

    /// None mostly, and no more than every ttl that is asked for allows.
    pub(crate) fn margin(&mut self) -> Duration {
        if !self.dice.chance(self.mix.margin) {
            return Duration::ZERO;
        }
        let most = (self.ttl / 2).min(LONG / 10);
        self.dice.millis(1, u64::try_from(most.as_millis()).unwrap_or(1))
    }
}
