//! The two faces of the Rust library behind one trait, so that the hand is written once.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use redlock::{Error, blocking};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::worker::Worker;

/// What a hand does, from its first turn to its last.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a lock is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) ttl: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) auto_renew: bool,
    pub(crate) restart_delay: Duration,
    /// Break it off after this time.
    pub(crate) cancel: Option<Duration>,
    /// Do not wait.
    pub(crate) tries: bool,
}

pub(crate) trait Face: Send + Sync + 'static {
    type Client: Clone + Send + Sync;
    type Guard: Send + Sync;

    fn run(hands: Vec<Work>);
    fn client(worker: &Worker) -> Self::Client;
    /// `None` if it was broken off.
    fn acquire(
        client: &Self::Client,
        name: &str,
        asked: Asked,
    ) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send;
    fn extend(guard: &Self::Guard) -> impl Future<Output = Result<(), Error>> + Send;
    fn release(guard: Self::Guard) -> impl Future<Output = Result<(), Error>> + Send;
    /// Waits so long, or until the lock is lost.
    fn wait_lost(guard: &Self::Guard, limit: Duration) -> impl Future<Output = Option<Error>> + Send;
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
    fn fence(guard: &Self::Guard) -> u64;
    fn remaining(guard: &Self::Guard) -> Duration;
    fn check(guard: &Self::Guard) -> Result<(), Error>;
}

pub(crate) struct Async;
pub(crate) struct Blocking;

/// The part that differs by an `.await` only.
macro_rules! face {
    ($lib:ident $(, $await:tt)?) => {
        type Client = $lib::Redlock;
        type Guard = $lib::Guard;

        fn client(worker: &Worker) -> Self::Client {
            let builder = $lib::Redlock::builder().nodes(nodes()).label(&worker.args.name);
            builder.build().expect("the nodes' URLs are right")
        }

        async fn extend(guard: &Self::Guard) -> Result<(), Error> {
            guard.extend()$(.$await)?
        }

        async fn release(guard: Self::Guard) -> Result<(), Error> {
            guard.release()$(.$await)?
        }

        fn fence(guard: &Self::Guard) -> u64 {
            guard.fence()
        }

        fn remaining(guard: &Self::Guard) -> Duration {
            guard.remaining()
        }

        fn check(guard: &Self::Guard) -> Result<(), Error> {
            guard.check()
        }
    };
}

/// A lock as it is asked for.
macro_rules! lock {
    ($client:ident, $name:ident, $asked:ident) => {{
        let lock = $client.lock($name).ttl($asked.ttl).auto_renew($asked.auto_renew);
        let lock = lock.restart_delay($asked.restart_delay);
        match $asked.timeout {
            Some(timeout) => lock.timeout(timeout),
            None => lock.no_timeout(),
        }
    }};
}

impl Face for Async {
    face!(redlock, await);

    fn run(hands: Vec<Work>) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        runtime.block_on(async { hands.into_iter().collect::<JoinSet<()>>().join_all().await });
    }

    async fn acquire(client: &Self::Client, name: &str, asked: Asked) -> Result<Option<Self::Guard>, Error> {
        let lock = lock!(client, name, asked);
        match asked.cancel {
            _ if asked.tries => lock.try_acquire().await,
            Some(limit) => tokio::time::timeout(limit, lock.acquire()).await.ok().transpose(),
            None => lock.acquire().await.map(Some),
        }
    }

    async fn wait_lost(guard: &Self::Guard, limit: Duration) -> Option<Error> {
        tokio::time::timeout(limit, guard.lost()).await.ok()
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }
}

impl Face for Blocking {
    face!(blocking);

    fn run(hands: Vec<Work>) {
        let threads: Vec<_> = hands.into_iter().map(|hand| thread::spawn(|| complete(hand))).collect();
        for thread in threads {
            thread.join().expect("a hand did not panic");
        }
    }

    async fn acquire(client: &Self::Client, name: &str, asked: Asked) -> Result<Option<Self::Guard>, Error> {
        let lock = lock!(client, name, asked);
        match asked.cancel {
            _ if asked.tries => lock.try_acquire(),
            // Nothing breaks it off but its own timeout.
            Some(limit) => lock.timeout(limit).acquire().map(Some),
            None => lock.acquire().map(Some),
        }
    }

    async fn wait_lost(guard: &Self::Guard, limit: Duration) -> Option<Error> {
        guard.wait_lost(limit)
    }

    async fn sleep(time: Duration) {
        thread::sleep(time);
    }
}

/// Runs a hand of the blocking face: every call blocks inside the first poll.
fn complete(hand: Work) {
    match pin!(hand).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(()) => {}
        Poll::Pending => unreachable!("a blocking call does not wait for a waker"),
    }
}

fn nodes() -> Vec<String> {
    let urls = std::env::var("REDLOCK_URLS").expect("REDLOCK_URLS names the nodes");
    urls.split(',').map(Into::into).collect()
}
