//! Servers of a simulation that take over from each other: a cluster, which also shares slots, or a primary and its replica,
//! with sentinels that name the primary.
//!
//! What all servers agree on in the end is one [`Agreement`], the newest. Each server follows the one that it has heard of
//! ([`Shards::learn`]), so that an older one names a primary that is not one any more, also to itself.
//!
//! The replica of a primary is a copy of its keys that is late by a second at most. It becomes the data of the server that
//! is promoted. Both have one clock, as servers whose clocks are kept right by NTP.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::membership::{Agreement, Habits, Membership, place};
use super::server::Node;
use crate::node::memory::Store;
use crate::protocol::name::slot;
use crate::protocol::place::Place;

/// How many shards a cluster has.
pub(super) const SHARDS: usize = 3;

/// How many sentinels a group has.
pub(super) const SENTINELS: usize = 3;

/// A cluster, or a primary and its replica with sentinels.
#[derive(Clone)]
pub struct Shards {
    servers: Vec<Node>,
    newest: Arc<Mutex<Arc<Agreement>>>,
    /// What each sentinel has heard of, if there are any.
    heard: Arc<Mutex<Vec<Arc<Agreement>>>>,
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Shards {
    /// Makes a cluster of `servers`: the primaries, and then a replica for each.
    pub(super) fn new(servers: Vec<Node>) -> Self {
        Self::with(servers, Habits::Cluster, 0)
    }

    /// Makes a group of a primary and its replica, and their sentinels.
    pub(super) fn watched(servers: Vec<Node>) -> Self {
        Self::with(servers, Habits::Watched, SENTINELS)
    }

    fn with(servers: Vec<Node>, habits: Habits, sentinels: usize) -> Self {
        let indices: Vec<_> = servers.iter().map(|server| server.0.index).collect();
        let (newest, shards) = (Arc::new(Agreement::of(&indices)), servers.len() / 2);
        for (number, server) in servers.iter().enumerate() {
            server.state().membership = Some(Membership::new(Arc::clone(&newest), Store::default(), habits));
            if number >= shards {
                let replid = servers[number % shards].state().replid.clone();
                server.state().replid = replid;
            }
        }
        let heard = Arc::new(Mutex::new(vec![Arc::clone(&newest); sentinels]));
        Self { servers, newest: Arc::new(Mutex::new(newest)), heard }
    }

    /// Makes its servers old ones, which answer ASK where some keys of a request have left.
    pub fn age(&self) {
        for server in &self.servers {
            self.member(server.0.index, |member| {
                if member.habits == Habits::Cluster {
                    member.habits = Habits::OldCluster;
                }
            });
        }
    }

    fn heard(&self) -> MutexGuard<'_, Vec<Arc<Agreement>>> {
        self.heard.lock().expect("no panic while holding this")
    }

    /// Returns how many sentinels name its primary; none, if it is a cluster.
    #[must_use]
    pub fn sentinels(&self) -> usize {
        self.heard().len()
    }

    /// Lets a sentinel hear of the newest agreement.
    pub fn hear(&self, sentinel: usize) {
        let newest = Arc::clone(&self.newest());
        self.servers[0].note(|| format!("its sentinel {} hears of epoch {}", sentinel + 1, newest.epoch));
        self.heard()[sentinel] = newest;
    }

    /// Returns what a sentinel tells: the primary, and the epoch.
    pub(super) fn named_by(&self, sentinel: usize) -> (Place, u64) {
        let heard = self.heard();
        (place(heard[sentinel].owner(0)), heard[sentinel].epoch)
    }

    /// Returns its servers.
    #[must_use]
    pub fn servers(&self) -> &[Node] {
        &self.servers
    }

    fn newest(&self) -> MutexGuard<'_, Arc<Agreement>> {
        self.newest.lock().expect("no panic while holding this")
    }

    fn server(&self, index: usize) -> &Node {
        self.servers.iter().find(|server| server.0.index == index).expect("it belongs to the cluster")
    }

    fn member(&self, index: usize, act: impl FnOnce(&mut Membership)) {
        act(self.server(index).state().membership.as_mut().expect("it belongs to the cluster"));
    }

    /// Returns the server that has a key's slot now.
    #[must_use]
    pub fn owner(&self, key: &[u8]) -> &Node {
        let owner = self.newest().owner(slot(key));
        self.server(owner)
    }

    /// Returns the primaries.
    #[must_use]
    pub fn primaries(&self) -> Vec<&Node> {
        let newest = Arc::clone(&self.newest());
        self.servers.iter().filter(|server| newest.is_primary(server.0.index)).collect()
    }

    /// Returns the keys in the slot of a key that have not left it.
    #[must_use]
    pub fn keys_beside(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let keys = self.owner(key).keys().into_iter().map(|(other, _)| other.into_bytes());
        keys.filter(|other| slot(other) == slot(key)).collect()
    }

    /// Returns the replica of a primary, which takes over from it.
    #[must_use]
    pub fn replica(&self, primary: &Node) -> &Node {
        let index = primary.0.index;
        let newest = Arc::clone(&self.newest());
        let is_meant = |(server, of): &(&usize, &usize)| **of == index && **server != index;
        let replica = newest.primaries.iter().find(is_meant).map(|(server, _)| *server);
        self.server(replica.expect("a primary has a replica"))
    }

    /// Opens the slot of a key: it is on its way to another server.
    pub fn open(&self, key: &[u8], to: &Node) {
        let (slot, from) = (slot(key), self.owner(key).clone());
        to.note(|| format!("begins to take over the slot of {}", String::from_utf8_lossy(key)));
        self.member(to.0.index, |member| member.coming.extend([slot]));
        self.member(from.0.index, |member| member.leaving.extend([(slot, to.0.index)]));
    }

    /// Moves one key of an open slot, if it exists.
    pub fn move_key(&self, key: &[u8]) {
        let from = self.owner(key).clone();
        let to = from.state().membership.as_ref().and_then(|member| member.leaving.get(&slot(key)).copied());
        let Some(to) = to.map(|to| self.server(to).clone()) else { return };
        let now = from.0.time.now();
        let (entry, left) = {
            let mut state = from.state();
            let Some(entry) = state.store.entry(key).cloned() else { return };
            state.store.delete(key);
            let told = state.disarm(key);
            state.membership.as_mut().expect("it belongs to the cluster").send(now, vec![(key.to_vec(), None)]);
            (entry, told)
        };
        let found = {
            let mut state = to.state();
            state.store.copy(key, Some(entry.clone()));
            let told = state.disarm(key);
            state.membership.as_mut().expect("it belongs to the cluster").send(now, vec![(key.to_vec(), Some(entry))]);
            told
        };
        to.note(|| format!("gets key {}", String::from_utf8_lossy(key)));
        from.tell(&left, key);
        to.tell(&found, key);
    }

    /// Moves all keys in the open slot of a key.
    pub fn move_all(&self, key: &[u8]) {
        for key in self.keys_beside(key) {
            self.move_key(&key);
        }
    }

    /// Closes an open slot, all of whose keys have moved: `to` has it. Others have to [`learn`](Self::learn) that.
    pub fn close(&self, key: &[u8], to: &Node) {
        self.agree(|agreement| agreement.moved.extend([(slot(key), to.0.index)]));
        self.learn(to);
    }

    /// Moves the slot of a key at once, with all that is in it. All servers hear of it.
    pub fn migrate(&self, key: &[u8], to: &Node) {
        self.open(key, to);
        self.move_all(key);
        self.close(key, to);
        self.settle();
    }

    /// Makes another agreement.
    fn agree(&self, change: impl FnOnce(&mut Agreement)) {
        let mut newest = self.newest();
        let mut agreement = Agreement::clone(&newest);
        change(&mut agreement);
        *newest = Arc::new(agreement);
    }

    /// Ends the way from a primary to its replica, which lacks the writes of the last `lost` time.
    pub fn cut(&self, primary: &Node, lost: Duration) {
        let now = primary.0.time.now();
        primary.note(|| format!("is cut off from its replica, which lacks the last {lost:?}"));
        self.member(primary.0.index, |member| member.cut(now, lost));
    }

    /// Promotes the replica of a primary, which was [cut off](Self::cut), and has to [`learn`](Self::learn) of it.
    pub fn promote(&self, primary: &Node) {
        let replica = self.replica(primary);
        let (data, replid, habits) = {
            let mut state = primary.state();
            let replid = state.replid.clone();
            let member = state.membership.as_mut().expect("it belongs to the cluster");
            (std::mem::take(&mut member.copy), replid, member.habits)
        };
        self.agree(|agreement| agreement.promote(primary.0.index, replica.0.index));
        {
            let mut state = replica.state();
            state.replid = replid;
            state.rename_data(replica.0.index);
            state.take_data(data.clone());
            let known = Arc::clone(&self.newest());
            state.membership = Some(Membership::new(known, data, habits));
        }
        replica.note(|| "is promoted".to_owned());
    }

    /// Lets a server hear of the newest agreement. A primary that has been replaced becomes a replica.
    pub fn learn(&self, server: &Node) {
        let (newest, index) = (Arc::clone(&self.newest()), server.0.index);
        let primary = newest.primaries[&index];
        let replid = (primary != index).then(|| self.server(primary).state().replid.clone());
        let mut guard = server.state();
        let (state, mut ended) = (&mut *guard, Vec::new());
        let member = state.membership.as_mut().expect("it belongs to the cluster");
        member.is_new = false;
        if member.known == newest {
            return;
        }
        server.note(|| "learns of a change of its cluster".to_owned());
        member.known = newest;
        let known = &member.known;
        // Of a slot that it has given away, or has got, it knows.
        member.leaving.retain(|slot, _| known.owner(*slot) == index);
        member.coming.retain(|slot| known.owner(*slot) != index);
        if let Some(replid) = replid {
            let (known, habits) = (Arc::clone(known), member.habits);
            (state.replid, state.former_replid) = (replid, String::new());
            state.take_data(Store::default());
            state.membership = Some(Membership::new(known, Store::default(), habits));
            if habits == Habits::Watched {
                // A sentinel ends the connections of a server whose role it changes.
                ended = std::mem::take(&mut state.lines);
            }
        }
        drop(guard);
        server.end_lines(ended);
    }

    /// Lets all servers hear of the newest agreement. Slots and keys that are on their way arrive.
    pub fn settle(&self) {
        for server in &self.servers {
            self.member(server.0.index, |member| member.coming.clear());
            let leaving: Vec<_> = {
                let state = server.state();
                let member = state.membership.as_ref().expect("it belongs to the cluster");
                member.leaving.iter().map(|(slot, to)| (*slot, *to)).collect()
            };
            for (number, to) in leaving {
                // Otherwise it has been given away, or replaced, and has not heard of that.
                if self.newest().owner(number) == server.0.index {
                    let keys = server.keys().into_iter().map(|(key, _)| key.into_bytes());
                    keys.filter(|key| slot(key) == number).for_each(|key| self.move_key(&key));
                    self.agree(|agreement| agreement.moved.extend([(number, to)]));
                }
            }
        }
        (0..self.sentinels()).for_each(|sentinel| self.hear(sentinel));
        for server in &self.servers {
            self.learn(server);
            let mut state = server.state();
            let store = state.store.clone();
            let member = state.membership.as_mut().expect("it belongs to the cluster");
            if member.backlog.is_none() {
                (member.copy, member.backlog) = (store, Some(VecDeque::new()));
            }
        }
    }
}
