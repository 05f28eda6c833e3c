//! The events of the log: one table of what the engine tells an operator.
//!
//! A `tracing` subscriber sees each as an event with the target `redlock::` and its topic, and its code in the field
//! `code`. The page on observing lists them for people.

use tracing::Level;

use crate::texts::texts;

/// The topic of an event. It is the target of the event, and the name of a logger or a channel in other languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A node, or what is between this process and it.
    Node,
    /// One lock.
    Lock,
    /// The process itself.
    Process,
}

texts! {
    Topic:
    /// Returns the topic in one word: `node`, `lock` or `process`.
    pub as_str: Node = "node", Lock = "lock", Process = "process",
}

impl Topic {
    /// Returns the target of its events.
    #[must_use]
    pub const fn target(self) -> &'static str {
        match self {
            Self::Node => "redlock::node",
            Self::Lock => "redlock::lock",
            Self::Process => "redlock::process",
        }
    }
}

/// One event.
#[derive(Debug)]
pub struct Event {
    /// The stable name.
    pub code: &'static str,
    /// The topic.
    pub topic: Topic,
    /// How serious it is.
    pub level: Level,
    /// The fields beside `code` and the message, in their order.
    pub fields: &'static [&'static str],
    /// Whether a person has to change something, or locks are not safe.
    pub needs_person: bool,
}

impl Event {
    const fn new(code: &'static str, topic: Topic, level: Level, fields: &'static [&'static str]) -> Self {
        Self { code, topic, level, fields, needs_person: false }
    }

    const fn for_person(self) -> Self {
        Self { needs_person: true, ..self }
    }
}

macro_rules! events {
    ($($name:ident = $event:expr;)+) => {
        $(pub(crate) const $name: Event = $event;)+

        /// Every event, in the order of the documentation.
        pub static ALL: &[&Event] = &[$(&$name),+];
    };
}

events! {
    NODE_SILENT = Event::new("node_silent", Topic::Node, Level::WARN, &["node"]);
    NODE_ANSWERS = Event::new("node_answers", Topic::Node, Level::INFO, &["node"]);
    NODE_UNREACHABLE = Event::new("node_unreachable", Topic::Node, Level::WARN, &["node", "failure"]);
    NODE_REFUSES = Event::new("node_refuses", Topic::Node, Level::WARN, &["node", "failure"]);
    CONNECT_FAILED = Event::new("connect_failed", Topic::Node, Level::DEBUG, &["node", "failure"]);
    NODE_RESTARTED = Event::new("node_restarted", Topic::Node, Level::WARN, &["node"]);
    FAILOVER = Event::new("failover", Topic::Node, Level::WARN, &["node", "from", "to"]);
    NODE_EVICTS = Event::new("node_evicts", Topic::Node, Level::WARN, &["node", "policy"]).for_person();
    NODE_LISTED_TWICE = Event::new("node_listed_twice", Topic::Node, Level::WARN, &["node", "other"]).for_person();
    NODE_REFUSES_INFO = Event::new("node_refuses_info", Topic::Node, Level::WARN, &["node"]).for_person();
    NODE_REFUSES_TRACKING = Event::new("node_refuses_tracking", Topic::Node, Level::INFO, &["node"]);
    TRACKING_REFUSED = Event::new("tracking_refused", Topic::Node, Level::DEBUG, &["node", "error"]);
    NODE_REFUSES_EVALSHA = Event::new("node_refuses_evalsha", Topic::Node, Level::INFO, &["node"]);
    NODE_REFUSES_HELLO = Event::new("node_refuses_hello", Topic::Node, Level::DEBUG, &["node"]);
    LOGIN_FAILED = Event::new("login_failed", Topic::Node, Level::WARN, &["error"]).for_person();
    TLS_FILES_KEPT = Event::new("tls_files_kept", Topic::Node, Level::WARN, &["option"]).for_person();
    RELEASES_ABANDONED = Event::new("releases_abandoned", Topic::Node, Level::WARN, &["node"]);
    LOCK_LOST = Event::new("lock_lost", Topic::Lock, Level::WARN, &["name", "reason"]);
    WAITS_FOR_OWN_PROCESS =
        Event::new("waits_for_own_process", Topic::Lock, Level::WARN, &["name", "label", "age"]);
    LOCK_ABANDONED = Event::new("lock_abandoned", Topic::Lock, Level::WARN, &["name"]).for_person();
    LISTS_DIFFER =
        Event::new("lists_differ", Topic::Lock, Level::WARN, &["name", "nodes", "other_nodes"]).for_person();
    QUARANTINE_AWAITED = Event::new("quarantine_awaited", Topic::Lock, Level::INFO, &["name", "nodes", "wait"]);
    BACKGROUND_FAILED = Event::new("background_failed", Topic::Process, Level::ERROR, &["error"]).for_person();
    CLOCK_POLLED = Event::new("clock_polled", Topic::Process, Level::DEBUG, &["error"]);
    THREAD_MISSING = Event::new("thread_missing", Topic::Process, Level::DEBUG, &["error"]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique() {
        let codes: BTreeSet<_> = ALL.iter().map(|event| event.code).collect();
        assert_eq!(codes.len(), ALL.len());
    }

    #[test]
    fn what_needs_a_person_is_at_least_a_warning() {
        // In the order of `tracing`, a more serious level is smaller.
        assert!(ALL.iter().all(|event| !event.needs_person || event.level <= Level::WARN));
    }
}
