//! A lock by name, with its options: acquire it, try once, or run a body while it is held.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire;
use crate::api::guard::Guard;
use crate::api::inspect;
use crate::api::session::Session;
use crate::error::{Error, ErrorKind};
use crate::options::{Options, Protocol};
use crate::process::context::{LockContext, Spec};
use crate::protocol::shape::Shape;
use crate::sys::fork::Pid;
use crate::sys::future::unless;

/// A lock of one name, of several, or of one of the permits of a semaphore. It can be acquired any number of times. Each
/// acquisition is a separate [`Guard`], and two guards of one name exclude each other, even in one process, unless both
/// are [`shared`](Lock::shared).
///
/// Awaiting the lock itself calls [`Lock::acquire`].
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// use redlock::{ErrorKind, Redlock};
/// use std::time::Duration;
///
/// let redlock = Redlock::new("memory://lock-example")?;
/// let guard = redlock.lock("job").ttl(Duration::from_secs(5)).acquire().await?;
///
/// // Held: a second one does not get it.
/// assert!(redlock.lock("job").try_acquire().await?.is_none());
/// let error = redlock.lock("job").timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Timeout);
///
/// guard.release().await?;
/// assert!(redlock.lock("job").try_acquire().await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct Lock<Kind = Named> {
    session: Arc<Session>,
    shape: Shape,
    options: Options,
    kind: PhantomData<Kind>,
}

/// The kind of a lock of one name, which can be made [`shared`](Lock::shared).
#[derive(Clone, Debug)]
pub enum Named {}

/// The kind of every other lock: of several names, of a semaphore, of a detached lock, and of one that is shared.
///
/// A function that takes any lock has a parameter for the kind, `fn run<Kind>(lock: &Lock<Kind>)`. A list of different
/// ones is a list of `Lock<Fixed>`, and `into()` makes that of a lock of one name.
#[derive(Clone, Debug)]
pub enum Fixed {}

impl Lock {
    /// Makes the lock shared: many *readers* may have it at once, but none of them together with a holder of the lock that
    /// is not shared, the *writer*.
    ///
    /// The writer is the ordinary lock of the same name, also that of a program that knows nothing of sharing, or of
    /// another library. While a writer waits, no new reader gets the lock, so readers cannot starve it. Each reader has a
    /// ttl of its own, and a fence that is larger than those of all writers before it; two readers may have the same. A
    /// reader cannot become a writer: acquire the other lock after a release.
    ///
    /// The acquire fails with `invalid_argument` with `at_least`. Only a lock of one name can be shared:
    ///
    /// ```compile_fail,E0599
    /// # let redlock = redlock::Redlock::new("memory://shared-example")?;
    /// redlock.semaphore("pool", 3).shared();
    /// # Ok::<(), redlock::Error>(())
    /// ```
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://shared-example")?;
    /// let (reader, other) = (redlock.lock("page").shared().await?, redlock.lock("page").shared().await?);
    /// assert!(redlock.lock("page").try_acquire().await?.is_none());
    /// reader.release().await?;
    /// other.release().await?;
    ///
    /// let writer = redlock.lock("page").await?;
    /// assert!(redlock.lock("page").shared().try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(self) -> Lock<Fixed> {
        self.sharing()
    }
}

impl<Kind> Lock<Kind> {
    pub(crate) fn new(session: Arc<Session>, shape: Shape) -> Self {
        Self { session, shape, options: Options::default(), kind: PhantomData }
    }

    pub(crate) fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    crate::api::setters::option_setters!();

    /// Makes the lock shared, of whatever kind it is; what cannot be is refused by the acquire. Hidden: for the bindings.
    #[doc(hidden)]
    pub fn sharing(self) -> Lock<Fixed> {
        let lock = self.fixed();
        Lock { shape: lock.shape.shared(), ..lock }
    }

    /// Returns this lock without its kind.
    fn fixed(self) -> Lock<Fixed> {
        let Self { session, shape, options, kind: _ } = self;
        Lock { session, shape, options, kind: PhantomData }
    }

    /// Returns a copy without its kind.
    pub(crate) fn copied(&self) -> Lock<Fixed> {
        let Self { session, shape, options, kind: _ } = self;
        Lock { session: Arc::clone(session), shape: shape.clone(), options: options.clone(), kind: PhantomData }
    }

    /// Returns the lock to acquire anew, of one that attaches.
    pub(crate) fn anew(&self) -> Lock<Fixed> {
        Lock { shape: self.shape.anew(), ..self.copied() }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns its options, and those of its client where it has none.
    pub(crate) fn options_in_force(&self) -> Options {
        self.options.or(&self.session.options)
    }

    /// Returns the checked name and options.
    pub(crate) fn spec(&self, pid: Pid) -> Result<Arc<Spec>, Error> {
        self.session.spec(pid, &self.shape, &self.options)
    }

    /// Acquires the lock, and waits for it until the timeout.
    ///
    /// The first try runs on the current tokio runtime, which needs its I/O and time drivers. The background does the
    /// waiting. Without a tokio runtime, the whole call runs in the background.
    ///
    /// A guard's fence is larger than every earlier fence of this name. The crate's documentation states the
    /// assumptions behind fencing and exclusion.
    ///
    /// # Errors
    ///
    /// - `timeout`: others held the lock until the timeout was over, or that was too short for an answer of nodes that
    ///   answer other calls.
    /// - `unavailable`: no quorum of nodes could be asked or would answer until the timeout. Without a timeout, the
    ///   limit is 10 s after the first attempt. The time spent waiting for nodes that restarted and do not count yet is
    ///   not part of the 10 s.
    /// - `closed`: the client is closed, or redlock is [shut down](crate::shutdown).
    /// - `forbidden`: nodes that refuse the credentials or rights rule out a quorum.
    /// - `invalid_argument`: a wrong name or option, or too many addresses of the same server.
    ///
    /// With a timeout of zero, the call takes at most the client's `connect_timeout` plus twice `node_timeout`; for a
    /// semaphore plus five times `node_timeout`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no key behind. The background releases everything that the call has sent, even if the
    /// answer comes later.
    ///
    /// # Examples
    ///
    /// The call does not borrow the lock, so it can be spawned, or raced with another one:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://acquire-example")?;
    /// # let stopped = std::future::pending::<()>();
    /// tokio::select! {
    ///     guard = redlock.lock("job").ttl(Duration::from_secs(30)).acquire() => guard?.release().await?,
    ///     () = stopped => println!("not acquired, and nothing is left behind"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<Kind> {
        self.acquire_in(Protocol::Plain)
    }

    pub(crate) fn acquire_in(
        &self,
        protocol: Protocol,
    ) -> impl Future<Output = Result<Guard, Error>> + Send + use<Kind> {
        let context = self.context(Some(protocol));
        async move { acquire::acquire(context?).await.map(Guard::new) }
    }

    /// Checks its name and options, and returns the context of a call, in another `protocol` if that is given.
    pub(crate) fn context(&self, protocol: Option<Protocol>) -> Result<LockContext, Error> {
        let protocol = protocol.or(self.options.protocol);
        self.session.context(&self.shape, &Options { protocol, ..self.options.clone() })
    }

    /// Tries once. Returns `None` if others hold the lock, or were acquiring it at the same time.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`] with a timeout of zero, except `timeout`.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<Kind> {
        let acquiring = self.copied().timeout(Duration::ZERO).acquire();
        async move { none_if_denied(acquiring.await) }
    }

    /// Asks the nodes whether the lock is held by anybody, this program included: whether an acquire would have to wait
    /// now. Of several names, whether any is held; of a semaphore, whether no permit is free; of a shared lock, whether a
    /// writer has it or waits for it. Keys of other libraries and of an attempt under way count too. The answer may be out
    /// of date when it arrives, so it is for people and dashboards; to acquire a free lock, call [`Lock::try_acquire`].
    ///
    /// Changes nothing. Takes at most `node_timeout`, or of a semaphore that for each 64 permits, plus the client's
    /// `connect_timeout` if it has to connect.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if too few nodes answer to know; `invalid_argument` for a wrong name or option, and
    /// in the protocol setnx, whose keys may be out of date; `closed` if the client is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://is-locked-example")?;
    /// let guard = redlock.lock("job").await?;
    /// assert!(redlock.lock("job").is_locked().await?);
    /// guard.release().await?;
    /// assert!(!redlock.lock("job").is_locked().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let context = self.context(None)?;
        let allowed = context.spec.settings.protocol.allows_is_locked();
        allowed.map_err(|error| error.with_name(context.spec.name.bytes()))?;
        inspect::is_locked(context).await
    }

    /// Acquires the lock, runs `body`, and releases the lock, whatever `body` returned.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; `lost` as soon as the lock is lost, and `body` is then dropped at its current await; `closed`
    /// if the client was closed before `body` returned. If only the release finds that, what `body` returned is dropped,
    /// an error of its own too: it can write that down where it happens. A release that no quorum confirms is not an error
    /// here: the background continues it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and releases the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://run-example")?;
    /// let fence = redlock.lock("report").run(async |guard| guard.fence()).await?;
    /// assert!(fence > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(&self, body: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let output = unless(guard.lost(), body(&guard)).await?;
        ignore_unconfirmed(guard.release().await).map(|()| output)
    }

    /// As [`Lock::run`], with a body that can fail: its error and that of the lock come out as one.
    ///
    /// # Errors
    ///
    /// That of `body`, or that of [`Lock::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = redlock::Redlock::new("memory://try-run-example")?;
    /// async fn count(text: &str) -> Result<u32, Box<dyn std::error::Error>> {
    ///     Ok(text.parse()?)
    /// }
    ///
    /// assert_eq!(redlock.lock("report").try_run(async |_| count("7").await).await?, 7);
    /// assert!(redlock.lock("report").try_run(async |_| count("seven").await).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_run<T, E: From<Error>>(&self, body: impl AsyncFnOnce(&Guard) -> Result<T, E>) -> Result<T, E> {
        self.run(body).await?
    }
}

/// Returns the result of one try, `None` if others hold the lock.
pub(crate) fn none_if_denied<T>(acquired: Result<T, Error>) -> Result<Option<T>, Error> {
    match acquired {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reports of a release at the end of a block only that others may have had the lock before.
pub(crate) fn ignore_unconfirmed(released: Result<(), Error>) -> Result<(), Error> {
    match released {
        Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Closed) => Err(error),
        _ => Ok(()),
    }
}

impl From<Lock> for Lock<Fixed> {
    fn from(lock: Lock) -> Self {
        lock.fixed()
    }
}

impl<Kind> IntoFuture for Lock<Kind> {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.fixed().acquire())
    }
}
