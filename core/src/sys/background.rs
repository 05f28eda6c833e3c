//! The background: one thread named `redlock` with its own runtime, started at first use. It waits, renews and cleans
//! up for the whole process.
//!
//! It never ends. Its tasks do not belong to a caller's runtime, so a caller's runtime may end at any time. After a
//! fork the child has its own background, not started yet.
//!
//! Other threads queue jobs in its inbox. One wake-up covers all jobs queued since the last one, because a wake-up is a
//! system call. tokio makes one for every task that another thread spawns.

use std::cell::Cell;
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind};
use crate::sys::future::{give_way, in_any_case};
use crate::sys::handover::Handover;
use crate::sys::log::log;
use crate::sys::log_queue::{self, shielded};
use crate::sys::own_runtime;
use crate::sys::task::{Task, spawn, spawn_boxed};
use crate::texts::opaque;

/// The runner of background work.
#[derive(Debug)]
pub(crate) struct Background(Mutex<Option<Started>>);

/// A running background.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    runtime: Handle,
    /// `None` if the background has no thread of its own.
    inbox: Option<Arc<Inbox>>,
}

/// The jobs to begin on the background's thread, in order.
#[derive(Default)]
struct Inbox {
    jobs: Mutex<Vec<Job>>,
    filled: Notify,
    /// The number of jobs that were ever put here.
    put: AtomicUsize,
    /// The number of those whose tasks have run as far as they could; see [`TURNS`].
    settled: AtomicUsize,
}

/// How often the tasks that are ready have their turn before what they were to begin is taken for begun: a task, one
/// that it begins, and the connection of that one.
const TURNS: usize = 3;

thread_local! {
    /// Whether this thread is the background.
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// The start of a task on the background's runtime. Must neither block nor panic.
type Job = Box<dyn FnOnce(&Handle) + Send>;

impl Background {
    /// Uses its own thread, started at first use.
    pub(crate) const fn thread() -> Self {
        Self(Mutex::new(None))
    }

    /// Uses an existing runtime, for a simulation.
    pub(crate) const fn on(runtime: Handle) -> Self {
        Self(Mutex::new(Some(Started { runtime, inbox: None })))
    }

    /// Starts the thread if it does not run yet.
    ///
    /// # Errors
    ///
    /// `unavailable` if the operating system gives no thread or no event queue.
    pub(crate) fn start(&self) -> Result<Started, Error> {
        // A panic while starting leaves no half-done state here.
        let mut background = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*background {
            return Ok(started.clone());
        }
        let started = start()?;
        *background = Some(started.clone());
        Ok(started)
    }

    /// Returns the background, if running.
    pub(crate) fn started(&self) -> Option<Started> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `task` in the background. If the background cannot be started, the task is dropped and must report that in
    /// its own drop.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(task));
    }

    fn spawn_boxed(&self, task: Task) {
        match self.start() {
            Ok(started) => started.spawn_boxed(task),
            Err(error) => log!(BACKGROUND_FAILED, %error, "background work is dropped"),
        }
    }

    /// Runs `call` in the background and awaits its result, for callers without a runtime.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (task, output) = in_any_case(call);
        self.start()?.spawn_boxed(task);
        output.await.ok_or_else(Error::panicked)
    }
}

/// Refuses a call that blocks, if the calling thread is the background, or passes on what it logs: others wait for these.
///
/// # Errors
///
/// `invalid_argument`.
pub(crate) fn refuse_to_block() -> Result<(), Error> {
    if !IS_BACKGROUND.get() && !log_queue::is_here() {
        return Ok(());
    }
    Err(Error::invalid("a thread of redlock itself cannot wait for a lock; make the call on a thread of the program"))
}

impl Started {
    /// Returns whether `runtime` is the background's.
    pub(crate) fn is(&self, runtime: &Handle) -> bool {
        self.runtime.id() == runtime.id()
    }

    /// Runs `task` in the background.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(task));
    }

    /// Works as [`spawn`](Self::spawn).
    pub(crate) fn spawn_boxed(&self, task: Task) {
        self.begin(move |runtime| drop(spawn_boxed(runtime, task)));
    }

    /// Begins a task in the background with `job`: at once on the background's thread, else when the background reads
    /// its inbox.
    pub(crate) fn begin(&self, job: impl FnOnce(&Handle) + Send + 'static) {
        match &self.inbox {
            Some(inbox) if !IS_BACKGROUND.get() => inbox.put(Box::new(job)),
            _ => job(&self.runtime),
        }
    }

    /// Returns whether all that was begun in the background before has run as far as it could. The background may be at
    /// work for other reasons, such as an answer.
    pub(crate) fn is_settled(&self) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.is_settled())
    }

    /// Begins `task` on the calling thread, as a part of the background, which may go on with it; see [`Handover`]. Only
    /// while the background [is settled](Self::is_settled): else the task would overtake what the caller began before.
    pub(crate) fn begin_here(&self, task: impl Future<Output = ()> + Send + 'static) -> Handover {
        Handover::begin(&self.runtime, Box::pin(task))
    }
}

impl Inbox {
    /// A panic leaves no half-done state here.
    fn jobs(&self) -> MutexGuard<'_, Vec<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, job: Job) {
        let mut jobs = self.jobs();
        self.put.fetch_add(1, Ordering::Release);
        jobs.push(job);
        let first = jobs.len() == 1;
        drop(jobs);
        if first {
            self.filled.notify_one();
        }
    }

    /// Begins the queued jobs on `runtime`, for ever.
    async fn serve(self: &Arc<Self>, runtime: &Handle) {
        // Two lists swap and keep their capacity, so that neither thread frees a list that the other has made.
        let (mut jobs, mut begun) = (Vec::new(), 0);
        loop {
            self.filled.notified().await;
            mem::swap(&mut jobs, &mut *self.jobs());
            begun += jobs.len();
            for job in jobs.drain(..) {
                // A panic ends what the job was to begin, and not the background.
                shielded(|| job(runtime));
            }
            spawn(runtime, Arc::clone(self).settle(begun));
        }
    }
}

impl Inbox {
    /// Notes that so many jobs have begun, behind all tasks that are ready, [`TURNS`] times.
    async fn settle(self: Arc<Self>, begun: usize) {
        for _ in 0..TURNS {
            give_way().await;
        }
        self.settled.fetch_max(begun, Ordering::Release);
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire) == self.put.load(Ordering::Acquire)
    }
}

opaque!(Inbox);

fn start() -> Result<Started, Error> {
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::Unavailable,
            "cannot start the background thread; the limit on threads or open files may be reached",
        )
        .with_source(Arc::new(error))
    };
    let inbox = Arc::new(Inbox::default());
    let served = Arc::clone(&inbox);
    let main = |runtime: Handle| -> Task {
        Box::pin(async move {
            IS_BACKGROUND.set(true);
            log_queue::begin();
            served.serve(&runtime).await;
        })
    };
    let runtime = own_runtime::start("redlock", main).map_err(failed)?;
    Ok(Started { runtime, inbox: Some(inbox) })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use harness::{LIMIT, eventually, is_alone, this_test_without_threads};

    use super::*;
    use crate::sys::log::heard;

    #[test]
    fn it_is_settled_once_all_that_was_begun_has_run() {
        let background = Background::thread().start().unwrap();
        for _ in 0..1_000 {
            eventually("it is settled", || background.is_settled());
            let (sender, receiver) = channel();
            background.spawn(async move {
                // The last thing before it waits for ever.
                sender.send(()).unwrap();
                std::future::pending::<()>().await;
            });
            while !background.is_settled() {}
            receiver.try_recv().expect("it has run");
        }
        let (sender, receiver) = channel();
        let inner = background.clone();
        background.spawn(async move { sender.send(inner.is_settled()).unwrap() });
        assert!(!receiver.recv_timeout(LIMIT).unwrap(), "it is at work");
    }

    #[tokio::test]
    async fn a_call_that_panics_is_a_bug_and_not_tried_again() {
        let background = Background::thread();
        let error = background.run::<()>(async { panic!("on purpose") }).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("internal", false), "{error}");
    }

    #[test]
    fn it_is_settled_while_it_goes_on_with_what_has_waited_before() {
        let background = Background::thread().start().unwrap();
        let ((woken, wakes), (ends, end)) = (channel(), channel::<()>());
        let notify = Arc::new(Notify::new());
        let notified = Arc::clone(&notify);
        background.spawn(async move {
            notified.notified().await;
            woken.send(()).unwrap();
            end.recv().unwrap();
        });
        eventually("it has run as far as it could", || background.is_settled());
        notify.notify_one();
        wakes.recv_timeout(LIMIT).unwrap();
        assert!(background.is_settled(), "nothing is left to begin");
        background.spawn(async {});
        assert!(!background.is_settled());
        ends.send(()).unwrap();
        eventually("it has begun that too", || background.is_settled());
    }

    #[test]
    fn without_a_thread_it_says_that_work_is_dropped() {
        const ME: &str = "without_a_thread_it_says_that_work_is_dropped";
        if !is_alone(this_test_without_threads(module_path!(), ME)) {
            return;
        }
        let (sender, receiver) = channel::<()>();
        let ((), said) = heard::text(|| Background::thread().spawn(async move { drop(sender) }));
        assert!(said.contains("background_failed"), "{said}");
        assert!(receiver.recv().is_err(), "the task is dropped");
    }
}
