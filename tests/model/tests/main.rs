//! What the models promise. One program, because the checker is compiled into each.

mod fencing;
mod release;
mod sharing;
