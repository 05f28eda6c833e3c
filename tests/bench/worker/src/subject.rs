//! A library whose locks are measured.

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

use crate::Failure;

/// The runtime of the async subjects, as `#[tokio::main]` makes it.
pub static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().enable_all().build().expect("a runtime can be made"));

/// Waits for the end of what was spawned.
pub type Wait = Box<dyn FnOnce()>;

/// A library whose locks are measured. Blocking ones have futures that never wait.
pub trait Subject: 'static {
    /// Its connections to a set of nodes.
    type Client: Clone + Send + Sync + 'static;
    /// A lock that is held.
    type Held: Send + 'static;

    /// Its version.
    fn version() -> &'static str;

    /// Runs this beside everything else: as a task, or on another thread.
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait;

    /// Lets time pass in what was spawned; blocking libraries have their own.
    #[must_use]
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
        // tokio's timers count whole milliseconds: one of 1 ms takes up to two.
        async move { spawn_blocking(move || thread::sleep(duration)).await.expect("sleeping does not panic") }
    }

    /// A client for these nodes.
    fn open(urls: &[String], ttl: Duration) -> Result<Self::Client, Failure>;

    /// Acquires a lock without a time limit.
    fn acquire(client: &Self::Client, name: &str) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Releases it.
    fn release(held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// [`Subject::spawn`] of async libraries.
///
/// # Panics
///
/// While it waits for what has panicked.
pub fn spawn_async(work: impl Future<Output = ()> + Send + 'static) -> Wait {
    let task = RUNTIME.spawn(work);
    Box::new(|| RUNTIME.block_on(task).expect("the task did not panic"))
}

/// [`Subject::spawn`] of blocking libraries: every call blocks inside the first poll.
///
/// # Panics
///
/// While it waits for what has panicked.
pub fn run_blocking(work: impl Future<Output = ()> + Send + 'static) -> Wait {
    let thread = thread::spawn(|| match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(()) => {}
        Poll::Pending => unreachable!("a blocking call does not wait for a waker"),
    });
    Box::new(|| thread.join().expect("the thread did not panic"))
}
