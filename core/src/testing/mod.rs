//! The seams of the engine for the simulation in `tests/simulation` and the model in `tests/model`.
//!
//! May import everything.

pub mod model;
pub mod simulation;
