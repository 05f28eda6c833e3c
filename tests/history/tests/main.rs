//! The checker: histories made by hand and at random, a second opinion on them, and the program.

mod histories;
mod linearizable;
mod program;
mod random;
