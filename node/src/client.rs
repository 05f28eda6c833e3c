//! The client, and its view of the nodes.

use std::sync::Arc;

use napi::bindgen_prelude::{Either, Null, Uint8Array, Unknown};
use napi_derive::napi;
use redlock::bindings::lock_object::LockObject;
use redlock::{Error, NodeState, Redlock};

use crate::convert::{ms, number};
use crate::error::Failure;
use crate::lock::Holder;
use crate::options::read_options;

/// A name as the caller gave it.
#[napi]
pub type Name = Either<String, Uint8Array>;

pub(crate) fn bytes(name: &Name) -> &[u8] {
    match name {
        Either::A(text) => text.as_bytes(),
        Either::B(bytes) => bytes,
    }
}

/// A client for one set of nodes.
#[derive(Debug)]
#[napi]
pub struct Client(pub(crate) Redlock);

#[napi]
impl Client {
    /// Makes a client for these nodes, or else for the nodes in the environment variable `REDLOCK_URLS`.
    #[napi(catch_unwind)]
    pub fn open(nodes: Option<Vec<String>>, options: Option<Vec<Unknown<'_>>>) -> Either<Client, Failure> {
        match open(nodes, options) {
            Ok(client) => Either::A(Self(client)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Makes a lock of this client, and checks its name and options.
    #[napi(catch_unwind)]
    pub fn lock(&self, name: Name, options: Option<Vec<Unknown<'_>>>) -> Either<Holder, Failure> {
        match self.lock_object(&name, options) {
            Ok(object) => Either::A(Holder(object)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Closes the client: from now on, its locks cannot be acquired. Held locks stay held.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        self.0.close();
    }

    fn lock_object(&self, name: &Name, options: Option<Vec<Unknown<'_>>>) -> Result<Arc<LockObject>, Error> {
        LockObject::new(self.0.lock(bytes(name)).options(read_options(options)?))
    }
}

fn open(nodes: Option<Vec<String>>, options: Option<Vec<Unknown<'_>>>) -> Result<Redlock, Error> {
    let builder = Redlock::builder().options(read_options(options)?);
    match nodes {
        Some(nodes) => builder.nodes(nodes).build(),
        None => builder.build(),
    }
}

/// The state of a name on one node.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct View {
    /// The node's address without user name or password.
    pub node: String,
    /// The key on the node, with invalid UTF-8 replaced.
    pub key: String,
    /// The state, which decides which of the other fields are set.
    #[napi(ts_type = "'free' | 'held' | 'foreign' | 'unavailable'")]
    pub state: &'static str,
    /// The owner's label.
    pub label: Option<String>,
    /// The fence on this node.
    pub fence: Option<i64>,
    /// The time until the key expires, in milliseconds; null for a key that does not expire.
    pub ttl_left: Option<Either<f64, Null>>,
    /// The reason why the node could not be asked.
    pub error: Option<String>,
}

impl From<redlock::NodeView> for View {
    fn from(view: redlock::NodeView) -> Self {
        let ttl = |left: Option<std::time::Duration>| Some(left.map_or(Either::B(Null), |left| Either::A(ms(left))));
        let mut seen = Self {
            node: view.node,
            key: view.key,
            state: "unavailable",
            label: None,
            fence: None,
            ttl_left: None,
            error: None,
        };
        match view.state {
            NodeState::Free => seen.state = "free",
            NodeState::Held { label, fence, ttl_left } => {
                seen = Self { state: "held", label, fence: Some(number(fence)), ttl_left: ttl(ttl_left), ..seen };
            }
            NodeState::Foreign { ttl_left } => seen = Self { state: "foreign", ttl_left: ttl(ttl_left), ..seen },
            NodeState::Unavailable { error } => seen.error = Some(error),
            other => seen.error = Some(format!("{other:?}")),
        }
        seen
    }
}
