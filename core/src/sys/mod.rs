//! The operating system and tokio: time, randomness, tasks, threads and forks.
//!
//! What differs between systems is in one file for each question to the system: `boot_time`, `descriptor`,
//! `file_version`, `host`, `limits` and `local_socket`. No other file asks which system it is.
//!
//! May import `error` and `event`.

pub(crate) mod background;
pub(crate) mod boot_time;
pub(crate) mod clock;
pub(crate) mod current_runtime;
pub(crate) mod descriptor;
pub(crate) mod event_loop;
pub(crate) mod file_version;
pub(crate) mod followers;
pub(crate) mod fork;
pub(crate) mod future;
pub(crate) mod handover;
pub(crate) mod histogram;
pub(crate) mod host;
pub(crate) mod lifeline;
pub(crate) mod limits;
pub(crate) mod local_socket;
pub(crate) mod log;
pub(crate) mod log_queue;
pub(crate) mod mutex;
pub(crate) mod on_drop;
pub(crate) mod own_runtime;
pub(crate) mod random;
pub(crate) mod runtimes;
pub(crate) mod shared_calls;
pub(crate) mod task;
