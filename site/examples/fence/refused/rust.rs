use redlock::Redlock;

/// Remembers the largest fence, and refuses smaller ones.
#[derive(Default)]
struct Store {
    fence: u64,
}

impl Store {
    fn write(&mut self, value: &str, fence: u64) {
        if fence < self.fence {
            println!("refused: {value}");
            return;
        }
        self.fence = fence;
        println!("written: {value}");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    let mut store = Store::default();
    let guard = redlock.lock("account:7").await?;
    let late = guard.fence(); // this holder is paused here, and loses the lock
    guard.release().await?;
    let guard = redlock.lock("account:7").await?;
    store.write("by the next holder", guard.fence());
    guard.release().await?;
    store.write("by the late holder", late);
    Ok(())
}
