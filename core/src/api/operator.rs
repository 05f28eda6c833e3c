//! What operators need, and programs that stand in for them: the names in use on all nodes, and the release of somebody
//! else's lock.
//!
//! A *scan* reads the fence keys of every server, step by step and with pauses between the steps. It changes nothing.
//! What may interrupt it: a server fails, and its part is missing, which is told; it is dropped, and nothing remains.
//!
//! A *holding* is what the nodes had under a lock's keys at one moment, with the proofs of ownership. Its release deletes
//! only what has one of these proofs, so it never touches a later owner. It may be dropped at any await: what was sent
//! is executed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::api::client::Redlock;
use crate::api::inspect::{Answer, LockView, Seen, unknown, view};
use crate::error::{AnswerKind, Error, ErrorKind, NodeAnswer};
use crate::net::ballots::HELD;
use crate::net::connections::Connections;
use crate::net::failure::Failure;
use crate::net::node::Connection;
use crate::net::node::keys::{Content, Proof};
use crate::options::Options;
use crate::process::context::{LockContext, MOVES_MOST};
use crate::process::nodes::NodeSet;
use crate::protocol::glob;
use crate::protocol::name::{FENCE, Name};
use crate::protocol::quorum::{LockState, quorum};
use crate::protocol::request::Reply;
use crate::protocol::shape::{PERMITS_MOST, Shape};
use crate::sys::clock::{Clock, Moment};
use crate::sys::current_runtime;
use crate::sys::future::join_all;

/// How many steps a second a scan has, if its rate allows for it: short ones, because a server does nothing else in one.
const STEPS_PER_SECOND: u32 = 50;

/// The most keys that a server looks at in one step. The keys of many more would not fit into one reply.
const STEP_MOST: u32 = 500;

/// How many keys each server looks at in a second, at most, unless something else is wanted.
const USUAL_RATE: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not zero");

/// How many names are inspected together.
const BATCH: usize = 32;

impl Redlock {
    /// Lists the locks that are held, shared, or of another library, on all nodes, whose names match a `pattern` by the
    /// rules of `KEYS` in Redis: `*` for all, `?`, `[a-z]`, `[^a-z]` and a backslash. In the order of their names, with each
    /// slot of a semaphore that is not free. Changes nothing.
    ///
    /// For an operator: it walks through all keys of every server, about 10,000 a second, for the fences that the nodes
    /// remember, and then inspects each name. A lock of another library is listed only if this one has used its name. In a
    /// cluster, a slot that moves meanwhile may be missed. Cancel safe.
    ///
    /// # Errors
    ///
    /// `forbidden` without the right to `SCAN`, and `unavailable`, if so many servers could not be walked through that a
    /// lock may be missing; `invalid_argument` if the client is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://list-example")?;
    /// let guard = redlock.lock("night:backup").label("worker 7").acquire().await?;
    /// for view in redlock.list_locks("night:*").await? {
    ///     assert_eq!((&*view.name, view.label.as_deref()), ("night:backup", Some("worker 7")));
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_locks(&self, pattern: impl AsRef<[u8]>) -> Result<Vec<LockView>, Error> {
        let (client, pattern) = (self.clone(), pattern.as_ref().to_vec());
        self.somewhere(async move { list(&client, &pattern).await }).await
    }

    /// Deletes a lock that somebody else holds, or with a `slot` this one of a semaphore. Returns whose it was, or `None` if
    /// it was free, or has changed hands meanwhile: a new holder keeps it. The fence stays, so that the next holder's is
    /// larger, and waiters are woken.
    ///
    /// For an operator: the former holder learns of it at its next renewal, within a third of its ttl, as a loss with the
    /// reason `deleted`, or `taken` if another one holds the lock by then. It may still be at work until then. A shared
    /// lock is not deleted. To release a lock of its own, a program uses its guard. Cancel safe: what was sent is executed.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if no quorum of nodes confirms it; `invalid_argument` for a wrong name or slot, for a
    /// shared lock, and for a key that is not a lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://break-example")?;
    /// let stuck = redlock.lock("job").label("worker 7").acquire().await?;
    /// let broken = redlock.break_lock("job", None).await?;
    /// assert_eq!(broken.and_then(|view| view.label).as_deref(), Some("worker 7"));
    /// assert!(redlock.lock("job").try_acquire().await?.is_some_and(|guard| guard.fence() > stuck.fence()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn break_lock(&self, name: impl AsRef<[u8]>, slot: Option<u32>) -> Result<Option<LockView>, Error> {
        let (client, name) = (self.clone(), name.as_ref().to_vec());
        self.somewhere(async move { break_lock(&client, &name, slot).await }).await
    }

    /// Runs `call` on the caller's tokio runtime, or else in the background.
    async fn somewhere<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        if current_runtime::current()?.is_some() {
            return call.await;
        }
        let (process, _) = self.session().nodes()?;
        process.background.run(call).await?
    }
}

/// The names in use, without the client's prefix.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) locks: BTreeSet<Box<[u8]>>,
    /// Semaphores, each with one more than the largest slot that was used.
    pub(crate) semaphores: BTreeMap<Box<[u8]>, u32>,
    /// The servers that were not scanned to the end, and why.
    pub(crate) unscanned: Vec<NodeAnswer>,
    /// Why names that a quorum of nodes knows may be missing; `None` if there are none.
    pub(crate) incomplete: Option<Error>,
}

impl Names {
    /// Adds the name whose fence is under this key, if it begins with `prefix` and the rest matches `pattern`.
    fn add(&mut self, key: &[u8], prefix: &[u8], pattern: &[u8]) {
        let Some((name, slot)) = Name::of_fence_key(key) else { return };
        let Some(name) = name.bytes().strip_prefix(prefix) else { return };
        if name.is_empty() || !glob::matches(pattern, name) {
            return;
        }
        match slot {
            None => drop(self.locks.insert(name.into())),
            Some(slot) if slot < PERMITS_MOST => {
                let permits = self.semaphores.entry(name.into()).or_default();
                *permits = (slot + 1).max(*permits);
            }
            Some(_) => {}
        }
    }

    /// Adds the names that another server has.
    fn unite(&mut self, other: Self) {
        self.locks.extend(other.locks);
        for (name, permits) in other.semaphores {
            let known = self.semaphores.entry(name).or_default();
            *known = permits.max(*known);
        }
    }

    /// Records the servers that failed. A name is missing if its nodes may all be among them.
    fn judge(&mut self, failed: &[(String, Failure)], may_fail: usize) {
        let refused: Vec<_> = failed.iter().filter(|(_, why)| matches!(why, Failure::Forbidden(_))).collect();
        let is_incomplete = failed.len() > may_fail;
        // Without the refusals nothing would be missing.
        let is_forbidden = failed.len() - refused.len() <= may_fail;
        let lacks_right = refused.iter().any(|(_, why)| matches!(why, Failure::Forbidden(code) if &**code == "NOPERM"));
        self.unscanned = failed.iter().map(|(node, why)| why.of_node(node.clone())).collect();
        let (kind, message) = match (is_forbidden, lacks_right) {
            (true, true) => (ErrorKind::Forbidden, "no right to SCAN, which a list needs; grant +scan"),
            (true, false) => (ErrorKind::Forbidden, "the nodes refuse this login; check user and password"),
            _ => (ErrorKind::Unavailable, "too few nodes could be scanned, so names may be missing"),
        };
        self.incomplete = is_incomplete.then(|| Error::new(kind, message).with_nodes(self.unscanned.clone()));
    }
}

/// Keeps calls apart, so that servers have time for others.
struct Pace {
    rate: NonZeroU32,
    next: Moment,
}

impl Pace {
    fn new(rate: NonZeroU32, clock: &Clock) -> Self {
        Self { rate, next: clock.now() }
    }

    /// Waits until the keys before are paid for, and counts `keys` more. Time that passed unused is not made up for.
    async fn spend(&mut self, keys: u32, clock: &Clock) {
        clock.sleep_until(self.next).await;
        self.next = self.next.max(clock.now()).after(Duration::from_secs(1) * keys / self.rate.get());
    }
}

/// Returns the locks that are held and match `pattern`, in the order of their names; see
/// [`Redlock::list_locks`](crate::Redlock::list_locks).
pub(crate) async fn list(redlock: &Redlock, pattern: &[u8]) -> Result<Vec<LockView>, Error> {
    let names = scan(redlock, USUAL_RATE, &AtomicU64::new(0), pattern).await?;
    let mut views = inspect_all(redlock, &names, USUAL_RATE).await?;
    views.retain(|view| view.state != LockState::Free);
    names.incomplete.map_or(Ok(views), Err)
}

/// Returns the names that match `pattern` of all of which a node remembers a fence: those that were acquired or renewed
/// within the last `fence_ttl`. Each server is asked to look at `rate` keys a second at most; `looked` counts these. It
/// looks at a few more, because it finishes the bucket of its table that it has begun.
///
/// # Errors
///
/// `invalid_argument` for wrong options or files. A server that cannot be scanned is part of the result.
pub(crate) async fn scan(
    redlock: &Redlock,
    rate: NonZeroU32,
    looked: &AtomicU64,
    pattern: &[u8],
) -> Result<Names, Error> {
    let (process, listed) = redlock.session().nodes()?;
    let servers = match listed.routes() {
        // Where no map is known, connecting to the cluster itself tells why.
        Some(routes) => routes.all_servers().await.ok(),
        None => None,
    };
    // Every server of a cluster has names that no other one has.
    let nodes = listed.members.len();
    let may_fail = if servers.is_some() { 0 } else { nodes - quorum(nodes) };
    let set = servers.map_or_else(|| Ok(Arc::clone(&listed)), |servers| process.set_apart(&servers, &listed))?;
    let prefix = redlock.session().options().key_prefix.as_deref().unwrap_or_default().as_bytes();
    let connections = set.connections(&Handle::current());
    let scans = (0..set.members.len()).map(|node| {
        let pace = Pace::new(rate, &connections.clock);
        let (set, connections) = (&set, &connections);
        async move {
            let mut names = Names::default();
            let scanned = scan_node(connections, node, pace, looked, &mut names, (prefix, pattern)).await;
            (names, scanned.err().map(|why| (address(set, node), why)))
        }
    });
    let mut all = Names::default();
    let mut failed = Vec::new();
    for (names, failure) in join_all(scans.collect()).await {
        all.unite(names);
        failed.extend(failure);
    }
    all.judge(&failed, may_fail);
    Ok(all)
}

/// Adds to `names` those of a node that begin with a prefix and match a pattern.
async fn scan_node(
    connections: &Arc<Connections>,
    node: usize,
    mut pace: Pace,
    looked: &AtomicU64,
    names: &mut Names,
    (prefix, pattern): (&[u8], &[u8]),
) -> Result<(), Failure> {
    let clock = &connections.clock;
    let limit = connections.members.connect_timeout;
    let connection = within(clock, limit, connections.get(node, true)).await?;
    let count = (pace.rate.get() / STEPS_PER_SECOND).clamp(1, STEP_MOST);
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        pace.spend(count, clock).await;
        let step = within(clock, limit, connection.scan(FENCE, from, count)).await?;
        looked.fetch_add(count.into(), Ordering::Relaxed);
        step.keys.iter().for_each(|key| names.add(key, prefix, pattern));
        cursor = step.next;
    }
    Ok(())
}

/// Inspects each lock and each slot of `names`, in their order, at most `rate` of them a second.
///
/// # Errors
///
/// As [`Redlock::inspect`].
pub(crate) async fn inspect_all(redlock: &Redlock, names: &Names, rate: NonZeroU32) -> Result<Vec<LockView>, Error> {
    let (clock, mut all_views) = (Clock::System, Vec::new());
    let mut pace = Pace::new(rate, &clock);
    let locks = names.locks.iter().map(|name| (name, None));
    let semaphores = names.semaphores.iter().map(|(name, permits)| (name, Some(*permits)));
    let mut all: Vec<_> = locks.chain(semaphores).collect();
    all.sort_unstable();
    for batch in all.chunks(BATCH) {
        let keys = batch.iter().map(|(_, permits)| permits.unwrap_or(1)).sum();
        pace.spend(keys, &clock).await;
        let views = batch.iter().map(|&(name, permits)| async move {
            match permits {
                None => redlock.inspect(name).await.map(|view| vec![view]),
                Some(permits) => redlock.inspect_semaphore(name, permits).await,
            }
        });
        for views in join_all(views.collect()).await {
            all_views.extend(views?);
        }
    }
    Ok(all_views)
}

/// What the nodes had under a lock's keys, and how to delete just that.
pub(crate) struct Holding {
    pub(crate) view: LockView,
    context: LockContext,
    /// One for each owner, also of a minority.
    proofs: Vec<Proof>,
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holding").field("view", &self.view).finish_non_exhaustive()
    }
}

/// What became of a holding that was to be released.
#[derive(Debug)]
#[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "only the command line shows the figures"))]
pub(crate) enum Removal {
    /// A quorum of nodes does not have it any more, and some of them had it until now.
    Released {
        /// The number of nodes that deleted it.
        nodes: usize,
        /// The number that wait for the lock.
        waiting: u32,
        /// The nodes that did not answer: they may keep it until it expires.
        unanswered: Vec<NodeAnswer>,
    },
    /// It had expired, or was released, before.
    Gone,
    /// Another owner has the lock now, and keeps it.
    Changed {
        /// The number of nodes that still had the earlier owner's key, and deleted it.
        nodes: usize,
    },
}

/// Deletes a lock, or a slot of a semaphore, whoever holds it; see
/// [`Redlock::break_lock`](crate::Redlock::break_lock).
pub(crate) async fn break_lock(redlock: &Redlock, name: &[u8], slot: Option<u32>) -> Result<Option<LockView>, Error> {
    let held = holding(redlock, name, slot).await?;
    if !held.is_held() {
        return Ok(None);
    }
    if let Some(why) = held.is_kept() {
        return Err(Error::about("name", format!(" is {:?}, but {why}", held.view.name)).with_name(name));
    }
    Ok(match held.release().await? {
        Removal::Released { .. } => Some(held.view),
        Removal::Gone | Removal::Changed { .. } => None,
    })
}

/// Reads what the nodes have under the keys of this lock, or of this slot of a semaphore.
///
/// # Errors
///
/// `invalid_argument` for a wrong name; `unavailable` or `forbidden` if no quorum of nodes could be asked.
pub(crate) async fn holding(redlock: &Redlock, name: &[u8], slot: Option<u32>) -> Result<Holding, Error> {
    if let Some(slot) = slot.filter(|slot| *slot >= PERMITS_MOST) {
        return Err(Error::about("slot", format!(" is {slot}, but must be from 0 to {}", PERMITS_MOST - 1)));
    }
    let shape = match slot {
        None => name.into(),
        Some(slot) => Shape::Semaphore(name.into(), slot.saturating_add(1)),
    };
    let mut context = redlock.session().context(&shape, &Options::default())?;
    if let Some(slot) = slot {
        context = context.of_slot(slot);
    }
    let keys = Arc::clone(&context.spec.keys);
    let keys = &keys;
    let read = move |connection: Connection, asking| async move { connection.read(keys, asking).await };
    let contents = ask_each(&context, read).await;
    let mut proofs: Vec<Proof> = Vec::new();
    let mut answers: Vec<Answer> = Vec::new();
    for content in contents {
        answers.push(content.map(|Content { state, waiting, proof }| {
            proofs.extend(proof.filter(|proof| !proofs.contains(proof)));
            Seen { state, waiting }
        }));
    }
    if answers.iter().filter(|answer| answer.is_ok()).count() < quorum(answers.len()) {
        return Err(unknown(&context, &answers));
    }
    let view = LockView { slot, ..view(&context, answers) };
    Ok(Holding { view, context, proofs })
}

impl Holding {
    /// Whether a key of somebody is on some node.
    pub(crate) fn is_held(&self) -> bool {
        !self.proofs.is_empty() || self.is_data()
    }

    /// Whether the key is not a string, and so not a lock of any library that is known here.
    fn is_data(&self) -> bool {
        self.proofs.is_empty() && self.view.state != LockState::Free
    }

    /// Returns why it is not deleted, if it is nobody's alone.
    pub(crate) fn is_kept(&self) -> Option<&'static str> {
        let is_shared = self.view.state == LockState::Shared;
        let shared = "readers share it, and each of them ends with its own ttl";
        let why = if is_shared { shared } else { "its key is not a string, so it is not a lock" };
        self.is_data().then_some(why)
    }

    /// Deletes it from all nodes, where it is still what it was.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if too few nodes answered to know whether it is gone.
    pub(crate) async fn release(&self) -> Result<Removal, Error> {
        let (keys, proofs) = (&self.context.spec.keys, &self.proofs);
        let delete = move |connection: Connection, asking| async move {
            let mut all = Reply::Absent;
            for proof in proofs {
                all = more(all, connection.delete(keys, proof, asking).await?);
            }
            Ok(all)
        };
        self.judge(&ask_each(&self.context, delete).await)
    }

    fn judge(&self, answers: &[Result<Reply, Failure>]) -> Result<Removal, Error> {
        let needed = quorum(answers.len());
        let count = |is: fn(&Reply) -> bool| answers.iter().flatten().filter(|reply| is(reply)).count();
        let deleted = count(|reply| matches!(reply, Reply::Deleted { .. }));
        let absent = count(|reply| matches!(reply, Reply::Absent));
        let foreign = count(|reply| matches!(reply, Reply::Foreign(_)));
        if deleted + absent >= needed {
            let waiting = |reply: &Reply| if let Reply::Deleted { waiting } = reply { *waiting } else { 0 };
            let waiting = answers.iter().flatten().map(waiting).max().unwrap_or(0);
            let answer = |(node, answer): (usize, &Result<Reply, Failure>)| {
                Some(answer.as_ref().err()?.of_node(address(&self.context.set(), node)))
            };
            let unanswered = answers.iter().enumerate().filter_map(answer).collect();
            let released = Removal::Released { nodes: deleted, waiting, unanswered };
            return Ok(if deleted > 0 { released } else { Removal::Gone });
        }
        if foreign > 0 {
            return Ok(Removal::Changed { nodes: deleted });
        }
        Err(self.unconfirmed(answers))
    }

    /// Returns the error for a release that too few nodes confirmed.
    fn unconfirmed(&self, answers: &[Result<Reply, Failure>]) -> Error {
        let failures = || answers.iter().filter_map(|answer| answer.as_ref().err());
        let is_forbidden = failures().all(|failure| matches!(failure, Failure::Forbidden(_)));
        let (kind, message) = if is_forbidden {
            (ErrorKind::Forbidden, "a quorum of nodes refuses to delete it; check the rights of this user")
        } else {
            (ErrorKind::Unavailable, "no quorum of nodes confirmed that it is deleted; try again")
        };
        let answer = |(node, answer): (usize, &Result<Reply, Failure>)| {
            let address = address(&self.context.set(), node);
            let (kind, answer) = match answer {
                Ok(Reply::Deleted { .. }) => (AnswerKind::Done, "deleted"),
                Ok(Reply::Absent) => (AnswerKind::Free, "free"),
                Ok(_) => (AnswerKind::Held, HELD),
                Err(failure) => return failure.of_node(address),
            };
            NodeAnswer { node: address, kind, answer: answer.to_owned() }
        };
        let nodes = answers.iter().enumerate().map(answer).collect();
        Error::new(kind, message).with_name(self.context.spec.name.bytes()).with_nodes(nodes)
    }
}

/// Returns what two answers of one node to a release say together. Of several proofs, one at most is right.
fn more(one: Reply, other: Reply) -> Reply {
    match (&one, &other) {
        (Reply::Deleted { .. }, _) | (_, Reply::Absent) => one,
        _ => other,
    }
}

/// Asks each node, where the slot is, within the time of a connect and of an answer.
async fn ask_each<T, F: Future<Output = Result<T, Failure>>>(
    context: &LockContext,
    call: impl Fn(Connection, bool) -> F,
) -> Vec<Result<T, Failure>> {
    let clock = &context.process.clock;
    let limit = context.listed.members.connect_timeout + context.spec.settings.node_timeout;
    let asks = (0..context.listed.members.len()).map(|node| within(clock, limit, ask(context, node, &call)));
    join_all(asks.collect()).await
}

/// Asks one node, and once more wherever the slot is by then.
async fn ask<T, F: Future<Output = Result<T, Failure>>>(
    context: &LockContext,
    node: usize,
    call: &impl Fn(Connection, bool) -> F,
) -> Result<T, Failure> {
    let mut connections = context.set().connections(&Handle::current());
    let mut answer = ask_on(context, &connections, node, call).await;
    for _ in 0..MOVES_MOST {
        match (&answer, context.moved_from(&connections)) {
            (Err(_), Some(there)) => connections = there,
            // An idle connection had ended. What it carried, if anything, is done once more, which changes nothing.
            (Err(Failure::Closed), None) => {}
            _ => break,
        }
        answer = ask_on(context, &connections, node, call).await;
    }
    answer
}

/// Asks one node over these connections, or the server to which its slot is on its way.
async fn ask_on<T, F: Future<Output = Result<T, Failure>>>(
    context: &LockContext,
    connections: &Arc<Connections>,
    node: usize,
    call: &impl Fn(Connection, bool) -> F,
) -> Result<T, Failure> {
    let connection = connections.get(node, true).await?;
    let answer = call(connection.clone(), false).await;
    if answer.as_ref().err().is_some_and(Failure::breaks_connection) {
        connections.discard_if(node, &connection);
    }
    let Some(router) = connections.members.router.as_ref().and_then(Weak::upgrade) else {
        return answer.map_err(Failure::without_cluster);
    };
    match &answer {
        Err(Failure::Moved(to)) => {
            router.moved(connections, node, to);
            answer
        }
        Err(Failure::Asked(to)) => {
            let place = router.place(connections, node, to);
            let Some(there) = router.connections(connections, node, &place, &context.spec.keys) else { return answer };
            let connection = there.get(node, true).await?;
            call(connection, true).await
        }
        _ => answer,
    }
}

/// Returns what `call` returns, or the failure of a node that does not answer within `limit`.
async fn within<T>(
    clock: &Clock,
    limit: Duration,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let call = pin!(call);
    clock.timeout(limit, call).await.unwrap_or(Err(Failure::Silent(limit)))
}

fn address(set: &NodeSet, node: usize) -> String {
    set.members.nodes[node].address.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use harness::{Server, all_have, eventually};

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn rate(keys: u32) -> NonZeroU32 {
        NonZeroU32::new(keys).unwrap()
    }

    fn client(servers: &[Server], prefix: &str) -> Redlock {
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        Redlock::builder().nodes(urls).key_prefix(prefix).ttl(TTL).build().unwrap()
    }

    async fn scan_all(redlock: &Redlock) -> Names {
        scan(redlock, rate(10_000), &AtomicU64::new(0), b"*").await.unwrap()
    }

    fn locks(names: &Names) -> Vec<String> {
        names.locks.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    fn set(server: &Server, key: &str, value: &str) {
        server.command(&["SET", key, value]);
    }

    #[tokio::test]
    async fn names_of_all_nodes_are_listed_once() {
        let servers = harness::cluster(3);
        for (server, names) in servers.iter().zip([["a", "b"], ["b", "{c}d"], ["b", "e\u{0}}"]]) {
            for name in names {
                server.command(&[&b"SET"[..], &Name::parse(name.as_bytes()).unwrap().fence_key(), b"1"]);
            }
        }
        set(&servers[0], "redlock:fence:{", "not of a name");
        set(&servers[0], "job", "not a fence");
        let redlock = client(&servers, "");
        let names = scan_all(&redlock).await;
        assert_eq!(locks(&names), ["a", "b", "e\u{0}}", "{c}d"]);
        assert!(names.semaphores.is_empty() && names.unscanned.is_empty() && names.incomplete.is_none());
        let some = scan(&redlock, rate(10_000), &AtomicU64::new(0), b"?").await.unwrap();
        assert_eq!(locks(&some), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_prefix_and_the_keys_of_slots_are_undone() {
        let servers = [Server::start()];
        let (redlock, without) = (client(&servers, "app:"), client(&servers, ""));
        let held = redlock.lock("job").acquire().await.unwrap();
        let (first, second) =
            (redlock.semaphore("pool", 2).acquire().await, redlock.semaphore("pool", 2).acquire().await);
        let other = without.lock("other").acquire().await.unwrap();
        let names = scan_all(&redlock).await;
        assert_eq!(locks(&names), ["job"]);
        assert_eq!(names.semaphores.into_iter().collect::<Vec<_>>(), [(b"pool"[..].into(), 2)]);
        let names = scan_all(&without).await;
        assert_eq!(locks(&names), ["app:job", "other"]);
        let views = inspect_all(&without, &names, rate(10_000)).await.unwrap();
        let views: Vec<_> = views.into_iter().map(|view| (view.name, view.slot, view.state)).collect();
        let held_as = |name: &str, slot| (name.to_owned(), slot, LockState::Held);
        let all = [
            held_as("app:job", None),
            held_as("app:pool", Some(0)),
            held_as("app:pool", Some(1)),
            held_as("other", None),
        ];
        assert_eq!(views, all);
        drop((held, first, second, other));
    }

    #[tokio::test]
    async fn a_store_in_this_process_is_scanned_and_released() {
        let redlock = Redlock::builder().nodes("memory://operator").ttl(TTL).build().unwrap();
        let guard = redlock.lock("job").acquire().await.unwrap();
        let slot = redlock.semaphore("pool", 1).acquire().await.unwrap();
        let names = scan_all(&redlock).await;
        assert_eq!((locks(&names), names.semaphores.len()), (vec!["job".to_owned()], 1));
        for (name, slot) in [("job", None), ("pool", Some(0))] {
            let held = holding(&redlock, name.as_bytes(), slot).await.unwrap();
            assert!(held.is_held());
            assert!(matches!(held.release().await.unwrap(), Removal::Released { nodes: 1, .. }));
        }
        assert!(!redlock.lock("job").is_locked().await.unwrap());
        drop((guard, slot));
    }

    #[tokio::test]
    async fn a_scan_without_a_minority_is_complete() {
        let servers = harness::cluster(3);
        for server in &servers {
            set(server, "redlock:fence:{a}", "1");
        }
        let redlock = client(&servers, "");
        servers[1].kill();
        let names = scan_all(&redlock).await;
        assert_eq!((locks(&names), names.unscanned.len()), (vec!["a".to_owned()], 1));
        assert!(names.incomplete.is_none());
        servers[2].kill();
        let names = scan_all(&client(&servers, "")).await;
        assert_eq!(locks(&names), ["a"], "what is known is told");
        assert_eq!(names.incomplete.unwrap().kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_scan_that_is_refused_names_the_right() {
        let server = Server::start();
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-scan"]);
        let redlock = Redlock::new(format!("{}?user=app&pass=pw", server.url())).unwrap();
        let error = scan_all(&redlock).await.incomplete.unwrap();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(error.to_string().contains("+scan"), "{error}");
    }

    #[tokio::test]
    async fn a_scan_takes_its_time() {
        let servers = [Server::start()];
        for key in 0..400 {
            set(&servers[0], &format!("key:{key}"), "1");
        }
        let redlock = client(&servers, "");
        let looked = AtomicU64::new(0);
        let begun = Clock::System.now();
        scan(&redlock, rate(1_000), &looked, b"*").await.unwrap();
        let took = Clock::System.now().since(begun);
        // A step of 20 keys may look at up to 40, and nobody waits after the last one.
        let looked = looked.into_inner();
        assert!(looked >= 200, "{looked}");
        assert!(took >= Duration::from_millis(looked - 20), "{took:?} for {looked}");
    }

    #[tokio::test]
    async fn a_release_deletes_what_was_shown_and_tells_the_holder() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        let guard = redlock.lock("job").label("web-3").acquire().await.unwrap();
        all_have(&servers, "job");
        let held = holding(&redlock, b"job", None).await.unwrap();
        assert_eq!((held.view.state, held.view.label.as_deref()), (LockState::Held, Some("web-3")));
        assert_eq!((held.view.fence, held.view.holders), (Some(guard.fence()), 3));
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Released { nodes: 3, waiting: 0, .. }), "{removal:?}");
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(matches!(held.release().await.unwrap(), Removal::Gone));
    }

    #[tokio::test]
    async fn a_later_owner_keeps_the_lock() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        let first = redlock.lock("job").acquire().await.unwrap();
        let held = holding(&redlock, b"job", None).await.unwrap();
        first.release().await.unwrap();
        let second = redlock.lock("job").acquire().await.unwrap();
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Changed { nodes: 0 }), "{removal:?}");
        second.extend().await.unwrap();
        second.release().await.unwrap();
    }

    #[tokio::test]
    async fn what_several_owners_left_is_deleted() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        for (server, digit) in servers.iter().zip(["a", "b"]) {
            set(server, "job", &format!("{}:17:web-3", digit.repeat(32)));
        }
        let held = holding(&redlock, b"job", None).await.unwrap();
        assert_eq!(held.view.state, LockState::Unknown);
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Released { nodes: 2, .. }), "{removal:?}");
        assert_eq!(servers[0].get("job"), None);
    }

    #[tokio::test]
    async fn locks_of_other_libraries_are_released_and_data_is_not() {
        let servers = [Server::start()];
        let redlock = client(&servers, "");
        set(&servers[0], "theirs", "a-uuid");
        let held = holding(&redlock, b"theirs", None).await.unwrap();
        assert_eq!((held.view.state, held.is_held(), held.is_data()), (LockState::Foreign, true, false));
        set(&servers[0], "theirs", "another-uuid");
        assert!(matches!(held.release().await.unwrap(), Removal::Changed { nodes: 0 }));
        let held = holding(&redlock, b"theirs", None).await.unwrap();
        assert!(matches!(held.release().await.unwrap(), Removal::Released { nodes: 1, .. }));
        servers[0].command(&["LPUSH", "list", "1"]);
        let held = holding(&redlock, b"list", None).await.unwrap();
        assert_eq!((held.view.state, held.is_held(), held.is_data()), (LockState::Foreign, true, true));
        let free = holding(&redlock, b"nothing", None).await.unwrap();
        assert!(!free.is_held() && !free.is_data());
    }

    /// The bell wakes those who wait for any slot.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_released_slot_goes_to_a_waiter() {
        let servers = [Server::start()];
        let redlock = client(&servers, "");
        let holder = redlock.semaphore("pool", 1).acquire().await.unwrap();
        let lock = redlock.semaphore("pool", 1);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        let waiting = || servers[0].get("redlock:waiters::redlock:slot:0:{pool}").is_some();
        tokio::task::block_in_place(|| eventually("it waits", waiting));
        let held = holding(&redlock, b"pool", Some(0)).await.unwrap();
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Released { nodes: 1, waiting: 1, .. }), "{removal:?}");
        let slot = Clock::System.timeout(harness::LIMIT, waiter).await.expect("it is woken").unwrap().unwrap();
        assert_eq!(slot.slot(), Some(0));
        drop(holder);
    }

    #[tokio::test]
    async fn a_release_without_a_quorum_is_not_begun() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        let guard = redlock.lock("job").acquire().await.unwrap();
        all_have(&servers, "job");
        servers[0].kill();
        servers[1].kill();
        let error = holding(&client(&servers, ""), b"job", None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(servers[2].get("job").is_some());
        drop(guard);
    }

    #[tokio::test]
    async fn a_holding_shows_no_token() {
        let servers = [Server::start()];
        let redlock = client(&servers, "");
        let guard = redlock.lock("job").acquire().await.unwrap();
        let value = servers[0].get("job").unwrap();
        let token = String::from_utf8_lossy(&value[..16]).into_owned();
        let held = holding(&redlock, b"job", None).await.unwrap();
        assert!(!format!("{held:?} {:?}", held.proofs).contains(&token));
        drop(guard);
    }
}
