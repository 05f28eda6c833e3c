use redlock::Redlock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), redlock::Error> {
    // In production: ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
    let client = Redlock::new(["memory://a", "memory://b", "memory://c"])?;
    let guard = client.lock("invoice:17").await?;
    let view = client.inspect("invoice:17").await?;
    println!("{}: {} of {} nodes are enough", view.state.as_str(), view.quorum, view.nodes.len());
    guard.release().await
}
