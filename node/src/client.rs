//! The client, and its view of the nodes.

use std::sync::Arc;

use napi::bindgen_prelude::{ClassInstance, Either, Null, Uint8Array, Unknown};
use napi_derive::napi;
use redlock::bindings::lock_object::LockObject;
use redlock::{Error, NodeState, Redlock};

use crate::convert::{ms, number};
use crate::credentials::Provider;
use crate::error::Failure;
use crate::options::read_options;
use crate::table::{Numbered, Table};

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
    pub fn open(
        nodes: Option<Vec<String>>,
        options: Option<Vec<Unknown<'_>>>,
        provider: Option<ClassInstance<'_, Provider>>,
    ) -> Either<Client, Failure> {
        match open(nodes, options, provider) {
            Ok(client) => Either::A(Self(client)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Makes a template for locks with these options. Checks the options, and the name of a lock that is made by it.
    #[napi(catch_unwind)]
    pub fn template(&self, name: Name, options: Option<Vec<Unknown<'_>>>) -> Either<Template, Failure> {
        match self.lock_object(&name, options) {
            Ok(object) => Either::A(Template(Numbered::new(&TEMPLATES, object))),
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

thread_local! {
    static TEMPLATES: Table<Arc<LockObject>> = Table::default();
}

/// The checked options of locks that are made later. Other functions take its number.
#[derive(Debug)]
#[napi]
pub struct Template(Numbered<Arc<LockObject>>);

#[napi]
impl Template {
    /// Returns its number.
    #[napi(catch_unwind)]
    pub fn number(&self) -> i64 {
        self.0.number()
    }

    /// Returns the object whose options the template with this number stands for.
    pub(crate) fn object(number: i64) -> napi::Result<Arc<LockObject>> {
        Table::get(&TEMPLATES, number)
    }
}

fn open(
    nodes: Option<Vec<String>>,
    options: Option<Vec<Unknown<'_>>>,
    provider: Option<ClassInstance<'_, Provider>>,
) -> Result<Redlock, Error> {
    let builder = provider.map_or_else(Redlock::builder, |provider| provider.builder()).options(read_options(options)?);
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

/// One node and what was found about it.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NodeDiagnosis {
    /// The node's address without user name or password.
    pub node: String,
    /// The level of the most serious finding.
    #[napi(ts_type = "'ok' | 'warning' | 'unusable'")]
    pub level: &'static str,
    /// The findings.
    pub findings: Vec<NodeFinding>,
}

/// One finding about a node.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NodeFinding {
    /// What was looked at.
    pub check: &'static str,
    /// How serious it is.
    #[napi(ts_type = "'ok' | 'warning' | 'unusable'")]
    pub level: &'static str,
    /// What was found, and what to do.
    pub message: String,
}

impl From<redlock::Diagnosis> for NodeDiagnosis {
    fn from(diagnosis: redlock::Diagnosis) -> Self {
        let level = diagnosis.level().as_str();
        let finding =
            |redlock::Finding { check, level, message, .. }| NodeFinding { check, level: level.as_str(), message };
        Self { node: diagnosis.node, level, findings: diagnosis.findings.into_iter().map(finding).collect() }
    }
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
