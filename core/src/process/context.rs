//! The context of every call on a lock: the process, the node set and the lock's spec.

use std::borrow::Cow;
use std::sync::Arc;

use crate::address::Origin;
use crate::error::Error;
use crate::net::connections::Connections;
use crate::options::{Protocol, Settings};
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::process::shutdown::Ending;
use crate::protocol::detached::Detached;
use crate::protocol::name::Name;
use crate::protocol::request::Keys;
use crate::protocol::shape::Names;
use crate::sys::clock::Moment;

/// A lock's names, keys and settings, fixed when the call begins.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The whole name, with the client's prefix, as errors and logs show it.
    pub(crate) name: Name,
    pub(crate) names: Names,
    /// The length of that prefix.
    pub(crate) prefix: usize,
    /// The keys; of a semaphore, those of its first slot.
    pub(crate) keys: Arc<Keys>,
    pub(crate) settings: Settings,
    /// Whether it is the term of an election.
    pub(crate) is_term: bool,
    /// The detached lock to attach, instead of an acquire.
    pub(crate) detached: Option<Arc<Detached>>,
    /// Where its client has the addresses from, for errors.
    pub(crate) origin: Origin,
}

impl Spec {
    /// Returns the name without the client's prefix, or the names joined.
    pub(crate) fn given_name(&self) -> &[u8] {
        self.names.given(self.prefix)
    }

    /// Refuses to detach the lock if that makes no sense: its keys do not show their owner, or its election would not
    /// know of the new one.
    pub(crate) fn allows_detach(&self) -> Result<(), Error> {
        let refused = if self.settings.protocol == Protocol::Setnx {
            "detach is not available with protocol \"setnx\""
        } else if self.is_term {
            "detach is not available for the term of an election; stop the election, so that another candidate leads"
        } else {
            return Ok(());
        };
        Err(Error::invalid(refused).with_name(self.name.bytes()))
    }

    /// Returns each name without the client's prefix.
    pub(crate) fn given_names(&self) -> Vec<&[u8]> {
        self.names.each().iter().map(|name| &name.bytes()[self.prefix..]).collect()
    }
}

/// How often one operation begins again because the lock is on another set.
const MOVES_MOST: u32 = 5;

/// The connections of one operation, which follows its lock to the set that has it.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) connections: Arc<Connections>,
    /// When it stays where it is.
    end: Moment,
    moves: u32,
}

impl Following {
    pub(crate) fn new(connections: &Arc<Connections>, end: Moment) -> Self {
        Self { connections: Arc::clone(connections), end, moves: 0 }
    }

    /// Goes on to the set that has the lock now. Returns false if that is the same one, and after the end.
    pub(crate) fn moves_on(&mut self, context: &LockContext) -> bool {
        if self.moves == MOVES_MOST || self.connections.clock.now() >= self.end {
            return false;
        }
        let Some(there) = context.moved_from(&self.connections) else { return false };
        self.connections = there;
        self.moves += 1;
        true
    }
}

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

    /// Whether the client is closed, or redlock is shut down.
    pub(crate) fn has_ended(&self) -> bool {
        self.process.shutdown.has_started() || self.client.has_started()
    }

    /// Returns the context of a slot of this semaphore.
    pub(crate) fn of_slot(&self, slot: u32) -> Self {
        let spec = Spec { keys: self.spec.names.slot_keys(slot), ..Spec::clone(&self.spec) };
        Self { spec: Arc::new(spec), ..self.clone() }
    }

    /// Returns the address of a node, as it is shown.
    pub(crate) fn address(&self, node: usize) -> String {
        self.set().members.nodes[node].address.to_string()
    }

    /// Whether another set than that of `connections` has this lock now.
    pub(crate) fn has_moved(&self, connections: &Connections) -> bool {
        !Arc::ptr_eq(&self.set().members, &connections.members)
    }

    /// Returns connections like these to the set that has this lock now, if it is another set.
    pub(crate) fn moved_from(&self, connections: &Connections) -> Option<Arc<Connections>> {
        self.has_moved(connections).then(|| self.set().connections_like(connections))
    }
}
