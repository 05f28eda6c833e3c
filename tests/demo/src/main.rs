//! The Rust worker of the demo: one process that fights for the lock.
//!
//! `demo.py` starts it beside its siblings `worker.py` and `worker.mjs`, which do the same. The lock protects a file
//! with a counter that each holder reads and writes back increased, so that two holders at once lose an update.

mod clock;
mod counter;
mod hold;
mod line;
mod orders;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::clock::now_ns;
use crate::hold::{Hold, Next, failed};
use crate::line::{Line, say};
use crate::orders::Orders;

/// The pause after a failed call.
const BREATH: Duration = Duration::from_millis(100);

/// Fight for a lock until standard input ends.
#[derive(Parser)]
struct Args {
    /// The face of the library to use.
    #[arg(long)]
    face: Face,
    /// The name of the lock.
    #[arg(long)]
    name: String,
    /// In milliseconds.
    #[arg(long)]
    ttl: u64,
    /// How long one acquire may wait, in milliseconds.
    #[arg(long)]
    timeout: u64,
    /// The file that the lock protects.
    #[arg(long)]
    file: PathBuf,
    /// The nodes' URLs.
    nodes: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Face {
    Async,
    Blocking,
}

fn main() {
    let args = Args::parse();
    match args.face {
        Face::Async => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be built").block_on(fight_async(&args));
        }
        Face::Blocking => fight_blocking(&args),
    }
}

async fn fight_async(args: &Args) {
    let (ttl, timeout) = (Duration::from_millis(args.ttl), Duration::from_millis(args.timeout));
    let redlock = redlock::Redlock::builder().nodes(&args.nodes).ttl(ttl).timeout(timeout).build();
    let redlock = redlock.expect("the nodes' URLs are valid");
    say(&Line::Ready);
    let orders = Orders::await_start();
    while !orders.stopped() {
        let asked_ns = now_ns();
        say(&Line::Asking { at_ns: asked_ns });
        let guard = match redlock.lock(&args.name).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                failed("acquire", asked_ns, None, &error);
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let mut hold = Hold::begin(&args.file, &orders, guard.fence(), || guard.remaining());
        while let Next::Wait(nap) = hold.next() {
            tokio::time::sleep(nap).await;
            hold.look(guard.check(), || guard.remaining());
        }
        if hold.finish() {
            let asked_ns = now_ns();
            hold.released(asked_ns, guard.release().await);
        }
        tokio::time::sleep(hold.pause()).await;
    }
}

fn fight_blocking(args: &Args) {
    let (ttl, timeout) = (Duration::from_millis(args.ttl), Duration::from_millis(args.timeout));
    let redlock = redlock::blocking::Redlock::builder().nodes(&args.nodes).ttl(ttl).timeout(timeout).build();
    let redlock = redlock.expect("the nodes' URLs are valid");
    say(&Line::Ready);
    let orders = Orders::await_start();
    while !orders.stopped() {
        let asked_ns = now_ns();
        say(&Line::Asking { at_ns: asked_ns });
        let guard = match redlock.lock(&args.name).acquire() {
            Ok(guard) => guard,
            Err(error) => {
                failed("acquire", asked_ns, None, &error);
                thread::sleep(BREATH);
                continue;
            }
        };
        let mut hold = Hold::begin(&args.file, &orders, guard.fence(), || guard.remaining());
        while let Next::Wait(nap) = hold.next() {
            thread::sleep(nap);
            hold.look(guard.check(), || guard.remaining());
        }
        if hold.finish() {
            let asked_ns = now_ns();
            hold.released(asked_ns, guard.release());
        }
        thread::sleep(hold.pause());
    }
}
