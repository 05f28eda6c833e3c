//! A program that holds a lock and serves its metrics: `cargo run --features metrics-0_24 --example prometheus`.
#![allow(clippy::disallowed_methods, reason = "the work takes real time")]

use std::io;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redlock::Redlock;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    let redlock = Redlock::from_env()?;
    let listener = TcpListener::bind(std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:9464")).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    tokio::spawn(serve(listener, prometheus));

    redlock.lock("warm-up").await?.release().await?;
    let report = redlock.lock("report").await?;
    tokio::time::sleep(Duration::from_secs(60)).await; // the work
    Ok(report.release().await?)
}

/// Serves the metrics, as your web server would do at /metrics.
async fn serve(listener: TcpListener, prometheus: PrometheusHandle) -> io::Result<()> {
    loop {
        // A client that has gone does not end the others' service.
        drop(answer(listener.accept().await?.0, &prometheus).await);
    }
}

async fn answer(stream: TcpStream, prometheus: &PrometheusHandle) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    let mut line = String::from("GET");
    while !line.trim_end().is_empty() {
        line.clear();
        stream.read_line(&mut line).await?;
    }
    redlock::publish_metrics();
    let body = prometheus.render();
    let kind = "Content-Type: text/plain; version=0.0.4";
    let head = format!("HTTP/1.1 200 OK\r\n{kind}\r\nConnection: close\r\nContent-Length: {}", body.len());
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
    stream.flush().await
}
