//! Inspection and diagnosis on the calling thread.

use crate::acquire::thread::{Stop, drive_unless};
use crate::api::client::Redlock;
use crate::api::diagnose::Diagnosis;
use crate::api::inspect::LockView;
use crate::process::Process;

/// Reads what the nodes show of `name`; see [`Redlock::inspect`]. Calls `interrupted`, if given, every 25 ms, and
/// ends if that fails.
///
/// # Errors
///
/// Those of [`Redlock::inspect`], or that of `interrupted`.
pub fn inspect<E>(
    client: &Redlock,
    name: &[u8],
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<LockView, Stop<E>> {
    drive_unless(&Process::current(), None, client.inspect(name), interrupted)
}

/// Reads what the nodes show of each slot of a semaphore; see [`Redlock::inspect_semaphore`]. Calls `interrupted` as
/// [`inspect`] does.
///
/// # Errors
///
/// Those of [`Redlock::inspect_semaphore`], or that of `interrupted`.
pub fn inspect_semaphore<E>(
    client: &Redlock,
    name: &[u8],
    permits: u32,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Vec<LockView>, Stop<E>> {
    drive_unless(&Process::current(), None, client.inspect_semaphore(name, permits), interrupted)
}

/// Finds out what each node can do and may lose; see [`Redlock::diagnose`]. Calls `interrupted` as [`inspect`] does.
///
/// # Errors
///
/// Those of [`Redlock::diagnose`], or that of `interrupted`.
pub fn diagnose<E>(
    client: &Redlock,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Vec<Diagnosis>, Stop<E>> {
    drive_unless(&Process::current(), None, client.diagnose(), interrupted)
}
