//! Starts tasks on a runtime, and threads: the only file that does.
//!
//! In a simulation a stand-in may replace a runtime. Its tasks can be stopped and ended all at once.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::thread::{Builder, JoinHandle};

use tokio::runtime::{Handle, Runtime};
use tokio::task::AbortHandle;

/// A task of any kind. The runtime's code is compiled once for all of them.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `task` on `runtime`.
pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    spawn_boxed(runtime, Box::pin(task))
}

/// Works as [`spawn`].
pub(crate) fn spawn_boxed(runtime: &Handle, task: Task) -> AbortHandle {
    if cfg!(feature = "__simulation")
        && let Some(stand_in) = simulated::stand_in(runtime)
    {
        return stand_in.spawn(task);
    }
    runtime.spawn(task).abort_handle()
}

/// Runs `work` on a thread of its own. What starts a thread is compiled once for all of them.
pub(crate) fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let work: Box<dyn FnOnce() + Send> = Box::new(work);
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Drives `future` to its end on the calling thread. The runtime's code is compiled once for all of them, too.
pub(crate) fn block_on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let mut output = None;
    {
        let future: Pin<&mut dyn Future<Output = ()>> = pin!(async { output = Some(future.await) });
        runtime.block_on(future);
    }
    output.expect("it has been driven to its end")
}

/// The stand-ins for runtimes in a simulation, which is one thread.
pub(crate) mod simulated {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::sync::Arc;

    use tokio::runtime::{Handle, Id};
    use tokio::task::AbortHandle;

    use super::Task;

    /// A receiver of tasks meant for a runtime.
    pub(crate) trait StandIn {
        fn spawn(self: Arc<Self>, task: Task) -> AbortHandle;
    }

    thread_local! {
        static STAND_INS: RefCell<HashMap<Id, Arc<dyn StandIn>>> = RefCell::default();
    }

    /// Returns the stand-in for `runtime`.
    pub(super) fn stand_in(runtime: &Handle) -> Option<Arc<dyn StandIn>> {
        STAND_INS.with_borrow(|stand_ins| stand_ins.get(&runtime.id()).cloned())
    }

    /// Makes `stand_in` replace `runtime` from now on.
    pub(crate) fn enter(runtime: &Handle, stand_in: Arc<dyn StandIn>) {
        STAND_INS.with_borrow_mut(|stand_ins| stand_ins.insert(runtime.id(), stand_in));
    }

    /// Removes the stand-in for the runtime.
    pub(crate) fn leave(runtime: Id) {
        drop(STAND_INS.with_borrow_mut(|stand_ins| stand_ins.remove(&runtime)));
    }
}
