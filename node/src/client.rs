//! The client, and its views of locks and nodes.

use std::sync::Arc;

use napi::bindgen_prelude::{ClassInstance, Either, Either3, Null, Uint8Array, Unknown};
use napi_derive::napi;
use redlock::bindings::Listing as Pages;
use redlock::bindings::lock_object::{LockObject, term};
use redlock::bindings::options::Options;
use redlock::{Error, Fixed, Lock, NodeState, Redlock};

use crate::convert::{epoch_ms, ms, number};
use crate::credentials::Provider;
use crate::error::Failure;
use crate::options::{read_options, read_whole};
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

/// The name of a lock, or the several names of one. Text comes first, because it is the most frequent.
#[napi]
pub type Names = Either3<String, Uint8Array, Vec<Name>>;

fn every(names: &[Name]) -> Vec<&[u8]> {
    names.iter().map(bytes).collect()
}

/// A client for one set of nodes.
#[derive(Debug)]
#[napi]
pub struct Client(pub(crate) Redlock);

#[napi]
impl Client {
    /// Makes a client for these nodes, or for those in this value of `REDLOCK_URLS`, or else in that of the process.
    #[napi(catch_unwind)]
    pub fn open(
        nodes: Option<Either<Vec<String>, String>>,
        options: Option<Vec<Unknown<'_>>>,
        provider: Option<ClassInstance<'_, Provider>>,
    ) -> Either<Client, Failure> {
        match open(nodes, options, provider) {
            Ok(client) => Either::A(Self(client)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Makes a template for locks with these options. Checks the options, and the name or the names of a lock that is made
    /// by it. `kind` says which locks: those of one name, `shared` or not; of the terms of an election; of several names; or
    /// semaphores with so many permits.
    #[napi(catch_unwind)]
    pub fn template(
        &self,
        #[napi(ts_arg_type = "'lock' | 'shared' | 'term' | 'several' | number")] kind: Either<String, f64>,
        names: Names,
        options: Option<Vec<Unknown<'_>>>,
    ) -> Either<Template, Failure> {
        Template::of(options, |options| LockObject::new(lock(&self.0, &kind, &names)?.options(options)))
    }

    /// Makes a template for the lock that attaches the detached one with this text.
    #[napi(catch_unwind)]
    pub fn template_of_detached(&self, text: String, options: Option<Vec<Unknown<'_>>>) -> Either<Template, Failure> {
        Template::of(options, |options| LockObject::new(self.0.attach(&text).options(options)))
    }

    /// Makes a listing of the locks that are held and match a pattern. Sends nothing.
    #[napi(catch_unwind)]
    pub fn listing(&self, pattern: Name) -> Listing {
        Listing(Pages::new(&self.0, bytes(&pattern)))
    }

    /// Returns the addresses of the nodes, without user names or passwords.
    #[napi(catch_unwind)]
    pub fn addresses(&self) -> Vec<String> {
        self.0.shown_addresses()
    }

    /// Closes the client. The background releases its locks.
    #[napi(catch_unwind)]
    pub fn close_now(&self) {
        self.0.close_now();
    }
}

thread_local! {
    static TEMPLATES: Table<Arc<LockObject>> = Table::default();
}

/// The locks that are held, in pages.
#[derive(Debug)]
#[napi]
pub struct Listing(pub(crate) Arc<Pages>);

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

    /// Returns the names of the lock that it was made for.
    #[napi(catch_unwind)]
    pub fn names(&self) -> napi::Result<Vec<Name>> {
        let named = |name: &[u8]| match str::from_utf8(name) {
            Ok(text) => Either::A(text.to_owned()),
            Err(_) => Either::B(Uint8Array::from(name)),
        };
        Ok(Table::get(&TEMPLATES, self.0.number())?.names().into_iter().map(named).collect())
    }

    /// Makes a template of an object that `make` makes with these options.
    fn of(
        options: Option<Vec<Unknown<'_>>>,
        make: impl FnOnce(Options) -> Result<Arc<LockObject>, Error>,
    ) -> Either<Self, Failure> {
        match read_options(options).and_then(make) {
            Ok(object) => Either::A(Self(Numbered::new(&TEMPLATES, object))),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Makes an object like that of the template with this number, for another name or other names. `released` is that
    /// of [`LockObject::named`].
    pub(crate) fn named(number: i64, names: &Names, released: bool) -> napi::Result<Arc<LockObject>> {
        let template = Table::get(&TEMPLATES, number)?;
        Ok(match names {
            Either3::A(name) => template.named(name.as_bytes(), released),
            Either3::B(name) => template.named(name, released),
            Either3::C(names) => template.named_all(&every(names), released),
        })
    }
}

/// Returns a lock with these names, of a kind that [`Client::template`] knows.
fn lock(client: &Redlock, kind: &Either<String, f64>, names: &Names) -> Result<Lock<Fixed>, Error> {
    let name = match names {
        Either3::A(text) => text.as_bytes(),
        Either3::B(bytes) => bytes,
        Either3::C(names) => return Ok(client.lock_all(every(names))),
    };
    Ok(match kind {
        Either::B(permits) => client.semaphore(name, read_whole("permits", *permits)?),
        Either::A(kind) if kind == "shared" => client.lock(name).shared(),
        Either::A(kind) if kind == "term" => term(client, name),
        Either::A(_) => client.lock(name).into(),
    })
}

fn open(
    nodes: Option<Either<Vec<String>, String>>,
    options: Option<Vec<Unknown<'_>>>,
    provider: Option<ClassInstance<'_, Provider>>,
) -> Result<Redlock, Error> {
    let builder = provider.map_or_else(Redlock::builder, |provider| provider.builder()).options(read_options(options)?);
    match nodes {
        Some(Either::A(nodes)) => builder.nodes(nodes).build(),
        Some(Either::B(environment)) => builder.build_in(Some(&environment)),
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
    #[napi(ts_type = "'free' | 'held' | 'shared' | 'foreign' | 'unavailable'")]
    pub state: &'static str,
    /// The owner's label.
    pub label: Option<String>,
    /// How many share it.
    pub readers: Option<u32>,
    /// The labels of some of them.
    pub labels: Option<Vec<String>>,
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

/// What the nodes show of a lock.
#[derive(Debug)]
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct LockView {
    /// The name, with invalid UTF-8 replaced.
    pub name: String,
    /// The key on the nodes, with invalid UTF-8 replaced.
    pub key: String,
    /// The slot of a semaphore.
    pub slot: Option<u32>,
    /// The state.
    #[napi(ts_type = "'free' | 'held' | 'shared' | 'foreign' | 'unknown'")]
    pub state: &'static str,
    /// The holder's label.
    pub label: Option<String>,
    /// A lower bound of the holder's fence.
    pub fence: Option<i64>,
    /// About when it was acquired, in milliseconds since 1970.
    pub since: Option<f64>,
    /// How long at least a quorum keeps the key, in milliseconds.
    pub ttl_left: Option<f64>,
    /// On how many nodes it is.
    pub holders: u32,
    /// How many nodes are a quorum.
    pub quorum: u32,
    /// About how many processes wait.
    pub waiting: Option<u32>,
    /// How many share it, on the node with the most.
    pub readers: Option<u32>,
    /// The labels of some of them.
    pub labels: Vec<String>,
    /// What each node shows.
    pub nodes: Vec<View>,
}

impl From<redlock::LockView> for LockView {
    fn from(view: redlock::LockView) -> Self {
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        Self {
            name: view.name,
            key: view.key,
            slot: view.slot,
            state: view.state.as_str(),
            label: view.label,
            fence: view.fence.map(number),
            since: view.since.map(epoch_ms),
            ttl_left: view.ttl_left.map(ms),
            holders: count(view.holders),
            quorum: count(view.quorum),
            waiting: view.waiting,
            readers: view.readers,
            labels: view.labels,
            nodes: view.nodes.into_iter().map(View::from).collect(),
        }
    }
}

impl From<redlock::NodeView> for View {
    fn from(view: redlock::NodeView) -> Self {
        let (state, values) = view.state.values();
        let is_kept = !matches!(view.state, NodeState::Free | NodeState::Unavailable { .. });
        Self {
            node: view.node,
            key: view.key,
            state,
            label: values.label.map(String::from),
            readers: values.readers,
            labels: values.readers.map(|_| values.labels.to_vec()),
            fence: values.fence.map(number),
            ttl_left: is_kept.then(|| values.ttl_left.map_or(Either::B(Null), |left| Either::A(ms(left)))),
            error: values.error.map(String::from),
        }
    }
}
