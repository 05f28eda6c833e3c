//! The context of every call on a lock: the process, the node set and the lock's spec.

use std::borrow::Cow;
use std::sync::Arc;

use crate::net::connections::Connections;
use crate::options::Settings;
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::process::shutdown::Ending;
use crate::protocol::name::Name;
use crate::protocol::request::Keys;

/// A lock's name, keys and settings, fixed when the call begins.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The whole name, with the client's prefix.
    pub(crate) name: Name,
    /// The length of that prefix.
    pub(crate) prefix: usize,
    pub(crate) keys: Arc<Keys>,
    pub(crate) settings: Settings,
}

/// How often one operation begins again because the lock is on another set.
pub(crate) const MOVES_MOST: u32 = 5;

/// One call's context.
#[derive(Clone, Debug)]
pub(crate) struct LockContext {
    pub(crate) process: Arc<Process>,
    /// The client's nodes. What is asked goes to [`LockContext::set`].
    pub(crate) listed: Arc<NodeSet>,
    pub(crate) spec: Arc<Spec>,
    /// The end of the client, which ends its waiting calls.
    pub(crate) client: Arc<Ending>,
}

impl LockContext {
    /// Returns the set that has this lock now. It changes when a cluster does, so that each attempt, extension, release
    /// and inspection looks it up.
    pub(crate) fn set(&self) -> Cow<'_, Arc<NodeSet>> {
        self.listed.of_key(&self.spec.keys.lock)
    }

    /// Whether another set than that of `connections` has this lock now.
    pub(crate) fn has_moved(&self, connections: &Connections) -> bool {
        !Arc::ptr_eq(&self.set().members, &connections.members)
    }

    /// Returns connections like these to the set that has this lock now, if it is another set.
    pub(crate) fn moved_from(&self, connections: &Connections) -> Option<Arc<Connections>> {
        let set = self.set();
        let has_moved = !Arc::ptr_eq(&set.members, &connections.members);
        has_moved.then(|| set.connections_like(connections))
    }
}
