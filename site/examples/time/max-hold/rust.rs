use std::time::Duration;

use redlock::{ErrorKind, Redlock};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    let import = redlock.lock("import").ttl(Duration::from_secs(1)).max_hold(Duration::from_secs(1));
    // Work that hangs is dropped.
    match import.run(async |_guard| sleep(Duration::from_secs(60)).await).await {
        Err(error) if error.kind() == ErrorKind::Lost => {
            println!("lost: {}", error.reason().map_or("", |reason| reason.as_str()));
            Ok(())
        }
        other => other,
    }
}
