//! Inspection, diagnosis and what else operators need, on the calling thread.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::thread::{Caller, Stop, drive_unless};
use crate::api::client::Redlock;
use crate::api::diagnose::Diagnosis;
use crate::api::inspect::LockView;
use crate::api::listing::Listing;
use crate::error::Error;
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
    let (asked, name) = (client.clone(), name.to_vec());
    drive_of(client, async move { asked.inspect(name).await }, interrupted)
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
    let (asked, name) = (client.clone(), name.to_vec());
    drive_of(client, async move { asked.inspect_semaphore(name, permits).await }, interrupted)
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
    let asked = client.clone();
    drive_of(client, async move { asked.diagnose().await }, interrupted)
}

fn drive_of<T: Send + 'static, E>(
    client: &Redlock,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<T, Stop<E>> {
    let (process, set) = client.session().nodes()?;
    drive_unless(&Caller { process: &process, runtime: None, seats: Some(&set.seats) }, call, interrupted)
}

/// Closes a client and releases its locks; see [`Redlock::close`]. Calls `interrupted` as [`inspect`] does.
///
/// # Errors
///
/// That of `interrupted`; what was begun goes on.
pub fn close<E>(
    client: &Redlock,
    limit: Duration,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<(), Stop<E>> {
    let closing = client.closing(limit);
    let closed = async move {
        closing.await;
        Ok(())
    };
    drive_unless(&Caller { process: &Process::current(), runtime: None, seats: None }, closed, interrupted)
}

/// Returns the next locks of a listing, none at the end; see [`Redlock::list_locks`]. Calls `interrupted` as [`inspect`]
/// does.
///
/// # Errors
///
/// Those of [`crate::LockListing::next`], or that of `interrupted`.
pub fn list_page<E>(
    listing: &Arc<Listing>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Vec<LockView>, Stop<E>> {
    let asked = Arc::clone(listing);
    drive_of(listing.client(), async move { asked.page().await }, interrupted)
}

/// Waits until a lock is free, without taking it; see [`Redlock::wait_free`]. Calls `interrupted` as [`inspect`] does.
///
/// # Errors
///
/// Those of [`Redlock::wait_free`], or that of `interrupted`.
pub fn wait_free<E>(
    client: &Redlock,
    name: &[u8],
    timeout: Option<Duration>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<bool, Stop<E>> {
    let (asked, name) = (client.clone(), name.to_vec());
    let waiting = async move { asked.wait_free(name, timeout).await };
    drive_unless(&Caller { process: &Process::current(), runtime: None, seats: None }, waiting, interrupted)
}

/// Deletes a lock that somebody else holds; see [`Redlock::break_lock`]. Calls `interrupted` as [`inspect`] does.
///
/// # Errors
///
/// Those of [`Redlock::break_lock`], or that of `interrupted`.
pub fn break_lock<E>(
    client: &Redlock,
    name: &[u8],
    slot: Option<u32>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<Option<LockView>, Stop<E>> {
    let (asked, name) = (client.clone(), name.to_vec());
    drive_of(client, async move { asked.break_lock(name, slot).await }, interrupted)
}
