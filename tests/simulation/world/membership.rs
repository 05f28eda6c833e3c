//! The part of one server of a simulation in its cluster, or in a group that sentinels watch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::node::memory::{Entry, Store};
use crate::node::way::OpenSlot;
use crate::protocol::cluster::{Redirect, Told};
use crate::protocol::name::{SLOTS, slot};
use crate::protocol::place::Place;
use crate::protocol::request::{Action, Request};
use crate::transport::failure::Failure;

/// A replica is not later than this.
const LATE_MOST: Duration = Duration::from_secs(1);

/// What the servers of a cluster agree on. Servers are indices in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// The primary of each server; itself, if it is one.
    pub(super) primaries: BTreeMap<usize, usize>,
    /// The owners of ranges of slots.
    ranges: Vec<(RangeInclusive<u16>, usize)>,
    /// The owners of slots that were moved away from those.
    pub(super) moved: BTreeMap<u16, usize>,
    /// How often a replica has taken over.
    pub(super) epoch: u64,
}

impl Agreement {
    /// The first half of `servers` are the primaries, and the others their replicas.
    pub(super) fn of(servers: &[usize]) -> Self {
        let shards = servers.len() / 2;
        let first = |shard: usize| u16::try_from(shard * usize::from(SLOTS) / shards).unwrap_or(SLOTS);
        let range = |shard: usize| (first(shard)..=first(shard + 1) - 1, servers[shard]);
        Self {
            primaries: servers.iter().enumerate().map(|(index, server)| (*server, servers[index % shards])).collect(),
            ranges: (0..shards).map(range).collect(),
            moved: BTreeMap::new(),
            epoch: 0,
        }
    }

    pub(super) fn owner(&self, slot: u16) -> usize {
        let range = || self.ranges.iter().find(|(range, _)| range.contains(&slot)).map(|(_, owner)| *owner);
        self.moved.get(&slot).copied().or_else(range).expect("every slot has an owner")
    }

    pub(super) fn is_primary(&self, server: usize) -> bool {
        self.primaries[&server] == server
    }

    /// Puts `to` in the place of `from`, which becomes its replica.
    pub(super) fn promote(&mut self, from: usize, to: usize) {
        self.epoch += 1;
        for server in self.primaries.values_mut().filter(|server| **server == from) {
            *server = to;
        }
        let owners = self.ranges.iter_mut().map(|(_, owner)| owner).chain(self.moved.values_mut());
        for owner in owners.filter(|owner| **owner == from) {
            *owner = to;
        }
    }

    /// Returns the answer to CLUSTER SLOTS.
    pub(super) fn told(&self) -> Vec<Told> {
        let mut told = Vec::new();
        let mut tell = |slots: RangeInclusive<u16>, owner: usize| {
            if !slots.is_empty() {
                told.push(Told { slots, primary: place(owner) });
            }
        };
        for (range, owner) in &self.ranges {
            let mut first = *range.start();
            for (slot, other) in self.moved.range(range.clone()) {
                if first < *slot {
                    tell(first..=*slot - 1, *owner);
                }
                tell(*slot..=*slot, *other);
                first = slot + 1;
            }
            tell(first..=*range.end(), *owner);
        }
        told
    }
}

/// Where the server of this index is.
pub(super) fn place(server: usize) -> Place {
    Place { host: format!("server-{}", server + 1), port: 1 }
}

/// The keys that a request has written, and what is there since.
type Written = Vec<(Vec<u8>, Option<Entry>)>;

/// The part of one server in its cluster.
pub(super) struct Membership {
    /// The newest agreement that it has heard of.
    pub(super) known: Arc<Agreement>,
    /// The slots that are on their way to other servers, or to this one.
    pub(super) leaving: BTreeMap<u16, usize>,
    pub(super) coming: BTreeSet<u16>,
    /// What its replica has, and what is on its way there; `None` once that hears nothing any more.
    pub(super) copy: Store,
    pub(super) backlog: Option<VecDeque<(Instant, Written)>>,
    pub(super) habits: Habits,
    /// Whether it has restarted, and not heard from the other servers of its cluster yet.
    pub(super) is_new: bool,
}

/// How a server answers a request that it does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habits {
    /// As one of a cluster.
    Cluster,
    /// As one of Redis 6 in a cluster: with ASK where some keys have left.
    OldCluster,
    /// As a replica that sentinels watch.
    Watched,
}

impl Membership {
    pub(super) fn new(known: Arc<Agreement>, copy: Store, habits: Habits) -> Self {
        let (leaving, coming) = Default::default();
        Self { known, leaving, coming, copy, backlog: Some(VecDeque::new()), habits, is_new: false }
    }

    pub(super) fn is_primary(&self, server: usize) -> bool {
        self.known.is_primary(server)
    }

    pub(super) fn told(&self) -> Vec<Told> {
        self.known.told()
    }

    /// Accepts a request to this `server`, or says where else it may be accepted.
    pub(super) fn accept(
        &self,
        server: usize,
        store: &Store,
        request: &Request,
        open: OpenSlot,
    ) -> Result<(), Failure> {
        if self.habits == Habits::Watched {
            let is_allowed = self.is_primary(server) || matches!(request.action, Action::Inspect { .. });
            return if is_allowed { Ok(()) } else { Err(Failure::of_code("READONLY")) };
        }
        if self.is_new {
            return Err(Failure::of_code("CLUSTERDOWN"));
        }
        let slot = slot(&request.keys.lock);
        let redirect = |to: usize| Box::new(Redirect { slot, place: place(to) });
        let keys = keys(request, open.bare);
        let here = keys.iter().filter(|key| store.entry(key).is_some()).count();
        let owner = self.known.owner(slot);
        if owner == server && self.is_primary(server) {
            return match self.leaving.get(&slot) {
                Some(to) if here == 0 || (here < keys.len() && self.habits == Habits::OldCluster) => {
                    Err(Failure::Asked(redirect(*to)))
                }
                Some(_) if here < keys.len() => Err(Failure::Between),
                _ => Ok(()),
            };
        }
        if open.asking && self.coming.contains(&slot) {
            return if keys.len() > 1 && here < keys.len() { Err(Failure::Between) } else { Ok(()) };
        }
        Err(Failure::Moved(redirect(owner)))
    }

    /// Sends to the replica what a request has written.
    pub(super) fn replicate(&mut self, now: Instant, store: &Store, request: &Request) {
        let each = request.keys.each().flat_map(|keys| [&*keys.lock, &*keys.fence, &*keys.want]);
        let keys = each.chain(request.keys.bell());
        self.send(now, keys.map(|key| (key.to_vec(), store.entry(key).cloned())).collect());
    }

    pub(super) fn send(&mut self, now: Instant, written: Written) {
        let Some(backlog) = &mut self.backlog else { return };
        backlog.push_back((now, written));
        while backlog.front().is_some_and(|(at, _)| *at + LATE_MOST < now) {
            let (_, written) = backlog.pop_front().expect("it is there");
            arrive(&mut self.copy, written);
        }
    }

    /// Ends the way to the replica, on which the writes of the last `lost` time are lost.
    pub(super) fn cut(&mut self, now: Instant, lost: Duration) {
        for (at, written) in self.backlog.take().unwrap_or_default() {
            if at + lost <= now {
                arrive(&mut self.copy, written);
            }
        }
    }

    pub(super) fn lose_copy(&mut self) {
        self.copy = Store::default();
        if let Some(backlog) = &mut self.backlog {
            backlog.clear();
        }
    }
}

fn arrive(copy: &mut Store, written: Written) {
    for (key, entry) in written {
        copy.copy(&key, entry);
    }
}

/// Returns the keys that a request names.
fn keys(request: &Request, bare: bool) -> Vec<&[u8]> {
    let each = request.keys.each();
    let mut keys: Vec<&[u8]> = match &request.action {
        Action::Look { slots, .. } => slots.iter().map(|keys| &*keys.lock).collect(),
        _ => each.clone().map(|keys| &*keys.lock).collect(),
    };
    let names_fence = match &request.action {
        Action::Acquire { .. }
        | Action::Confirm { .. }
        | Action::Restore { .. }
        | Action::Rekey { .. }
        | Action::Peek { .. } => true,
        Action::Extend { .. } => !bare,
        // The script that takes several names also looks at them.
        Action::Inspect { .. } => request.keys.are_several(),
        Action::Release { .. }
        | Action::Leave { .. }
        | Action::Look { .. }
        | Action::Read
        | Action::Evict { .. }
        | Action::Withdraw
        | Action::SetnxAcquire { .. }
        | Action::SetnxRelease { .. } => false,
    };
    if names_fence {
        keys.extend(each.clone().map(|keys| &*keys.fence));
    }
    if request.hints() && !bare {
        keys.extend(each.map(|keys| &*keys.want));
        keys.extend(request.keys.bell());
    }
    keys
}
