//! Acquires and releases of the async face that are dropped at random moments.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use redlock::{ErrorKind, Guard, Redlock};
use tokio::task::JoinSet;

use crate::args::Leak;
use crate::work::{RUNTIME, confirmed};

/// Few tasks, so that pending releases of a frozen node stay below the limit above which keys are left to expire.
const TASKS: u64 = 8;

/// The names that the tasks compete for.
const WANTED: u64 = 3;

const LONGEST: Duration = Duration::from_millis(20);

/// How often what happened.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) cancelled: AtomicU64,
    pub(crate) won: AtomicU64,
    pub(crate) releases_cancelled: AtomicU64,
}

/// Cancels until `count` acquires were cancelled, and returns when all releases have begun.
pub(crate) fn perform(client: &Redlock, leak: Option<Leak>, count: u64, rng: &mut Rng) -> Arc<Counts> {
    let counts = Arc::new(Counts::default());
    let leaks = leak == Some(Leak::Keys);
    RUNTIME.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (client, counts, mut rng) = (client.clone(), Arc::clone(&counts), rng.fork());
            tasks.spawn(async move {
                while counts.cancelled.load(Ordering::Relaxed) < count {
                    let name = if rng.bool() { rng.u64(..WANTED) } else { WANTED + task };
                    turn(&client, &name.to_string(), &counts, &mut rng, leaks).await;
                }
            });
        }
        tasks.join_all().await;
    });
    counts
}

async fn turn(client: &Redlock, name: &str, counts: &Counts, rng: &mut Rng, leaks: bool) {
    let lock = client.lock(name);
    match Moment::random(rng).cut(lock.acquire()).await {
        None => {
            counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
        Some(Ok(guard)) => {
            counts.won.fetch_add(1, Ordering::Relaxed);
            if rng.bool() {
                tokio::time::sleep(LONGEST.mul_f64(rng.f64())).await;
            }
            release(guard, counts, rng, leaks).await;
        }
        Some(Err(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable, "a frozen node does no more: {error}"),
    }
}

async fn release(guard: Guard, counts: &Counts, rng: &mut Rng, leaks: bool) {
    let moment = Moment::random(rng);
    if leaks {
        // This simulates a dropped release that was forgotten.
        std::mem::forget(guard);
        counts.releases_cancelled.fetch_add(1, Ordering::Relaxed);
        return;
    }
    match moment.cut(guard.release()).await {
        None => {
            counts.releases_cancelled.fetch_add(1, Ordering::Relaxed);
        }
        Some(ended) => confirmed(&ended),
    }
}

/// When a call is dropped, unless it has ended by then.
struct Moment {
    /// When it was polled so often, which for zero is before anything was sent, ...
    polls: u32,
    /// ... or after this time, for one that waits for others.
    limit: Duration,
}

impl Moment {
    fn random(rng: &mut Rng) -> Self {
        Self { polls: if rng.bool() { rng.u32(..6) } else { u32::MAX }, limit: LONGEST.mul_f64(rng.f64()) }
    }

    async fn cut<T>(self, call: impl Future<Output = T>) -> Option<T> {
        let mut call = pin!(call);
        let mut left = self.polls;
        let polls = poll_fn(|cx| {
            let ended = if left == 0 { Poll::Pending } else { call.as_mut().poll(cx).map(Some) };
            left = left.saturating_sub(1);
            if left == 0 && ended.is_pending() { Poll::Ready(None) } else { ended }
        });
        tokio::time::timeout(self.limit, polls).await.ok().flatten()
    }
}
