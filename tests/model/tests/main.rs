//! What the models promise, and that they are models of the scripts. One program, because the checker is compiled into each.

mod fencing;
mod fencing_scripts;
mod release;
mod semaphore;
mod setnx;
mod setnx_scripts;
mod sharing;
