//! Runs the real client on nodes in memory, under virtual time and seeded faults.
//!
//! A seed decides everything: the nodes, the processes with their clocks, what each task does, what the network loses
//! or delays and which node fails when ([`Plan`]). [`run`] plays it and returns what was wrong, so that a seed that
//! fails once fails again. Judged are
//!
//! - the recorded calls, by `redlock-history`: fences unique and ordered, exclusion, loss told in time;
//! - the calls themselves: none takes longer than it promises, none fails in a way it must not;
//! - the end: once all faults are healed, no key is left of what was released, lost or cancelled, every process acquires
//!   every name, and nobody waits for long for a lock that nobody has.
//!
//! The program `simulate` looks for seeds that fail and shows what happened there. [`tell`] judges a [`Story`] in the same
//! way, step by step, for what a seed once found: a changed engine draws differently. [`race()`] is a run without faults,
//! for those who all want the same at once.

mod asked;
mod book;
pub mod calm;
mod cast;
mod client;
mod dice;
mod election;
mod faults;
mod hand_over;
mod hold;
mod moves;
mod network;
mod plan;
mod race;
mod run;
mod shape;
mod story;

pub use plan::{Mishaps, Mix, Plan, Topology, Trouble, Unusual};
pub use race::{FAR, Latency, NEAR, Race, race};
pub use run::{Outcome, Run, run, tell};
pub use story::{Hold, Story};
