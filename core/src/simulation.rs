//! The seams of the engine, for a simulation.
