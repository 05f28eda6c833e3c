//! The worker of the benchmark for rslock: everything but the library's own calls is in `redlock-bench-worker`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use redlock_bench_worker::{Args, Failure, Subject, Wait, serve, spawn_async};
use rslock::{LockGuard, LockManager};

struct Rslock;

#[derive(Clone)]
struct Client {
    manager: LockManager,
    ttl: Duration,
}

impl Subject for Rslock {
    type Client = Client;
    type Held = LockGuard;

    fn version() -> &'static str {
        "0.10.0"
    }

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        spawn_async(work)
    }

    fn open(urls: &[String], ttl: Duration) -> Result<Self::Client, Failure> {
        Ok(Client { manager: LockManager::new(urls.to_vec()), ttl })
    }

    async fn acquire(client: &Self::Client, name: &str) -> Result<Self::Held, Failure> {
        Ok(client.manager.acquire(name, client.ttl).await?)
    }

    async fn release(held: Self::Held) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}

fn main() -> ExitCode {
    match serve::<Rslock>(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redlock-bench-rslock: {error}");
            ExitCode::FAILURE
        }
    }
}
