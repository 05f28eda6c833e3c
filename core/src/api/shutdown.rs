//! Shutdown: a process releases its locks before it ends.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::acquire::thread::{Caller, drive};
use crate::process::Process;
use crate::process::shutdown::PendingWork;
use crate::sys::log_queue;
use crate::sys::task::on_thread;

/// The longest wait for the servers. A longer one would look like a hang. The remaining locks expire after their ttl.
const LIMIT: Duration = Duration::from_millis(500);

/// The turns of the background after which a cancelled call and its wait are dropped, and their releases are pending.
const TURNS: usize = 8;

/// Releases every lock held by this process, ends its waiting calls with a `closed` error, and waits up to 500 ms for
/// the servers. Locks that could not be released expire after their ttl.
///
/// Call it at the end of `main`. A guard that is dropped there only queues its release, and the process may end before
/// the release is sent. A program that awaits [`Guard::release`](crate::Guard::release) for each guard does not need
/// this call.
///
/// The call blocks, even in async code; [`shutdown_async`] does not. It is final, and for all clients of the process;
/// [`Redlock::close`](crate::Redlock::close) ends one. Waiting calls do not get their locks, and no lock can be acquired any
/// more. Another call does nothing.
///
/// # Examples
///
/// ```
/// # use redlock::Redlock;
/// # async fn asked_to_end() {}
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), redlock::Error> {
///     let redlock = Redlock::new("memory://shutdown-example")?;
///     let work = async {
///         let _guard = redlock.lock("report").await?;
///         Ok(())
///     };
///     let done = tokio::select! {
///         done = work => done,
///         // At SIGTERM, for example. The work is dropped, and its guard with it.
///         () = asked_to_end() => Ok(()),
///     };
///     redlock::shutdown();
///     done
/// }
/// ```
pub fn shutdown() {
    let process = Process::current();
    if !process.shutdown.start() {
        return;
    }
    process.schedule.release_all();
    let background = process.background.started();
    if let Some(background) = &background {
        // The background still has to drop calls that were cancelled a moment ago. Only then is their work pending.
        let pending_work = PendingWork::new(&process.shutdown);
        background.spawn(async move {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            drop(pending_work);
        });
    }
    if background.is_some() || process.shutdown.has_pending_work() {
        wait(&process);
    }
}

/// Does as [`shutdown`], and lets the runtime go on meanwhile. Cancel safe: what is begun goes on.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// let redlock = redlock::Redlock::new("memory://shutdown-async-example")?;
/// let guard = redlock.lock("report").await?;
/// redlock::shutdown_async().await;
/// assert!(!guard.is_held());
/// # Ok(())
/// # }
/// ```
pub async fn shutdown_async() {
    let (sender, receiver) = oneshot::channel();
    let end = move || {
        shutdown();
        let _ = sender.send(());
    };
    if on_thread("redlock-shutdown", end).is_ok() {
        drop(receiver.await);
    }
}

/// Waits for the servers, and then for the program's subscriber. On a separate thread: the caller may be in a tokio
/// context, which must not drive a runtime.
fn wait(process: &Arc<Process>) {
    let ending = Arc::clone(process);
    let done = async move {
        let done = pin!(async {
            ending.shutdown.done(pending()).await;
            if ending.background.started().is_some() {
                drop(ending.background.run(log_queue::passed_on()).await);
            }
        });
        ending.clock.timeout(LIMIT, done).await;
    };
    let process = Arc::clone(process);
    // Drives a runtime of the blocking API, because releases may be queued on its connections.
    let wait = move || drop(drive(&Caller { process: &process, runtime: None, seats: None }, done));
    if let Ok(driver) = on_thread("redlock-shutdown", wait) {
        drop(driver.join());
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use harness::Server;

    use super::*;
    use crate::blocking::Redlock;

    /// Each thread that waits for a loss drives one.
    #[test]
    fn it_waits_for_the_servers_while_threads_drive_all_runtimes() {
        harness::alone!();
        let server = Server::start();
        let _guard = Redlock::new(server.url()).unwrap().lock("foo").acquire().unwrap();
        let process = Process::current();
        let take = || process.pool.take(&process.clock, &process.background, None, None);
        let _driven: Vec<_> = iter::from_fn(take).collect();
        server.freeze();
        let begun = process.clock.now();
        shutdown();
        assert!(process.clock.now().since(begun) >= LIMIT);
    }
}
