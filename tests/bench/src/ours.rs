//! The two faces of this library.

use std::time::Duration;

use redlock::blocking;
use redlock_bench_worker::{Failure, Subject, Wait, run_blocking, spawn_async};

pub(crate) struct Async;
pub(crate) struct Blocking;

/// The part that differs by an `.await` only.
macro_rules! subject {
    ($lib:ident $(, $await:tt)?) => {
        type Client = $lib::Redlock;
        type Held = $lib::Guard;

        fn version() -> &'static str {
            env!("CARGO_PKG_VERSION")
        }

        fn open(urls: &[String], ttl: Duration) -> Result<Self::Client, Failure> {
            Ok($lib::Redlock::builder().nodes(urls).ttl(ttl).build()?)
        }

        async fn acquire(client: &Self::Client, name: &str) -> Result<Self::Held, Failure> {
            Ok(client.lock(name).acquire()$(.$await)??)
        }

        async fn release(held: Self::Held) -> Result<(), Failure> {
            Ok(held.release()$(.$await)??)
        }
    };
}

impl Subject for Async {
    subject!(redlock, await);

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        spawn_async(work)
    }
}

impl Subject for Blocking {
    subject!(blocking);

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        run_blocking(work)
    }

    async fn sleep(duration: Duration) {
        std::thread::sleep(duration);
    }
}
