//! What is asked of the two faces of the Rust library, written once.

use std::convert::identity;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use redlock::{Error, blocking, given};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::json::{Failure, Request, described, duration, ms, now_ns, viewed};
use crate::kept::Kept;

/// A future of either face.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Waits for the end of what was spawned.
pub(crate) type Wait = Box<dyn FnOnce()>;

/// What ends calls in flight, under their ids.
pub(crate) static CANCELS: Kept<oneshot::Sender<()>> = Kept::new("unknown call");

/// What the builders and the locks of both faces have in common, which is no trait of the library.
macro_rules! set {
    ($target:expr, $options:expr) => {{
        let mut target = $target;
        for (option, value) in $options {
            target = match (option.trim_end_matches("_ms"), value) {
                ("timeout", Value::Null) => target.no_timeout(),
                ("timeout", value) => target.timeout(duration(option, value)?),
                ("ttl", value) => target.ttl(duration(option, value)?),
                ("max_hold", value) => target.max_hold(duration(option, value)?),
                ("node_timeout", value) => target.node_timeout(duration(option, value)?),
                ("restart_delay", value) => target.restart_delay(duration(option, value)?),
                ("fence_keep", value) => target.fence_keep(duration(option, value)?),
                ("auto_renew", Value::Bool(auto_renew)) => target.auto_renew(*auto_renew),
                ("owner", Value::String(owner)) => target.owner(owner),
                _ => return Err(given::unknown(option).into()),
            };
        }
        target
    }};
}

/// What is asked of the face of `$lib`, whose calls `$future` makes futures.
macro_rules! face {
    ($perform:ident, $lib:ident, $future:ident, $lost:ident, $cancels:literal) => {
        pub(crate) fn $perform(request: Request) -> Work<Result<Value, Failure>> {
            static CLIENTS: Kept<$lib::Redlock> = Kept::new("unknown client");
            static LOCKS: Kept<$lib::Lock> = Kept::new("unknown lock");
            // Under the handle of their lock.
            static GUARDS: Kept<Arc<$lib::Guard>> =
                Kept::new("no guard: a guard is what a handle holds from acquire to release");
            Box::pin(async move {
                let client = || CLIENTS.of(request.client);
                let lock = || LOCKS.of(request.lock);
                let guard = || GUARDS.of(request.lock);
                let state = || {
                    let guard = guard().ok();
                    // The clock first, so that what remains is never counted from a later instant than is meant.
                    let read_ns = now_ns();
                    let remaining_ms = guard.as_ref().map_or(0.0, |guard| ms(guard.remaining()));
                    let held = guard.as_ref().is_some_and(|guard| guard.held());
                    let fence = guard.map(|guard| guard.fence());
                    json!({"read_ns": read_ns, "held": held, "remaining_ms": remaining_ms, "fence": fence})
                };
                let won = |guard| {
                    GUARDS.put(request.lock, Arc::new(guard));
                    let mut answer = state();
                    answer["acquired"] = true.into();
                    answer
                };
                Ok(match request.op.as_str() {
                    "client" => {
                        let mut builder = $lib::Redlock::builder();
                        if let Some(nodes) = &request.nodes {
                            builder = builder.nodes(nodes);
                        }
                        CLIENTS.put(request.id, set!(builder, &request.options).build()?)
                    }
                    "lock" => LOCKS.put(request.id, set!(client()?.lock(request.name()), &request.options)),
                    "acquire" => won($future(set!(lock()?, &request.timeout).acquire()).await?),
                    "try_acquire" => {
                        $future(lock()?.try_acquire()).await?.map_or_else(|| json!({"acquired": false}), won)
                    }
                    "extend" => {
                        match request.ttl_ms {
                            Some(ttl_ms) => $future(guard()?.extend_to(given::millis("ttl", ttl_ms)?)).await?,
                            None => $future(guard()?.extend()).await?,
                        }
                        state()
                    }
                    "release" => {
                        let guard = Arc::into_inner(GUARDS.take(request.lock)?).ok_or("the guard is in use")?;
                        $future(guard.release()).await?;
                        json!({})
                    }
                    "check" => guard()?.check().map(|()| json!({}))?,
                    "state" => state(),
                    "wait_lost" => {
                        let lost = $lost(&*guard()?, Duration::from_millis(request.limit_ms)).await;
                        json!({"lost": lost.as_ref().map(described), "told_ns": now_ns()})
                    }
                    "inspect" => {
                        let views = $future(client()?.inspect(request.name())).await?;
                        json!({"nodes": views.iter().map(viewed).collect::<Vec<_>>()})
                    }
                    "cancel" if $cancels => {
                        // Nobody receives it when the call is over, which is as good.
                        let _ = CANCELS.take(request.call)?.send(());
                        json!({})
                    }
                    "close" => CLIENTS.take(request.client).map(|_| json!({}))?,
                    _ => return Err("no such op on this face".into()),
                })
            })
        }
    };
}

face!(perform, redlock, identity, lost, true);

async fn lost(guard: &redlock::Guard, limit: Duration) -> Option<Error> {
    tokio::time::timeout(limit, guard.lost()).await.ok()
}

pub(crate) fn spawn(work: Work<()>) -> Wait {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime can be made"));
    let task = RUNTIME.spawn(work);
    Box::new(|| RUNTIME.block_on(task).expect("the task did not panic"))
}

face!(perform_blocking, blocking, ready, wait_lost, false);

fn wait_lost(guard: &blocking::Guard, limit: Duration) -> Ready<Option<Error>> {
    ready(guard.wait_lost(limit))
}

pub(crate) fn spawn_blocking(mut work: Work<()>) -> Wait {
    let thread = thread::spawn(move || {
        let poll = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_ready(), "a blocking call does not wait for a waker");
    });
    Box::new(|| thread.join().expect("the thread did not panic"))
}
