//! Small models of lock protocols, in which every interleaving is looked at.
//!
//! A [`Model`] has first states, and the steps that lead from each state to others. [`search`] goes through every state
//! that can be reached, the nearest ones first: it says how many there are, or shows the shortest way to a bad one.
//!
//! [`fencing`] is the protocol of the library. [`sharing`] is how long owners share a lock on one node, and [`release`] is
//! how a lock is released there without a script.

pub mod fencing;
pub mod release;
mod search;
pub mod sharing;

pub use search::{Model, Property, Way, broken, search};
