//! What every call on a lock needs: the process, the set of nodes, and what is to be locked.

use std::sync::Arc;

use crate::options::Settings;
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::process::shutdown::Ending;
use crate::protocol::name::Name;
use crate::protocol::request::Keys;

/// What is to be locked, and how; fixed when the call begins.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: Name,
    pub(crate) keys: Arc<Keys>,
    pub(crate) settings: Settings,
}

/// Where attempts are made from.
#[derive(Clone, Debug)]
pub(crate) struct LockContext {
    pub(crate) process: Arc<Process>,
    pub(crate) set: Arc<NodeSet>,
    pub(crate) spec: Arc<Spec>,
    /// The end of the client, which ends its waiting calls.
    pub(crate) client: Arc<Ending>,
}
