//! The Rust worker of chaos: one process whose hands acquire and release locks in every way. It never judges. `hand.py`
//! does the same, and describes the orders and the records.

mod asked;
mod campaign;
mod hand;
mod hand_over;
mod heard;
mod hold;
mod journal;
mod store;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use clap::{Parser, ValueEnum};
use face::{Face, Which, both, complete};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::hand::Hand;
use crate::heard::{Heard, totals};
use crate::worker::Worker;

/// Acquire and release locks in every way, until standard input ends.
#[derive(Parser)]
struct Args {
    /// Of this process, among all that there will ever be.
    #[arg(long)]
    name: String,
    /// The face of the library to use.
    #[arg(long)]
    face: Which,
    /// How many locks to use at once.
    #[arg(long)]
    hands: usize,
    /// For what the hands do.
    #[arg(long)]
    seed: String,
    /// Of most locks, in seconds.
    #[arg(long)]
    ttl: f64,
    /// The file for the record of events.
    #[arg(long)]
    journal: PathBuf,
    /// The unix socket of the store.
    #[arg(long)]
    store: PathBuf,
    /// The planted fault to make, by its name in `planted.py`.
    #[arg(long)]
    fault: Option<Fault>,
}

/// The planted fault of the worker, which must be found.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// Relies on a lock for a second longer than the library says.
    Validity,
    /// Counts a lock as renewed that is not renewed.
    Renewal,
    /// Keeps what a cancelled acquire has won.
    CleanUp,
    /// Takes each slot of a semaphore for its first one.
    #[value(name = "wrong slot")]
    WrongSlot,
}

fn main() {
    let args = Args::parse();
    let (face, hands) = (args.face, args.hands);
    let worker = Arc::new(Worker::new(args));
    tracing_subscriber::registry().with(Heard(Arc::clone(&worker))).init();
    let listener = Arc::clone(&worker);
    thread::spawn(move || listener.listen());
    let builder = both!(face::builder(face), builder => builder.label(&worker.args.name));
    let client = builder.build().expect("the addresses in REDLOCK_URLS are right");
    let hands = (0..hands).map(|number| Hand::new(&worker, &client, number));
    match face {
        Face::Async(()) => {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
            // What borrows its hand while a term lasts does not go from thread to thread.
            let (local, mut running) = (LocalSet::new(), JoinSet::new());
            for hand in hands {
                running.spawn_local_on(hand.run(), &local);
            }
            runtime.block_on(local.run_until(running.join_all()));
        }
        Face::Blocking(()) => {
            let threads: Vec<_> = hands.map(|hand| thread::spawn(|| complete(hand.run()))).collect();
            for thread in threads {
                thread.join().expect("a hand did not panic");
            }
        }
    }
    worker.journal.write(&json!({"event": "stats", "process": worker.args.name, "metrics": totals()}));
}
