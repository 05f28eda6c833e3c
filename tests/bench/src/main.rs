//! What one uncontended acquire and release cost, as a ratio to a bare socket.
//!
//! The bare socket is the limit: it sends the commands of the plain protocol, prepared beforehand, and reads the
//! replies; nobody who takes a lock over this network can be faster. Every face of the library takes turns with it in
//! short rounds, and only figures of the same round are divided by each other: the machine may change its mood between
//! rounds, the ratio does not. Nothing here judges a figure.

mod bare;
mod cores;
mod faces;
mod measure;
mod table;

use std::process::ExitCode;

use clap::Parser;
use redlock_harness::Server;

use crate::cores::Cores;
use crate::faces::{Contender, Face, Route};
use crate::measure::Figures;

/// Why a benchmark could not be run.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many nodes the locks are on.
const SIZES: [usize; 2] = [1, 5];

/// Measure one uncontended acquire and release as a ratio to a bare socket.
#[derive(Parser)]
#[command(name = "redlock-bench", version)]
struct Options {
    /// Rounds; in each, every variant runs once, in a rotating order.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Pairs of acquire and release of each variant in each round.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// A first impression: 10 rounds of 50 pairs.
    #[arg(long, conflicts_with_all = ["rounds", "pairs"])]
    quick: bool,
    /// Only the variants whose name contains this, such as `tcp`, `5 nodes` or `1 node tcp blocking`; their bare
    /// sockets run all the same.
    #[arg(long, value_name = "SUBSTRING")]
    only: Option<String>,
    /// Run everything so many times and print the median ratio of each run: how far whole runs are apart.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Where clients and servers run (Linux only).
    #[arg(long, value_enum, default_value_t = Cores::Free)]
    cores: Cores,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redlock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let (rounds, pairs) = if options.quick { (10, 50) } else { (options.rounds, options.pairs) };
    if cfg!(debug_assertions) {
        println!("This is a debug build: its figures mean nothing. Use `cargo run --release`.\n");
    }
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let names = groups().flat_map(|(nodes, route)| Face::ALL.map(|face| faces::name(nodes, route, face)));
    if !names.clone().any(|name| wanted(&name)) {
        let all: Vec<String> = names.collect();
        return Err(format!("no variant has that in its name; these are all:\n  {}", all.join("\n  ")).into());
    }

    let most = SIZES.into_iter().max().unwrap_or(1);
    let servers: Vec<Server> = (0..most).map(|_| Server::builder().tcp(true).start()).collect();
    // Counted before this process gives some away.
    let cores = std::thread::available_parallelism()?;
    servers.iter().try_for_each(|server| options.cores.place_server(server))?;
    options.cores.place_clients()?;
    println!("{cores} cores, {}, {}; {}", system(), version(&servers[0])?, options.cores.text());
    println!("{rounds} rounds of {pairs} pairs of each variant\n");

    let mut contenders = Vec::new();
    for (nodes, route) in groups() {
        contenders.push(faces::group(&servers[..nodes], route, wanted)?);
    }
    contenders.retain(|group| !group.is_empty());
    let mut runs: Vec<Vec<Figures>> = Vec::new();
    for _ in 0..options.repeat {
        runs.push(measure::run(&mut contenders, rounds, pairs)?);
    }

    let contenders: Vec<&Contender> = contenders.iter().flatten().collect();
    let text = match &runs[..] {
        [figures] => table::one(&contenders, figures),
        _ => table::many(&contenders, &runs),
    };
    print!("{text}");
    Ok(())
}

/// What is compared with each other: the same number of nodes, reached in the same way.
fn groups() -> impl Iterator<Item = (usize, Route)> + Clone {
    SIZES.into_iter().flat_map(|nodes| Route::ALL.map(|route| (nodes, route)))
}

fn system() -> String {
    let system = rustix::system::uname();
    format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy())
}

fn version(server: &Server) -> Result<String, Failure> {
    bare::Bare::connect(&[Route::Unix.address(server)], "version")?.version()
}
