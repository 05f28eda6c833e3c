use std::time::Duration;

use redlock::Redlock;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    // After a crash, others wait for 1 s at most.
    let guard = redlock.lock("import").ttl(Duration::from_secs(1)).acquire().await?;
    sleep(Duration::from_secs(2)).await; // longer than the ttl
    println!("{}", if guard.is_held() { "renewed" } else { "lost" });
    guard.release().await
}
