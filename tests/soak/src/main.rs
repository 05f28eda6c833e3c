//! The Rust worker of the soak; `worker.py` and `worker.mjs` beside it do the same. It never judges.
//!
//! A line of standard input is a number of turns. The worker takes them and reports its live counts in a line of JSON.

mod args;
mod cancel;
mod work;

use std::alloc::System;
use std::io::{self, BufRead, Write};
use std::sync::atomic::Ordering;

use cap::Cap;
use clap::Parser;
use face::Face;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::args::{Args, Work};
use crate::work::{RUNTIME, Worker};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

fn main() {
    let args = Args::parse();
    if args.work == Work::Cancel { cancel(&args) } else { serve(args) }
}

fn serve(args: Args) {
    let mut worker = Worker::new(args);
    each_line(|count| {
        worker.perform(count);
        json!({})
    });
}

fn cancel(args: &Args) {
    let mut rng = Rng::with_seed(args.seed);
    let Face::Async(client) = work::client(Face::Async(()), &args.nodes) else { unreachable!("it is async") };
    each_line(|count| {
        let counts = cancel::perform(&client, args, count, &mut rng);
        json!({
            "cancelled": counts.cancelled.load(Ordering::Relaxed),
            "won": counts.won.load(Ordering::Relaxed),
            "releases_cancelled": counts.releases_cancelled.load(Ordering::Relaxed),
        })
    });
}

/// Performs each line, and writes the result and the live counts.
fn each_line(mut perform: impl FnMut(u64) -> Value) {
    for line in io::stdin().lock().lines() {
        let count = line.expect("standard input is text").parse().expect("a line is a number");
        let mut answer = perform(count);
        answer["live"] = json!(HEAP.allocated());
        answer["tasks"] = json!(RUNTIME.metrics().num_alive_tasks());
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}").and_then(|()| out.flush()).expect("somebody listens");
    }
}
