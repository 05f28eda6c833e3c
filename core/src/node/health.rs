//! The health of one node set: which of its nodes are unresponsive, and whose grants count.
//!
//! The knowledge of a server belongs to its [`Endpoint`], which all node sets of the process share. A set keeps a
//! verdict on each of its nodes, made from the endpoints. A replica or a second address of one server has no vote, and
//! a changed node is quarantined. The hot path reads atomics. A mutex is taken only on a new connection, and while a
//! node is unusual (quarantined, a duplicate, a replica).
//!
//! The set makes verdicts under its mutex, from endpoints that it reads after taking it. Each change of an endpoint
//! makes the set look afterwards, so the last look sees every change. A connection is used only after its own set has
//! looked, whichever connection reported the change first.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::endpoint::{Endpoint, Facts, Follower, Remarks};
use crate::node::identity::{Identity, Role, ServerInfo};
use crate::protocol::quorum::{self, NodeMask};
use crate::sys::clock::{Clock, Moment};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::transport::failure::Failure;

/// The health of a set of nodes.
#[derive(Debug)]
pub(crate) struct Health {
    /// For messages.
    addresses: Vec<String>,
    unresponsive: AtomicU16,
    endpoints: Vec<Arc<Endpoint>>,
    /// Whether any node has no vote, or has ever changed.
    unusual: AtomicBool,
    verdicts: Mutex<Vec<Verdict>>,
    clock: Clock,
}

/// The worth of one node's vote.
#[derive(Clone, Debug, Default)]
struct Verdict {
    /// The reason why it has no vote, regardless of time.
    standing: Option<Failure>,
    /// The start of the quarantine after a change of identity.
    changed_at: Option<Moment>,
}

impl Health {
    /// Makes the health of nodes, each given by its endpoint and its shown address.
    pub(crate) fn new(nodes: impl Iterator<Item = (Arc<Endpoint>, String)>, clock: Clock) -> Arc<Self> {
        let (endpoints, addresses): (Vec<_>, Vec<_>) = nodes.unzip();
        let health = Arc::new(Self {
            unresponsive: AtomicU16::new(0),
            unusual: AtomicBool::new(false),
            verdicts: Mutex::new(vec![Verdict::default(); addresses.len()]),
            addresses,
            endpoints,
            clock,
        });
        let weak = Arc::downgrade(&health);
        for endpoint in &health.endpoints {
            endpoint.followers.add(Weak::clone(&weak) as Weak<dyn Follower>);
        }
        health.look();
        health
    }

    /// Returns the nodes that missed their last vote and have not answered since.
    pub(crate) fn unresponsive(&self) -> NodeMask {
        NodeMask::from_bits(self.unresponsive.load(Ordering::Relaxed))
    }

    /// Records an answer of `node`. Returns whether it was unresponsive.
    pub(crate) fn record_reply(&self, node: usize, now: Moment) -> bool {
        self.endpoints[node].last_answer.set(now);
        let bit = bit(node);
        let was_unresponsive = self.unresponsive.load(Ordering::Relaxed) & bit != 0;
        if was_unresponsive {
            self.unresponsive.fetch_and(!bit, Ordering::Relaxed);
            log!(NODE_ANSWERS, node = %self.addresses[node], "node answers again");
        }
        was_unresponsive
    }

    /// Returns whether `node`, whose answer is due since `owing`, gave none for longer than `limit` before the last
    /// answer of any node.
    pub(crate) fn is_lagging(&self, node: usize, owing: Moment, limit: Duration) -> bool {
        let last = self.endpoints.iter().map(|endpoint| endpoint.last_answer.get()).max().unwrap_or_default();
        owing.max(self.endpoints[node].last_answer.get()).after(limit) < last
    }

    /// Records that `node` missed a vote.
    pub(crate) fn record_timeout(&self, node: usize) {
        if self.record_silent_connect(node) {
            log!(NODE_SILENT, node = %self.addresses[node], "node stopped responding; no longer waiting for it");
        }
    }

    /// Records that `node` did not answer a connect. Returns whether it was responsive before.
    pub(crate) fn record_silent_connect(&self, node: usize) -> bool {
        self.record_miss(node);
        let bit = bit(node);
        self.unresponsive.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Records that `node` did not answer in time, or could not be reached.
    pub(crate) fn record_miss(&self, node: usize) {
        self.endpoints[node].last_miss.set(self.clock.now());
    }

    /// Records that a call which asked at that time ended before the nodes' answers were due.
    pub(crate) fn record_cut(&self, asked: Moment) {
        self.endpoints.iter().for_each(|endpoint| endpoint.cut_short(asked));
    }

    /// Returns whether a quorum of nodes answers some calls of this process, whichever connections they use. Calls that had
    /// no time for an answer show the opposite after `limit`.
    pub(crate) fn is_answering(&self, limit: Duration) -> bool {
        let now = self.clock.now();
        let answering = self.endpoints.iter().filter(|endpoint| endpoint.is_answering(now, limit));
        answering.count() >= quorum::quorum(self.endpoints.len())
    }

    /// Records the server info of a new connection to `node`, before that is used. The caller logs the remarks
    /// afterwards.
    pub(crate) fn record_info(&self, node: usize, server_info: &ServerInfo, now: Moment) -> Remarks {
        let mut remarks = self.endpoints[node].record_info(server_info, now);
        // Even if the endpoint knew it: another set may have reported it, and this one not have looked yet.
        self.look();
        remarks.duplicates = self.unsaid_duplicates();
        remarks
    }

    /// Records what `node` tells on a connection that it told its identity on before.
    pub(crate) fn record_identity(&self, node: usize, identity: &Identity, now: Moment) {
        if let Some(remarks) = self.endpoints[node].record_identity(identity, now) {
            remarks.log(&self.addresses[node]);
        }
    }

    /// Returns the duplicates without a warning so far, each with the node that has the vote.
    fn unsaid_duplicates(&self) -> Vec<(String, String)> {
        let verdicts = self.verdicts.lock();
        let unsaid = |(node, verdict): (usize, &Verdict)| match verdict.standing {
            Some(Failure::Duplicate(other)) if self.endpoints[node].first_warning_of_duplicate() => {
                Some((self.addresses[node].clone(), self.addresses[other].clone()))
            }
            _ => None,
        };
        verdicts.iter().enumerate().filter_map(unsaid).collect()
    }

    /// Returns the nodes whose grants count now for a lock with this `restart_delay`.
    pub(crate) fn counts(&self, restart_delay: Duration, now: Moment) -> NodeMask {
        if !self.unusual.load(Ordering::Acquire) {
            return NodeMask::all(self.addresses.len());
        }
        let verdicts = self.verdicts.lock();
        let usable = |node: &usize| {
            let verdict = &verdicts[*node];
            verdict.standing.is_none() && verdict.quarantine_end(restart_delay).is_none_or(|end| end <= now)
        };
        (0..self.addresses.len()).filter(usable).fold(NodeMask::NONE, NodeMask::with)
    }

    /// Returns why `node`'s grant would not count now.
    pub(crate) fn why_not_counted(&self, node: usize, restart_delay: Duration, now: Moment) -> Option<Failure> {
        if !self.unusual.load(Ordering::Acquire) {
            return None;
        }
        let verdicts = self.verdicts.lock();
        let verdict = &verdicts[node];
        verdict.standing.clone().or_else(|| {
            let end = verdict.quarantine_end(restart_delay)?;
            (end > now).then(|| Failure::Quarantined(end.since(now)))
        })
    }

    /// Returns when enough quarantines will have ended for a quorum; `None` if too few nodes can vote.
    pub(crate) fn quorum_at(&self, restart_delay: Duration) -> Option<Moment> {
        let verdicts = self.verdicts.lock();
        let voting = verdicts.iter().filter(|verdict| verdict.standing.is_none());
        let ends = voting.map(|verdict| verdict.quarantine_end(restart_delay).unwrap_or_default());
        let mut ends: Vec<_> = ends.collect();
        ends.sort_unstable();
        ends.get(quorum::quorum(self.addresses.len()) - 1).copied()
    }

    /// Returns the number of different servers behind the addresses, as far as known.
    pub(crate) fn distinct(&self) -> usize {
        let is_other = |verdict: &&Verdict| !matches!(verdict.standing, Some(Failure::Duplicate(_)));
        self.verdicts.lock().iter().filter(is_other).count()
    }
}

impl Follower for Health {
    fn look(&self) {
        let mut verdicts = self.verdicts.lock();
        let facts: Vec<Facts> = self.endpoints.iter().map(|endpoint| endpoint.facts()).collect();
        let verdict = |node| Verdict { standing: standing(&facts, node), changed_at: facts[node].changed_at };
        *verdicts = (0..facts.len()).map(verdict).collect();
        let is_unusual = |verdict: &Verdict| verdict.standing.is_some() || verdict.changed_at.is_some();
        self.unusual.store(verdicts.iter().any(is_unusual), Ordering::Release);
    }
}

impl Drop for Health {
    /// Records that the endpoints were in use until now.
    fn drop(&mut self) {
        let now = self.clock.now();
        self.endpoints.iter().for_each(|endpoint| endpoint.named.set(now));
    }
}

impl Verdict {
    fn quarantine_end(&self, restart_delay: Duration) -> Option<Moment> {
        self.changed_at.map(|changed| changed.after(restart_delay))
    }
}

/// Returns the bit of a node in a mask. Only a set of all servers of a cluster has nodes without one: those do not vote.
fn bit(node: usize) -> u16 {
    u32::try_from(node).map_or(0, |node| 1_u16.unbounded_shl(node))
}

/// Returns why `node` has no vote, regardless of time.
fn standing(facts: &[Facts], node: usize) -> Option<Failure> {
    let identity = facts[node].identity.as_ref()?;
    if identity.role == Role::Replica {
        return Some(Failure::Replica);
    }
    let same = |other: &Facts| other.identity.as_ref().is_some_and(|other| other.run_id == identity.run_id);
    // One server under two addresses votes once, whichever databases they name.
    let first = facts[..node].iter().position(same);
    first.filter(|_| !identity.run_id.is_empty()).map(Failure::Duplicate)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;
    use std::thread;

    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;
    use crate::address::Address;
    use crate::node::endpoint::Endpoints;
    use crate::node::identity::Lacks;
    use crate::sys::log::heard;

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    const DELAY: Duration = Duration::from_secs(10);
    /// Far more than a healthy machine needs.
    const LIMIT: Duration = Duration::from_secs(10);

    fn health(endpoints: &Endpoints, urls: &[&str]) -> Arc<Health> {
        let node = |url: &&str| {
            let address = Address::parse(url).unwrap();
            (endpoints.at(&address.target, true, NOW), address.to_string())
        };
        Health::new(urls.iter().map(node), Clock::System)
    }

    fn run(run_id: &str, role: Role) -> ServerInfo {
        let identity = Identity { run_id: run_id.to_owned(), role, ..Identity::default() };
        ServerInfo {
            identity,
            uptime: Duration::ZERO,
            evicts: None,
            lacks: Lacks::default(),
            watched: false,
            again: Moment::NEVER,
        }
    }

    fn counts(health: &Health) -> Vec<bool> {
        let counts = health.counts(DELAY, NOW);
        (0..health.addresses.len()).map(|node| counts.contains(node)).collect()
    }

    #[test]
    fn what_one_set_learns_all_sets_of_the_endpoint_go_by() {
        let endpoints = Endpoints::default();
        let three = health(&endpoints, &["redis://a", "redis://b", "redis://c"]);
        let one = health(&endpoints, &["redis://user:pass@a/7"]);
        for (node, run_id) in ["1", "2", "3"].into_iter().enumerate() {
            drop(three.record_info(node, &run(run_id, Role::Master), NOW));
        }
        assert!(counts(&three) == [true; 3] && counts(&one) == [true]);
        assert!(!three.unusual.load(Ordering::Acquire) && !one.unusual.load(Ordering::Acquire));

        drop(one.record_info(0, &run("4", Role::Master), NOW));
        assert!(counts(&three) == [false, true, true] && counts(&one) == [false]);
        assert_eq!(three.why_not_counted(0, DELAY, NOW), Some(Failure::Quarantined(DELAY)));
        assert_eq!(counts(&health(&endpoints, &["redis://b", "redis://a"])), [true, false], "a set that is made later");
        drop(one);
        assert_eq!(counts(&health(&endpoints, &["redis://a"])), [false], "after the one that learnt it has gone");

        // One server under two addresses: the set that has both sees it, whichever connection reports it.
        drop(health(&endpoints, &["redis://c"]).record_info(0, &run("2", Role::Master), NOW));
        let again = || three.record_info(0, &run("4", Role::Master), NOW).duplicates;
        assert_eq!(again(), [("redis://c:6379".to_owned(), "redis://b:6379".to_owned())]);
        assert_eq!(again(), [], "it is said once");
        assert_eq!(three.why_not_counted(2, DELAY, NOW), Some(Failure::Duplicate(1)));
        assert_eq!(three.distinct(), 2);
        drop(health(&endpoints, &["redis://b"]).record_info(0, &run("2", Role::Replica), NOW));
        assert_eq!(three.why_not_counted(1, DELAY, NOW), Some(Failure::Replica));
    }

    /// A listing and a diagnosis have all of them in one set, in which none has a vote.
    #[test]
    fn a_cluster_may_have_more_servers_than_a_set_has_votes() {
        let urls: Vec<_> = (0..40).map(|number| format!("redis://h{number}")).collect();
        let all = health(&Endpoints::default(), &urls.iter().map(String::as_str).collect::<Vec<_>>());
        (16..40).for_each(|node| all.record_timeout(node));
        assert_eq!(all.unresponsive(), NodeMask::NONE, "others are not to blame");
        assert!(!all.record_reply(39, NOW));
    }

    #[test]
    fn an_answer_to_one_set_is_an_answer_of_the_endpoint() {
        let endpoints = Endpoints::default();
        let (one, other) = (health(&endpoints, &["redis://a"]), health(&endpoints, &["redis://a/7"]));
        drop(one.record_info(0, &run("1", Role::Master), NOW));
        other.record_reply(0, NOW.after(DELAY));
        // Up since before that answer, so its replacement's time is unknown.
        let restarted = ServerInfo { uptime: DELAY, ..run("2", Role::Master) };
        drop(one.record_info(0, &restarted, NOW.after(DELAY * 2).before(Duration::from_nanos(1))));
        assert_eq!(one.quorum_at(DELAY), Some(NOW.after(DELAY * 3).before(Duration::from_nanos(1))));
    }

    /// A follower that looks before others, during a change.
    #[derive(Debug, Default)]
    struct Spy(Mutex<Weak<Health>>, AtomicU32);

    impl Follower for Spy {
        fn look(&self) {
            let Some(set) = self.0.lock().upgrade() else { return };
            drop(set.record_info(0, &run("2", Role::Master), NOW));
            assert!(counts(&set) == [false], "a set that was told of the restart by a connection of its own");
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_set_goes_by_what_its_own_connection_told_before_the_first_one_to_tell_it_is_done() {
        let (endpoints, spy) = (Endpoints::default(), Arc::new(Spy::default()));
        let target = Address::parse("redis://a").unwrap().target.clone();
        endpoints.at(&target, true, NOW).followers.add(Arc::downgrade(&spy) as Weak<dyn Follower>);
        let (one, other) = (health(&endpoints, &["redis://a"]), health(&endpoints, &["redis://a/7"]));
        drop(one.record_info(0, &run("1", Role::Master), NOW));
        *spy.0.lock() = Arc::downgrade(&other);
        drop(one.record_info(0, &run("2", Role::Master), NOW));
        assert_eq!(spy.1.load(Ordering::Relaxed), 1);
    }

    /// Calls `look` on every event, in its own thread, and waits for it.
    struct Looking<F>(F);

    impl<S: tracing::Subscriber, F: Fn() + Send + Sync + Clone + 'static> Layer<S> for Looking<F> {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            let look = self.0.clone();
            let (done, over) = mpsc::channel();
            thread::spawn(move || {
                look();
                done.send(())
            });
            over.recv_timeout(LIMIT).expect("an event is logged while others may go on");
        }
    }

    #[test]
    fn a_change_is_logged_when_it_is_in_force_and_outside_of_every_lock() {
        let endpoints = Endpoints::default();
        let (one, other) = (health(&endpoints, &["redis://a"]), health(&endpoints, &["redis://a/7"]));
        drop(one.record_info(0, &run("1", Role::Master), NOW));
        let (sender, seen) = mpsc::channel();
        let sets = [Arc::clone(&one), Arc::clone(&other)];
        let look = move || {
            for set in &sets {
                sender.send(counts(set)).unwrap();
                drop(set.record_info(0, &run("2", Role::Master), NOW));
            }
        };
        heard::by(tracing_subscriber::registry().with(Looking(look)), || {
            one.record_info(0, &run("2", Role::Master), NOW).log(&"a");
        });
        assert_eq!(seen.iter().collect::<Vec<_>>(), [[false], [false]]);
    }

    #[test]
    fn a_subscriber_that_panics_leaves_the_health_as_it_is() {
        let endpoints = Endpoints::default();
        let one = health(&endpoints, &["redis://a"]);
        let subscriber = tracing_subscriber::registry().with(Looking(|| panic!("a subscriber's bug")));
        heard::by(subscriber, || {
            let evicts = ServerInfo {
                evicts: Some("allkeys-lru".into()),
                lacks: Lacks { info: true, ..Lacks::default() },
                ..run("1", Role::Master)
            };
            one.record_info(0, &evicts, NOW).log(&"a");
            one.record_info(0, &run("2", Role::Master), NOW).log(&"a");
            one.record_timeout(0);
            one.record_reply(0, NOW);
        });
        assert!(counts(&one) == [false] && one.unresponsive() == NodeMask::NONE);
    }
}
