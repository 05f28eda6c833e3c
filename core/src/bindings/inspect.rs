//! Inspection and diagnosis on the calling thread.

use crate::acquire::thread::{Stop, drive_unless};
use crate::api::client::Redlock;
use crate::api::diagnose::Diagnosis;
use crate::api::inspect::NodeView;
use crate::process::Process;

/// Reads the state of `name` on every node; see [`Redlock::inspect`]. Calls `interrupted`, if given, every 25 ms, and
/// ends if that fails.
///
/// # Errors
///
/// Those of [`Redlock::inspect`], or that of `interrupted`.
pub fn inspect<E>(
    client: &Redlock,
    name: &[u8],
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Vec<NodeView>, Stop<E>> {
    drive_unless(&Process::current(), None, client.inspect(name), interrupted)
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
