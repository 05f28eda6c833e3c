//! A thread with a runtime of its own, for futures of the program. Such a future may block its thread, or wait for
//! calls of this library, and nothing else stands still.
//!
//! What may interrupt it: the owner drops it, which ends the thread with all that runs there, or once a future that blocks
//! it returns; a call is dropped, which drops its future there; a future that panics, which ends that call.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::sys::future::while_awaited;
use crate::sys::mutex::Mutex;
use crate::sys::task::{Task, block_on, on_thread, spawn_boxed};

/// A thread that runs futures, until this is dropped.
#[derive(Debug)]
pub(crate) struct OwnRuntime {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

/// Starts a thread with this name and a runtime, which drives `main` there.
pub(crate) fn start(name: &str, main: impl FnOnce(Handle) -> Task) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (main, place) = (main(handle.clone()), Arc::new(Mutex::new(Some(runtime))));
    let taken = Arc::clone(&place);
    let run = move || {
        let runtime = taken.lock().take();
        block_on(&runtime.expect("it is taken only here"), main);
    };
    if let Err(error) = on_thread(name, run) {
        // The caller may be in a tokio context, where none may be dropped.
        if let Some(runtime) = place.lock().take() {
            runtime.shutdown_background();
        }
        return Err(error);
    }
    Ok(handle)
}

impl OwnRuntime {
    /// Starts a thread with this name.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (end, ended) = oneshot::channel::<()>();
        let handle = start(name, |_| Box::pin(async { drop(ended.await) }))?;
        Ok(Self { handle, _end: end })
    }

    /// Runs `future` there. Returns `None` if it panics.
    pub(crate) async fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (task, output) = while_awaited(future);
        spawn_boxed(&self.handle, task);
        output.await
    }
}
