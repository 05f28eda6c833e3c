//! The background: one thread named `redlock` with a runtime of its own, started at first use, that waits, renews and
//! cleans up for everybody in the process.
//!
//! It never ends: nothing it runs belongs to a caller's runtime, so that a caller's runtime may end at any time. After a
//! fork the child's process value has another one, not started yet.
//!
//! What other threads hand in lies in its inbox until it looks there, and it is woken once for all that lies there: a
//! wake-up is a system call, and tokio makes one for every task that is spawned from elsewhere.

use std::future::Future;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, mem, thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

use crate::error::{Error, ErrorKind};
use crate::sys::log::log;
use crate::sys::task::spawn;

/// Where background work runs.
#[derive(Debug)]
pub(crate) struct Background(Mutex<Option<Started>>);

/// A background that runs.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    runtime: Handle,
    /// `None` where the background has no thread of its own.
    inbox: Option<Arc<Inbox>>,
}

/// What is to be begun on the background's thread, in order.
#[derive(Default)]
struct Inbox {
    jobs: Mutex<Vec<Job>>,
    filled: Notify,
}

/// Begins a task on the background's runtime. Must neither block nor panic.
type Job = Box<dyn FnOnce(&Handle) + Send>;

impl Background {
    /// A thread of its own, started at first use.
    pub(crate) const fn thread() -> Self {
        Self(Mutex::new(None))
    }

    /// A runtime that exists already; for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) const fn on(runtime: Handle) -> Self {
        Self(Mutex::new(Some(Started { runtime, inbox: None })))
    }

    /// Starts the thread if it does not run yet.
    ///
    /// # Errors
    ///
    /// `unavailable` if the operating system gives no thread or no event queue.
    pub(crate) fn start(&self) -> Result<Started, Error> {
        // A panic while starting leaves nothing half done in here.
        let mut background = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*background {
            return Ok(started.clone());
        }
        let started = start()?;
        *background = Some(started.clone());
        Ok(started)
    }

    /// The background, if it runs.
    pub(crate) fn started(&self) -> Option<Started> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `task` in the background. If the background cannot be started the task is dropped, and says what that
    /// means in its own drop.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.start() {
            Ok(started) => started.spawn(task),
            Err(error) => log!(error, %error, "background work is dropped"),
        }
    }

    /// Runs `call` in the background and awaits its result; for callers that have no runtime.
    ///
    /// # Errors
    ///
    /// `unavailable` if the background cannot be started, or ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        self.start()?.spawn(async move { drop(sender.send(call.await)) });
        receiver.await.map_err(|_| stopped())
    }
}

/// The error of a call whose task the background has dropped.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "the redlock background thread stopped before the call finished")
}

impl Started {
    /// Whether this is the background's runtime.
    pub(crate) fn is(&self, runtime: &Handle) -> bool {
        self.runtime.id() == runtime.id()
    }

    /// Runs `task` in the background.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.begin(move |runtime| drop(spawn(runtime, task)));
    }

    /// Has `job` begin a task in the background: at once if the caller is there, else when the background looks into its
    /// inbox.
    pub(crate) fn begin(&self, job: impl FnOnce(&Handle) + Send + 'static) {
        match &self.inbox {
            Some(inbox) if !Handle::try_current().is_ok_and(|runtime| self.is(&runtime)) => inbox.put(Box::new(job)),
            _ => job(&self.runtime),
        }
    }
}

impl Inbox {
    fn put(&self, job: Job) {
        let mut jobs = self.jobs.lock().expect("no panic while holding this");
        jobs.push(job);
        let first = jobs.len() == 1;
        drop(jobs);
        if first {
            self.filled.notify_one();
        }
    }

    /// Begins on `runtime` what is handed in, for ever.
    async fn serve(&self, runtime: &Handle) {
        // Two lists that change places and keep their room: neither thread gives back a list that the other has made.
        let mut jobs = Vec::new();
        loop {
            self.filled.notified().await;
            mem::swap(&mut jobs, &mut *self.jobs.lock().expect("no panic while holding this"));
            for job in jobs.drain(..) {
                job(runtime);
            }
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

fn start() -> Result<Started, Error> {
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::Unavailable,
            "cannot start the background thread; the limit on threads or open files may be reached",
        )
        .with_source(error)
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    let inbox = Arc::new(Inbox::default());
    let served = Arc::clone(&inbox);
    let run = move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(sender.send(Err(error))),
        };
        drop(sender.send(Ok(runtime.handle().clone())));
        runtime.block_on(served.serve(runtime.handle()));
    };
    thread::Builder::new().name("redlock".to_owned()).spawn(run).map_err(failed)?;
    let lost = |_| std::io::Error::other("the thread ended while it started");
    let runtime = receiver.recv().map_err(lost).and_then(|started| started).map_err(failed)?;
    Ok(Started { runtime, inbox: Some(inbox) })
}
