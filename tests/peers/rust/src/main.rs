//! Does with a peer's lock what a test asks for: JSON lines in, JSON lines out, as tests/peers/README.md describes them.

mod peers;

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use peers::Rslock;

#[derive(Deserialize)]
struct Request {
    id: u64,
    #[serde(flatten)]
    op: Op,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Open { peer: String, urls: Vec<String> },
    Acquire { name: String, ttl_ms: u64, wait_ms: Option<u64> },
    Release,
}

async fn perform(session: &mut Option<Rslock>, op: Op) -> Result<Value, String> {
    match (op, session) {
        (Op::Open { peer, urls }, session) if peer == "rslock" => *session = Some(Rslock::open(urls)),
        (Op::Acquire { name, ttl_ms, wait_ms }, Some(session)) => {
            let wait = wait_ms.map(Duration::from_millis);
            let acquired = session.acquire(&name, Duration::from_millis(ttl_ms), wait).await;
            return Ok(json!({ "acquired": acquired.map_err(|error| error.to_string())? }));
        }
        (Op::Release, Some(session)) => session.release().await,
        _ => return Err("no such peer, or none is open".to_owned()),
    }
    Ok(json!({}))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut session = None;
    for line in std::io::stdin().lock().lines() {
        let Request { id, op } = serde_json::from_str(&line?)?;
        let mut answer = perform(&mut session, op).await.unwrap_or_else(|error| json!({ "error": error }));
        answer["id"] = id.into();
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
