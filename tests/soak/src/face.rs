//! The two faces of the Rust library behind one trait, so that the work is written once.

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use redlock::{Error, blocking};
use tokio::runtime::{Builder, Runtime};

/// Longer than the servers may take to be empty, so that a key that nobody deletes is found.
const TTL: Duration = Duration::from_secs(60);

/// Short, so that a node is given up while it is frozen.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);

/// Long enough to be denied in the background too.
const MOMENT: Duration = Duration::from_millis(20);

/// The runtime of the async face.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime can be made")
});

/// Waits for the end of what was spawned.
pub(crate) type Wait = Box<dyn FnOnce()>;

pub(crate) trait Face: Send + Sync + 'static {
    type Client: Clone + Send + Sync;
    type Guard: Send + Sync;

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait;
    fn client(nodes: &[String]) -> Result<Self::Client, Error>;
    fn acquire(client: &Self::Client, name: &str) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    fn want(client: &Self::Client, name: &str) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    fn release(guard: Self::Guard) -> impl Future<Output = Result<(), Error>> + Send;
}

pub(crate) struct Async;
pub(crate) struct Blocking;

/// The part that differs by an `.await` only.
macro_rules! face {
    ($lib:ident $(, $await:tt)?) => {
        type Client = $lib::Redlock;
        type Guard = $lib::Guard;

        fn client(nodes: &[String]) -> Result<Self::Client, Error> {
            $lib::Redlock::builder().nodes(nodes).ttl(TTL).node_timeout(NODE_TIMEOUT).build()
        }

        async fn acquire(client: &Self::Client, name: &str) -> Result<Self::Guard, Error> {
            client.lock(name).acquire()$(.$await)?
        }

        async fn want(client: &Self::Client, name: &str) -> Result<Self::Guard, Error> {
            client.lock(name).timeout(MOMENT).acquire()$(.$await)?
        }

        async fn release(guard: Self::Guard) -> Result<(), Error> {
            guard.release()$(.$await)?
        }
    };
}

impl Face for Async {
    face!(redlock, await);

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        let task = RUNTIME.spawn(work);
        Box::new(|| RUNTIME.block_on(task).expect("the task did not panic"))
    }
}

impl Face for Blocking {
    face!(blocking);

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Wait {
        // Every call blocks inside the first poll.
        let thread = thread::spawn(|| match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(()) => {}
            Poll::Pending => unreachable!("a blocking call does not wait for a waker"),
        });
        Box::new(|| thread.join().expect("the thread did not panic"))
    }
}
