//! Seeds, stories and planted faults. One program, because the engine is compiled into each.

mod away;
mod barred;
mod bites;
mod counted;
mod crowd;
mod failovers;
mod handover;
mod held;
mod pause;
mod plants;
mod polling;
mod seeds;
mod set_back;
mod sharing;
mod split_votes;
mod unavailable;
mod write_order;
