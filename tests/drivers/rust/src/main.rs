//! Does with the Rust library what the conformance suite asks for: JSON lines in, JSON lines out, no judgement.
//!
//! The protocol is described in `tests/README.md`.

mod convert;
mod face;

use std::collections::HashMap;
use std::env;
use std::io::{self, BufRead, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redlock::{Error, ErrorKind};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::face::{Async, Blocking, Face};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--face", "rust"] => serve::<Async>("rust"),
        ["--face", "rust-blocking"] => serve::<Blocking>("rust-blocking"),
        _ => {
            eprintln!("usage: redlock-driver --face rust|rust-blocking");
            process::exit(2);
        }
    }
}

fn serve<F: Face>(face: &str) {
    let codes = ErrorKind::ALL.map(ErrorKind::code);
    say(&json!({"hello": {"language": "rust", "face": face, "protocol": 1, "codes": codes}}));
    let driver = Arc::new(Driver::<F>::new());
    let mut open = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.expect("the suite writes UTF-8");
        let request: Value = serde_json::from_str(&line).expect("the suite writes JSON");
        // Before the next line is read: a cancel must find the call that it is about.
        let (cancel, cancelled) = oneshot::channel();
        driver.cancels.put(convert::id(&request, "id"), Arc::new(Mutex::new(Some(cancel))));
        open.push(F::spawn(Arc::clone(&driver).answer(request, cancelled)));
    }
    for wait in open {
        wait();
    }
    // What is still held stays held: nothing is dropped, so nothing is released.
    process::exit(0);
}

/// Why there is no result: the library's error, or a request that this driver cannot perform.
enum Failure {
    Library(Error),
    Driver(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

/// What handles stand for.
struct Kept<T>(Mutex<HashMap<u64, T>>, &'static str);

impl<T: Clone> Kept<T> {
    fn new(missing: &'static str) -> Self {
        Self(Mutex::default(), missing)
    }

    fn put(&self, handle: u64, value: T) -> Value {
        self.0.lock().expect("no poison").insert(handle, value);
        json!({"handle": handle})
    }

    fn of(&self, request: &Value, key: &str) -> Result<T, Failure> {
        let kept = self.0.lock().expect("no poison");
        kept.get(&convert::id(request, key)).cloned().ok_or(Failure::Driver(self.1))
    }

    fn take(&self, request: &Value, key: &str) -> Result<T, Failure> {
        self.0.lock().expect("no poison").remove(&convert::id(request, key)).ok_or(Failure::Driver(self.1))
    }
}

struct Driver<F: Face> {
    handles: AtomicU64,
    clients: Kept<F::Client>,
    locks: Kept<F::Lock>,
    /// Under the handle of their lock.
    guards: Kept<Arc<F::Guard>>,
    /// Under the id of their call.
    cancels: Kept<Arc<Mutex<Option<oneshot::Sender<()>>>>>,
}

impl<F: Face> Driver<F> {
    fn new() -> Self {
        Self {
            handles: AtomicU64::new(1),
            clients: Kept::new("unknown client"),
            locks: Kept::new("unknown lock"),
            guards: Kept::new("no guard: a guard is what a handle holds from acquire to release"),
            cancels: Kept::new("unknown call"),
        }
    }

    async fn answer(self: Arc<Self>, request: Value, cancelled: oneshot::Receiver<()>) {
        let invoke_ns = convert::now_ns();
        let result = tokio::select! {
            biased;
            result = self.perform(&request) => result,
            Ok(()) = cancelled => Ok(json!({"cancelled": true})),
        };
        let mut answer = match result {
            Ok(ok) => json!({"ok": ok}),
            Err(Failure::Library(error)) => json!({"error": convert::error(&error)}),
            Err(Failure::Driver(message)) => json!({"error": {"code": "driver", "message": message}}),
        };
        answer["id"] = request["id"].clone();
        answer["invoke_ns"] = invoke_ns.into();
        answer["return_ns"] = convert::now_ns().into();
        say(&answer);
    }

    async fn perform(&self, request: &Value) -> Result<Value, Failure> {
        let client = || self.clients.of(request, "client");
        let lock = || self.locks.of(request, "lock");
        let guard = || self.guards.of(request, "lock");
        let next = || self.handles.fetch_add(1, Ordering::Relaxed);
        match request["op"].as_str().unwrap_or_default() {
            "client" => {
                let client = F::client(convert::nodes(request).as_deref(), convert::options(request))?;
                Ok(self.clients.put(next(), client))
            }
            "lock" => {
                let lock = F::lock(&client()?, &convert::name(request), convert::options(request))?;
                Ok(self.locks.put(next(), lock))
            }
            "acquire" => {
                let lock = match request.get("timeout_ms") {
                    Some(Value::Null) => F::timeout(lock()?, None),
                    Some(_) => F::timeout(lock()?, convert::duration(request, "timeout_ms")?),
                    None => lock()?,
                };
                let guard = F::acquire(lock).await?;
                Ok(self.hold(request, guard))
            }
            "try_acquire" => {
                let guard = F::try_acquire(lock()?).await?;
                Ok(guard.map_or_else(|| json!({"acquired": false}), |guard| self.hold(request, guard)))
            }
            "extend" => {
                let guard = guard()?;
                F::extend(&guard, convert::duration(request, "ttl_ms")?).await?;
                Ok(F::state(Some(&guard)))
            }
            "release" => {
                let guard = Arc::into_inner(self.guards.take(request, "lock")?);
                F::release(guard.ok_or(Failure::Driver("the guard is in use"))?).await?;
                Ok(json!({}))
            }
            "check" => {
                F::check(&*guard()?)?;
                Ok(json!({}))
            }
            "state" => Ok(F::state(guard().ok().as_deref())),
            "wait_lost" => {
                let limit = convert::duration(request, "limit_ms")?.unwrap_or_default();
                let lost = F::lost(&*guard()?, limit).await;
                Ok(json!({"lost": lost.as_ref().map(convert::error), "told_ns": convert::now_ns()}))
            }
            "inspect" => Ok(convert::views(&F::inspect(&client()?, &convert::name(request)).await?)),
            "cancel" if F::CANCELS => {
                let cancel = self.cancels.of(request, "call")?.lock().expect("no poison").take();
                // Nobody receives it when the call is over, which is as good.
                let _ = cancel.map(|cancel| cancel.send(()));
                Ok(json!({}))
            }
            "close" => self.clients.take(request, "client").map(|_| json!({})),
            _ => Err(Failure::Driver("no such op on this face")),
        }
    }

    fn hold(&self, request: &Value, guard: F::Guard) -> Value {
        let mut answer = F::state(Some(&guard));
        answer["acquired"] = true.into();
        self.guards.put(convert::id(request, "lock"), Arc::new(guard));
        answer
    }
}

fn say(line: &Value) {
    let line = format!("{line}\n");
    io::stdout().write_all(line.as_bytes()).expect("the suite reads the answers");
}
