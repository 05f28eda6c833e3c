//! Diagnosis: what each node of a client can do, may be asked, and may forget.
//!
//! Each node is *connected to*, on connections of the diagnosis alone, while its sentinels are *asked*, then *probed*.
//! Where there are several, each *writes* a key of its own, *looks* for those of the others, and *deletes* its own. A
//! caller may drop it at any await: the keys then expire.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use crate::address::Target;
use crate::api::session::Session;
use crate::error::Error;
use crate::net::connections::Connections;
use crate::node::event::EventSink;
use crate::node::{Connection, probe};
use crate::options::Settings;
use crate::process::Process;
use crate::process::nodes::{NodeSet, Routes};
use crate::protocol::diagnosis::cluster::{ClusterFacts, compared};
use crate::protocol::diagnosis::sentinels::GroupFacts;
use crate::protocol::diagnosis::server::ServerFacts;
use crate::protocol::diagnosis::{Finding, Level};
use crate::protocol::token::Token;
use crate::sys::future::join_all;
use crate::transport::failure::{Failure, within};

/// What begins a key of the diagnosis, after the client's prefix.
const KEY: &str = "redlock:diagnose:";

/// How many keys are made to find one of a slot that a server has. Clusters have some dozens of servers.
const KEYS_MOST: usize = 10_000;

/// A node and what was found about it; see [`Redlock::diagnose`](crate::Redlock::diagnose).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The node's address without user name or password.
    pub node: String,
    /// The findings, one or more for each check. A node that cannot be asked has one, and those about its sentinels.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Returns the level of the most serious finding.
    #[must_use]
    pub fn level(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.level, self.check, self.message)
    }
}

/// The nodes under diagnosis.
struct Subject {
    process: Arc<Process>,
    set: Arc<NodeSet>,
    /// The client's own set.
    listed: Arc<NodeSet>,
    /// The slots of the clusters among its nodes.
    routes: Option<Arc<Routes>>,
    /// What begins every key.
    prefix: String,
    settings: Settings,
}

/// Diagnoses the nodes of a client. On the caller's tokio runtime, or else in the background.
pub(crate) async fn diagnose(session: &Session) -> Result<Vec<Diagnosis>, Error> {
    let (process, listed) = session.nodes()?;
    // Where no map is known, connecting to the cluster itself tells why.
    let set = process.servers_of(&listed).await?.unwrap_or_else(|| Arc::clone(&listed));
    let subject = Subject {
        prefix: format!("{}{KEY}", session.options.key_prefix.as_deref().unwrap_or_default()),
        settings: session.settings()?,
        process,
        set,
        routes: listed.routes(),
        listed: Arc::clone(&listed),
    };
    listed.somewhere(subject.diagnose()).await
}

impl Subject {
    async fn diagnose(self) -> Vec<Diagnosis> {
        let members = &self.set.members;
        let sinks = (0..members.len()).map(|_| EventSink::new(true, |_| {})).collect();
        let (clock, random) = (self.process.clock.clone(), self.process.random.clone());
        let connections =
            Arc::new(Connections::new(Arc::clone(members), clock, random, Handle::current(), sinks, Weak::new()));
        let nodes = 0..members.len();
        let connected =
            join_all(nodes.clone().map(|node| connections.get_within(node, members.connect_timeout)).collect());
        let asked = join_all(nodes.clone().map(|node| self.ask_sentinels(node)).collect());
        let (connected, asked) = tokio::join!(connected, asked);
        let keys: Vec<_> = nodes.clone().map(|node| self.key(node)).collect();
        let probed = |node: usize| self.probe(node, &connected[node], &keys[node]);
        let (mut findings, clusters): (Vec<_>, Vec<_>) =
            join_all(nodes.clone().map(probed).collect()).await.into_iter().unzip();
        for (node, finding) in compared(&clusters) {
            findings[node].push(finding);
        }
        for (findings, group) in findings.iter_mut().zip(&asked) {
            findings.extend(group.iter().flat_map(|group| group.findings(self.settings.ttl)));
        }
        if members.len() > 1 {
            self.look_for_aliases(&connected, &keys, &mut findings).await;
        }
        for (node, findings) in findings.iter_mut().enumerate().filter(|(node, _)| connected[*node].is_ok()) {
            let now = self.process.clock.now();
            if let Some(why) = members.health.why_not_counted(node, self.settings.restart_delay, now) {
                let why = match why {
                    // The output has addresses, and no numbers.
                    Failure::Duplicate(other) => format!("is the same server as {}", members.address(other)),
                    why => why.to_string(),
                };
                findings.push(Finding::new("vote", Level::Unusable, format!("does not count now: {why}")));
            }
        }
        let shown = |(node, findings): (usize, Vec<Finding>)| Diagnosis { node: members.address(node), findings };
        findings.into_iter().enumerate().map(shown).collect()
    }

    /// Whether the node is a server of a cluster that the client lists, and not listed itself.
    fn is_in_cluster(&self, node: usize) -> bool {
        let address = &self.set.members.nodes[node].address;
        self.routes.is_some() && self.listed.members.nodes.iter().all(|member| member.address != *address)
    }

    /// Returns a new key, in a cluster one of a slot that the node has.
    fn key(&self, node: usize) -> String {
        let key =
            || format!("{}{}", self.prefix, String::from_utf8_lossy(Token::fresh(&self.process.random).as_bytes()));
        let Some(routes) = self.routes.as_ref().filter(|_| self.is_in_cluster(node)) else { return key() };
        let address = &self.set.members.nodes[node].address;
        let has = |set: &NodeSet| set.members.nodes.iter().any(|member| member.address == *address);
        let is_there = |key: &String| routes.set(key.as_bytes()).is_none_or(|set| has(&set));
        // With braces in the prefix, all keys are in one slot.
        (0..KEYS_MOST).map(|_| key()).find(is_there).unwrap_or_else(key)
    }

    /// Returns what `call` returns within the time of a connect.
    async fn briefly<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let call = pin!(call);
        self.process.clock.timeout(self.set.members.connect_timeout, call).await
    }

    /// Asks the sentinels that name the node's server, if there are any.
    async fn ask_sentinels(&self, node: usize) -> Option<GroupFacts> {
        let members = &self.set.members;
        Some(members.nodes[node].node.sentinels()?.probe(members.connect_timeout).await)
    }

    /// Asks the node's server, in a cluster about that, too.
    async fn probe(
        &self,
        node: usize,
        connected: &Result<Connection, Failure>,
        key: &str,
    ) -> (Vec<Finding>, Option<ClusterFacts>) {
        let follows_slots = self.is_in_cluster(node);
        let probe = async |connection: &Connection| {
            let Some(server) = connection.to_server() else { return Ok(None) };
            let facts = probe::probe(server, key, &self.process.clock).await?;
            Ok(Some((facts, if follows_slots { Some(probe::cluster(server).await) } else { None })))
        };
        let probed = match connected {
            Ok(connection) => within(&self.process.clock, self.set.members.connect_timeout, probe(connection)).await,
            Err(failure) => Err(failure.clone()),
        };
        match probed {
            Ok(Some((facts, cluster))) => {
                let encrypted = self.is_encrypted(node);
                let is_restart_delay_off = self.settings.restart_delay.is_zero();
                let has_sentinels = self.set.members.nodes[node].node.sentinels().is_some();
                let facts = ServerFacts { encrypted, is_restart_delay_off, follows_slots, has_sentinels, ..facts };
                let of_cluster = cluster.iter().flat_map(|cluster| cluster.findings(self.settings.ttl));
                (facts.findings().into_iter().chain(of_cluster).collect(), cluster)
            }
            Ok(None) => {
                let message = "a store in this process, which excludes nobody outside of it";
                (vec![Finding::new("connection", Level::Ok, message)], None)
            }
            Err(failure) => (vec![Finding::new("connection", Level::Unusable, failure.to_string())], None),
        }
    }

    /// Returns whether the way to the node is encrypted; `None` if it does not leave this machine.
    fn is_encrypted(&self, node: usize) -> Option<bool> {
        match &self.set.members.nodes[node].address.target {
            Target::Tcp { host, tls: false, .. } if is_local(host) => None,
            // The server may be far away where a sentinel is near.
            Target::Tcp { tls, .. } | Target::Sentinel { tls, .. } | Target::Cluster { tls, .. } => Some(*tls),
            Target::Unix { .. } | Target::Memory { .. } => None,
        }
    }

    /// Finds nodes that lead to the same server, behind proxies, too: each sees the other's key.
    async fn look_for_aliases(
        &self,
        connected: &[Result<Connection, Failure>],
        keys: &[String],
        findings: &mut [Vec<Finding>],
    ) {
        let members = &self.set.members;
        let server = |node: usize| connected[node].as_ref().ok()?.to_server();
        let nodes = || (0..connected.len()).filter_map(|node| Some((node, server(node)?)));
        join_all(nodes().map(|(node, server)| self.briefly(probe::write(server, &keys[node]))).collect()).await;
        let looks = nodes().map(|(node, server)| async move {
            (node, self.briefly(probe::existing(server, keys)).await.unwrap_or_default())
        });
        for (node, found) in join_all(looks.collect()).await {
            for other in found.into_iter().filter(|other| *other != node) {
                let message = format!("the same server as {}; list each server once", members.address(other));
                findings[node].push(Finding::new("alias", Level::Unusable, message));
            }
        }
        join_all(nodes().map(|(node, server)| self.briefly(probe::delete(server, &keys[node]))).collect()).await;
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
