use redlock::Redlock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    let guard = redlock.lock("invoice:17").await?;
    println!("working on invoice 17");
    guard.release().await
}
