//! One endpoint: this process's knowledge of the server at one target, for all callers.
//!
//! A program may make a client for each request, and the clients of one server may differ in user, database and
//! options. So this knowledge belongs to the process and the target (host, port and TLS, or a path). All node sets that
//! name the target share it, and it outlives the last of them by a day.
//!
//! States:
//!
//! - *unknown*: no connection has reported the server's identity;
//! - *known*: a connection has;
//! - *changed*: a later connection reported that the server may have forgotten its grants, or sentinels named another
//!   server.
//!
//! What may interrupt it:
//!
//! - the last client goes: the endpoint stays for [`KEPT`];
//! - two connections report a change at once: the first one records it, and the second one finds it recorded. Both let
//!   their own node set look before their connection is used, and the first one lets all other sets look too;
//! - the change is that to another server, which a proxy or a name does not lead older connections to: once the new
//!   connection is in use, all users renounce those made before it;
//! - a fork: the child's [`Process`](crate::process::Process) has its own endpoints, unknown ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::pace::Pace;
use super::traffic::Traffic;
use crate::address::Target;
use crate::node::identity::{Identity, Lacks, ServerInfo, differs};
use crate::protocol::quorum;
use crate::sys::clock::{Moment, SharedMoment};
use crate::sys::followers::Followers;
use crate::sys::log::log;
use crate::sys::mutex::Mutex;

/// How long an endpoint is remembered after its last use.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// The most endpoints remembered. Only those that clients name may be more.
const MOST: usize = 1_024;

/// How long what happens again and again is not told of anew.
const TOLD_FOR: Duration = Duration::from_secs(60);

/// The most servers remembered of an endpoint.
const SERVERS_MOST: usize = 16;

/// How long it is known whether an endpoint answers. Less than alerts wait for, so that one failed call of a process that is
/// idle afterwards does not set off any. Probing instead would keep connections of idle processes busy for a metric alone.
const UP_FOR: Duration = Duration::from_secs(60);

/// The endpoints of one process.
#[derive(Debug, Default)]
pub(crate) struct Endpoints(Mutex<BTreeMap<Target, Arc<Endpoint>>>);

/// The knowledge about one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    /// The pace of all connects from this process.
    pub(crate) pace: Pace,
    pub(crate) traffic: Arc<Traffic>,
    /// Whether a server may outlive its clients here. A store in memory does not.
    lasting: bool,
    /// When a node set last began or ceased to name it.
    pub(super) named: SharedMoment,
    /// When it answered last; the origin if never.
    pub(crate) last_answer: SharedMoment,
    /// When it last missed a vote or could not be reached.
    pub(crate) last_miss: SharedMoment,
    /// When the first call asked that had no time for an answer; later than the last answer if it counts.
    owing_since: SharedMoment,
    /// When it was told last that a server is back at it, and that it refuses requests; the origin if never.
    return_told: SharedMoment,
    refusal_told: SharedMoment,
    state: Mutex<State>,
    /// They look whenever the facts have changed. Who joins them makes the first look after that.
    pub(super) followers: Followers<dyn Follower>,
    /// They renounce their connections whenever new ones lead to another server.
    pub(crate) users: Followers<dyn User>,
}

#[derive(Debug, Default)]
struct State {
    facts: Facts,
    has_warned_of_eviction: bool,
    has_warned_of_duplicate: bool,
    /// Whether another server is in its place, and has not told its identity yet.
    is_moved: bool,
    /// The `run_id`s of the servers that were in its place. A server that restarts has another one.
    servers: BTreeSet<String>,
    /// What was said to be lacking.
    said: Lacks,
}

/// The facts behind a vote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The last server that answered; `None` before.
    pub(crate) identity: Option<Identity>,
    /// The start of the quarantine after a change of identity.
    pub(crate) changed_at: Option<Moment>,
}

/// Looks at the facts again after a change.
pub(crate) trait Follower: fmt::Debug + Send + Sync {
    /// Looks at the facts. Called outside the endpoint's lock, before the reporting connection is used.
    fn look(&self);
}

/// Has connections to an endpoint.
pub(crate) trait User: fmt::Debug + Send + Sync {
    /// Renounces its connections to `endpoint` that were made before `since`: they lead to another server than later ones.
    fn replaced(&self, endpoint: &Endpoint, since: Moment);
}

/// Server info for an operator. To be logged when no caller waits for it any more.
#[derive(Debug, Default)]
#[must_use = "remarks are for the log"]
pub(crate) struct Remarks {
    is_changed: bool,
    /// Whether it is not the server that answered before.
    pub(crate) is_another: bool,
    /// Whether that one has answered before.
    is_back: bool,
    evicts: Option<String>,
    lacks: Lacks,
    /// Nodes without a vote, each with the node that has the vote of the same server.
    pub(crate) duplicates: Vec<(String, String)>,
}

impl Endpoints {
    /// Returns the endpoint at `target`, which a node set names from `now` on.
    pub(crate) fn at(&self, target: &Target, lasting: bool, now: Moment) -> Arc<Endpoint> {
        let mut entries = self.0.lock();
        if let Some(endpoint) = entries.get(target) {
            endpoint.named.set(now);
            return Arc::clone(endpoint);
        }
        if entries.len() >= MOST {
            let idle = entries.iter().filter(|(_, endpoint)| !is_named(endpoint));
            let oldest = idle.min_by_key(|(_, endpoint)| endpoint.last_use()).map(|(target, _)| target.clone());
            if let Some(oldest) = oldest {
                entries.remove(&oldest);
            }
        }
        let endpoint = Arc::new(Endpoint::new(lasting, now));
        entries.insert(target.clone(), Arc::clone(&endpoint));
        endpoint
    }

    /// Returns the endpoints that node sets name, with what they are called.
    pub(crate) fn in_use(&self) -> Vec<(String, Arc<Endpoint>)> {
        let entries = self.0.lock();
        let named = entries.iter().filter(|(_, endpoint)| is_named(endpoint));
        named.map(|(target, endpoint)| (target.to_string(), Arc::clone(endpoint))).collect()
    }

    /// Forgets endpoints that no node set names: lasting ones a day after their last use, others at once.
    pub(crate) fn forget(&self, now: Moment) {
        let is_kept = |endpoint: &Endpoint| endpoint.lasting && endpoint.last_use().after(KEPT) > now;
        self.0.lock().retain(|_, endpoint| is_named(endpoint) || is_kept(endpoint));
    }
}

/// Returns whether it is to be told `now` what was told last then, and records it.
fn is_news(told: &SharedMoment, now: Moment) -> bool {
    let is_news = told.get() == Moment::default() || now >= told.get().after(TOLD_FOR);
    if is_news {
        told.set(now);
    }
    is_news
}

/// Returns whether a node set names `endpoint`, which is in the map.
fn is_named(endpoint: &Arc<Endpoint>) -> bool {
    Arc::strong_count(endpoint) > 1
}

impl Endpoint {
    fn new(lasting: bool, now: Moment) -> Self {
        Self { lasting, named: SharedMoment::new(now), ..Self::default() }
    }

    /// Returns whether it answered when it was asked last; `None` if that was too long ago.
    pub(crate) fn is_up(&self, now: Moment) -> Option<bool> {
        let (answer, miss) = (self.last_answer.get(), self.last_miss.get());
        let last = answer.max(miss);
        (last != Moment::default() && now.since(last) < UP_FOR).then_some(answer > miss)
    }

    /// Records that a call which asked at that time ended before an answer was due.
    pub(crate) fn cut_short(&self, asked: Moment) {
        let last = self.last_answer.get();
        if last < asked && self.owing_since.get() <= last {
            self.owing_since.set(asked);
        }
    }

    /// Returns whether it answers, as far as the process knows: it has answered, no call has seen it fail since, and those
    /// that had no time for an answer began to ask less than `limit` ago.
    pub(crate) fn is_answering(&self, now: Moment, limit: Duration) -> bool {
        let (last, owing) = (self.last_answer.get(), self.owing_since.get());
        last != Moment::default() && self.last_miss.get() <= last && (owing <= last || now < owing.after(limit))
    }

    /// Returns whether it is to be told that it refuses requests, and records that.
    pub(crate) fn is_refusal_news(&self, now: Moment) -> bool {
        is_news(&self.refusal_told, now)
    }

    fn last_use(&self) -> Moment {
        self.last_answer.get().max(self.named.get())
    }

    /// Returns whether it reported its identity.
    pub(crate) fn is_known(&self) -> bool {
        self.state.lock().facts.identity.as_ref().is_some_and(|identity| !identity.run_id.is_empty())
    }

    /// Returns true once: its first caller warns that two nodes of a list are this server.
    pub(crate) fn first_warning_of_duplicate(&self) -> bool {
        !mem::replace(&mut self.state.lock().has_warned_of_duplicate, true)
    }

    pub(crate) fn facts(&self) -> Facts {
        self.state.lock().facts.clone()
    }

    /// Has all users renounce their connections made before `since`: a later one leads to another server.
    pub(crate) fn replaced(&self, since: Moment) {
        self.users.all().iter().for_each(|user| user.replaced(self, since));
    }

    /// Records what the server tells on a connection on which it told its identity before. Remarks if grants may have been
    /// forgotten since; all followers have looked then when this returns.
    pub(crate) fn record_identity(&self, identity: &Identity, now: Moment) -> Option<Remarks> {
        {
            let mut state = self.state.lock();
            // A connection to the server before may still be in use.
            if state.is_moved || !state.facts.take(identity, Duration::ZERO, now, now) {
                return None;
            }
        }
        self.tell_followers();
        Some(Remarks { is_changed: true, ..Remarks::default() })
    }

    /// Records that another server came into its place `at` a time: what the one before granted may be forgotten. All
    /// followers have looked when this returns.
    pub(crate) fn moved(&self, at: Moment) {
        {
            let mut state = self.state.lock();
            // A new node set tells of a move again.
            if state.facts.changed_at >= Some(at) {
                return;
            }
            (state.is_moved, state.facts.changed_at) = (true, Some(at));
        }
        self.tell_followers();
    }

    fn tell_followers(&self) {
        self.followers.all().iter().for_each(|follower| follower.look());
    }

    /// Records the server info of a new connection. If that changes the facts, all followers have looked at them before
    /// this returns.
    pub(crate) fn record_info(&self, server_info: &ServerInfo, now: Moment) -> Remarks {
        let last_answer = self.last_answer.get();
        self.traffic.connected(server_info.evicts.is_some());
        let (remarks, is_news) = {
            let mut state = self.state.lock();
            let before = state.facts.clone();
            let is_moved = mem::take(&mut state.is_moved);
            let is_changed = if is_moved {
                state.facts.identity = Some(server_info.identity.clone());
                // It may have restarted after it came.
                let started = now.before(server_info.uptime);
                if !server_info.identity.run_id.is_empty() && state.facts.changed_at < Some(started) {
                    state.facts.changed_at = Some(started);
                }
                true
            } else {
                state.facts.take(&server_info.identity, server_info.uptime, now, last_answer)
            };
            let run_id = &server_info.identity.run_id;
            let is_another = before.identity.as_ref().is_some_and(|before| differs(run_id, &before.run_id));
            let is_back = !state.remember(run_id) && is_another && !is_moved;
            let remarks = Remarks {
                // Where two servers answer in turn, each connection leads to the other one.
                is_changed: is_changed && (!is_back || is_news(&self.return_told, now)),
                is_another,
                is_back,
                evicts: server_info.evicts.clone().filter(|_| !state.has_warned_of_eviction),
                lacks: server_info.lacks.besides(state.said),
                duplicates: Vec::new(),
            };
            state.has_warned_of_eviction |= server_info.evicts.is_some();
            state.said = state.said.union(server_info.lacks);
            (remarks, state.facts != before)
        };
        if is_news {
            self.tell_followers();
        }
        remarks
    }
}

impl State {
    /// Records a server. Returns whether it is new.
    fn remember(&mut self, run_id: &str) -> bool {
        if self.servers.len() >= SERVERS_MOST {
            self.servers.clear();
        }
        self.servers.insert(run_id.to_owned())
    }
}

impl Facts {
    /// Records what a server told that has been up for `uptime`; returns true if grants may have been forgotten since the last.
    fn take(&mut self, told: &Identity, uptime: Duration, seen: Moment, last_answer: Moment) -> bool {
        let Some(identity) = &mut self.identity else {
            self.identity = Some(told.clone());
            return false;
        };
        let has_forgotten = told.may_have_forgotten(identity);
        let may_be_promoted = told.may_be_promoted(identity);
        identity.update(told);
        if has_forgotten {
            // A promotion may be as late as now, whenever the server started.
            let restarted_at = quorum::changed_at(seen, uptime, last_answer);
            self.changed_at = Some(if may_be_promoted { seen } else { restarted_at });
        }
        has_forgotten
    }
}

impl Remarks {
    /// Logs them about the node at `address`.
    pub(crate) fn log(self, address: &dyn fmt::Display) {
        if let Some(policy) = self.evicts {
            log!(NODE_EVICTS, node = %address, %policy,
                "node may evict locks when memory is short; set maxmemory-policy noeviction"
            );
        }
        for (node, other) in self.duplicates {
            log!(NODE_LISTED_TWICE, node = %node, other = %other,
                "two nodes of the list are one server, which votes once; list each server once"
            );
        }
        if self.lacks.info {
            log!(NODE_REFUSES_INFO, node = %address,
                "node refuses INFO: its restarts cannot be seen, so restart_delay has no effect there"
            );
        }
        if self.lacks.notifications {
            log!(NODE_REFUSES_TRACKING, node = %address, "node refuses HELLO or CLIENT TRACKING: waiters poll there");
        }
        if self.lacks.hashes {
            log!(NODE_REFUSES_EVALSHA, node = %address, "node refuses EVALSHA: each request contains the text of its script");
        }
        if self.is_changed && self.is_back {
            log!(NODE_RESTARTED, node = %address,
                "the server before is back at this address, and its grants do not count for restart_delay; if two servers \
                 answer there in turn, list the address of one"
            );
        } else if self.is_changed {
            log!(NODE_RESTARTED, node = %address,
                "node restarted or was replaced; its grants do not count for restart_delay"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::node::identity::Role;
    use crate::sys::log::heard;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn place(number: usize) -> Target {
        Target::Tcp { host: format!("host-{number}"), port: 6379, tls: false }
    }

    fn at(hours: u32) -> Moment {
        Moment::from_nanos(1).after(HOUR * hours)
    }

    #[test]
    fn a_server_answers_until_a_call_sees_it_fail_or_none_is_answered_for_long() {
        let ms = |millis: u64| Moment::from_nanos(1 + millis * 1_000_000);
        let limit = Duration::from_millis(500);
        let endpoint = Endpoint::new(true, ms(0));
        let answers = |now| endpoint.is_answering(ms(now), limit);
        assert!(!answers(0), "it has never answered");
        endpoint.last_answer.set(ms(10));
        endpoint.cut_short(ms(20));
        endpoint.cut_short(ms(400));
        assert!(answers(519) && !answers(520), "the first call counts");
        endpoint.last_answer.set(ms(530));
        assert!(answers(60_000), "no call was cut short since");
        endpoint.cut_short(ms(529));
        assert!(answers(60_000), "it asked before the answer");
        endpoint.last_miss.set(ms(70_000));
        assert!(!answers(70_000));
        endpoint.last_answer.set(ms(70_001));
        assert!(answers(70_001));
    }

    /// A master whose data have this history, which may continue that of another master.
    pub(crate) fn master(run_id: &str, replid: &str, is_successor: bool) -> Identity {
        let former_replid = if is_successor { "another's" } else { "" }.to_owned();
        Identity { run_id: run_id.to_owned(), replid: replid.to_owned(), former_replid, role: Role::Master }
    }

    fn replica(of: Identity) -> Identity {
        Identity { role: Role::Replica, ..of }
    }

    fn quiet(role: Role) -> Identity {
        Identity { role, ..Identity::default() }
    }

    fn told(identity: Identity, silent: bool) -> ServerInfo {
        let lacks = Lacks { info: silent, ..Lacks::default() };
        ServerInfo { identity, uptime: Duration::ZERO, evicts: None, lacks, watched: false, again: Moment::NEVER }
    }

    #[test]
    fn when_a_node_may_have_forgotten() {
        let one = || master("1", "a", false);
        let cases = [
            ("nothing is new", one(), one(), false),
            ("another start", one(), master("2", "a", false), true),
            ("another start, and other data", one(), master("2", "b", false), true),
            ("its first replica has come", one(), master("1", "b", false), false),
            (
                "its first replica has come, after a failover long ago",
                master("1", "a", true),
                master("1", "b", false),
                false,
            ),
            ("it has followed another master", one(), master("1", "b", true), true),
            ("the same data, which came from another master", master("1", "a", true), master("1", "a", true), false),
            ("demoted", one(), replica(one()), true),
            ("promoted", replica(one()), master("1", "b", true), true),
            ("promoted, and its first replica has come", replica(one()), master("1", "b", false), true),
            ("a replica as before, of another master", replica(one()), replica(master("1", "b", false)), false),
            ("no right to INFO any more", one(), quiet(Role::Master), false),
            ("no right to INFO before", quiet(Role::Master), one(), false),
            ("neither INFO nor a role", one(), quiet(Role::Untold), false),
            ("a role that was not told before", quiet(Role::Untold), quiet(Role::Replica), false),
            ("promoted, without a right to INFO", quiet(Role::Replica), quiet(Role::Master), true),
            ("demoted, without a right to INFO", one(), quiet(Role::Replica), true),
        ];
        for (name, before, now, expected) in cases {
            assert_eq!(now.may_have_forgotten(&before), expected, "{name}");
        }
    }

    #[test]
    fn whether_it_is_up_is_not_known_before_it_was_asked_and_a_minute_after() {
        let (endpoint, minute) = (Endpoint::new(true, at(0)), Duration::from_secs(60));
        assert_eq!(endpoint.is_up(at(0)), None);
        endpoint.last_answer.set(at(1));
        assert_eq!([endpoint.is_up(at(1)), endpoint.is_up(at(1).after(minute))], [Some(true), None]);
        endpoint.last_miss.set(at(2));
        assert_eq!([endpoint.is_up(at(2)), endpoint.is_up(at(2).after(minute))], [Some(false), None]);
        endpoint.last_answer.set(at(3));
        assert_eq!(endpoint.is_up(at(3)), Some(true));
    }

    #[test]
    fn a_node_that_restarted_and_was_promoted_since_is_barred_from_now_on() {
        let continues = |former: &str| Identity { former_replid: former.to_owned(), ..master("2", "c", true) };
        let cases = [
            ("restarted with its data", continues("a"), at(3)),
            ("restarted without them", continues(""), at(3)),
            ("restarted as a replica", replica(master("2", "b", false)), at(9)),
            ("promoted behind another master", continues("b"), at(9)),
        ];
        for (name, now, expected) in cases {
            let endpoint = Endpoint::new(true, at(0));
            drop(endpoint.record_info(&told(master("1", "a", false), false), at(1)));
            endpoint.last_answer.set(at(2));
            drop(endpoint.record_info(&ServerInfo { uptime: HOUR * 6, ..told(now, false) }, at(9)));
            assert_eq!(endpoint.facts().changed_at, Some(expected), "{name}");
        }
    }

    #[test]
    fn what_one_user_is_not_told_stays_as_another_one_was() {
        let endpoint = Endpoint::new(true, at(0));
        let meet = |identity: Identity, hours: u32| {
            let silent = identity.run_id.is_empty();
            drop(endpoint.record_info(&told(identity, silent), at(hours)));
            endpoint.facts()
        };
        let replica = replica(master("1", "a", true));
        assert_eq!(meet(replica.clone(), 1), Facts { identity: Some(replica.clone()), changed_at: None });
        assert_eq!(meet(quiet(Role::Untold), 2).identity, Some(replica), "a role is kept until another one is told");
        let promoted = Facts { identity: Some(master("1", "a", true)), changed_at: Some(at(3)) };
        assert_eq!(meet(quiet(Role::Master), 3), promoted);
        assert_eq!(meet(master("1", "a", true), 4), promoted, "known already");
        assert_eq!(meet(master("2", "b", false), 5).changed_at, Some(at(5)));
    }

    #[test]
    fn another_server_in_its_place_is_barred_from_then_or_from_its_restart_after_that() {
        let endpoint = Endpoint::new(true, at(0));
        let meet = |identity: Identity, uptime: u32, hours: u32| {
            drop(endpoint.record_info(&ServerInfo { uptime: HOUR * uptime, ..told(identity, false) }, at(hours)));
            endpoint.facts().changed_at
        };
        assert_eq!(meet(master("1", "a", false), 1, 1), None);
        endpoint.last_answer.set(at(2));
        endpoint.moved(at(9));
        assert_eq!(endpoint.facts().changed_at, Some(at(9)));
        assert_eq!(meet(master("2", "a", false), 6, 10), Some(at(9)), "it started after the last answer");
        assert_eq!(meet(master("2", "a", false), 7, 11), Some(at(9)), "known by now");
        endpoint.moved(at(12));
        endpoint.moved(at(11));
        assert_eq!(meet(master("3", "b", false), 1, 14), Some(at(13)), "it restarted after it came");
        endpoint.moved(at(12));
        let remarks = endpoint.record_info(&told(master("3", "b", false), false), at(15));
        assert!(!remarks.is_changed, "that move is known");
    }

    #[test]
    fn an_endpoint_is_forgotten_a_day_after_its_last_use() {
        let endpoints = Endpoints::default();
        let meets = |use_it: &dyn Fn(&Endpoint)| {
            let endpoint = endpoints.at(&place(1), true, at(10));
            drop(endpoint.record_info(&told(master("1", "a", false), false), at(10)));
            use_it(&endpoint);
        };
        let is_known = |hours: u32| {
            endpoints.forget(at(hours));
            endpoints.0.lock().contains_key(&place(1))
        };
        meets(&|_| ());
        assert!(is_known(33) && !is_known(34), "a day after it was named");
        meets(&|endpoint| endpoint.last_answer.set(at(12)));
        assert!(is_known(35) && !is_known(36), "a day after its last answer");
        meets(&|endpoint| {
            assert!(is_known(1_000), "for as long as a set names it");
            endpoint.named.set(at(1_000));
        });
        assert!(is_known(1_023) && !is_known(1_024), "a day after the last set that named it");
        let again = endpoints.at(&place(1), true, at(1_024));
        assert_eq!(again.facts(), Facts::default());
        drop(again);
        drop(endpoints.at(&place(2), false, at(1_024)));
        assert!(is_known(1_024));
        assert!(!endpoints.0.lock().contains_key(&place(2)), "a store in memory is gone with its clients");
    }

    #[test]
    fn the_number_of_endpoints_is_bounded() {
        let endpoints = Endpoints::default();
        let named = endpoints.at(&place(0), true, at(0));
        for number in 1..2 * MOST {
            drop(endpoints.at(&place(number), true, at(1).after(Duration::from_secs(number as u64))));
        }
        let entries = endpoints.0.lock();
        assert_eq!(entries.len(), MOST);
        assert!(entries.contains_key(&place(0)) && entries.contains_key(&place(2 * MOST - 1)));
        assert!(!entries.contains_key(&place(1)), "the one that was used longest ago");
        drop(named);
    }

    #[test]
    fn an_endpoint_is_warned_about_once() {
        let endpoint = Endpoint::new(true, at(0));
        let evicts = ServerInfo { evicts: Some("allkeys-lru".into()), ..told(master("1", "a", false), false) };
        let silent = told(quiet(Role::Master), true);
        let warns = |server_info: &ServerInfo| {
            let remarks = endpoint.record_info(server_info, at(0));
            (remarks.evicts.is_some(), remarks.lacks.info, remarks.is_changed)
        };
        assert_eq!(warns(&evicts), (true, false, false));
        assert_eq!(warns(&silent), (false, true, false), "one warning is not in the way of another one");
        assert_eq!((warns(&evicts), warns(&silent)), ((false, false, false), (false, false, false)));
        assert_eq!(warns(&told(master("2", "a", false), false)), (false, false, true));
    }

    #[test]
    fn each_command_that_is_lacking_is_said_once() {
        let endpoint = Endpoint::new(true, at(0));
        let lacking = |lacks| ServerInfo { lacks, ..told(master("1", "a", false), false) };
        let said = |lacks| endpoint.record_info(&lacking(lacks), at(0)).lacks;
        let (info, notifications, hashes) = (
            Lacks { info: true, ..Lacks::default() },
            Lacks { notifications: true, ..Lacks::default() },
            Lacks { hashes: true, ..Lacks::default() },
        );
        assert_eq!(said(notifications), notifications);
        assert_eq!(said(info.union(notifications)), info);
        assert_eq!(said(info.union(notifications).union(hashes)), hashes);
        assert_eq!(said(info.union(notifications).union(hashes)), Lacks::default());
    }

    #[test]
    fn a_connection_that_stays_shows_that_its_server_was_a_replica_meanwhile() {
        let endpoint = Endpoint::new(true, at(0));
        drop(endpoint.record_info(&told(master("1", "a", false), false), at(1)));
        // One section of INFO does not have the run_id.
        let section = |replid| Identity { run_id: String::new(), ..master("", replid, replid != "a") };
        let is_changed = |replid, now| endpoint.record_identity(&section(replid), now).is_some();
        assert!(!is_changed("a", at(2)) && is_changed("b", at(3)) && !is_changed("b", at(4)));
        assert_eq!(endpoint.facts().changed_at, Some(at(3)));
        assert_eq!(endpoint.facts().identity.unwrap().run_id, "1");
    }

    /// Remembers since when connections are to be renounced.
    #[derive(Debug, Default)]
    struct Renouncing(Mutex<Vec<Moment>>);

    impl User for Renouncing {
        fn replaced(&self, _: &Endpoint, since: Moment) {
            self.0.lock().push(since);
        }
    }

    #[test]
    fn another_server_is_told_from_one_that_changed() {
        let (endpoint, user) = (Endpoint::new(true, at(0)), Arc::new(Renouncing::default()));
        endpoint.users.add(Arc::downgrade(&user) as Weak<dyn User>);
        let is_another = |identity| endpoint.record_info(&told(identity, false), at(1)).is_another;
        assert!(!is_another(master("1", "a", false)));
        assert!(!is_another(replica(master("1", "a", false))) && !is_another(quiet(Role::Master)));
        assert!(is_another(master("2", "b", false)) && !is_another(master("2", "b", false)));
        let said = |run_id, second| {
            let now = at(1).after(Duration::from_secs(second));
            let remarks = endpoint.record_info(&told(master(run_id, run_id, false), false), now);
            assert!(remarks.is_another);
            heard::text(|| remarks.log(&"a")).1
        };
        assert!(said("3", 2).contains("restarted or was replaced"), "a server that was not there before");
        assert!(said("1", 3).contains("is back at this address"));
        assert_eq!([said("3", 4), said("1", 62)], ["", ""], "they answer in turn");
        assert!(said("3", 63).contains("is back") && said("4", 64).contains("restarted"));
        endpoint.replaced(at(2));
        assert_eq!(*user.0.lock(), [at(2)]);
    }
}
