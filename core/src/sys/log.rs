//! Log events, through `tracing`.
//!
//! A subscriber is the program's code: it may block or panic. So an event is emitted after the change that it
//! describes, outside of every lock, and a panic in a subscriber ends there.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Emits an event: `log!(warn, field = %value, "message")`. Never while a lock is held.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        $crate::sys::log::shielded(|| ::tracing::$level!($($event)+))
    };
}

pub(crate) use log;

/// Runs `emit` and ignores a panic in it.
pub(crate) fn shielded(emit: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(emit)));
}
