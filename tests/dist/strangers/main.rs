use redlock::Redlock;

#[tokio::main]
async fn main() -> Result<(), redlock::Error> {
    let node = std::env::args().nth(1).expect("a node");
    let guard = Redlock::new(&node)?.lock("stranger").acquire().await?;
    let fence = guard.fence();
    guard.release().await?;
    println!("{fence}");
    Ok(())
}
