//! A hand: one holder after the other.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use face::{Client, Guard};
use fastrand::Rng;
use serde_json::json;

use crate::Fault;
use crate::asked::Asked;
use crate::hold::{Call, Hold, complain};
use crate::journal::now_ns;
use crate::store::Store;
use crate::worker::{Epoch, Way, Worker};

const HOT: f64 = 0.2;
const IMPATIENT: f64 = 0.2;
const SHORT: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(2);
const CANCEL: Duration = Duration::from_millis(30);
const BUSY: Duration = Duration::from_millis(50);
/// How often a holder asks whether it still holds the lock.
const LOOK: Duration = Duration::from_millis(20);
/// The pause after a failed call, so that an outage does not cause a storm.
const BREATH: Duration = Duration::from_millis(50);

pub(crate) struct Hand {
    worker: Arc<Worker>,
    redlock: Client,
    client: String,
    number: usize,
    store: Store,
    rng: Rng,
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
        let way = epoch.way(self.rng.f64());
        let pool = match way {
            Way::Long | Way::Manual | Way::Stale => "long",
            Way::Lease => "lease",
            _ if self.rng.f64() < HOT => "hot",
            _ => "cool",
        };
        let name = self.rng.choice(&epoch.names[pool]).expect("there are names").clone();
        let patient = matches!(pool, "hot" | "cool") && self.rng.f64() > IMPATIENT;
        let (ttl, fault) = (self.worker.ttl(), self.worker.args.fault);
        let asked = Asked {
            ttl: match way {
                Way::Stale => SHORT,
                Way::Lease => LEASE,
                _ => ttl,
            },
            timeout: (!patient).then_some(PATIENCE),
            auto_renew: !matches!(way, Way::Stale | Way::Manual) && fault != Some(Fault::Renewal),
            // A lease is not about what this process knows of restarts.
            restart_delay: ttl,
            cancel: (way == Way::Cancel && fault != Some(Fault::CleanUp)).then(|| CANCEL.mul_f64(self.rng.f64())),
            tries: way == Way::Try,
        };
        self.hold(&name, way, asked).await;
    }

    /// Acquires a lock that all workers want, in a time without trouble.
    async fn prove(&mut self, name: &str) {
        let ttl = self.worker.ttl();
        let asked = Asked { ttl, timeout: None, auto_renew: true, restart_delay: ttl, cancel: None, tries: false };
        if self.hold(name, Way::Brief, asked).await {
            self.worker.journal.write(&json!({"event": "served"}));
        }
    }

    /// Acquires the lock, works under it and releases it. Returns whether it was acquired.
    async fn hold(&mut self, name: &str, way: Way, asked: Asked) -> bool {
        let asked_ns = now_ns();
        let ttl_s = asked.ttl.as_secs_f64();
        let asking = json!({"event": "asking", "client": self.client, "name": name, "at_ns": asked_ns, "ttl_s": ttl_s});
        self.worker.journal.write(&asking);
        let guard = match asked.acquire(&self.redlock, name).await {
            Ok(Some(guard)) if way == Way::Cancel && self.worker.args.fault == Some(Fault::CleanUp) => {
                std::mem::forget(guard);
                self.denied(name, asked_ns);
                return false;
            }
            Ok(Some(guard)) => guard,
            denied => {
                if let Err(error) = denied {
                    complain(&self.worker, &self.client, "acquire", &error);
                }
                self.denied(name, asked_ns);
                self.redlock.sleep(BREATH).await;
                return false;
            }
        };
        let fence = guard.fence();
        let mut hold = Hold::begin(&self.worker, &self.client, name, asked_ns, fence, || guard.remaining());
        self.work(&mut hold, &guard, way).await;
        let asked_ns = hold.releasing();
        if way == Way::Block {
            let check = guard.check();
            drop(guard);
            hold.release_ended(asked_ns, check);
        } else {
            hold.release_ended(asked_ns, guard.release().await);
        }
        true
    }

    fn denied(&self, name: &str, asked_ns: u64) {
        let call = Call {
            client: &self.client,
            name,
            kind: "acquire",
            span_ns: (asked_ns, now_ns()),
            ok: false,
            fence: None,
            until_ns: None,
        };
        self.worker.journal.write(&call.line());
    }

    async fn work(&mut self, hold: &mut Hold, guard: &Guard, way: Way) {
        let value = self.store.read(&hold.name, hold.fence);
        let (ttl, unit) = (self.worker.ttl(), self.rng.f64());
        match way {
            Way::Busy => self.watch(hold, guard, BUSY.mul_f64(unit)).await,
            Way::Long => self.watch(hold, guard, ttl.mul_f64(1.0 + 1.5 * unit)).await,
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
                    self.watch(hold, guard, ttl / 2).await;
                    if !hold.lost && self.worker.epoch().is_some() {
                        let asked_ns = now_ns();
                        hold.extend_ended(asked_ns, guard.extend().await, || guard.remaining());
                    }
                }
            }
            _ => {}
        }
        if let Some(value) = value.filter(|_| way == Way::Stale || !hold.lost) {
            self.store.write(&hold.name, hold.fence, value + 1);
        }
    }

    async fn watch(&self, hold: &mut Hold, guard: &Guard, time: Duration) {
        let end_ns = now_ns() + u64::try_from(time.as_nanos()).expect("a few seconds");
        while !hold.lost && self.worker.epoch().is_some() {
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            if left.is_zero() {
                break;
            }
            let told = guard.wait_lost(left.min(LOOK)).await;
            hold.look(&guard.check(), || guard.remaining());
            if told.is_some() {
                // A holder that does not listen for the loss continues.
                self.redlock.sleep(LOOK).await;
            }
        }
    }
}
