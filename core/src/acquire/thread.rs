//! Calls on the calling thread, which drives the engine itself. Blocking Rust and the bindings stand on them.
//!
//! A call is *driven* on a runtime of the process's pool. An acquire that has to wait is then *parked*: the background
//! waits, and the thread keeps neither a runtime nor a connection. What may interrupt either:
//!
//! - `interrupted` fails: the call's future is dropped, and the thread drives or awaits its clean-up for at most
//!   [`CLEAN_UP`]. The background finishes a longer one.
//! - `interrupted` has forked: in the child, the call ends at once and sends nothing.
//! - A panic: it goes on to Rust callers. The functions for other languages turn it into an error.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::acquire::Acquire;
use crate::error::{Error, ErrorKind};
use crate::hold::owner::LeaseOwner;
use crate::process::Process;
use crate::process::context::LockContext;
use crate::sys::background;
use crate::sys::runtimes::{self, Break};

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

/// Drives `call` on the calling thread, if possible on `runtime`. A tokio context forbids that: there, the call runs in
/// the background while the thread parks.
pub(crate) fn drive<T: Send + 'static>(
    process: &Process,
    runtime: Option<Id>,
    call: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    if Handle::try_current().is_err() {
        let (output, _) = process.pool.drive(&process.clock, runtime, call).map_err(no_event_queue)?;
        return Ok(output);
    }
    process.background.start()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    process.background.spawn(async move { drop(sender.send(call.await)) });
    receiver.recv().map_err(|_| background::stopped())
}

/// Works as [`drive`], but calls `interrupted`, if given, every 25 ms, and ends if that fails. `interrupted` may make
/// such calls itself, and may fork. For callers of other languages: no panic may unwind into them, so it becomes an
/// error. Not for a tokio context.
pub(crate) fn drive_unless<T, E>(
    process: &Process,
    runtime: Option<Id>,
    call: impl Future<Output = Result<T, Error>>,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<T, Stop<E>> {
    // This runtime's connections send the dropped call's clean-up, as far as they can at once.
    let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
    without_panic(|| {
        let interrupted = or_forked(process, interrupted);
        let driven = process.pool.drive_unless(&process.clock, runtime, call, interrupted, afterwards);
        let (output, _) = driven.map_err(no_event_queue)??;
        Ok(output?)
    })
}

/// Acquires on the calling thread. The thread drives the first attempt, and parks while the background waits. Returns
/// the runtime whose connections know about the lock; `None` for the background's. Calls `interrupted`, if given, every
/// 25 ms, and ends if that fails. Not for a tokio context.
pub(crate) fn acquire<E>(
    context: LockContext,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<(LeaseOwner, Option<Id>), Stop<E>> {
    let process = Arc::clone(&context.process);
    let mut interrupted = or_forked(&process, interrupted);
    let mut acquire = Acquire::begin(context)?;
    if acquire.must_wait().is_none() {
        let first = async { acquire.first(&Handle::current()).await.map(|owner| (acquire, owner)) };
        let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
        let driven = process.pool.drive_unless(&process.clock, None, first, interrupted.as_mut(), afterwards);
        let (first, runtime) = driven.map_err(no_event_queue)??;
        acquire = match first? {
            (rest, None) => rest,
            (rest, Some(owner)) => match rest.activate(owner)? {
                Ok(owner) => return Ok((owner, Some(runtime))),
                Err(rest) => rest,
            },
        };
    }
    match runtimes::park_unless(acquire.finish(), interrupted) {
        Ok(owner) => Ok((owner?, None)),
        Err(early) => {
            if matches!(early, Break::Interrupted(_)) {
                let afterwards = process.shutdown.done(process.clock.sleep(CLEAN_UP));
                drop(process.pool.drive(&process.clock, None, afterwards));
            }
            Err(early.into())
        }
    }
}

/// Works as [`acquire`], for callers of other languages. No panic may unwind into them, so it becomes an error.
pub(crate) fn acquire_unless<E>(
    context: LockContext,
    interrupted: Option<impl FnMut() -> Result<(), E>>,
) -> Result<(LeaseOwner, Option<Id>), Stop<E>> {
    without_panic(|| acquire(context, interrupted))
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
fn forked() -> Error {
    Error::new(ErrorKind::Unavailable, "not finished: a signal handler forked during the call; call again in the child")
}

fn no_event_queue(error: io::Error) -> Error {
    let message = "cannot create an event queue (epoll or kqueue); the limit on open files may be reached";
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_panic_on_the_calling_thread_becomes_an_error() {
        let call = async { if true { panic!("on purpose") } else { Ok(()) } };
        let Err(Stop::Failed(error)) = drive_unless::<_, Infallible>(&Process::current(), None, call, Some(|| Ok(())))
        else {
            panic!("it did not fail");
        };
        assert!(error.to_string().contains("bug"), "{error}");
    }
}
