//! What a node tells of itself when a connection is made.

use std::time::Duration;

use crate::sys::clock::Moment;

/// A node's identity: changes when its server restarts, is replaced or changes its role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// New at every start of the server; empty if INFO is refused.
    pub(crate) run_id: String,
    /// Names the history of the server's data; empty if INFO is refused.
    pub(crate) replid: String,
    /// Names the history that this one continues (`master_replid2`); empty if there is none.
    pub(crate) former_replid: String,
    pub(crate) role: Role,
}

/// A server's role in replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not reported.
    #[default]
    Untold,
    Master,
    /// A replica never votes.
    Replica,
}

impl Identity {
    /// Returns whether a node that was `before` may have forgotten grants since. A field that was not reported, then or
    /// now, shows nothing.
    pub(crate) fn may_have_forgotten(&self, before: &Self) -> bool {
        differs(&self.run_id, &before.run_id) || self.has_changed_role(before) || self.has_other_data(before)
    }

    /// Returns whether a node that was `before` may have been promoted since, at any time: its data may be those of another
    /// server. One that restarted with its own data continues the history that it had.
    pub(crate) fn may_be_promoted(&self, before: &Self) -> bool {
        self.has_changed_role(before) || self.has_other_data(before) && self.former_replid != before.replid
    }

    fn has_changed_role(&self, before: &Self) -> bool {
        self.role != Role::Untold && before.role != Role::Untold && self.role != before.role
    }

    /// A new `replid` alone shows nothing: a server draws one when its first replica comes, or after some time without a
    /// replica. Where the data came from elsewhere, the server also keeps the former id as its second.
    fn has_other_data(&self, before: &Self) -> bool {
        !self.former_replid.is_empty() && differs(&self.replid, &before.replid)
    }

    /// Updates the fields reported in `told`. The others stay as reported to another user.
    pub(crate) fn update(&mut self, told: &Self) {
        if !told.run_id.is_empty() {
            self.run_id.clone_from(&told.run_id);
        }
        if !told.replid.is_empty() {
            self.replid.clone_from(&told.replid);
            self.former_replid.clone_from(&told.former_replid);
        }
        if told.role != Role::Untold {
            self.role = told.role;
        }
    }
}

/// Returns whether both were reported, and are not the same.
pub(crate) fn differs(now: &str, before: &str) -> bool {
    !now.is_empty() && !before.is_empty() && now != before
}

/// A node's report about itself when a connection is made, before a grant on that connection counts.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    pub(crate) identity: Identity,
    /// The server's uptime, at least.
    pub(crate) uptime: Duration,
    /// The eviction policy, if it may remove keys that have not expired.
    pub(crate) evicts: Option<String>,
    /// What the node refuses, or hangs up on.
    pub(crate) lacks: Lacks,
    /// Whether the node will report changed keys on this connection.
    pub(crate) watched: bool,
    /// When another connection may report more: a command was refused or left out on this one.
    pub(crate) again: Moment,
}

impl ServerInfo {
    /// Returns the info of a server that told this, and nothing else.
    pub(crate) fn of(identity: Identity) -> Self {
        let (uptime, again) = (Duration::ZERO, Moment::NEVER);
        Self { identity, uptime, evicts: None, lacks: Lacks::default(), watched: false, again }
    }
}

/// The optional commands that a node refuses, or hangs up on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// INFO, or a `run_id` in it: no restart can be seen then.
    pub(crate) info: bool,
    /// HELLO or CLIENT TRACKING, on a connection that was to have them.
    pub(crate) notifications: bool,
    /// EVALSHA.
    pub(crate) hashes: bool,
}

impl Lacks {
    /// Returns what is lacking here, and not in `known`.
    pub(crate) fn besides(self, known: Self) -> Self {
        Self {
            info: self.info && !known.info,
            notifications: self.notifications && !known.notifications,
            hashes: self.hashes && !known.hashes,
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            info: self.info || other.info,
            notifications: self.notifications || other.notifications,
            hashes: self.hashes || other.hashes,
        }
    }
}
