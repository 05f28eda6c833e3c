//! The background: one thread named `redlock` with a runtime of its own, started at first use, that waits, renews and
//! cleans up for everybody in the process.
//!
//! It never ends: nothing it runs belongs to a caller's runtime, so that a caller's runtime may end at any time. After a
//! fork the child's process value has another one, not started yet.

use std::future::Future;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};

use crate::error::{Error, ErrorKind};
use crate::spawn::spawn;

/// Where background work runs.
#[derive(Debug)]
pub(crate) struct Background(Mutex<Option<Handle>>);

impl Background {
    /// A thread of its own, started at first use.
    pub(crate) const fn thread() -> Self {
        Self(Mutex::new(None))
    }

    /// A runtime that exists already; for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) const fn on(runtime: Handle) -> Self {
        Self(Mutex::new(Some(runtime)))
    }

    /// Starts the thread if it does not run yet.
    ///
    /// # Errors
    ///
    /// `unavailable` if the operating system gives no thread or no event queue.
    pub(crate) fn start(&self) -> Result<Handle, Error> {
        // A panic while starting leaves nothing half done in here.
        let mut handle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*handle {
            return Ok(handle.clone());
        }
        let started = start()?;
        *handle = Some(started.clone());
        Ok(started)
    }

    /// The background, if it runs.
    pub(crate) fn started(&self) -> Option<Handle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `task` in the background. If the background cannot be started the task is dropped, and says what that
    /// means in its own drop.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.start() {
            Ok(handle) => drop(spawn(&handle, task)),
            Err(error) => tracing::error!(%error, "background work is dropped"),
        }
    }
}

fn start() -> Result<Handle, Error> {
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::Unavailable,
            "the background thread cannot be started; is a limit on threads or open files reached?",
        )
        .with_source(error)
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(sender.send(Err(error))),
        };
        drop(sender.send(Ok(runtime.handle().clone())));
        runtime.block_on(std::future::pending::<()>());
    };
    thread::Builder::new().name("redlock".to_owned()).spawn(run).map_err(failed)?;
    let lost = |_| std::io::Error::other("the thread ended while it started");
    receiver.recv().map_err(lost).and_then(|started| started).map_err(failed)
}
