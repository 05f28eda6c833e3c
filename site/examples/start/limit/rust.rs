use std::time::Duration;

use redlock::{ErrorKind, Redlock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    let somebody = redlock.lock("report").await?; // somebody has it
    match redlock.lock("report").timeout(Duration::from_millis(500)).acquire().await {
        Ok(guard) => {
            println!("it is mine");
            guard.release().await?;
        }
        Err(error) if error.kind() == ErrorKind::Timeout => println!("others held it until the time limit"),
        Err(error) => return Err(error),
    }
    somebody.release().await
}
