//! A thread with a runtime of its own, for futures of the program. Such a future may block its thread, or wait for
//! calls of this library, and nothing else stands still.
//!
//! What may interrupt it: the owner drops it, which ends the thread with all that runs there, or once a future that blocks
//! it returns; a call is dropped, which drops its future there; a future that panics, which ends that call.

use std::future::Future;
use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::sys::future::while_awaited;
use crate::sys::task::spawn;

/// A thread that runs futures, until this is dropped.
#[derive(Debug)]
pub(crate) struct OwnRuntime {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl OwnRuntime {
    /// Starts a thread with this name.
    pub(crate) async fn start(name: &str) -> io::Result<Self> {
        let (sender, started) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                drop(sender.send(Ok(runtime.handle().clone())));
                drop(runtime.block_on(ended));
            }
            Err(error) => drop(sender.send(Err(error))),
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        let handle = started.await.map_err(io::Error::other)??;
        Ok(Self { handle, _end: end })
    }

    /// Runs `future` there. Returns `None` if it panics.
    pub(crate) async fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (task, output) = while_awaited(future);
        spawn(&self.handle, task);
        output.await.ok()
    }
}
