//! What is asked of the two faces of the Rust library, written once.

use std::convert::identity;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use redlock::bindings::options::{self, Protocol};
use redlock::{Error, blocking};
use serde_json::{Map, Value, json};
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
                ("fence_ttl", value) => target.fence_ttl(duration(option, value)?),
                ("auto_renew", Value::Bool(auto_renew)) => target.auto_renew(*auto_renew),
                ("label", Value::String(label)) => target.label(label),
                ("protocol", Value::String(name)) => target.protocol(options::protocol(name)?),
                _ => return Err(options::unknown(option).into()),
            };
        }
        target
    }};
}

/// The same for a client's builder, which has options that no lock has.
macro_rules! set_client {
    ($builder:expr, $options:expr) => {{
        let (mut builder, mut options) = ($builder, $options.clone());
        if let Some(value) = options.remove("connect_timeout_ms") {
            builder = builder.connect_timeout(duration("connect_timeout_ms", &value)?);
        }
        set!(builder, &options)
    }};
}

/// The same for the locks of the older protocol.
macro_rules! set_setnx {
    ($target:expr, $options:expr) => {{
        let mut target = $target;
        for (option, value) in $options {
            target = match (option.trim_end_matches("_ms"), value) {
                ("timeout", Value::Null) => target.no_timeout(),
                ("timeout", value) => target.timeout(duration(option, value)?),
                ("ttl", value) => target.ttl(duration(option, value)?),
                ("node_timeout", value) => target.node_timeout(duration(option, value)?),
                ("restart_delay", value) => target.restart_delay(duration(option, value)?),
                // What they are without being told.
                ("auto_renew", Value::Bool(false)) => target,
                ("protocol", _) => target,
                _ => return Err(options::unknown(option).into()),
            };
        }
        target
    }};
}

/// The protocol that options ask for, if they do.
fn protocol(options: &Map<String, Value>) -> Result<Option<Protocol>, Error> {
    options.get("protocol").and_then(Value::as_str).map(options::protocol).transpose()
}

/// What is asked of the face of `$lib`, whose calls `$future` makes futures.
macro_rules! face {
    ($face:ident, $lib:ident, $future:ident, $cancels:literal) => {
        pub(crate) mod $face {
            use super::*;

            /// A lock of either protocol.
            #[derive(Clone)]
            enum Lock {
                Plain($lib::Lock),
                Setnx($lib::SetnxLock),
            }

            impl Lock {
                fn new(client: &$lib::Redlock, protocol: Protocol, request: &Request) -> Result<Self, Failure> {
                    let (name, options) = (request.name(), &request.options);
                    Ok(match protocol {
                        Protocol::Plain => Self::Plain(set!(client.lock(name), options)),
                        Protocol::Setnx => Self::Setnx(set_setnx!(client.setnx_lock(name), options)),
                    })
                }

                async fn acquire(self, timeout: &Map<String, Value>) -> Result<Guard, Failure> {
                    Ok(match self {
                        Self::Plain(lock) => Guard::Plain($future(set!(lock, timeout).acquire()).await?),
                        Self::Setnx(lock) => Guard::Setnx($future(set_setnx!(lock, timeout).acquire()).await?),
                    })
                }

                async fn try_acquire(self) -> Result<Option<Guard>, Failure> {
                    Ok(match self {
                        Self::Plain(lock) => $future(lock.try_acquire()).await?.map(Guard::Plain),
                        Self::Setnx(lock) => $future(lock.try_acquire()).await?.map(Guard::Setnx),
                    })
                }
            }

            /// Its guard.
            enum Guard {
                Plain($lib::Guard),
                Setnx($lib::SetnxGuard),
            }

            impl Guard {
                fn remaining(&self) -> Duration {
                    match self {
                        Self::Plain(guard) => guard.remaining(),
                        Self::Setnx(guard) => guard.remaining(),
                    }
                }

                fn held(&self) -> bool {
                    match self {
                        Self::Plain(guard) => guard.is_held(),
                        Self::Setnx(guard) => guard.is_held(),
                    }
                }

                fn fence(&self) -> Option<u64> {
                    match self {
                        Self::Plain(guard) => Some(guard.fence()),
                        Self::Setnx(_) => None,
                    }
                }

                fn check(&self) -> Result<(), Error> {
                    match self {
                        Self::Plain(guard) => guard.check(),
                        Self::Setnx(guard) => guard.check(),
                    }
                }

                async fn extend(&self, ttl_ms: Option<f64>) -> Result<(), Error> {
                    match (self, ttl_ms) {
                        (Self::Plain(guard), None) => $future(guard.extend()).await,
                        (Self::Plain(guard), Some(ttl_ms)) => {
                            $future(guard.extend_for(options::millis("ttl", ttl_ms)?)).await
                        }
                        // It would not compile, and is refused as an option that would not.
                        (Self::Setnx(_), _) => Err(options::unknown("extend")),
                    }
                }

                async fn lost(&self, limit: Duration) -> Option<Error> {
                    match self {
                        Self::Plain(guard) => guard.lost_within(limit).await,
                        Self::Setnx(guard) => guard.lost_within(limit).await,
                    }
                }

                async fn release(self) -> Result<(), Error> {
                    match self {
                        Self::Plain(guard) => $future(guard.release()).await,
                        Self::Setnx(guard) => $future(guard.release()).await,
                    }
                }
            }

            pub(crate) fn perform(request: Request) -> Work<Result<Value, Failure>> {
                // With the protocol of its locks.
                static CLIENTS: Kept<($lib::Redlock, Protocol)> = Kept::new("unknown client");
                static LOCKS: Kept<Lock> = Kept::new("unknown lock");
                // Under the handle of their lock.
                static GUARDS: Kept<Arc<Guard>> =
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
                        let fence = guard.and_then(|guard| guard.fence());
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
                            let client = set_client!(builder, &request.options).build()?;
                            CLIENTS.put(request.id, (client, protocol(&request.options)?.unwrap_or_default()))
                        }
                        "lock" => {
                            let (client, default) = client()?;
                            let protocol = protocol(&request.options)?.unwrap_or(default);
                            LOCKS.put(request.id, Lock::new(&client, protocol, &request)?)
                        }
                        "acquire" => won(lock()?.acquire(&request.timeout).await?),
                        "try_acquire" => {
                            lock()?.try_acquire().await?.map_or_else(|| json!({"acquired": false}), won)
                        }
                        "extend" => {
                            guard()?.extend(request.ttl_ms).await?;
                            state()
                        }
                        "release" => {
                            let guard = Arc::into_inner(GUARDS.take(request.lock)?).ok_or("the guard is in use")?;
                            guard.release().await?;
                            json!({})
                        }
                        "check" => guard()?.check().map(|()| json!({}))?,
                        "state" => state(),
                        "wait_lost" => {
                            let lost = guard()?.lost(Duration::from_millis(request.limit_ms)).await;
                            json!({"lost": lost.as_ref().map(described), "told_ns": now_ns()})
                        }
                        "inspect" => {
                            let views = $future(client()?.0.inspect(request.name())).await?;
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
        }
    };
}

face!(async_face, redlock, identity, true);

/// What guards of both faces and protocols tell of a loss.
trait Lose {
    fn lost_within(&self, limit: Duration) -> Work<Option<Error>>;
}

macro_rules! lose {
    ($($guard:ident),*) => {$(
        impl Lose for redlock::$guard {
            fn lost_within(&self, limit: Duration) -> Work<Option<Error>> {
                let lost = self.lost();
                Box::pin(async move { tokio::time::timeout(limit, lost).await.ok() })
            }
        }

        impl Lose for blocking::$guard {
            fn lost_within(&self, limit: Duration) -> Work<Option<Error>> {
                Box::pin(ready(self.wait_lost(limit)))
            }
        }
    )*};
}

lose!(Guard, SetnxGuard);

pub(crate) fn spawn(work: Work<()>) -> Wait {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime can be made"));
    let task = RUNTIME.spawn(work);
    Box::new(|| RUNTIME.block_on(task).expect("the task did not panic"))
}

face!(blocking_face, blocking, ready, false);

pub(crate) fn spawn_blocking(mut work: Work<()>) -> Wait {
    let thread = thread::spawn(move || {
        let poll = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_ready(), "a blocking call does not wait for a waker");
    });
    Box::new(|| thread.join().expect("the thread did not panic"))
}
