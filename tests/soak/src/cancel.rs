//! Acquires and releases of the async face that are dropped at random moments, and elections that are stopped.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use redlock::{ErrorKind, Fixed, Guard, Lock, Redlock};
use tokio::task::JoinSet;

use crate::args::{Args, Leak, Shape};
use crate::work::{RUNTIME, WRITES, confirmed};

/// Few tasks, so that pending releases of a frozen node stay below the limit above which keys are left to expire.
const TASKS: u64 = 8;

/// The names that the tasks compete for.
const WANTED: u64 = 3;

/// How many permits the semaphore has, as one half of the callers count them.
const PERMITS: u32 = 2;

const LONGEST: Duration = Duration::from_millis(20);

/// How often what happened.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) cancelled: AtomicU64,
    pub(crate) won: AtomicU64,
    pub(crate) releases_cancelled: AtomicU64,
}

/// Cancels until `count` acquires were cancelled, and returns when all releases have begun.
pub(crate) fn perform(client: &Redlock, args: &Args, count: u64, rng: &mut Rng) -> Arc<Counts> {
    let counts = Arc::new(Counts::default());
    let (shape, leaks) = (args.shape, args.leak == Some(Leak::Keys));
    RUNTIME.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (client, counts, mut rng) = (client.clone(), Arc::clone(&counts), rng.fork());
            tasks.spawn(async move {
                while counts.cancelled.load(Ordering::Relaxed) < count {
                    if shape == Shape::Term {
                        campaign(&client, &counts, &mut rng).await;
                    } else {
                        turn(lock(&client, shape, task, &mut rng), &counts, &mut rng, leaks).await;
                    }
                }
            });
        }
        tasks.join_all().await;
    });
    counts
}

/// A lock of names that others want as well, or of one's own.
fn lock(client: &Redlock, shape: Shape, task: u64, rng: &mut Rng) -> Lock<Fixed> {
    match shape {
        Shape::Slot => client.semaphore("pool", PERMITS + u32::from(rng.bool())),
        Shape::Set => client.lock_all(rng.choose_multiple(0..=WANTED, 2).into_iter().map(|name| of(name, task))),
        Shape::Shared => {
            let lock = client.lock(rng.u64(..WANTED).to_string());
            if rng.u64(..WRITES) > 0 { lock.shared() } else { lock.into() }
        }
        Shape::One | Shape::Term => {
            let name = if rng.bool() { rng.u64(..WANTED) } else { WANTED };
            client.lock(of(name, task)).into()
        }
    }
}

/// One of the names, the last of which is the task's own.
fn of(name: u64, task: u64) -> String {
    if name < WANTED { name.to_string() } else { (WANTED + task).to_string() }
}

async fn turn(lock: Lock<Fixed>, counts: &Counts, rng: &mut Rng, leaks: bool) {
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

/// An election that is dropped or stopped at a random moment, in a campaign or in a term.
async fn campaign(client: &Redlock, counts: &Counts, rng: &mut Rng) {
    let election = client.election(rng.u64(..WANTED).to_string());
    let (moment, term) = (Moment::random(rng), LONGEST.mul_f64(rng.f64()));
    let stop = rng.bool().then(|| {
        let (election, limit) = (election.clone(), LONGEST.mul_f64(rng.f64()));
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            election.stop();
        })
    });
    let (led, resigned) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
    let (leads, resigns) = (Arc::clone(&led), Arc::clone(&resigned));
    let run = election.run(async move |_| {
        leads.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(term).await;
        resigns.fetch_add(1, Ordering::Relaxed);
    });
    let ended = if stop.is_some() { Some(run.await) } else { moment.cut(run).await };
    if let Some(stop) = stop {
        stop.abort();
    }
    let ended = ended.transpose().expect("a frozen node does not end an election").flatten();
    let (led, resigned) = (led.load(Ordering::Relaxed), resigned.load(Ordering::Relaxed));
    counts.won.fetch_add(led, Ordering::Relaxed);
    if led > resigned {
        counts.releases_cancelled.fetch_add(1, Ordering::Relaxed);
    }
    if ended.is_none() {
        counts.cancelled.fetch_add(1, Ordering::Relaxed);
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
