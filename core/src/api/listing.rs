//! A listing: the locks that are held, in pages, from a walk through the fence keys of every server. It changes nothing.
//!
//! States: *new* → *walking* → *over*. A walk takes one step through each server, then inspects the
//! names that it has found, some at a time, and goes on only for the next page. So a page is all that is in memory, besides
//! a number for each name that may come again. What may interrupt each await:
//!
//! - the caller drops it: the same is asked once more for the next page;
//! - a server fails: its part is missing, which is told at the end.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::api::client::Redlock;
use crate::api::inspect::{self, LockView};
use crate::error::{Error, ErrorKind, NodeAnswer};
use crate::net::connections::Connections;
use crate::node::keys::Step;
use crate::process::nodes::NodeSet;
use crate::protocol::glob;
use crate::protocol::name::{FENCE, Name};
use crate::protocol::quorum::{LockState, quorum};
use crate::protocol::shape::PERMITS_MOST;
use crate::sys::clock::{Clock, Moment};
use crate::sys::fork::Pid;
use crate::sys::future::join_all;
use crate::texts::opaque;
use crate::transport::failure::{Failure, within};

/// How many steps a second a walk has, if its rate allows for it: short ones, because a server does nothing else in one.
const STEPS_PER_SECOND: u32 = 50;

/// The most keys that a server looks at in one step. The keys of many more would not fit into one reply.
const STEP_MOST: u32 = 500;

/// How many keys each server looks at in a second, at most, unless something else is wanted.
const USUAL_RATE: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not zero");

/// How many names are inspected together.
const BATCH: usize = 32;

impl Redlock {
    /// Lists the locks that are held, shared, or of another library, on all nodes, whose names match a `pattern` by the
    /// rules of `KEYS` in Redis: `*` for all, `?`, `[a-z]`, `[^a-z]` and a backslash. In no order, with each slot of a
    /// semaphore that is not free, and each of them once. Sends nothing before the first is asked for, and changes nothing.
    ///
    /// For an operator: it walks through all keys of every server, about 10,000 a second, for the fences that the nodes
    /// remember, and inspects each name. It goes only as far as the caller does, so that it never has all names in memory.
    /// A lock of another library is listed only if this one has used its name. A lock that is acquired or released
    /// meanwhile may be missed, and in a cluster one whose slot moves.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://list-example")?;
    /// let guard = redlock.lock("night:backup").label("worker 7").acquire().await?;
    /// let mut held = redlock.list_locks("night:*");
    /// while let Some(view) = held.next().await? {
    ///     assert_eq!((&*view.name, view.label.as_deref()), ("night:backup", Some("worker 7")));
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_locks(&self, pattern: impl AsRef<[u8]>) -> LockListing {
        LockListing { listing: Listing::new(self, pattern.as_ref()), page: VecDeque::new(), is_over: false }
    }
}

/// The locks that are held, one after the other; made by [`Redlock::list_locks`].
#[derive(Debug)]
#[must_use = "nothing is listed until the next lock is asked for"]
pub struct LockListing {
    listing: Arc<Listing>,
    page: VecDeque<LockView>,
    is_over: bool,
}

impl LockListing {
    /// Returns the next lock; `None` after the last one, and after an error.
    ///
    /// # Errors
    ///
    /// `forbidden` without the right to `SCAN`, and `unavailable`, at the end, if so many servers could not be walked
    /// through that a lock may be missing; `closed` if the client is closed; `invalid_argument` in a forked child.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<LockView>, Error> {
        if self.page.is_empty() && !self.is_over {
            let page = self.listing.page().await;
            self.is_over = page.as_ref().map_or(true, Vec::is_empty);
            self.page = page?.into();
        }
        Ok(self.page.pop_front())
    }
}

/// A listing as pages, which the bindings hand on.
#[doc(hidden)]
pub struct Listing {
    client: Redlock,
    pattern: Box<[u8]>,
    pid: Pid,
    /// `None` before the first page.
    walk: Mutex<Option<Walk>>,
}

opaque!(Listing);

impl Listing {
    /// Makes a listing, and sends nothing.
    #[must_use]
    pub fn new(client: &Redlock, pattern: &[u8]) -> Arc<Self> {
        let (client, pattern) = (client.clone(), pattern.into());
        Arc::new(Self { client, pattern, pid: Pid::now(), walk: Mutex::new(None) })
    }

    /// Returns its client.
    pub(crate) fn client(&self) -> &Redlock {
        &self.client
    }

    /// Returns the next locks; none at the end. Runs on the caller's tokio runtime, or else in the background.
    ///
    /// # Errors
    ///
    /// Those of [`LockListing::next`].
    pub(crate) async fn page(self: &Arc<Self>) -> Result<Vec<LockView>, Error> {
        if self.pid != Pid::now() {
            return Err(Error::invalid("this listing was made before the fork; make another one in the child"));
        }
        loop {
            let listing = Arc::clone(self);
            let is_over = self.client.somewhere(async move { listing.look_here().await }).await?;
            // The background goes on with what a caller that is dropped has asked for, so the page is not its result.
            let page = self.walk.lock().await.as_mut().map(|walk| mem::take(&mut walk.page)).unwrap_or_default();
            if is_over || !page.is_empty() {
                return Ok(page);
            }
        }
    }

    /// Finds the next locks. Returns whether there are none.
    async fn look_here(&self) -> Result<bool, Error> {
        let mut walk = self.walk.lock().await;
        let walk = match &mut *walk {
            Some(walk) => walk,
            new => new.insert(Walk::begin(&self.client, &self.pattern, (USUAL_RATE, false), Arc::default()).await?),
        };
        walk.look().await?;
        if walk.page.is_empty() { walk.incomplete().map_or(Ok(true), Err) } else { Ok(false) }
    }
}

/// A walk through the fence keys of every server. A lock that is held during all of it is found, if a quorum of its nodes
/// is walked through.
#[doc(hidden)]
pub struct Walk {
    client: Redlock,
    pattern: Box<[u8]>,
    rate: NonZeroU32,
    /// Whether names that are free are shown, too.
    shows_free: bool,
    set: Arc<NodeSet>,
    /// When the keys that were looked at before are paid for, so that servers have time for others.
    next: Moment,
    /// How many keys each server was asked to look at, together.
    looked: Arc<AtomicU64>,
    /// Where the walk through each server goes on; `None` if it is over.
    cursors: Vec<Option<u64>>,
    failed: Vec<(String, Failure)>,
    may_fail: usize,
    /// Names that were found, and slots of semaphores, which are still to be inspected.
    found: Vec<(Box<[u8]>, Option<u32>)>,
    page: Vec<LockView>,
    /// Whether several servers know the same names, so that those that were found before are passed over.
    is_repeated: bool,
    /// What was found before, or shown before: SCAN may return a key twice.
    known: HashSet<u64>,
    hasher: RandomState,
}

opaque!(Walk);

impl Walk {
    /// Begins a walk for the names that match `pattern`. Each server is asked to look at `rate` keys a second at most;
    /// `looked` counts these. It looks at a few more, because it finishes the bucket of its table that it has begun.
    ///
    /// # Errors
    ///
    /// `closed`, and `invalid_argument` for wrong options or files.
    pub async fn begin(
        client: &Redlock,
        pattern: &[u8],
        (rate, shows_free): (NonZeroU32, bool),
        looked: Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        let (process, listed) = client.session().nodes()?;
        // Where no map is known, connecting to the cluster itself tells why.
        let servers = process.servers_of(&listed).await?;
        // Every server of a cluster has names that no other one has.
        let (nodes, is_repeated) = (listed.members.len(), servers.is_none());
        let may_fail = if is_repeated { nodes - quorum(nodes) } else { 0 };
        let set = servers.unwrap_or(listed);
        Ok(Self {
            client: client.clone(),
            pattern: pattern.into(),
            rate,
            shows_free,
            next: process.clock.now(),
            looked,
            cursors: vec![Some(0); set.members.len()],
            set,
            failed: Vec::new(),
            may_fail,
            found: Vec::new(),
            page: Vec::new(),
            is_repeated: is_repeated && nodes > 1,
            known: HashSet::new(),
            hasher: RandomState::new(),
        })
    }

    /// Returns locks that were not returned before; none at the end. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Redlock::inspect`]. A server that cannot be walked through is not an error here.
    pub async fn page(&mut self) -> Result<Vec<LockView>, Error> {
        self.look().await?;
        Ok(mem::take(&mut self.page))
    }

    async fn look(&mut self) -> Result<(), Error> {
        while self.page.is_empty() {
            if !self.found.is_empty() {
                self.inspect().await?;
            } else if self.cursors.iter().any(Option::is_some) {
                self.step().await;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Takes one step through each server that is not at its end.
    async fn step(&mut self) {
        let connections = self.set.connections(&Handle::current());
        let count = (self.rate.get() / STEPS_PER_SECOND).clamp(1, STEP_MOST);
        self.spend(count, &connections.clock).await;
        let from = self.cursors.iter().enumerate().filter_map(|(node, cursor)| Some((node, (*cursor)?)));
        let steps = from.map(|(node, from)| {
            let step = step_on(&connections, node, from, count);
            async move { (node, step.await) }
        });
        for (node, step) in join_all(steps.collect()).await {
            self.looked.fetch_add(count.into(), Ordering::Relaxed);
            self.cursors[node] = match step {
                Ok(step) => {
                    step.keys.iter().for_each(|key| self.add(key));
                    step.next
                }
                Err(why) => {
                    self.failed.push((self.set.members.address(node), why));
                    None
                }
            };
        }
    }

    /// Adds the name or slot whose fence is under this key, if it has the client's prefix and the rest matches.
    fn add(&mut self, key: &[u8]) {
        let Some((name, slot)) = Name::of_fence_key(key) else { return };
        let Some(name) = name.bytes().strip_prefix(self.client.session().prefix()) else { return };
        let is_name = !name.is_empty() && slot.is_none_or(|slot| slot < PERMITS_MOST);
        if !is_name || !glob::matches(&self.pattern, name) {
            return;
        }
        if !self.is_repeated || self.known.insert(self.hasher.hash_one(key)) {
            self.found.push((name.into(), slot));
        }
    }

    /// Inspects some of the names that were found.
    async fn inspect(&mut self) -> Result<(), Error> {
        let rest = self.found.len().saturating_sub(BATCH);
        self.spend(u32::try_from(self.found.len() - rest).unwrap_or(u32::MAX), &Clock::System).await;
        let looks = self.found[rest..].iter().map(|(name, slot)| look(&self.client, name, *slot));
        let views = join_all(looks.collect()).await;
        self.found.truncate(rest);
        for view in views {
            let view = view?;
            let is_shown = self.shows_free || view.state != LockState::Free;
            if is_shown && (self.is_repeated || self.known.insert(self.hasher.hash_one(&view.key))) {
                self.page.push(view);
            }
        }
        Ok(())
    }

    /// Waits until the keys before are paid for, and counts `keys` more. Time that passed unused is not made up for.
    async fn spend(&mut self, keys: u32, clock: &Clock) {
        clock.sleep_until(self.next).await;
        self.next = self.next.max(clock.now()).after(Duration::from_secs(1) * keys / self.rate.get());
    }

    /// Returns the servers that were not walked through to the end, and why.
    #[must_use]
    pub fn unscanned(&self) -> Vec<NodeAnswer> {
        self.failed.iter().map(|(node, why)| why.of_node(node.clone())).collect()
    }

    /// Returns why names that a quorum of nodes knows may be missing; `None` if there are none. A name is missing if its
    /// nodes may all be among the servers that failed.
    #[must_use]
    pub fn incomplete(&self) -> Option<Error> {
        let failed = self.failed.len();
        let refused: Vec<_> = self.failed.iter().filter(|(_, why)| matches!(why, Failure::Forbidden(_))).collect();
        // Without the refusals nothing would be missing.
        let is_forbidden = failed - refused.len() <= self.may_fail;
        let lacks_right = refused.iter().any(|(_, why)| matches!(why, Failure::Forbidden(code) if &**code == "NOPERM"));
        let (kind, message) = match (is_forbidden, lacks_right) {
            (true, true) => (ErrorKind::Forbidden, "no right to SCAN, which a list needs; grant +scan"),
            (true, false) => (ErrorKind::Forbidden, "the nodes refuse this login; check user and password"),
            _ => (ErrorKind::Unavailable, "too few nodes could be scanned, so names may be missing"),
        };
        (failed > self.may_fail).then(|| Error::new(kind, message).with_nodes(self.unscanned()))
    }
}

/// Takes one step through a server.
async fn step_on(connections: &Arc<Connections>, node: usize, from: u64, count: u32) -> Result<Step, Failure> {
    let (clock, limit) = (&connections.clock, connections.members.connect_timeout);
    let connection = connections.get_within(node, limit).await?;
    within(clock, limit, connection.scan(FENCE, from, count)).await
}

/// Inspects a lock, or a slot of a semaphore.
async fn look(client: &Redlock, name: &[u8], slot: Option<u32>) -> Result<LockView, Error> {
    let view = inspect::inspect(client.session().context_of_one(name, slot)?).await?;
    Ok(LockView { slot, ..view })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use harness::Server;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn client(servers: &[Server], prefix: &str) -> Redlock {
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        Redlock::builder().nodes(urls).key_prefix(prefix).ttl(TTL).build().unwrap()
    }

    async fn walk(redlock: &Redlock, pattern: &[u8], rate: u32) -> (Vec<LockView>, Walk) {
        let how = (NonZeroU32::new(rate).unwrap(), true);
        let mut walk = Walk::begin(redlock, pattern, how, Arc::default()).await.unwrap();
        let mut all = Vec::new();
        loop {
            let page = walk.page().await.unwrap();
            if page.is_empty() {
                all.sort_by(|one: &LockView, other| (&one.name, one.slot).cmp(&(&other.name, other.slot)));
                return (all, walk);
            }
            all.extend(page);
        }
    }

    async fn names(redlock: &Redlock, pattern: &[u8]) -> Vec<String> {
        walk(redlock, pattern, 10_000).await.0.into_iter().map(|view| view.name).collect()
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
        assert_eq!(names(&redlock, b"*").await, ["a", "b", "e\u{0}}", "{c}d"]);
        assert_eq!(names(&redlock, b"?").await, ["a", "b"]);
    }

    #[tokio::test]
    async fn a_prefix_and_the_keys_of_slots_are_undone() {
        let servers = [Server::start()];
        let (redlock, without) = (client(&servers, "app:"), client(&servers, ""));
        let held = redlock.lock("job").acquire().await.unwrap();
        let (first, second) =
            (redlock.semaphore("pool", 2).acquire().await, redlock.semaphore("pool", 2).acquire().await);
        let other = without.lock("other").acquire().await.unwrap();
        assert_eq!(names(&redlock, b"*").await, ["job", "pool", "pool"]);
        let (views, _) = walk(&without, b"*", 10_000).await;
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
    async fn a_walk_without_a_minority_is_complete() {
        let servers = harness::cluster(3);
        for server in &servers {
            set(server, "redlock:fence:{a}", "1");
        }
        let redlock = client(&servers, "");
        servers[1].kill();
        let (views, walked) = walk(&redlock, b"*", 10_000).await;
        assert_eq!((&*views[0].name, views.len(), walked.unscanned().len()), ("a", 1, 1));
        assert!(walked.incomplete().is_none());
        servers[2].kill();
        let (views, walked) = walk(&client(&servers, ""), b"*", 10_000).await;
        assert_eq!((&*views[0].name, views.len()), ("a", 1), "what is known is told");
        assert_eq!(walked.incomplete().unwrap().kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_walk_that_is_refused_names_the_right() {
        let server = Server::start();
        server.command(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-scan"]);
        let redlock = Redlock::new(format!("{}?user=app&pass=pw", server.url())).unwrap();
        let error = redlock.list_locks("*").next().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(error.to_string().contains("+scan"), "{error}");
    }

    #[tokio::test]
    async fn a_walk_takes_its_time() {
        let servers = [Server::start()];
        for key in 0..400 {
            set(&servers[0], &format!("key:{key}"), "1");
        }
        let redlock = client(&servers, "");
        let begun = Clock::System.now();
        let (_, walked) = walk(&redlock, b"*", 1_000).await;
        let took = Clock::System.now().since(begun);
        // A step of 20 keys may look at up to 40, and nobody waits after the last one.
        let looked = walked.looked.load(Ordering::Relaxed);
        assert!(looked >= 200, "{looked}");
        assert!(took >= Duration::from_millis(looked - 20), "{took:?} for {looked}");
    }

    /// Nothing is asked ahead, and a call that is dropped costs nothing but its time.
    #[tokio::test]
    async fn a_walk_goes_as_far_as_its_reader() {
        let servers = [Server::start()];
        let fill = "for k = 1, 2000 do
            redis.call('SET', k, 'of another library')
            redis.call('SET', 'redlock:fence:{' .. k .. '}', 1)
        end";
        servers[0].command(&["EVAL", fill, "0"]);
        let redlock = client(&servers, "");
        let mut held = redlock.list_locks("*");
        let (mut names, mut patience) = (HashSet::new(), Duration::from_millis(1));
        while names.len() < 2_000 {
            let Some(view) = Clock::System.timeout(patience, pin!(held.next())).await else {
                patience *= 2;
                continue;
            };
            patience = Duration::from_millis(1);
            assert!(names.insert(view.unwrap().expect("there are more").name));
            assert!(held.page.len() <= BATCH);
            let walk = held.listing.walk.lock().await;
            assert!(walk.as_ref().is_some_and(|walk| walk.found.len() <= 2 * STEP_MOST as usize));
        }
        assert!(held.next().await.unwrap().is_none());
    }
}
