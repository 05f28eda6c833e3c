//! Calls that are not begun: those of operators, and those that only ask.
//!
//! A call is *driven* on the calling thread, or [*started*](crate::bindings::completion_queue::Queue::start) on a
//! completion queue. Dropped before either, it does nothing, but for that of [`close`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::thread::{Caller, Stop, drive_unless};
use crate::api::client::Redlock;
use crate::api::diagnose::Diagnosis;
use crate::api::inspect::LockView;
use crate::api::listing::Listing;
use crate::error::Error;
use crate::hold::detach::Detaching;
use crate::options::Options;
use crate::process::Process;
use crate::process::context::LockContext;
use crate::protocol::shape::Shape;
use crate::sys::fork::Pid;
use crate::sys::runtimes::Seats;
use crate::texts::opaque;

/// The result of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Taken {
    /// The call succeeded.
    Completed,
    /// The result of a diagnosis.
    Diagnoses(Vec<Diagnosis>),
    /// A view of each lock or slot that the call is about, or has found.
    Views(Vec<LockView>),
    /// Whether anybody holds the lock, or still held it at the end of a wait.
    IsLocked(bool),
    /// The lock is detached. Dropping this releases it, unless its text is taken.
    Detached(Detaching),
    /// Only of a queue: the call is not finished, so wait until the same number is ready again.
    Pending,
    /// Only of a queue: it does not have this call. It was taken before or cancelled, or it was a loss subscription whose
    /// object was dropped.
    Cancelled,
}

/// A call that is not begun.
#[must_use = "a call does nothing until it is driven or started"]
pub struct Call {
    process: Arc<Process>,
    /// The seats of the client's nodes; `None` for a call that asks no node over connections of the caller.
    seats: Option<Arc<Seats>>,
    /// Whether it changes nothing when it is dropped under way.
    pub(crate) only_asks: bool,
    pub(crate) run: Pin<Box<dyn Future<Output = Result<Taken, Error>> + Send>>,
}

opaque!(Call);

impl Call {
    /// Makes a call that asks the nodes of `client`.
    fn of(client: &Redlock, run: impl Future<Output = Result<Taken, Error>> + Send + 'static) -> Result<Self, Error> {
        let (process, set) = client.session().nodes()?;
        Ok(Self { process, seats: Some(Arc::clone(&set.seats)), only_asks: false, run: Box::pin(run) })
    }

    /// Makes a call that asks the nodes about one lock.
    pub(crate) fn about(
        context: &LockContext,
        run: impl Future<Output = Result<Taken, Error>> + Send + 'static,
    ) -> Self {
        let (process, seats) = (Arc::clone(&context.process), Some(Arc::clone(&context.listed.seats)));
        Self { process, seats, only_asks: true, run: Box::pin(run) }
    }

    /// Makes a call that waits, and asks no node itself.
    pub(crate) fn waiting(run: impl Future<Output = Result<Taken, Error>> + Send + 'static) -> Self {
        Self { process: Process::current(), seats: None, only_asks: true, run: Box::pin(run) }
    }

    /// Runs it on the calling thread. Calls `interrupted`, if given, every 25 ms, and ends if that fails. A call
    /// that waits does not return while another thread ends the process.
    ///
    /// # Errors
    ///
    /// Those of the call, or that of `interrupted`.
    pub fn drive<E>(self, interrupted: Option<impl FnMut() -> Result<(), E>>) -> Result<Taken, Stop<E>> {
        let caller = Caller { process: &self.process, runtime: None, seats: self.seats.as_ref() };
        // `close` asks no node itself either, but what it returns stays true.
        let waits = self.seats.is_none() && self.only_asks;
        let result = drive_unless(&caller, self.run, interrupted);
        if waits {
            self.process.shutdown.park_if_shut_down();
        }
        result
    }
}

/// Reads what the nodes show of `name`; see [`Redlock::inspect`].
///
/// # Errors
///
/// `invalid_argument` or `closed`.
pub fn inspect(client: &Redlock, name: &[u8]) -> Result<Call, Error> {
    let (asked, name) = checked(client, name)?;
    Call::of(client, async move { asked.inspect(name).await.map(|view| Taken::Views(vec![view])) })
}

/// Reads what the nodes show of each slot of a semaphore; see [`Redlock::inspect_semaphore`].
///
/// # Errors
///
/// `invalid_argument` or `closed`.
pub fn inspect_semaphore(client: &Redlock, name: &[u8], permits: u32) -> Result<Call, Error> {
    let (asked, name) = of_shape(client, name, &Shape::Semaphore(name.into(), permits))?;
    Call::of(client, async move { asked.inspect_semaphore(name, permits).await.map(Taken::Views) })
}

/// Finds out what each node can do and may lose; see [`Redlock::diagnose`].
///
/// # Errors
///
/// `closed`.
pub fn diagnose(client: &Redlock) -> Result<Call, Error> {
    let asked = client.clone();
    Call::of(client, async move { asked.diagnose().await.map(Taken::Diagnoses) })
}

/// Closes a client, at once, and waits up to `limit` for the release of its locks; see [`Redlock::close`].
pub fn close(client: &Redlock, limit: Duration) -> Call {
    let closing = client.closing(limit);
    let closed = async move {
        closing.await;
        Ok(Taken::Completed)
    };
    Call { only_asks: false, ..Call::waiting(closed) }
}

/// Returns the next locks of a listing, none at the end; see [`Redlock::list_locks`].
///
/// # Errors
///
/// `closed`.
pub fn list_page(listing: &Arc<Listing>) -> Result<Call, Error> {
    let asked = Arc::clone(listing);
    let call = Call::of(listing.client(), async move { asked.page().await.map(Taken::Views) })?;
    Ok(Call { only_asks: true, ..call })
}

/// Waits until a lock is free, without taking it, and returns whether it was held until the end; see
/// [`Redlock::wait_free`].
///
/// # Errors
///
/// `invalid_argument`.
pub fn wait_free(client: &Redlock, name: &[u8], timeout: Option<Duration>) -> Result<Call, Error> {
    let (asked, name) = checked(client, name)?;
    Ok(Call::waiting(async move { asked.wait_free(name, timeout).await.map(|is_free| Taken::IsLocked(!is_free)) }))
}

/// Deletes a lock that somebody else holds, and returns whose it was; see [`Redlock::break_lock`].
///
/// # Errors
///
/// `invalid_argument` or `closed`.
pub fn break_lock(client: &Redlock, name: &[u8], slot: Option<u32>) -> Result<Call, Error> {
    let (asked, name) = checked(client, name)?;
    let broken = async move { asked.break_lock(name, slot).await };
    Call::of(client, async move { Ok(Taken::Views(broken.await?.into_iter().collect())) })
}

/// Checks a name, and returns what a call about it owns.
fn checked(client: &Redlock, name: &[u8]) -> Result<(Redlock, Vec<u8>), Error> {
    of_shape(client, name, &name.into())
}

fn of_shape(client: &Redlock, name: &[u8], shape: &Shape) -> Result<(Redlock, Vec<u8>), Error> {
    client.session().spec(Pid::now(), shape, &Options::default())?;
    Ok((client.clone(), name.to_vec()))
}
