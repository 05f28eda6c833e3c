//! The program of docs/quick-start.md: `REDLOCK_URLS=redis://127.0.0.1:6379 cargo run --example quickstart`.

use std::time::Duration;

use redlock::{ErrorKind, Redlock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?; // REDLOCK_URLS, or redis://127.0.0.1:6379

    // Wait for the lock, work, release it. A guard that is dropped, as by `?`, is released too.
    let guard = redlock.lock("invoice:17").await?;
    println!("held for {:?} more, fence {}", guard.remaining(), guard.fence());
    guard.release().await?;

    // Or let it be released whatever happens inside.
    let lines = redlock.lock("report").ttl(Duration::from_secs(30)).run(async |_guard| 3).await?;
    println!("{lines} lines");

    // Or try once, or wait for no longer than this.
    if let Some(guard) = redlock.lock("cron:nightly").try_acquire().await? {
        match redlock.lock("cron:nightly").timeout(Duration::from_millis(50)).acquire().await {
            Err(error) if error.kind() == ErrorKind::Timeout => println!("{error}"),
            other => drop(other?),
        }
        guard.release().await?;
    }
    Ok(())
}
