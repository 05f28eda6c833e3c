//! Logins: what a connection logs in with, and when a provider is asked for more.
//!
//! A login stands in the address or in a file, or a *provider* of the program gives it. The file is read at every connect,
//! and all connects that need it meanwhile wait for the same reading.
//!
//! A provider belongs to one set of nodes, whose connections share the login. One task of the background has it called, one
//! call at a time. It is the program's code, so it runs on a thread of its own, named `redlock-login`. States:
//!
//! - *unasked*: no connection has needed a login yet;
//! - *calling*: a call is under way, for at most [`CALL_MOST`]. The login before stays in use meanwhile;
//! - *logged in*: until a part of the login's life is over, for ever if it has no end;
//! - *failed*: the call is repeated after a second, doubling to half a minute. The login before stays in use.
//!
//! A server that rejects the newest login brings the next call forward, to a second after the last one, and to twice
//! the time at each further rejection of the same login. The connect that was rejected tries the login before, if that
//! has not ended, or else waits for the call. Others are not kept waiting: their servers may accept the login.
//!
//! A new login is sent as AUTH on live connections: at once where the background drives them, elsewhere in front of the
//! next request. A connection keeps its old login if the new one is refused.
//!
//! What may interrupt it: the last client of the set goes, which ends the task, at once or after its call; a fork,
//! after which the child has its own set; a connect that is cancelled, which ends no call; a provider that panics,
//! which counts as a failure; the background cannot be started, which counts as one too.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::address::Address;
use crate::credentials::{Login, Provider, ProviderError, Secret};
use crate::protocol::backoff;
use crate::sys::clock::{Clock, Moment};
use crate::sys::followers::Followers;
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::future::notified_until;
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::own_runtime::OwnRuntime;
use crate::sys::random::Random;
use crate::sys::shared_calls::SharedCalls;
use crate::sys::task::Task;
use crate::texts::opaque;

/// Reads of password files.
type Readings = SharedCalls<Arc<Path>, Result<Secret, NoLogin>>;

/// The files that are being read.
static READINGS: PerProcess<Arc<Readings>> = PerProcess::new();

/// The longest call of a provider.
const CALL_MOST: Duration = Duration::from_secs(10);

tokio::task_local! {
    /// The logins whose provider this task calls.
    static CALLING: usize;
}

/// What the connections to one node log in with.
#[derive(Debug)]
pub(crate) enum LoginSource {
    /// A login, or none.
    Fixed(Login),
    File {
        username: Option<Secret>,
        path: Arc<Path>,
    },
    Provider(Arc<Logins>),
}

/// A login for one connection, and its number if it came from a provider.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) login: Login,
    pub(crate) number: u64,
}

/// Something that sends a new login into its connections. Called by the background, outside of every lock.
pub(crate) trait Follower: fmt::Debug + Send + Sync {
    fn log_in(&self);
}

/// The logins that a provider gives to the connections of one set of nodes.
pub(crate) struct Logins {
    provider: Provider,
    clock: Clock,
    random: Random,
    state: Mutex<State>,
    /// The number of the newest login; zero before the first.
    number: AtomicU64,
    /// Notified when a call ends.
    changed: Notify,
    /// Notified when the next call is wanted sooner.
    wanted: Arc<Notify>,
    spawn: Box<dyn Fn(Task) + Send + Sync>,
    /// They send each new login.
    pub(crate) followers: Followers<dyn Follower>,
}

#[derive(Debug, Default)]
struct State {
    login: Option<Login>,
    /// The login before, and its end: servers may accept it when they reject the newest one.
    before: Option<(Numbered, Moment)>,
    /// The end of the newest login.
    ends: Moment,
    /// Whether the task that calls the provider was started.
    started: bool,
    calling: bool,
    /// When the last call began.
    called: Moment,
    /// When the provider is called next.
    next_call: Moment,
    /// Calls that failed since the last login.
    failures: u32,
    failure: Option<ProviderError>,
    /// Whether the next call was brought forward by a rejection.
    wanted: bool,
    /// Rejections of the newest login since a server accepted it.
    rejections: u32,
}

impl LoginSource {
    /// Makes the source for a node. `logins` are those of the client's provider.
    pub(crate) fn of(address: &Address, logins: Option<&Arc<Logins>>) -> Self {
        let username = address.username.clone();
        match (&address.password_file, logins.filter(|_| address.provider.is_some())) {
            (Some(path), _) => Self::File { username, path: Arc::clone(path) },
            (None, Some(logins)) => Self::Provider(Arc::clone(logins)),
            (None, None) => Self::Fixed(Login { username, password: address.password.clone(), lasts: None }),
        }
    }

    /// Makes the source of a login whose password is in a file, or of none.
    pub(crate) fn file(username: Option<Secret>, path: Option<Arc<Path>>) -> Self {
        match path {
            Some(path) => Self::File { username, path },
            None => Self::Fixed(Login { username: None, password: None, lasts: None }),
        }
    }

    /// Returns the login for a connect now. Cancel safe.
    pub(crate) async fn login(&self) -> Result<Numbered, NoLogin> {
        match self {
            Self::Fixed(login) => Ok(Numbered { login: login.clone(), number: 0 }),
            Self::File { username, path } => {
                let password = Some(read(Arc::clone(path)).await?);
                Ok(Numbered { login: Login { username: username.clone(), password, lasts: None }, number: 0 })
            }
            Self::Provider(logins) => logins.current().await,
        }
    }

    /// Returns the logins of a provider, if it is one.
    pub(crate) fn logins(&self) -> Option<&Arc<Logins>> {
        match self {
            Self::Provider(logins) => Some(logins),
            _ => None,
        }
    }
}

/// Reads a password from a file, without one line end at its end.
async fn read(path: Arc<Path>) -> Result<Secret, NoLogin> {
    let readings = READINGS.of(Pid::now(), Arc::default);
    let read = readings.call(Arc::clone(&path), {
        let path = Arc::clone(&path);
        move |running| running.end(password(&path))
    });
    read.await.unwrap_or_else(|| Err(NoLogin::file(&path, "cannot be read: the system gives it no thread")))
}

fn password(path: &Path) -> Result<Secret, NoLogin> {
    let unusable = |reason: &str| NoLogin::file(path, reason);
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => unusable("is not UTF-8"),
        _ => unusable(&format!("cannot be read: {error}")),
    })?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Secret::some(line.strip_suffix('\r').unwrap_or(line)).ok_or_else(|| unusable("is empty"))
}

/// The reason why there is no login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLogin {
    /// It did not come within this time.
    Slow(Duration),
    /// The file with the password cannot be used.
    File(String),
    Provider(ProviderError),
}

impl NoLogin {
    fn file(path: &Path, reason: &str) -> Self {
        Self::File(format!("password_file ({}) {reason}", path.display()))
    }
}

impl fmt::Display for NoLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow(limit) => write!(f, "no login within {limit:?} from its provider or file"),
            Self::File(reason) => f.write_str(reason),
            Self::Provider(error) => error.fmt(f),
        }
    }
}

impl Logins {
    /// Makes the logins of a provider. `spawn` runs a task in the background.
    pub(crate) fn new(
        provider: Provider,
        clock: Clock,
        random: Random,
        spawn: impl Fn(Task) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider,
            clock,
            random,
            spawn: Box::new(spawn),
            state: Mutex::default(),
            number: AtomicU64::new(0),
            changed: Notify::new(),
            wanted: Arc::default(),
            followers: Followers::default(),
        })
    }

    /// Returns the number of the newest login.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Returns the newest login, if there is one.
    pub(crate) fn newest(&self) -> Option<Numbered> {
        let state = self.state.lock();
        Some(Numbered { login: state.login.clone()?, number: self.number() })
    }

    /// Returns the newest login. Waits for the first one. Cancel safe.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<Numbered, NoLogin> {
        self.start();
        notified_until(&self.changed, || {
            let state = self.state.lock();
            match (&state.login, &state.failure) {
                (Some(login), _) => Some(Ok(Numbered { login: login.clone(), number: self.number() })),
                (None, _) if state.calling => None,
                (None, Some(error)) => Some(Err(NoLogin::Provider(error.clone()))),
                (None, None) => unreachable!("a call that ended left a login or a failure"),
            }
        })
        .await
    }

    /// Returns a login to try after a server rejected the one with this number: the one before, or a newer one, which
    /// it waits for while the provider is called. Fails with the provider's failure, if it is due to one. Cancel safe.
    pub(crate) async fn after_rejection(&self, number: u64) -> Result<Option<Numbered>, NoLogin> {
        if let Some(before) = self.rejected(number) {
            return Ok(Some(before));
        }
        notified_until(&self.changed, || {
            let state = self.state.lock();
            if self.number() > number {
                return Some(Ok(state.login.clone().map(|login| Numbered { login, number: self.number() })));
            }
            if state.wanted || state.calling {
                return None;
            }
            Some(state.failure.clone().map_or(Ok(None), |error| Err(NoLogin::Provider(error))))
        })
        .await
    }

    /// Records that a server rejected the login with this number, which brings the next call forward. Returns the login
    /// before, if it has not ended.
    pub(crate) fn rejected(&self, number: u64) -> Option<Numbered> {
        let mut state = self.state.lock();
        if number != self.number() {
            return None;
        }
        if !state.wanted {
            let pause = backoff::provider(state.rejections, self.random.unit());
            state.rejections = state.rejections.saturating_add(1);
            state.wanted = true;
            state.next_call = state.next_call.min(state.called.after(pause));
            self.wanted.notify_one();
        }
        let now = self.clock.now();
        state.before.as_ref().filter(|(_, ends)| now < *ends).map(|(before, _)| before.clone())
    }

    /// Records that a server accepted the login with this number.
    pub(crate) fn accepted(&self, number: u64) {
        if number == self.number() {
            self.state.lock().rejections = 0;
        }
    }

    /// Returns whether the current task is a call of this provider.
    pub(crate) fn is_calling_task(&self) -> bool {
        CALLING.try_with(|calling| *calling == std::ptr::from_ref(self).addr()).unwrap_or(false)
    }

    /// Starts the task that calls the provider, unless it runs.
    fn start(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.started {
                return;
            }
            (state.started, state.calling) = (true, true);
        }
        let keeper = Keeper(Arc::downgrade(self));
        (self.spawn)(Box::pin(keeper.run()));
    }

    /// Calls the provider once, and records what it returned. Returns what is to be logged.
    async fn call(&self, own: &io::Result<OwnRuntime>) -> Option<ProviderError> {
        {
            let mut state = self.state.lock();
            (state.calling, state.called) = (true, self.clock.now());
        }
        let began = self.clock.now();
        let failed = |why: &str| Err(ProviderError::without_source(why));
        let result = match own {
            Ok(own) => {
                let provider = self.provider.clone();
                let call = async move { provider.call().await };
                let call = pin!(own.run(CALLING.scope(std::ptr::from_ref(self).addr(), call)));
                let result = self.clock.timeout(CALL_MOST, call).await;
                result.map_or_else(
                    || failed("no answer within 10 s"),
                    |ended| ended.unwrap_or_else(|| failed("it panicked")),
                )
            }
            Err(_) => failed("the system gives it no thread"),
        };
        let recorded = self.record(began, result);
        self.changed.notify_waiters();
        if let Ok(true) = recorded {
            self.followers.all().iter().for_each(|follower| follower.log_in());
        }
        recorded.err()
    }

    /// Records what a call returned. Returns whether that is a new login, or a failure to be logged.
    fn record(&self, began: Moment, result: Result<Login, ProviderError>) -> Result<bool, ProviderError> {
        let (now, unit) = (self.clock.now(), self.random.unit());
        let mut state = self.state.lock();
        (state.calling, state.wanted) = (false, false);
        let login = match result {
            Ok(Login { username: Some(_), password: None, .. }) => {
                Err(ProviderError::without_source("it returned a user without a password"))
            }
            result => result,
        };
        match login {
            Ok(login) => {
                state.next_call =
                    login.lasts.map_or(Moment::NEVER, |lasts| backoff::refresh(began, lasts, unit).max(now));
                (state.failures, state.failure) = (0, None);
                let same = |old: &Login| (&old.username, &old.password) == (&login.username, &login.password);
                let is_new = !state.login.as_ref().is_some_and(same);
                let ends = login.lasts.map_or(Moment::NEVER, |lasts| began.after(lasts));
                let before = std::mem::replace(&mut state.ends, ends);
                let old = state.login.replace(login);
                if !is_new {
                    return Ok(false);
                }
                let number = self.number();
                state.before = old.map(|login| (Numbered { login, number }, before));
                state.rejections = 0;
                self.number.store(number + 1, Ordering::Release);
                Ok(true)
            }
            Err(error) => {
                state.next_call = now.after(backoff::provider(state.failures, unit));
                state.failures = state.failures.saturating_add(1);
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl Drop for Logins {
    /// Wakes the task that calls the provider, which then ends.
    fn drop(&mut self) {
        self.wanted.notify_one();
    }
}

opaque!(Logins);

/// The task that calls a provider for as long as its logins exist.
struct Keeper(Weak<Logins>);

impl Keeper {
    async fn run(self) {
        let mut own = OwnRuntime::start("redlock-login");
        loop {
            let Some(logins) = self.0.upgrade() else { return };
            if own.is_err() {
                own = OwnRuntime::start("redlock-login");
            }
            if let Some(error) = logins.call(&own).await {
                log!(LOGIN_FAILED, %error, "the provider gave no login and is called again; the one before, if there was one, stays in use");
            }
            let (clock, wanted) = (logins.clock.clone(), Arc::clone(&logins.wanted));
            let mut next_call = logins.state.lock().next_call;
            drop(logins);
            // This wait holds no reference, so that the logins end with the last client.
            while clock.timeout_at(next_call, pin!(wanted.notified())).await.is_some() {
                let Some(logins) = self.0.upgrade() else { return };
                next_call = logins.state.lock().next_call;
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The background cannot be started, or has ended.
        if let Some(logins) = self.0.upgrade() {
            let mut state = logins.state.lock();
            (state.started, state.calling, state.wanted) = (false, false, false);
            state.failure = Some(ProviderError::without_source("the redlock background thread does not run"));
            drop(state);
            logins.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::task::JoinHandle;

    use super::*;
    use crate::credentials::Credentials;

    const LONG: Duration = Duration::from_secs(60);

    type Tasks = Arc<Mutex<Vec<JoinHandle<()>>>>;

    /// Logins of a provider, and the tasks that they started.
    fn logins(provider: impl Credentials) -> (Arc<Logins>, Tasks) {
        let tasks = Tasks::default();
        let started = Arc::clone(&tasks);
        let spawn = move |task| started.lock().push(tokio::spawn(task));
        (Logins::new(Provider::new(provider), Clock::System, Random::System, spawn), tasks)
    }

    /// Logins that no provider gives.
    fn given(given: &[(&str, Duration)]) -> Arc<Logins> {
        let (logins, _) = logins(std::future::pending::<Result<Login, io::Error>>);
        for (password, life) in given {
            drop(record(&logins, Ok(Login::new("app", password).lasting(*life))));
        }
        logins
    }

    fn record(logins: &Logins, result: Result<Login, ProviderError>) -> Option<ProviderError> {
        let recorded = logins.record(Clock::System.now(), result);
        logins.changed.notify_waiters();
        recorded.err()
    }

    fn password(login: &Numbered) -> (u64, &str) {
        (login.number, login.login.password.as_ref().unwrap().expose())
    }

    #[tokio::test]
    async fn the_task_ends_with_its_logins() {
        let (logins, tasks) = logins(async || Ok::<_, io::Error>(Login::new("app", "a")));
        assert_eq!(password(&logins.current().await.unwrap()), (1, "a"));
        let task = tasks.lock().pop().unwrap();
        assert!(!task.is_finished() && tasks.lock().is_empty());
        drop(logins);
        Clock::System.timeout(harness::LIMIT, pin!(task)).await.expect("it sleeps for ever otherwise").unwrap();
    }

    #[tokio::test]
    async fn a_login_that_is_rejected_again_is_asked_for_less_often() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let (logins, _tasks) = logins(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, io::Error>(Login::new("app", "a")))
        });
        let first = logins.current().await.unwrap();
        // A clock that is read in the function would count the way there, too.
        let mut called = vec![logins.state.lock().called];
        for _ in 0..3 {
            assert_eq!(logins.after_rejection(first.number).await.unwrap().map(|login| login.number), None);
            called.push(logins.state.lock().called);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 4);
        let gaps: Vec<_> = called.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{gaps:?}");
        assert!(gaps[2] >= Duration::from_secs(2), "{gaps:?}");
        logins.accepted(first.number);
        assert_eq!(logins.state.lock().rejections, 0);
    }

    #[tokio::test]
    async fn the_login_before_is_tried_until_its_end() {
        let logins = given(&[("a", LONG), ("b", LONG)]);
        assert_eq!(password(&logins.current().await.unwrap()), (2, "b"));
        assert_eq!(password(&logins.after_rejection(2).await.unwrap().unwrap()), (1, "a"));
        assert_eq!(given(&[("a", Duration::ZERO), ("b", LONG)]).rejected(2).map(|login| login.number), None);
        assert_eq!(logins.rejected(1).map(|login| login.number), None, "the newest one is another");
    }

    #[tokio::test]
    async fn a_rejection_keeps_nobody_else_waiting_and_ends_with_the_call() {
        let logins = given(&[("a", LONG)]);
        let rejected = Arc::clone(&logins);
        let waits = tokio::spawn(async move { rejected.after_rejection(1).await.map(|login| login.unwrap().number) });
        while !logins.state.lock().wanted {
            tokio::task::yield_now().await;
        }
        assert_eq!(password(&logins.current().await.unwrap()), (1, "a"));
        drop(record(&logins, Ok(Login::new("app", "b"))));
        assert_eq!(waits.await.unwrap(), Ok(2));
        let rejected = Arc::clone(&logins);
        let waits = tokio::spawn(async move { rejected.after_rejection(2).await.map(|login| login.is_some()) });
        // The first login has not ended.
        assert_eq!(waits.await.unwrap(), Ok(true));
    }

    #[tokio::test]
    async fn a_failed_call_after_a_rejection_is_the_reason() {
        let logins = given(&[("a", LONG)]);
        let rejected = Arc::clone(&logins);
        let waits = tokio::spawn(async move { rejected.after_rejection(1).await.map(|login| login.is_some()) });
        while !logins.state.lock().wanted {
            tokio::task::yield_now().await;
        }
        let failure = ProviderError::without_source("it panicked");
        assert_eq!(record(&logins, Err(failure.clone())), Some(failure.clone()));
        assert_eq!(waits.await.unwrap(), Err(NoLogin::Provider(failure)));
        assert_eq!(password(&logins.current().await.unwrap()), (1, "a"), "it stays in use");
    }

    #[tokio::test]
    async fn a_user_without_a_password_is_a_failed_call() {
        let logins = given(&[("a", LONG)]);
        assert!(record(&logins, Ok(Login::new("app", ""))).is_some());
        assert_eq!(logins.number(), 1);
        assert!(record(&logins, Ok(Login::new("", ""))).is_none(), "the default user may need none");
        assert_eq!(logins.number(), 2);
    }
}
