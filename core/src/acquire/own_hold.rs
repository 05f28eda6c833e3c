//! The warning of a call that waits for a lock which its own process holds: its caller may hold it, and never end.

use std::convert::Infallible;
use std::future::pending;

use crate::process::context::LockContext;
use crate::sys::clock::Moment;
use crate::sys::log::log;

/// Warns once, when a call that `began` has waited for one ttl, and this process has held the lock for as long. A process
/// that hands its lock on to others of its calls in turn is not warned of. Never ends.
pub(crate) async fn warn(context: &LockContext, began: Moment) -> Infallible {
    let LockContext { process, listed, spec, .. } = context;
    let (clock, ttl) = (&process.clock, spec.settings.ttl);
    let mut due = began.after(ttl);
    loop {
        clock.sleep_until(due).await;
        let now = clock.now();
        due = match process.schedule.own_hold(&listed.waiters, &spec.names) {
            None => now.after(ttl),
            Some(hold) if hold.acquired.after(ttl) > now => hold.acquired.after(ttl),
            Some(hold) => {
                let (name, label) = (&spec.name, &hold.label);
                let age = format!("{:.1?}", now.since(hold.acquired));
                log!(WAITS_FOR_OWN_PROCESS, %name, %label, %age,
                    "waiting for a lock that this process holds itself; if its own caller does, this never ends"
                );
                return pending().await;
            }
        };
    }
}
