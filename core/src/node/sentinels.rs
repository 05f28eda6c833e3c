//! Sentinels: which server is a node's primary now.
//!
//! A task of the background, the *inquiry*, asks all sentinels of a group at once. Its states:
//!
//! - *idle*: no request was made to the node for [`IDLE`], and no lock is held there. There is no task;
//! - *asking*: for at most [`ANSWER_MOST`]. The answers decide as in [`protocol::sentinel`](crate::protocol::sentinel);
//! - *resting*: for a second, or until a connect needs an answer, but for [`FRESH`] at least.
//!
//! Every connect to the node takes an answer that is no older than [`FRESH`], and waits for one otherwise. If the
//! sentinels do not decide, the primary in use stays. When another primary is taken, the followers are told before any
//! connect learns of it: the server before may take writes for some seconds more.
//!
//! What may interrupt it: the node is not used any more, which ends the inquiry; the next request starts another one. A
//! fork, after which the child has its own. A connect that is cancelled, which ends no asking. A sentinel that hangs up,
//! or does not answer for [`ONE_MOST`], which is dialed again then. The background cannot be started, or ends: a connect goes on
//! with the primary in use, or fails at once.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::info::{fields_in, owned_fields};
use super::pipeline::Pipeline;
use super::refusal::{refusal, unrefused};
use super::scripts::text;
use super::setup::{authentication, command_of};
use super::simulated::answers::SimulatedSentinels;
use crate::address::{Address, Target, shown};
use crate::error::Error;
use crate::protocol::diagnosis::sentinels::{GroupFacts, SentinelFacts};
use crate::protocol::place::Place;
use crate::protocol::sentinel::{Primary, Told, primary};
use crate::sys::clock::{Clock, Moment};
use crate::sys::followers::Followers;
use crate::sys::future::{join_all, notified_until};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::task::{Task, spawn};
use crate::texts::opaque;
use crate::transport::dial::Dialer;
use crate::transport::failure::Failure;
use crate::transport::logins::LoginSource;
use crate::transport::progress::{Phase, Progress};
use crate::transport::tls::Tls;

/// The time for the answers of all sentinels. A later answer counts in the next asking.
const ANSWER_MOST: Duration = Duration::from_millis(300);

/// The time for one sentinel's answer, and for the connection if there is none yet.
const ONE_MOST: Duration = Duration::from_secs(5);

/// How long an answer serves other connects.
const FRESH: Duration = Duration::from_millis(200);

/// The pause between two askings: an old primary that was cut off takes writes for seconds after a failover.
const REST: Duration = Duration::from_secs(1);

/// How long they are asked after the last request to the node.
const IDLE: Duration = Duration::from_secs(60);

/// Something that uses the primary. Called by the background, outside of every lock.
pub(crate) trait Follower: fmt::Debug + Send + Sync {
    /// Renounces the connections to the primary before, of the nodes that `sentinels` name.
    fn moved(self: Arc<Self>, sentinels: &Arc<Sentinels>);

    /// Whether it holds a lock on a primary.
    fn holds_locks(&self) -> bool;
}

/// A group of sentinels, and the name of a primary. All clients of the process that list them share one.
pub(crate) struct Sentinels {
    /// The node that they stand for, as it is listed, without a login.
    node: String,
    master: String,
    /// Where each of them listens.
    listed: Vec<String>,
    access: SentinelAccess,
    clock: Clock,
    spawn: Box<dyn Fn(Task) + Send + Sync>,
    /// How far the asking of each of them is.
    progress: Vec<Progress>,
    state: Mutex<State>,
    is_asking: AtomicBool,
    /// When the last request was made to the node, in nanoseconds.
    used: AtomicU64,
    /// Notified when an asking ends.
    changed: Notify,
    /// Notified when the next asking is wanted sooner.
    wanted: Notify,
    followers: Followers<dyn Follower>,
}

/// The way to ask sentinels.
pub(crate) enum SentinelAccess {
    /// Real ones.
    Dialed { dialers: Vec<Dialer>, login: LoginSource },
    /// Those of a simulation.
    Simulated(Arc<dyn SimulatedSentinels>),
}

impl SentinelAccess {
    /// Returns the way to the sentinels that `address` lists; `None` if it lists none.
    pub(crate) fn dialed(address: &Address) -> Result<Option<Self>, Error> {
        let Target::Sentinel { sentinels, tls, .. } = &address.target else { return Ok(None) };
        let security = address.tls().map(|options| Tls::new(options, &sentinels[0].0)).transpose()?;
        let dialer = |(host, port): &(String, u16)| {
            let security = security.as_ref().map(|security| security.to(host)).transpose()?.map(Arc::new);
            Ok(Dialer::new(Target::Tcp { host: host.clone(), port: *port, tls: *tls }, security, address.keepalive))
        };
        let dialers = sentinels.iter().map(dialer).collect::<Result<_, Error>>()?;
        let login = LoginSource::file(address.sentinel_user.clone(), address.sentinel_password_file.clone());
        Ok(Some(Self::Dialed { dialers, login }))
    }
}

#[derive(Debug, Default)]
struct State {
    primary: Option<Primary>,
    /// The number of askings so far, and when the last one ended.
    askings: u64,
    asked: Moment,
    /// Why there is no primary yet.
    failure: Option<Failure>,
    /// When another server was first told to be primary, the last time.
    moved: Option<Moment>,
}

impl Sentinels {
    /// Makes the sentinels that `address` lists, if it lists any, over this `access`. `spawn` runs a task
    /// in the background.
    pub(crate) fn new(
        address: &Address,
        access: SentinelAccess,
        clock: Clock,
        spawn: impl Fn(Task) + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let Target::Sentinel { sentinels, master, .. } = &address.target else { return None };
        Some(Arc::new(Self {
            node: address.target.to_string(),
            master: master.clone(),
            listed: sentinels.iter().map(|(host, port)| shown(host, *port)).collect(),
            access,
            clock,
            spawn: Box::new(spawn),
            progress: sentinels.iter().map(|_| Progress::default()).collect(),
            state: Mutex::default(),
            is_asking: AtomicBool::new(false),
            used: AtomicU64::new(0),
            changed: Notify::new(),
            wanted: Notify::new(),
            followers: Followers::default(),
        }))
    }

    /// Tells `follower` of every other primary from now on. Returns when the last one came that this process knows of.
    pub(crate) fn follow(&self, follower: Weak<dyn Follower>) -> Option<Moment> {
        self.followers.add(follower);
        self.state.lock().moved
    }

    /// Records a request to the node, so that the sentinels are asked from now on.
    pub(crate) fn used(self: &Arc<Self>) {
        self.used.store(self.clock.now().nanos(), Ordering::SeqCst);
        if !self.is_asking.load(Ordering::SeqCst) {
            self.start();
        }
    }

    /// Returns the primary by an answer that is no older than [`FRESH`]. Cancel safe.
    pub(crate) async fn primary(self: &Arc<Self>) -> Result<Place, Failure> {
        let seen = {
            let state = self.state.lock();
            if let Some(primary) = state.primary.as_ref().filter(|_| self.clock.now() < state.asked.after(FRESH)) {
                return Ok(primary.place.clone());
            }
            state.askings
        };
        self.used();
        self.wanted.notify_one();
        notified_until(&self.changed, || {
            let state = self.state.lock();
            if state.askings == seen {
                return None;
            }
            let unknown = || Failure::Unreachable("its sentinels were not asked".into());
            let failure = || state.failure.clone().unwrap_or_else(unknown);
            Some(state.primary.as_ref().map(|primary| primary.place.clone()).ok_or_else(failure))
        })
        .await
    }

    /// Makes the next connect ask, because the server that they named is not a primary.
    pub(crate) fn doubt(&self) {
        self.state.lock().asked = Moment::default();
    }

    fn start(self: &Arc<Self>) {
        if !self.is_asking.swap(true, Ordering::SeqCst) {
            let lines = self.listed.iter().map(|_| None).collect();
            let pending = self.listed.iter().map(|_| None).collect();
            let inquiry = Inquiry { sentinels: Arc::clone(self), lines, pending, is_over: false };
            (self.spawn)(Box::pin(inquiry.run()));
        }
    }

    /// Whether the node was used a short time ago, or holds locks.
    fn is_used(&self) -> bool {
        let used = Moment::from_nanos(self.used.load(Ordering::SeqCst));
        if self.clock.now() < used.after(IDLE) {
            return true;
        }
        self.followers.all().iter().any(|follower| follower.holds_locks())
    }

    /// Records what the sentinels told, and tells the followers of another primary.
    fn record(self: &Arc<Self>, answers: &[Result<Told, Failure>]) {
        let told: Vec<_> = answers.iter().map(|answer| answer.clone().unwrap_or(Told::Silent)).collect();
        // Only this task changes the primary.
        let before = self.state.lock().primary.clone();
        let now = primary(&told, before.as_ref()).or_else(|| before.clone());
        let places = before.zip(now.clone()).map(|(before, now)| (before.place, now.place));
        let moved = places.filter(|(from, to)| from != to);
        if moved.is_some() {
            self.state.lock().moved = Some(self.clock.now());
            self.followers.all().into_iter().for_each(|follower| follower.moved(self));
        }
        {
            let mut state = self.state.lock();
            state.askings += 1;
            state.asked = self.clock.now();
            state.failure = if now.is_none() { Some(self.failure(answers)) } else { None };
            state.primary = now;
        }
        self.changed.notify_waiters();
        if let Some((from, to)) = moved {
            log!(FAILOVER, node = %self.node, %from, %to,
                "failover: another server is primary, and may lack the last grants"
            );
        }
    }

    /// Says why the sentinels name no primary.
    fn failure(&self, answers: &[Result<Told, Failure>]) -> Failure {
        let said = self.listed.iter().zip(answers).map(|(listed, answer)| match answer {
            Ok(Told::Primary { place, .. }) => format!("{listed} names {}", shown(&place.host, place.port)),
            Ok(_) => format!("{listed} monitors no such master"),
            Err(failure) => format!("{listed} {failure}"),
        });
        let said: Vec<_> = said.collect();
        Failure::Unreachable(format!("no primary of {} is known: {}", self.master, said.join(", ")).into())
    }
}

opaque!(Sentinels);

/// The answers of one sentinel, and the connection to keep.
type One = Result<(Option<Pipeline>, Answers), Failure>;

/// The answers of one sentinel: what it tells, and its answer to SENTINEL MASTER.
type Answers = (Told, Value);

/// The task that asks, with its connections.
struct Inquiry {
    sentinels: Arc<Sentinels>,
    lines: Vec<Option<Pipeline>>,
    /// Those that are asked.
    pending: Vec<Option<oneshot::Receiver<One>>>,
    /// Whether it has ended by itself.
    is_over: bool,
}

impl Inquiry {
    async fn run(mut self) {
        let sentinels = Arc::clone(&self.sentinels);
        loop {
            while sentinels.is_used() {
                let answers = self.ask().await;
                sentinels.record(&answers);
                let clock = &sentinels.clock;
                let asked = clock.now();
                clock.timeout_at(asked.after(REST), pin!(sentinels.wanted.notified())).await;
                clock.sleep_until(asked.after(FRESH)).await;
            }
            sentinels.is_asking.store(false, Ordering::SeqCst);
            // A request may have come after the last look, and have found an inquiry.
            if !sentinels.is_used() || sentinels.is_asking.swap(true, Ordering::SeqCst) {
                self.is_over = true;
                return;
            }
        }
    }

    /// Asks all sentinels at once, except those that have not answered before.
    async fn ask(&mut self) -> Vec<Result<Told, Failure>> {
        let Self { sentinels, lines, pending, .. } = self;
        for (index, pending) in pending.iter_mut().enumerate().filter(|(_, pending)| pending.is_none()) {
            let (sender, receiver) = oneshot::channel();
            let (sentinels, line) = (Arc::clone(sentinels), lines[index].take());
            drop(spawn(&Handle::current(), async move {
                let progress = &sentinels.progress[index];
                let one = sentinels.clock.timeout(ONE_MOST, pin!(sentinels.ask_one(index, line, progress))).await;
                drop(sender.send(one.unwrap_or_else(|| Err(Failure::unanswered(progress.phase(), ONE_MOST)))));
            }));
            *pending = Some(receiver);
        }
        let mut answers: Vec<Option<_>> = pending.iter().map(|_| None).collect();
        let all = poll_fn(|cx| {
            for (index, slot) in pending.iter_mut().enumerate() {
                if let Some(Poll::Ready(one)) = slot.as_mut().map(|receiver| Pin::new(receiver).poll(cx)) {
                    *slot = None;
                    answers[index] = Some(one.unwrap_or(Err(Failure::Closed)).map(|(line, (told, _))| {
                        lines[index] = line;
                        told
                    }));
                }
            }
            if pending.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        });
        sentinels.clock.timeout(ANSWER_MOST, pin!(all)).await;
        let silent = |progress: &Progress| Err(Failure::unanswered(progress.phase(), ANSWER_MOST));
        let answers = answers.into_iter().zip(&sentinels.progress);
        answers.map(|(answer, progress)| answer.unwrap_or_else(|| silent(progress))).collect()
    }
}

impl Drop for Inquiry {
    /// If the background could not be started, or ends, connects that wait go on without an answer.
    fn drop(&mut self) {
        if !self.is_over {
            self.sentinels.is_asking.store(false, Ordering::SeqCst);
            self.sentinels.state.lock().askings += 1;
            self.sentinels.changed.notify_waiters();
        }
    }
}

impl Sentinels {
    /// Asks one sentinel, over `line` if that still works. Returns the connection to keep.
    async fn ask_one(&self, index: usize, line: Option<Pipeline>, progress: &Progress) -> One {
        progress.enter(Phase::SetUp);
        let (dialers, login) = match &self.access {
            SentinelAccess::Dialed { dialers, login } => (dialers, login),
            SentinelAccess::Simulated(sentinels) => {
                return sentinels.told(index).await.map(|told| (None, (told, Value::Nil)));
            }
        };
        if let Some(line) = line
            && let Ok(answers) = question(&line, None, &self.master).await
        {
            return Ok((Some(line), answers));
        }
        progress.enter(Phase::Login);
        let login = login.login().await.map_err(Failure::NoLogin)?;
        let stream = dialers[index].dial(&self.clock, progress).await?;
        progress.enter(Phase::SetUp);
        let line = Pipeline::open(&Handle::current(), stream, false, Box::new(|_| {}));
        let answers = question(&line, authentication(&login.login), &self.master).await?;
        Ok((Some(line), answers))
    }

    /// Asks each sentinel for a diagnosis, on a connection of its own and within `limit`. Cancel safe.
    pub(crate) async fn probe(&self, limit: Duration) -> GroupFacts {
        let probe = |(index, listed): (usize, &String)| {
            let at = listed.clone();
            async move {
                let progress = Progress::default();
                let one = self.clock.timeout(limit, pin!(self.ask_one(index, None, &progress))).await;
                let one = one.unwrap_or_else(|| Err(Failure::unanswered(progress.phase(), limit)));
                let told = one.map(|(_, (told, whole))| (told, refusal(whole).map(|whole| owned_fields(&whole))));
                SentinelFacts { at, told: told.map_err(|failure| failure.to_string()) }
            }
        };
        let sentinels = join_all(self.listed.iter().enumerate().map(probe).collect()).await;
        GroupFacts { master: self.master.clone(), sentinels, in_use: self.state.lock().primary.clone() }
    }
}

/// Asks for the primary's place, and in the same write for all that is known of it, which some users may not ask for.
///
/// While a failover ends, the sentinel that leads it tells the new epoch with the former place in the second answer. The
/// first one has the new place.
async fn question(line: &Pipeline, login: Option<Cmd>, master: &str) -> Result<Answers, Failure> {
    let has_login = login.is_some();
    let ask = |subcommand: &str| command_of(&["SENTINEL", subcommand, master]);
    let commands: Vec<_> = login.into_iter().chain([ask("GET-MASTER-ADDR-BY-NAME"), ask("MASTER")]).collect();
    let mut answers = join_all(line.ask_all(&commands)).await.into_iter();
    let mut next = || answers.next().unwrap_or(Err(Failure::Closed));
    if has_login {
        unrefused(next())?;
    }
    let (place, whole) = (unrefused(next())?, next()?);
    let told = match place_in(&place)? {
        Some(place) => Told::Primary { place, epoch: epoch_in(&whole) },
        None => Told::Unmonitored,
    };
    Ok((told, whole))
}

/// Reads the answer to SENTINEL GET-MASTER-ADDR-BY-NAME; `None` if no such primary is monitored.
fn place_in(answer: &Value) -> Result<Option<Place>, Failure> {
    let Value::Array(items) = answer else {
        return if *answer == Value::Nil { Ok(None) } else { Err(Failure::UnexpectedReply) };
    };
    let place = match items.as_slice() {
        [host, port] => text(host).zip(text(port).and_then(|port| port.parse().ok())),
        _ => None,
    };
    // A host that a sentinel cannot resolve is empty.
    let place = place.filter(|(host, port)| !host.is_empty() && *port != 0);
    place.map(|(host, port)| Some(Place { host: host.to_owned(), port })).ok_or(Failure::UnexpectedReply)
}

/// Reads the epoch in the answer to SENTINEL MASTER; `None` if that was refused.
fn epoch_in(answer: &Value) -> Option<u64> {
    fields_in(answer).get("config-epoch")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use harness::{FakeSentinel, MASTER};

    use super::*;

    #[derive(Debug, Default)]
    struct User(AtomicBool);

    impl Follower for User {
        fn moved(self: Arc<Self>, _: &Arc<Sentinels>) {}

        fn holds_locks(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn sentinels(listed: &FakeSentinel) -> Arc<Sentinels> {
        let url = format!("redis+sentinel://127.0.0.1:{}/{MASTER}", listed.port());
        let runtime = Handle::current();
        let spawn = move |task| drop(runtime.spawn(task));
        let address = Address::parse(&url).unwrap();
        let access = SentinelAccess::dialed(&address).unwrap().unwrap();
        Sentinels::new(&address, access, Clock::System, spawn).unwrap()
    }

    #[tokio::test]
    async fn they_are_asked_until_a_minute_after_the_last_use() {
        let listed = FakeSentinel::start();
        listed.tells(6379, 1);
        let (sentinels, user) = (sentinels(&listed), Arc::new(User::default()));
        sentinels.follow(Arc::downgrade(&user) as Weak<dyn Follower>);
        assert_eq!(sentinels.primary().await.unwrap().port, 6379);
        let is_asking = || sentinels.is_asking.load(Ordering::SeqCst);
        assert!(is_asking());
        user.0.store(true, Ordering::SeqCst);
        let long_ago = sentinels.clock.now().nanos() - 61_000_000_000;
        sentinels.used.store(long_ago, Ordering::SeqCst);
        let asked = listed.asked();
        while listed.asked() == asked {
            Clock::System.sleep(FRESH).await;
        }
        assert!(is_asking(), "a lock is held");
        user.0.store(false, Ordering::SeqCst);
        while is_asking() {
            Clock::System.sleep(FRESH).await;
        }
        sentinels.used();
        assert!(is_asking(), "a request on an old connection is a use");
        sentinels.used.store(long_ago, Ordering::SeqCst);
        while is_asking() {
            Clock::System.sleep(FRESH).await;
        }
        let asked = listed.asked();
        assert_eq!(sentinels.primary().await.unwrap().port, 6379);
        assert!(listed.asked() > asked, "whoever connects asks");
    }

    #[tokio::test]
    async fn without_a_background_a_connect_fails() {
        let url = format!("redis+sentinel://127.0.0.1:1/{MASTER}");
        let address = Address::parse(&url).unwrap();
        let access = SentinelAccess::dialed(&address).unwrap().unwrap();
        let sentinels = Sentinels::new(&address, access, Clock::System, drop::<Task>).unwrap();
        for _ in 0..2 {
            assert!(sentinels.primary().await.is_err());
        }
    }
}
