//! The worker for the two faces in Rust, and for sockets without a library.

mod bare;
mod ours;

use std::process::ExitCode;

use clap::Parser;
use redlock_bench_worker::{Args, Failure, now_ns, serve};

use crate::bare::Plan;
use crate::ours::{Async, Blocking};

fn main() -> ExitCode {
    let begun_ns = now_ns();
    match run(&Args::parse(), begun_ns) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redlock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, begun_ns: u64) -> Result<(), Failure> {
    match args.subject.as_str() {
        "rust-async" => serve::<Async>(args, begun_ns),
        "rust-blocking" => serve::<Blocking>(args, begun_ns),
        "bare" => bare::serve(args, begun_ns, Plan::Plain),
        "bare-scripts" => bare::serve(args, begun_ns, Plan::Ours),
        other => Err(format!("no such subject: {other}").into()),
    }
}
