//! How a lock is asked for: its shape and names, its options, and the way in which it is used. `asked.py` does the same,
//! and says what the figures are.

use std::time::Duration;

use face::{Client, Face, Guard, both};
use fastrand::Rng;
use redlock::Error;
use serde_json::{Value, json};

use crate::Fault;
use crate::worker::{Epoch, Shape, Way};

const HOT: f64 = 0.2;
const IMPATIENT: f64 = 0.2;
const OTHER_PERMITS: f64 = 0.1;
const CAREFUL: f64 = 0.1;
const CAREFUL_STALE: f64 = 0.5;
const LEAST_OFTEN: f64 = 0.05;
const LONG_TERM: f64 = 0.2;
const SET_MOST: usize = 4;
pub(crate) const SHORT: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(12);
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
const LEAST: Duration = Duration::from_millis(300);
const MARGIN: f64 = 0.25;
const CANCEL: Duration = Duration::from_millis(30);

/// How a lock is asked for.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) shape: Shape,
    pub(crate) way: Way,
    /// In their order.
    pub(crate) names: Vec<String>,
    /// Of a semaphore.
    permits: u32,
    pub(crate) ttl: Duration,
    pub(crate) margin: Duration,
    at_least: Duration,
    timeout: Option<Duration>,
    auto_renew: bool,
    restart_delay: Duration,
    /// Break it off after this time.
    cancel: Option<Duration>,
}

impl Asked {
    /// Returns what to ask for if a name is to be locked for a moment.
    pub(crate) fn plain(name: String, ttl: Duration) -> Self {
        Self {
            shape: Shape::One,
            way: Way::Brief,
            names: vec![name],
            permits: 0,
            ttl,
            margin: Duration::ZERO,
            at_least: Duration::ZERO,
            timeout: None,
            auto_renew: true,
            restart_delay: ttl,
            cancel: None,
        }
    }

    /// Returns what a hand asks for next.
    pub(crate) fn draw(rng: &mut Rng, epoch: &Epoch, ttl: Duration, fault: Option<Fault>) -> Self {
        let (shape, way) = (epoch.shape(rng.f64()), epoch.way(rng.f64()));
        if shape == Shape::Term {
            let way = if rng.f64() < LONG_TERM { Way::Long } else { Way::Busy };
            let name = one(rng, &epoch.names["term"]);
            return Self { shape, way, margin: ttl.mul_f64(MARGIN), ..Self::plain(name, ttl) };
        }
        let long = match way {
            Way::Long | Way::Manual | Way::Stale => Some("long"),
            Way::Lease => Some("lease"),
            _ => None,
        };
        let pool = long.unwrap_or(if rng.f64() < HOT { "hot" } else { "cool" });
        let (shape, names) = names(rng, epoch, shape, pool, long.is_some());
        let other = if rng.f64() < OTHER_PERMITS { one(rng, &[-1, 1]) } else { 0 };
        let patient = long.is_none() && rng.f64() > IMPATIENT;
        let own = match way {
            Way::Stale => SHORT,
            Way::Lease => LEASE,
            _ => ttl,
        };
        let is_careful = rng.f64() < if way == Way::Stale { CAREFUL_STALE } else { CAREFUL };
        let has_least = !matches!(shape, Shape::Set | Shape::Shared) && long.is_none() && rng.f64() < LEAST_OFTEN;
        Self {
            shape,
            way,
            names,
            permits: epoch.permits.saturating_add_signed(other),
            ttl: own,
            margin: if is_careful { own.mul_f64(MARGIN * rng.f64()) } else { Duration::ZERO },
            at_least: if has_least { LEAST.mul_f64(rng.f64()) } else { Duration::ZERO },
            timeout: (!patient).then_some(PATIENCE),
            auto_renew: !matches!(way, Way::Stale | Way::Manual) && fault != Some(Fault::Renewal),
            // A lease is not about what this process knows of restarts.
            restart_delay: if way == Way::Lease { ttl } else { own },
            cancel: (way == Way::Cancel && fault != Some(Fault::CleanUp)).then(|| CANCEL.mul_f64(rng.f64())),
        }
    }

    /// Returns the name, or all of them.
    pub(crate) fn name(&self) -> String {
        self.names.join(", ")
    }

    /// Adds what is recorded with each of its calls.
    pub(crate) fn tell(&self, line: &mut Value) {
        if self.names.len() > 1 {
            line["names"] = json!(self.names);
        }
        if self.shape == Shape::Shared {
            line["shared"] = json!(true);
        }
    }

    /// Returns what is recorded when `client` asks for it.
    pub(crate) fn asking(&self, client: &str, at_ns: u64) -> Value {
        let mut line = json!({
            "event": "asking",
            "client": client,
            "shape": self.shape,
            "name": self.name(),
            "at_ns": at_ns,
            "ttl_s": self.ttl.as_secs_f64(),
            "margin_s": self.margin.as_secs_f64(),
            "least_s": self.at_least.as_secs_f64(),
            "permits": (self.shape == Shape::Slot).then_some(self.permits),
        });
        self.tell(&mut line);
        line
    }

    /// Acquires the lock; `None` if it was broken off.
    pub(crate) async fn acquire(&self, client: &Client) -> Result<Option<Guard>, Error> {
        let timeout = match client {
            Face::Async(_) => self.timeout,
            // Nothing breaks it off but its own timeout.
            Face::Blocking(_) => self.cancel.or(self.timeout),
        };
        let lock = both!(client, client => {
            let lock = match self.shape {
                Shape::Set => client.lock_all(&self.names),
                Shape::Slot => client.semaphore(&self.names[0], self.permits),
                Shape::Shared => client.lock(&self.names[0]).shared(),
                Shape::One | Shape::Term => client.lock(&self.names[0]).into(),
            };
            let lock = lock.ttl(self.ttl).margin(self.margin).at_least(self.at_least);
            let lock = lock.auto_renew(self.auto_renew).restart_delay(self.restart_delay);
            match timeout {
                Some(timeout) => lock.timeout(timeout),
                None => lock.no_timeout(),
            }
        });
        match (self.cancel, client) {
            _ if self.way == Way::Try => lock.try_acquire().await,
            (Some(limit), Face::Async(_)) => tokio::time::timeout(limit, lock.acquire()).await.ok().transpose(),
            _ => lock.acquire().await.map(Some),
        }
    }
}

/// Returns the names of a lock of this shape. In a cluster, not every pool has names that can be locked together.
fn names(rng: &mut Rng, epoch: &Epoch, shape: Shape, pool: &str, is_long: bool) -> (Shape, Vec<String>) {
    match shape {
        Shape::Slot => (shape, vec![one(rng, &epoch.names[if is_long { "slot-long" } else { "slot" }])]),
        Shape::Set if !epoch.sets[pool].is_empty() => {
            let family = one(rng, &epoch.sets[pool]);
            let count = rng.usize(2..=SET_MOST.min(family.len()));
            let mut names = rng.choose_multiple(family, count);
            names.sort_unstable();
            (shape, names)
        }
        Shape::Shared => (shape, vec![one(rng, &epoch.names[pool])]),
        _ => (Shape::One, vec![one(rng, &epoch.names[pool])]),
    }
}

fn one<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    rng.choice(choices).expect("there are some").clone()
}
