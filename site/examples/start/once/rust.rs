use redlock::Redlock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    if let Some(guard) = redlock.lock("cron:nightly").try_acquire().await? {
        println!("running it");
        guard.release().await?;
    } else {
        println!("another process is running it");
    }
    Ok(())
}
