//! The tokio runtime that the program calls on.

use std::cell::Cell;

use tokio::runtime::{Handle, Id};

use crate::error::Error;
use crate::sys::clock;

/// Returns the runtime of the calling task; `None` outside of one.
///
/// # Errors
///
/// `invalid_argument` for a runtime without timers.
pub(crate) fn current() -> Result<Option<Handle>, Error> {
    thread_local! {
        /// The runtime that was looked at last on this thread.
        static CHECKED: Cell<Option<Id>> = const { Cell::new(None) };
    }
    let Ok(runtime) = Handle::try_current() else { return Ok(None) };
    let id = Some(runtime.id());
    if CHECKED.get() != id {
        if !clock::has_timers() {
            return Err(Error::invalid(
                "this tokio runtime has no timers; call enable_all() on its Builder, or use redlock::blocking",
            ));
        }
        CHECKED.set(id);
    }
    Ok(Some(runtime))
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_runtime_without_timers_is_refused() {
        assert!(current().unwrap().is_none());
        for _ in 0..2 {
            let runtime = Builder::new_current_thread().build().unwrap();
            let error = runtime.block_on(async { current().unwrap_err() });
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().contains("enable_all()"), "{error}");
        }
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        assert!(runtime.block_on(async { current().unwrap().is_some() }));
    }
}
