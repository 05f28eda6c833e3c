//! The context of every call on a lock: the process, the node set and the lock's spec.

use std::sync::Arc;

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

/// One call's context.
#[derive(Clone, Debug)]
pub(crate) struct LockContext {
    pub(crate) process: Arc<Process>,
    pub(crate) set: Arc<NodeSet>,
    pub(crate) spec: Arc<Spec>,
    /// The end of the client, which ends its waiting calls.
    pub(crate) client: Arc<Ending>,
}
