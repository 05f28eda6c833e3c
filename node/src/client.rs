//! The client and what it shows of the nodes.

use napi::bindgen_prelude::{Either, Null, Uint8Array, Unknown};
use napi_derive::napi;
use redlock::{Error, NodeState, Redlock};

use crate::convert::{ms, number};
use crate::error::Failure;
use crate::lock::Holder;
use crate::options::given;

/// A name as it was given.
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
    /// A client for these nodes, or for those of the environment where none are given.
    #[napi(catch_unwind)]
    pub fn open(nodes: Option<Vec<String>>, options: Option<Vec<Unknown<'_>>>) -> Either<Client, Failure> {
        match open(nodes, options) {
            Ok(client) => Either::A(Self(client)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// A lock of this client; name and options are checked.
    #[napi(catch_unwind)]
    pub fn lock(&self, name: Name, options: Option<Vec<Unknown<'_>>>) -> Either<Holder, Failure> {
        match self.holder(&name, options) {
            Ok(holder) => Either::A(holder),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Ends the client: calls on its locks fail from now on.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        self.0.close();
    }

    fn holder(&self, name: &Name, options: Option<Vec<Unknown<'_>>>) -> Result<Holder, Error> {
        let lock = self.0.lock(bytes(name)).options(given(options)?);
        redlock::bindings::lock_object::Holder::new(lock).map(Holder)
    }
}

fn open(nodes: Option<Vec<String>>, options: Option<Vec<Unknown<'_>>>) -> Result<Redlock, Error> {
    let builder = Redlock::builder().options(given(options)?);
    match nodes {
        Some(nodes) => builder.nodes(nodes).build(),
        None => builder.build(),
    }
}

/// What one node has under a name.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct View {
    /// The node's address without user name or password.
    pub node: String,
    /// Which of the other fields there are.
    #[napi(ts_type = "'free' | 'held' | 'foreign' | 'unavailable'")]
    pub state: &'static str,
    /// The owner's label.
    pub label: Option<String>,
    /// The fence on this node.
    pub fence: Option<i64>,
    /// How long the node keeps the key, in milliseconds; null for a key without an end.
    pub ttl_left: Option<Either<f64, Null>>,
    /// Why the node could not be asked.
    pub error: Option<String>,
}

impl From<redlock::NodeView> for View {
    fn from(view: redlock::NodeView) -> Self {
        let ttl = |left: Option<std::time::Duration>| Some(left.map_or(Either::B(Null), |left| Either::A(ms(left))));
        let mut seen =
            Self { node: view.node, state: "unavailable", label: None, fence: None, ttl_left: None, error: None };
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
