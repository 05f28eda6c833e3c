//! PURE: what an operator is told about a node. The files beside this one judge the answers of a server, of its
//! sentinels, and of a server about its cluster.

use std::time::Duration;

use crate::texts::texts;

pub(crate) mod cluster;
pub(crate) mod sentinels;
pub(crate) mod server;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Ok,
    /// Locks work, and something is lost: the message says what.
    Warning,
    /// The node cannot vote, or its vote does not count.
    Unusable,
}

texts! {
    Level,
    /// Every level, from the best to the worst.
    pub all,
    /// Returns the stable text of this level: `ok`, `warning` or `unusable`.
    as_str: Ok = "ok", Warning = "warning", Unusable = "unusable",
}

/// One finding about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at: `connection`, `tls`, `role`, `version`, `resp3`, `info`, `tracking`, `evalsha`, `rights`,
    /// `eviction`, `persistence`, `replicas`, `clients`, `clock`, `cluster`, `slots`, `coverage`, `map`, `sentinel`,
    /// `primary`, `failover`, `alias` or `vote`.
    pub check: &'static str,
    /// How serious it is.
    pub level: Level,
    /// What was found, and what to do, in one sentence.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(check: &'static str, level: Level, message: impl Into<String>) -> Self {
        Self { check, level, message: message.into() }
    }
}

/// A refusal of a command, by its error code.
pub(crate) type Refusal = String;

/// Returns the shortest ttl with which held locks outlive a failover that takes so long.
pub(crate) fn least_ttl(failover: Duration) -> Duration {
    // A lock is renewed after a third of its ttl, and has two thirds left just before.
    failover.saturating_mul(3) / 2
}
