//! The metrics as Prometheus scrapes them: `cargo run --features metrics --example prometheus`.

use metrics_exporter_prometheus::PrometheusBuilder;
use redlock::Redlock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (prometheus, redlock) = (PrometheusBuilder::new().install_recorder()?, Redlock::from_env()?);
    redlock.lock("report").await?.release().await?;

    // Where your server answers /metrics:
    redlock::publish_metrics();
    print!("{}", prometheus.render());
    Ok(())
}
