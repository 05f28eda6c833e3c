//! The events of the process, for languages that `tracing` does not reach.

pub use crate::event::{ALL, Event, Topic};
pub use crate::process::events::{Events, Record};
