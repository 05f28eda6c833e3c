//! A cluster: which server has a slot now.
//!
//! A cluster is a directory of ordinary servers. It is asked for its map (CLUSTER SLOTS) by a task of the background,
//! whose states are:
//!
//! - *none*: no request was sent elsewhere, or failed, since the last map;
//! - *asking*: one server after the other, the next one when the one before has failed, or was silent for
//!   [`HEAD_START`](crate::transport::dial::HEAD_START); for [`ONE_MOST`] each;
//! - *proving*: a server may have been promoted. Either slots were moved to it by hand, which loses nothing, or it was
//!   promoted and may lack the last grants of the primary before. Both are asked which it is;
//! - *resting*: for a second, if something went wrong again meanwhile.
//!
//! A map that is [`OLD`] is asked for again at the next use. The error MOVED corrects one slot at once if it names a
//! primary of the map. Grants of another server do not count before it was proven, so that such a slot is left to the
//! next map.
//!
//! What may interrupt it: a fork, after which the child has its own. A caller that is cancelled, which ends no asking.
//! The background cannot be started, or ends: the map stays as it is, and whoever waits for the first one fails.

pub(crate) mod servers;

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use self::servers::ServerAccess;
use crate::address::{Address, Target};
use crate::error::Error;
use crate::protocol::cluster::{SlotMap, Standing, Told};
use crate::protocol::place::Place;
use crate::sys::clock::{Clock, Moment, SharedMoment};
use crate::sys::followers::Followers;
use crate::sys::future::{join_all, notified_until};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::task::Task;
use crate::texts::opaque;
use crate::transport::dial::race;
use crate::transport::failure::Failure;
use crate::transport::progress::Progress;
use crate::transport::tls::Tls;

/// The time for one server's answer, with its connection.
const ONE_MOST: Duration = Duration::from_secs(2);

/// The time for the answers that prove what became of a primary.
const PROOF_MOST: Duration = Duration::from_millis(500);

/// The pause between two maps.
const REST: Duration = Duration::from_secs(1);

/// The age of a map that is asked for again.
const OLD: Duration = Duration::from_secs(60);

/// Something that uses the map. Called by the background, outside of every lock.
pub(crate) trait Follower: fmt::Debug + Send + Sync {
    /// Learns that slots are elsewhere.
    fn changed(self: Arc<Self>);
}

/// A cluster and its map.
pub(crate) struct Cluster {
    address: Address,
    seeds: Vec<Place>,
    servers: ServerAccess,
    clock: Clock,
    spawn: Box<dyn Fn(Task) + Send + Sync>,
    quarantine: Box<dyn Fn(&Address) + Send + Sync>,
    state: Mutex<State>,
    is_asking: AtomicBool,
    /// Whether another map is wanted after the one that is asked for.
    is_wanted: AtomicBool,
    /// When the last map came.
    mapped: SharedMoment,
    /// Notified when an asking ends.
    changed: Notify,
    followers: Followers<dyn Follower>,
}

#[derive(Debug, Default)]
struct State {
    map: SlotMap,
    /// The server that told the map.
    teller: Option<Place>,
    /// The number of askings so far.
    askings: u64,
    /// The reason why the map is not known yet.
    failure: Option<Failure>,
    /// The server that a redirect named last, which is asked first.
    named: Option<Place>,
    /// The server with which something is wrong, which is asked last.
    doubted: Option<Place>,
}

impl Cluster {
    /// Makes the cluster at `address`, if that is one, of `servers`. `spawn` runs a task in the background. `quarantine`
    /// is called, before a map names it, with a server that may lack the last grants of the one before.
    pub(crate) fn new(
        address: &Address,
        servers: ServerAccess,
        clock: Clock,
        spawn: impl Fn(Task) + Send + Sync + 'static,
        quarantine: impl Fn(&Address) + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let Target::Cluster { seeds, .. } = &address.target else { return None };
        Some(Arc::new(Self {
            seeds: seeds.iter().map(|(host, port)| Place { host: host.clone(), port: *port }).collect(),
            servers,
            address: address.clone(),
            clock,
            spawn: Box::new(spawn),
            quarantine: Box::new(quarantine),
            state: Mutex::default(),
            is_asking: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            mapped: SharedMoment::default(),
            changed: Notify::new(),
            followers: Followers::default(),
        }))
    }

    /// Tells `follower` of every change from now on.
    pub(crate) fn follow(&self, follower: Weak<dyn Follower>) {
        self.followers.add(follower);
    }

    /// Returns the primary of `slot`; `None` if none is known. A use, which has an old map asked for again.
    pub(crate) fn primary(self: &Arc<Self>, slot: u16) -> Option<Place> {
        let mapped = self.mapped.get();
        if mapped != Moment::default() && self.clock.now() >= mapped.after(OLD) {
            self.ask_soon();
        }
        self.state.lock().map.primary(slot).cloned()
    }

    /// Returns the address of a server of this cluster.
    pub(crate) fn address_of(&self, place: &Place) -> Address {
        self.address.of_server(&place.host, place.port)
    }

    /// Returns what TLS connections to a server of this cluster need, with the files in force.
    pub(super) fn tls_to(&self, host: &str) -> Result<Option<Arc<Tls>>, Error> {
        self.servers.tls_to(host)
    }

    /// Returns the first slots of all ranges of slots that have one primary, or none.
    pub(crate) fn starts(&self) -> Vec<u16> {
        self.state.lock().map.starts().collect()
    }

    /// Returns all primaries that have slots.
    pub(crate) fn primaries(&self) -> Vec<Place> {
        self.state.lock().map.primaries().into_iter().cloned().collect()
    }

    /// Waits for a map that is asked for from now on. Cancel safe.
    ///
    /// # Errors
    ///
    /// The reason why the servers do not tell a map.
    pub(crate) async fn map_anew(self: &Arc<Self>) -> Result<(), Failure> {
        let seen = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            // What it told is not enough.
            state.doubted.clone_from(&state.teller);
            state.askings
        };
        self.ask_soon();
        notified_until(&self.changed, || {
            let state = self.state.lock();
            (state.askings != seen).then(|| state.failure.clone().map_or(Ok(()), Err))
        })
        .await
    }

    /// Has the map asked for again, because something is wrong with the server at `place`.
    pub(crate) fn doubt(self: &Arc<Self>, place: &Place) {
        self.state.lock().doubted = Some(place.clone());
        self.ask_soon();
    }

    /// Records that a server has sent a request for `slot` to `place`.
    pub(crate) fn moved(self: &Arc<Self>, slot: u16, place: &Place) {
        let is_news = {
            let mut state = self.state.lock();
            state.named = Some(place.clone());
            state.map.primaries().contains(&place) && state.map.correct(slot, place, self.clock.now())
        };
        if is_news {
            self.tell_followers();
        }
        self.ask_soon();
    }

    fn tell_followers(&self) {
        self.followers.all().into_iter().for_each(Follower::changed);
    }

    /// Asks for the map in the background, at most once a second.
    fn ask_soon(self: &Arc<Self>) {
        self.is_wanted.store(true, Ordering::SeqCst);
        if !self.is_asking.swap(true, Ordering::SeqCst) {
            let inquiry = Inquiry { cluster: Arc::clone(self), is_over: false };
            (self.spawn)(Box::pin(inquiry.run()));
        }
    }

    /// Returns the servers to ask, in order.
    fn candidates(&self) -> Vec<Place> {
        let mut state = self.state.lock();
        let (named, doubted) = (state.named.take(), state.doubted.take());
        let known = state.map.primaries().into_iter().cloned();
        let mut candidates: Vec<Place> = Vec::new();
        for place in named.into_iter().chain(known).chain(self.seeds.iter().cloned()) {
            if !candidates.contains(&place) {
                candidates.push(place);
            }
        }
        candidates.sort_by_key(|place| Some(place) == doubted.as_ref());
        candidates
    }

    /// Records a map, or the reason why it is not known.
    async fn record(self: &Arc<Self>, told: Result<(Place, Vec<Told>), Failure>) {
        let (teller, told) = match told {
            Ok(told) => told,
            Err(failure) => {
                let mut state = self.state.lock();
                state.failure = state.map.primaries().is_empty().then_some(failure);
                return;
            }
        };
        let taken = self.taken(&told);
        let proofs = taken.iter().map(|(place, formers)| self.is_migration(place, formers)).collect();
        for ((place, formers), is_migration) in taken.iter().zip(join_all(proofs).await) {
            if !is_migration {
                (self.quarantine)(&self.address_of(place));
                let from = formers.first().map(ToString::to_string).unwrap_or_default();
                log!(FAILOVER, node = %self.address, %from, to = %place,
                    "failover: another server is primary, and may lack the last grants");
            }
        }
        let is_news = {
            let mut state = self.state.lock();
            state.failure = None;
            state.teller = Some(teller);
            state.map.replace(&told, self.clock.now())
        };
        self.mapped.set(self.clock.now());
        if is_news {
            self.tell_followers();
        }
    }

    /// Returns the servers that may have been promoted, each with those that had its slots before: it is a new primary, or
    /// one of those is not a primary any more. The first map has none of them.
    fn taken(&self, told: &[Told]) -> Vec<(Place, Vec<Place>)> {
        let state = self.state.lock();
        let before: BTreeSet<_> = state.map.primaries().into_iter().collect();
        if before.is_empty() {
            return Vec::new();
        }
        let now: BTreeSet<_> = told.iter().map(|told| &told.primary).collect();
        let with_formers = |place: &&Place| ((*place).clone(), state.map.formers(told, place));
        let may_be_promoted = |(place, formers): &(Place, Vec<Place>)| {
            !before.contains(place) || formers.iter().any(|former| !now.contains(former))
        };
        now.iter().map(with_formers).filter(may_be_promoted).collect()
    }

    /// Returns whether slots were moved to `place` while the servers that had them are still primaries, whose data
    /// `place` does not continue.
    async fn is_migration(&self, place: &Place, formers: &[Place]) -> bool {
        let asked =
            std::iter::once(place).chain(formers).map(|place| self.servers.standing(place, &self.clock)).collect();
        let Some(answers) = self.clock.timeout(PROOF_MOST, pin!(join_all(asked))).await else { return false };
        let Some((Ok(now), formers)) = answers.split_first() else { return false };
        let (known, at) = (self.mapped.get(), self.clock.now());
        let still_has =
            |former: &Result<Standing, Failure>| former.as_ref().is_ok_and(|former| former.is_kept(now, known, at));
        !formers.is_empty() && formers.iter().all(still_has)
    }
}

opaque!(Cluster);

/// The task that asks.
struct Inquiry {
    cluster: Arc<Cluster>,
    /// Whether it has ended by itself.
    is_over: bool,
}

impl Inquiry {
    async fn run(mut self) {
        let cluster = Arc::clone(&self.cluster);
        loop {
            cluster.is_wanted.store(false, Ordering::SeqCst);
            let asked = cluster.clock.now();
            let told = cluster.ask(cluster.candidates()).await;
            cluster.record(told).await;
            cluster.state.lock().askings += 1;
            cluster.changed.notify_waiters();
            cluster.clock.sleep_until(asked.after(REST)).await;
            if cluster.is_wanted.load(Ordering::SeqCst) {
                continue;
            }
            cluster.is_asking.store(false, Ordering::SeqCst);
            // Somebody may have wanted a map after the last look, and have found an inquiry.
            if !cluster.is_wanted.load(Ordering::SeqCst) || cluster.is_asking.swap(true, Ordering::SeqCst) {
                self.is_over = true;
                return;
            }
        }
    }
}

impl Drop for Inquiry {
    /// If the background could not be started, or ends, connects that wait fail.
    fn drop(&mut self) {
        if !self.is_over {
            self.cluster.is_asking.store(false, Ordering::SeqCst);
            let mut state = self.cluster.state.lock();
            state.askings += 1;
            if state.map.primaries().is_empty() {
                state.failure = Some(Failure::Unreachable("its cluster was not asked for its map".into()));
            }
            drop(state);
            self.cluster.changed.notify_waiters();
        }
    }
}

impl Cluster {
    /// Asks one server after the other for the map, until one tells it.
    async fn ask(&self, candidates: Vec<Place>) -> Result<(Place, Vec<Told>), Failure> {
        let asked = candidates.into_iter().map(|place| self.ask_one(place));
        race(asked, &self.clock).await.map_err(|failures| {
            // Whoever has wrong rights, logins or certificates has to know that, and not that another server is down. To
            // clients that have others, it is not a failure of the cluster.
            let is_own =
                |failure: &&Failure| matches!(failure, Failure::Forbidden(_) | Failure::NoLogin(_) | Failure::Tls(_));
            if let Some(own) = failures.iter().find(is_own) {
                return own.clone();
            }
            let mut said: Vec<_> = failures.iter().map(ToString::to_string).collect();
            said.dedup();
            Failure::Unreachable(format!("the servers of the cluster do not tell its map: {}", said.join(", ")).into())
        })
    }

    async fn ask_one(&self, place: Place) -> Result<(Place, Vec<Told>), Failure> {
        let told = {
            let progress = Progress::default();
            let question = pin!(self.servers.slots(&place, (&self.clock, &progress)));
            let told = self.clock.timeout(ONE_MOST, question).await;
            told.unwrap_or_else(|| Err(Failure::unanswered(progress.phase(), ONE_MOST)))?
        };
        if told.is_empty() {
            return Err(Failure::Unreachable("none of its slots is assigned to a server".into()));
        }
        Ok((place, told))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use tokio::runtime::Handle;

    use super::*;

    /// A server that tells that it has all slots, and counts how often it was asked.
    fn server(asked: &Arc<AtomicUsize>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::clone(asked);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (mut lines, mut out) = (BufReader::new(client.try_clone().unwrap()).lines(), client);
                if lines.by_ref().map_while(Result::ok).any(|line| line == "SLOTS") {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let answer = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n");
                    drop(out.write_all(answer.as_bytes()));
                }
            }
        });
        port
    }

    fn cluster(ports: &[u16]) -> Arc<Cluster> {
        let seeds: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        cluster_at(&format!("redis+cluster://{}", seeds.join(",")))
    }

    fn cluster_at(url: &str) -> Arc<Cluster> {
        let address = Address::parse(url).unwrap();
        let runtime = Handle::current();
        let spawn = move |task| drop(runtime.spawn(task));
        let servers = ServerAccess::dialed(&address, None).unwrap().unwrap();
        Cluster::new(&address, servers, Clock::System, spawn, |_| {}).unwrap()
    }

    #[tokio::test]
    async fn the_map_is_asked_for_once_a_second_whoever_wants_it() {
        let asked = Arc::default();
        let port = server(&asked);
        let cluster = cluster(&[port]);
        assert_eq!(cluster.primary(0), None);
        cluster.map_anew().await.unwrap();
        let place = cluster.primary(16_383).unwrap();
        assert_eq!(place.to_string(), format!("127.0.0.1:{port}"));
        let begun = Clock::System.now();
        for _ in 0..100 {
            cluster.doubt(&place);
        }
        cluster.map_anew().await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(Clock::System.now() >= begun.after(REST / 2), "it came too soon");
    }

    #[tokio::test]
    async fn a_server_that_is_doubted_or_down_is_no_obstacle() {
        let (one, two) = (Arc::default(), Arc::default());
        let ports = [server(&one), server(&two)];
        let cluster = cluster(&[1, ports[0], ports[1]]);
        cluster.map_anew().await.unwrap();
        let first = cluster.primary(0).unwrap();
        cluster.doubt(&first);
        cluster.map_anew().await.unwrap();
        assert_ne!(cluster.primary(0), Some(first), "another one was asked");
    }

    #[tokio::test]
    async fn a_redirect_to_a_server_that_was_no_primary_corrects_nothing() {
        let asked = Arc::default();
        let cluster = cluster(&[server(&asked)]);
        cluster.map_anew().await.unwrap();
        let primary = cluster.primary(7);
        let other = Place { host: "127.0.0.1".into(), port: 1 };
        cluster.moved(7, &other);
        assert_eq!(cluster.primary(7), primary);
        cluster.state.lock().map.correct(9, &other, Clock::System.now());
        cluster.moved(7, &other);
        assert_eq!((cluster.primary(7), cluster.primary(8)), (Some(other), primary));
    }

    /// Another client, with another login or other certificates, may not fail.
    #[tokio::test]
    async fn a_failure_of_this_client_alone_stays_one() {
        let port = server(&Arc::default());
        let cluster = cluster_at(&format!("redis+cluster://127.0.0.1:1,127.0.0.1:{port}?password_file=/no/such/file"));
        let failure = cluster.map_anew().await.unwrap_err();
        assert!(matches!(failure, Failure::NoLogin(_)), "{failure}");
    }

    #[tokio::test]
    async fn without_a_background_a_connect_fails() {
        let address = Address::parse("redis+cluster://127.0.0.1:1").unwrap();
        let servers = ServerAccess::dialed(&address, None).unwrap().unwrap();
        let cluster = Cluster::new(&address, servers, Clock::System, drop::<Task>, |_| {}).unwrap();
        for _ in 0..2 {
            assert!(cluster.map_anew().await.is_err());
        }
    }
}
