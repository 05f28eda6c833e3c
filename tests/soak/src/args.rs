//! The worker's command line.

use clap::{Parser, ValueEnum};
use face::Which;

/// Use the lock repeatedly, as often as a line of standard input says, and report the live counts.
#[derive(Parser)]
pub(crate) struct Args {
    /// The face of the library to use.
    #[arg(long)]
    pub(crate) face: Which,
    #[arg(long)]
    pub(crate) work: Work,
    #[arg(long, value_enum, default_value_t = Shape::One)]
    pub(crate) shape: Shape,
    /// For the random moments and names.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) leak: Option<Leak>,
    /// The nodes' URLs, of unix sockets.
    pub(crate) nodes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Acquire and release one name.
    Cycle,
    /// Acquire and release one name, several tasks at once.
    Wait,
    /// Acquire and release a new name each time.
    Names,
    /// Acquire and release a new name each time, very many threads at once.
    Crowd,
    /// Wait for a moment for new names that others hold, many tasks at once.
    Denied,
    /// Open a client, acquire and release, and close the client.
    Clients,
    /// Acquire a new name each time, and drop the guard.
    Drop,
    /// Cancel acquires and releases.
    Cancel,
}

/// What a lock is on.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// One name.
    One,
    /// Several names.
    Set,
    /// One permit of a semaphore.
    Slot,
    /// An election.
    Term,
    /// One name that readers share.
    Shared,
}

/// A fault of the worker, which must be found.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Leak {
    /// A lock stays held each time something was done.
    Keys,
    /// Each turn keeps some memory.
    Memory,
    /// A connection stays open each time something was done.
    Descriptors,
}
