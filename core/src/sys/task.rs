//! Starts tasks on a runtime: the only file that does.
//!
//! In a simulation a stand-in may replace a runtime. Its tasks can be stopped and ended all at once.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Runs `task` on `runtime`.
pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    if cfg!(feature = "__simulation")
        && let Some(stand_in) = simulated::stand_in(runtime)
    {
        return stand_in.spawn(Box::pin(task));
    }
    runtime.spawn(task).abort_handle()
}

/// The stand-ins for runtimes in a simulation, which is one thread.
pub(crate) mod simulated {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;

    use tokio::runtime::{Handle, Id};
    use tokio::task::AbortHandle;

    /// A task of any kind.
    pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

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
