//! A held lock: from the attempt that won it to its release or loss.
//!
//! May import `process` and what lies below it.

pub(crate) mod claim;
pub(crate) mod extend;
pub(crate) mod lease;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod restore;
pub(crate) mod setnx;
