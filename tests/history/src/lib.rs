//! Judges a recorded history of lock calls.
//!
//! Whoever drives locks (simulation, conformance drivers, demo, chaos) writes down one [`Record`] per call that came
//! back and per loss that was told, all with the time of one clock. [`check`] then says whether the promises held:
//!
//! - **unique**: no two acquisitions of a name have the same fence;
//! - **order**: an acquire invoked after another one returned has the larger fence;
//! - **exclusion**: no two clients hold one name at the same time;
//! - **told late**: a holder hears of its loss by the end of its validity, plus a slack for scheduling;
//! - a record that cannot be (a release of what was never acquired, a return before its invocation) is a violation
//!   too: a checker that skips what it does not understand proves nothing.
//!
//! Only what came back carries an obligation: an acquire that was cancelled or failed is recorded with `ok: false`,
//! or not at all. The order of the records means nothing, their times do. A check costs O(n log n).
//!
//! The program `redlock-history` reads the same records as JSON lines from its standard input.

mod check;
mod record;
mod report;

pub use check::{Rules, check};
pub use record::{History, Kind, ReadError, Record};
pub use report::{Flaw, Hold, Report, Violation, Waits};
