//! Performs the suite's requests with the Rust library: JSON lines in, JSON lines out, without judging.
//!
//! The protocol is described in `tests/README.md`.

mod candidate;
mod heard;
mod json;
mod kept;
mod perform;

use std::alloc::System;
use std::env;
use std::io::{self, BufRead, Write};
use std::process;
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

use cap::Cap;
use face::Which;
use redlock::ErrorKind;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tracing::{Instrument, info_span};

use crate::json::{Failure, Request, now_ns};
use crate::perform::{CANCELS, perform};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime can be made"));

fn main() {
    let name = env::args().nth(2).unwrap_or_default();
    let Ok(face) = name.parse() else {
        eprintln!("usage: redlock-driver --face rust|rust-blocking");
        process::exit(2);
    };
    heard::listen();
    serve(&name, face);
}

fn serve(name: &str, face: Which) {
    let codes = ErrorKind::ALL.map(ErrorKind::code);
    say(&json!({"hello": {"language": "rust", "face": name, "protocol": 1, "codes": codes}}));
    let (open, all_answered) = channel();
    for line in io::stdin().lock().lines() {
        let line = line.expect("the suite writes UTF-8");
        let request: Request = serde_json::from_str(&line).expect("the suite writes requests");
        // This is done before the next line is read, because a cancel must find its call.
        let (cancel, cancelled) = oneshot::channel();
        CANCELS.put(request.id, cancel);
        let open = open.clone();
        let answered = async move {
            answer(face, request, cancelled).await;
            drop::<Sender<()>>(open);
        };
        drop(face.spawn(&RUNTIME, answered.instrument(info_span!("caller"))));
    }
    drop(open);
    // Nothing is ever sent: it is over when all have been dropped.
    let _ = all_answered.recv();
    // Held locks stay held: nothing is dropped, so nothing is released.
    process::exit(0);
}

async fn answer(face: Which, request: Request, cancelled: oneshot::Receiver<()>) {
    let (id, invoke_ns) = (request.id, now_ns());
    let result = tokio::select! {
        biased;
        result = perform(face, request) => result,
        Ok(()) = cancelled => Ok(json!({"cancelled": true})),
    };
    let return_ns = now_ns();
    drop(CANCELS.take(id));
    let (outcome, value) = match result {
        Ok(value) => ("ok", value),
        Err(Failure(value)) => ("error", value),
    };
    say(&json!({"id": id, (outcome): value, "invoke_ns": invoke_ns, "return_ns": return_ns}));
}

fn say(line: &Value) {
    let line = format!("{line}\n");
    io::stdout().write_all(line.as_bytes()).expect("the suite reads the answers");
}
