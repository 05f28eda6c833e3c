//! The two faces of the Rust library behind one trait, so that the driver is written once.

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use redlock::{Error, NodeView, blocking, given};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::convert;

type Options = Map<String, Value>;

/// Waits for the end of what was spawned.
pub(crate) type Wait = Box<dyn FnOnce()>;

pub(crate) trait Face: Send + Sync + 'static {
    /// Whether a call in flight can be ended from outside.
    const CANCELS: bool;
    type Client: Clone + Send + Sync;
    type Lock: Clone + Send + Sync;
    type Guard: Send + Sync;

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait;
    fn client(nodes: Option<&[String]>, options: &Options) -> Result<Self::Client, Error>;
    fn lock(client: &Self::Client, name: &[u8], options: &Options) -> Result<Self::Lock, Error>;
    /// `None` waits for ever.
    fn timeout(lock: Self::Lock, timeout: Option<Duration>) -> Self::Lock;
    fn acquire(lock: Self::Lock) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    fn try_acquire(lock: Self::Lock) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send;
    fn extend(guard: &Self::Guard, ttl: Option<Duration>) -> impl Future<Output = Result<(), Error>> + Send;
    fn release(guard: Self::Guard) -> impl Future<Output = Result<(), Error>> + Send;
    fn lost(guard: &Self::Guard, limit: Duration) -> impl Future<Output = Option<Error>> + Send;
    fn inspect(client: &Self::Client, name: &[u8]) -> impl Future<Output = Result<Vec<NodeView>, Error>> + Send;
    fn check(guard: &Self::Guard) -> Result<(), Error>;
    fn state(guard: Option<&Self::Guard>) -> Value;
}

pub(crate) struct Async;
pub(crate) struct Blocking;

/// What the builders and the locks of both faces have in common, which is no trait of the library.
macro_rules! set {
    ($target:expr, $options:expr) => {{
        let mut target = $target;
        for (option, value) in $options {
            target = match (option.trim_end_matches("_ms"), value) {
                ("timeout", Value::Null) => target.no_timeout(),
                ("timeout", value) => target.timeout(convert::amount(option, value)?),
                ("ttl", value) => target.ttl(convert::amount(option, value)?),
                ("max_hold", value) => target.max_hold(convert::amount(option, value)?),
                ("node_timeout", value) => target.node_timeout(convert::amount(option, value)?),
                ("restart_delay", value) => target.restart_delay(convert::amount(option, value)?),
                ("fence_keep", value) => target.fence_keep(convert::amount(option, value)?),
                ("auto_renew", Value::Bool(auto_renew)) => target.auto_renew(*auto_renew),
                ("owner", Value::String(owner)) => target.owner(owner),
                _ => return Err(given::unknown(option)),
            };
        }
        target
    }};
}

/// The part that differs by an `.await` only.
macro_rules! face {
    ($lib:ident $(, $await:tt)?) => {
        type Client = $lib::Redlock;
        type Lock = $lib::Lock;
        type Guard = $lib::Guard;

        fn client(nodes: Option<&[String]>, options: &Options) -> Result<Self::Client, Error> {
            let builder = $lib::Redlock::builder();
            let builder = match nodes {
                Some(nodes) => builder.nodes(nodes),
                None => builder,
            };
            set!(builder, options).build()
        }

        fn lock(client: &Self::Client, name: &[u8], options: &Options) -> Result<Self::Lock, Error> {
            Ok(set!(client.lock(name), options))
        }

        fn timeout(lock: Self::Lock, timeout: Option<Duration>) -> Self::Lock {
            match timeout {
                Some(timeout) => lock.timeout(timeout),
                None => lock.no_timeout(),
            }
        }

        async fn acquire(lock: Self::Lock) -> Result<Self::Guard, Error> {
            lock.acquire()$(.$await)?
        }

        async fn try_acquire(lock: Self::Lock) -> Result<Option<Self::Guard>, Error> {
            lock.try_acquire()$(.$await)?
        }

        async fn extend(guard: &Self::Guard, ttl: Option<Duration>) -> Result<(), Error> {
            match ttl {
                Some(ttl) => guard.extend_to(ttl)$(.$await)?,
                None => guard.extend()$(.$await)?,
            }
        }

        async fn release(guard: Self::Guard) -> Result<(), Error> {
            guard.release()$(.$await)?
        }

        async fn inspect(client: &Self::Client, name: &[u8]) -> Result<Vec<NodeView>, Error> {
            client.inspect(name)$(.$await)?
        }

        fn check(guard: &Self::Guard) -> Result<(), Error> {
            guard.check()
        }

        fn state(guard: Option<&Self::Guard>) -> Value {
            // The clock first, so that what remains is never counted from a later instant than the library means.
            let read_ns = convert::now_ns();
            let remaining = guard.map(|guard| guard.remaining().as_secs_f64() * 1000.0);
            let held = guard.is_some_and(|guard| guard.held());
            let fence = guard.map(|guard| guard.fence());
            json!({"read_ns": read_ns, "held": held, "remaining_ms": remaining.unwrap_or(0.0), "fence": fence})
        }
    };
}

impl Face for Async {
    face!(redlock, await);
    const CANCELS: bool = true;

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime can be made"));
        let task = RUNTIME.spawn(work);
        Box::new(|| RUNTIME.block_on(task).expect("the task did not panic"))
    }

    async fn lost(guard: &Self::Guard, limit: Duration) -> Option<Error> {
        tokio::time::timeout(limit, guard.lost()).await.ok()
    }
}

impl Face for Blocking {
    face!(blocking);
    const CANCELS: bool = false;

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        // Every call blocks inside the first poll.
        let thread = thread::spawn(|| match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(()) => {}
            Poll::Pending => unreachable!("a blocking call does not wait for a waker"),
        });
        Box::new(|| thread.join().expect("the thread did not panic"))
    }

    async fn lost(guard: &Self::Guard, limit: Duration) -> Option<Error> {
        guard.wait_lost(limit)
    }
}
