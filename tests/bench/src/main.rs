//! The worker for the two faces in Rust, and for a socket without a library.

mod bare;
mod ours;

use std::process::ExitCode;

use clap::Parser;
use redlock_bench_worker::{Args, Failure, serve};

use crate::ours::{Async, Blocking};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redlock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    match args.subject.as_str() {
        "rust-async" => serve::<Async>(args),
        "rust-blocking" => serve::<Blocking>(args),
        "bare" => bare::serve(args),
        other => Err(format!("no such subject: {other}").into()),
    }
}
