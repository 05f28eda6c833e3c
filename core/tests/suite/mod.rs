//! What shares one process.

mod connecting;
mod credentials;
mod delete_follows_create;
mod diagnose;
mod errors;
mod hold;
mod layers;
pub(crate) mod log;
mod nodes;
#[cfg(feature = "__bindings")]
mod objects;
mod processes;
mod readme;
mod round_trips;
mod send_sync;
mod sentinel;
mod setnx;
mod single;
#[cfg(all(feature = "__bindings", feature = "metrics-0_24", feature = "redis-1", feature = "testing"))]
mod surface;
#[cfg(feature = "testing")]
mod tls;
mod waiting;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use harness::{Server, urls};
use redlock::{Error, Guard, Redlock};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// A call on its way.
pub(crate) type Call = JoinHandle<Result<Guard, Error>>;

/// What `call` comes to.
#[allow(clippy::disallowed_methods, reason = "real servers live in real time")]
pub(crate) async fn end(call: Call) -> Result<Guard, Error> {
    tokio::time::timeout(harness::LIMIT, call).await.expect("every call ends").unwrap()
}

/// Polls a future once, and leaves it.
pub(crate) async fn poll_once(future: &mut (impl Future + Unpin)) {
    poll_fn(|cx| {
        assert!(Pin::new(&mut *future).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// A client with the defaults.
pub(crate) fn client(servers: &[Server]) -> Redlock {
    Redlock::new(urls(servers)).unwrap()
}

/// A runtime that runs only while a test waits for something of it.
pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A runtime whose tasks run while a test waits for other things.
pub(crate) fn one_worker() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
