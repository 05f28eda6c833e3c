//! Calls on the calling thread, which drives the engine itself. Blocking Rust and the bindings stand on them.
//!
//! A call is *driven* on a runtime of the process's pool. An acquire that has to wait is then *parked*: the background
//! waits, and the thread keeps neither a runtime nor a connection. A call is parked from its begin if its client has as
//! many connections as it may: the background's are shared. What may interrupt either:
//!
//! - `interrupted` fails: the call's future is dropped, and the thread drives or awaits its clean-up for at most
//!   [`CLEAN_UP`]. The background finishes a longer one.
//! - `interrupted` has forked: in the child, the call ends at once and sends nothing.
//! - A panic: it goes on to Rust callers. The functions for other languages turn it into an error.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::acquire::Acquire;
use crate::error::{Error, ErrorKind};
use crate::hold::lease::Lease;
use crate::hold::owner::LeaseOwner;
use crate::process::Process;
use crate::process::context::LockContext;
use crate::process::shutdown::Ending;
use crate::sys::background;
use crate::sys::future::while_awaited;
use crate::sys::runtimes::{self, Break, Idle, Seats};

/// The time for which an interrupted call waits for its clean-up. The background finishes a longer one.
const CLEAN_UP: Duration = Duration::from_millis(20);

/// The reason why a call ended without its result.
#[derive(Debug)]
pub enum Stop<E> {
    /// The call failed.
    Failed(Error),
    /// The caller's check for interruptions failed.
    Interrupted(E),
}

impl<E> From<Error> for Stop<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<E> From<Break<E>> for Stop<E> {
    fn from(early: Break<E>) -> Self {
        match early {
            Break::Interrupted(interruption) | Break::Forked(Some(interruption)) => Self::Interrupted(interruption),
            Break::Forked(None) => Self::Failed(forked()),
        }
    }
}

/// The calls of a client: their process, and what they need to be driven.
pub(crate) struct Caller<'a> {
    pub(crate) process: &'a Arc<Process>,
    /// The runtime whose connections know about the lock, if it has one.
    pub(crate) runtime: Option<Id>,
    /// The seats of the client's nodes; `None` for a call that asks no node.
    pub(crate) seats: Option<&'a Arc<Seats>>,
}

impl<'a> Caller<'a> {
    /// Returns the caller of a lock that is held, or was.
    pub(crate) fn of(lease: &'a Lease, runtime: Option<Id>) -> Self {
        Self { process: &lease.context.process, runtime, seats: Some(&lease.context.listed.seats) }
    }

    /// Returns the caller that asks nodes about a lock.
    pub(crate) fn asking(context: &'a LockContext) -> Self {
        Self { process: &context.process, runtime: None, seats: Some(&context.listed.seats) }
    }

    /// Takes a runtime to drive, unless it has to be left to others. A tokio context forbids to drive one.
    fn idle(&self) -> Option<Idle> {
        let process = self.process;
        if Handle::try_current().is_ok() {
            return None;
        }
        process.pool.take(&process.clock, &process.background, self.runtime, self.seats)
    }
}

/// Drives `call` on the calling thread if it has a runtime. Else the call runs in the background while the thread parks.
pub(crate) fn drive<T: Send + 'static>(
    caller: &Caller<'_>,
    call: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    background::refuse_to_block()?;
    let process = caller.process;
    if let Some(idle) = caller.idle() {
        return Ok(process.pool.drive(&process.clock, idle, call).0);
    }
    match in_background(process, call, None::<fn() -> Result<(), Break<Infallible>>>) {
        Ok(output) => Ok(output),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Runs `call` in the background while the thread parks. If `interrupted` fails, the background drops it.
fn in_background<T: Send + 'static, E>(
    process: &Process,
    call: impl Future<Output = T> + Send + 'static,
    interrupted: Option<impl FnMut() -> Result<(), Break<E>>>,
) -> Result<T, Stop<E>> {
    let (task, output) = while_awaited(call);
    process.background.start()?.spawn_boxed(task);
    let output = runtimes::park_telling(output, None::<fn() -> Result<(), Break<E>>>, interrupted)?;
    Ok(output.ok_or_else(Error::panicked)?)
}

/// Works as [`drive`], but calls `interrupted`, if given, every 25 ms, and ends if that fails. `interrupted` may make
/// such calls itself, and may fork. For callers of other languages: no panic may unwind into them, so it becomes an
/// error. Not for a tokio context.
pub(crate) fn drive_unless<T: Send + 'static, E>(
    caller: &Caller<'_>,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<T, Stop<E>> {
    let process = caller.process;
    without_panic(|| {
        let interrupted = or_forked(process, interrupted);
        let Some(idle) = caller.idle() else { return Ok(in_background(process, call, interrupted)??) };
        // This runtime's connections send the dropped call's clean-up, as far as they can at once.
        let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
        let (output, _) = process.pool.drive_unless(&process.clock, idle, call, interrupted, afterwards)?;
        Ok(output?)
    })
}

/// Acquires on the calling thread. The thread drives the first attempt, and parks while the background waits. Returns
/// the runtime whose connections know about the lock; `None` for the background's. Calls `waits` before it waits for others,
/// or once it has parked for longer than it takes to leave the lock to others for a moment. Calls `interrupted`, if given,
/// every 25 ms. Ends if one of them fails. In a tokio context, which permits only to park, the background does it all.
fn acquire<E>(
    context: LockContext,
    waits: impl FnOnce() -> Result<(), E>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<(LeaseOwner, Option<Id>), Stop<E>> {
    background::refuse_to_block()?;
    let (process, seats) = (Arc::clone(&context.process), Arc::clone(&context.listed.seats));
    let caller = Caller { process: &process, runtime: None, seats: Some(&seats) };
    let mut interrupted = or_forked(&process, interrupted);
    let mut acquire = Acquire::begin(context)?;
    let must_wait = acquire.must_wait();
    let mut waits_for_others = must_wait.is_some_and(|pause| pause.is_zero());
    if must_wait.is_none()
        && let Some(idle) = caller.idle()
    {
        let first = async { acquire.first(&Handle::current()).await.map(|owner| (acquire, owner)) };
        let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
        let driven = process.pool.drive_unless(&process.clock, idle, first, interrupted.as_mut(), afterwards);
        let (first, runtime) = driven?;
        acquire = match first? {
            (rest, None) => {
                waits_for_others = true;
                rest
            }
            (rest, Some(owner)) => match rest.activate(owner)? {
                Ok(owner) => return Ok((owner, Some(runtime))),
                Err(rest) => rest,
            },
        };
    }
    let mut waits = Some(|| waits().map_err(Break::Interrupted));
    if let Some(waits) = waits.take_if(|_| waits_for_others) {
        waits()?;
    }
    match runtimes::park_telling(acquire.finish(None), waits, interrupted) {
        Ok(owner) => Ok((owner?, None)),
        Err(early) => {
            if matches!(early, Break::Interrupted(_)) {
                let cleaning = Arc::clone(&process);
                let clock = process.clock.clone();
                drop(drive(&caller, async move { cleaning.shutdown.done(clock.sleep(CLEAN_UP)).await }));
            }
            Err(early.into())
        }
    }
}

/// Works as [`acquire`]. Ends with `None` once `stopped` does.
pub(crate) fn acquire_until(
    context: LockContext,
    stopped: Option<&Arc<Ending>>,
) -> Result<Option<(LeaseOwner, Option<Id>)>, Error> {
    let interrupted = stopped.map(|stopped| move || if stopped.has_started() { Err(()) } else { Ok(()) });
    match acquire(context, || Ok(()), interrupted) {
        Ok(acquired) => Ok(Some(acquired)),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Interrupted(())) => Ok(None),
    }
}

/// Works as [`acquire`], for callers of other languages. No panic may unwind into them, so it becomes an error.
pub(crate) fn acquire_unless<E>(
    context: LockContext,
    waits: impl FnOnce() -> Result<(), E>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<(LeaseOwner, Option<Id>), Stop<E>> {
    without_panic(|| acquire(context, waits, interrupted))
}

fn without_panic<T, E>(call: impl FnOnce() -> Result<T, Stop<E>>) -> Result<T, Stop<E>> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(Error::panicked().into()))
}

/// Wraps `interrupted`, so that the call also ends in a child that `interrupted` has forked.
fn or_forked<E>(
    process: &Process,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Option<impl FnMut() -> Result<(), Break<E>>> {
    interrupted.map(|mut interrupted| {
        move || {
            let result = interrupted();
            if process.is_foreign() { Err(Break::Forked(result.err())) } else { result.map_err(Break::Interrupted) }
        }
    })
}

/// Returns the error of a call in a child that was forked during the call.
pub(crate) fn forked() -> Error {
    Error::new(ErrorKind::Unavailable, "not finished: the process was forked during the call; call again in the child")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_on_the_calling_thread_becomes_an_error() {
        let call = async { if true { panic!("on purpose") } else { Ok(()) } };
        let caller = Caller { process: &Process::current(), runtime: None, seats: None };
        let Err(Stop::Failed(error)) = drive_unless::<_, Infallible>(&caller, call, Some(|| Ok(()))) else {
            panic!("it did not fail");
        };
        assert!(error.to_string().contains("bug"), "{error}");
    }
}
