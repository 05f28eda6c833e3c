//! The interface for the Python and Node packages and for the program `redlock`. Other programs must not use it: anything may change in any release.
//!
//! May import `api` and what lies below it.

pub use crate::acquire::thread::Stop;
pub use crate::api::inspect::StateValues;
pub use crate::api::listing::Listing;
pub use crate::credentials::ProviderError;
pub use crate::error::Waited;
pub use crate::hold::detach::Detaching;
pub use crate::sys::fork::{PerProcess, Pid};
pub use crate::sys::mutex::Mutex;

pub mod clock {
    //! Time as locks see it: it goes on while the machine sleeps.
    pub use crate::sys::clock::{Alarm, Clock, Moment};
}
pub mod calls;
pub mod completion_queue;
pub mod events;
pub mod lock_object;
pub mod operator;
pub mod options;
