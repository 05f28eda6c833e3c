//! The interface for the Python and Node packages. Other programs must not use it: anything may change in any release.
//!
//! May import `api` and what lies below it.

pub mod completion_queue;
pub mod lock_object;
pub mod options;
