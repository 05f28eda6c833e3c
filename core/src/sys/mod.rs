//! The operating system and tokio: time, randomness, tasks, threads and forks.
//!
//! May import `error` and `event`.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod current_runtime;
pub(crate) mod event_loop;
pub(crate) mod fork;
pub(crate) mod future;
pub(crate) mod handover;
pub(crate) mod histogram;
pub(crate) mod host;
pub(crate) mod log;
pub(crate) mod log_queue;
pub(crate) mod own_runtime;
pub(crate) mod random;
pub(crate) mod runtimes;
pub(crate) mod shared_calls;
pub(crate) mod task;
