//! The client: its nodes, and the default options of its locks. A program makes one client and clones it freely.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{Addresses, Origin};
use crate::api::diagnose::{self, Diagnosis};
use crate::api::election::Election;
use crate::api::inspect::{self, LockView};
use crate::api::lock::{Fixed, Lock};
use crate::api::session::{ProcessLocal, Session};
use crate::api::setnx::SetnxLock;
use crate::credentials::{Credentials, Provider};
use crate::error::Error;
use crate::options::Options;
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::protocol::name::Name;
use crate::protocol::shape::Shape;
use crate::texts::opaque;

/// The environment variable that [`Redlock::from_env`] reads.
const ENVIRONMENT: &str = "REDLOCK_URLS";

/// How long the releases of a client that is closed run as calls. The background then goes on with them, as with all that
/// is pending.
const RELEASES: Duration = Duration::from_millis(500);

/// A client for one set of nodes: one server, or several independent servers. Of several, a quorum must agree.
///
/// Clones share connections. A client sends nothing before the first call on a lock. It closes its connections when the
/// last clone, lock and guard are dropped. All clients of a process share their knowledge about a node, even if they
/// are made later or list other nodes, too.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// use redlock::Redlock;
///
/// let redlock = Redlock::new("memory://example")?;
/// let guard = redlock.lock("invoice:17").await?;
/// guard.check()?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Redlock(Arc<Session>);

impl Redlock {
    /// Returns the state that the client shares with its locks.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }

    /// Makes a client for the node, or nodes, at these addresses, with default options.
    ///
    /// An address is `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
    /// `unix:///path?db=0&user=u&pass=p`, `redis+sentinel://[user:password@]host1,host2/mymaster[/db]` for the primary
    /// that sentinels name, `redis+cluster://[user:password@]host1,host2` for a Redis Cluster, the same with `valkey`, or
    /// `memory://name`. The last one is a store inside this process, and a lock in it excludes only callers of this
    /// process. The address of a server may end in `?password_file=`, and that of one with TLS in `?tls_ca=`,
    /// `tls_cert=`, `tls_key=` and `tls_server_name=`; see the [builder](Builder).
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong or unknown part of an address, for a duplicate, and for no address or more than
    /// 15.
    pub fn new<Kind>(nodes: impl IntoNodes<Kind>) -> Result<Self, Error> {
        Self::builder().nodes(nodes).build()
    }

    /// Makes a client for the nodes in the environment variable `REDLOCK_URLS`, or for `redis://127.0.0.1:6379` if it
    /// is not set. Commas separate the addresses; write a comma in a password as `%2C`.
    ///
    /// # Errors
    ///
    /// `invalid_argument` as for [`Redlock::new`].
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a builder for a client with options, which become the defaults of its locks.
    pub fn builder() -> Builder {
        Builder { nodes: None, options: Options::default(), provider: None }
    }

    /// Makes a lock with this name. Sends nothing. Set options on the lock, then acquire it.
    ///
    /// A name has 1 to 512 bytes, of any value. The key on the servers is the unchanged name, after the client's
    /// `key_prefix` if it has one. Names that begin with `redlock:fence:`, `redlock:waiters:`, `redlock:slot:` or
    /// `redlock:shared:` are reserved. With a wrong name, the acquire fails with
    /// `invalid_argument`.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(Arc::clone(&self.0), name.as_ref().into())
    }

    /// Makes a lock of all these names: it is acquired as a whole or not at all, in one round trip, and has one fence, which
    /// is larger than every earlier fence of each name. Sends nothing.
    ///
    /// From 1 to 16 names, in any order; a name counts once. It excludes every lock of one of the names, and is excluded
    /// by each. While it waits, it holds none of them. So overlapping locks never wait for each other in a circle, but a
    /// lock of many names that others use all the time may wait for long. In a cluster, all names have the same hash tag.
    /// With wrong names, or with `at_least` and more than one name, the acquire fails with `invalid_argument`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://lock-all-example")?;
    /// let guard = redlock.lock_all(["account:7", "account:3"]).acquire().await?;
    /// assert_eq!(guard.names(), [b"account:3", b"account:7"]);
    /// assert!(redlock.lock("account:7").try_acquire().await?.is_none());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Lock<Fixed> {
        let names: Vec<_> = names.into_iter().collect();
        Lock::new(Arc::clone(&self.0), Shape::all(names.iter().map(AsRef::as_ref)))
    }

    /// Makes a semaphore: a lock with this name that `permits` holders can have at once, from 1 to 1,000. Sends nothing.
    ///
    /// Each holder has a slot of its own, a number below `permits`: [`Guard::slot`](crate::Guard::slot). The fence is
    /// larger than every earlier fence of this slot; a resource compares both. Callers may differ in `permits`, as while a
    /// program is updated: at most the largest number of them hold a permit then. A semaphore and a lock of the same name
    /// have nothing to do with each other. With a wrong name or number, the acquire fails with `invalid_argument`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://semaphore-example")?;
    /// let pool = redlock.semaphore("pool", 2);
    /// let (first, second) = (pool.acquire().await?, pool.acquire().await?);
    /// assert_ne!(first.slot(), second.slot());
    /// assert!(pool.try_acquire().await?.is_none());
    /// first.release().await?;
    /// assert!(pool.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Lock<Fixed> {
        Lock::new(Arc::clone(&self.0), Shape::Semaphore(name.as_ref().into(), permits))
    }

    /// Makes a lock that continues the hold with this text, which [`Guard::detach`](crate::Guard::detach) has returned.
    /// Sends nothing: the acquire attaches it.
    ///
    /// The guard has the same names, fence and slot, and the lock is renewed again. Of several that attach one text, one
    /// has the lock at most, and a former holder that still runs finds that it is not its own any more. The options
    /// `max_hold`, `at_least`, `margin` and `label` are in the text, and so is the ttl, unless the lock is given one. The
    /// times since the acquire are compared by the wall clocks of both machines.
    ///
    /// The client has the same nodes as the one that acquired the lock, and the same `key_prefix`. The acquire fails with
    ///
    /// - `lost` if a quorum of nodes shows that the lock is over, or is somebody else's: it has expired, was attached before,
    ///   or was deleted. Text and lock are then done with;
    /// - `unavailable` if no quorum answered until the timeout, or for 10 s without one. The text can be attached again;
    /// - `forbidden` as any acquire;
    /// - `invalid_argument` (its option is `text`) if the text was changed, or is something else.
    ///
    /// If its future is dropped, the text can be attached again. See [`Guard::detach`] for an example.
    ///
    /// [`Guard::detach`]: crate::Guard::detach
    pub fn attach(&self, text: &str) -> Lock<Fixed> {
        Lock::new(Arc::clone(&self.0), Shape::of_detached(text, self.0.prefix()))
    }

    /// Makes an election with this name; see [`Election`]. Sends nothing.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(Arc::clone(&self.0), name.as_ref())
    }

    /// Makes a lock with this name in the older SETNX protocol, to share a key with code that still uses this protocol;
    /// see [`SetnxLock`]. Sends nothing.
    ///
    /// Client options that setnx locks do not support are ignored. The lock is for one node. Its acquire fails with
    /// `invalid_argument` if the client has several nodes, or if the client's `auto_renew` was set to true.
    pub fn setnx_lock(&self, name: impl AsRef<[u8]>) -> SetnxLock {
        SetnxLock::new(self.lock(name))
    }

    /// Reads what the nodes show of this name: whose lock it is, since when and for how long, on how many nodes, how
    /// many wait, and what is on every node. Changes nothing.
    ///
    /// Takes at most the `node_timeout` of the client's options, plus `connect_timeout` if it has to connect. Cancel
    /// safe.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong name or option, `closed` if the client is closed, `unavailable` if the background
    /// thread cannot be started. A node that cannot be asked is part of the result, not an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// use redlock::{LockState, Redlock};
    ///
    /// let redlock = Redlock::new("memory://inspect-example")?;
    /// let guard = redlock.lock("job").label("worker 7").acquire().await?;
    /// let view = redlock.inspect("job").await?;
    /// assert_eq!((view.state, view.label.as_deref()), (LockState::Held, Some("worker 7")));
    /// assert_eq!((view.fence, view.holders, view.waiting), (Some(guard.fence()), 1, Some(0)));
    /// for node in view.nodes {
    ///     println!("{}: {:?}", node.node, node.state);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<[u8]>) -> Result<LockView, Error> {
        inspect::inspect(self.0.context(&name.as_ref().into(), &Options::default())?).await
    }

    /// Reads what the nodes show of each slot of the semaphore with this name, in their order, as [`Redlock::inspect`]
    /// does for a lock. Changes nothing. The number that wait is the same for all slots.
    ///
    /// Takes as long as [`Redlock::inspect`] for each 64 slots. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Redlock::inspect`]; `invalid_argument` also for a wrong number of permits.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// use redlock::{LockState, Redlock};
    ///
    /// let redlock = Redlock::new("memory://inspect-semaphore-example")?;
    /// let guard = redlock.semaphore("pool", 3).acquire().await?;
    /// for view in redlock.inspect_semaphore("pool", 3).await? {
    ///     assert_eq!(view.state == LockState::Held, view.slot == guard.slot());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect_semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Result<Vec<LockView>, Error> {
        let shape = Shape::Semaphore(name.as_ref().into(), permits);
        inspect::inspect_slots(&self.0.context(&shape, &Options::default())?).await
    }

    /// Finds out, for each node in the order of the addresses, what it can do, what this user may do, and what may lose
    /// locks there: reachable, encrypted, role, version, optional commands, rights, eviction, persistence, replicas, free
    /// connections, clock, and addresses that lead to the same server. Where sentinels name the node's primary, also
    /// which of them answer, and whether locks outlive a failover. Each server with slots of a cluster is diagnosed, also
    /// slots that cannot be locked, and whether locks outlive a failover.
    ///
    /// For an operator: it asks more than locks do, on connections of its own, and writes keys that begin with
    /// `redlock:diagnose:` (after the client's `key_prefix`) and expire after 10 s. Takes at most five times the client's
    /// `connect_timeout`. Cancel safe.
    ///
    /// # Errors
    ///
    /// `closed` if the client is closed, `unavailable` if the background thread cannot be started. A node that
    /// cannot be asked is part of the result, not an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// use redlock::{Level, Redlock};
    ///
    /// let redlock = Redlock::new("memory://diagnose-example")?;
    /// for diagnosis in redlock.diagnose().await? {
    ///     assert_eq!(diagnosis.level(), Level::Ok);
    ///     for finding in diagnosis.findings {
    ///         println!("{}: {finding}", diagnosis.node);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn diagnose(&self) -> Result<Vec<Diagnosis>, Error> {
        diagnose::diagnose(&self.0).await
    }

    /// Closes this client and its clones: calls that wait end with `closed`, as do new ones, and the locks that were
    /// acquired with it are released. Other clients live on, also those of the same nodes.
    ///
    /// From the call on, none of its locks is held. It waits up to `limit` for the nodes to answer. The background goes on
    /// with what they have not answered by then, and such a lock expires after its ttl at the latest.
    ///
    /// A client that is dropped closes its connections without this; its guards keep their locks.
    ///
    /// Cancel safe: what is begun goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// use redlock::{ErrorKind, Redlock};
    /// use std::time::Duration;
    ///
    /// let redlock = Redlock::new("memory://close-example")?;
    /// let guard = redlock.lock("report").await?;
    /// let report = redlock.lock("report");
    /// redlock.close(Duration::from_secs(1)).await;
    /// assert!(!guard.is_held());
    /// assert_eq!(report.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self, limit: Duration) {
        self.closing(limit).await;
    }

    /// Does as [`Redlock::close`], and begins at once. Hidden: for the bindings.
    #[doc(hidden)]
    pub fn closing(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.0.close(limit)
    }

    /// Does as [`Redlock::close`], and does not wait. Hidden: for the bindings.
    #[doc(hidden)]
    pub fn close_now(&self) {
        drop(self.closing(RELEASES));
    }

    /// Returns the addresses of the nodes, without user names or passwords. Hidden: for the bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn shown_addresses(&self) -> Vec<String> {
        self.0.addresses.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn simulated(process: Arc<Process>, set: Arc<NodeSet>, options: Options) -> Self {
        let addresses = Addresses::from_env_value(None).expect("the default address is valid");
        Self(Arc::new(Session::new((addresses, Origin::Argument), options, ProcessLocal::new(process, Some(set)))))
    }
}

/// Makes a client; see [`Redlock::builder`].
///
/// Every option except those that only a client has, such as [`Builder::connect_timeout`], is a default for the client's locks. A
/// [`Lock`] can override it.
///
/// # Examples
///
/// ```
/// use redlock::Redlock;
/// use std::time::Duration;
///
/// let redlock = Redlock::builder()
///     .nodes(["redis://a", "redis://b", "redis://c"])
///     .ttl(Duration::from_secs(30))
///     .max_hold(Duration::from_secs(600))
///     .build()?;
///
/// // Options are checked together: a lock cannot end before its first lease does.
/// let wrong = Redlock::builder().nodes("redis://a").max_hold(Duration::from_secs(1)).build();
/// assert_eq!(wrong.unwrap_err().code(), "invalid_argument");
/// # Ok::<(), redlock::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    pub(crate) nodes: Option<Unparsed>,
    pub(crate) options: Options,
    pub(crate) provider: Option<Provider>,
}

/// Addresses as the caller gave them. `Debug` hides them, because a password may stand anywhere in an address that is
/// not parsed yet.
#[derive(Clone)]
pub(crate) struct Unparsed(pub(crate) Vec<String>);

opaque!(Unparsed);

impl Builder {
    /// Sets the addresses of the nodes; see [`Redlock::new`].
    pub fn nodes<Kind>(mut self, nodes: impl IntoNodes<Kind>) -> Self {
        self.nodes = Some(Unparsed(nodes.into_nodes()));
        self
    }

    fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    crate::api::setters::client_setters!();

    crate::api::setters::option_setters!();

    /// Sets the provider of logins for nodes whose address has none, such as tokens that end; see [`Credentials`].
    /// It is called at the first connect, ahead of the end of each login, and after a server rejected one. A new
    /// login is also sent on the connections that exist. Clients with clones of one builder share the logins.
    pub fn credentials(mut self, credentials: impl Credentials) -> Self {
        self.provider = Some(Provider::new(credentials));
        self
    }

    /// Checks addresses and options and makes the client.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a wrong address or option.
    pub fn build(self) -> Result<Redlock, Error> {
        let value = self.nodes.is_none().then(|| std::env::var_os(ENVIRONMENT)).flatten();
        let value = value.map(OsString::into_string).transpose().map_err(|_| {
            Error::invalid(format!("{ENVIRONMENT} is not valid UTF-8; set it to redis:// URLs separated by commas"))
        })?;
        self.build_in(value.as_deref())
    }

    /// Does as [`Builder::build`], with this value of `REDLOCK_URLS`. Hidden: for the bindings.
    #[doc(hidden)]
    pub fn build_in(self, value: Option<&str>) -> Result<Redlock, Error> {
        let (addresses, origin) = if let Some(nodes) = self.nodes {
            (Addresses::parse(nodes.0).map_err(|error| error.with_option("nodes"))?, Origin::Argument)
        } else {
            let origin = if value.is_some() { Origin::Environment } else { Origin::Default };
            (Addresses::from_env_value(value)?, origin)
        };
        let addresses = addresses.with_options(&self.options, self.provider.as_ref())?;
        if let Some(key_prefix) = &self.options.key_prefix {
            Name::check_prefix(key_prefix.as_bytes())?;
        }
        let process = Process::current();
        self.options.check(&process.label, addresses.iter().len())?;
        let set = process.set(&addresses)?;
        Ok(Redlock(Arc::new(Session::new((addresses, origin), self.options, ProcessLocal::new(process, Some(set))))))
    }
}

/// One address or several: a text of any kind, or anything that is iterated over texts.
///
/// A program that takes nodes for its own purposes names the parameter, which says whether it is one or several, but never
/// chooses it: `fn connect<K>(nodes: impl IntoNodes<K>)`.
///
/// # Examples
///
/// ```
/// use redlock::Redlock;
///
/// Redlock::new("redis://a")?;
/// Redlock::new(["redis://a", "redis://b", "redis://c"])?;
/// Redlock::new(vec![String::from("unix:///run/redis.sock")])?;
/// Redlock::new("redis://a redis://b redis://c".split(' '))?;
/// # Ok::<(), redlock::Error>(())
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is not an address of a node, nor several of them")]
pub trait IntoNodes<Kind>: sealed::Sealed<Kind> {
    #[doc(hidden)]
    fn into_nodes(self) -> Vec<String>;
}

mod sealed {
    pub trait Sealed<Kind> {}

    /// Without it, a text that could be iterated over would be both.
    #[derive(Debug)]
    pub enum One {}

    #[derive(Debug)]
    pub enum Several {}
}

impl<T: AsRef<str>> sealed::Sealed<sealed::One> for T {}

impl<T: AsRef<str>> IntoNodes<sealed::One> for T {
    fn into_nodes(self) -> Vec<String> {
        vec![self.as_ref().to_owned()]
    }
}

impl<I: IntoIterator<Item: AsRef<str>>> sealed::Sealed<sealed::Several> for I {}

impl<I: IntoIterator<Item: AsRef<str>>> IntoNodes<sealed::Several> for I {
    fn into_nodes(self) -> Vec<String> {
        self.into_iter().map(|node| node.as_ref().to_owned()).collect()
    }
}
