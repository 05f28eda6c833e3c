//! The tokio runtime that the program calls on.

use std::cell::Cell;
use std::panic::catch_unwind;

use tokio::runtime::{Handle, Id};

use crate::error::Error;
use crate::sys::{clock, local_socket};

/// What the runtime has that was looked at last on a thread.
#[derive(Clone, Copy)]
struct Drivers {
    runtime: Id,
    timers: bool,
    /// `None` until a call needs it.
    io: Option<bool>,
}

/// Returns the runtime of the calling task; `None` outside of one.
///
/// # Errors
///
/// `invalid_argument` for a runtime without timers, or without I/O for a call that `needs_io`.
pub(crate) fn current(needs_io: bool) -> Result<Option<Handle>, Error> {
    thread_local! {
        /// Also of a refused runtime: each look at what it lacks is a panic, of which the program's hook hears.
        static SEEN: Cell<Option<Drivers>> = const { Cell::new(None) };
    }
    let Ok(runtime) = Handle::try_current() else { return Ok(None) };
    let id = runtime.id();
    let seen = SEEN.get().filter(|seen| seen.runtime == id);
    let mut drivers = seen.unwrap_or_else(|| Drivers { runtime: id, timers: clock::has_timers(), io: None });
    let has_all = drivers.timers && (!needs_io || *drivers.io.get_or_insert_with(has_io));
    SEEN.set(Some(drivers));
    if has_all {
        return Ok(Some(runtime));
    }
    Err(Error::invalid(
        "this tokio runtime lacks timers or I/O; call enable_all() on its Builder, or use redlock::blocking",
    ))
}

/// Returns whether the current runtime has an I/O driver. Without it, tokio says so by a panic alone, and its text is on
/// standard error.
fn has_io() -> bool {
    catch_unwind(|| drop(local_socket::unbound())).is_ok()
}

#[cfg(test)]
mod tests {
    use std::panic::{set_hook, take_hook};
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_runtime_is_refused_for_what_it_lacks_and_looked_at_once() {
        static PANICS: AtomicU32 = AtomicU32::new(0);
        // The panics of other tests would count.
        harness::alone!();
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            hook(panic);
        }));
        assert!(current(true).unwrap().is_none());
        let new = Builder::new_current_thread;
        for (builder, refused, panics) in [
            (&mut new(), [true, true], 1),
            (new().enable_time(), [false, true], 1),
            (new().enable_all(), [false, false], 0),
        ] {
            let looks = || [false, true].map(|needs_io| current(needs_io).is_err());
            let seen = builder.build().unwrap().block_on(async { [looks(), looks()] });
            assert_eq!((seen, PANICS.swap(0, Ordering::Relaxed)), ([refused, refused], panics));
        }
    }
}
