//! Giving back what the process holds, before it ends.

use std::thread;
use std::time::Duration;

use crate::process::Process;
use crate::process::shutdown::PendingWork;

/// Longest wait for the servers. More would be a hang to who ends the program; what is left runs out with its ttl.
const LIMIT: Duration = Duration::from_millis(500);

/// Turns of the background in which a cancelled call is dropped, its wait with it, and what that one had sent is pending.
const TURNS: usize = 8;

/// Releases every lock held by this process, ends its waiting calls with an `unavailable` error, and waits up to 500 ms for
/// the servers. Locks that could not be released expire after their ttl.
///
/// For the end of `main`: a guard that is dropped there has its release queued, and the process may be gone before it is
/// sent. A program that awaits [`Guard::release`](crate::Guard::release) for each does not need it.
///
/// It blocks, also in async code, and is final: what waits for a lock does not get it, nothing is acquired any more, and
/// saying it again does nothing.
///
/// # Examples
///
/// ```
/// # use redlock::Redlock;
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), redlock::Error> {
///     let redlock = Redlock::new("memory://shutdown-example")?;
///     let work = async {
///         let _guard = redlock.lock("report").await?;
///         Ok(())
///     };
///     let done = tokio::select! {
///         done = work => done,
///         // Or SIGTERM. The work is dropped, and its guard with it.
///         Ok(()) = tokio::signal::ctrl_c() => Ok(()),
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
    if let Some(background) = process.background.started() {
        // What was cancelled a moment ago is dropped by the background, and only then known to be pending.
        let pending_work = PendingWork::new(&process.shutdown);
        background.spawn(async move {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            drop(pending_work);
        });
    }
    if process.shutdown.has_pending_work() {
        wait(&process);
    }
}

/// Waits for the servers, on a thread of its own: the caller may be in a tokio context, where none may block.
fn wait(process: &Process) {
    let clock = process.clock.clone();
    let done = process.shutdown.done(async move { clock.sleep(LIMIT).await });
    thread::scope(|scope| {
        // Driven on a runtime of the blocking face: releases may be queued on its connections.
        let drive = || drop(process.pool.drive(&process.clock, None, done));
        if let Ok(acquire) = thread::Builder::new().spawn_scoped(scope, drive) {
            drop(acquire.join());
        }
    });
}
