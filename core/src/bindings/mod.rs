//! The interface for the Python and Node packages. Not for other programs: anything in it may change in any release.
//!
//! May import `api` and what lies below it.

pub mod completion_queue;
pub mod lock_object;
pub mod options;
