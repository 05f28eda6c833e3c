//! A hand: one holder after the other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use face::{Client, GuardRef};
use fastrand::Rng;
use serde_json::json;

use crate::Fault;
use crate::asked::{Asked, SHORT};
use crate::campaign::campaign;
use crate::hand_over::{hand_over, take};
use crate::hold::{Call, Hold, complain};
use crate::journal::now_ns;
use crate::store::Store;
use crate::worker::{Epoch, Shape, Way, Worker};

pub(crate) const BUSY: Duration = Duration::from_millis(50);
/// How often a holder asks whether it still holds the lock.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// The pause after a failed call, so that an outage does not cause a storm.
const BREATH: Duration = Duration::from_millis(50);

pub(crate) struct Hand {
    pub(crate) worker: Arc<Worker>,
    pub(crate) redlock: Client,
    pub(crate) client: String,
    number: usize,
    pub(crate) store: Store,
    pub(crate) rng: Rng,
}

impl Hand {
    pub(crate) fn new(worker: &Arc<Worker>, redlock: &Client, number: usize) -> Self {
        let client = format!("{}/{number}", worker.args.name);
        let mut hasher = DefaultHasher::new();
        (&worker.args.seed, number).hash(&mut hasher);
        Self {
            worker: Arc::clone(worker),
            redlock: redlock.clone(),
            store: Store::new(&worker.args.store, &client),
            client,
            number,
            rng: Rng::with_seed(hasher.finish()),
        }
    }

    /// Takes turns until the worker is to go.
    pub(crate) async fn run(mut self) {
        self.worker.park();
        while !self.worker.over() {
            let proof = if self.number == 0 { self.worker.take_proof() } else { None };
            if proof.is_none() && self.worker.epoch().is_none() {
                self.redlock.sleep(LOOK).await;
                continue;
            }
            self.worker.unpark();
            if let Some(name) = proof {
                self.prove(&name).await;
            }
            while let Some(epoch) = self.worker.epoch() {
                self.turn(&epoch).await;
            }
            self.worker.park();
        }
    }

    /// Uses one lock in one way.
    async fn turn(&mut self, epoch: &Epoch) {
        if take(self, epoch).await {
            return;
        }
        let asked = Asked::draw(&mut self.rng, epoch, self.worker.ttl(), self.worker.args.fault);
        if asked.shape == Shape::Term {
            campaign(self, &asked).await;
        } else {
            self.hold(&asked).await;
        }
    }

    /// Acquires a lock that all workers want, in a time without trouble.
    async fn prove(&mut self, name: &str) {
        let asked = Asked::plain(name.into(), self.worker.ttl());
        if self.hold(&asked).await {
            self.worker.journal.write(&json!({"event": "served"}));
        }
    }

    /// Acquires the lock, works under it and releases it. Returns whether it was acquired.
    async fn hold(&mut self, asked: &Asked) -> bool {
        let asked_ns = self.ask(asked, now_ns());
        let guard = match asked.acquire(&self.redlock).await {
            Ok(Some(guard)) if asked.way == Way::Cancel && self.worker.args.fault == Some(Fault::CleanUp) => {
                std::mem::forget(guard);
                self.worker.journal.write(&Call::denied(&self.client, asked, asked_ns).line());
                return false;
            }
            Ok(Some(guard)) => guard,
            denied => {
                if let Err(error) = denied {
                    complain(&self.worker, &self.client, "acquire", &error);
                }
                self.denied(asked, asked_ns).await;
                return false;
            }
        };
        let mut hold = Hold::begin(&self.worker, &self.client, asked, asked_ns, guard.lend());
        self.work(&mut hold, guard.lend(), || false).await;
        if asked.way == Way::Hand && !hold.lost {
            hand_over(self, &mut hold, guard).await;
            return true;
        }
        let asked_ns = hold.releasing();
        if asked.way == Way::Block {
            let check = guard.check();
            drop(guard);
            hold.release_ended(asked_ns, check);
        } else {
            hold.release_ended(asked_ns, guard.release().await);
        }
        true
    }

    /// Records that the hand asks for a lock since `at_ns`; returns that.
    pub(crate) fn ask(&self, asked: &Asked, at_ns: u64) -> u64 {
        self.worker.journal.write(&asked.asking(&self.client, at_ns));
        at_ns
    }

    /// Records that the lock was not acquired, and lets others go on.
    pub(crate) async fn denied(&self, asked: &Asked, asked_ns: u64) {
        self.worker.journal.write(&Call::denied(&self.client, asked, asked_ns).line());
        self.redlock.sleep(BREATH).await;
    }

    /// What is done under a lock, until its holder is told that this is over.
    pub(crate) async fn work(&mut self, hold: &mut Hold, guard: GuardRef<'_>, is_over: impl Fn() -> bool) {
        let stored = hold.stored();
        let values: Vec<_> = stored.iter().map(|name| self.store.read(name, hold.fence)).collect();
        let (ttl, unit, way) = (self.worker.ttl(), self.rng.f64(), hold.asked.way);
        match way {
            Way::Busy => self.watch(hold, guard, BUSY.mul_f64(unit), is_over).await,
            Way::Long => self.watch(hold, guard, ttl.mul_f64(1.0 + 1.5 * unit), is_over).await,
            Way::Stale => {
                let time = SHORT.mul_f64(0.8 + 0.6 * unit);
                let end_ns = now_ns() + u64::try_from(time.as_nanos()).expect("a second or so");
                if let Some(error) = guard.wait_lost(time).await {
                    hold.tell_lost(&error);
                    self.redlock.sleep(Duration::from_nanos(end_ns.saturating_sub(now_ns()))).await;
                }
            }
            Way::Manual => {
                for _ in 0..3 {
                    self.watch(hold, guard, ttl / 2, &is_over).await;
                    if !hold.lost && self.worker.epoch().is_some() {
                        let asked_ns = now_ns();
                        hold.extend_ended(asked_ns, guard.extend().await, guard);
                    }
                }
            }
            _ => {}
        }
        for (name, value) in stored.iter().zip(values) {
            match value.filter(|_| way == Way::Stale || !hold.lost) {
                Some(_) if hold.asked.shape == Shape::Shared => drop(self.store.read(name, hold.fence)),
                Some(value) => self.store.write(name, hold.fence, value + 1),
                None => {}
            }
        }
        if hold.lost {
            // Others have to wait for its margin, unless it says that it has stopped.
            self.redlock.sleep(hold.asked.margin.mul_f64(unit)).await;
        }
    }

    async fn watch(&self, hold: &mut Hold, guard: GuardRef<'_>, time: Duration, is_over: impl Fn() -> bool) {
        let end_ns = now_ns() + u64::try_from(time.as_nanos()).expect("a few seconds");
        while !hold.lost && self.worker.epoch().is_some() && !is_over() {
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            if left.is_zero() {
                break;
            }
            let told = guard.wait_lost(left.min(LOOK)).await;
            hold.look(guard);
            if told.is_some() {
                // A holder that does not listen for the loss continues.
                self.redlock.sleep(LOOK).await;
            }
        }
    }
}
