//! The lock around this program: that of a `redlock run` which has it in its command, and waits for its end.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redlock::bindings::clock::Clock;
use redlock::{LockState, Redlock};

use crate::say;

/// What a command is told about its lock.
pub(crate) const NAME: &str = "REDLOCK_NAME";
pub(crate) const FENCE: &str = "REDLOCK_FENCE";
pub(crate) const SLOT: &str = "REDLOCK_SLOT";

/// Who gets a lock sooner does not wait for it.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// Warns once if the wait for these locks is one for the lock around this program. A waiter that `is_reader` would share a
/// lock. Never ends.
pub(crate) async fn warn(redlock: &Redlock, names: &[OsString], is_reader: bool) {
    Clock::System.sleep(FIRST_LOOK).await;
    if let Some(name) = held(redlock, names, is_reader).await {
        say::warning(&format!(
            "lock {:?}: the redlock run around this program holds it until this program ends, so the wait is in vain; \
             leave out one of the two locks, or use two names",
            name.to_string_lossy()
        ));
    }
    std::future::pending::<()>().await;
}

/// Returns the name that is held around this program. What has outlived that lock finds another fence, or none.
async fn held<'a>(redlock: &Redlock, names: &'a [OsString], is_reader: bool) -> Option<&'a OsString> {
    let around = env::var_os(NAME).filter(|_| env::var_os(SLOT).is_none())?;
    let fence: u64 = env::var(FENCE).ok()?.parse().ok()?;
    let around: Vec<_> = around.as_bytes().split(|byte| *byte == b'\n').collect();
    for name in names.iter().filter(|name| around.contains(&name.as_bytes())) {
        let view = redlock.inspect(name.as_bytes()).await.ok()?;
        let is_around = match view.state {
            LockState::Held => view.fence == Some(fence),
            // It shows the fence of its first reader. Another one need not wait.
            LockState::Shared => !is_reader && view.fence.is_some_and(|first| first <= fence),
            _ => false,
        };
        if is_around {
            return Some(name);
        }
    }
    None
}
