//! Requests to the Rust library, in both of its faces.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use face::{Client, Face, Which, both};
use redlock::bindings::options::{self, Options, Scope, Unit};
use redlock::testing::MemoryServer;
use redlock::{Error, Login, LostReason};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::candidate::Candidate;
use crate::heard::{heard, spans};
use crate::json::{Failure, Request, described, diagnosed, duration, hex, leading, measured, ms, now_ns, viewed};
use crate::kept::Kept;
use crate::{HEAP, RUNTIME};

/// The senders that cancel calls in flight, by their ids.
pub(crate) static CANCELS: Kept<oneshot::Sender<()>> = Kept::new("unknown call");

/// Sets the options that builders and locks of both faces share, which the library has no trait for.
macro_rules! set {
    ($target:expr, $options:expr) => {{
        let mut target = $target;
        for (option, value) in $options {
            target = match (option.trim_end_matches("_ms"), value) {
                ("timeout", Value::Null) => target.no_timeout(),
                ("timeout", value) => target.timeout(duration(option, value)?),
                ("ttl", value) => target.ttl(duration(option, value)?),
                ("max_hold", value) => target.max_hold(duration(option, value)?),
                ("at_least", value) => target.at_least(duration(option, value)?),
                ("margin", value) => target.margin(duration(option, value)?),
                ("node_timeout", value) => target.node_timeout(duration(option, value)?),
                ("restart_delay", value) => target.restart_delay(duration(option, value)?),
                ("fence_ttl", value) => target.fence_ttl(duration(option, value)?),
                ("auto_renew", Value::Bool(auto_renew)) => target.auto_renew(*auto_renew),
                ("label", Value::String(label)) => target.label(label),
                // The type of the lock.
                ("protocol", Value::String(_)) => target,
                _ => return Err(options::unknown(option, str::to_owned).into()),
            };
        }
        target
    }};
}

/// The same for elections, which have fewer options.
macro_rules! set_election {
    ($target:expr, $options:expr) => {{
        let mut target = $target;
        for (option, value) in $options {
            target = match (option.trim_end_matches("_ms"), value) {
                ("ttl", value) => target.ttl(duration(option, value)?),
                ("margin", value) => target.margin(duration(option, value)?),
                ("node_timeout", value) => target.node_timeout(duration(option, value)?),
                ("restart_delay", value) => target.restart_delay(duration(option, value)?),
                ("fence_ttl", value) => target.fence_ttl(duration(option, value)?),
                ("label", Value::String(label)) => target.label(label),
                _ => return Err(options::unknown(option, str::to_owned).into()),
            };
        }
        target
    }};
}

/// The same for a client's builder, which has options that no lock has.
macro_rules! set_client {
    ($builder:expr, $options:expr) => {{
        let (mut builder, mut options) = ($builder.options(protocol($options)?), $options.clone());
        if let Some(value) = options.remove("connect_timeout_ms") {
            builder = builder.connect_timeout(duration("connect_timeout_ms", &value)?);
        }
        if let Some(value) = options.remove("keepalive_ms") {
            builder = builder.keepalive(duration("keepalive_ms", &value)?);
        }
        if let Some(value) = options.remove("max_connections") {
            let count = value.as_u64().and_then(|count| count.try_into().ok()).ok_or("not a small number")?;
            builder = builder.max_connections(count);
        }
        if let Some(Value::String(key_prefix)) = options.remove("key_prefix") {
            builder = builder.key_prefix(key_prefix);
        }
        if let Some(Value::String(password_file)) = options.remove("password_file") {
            builder = builder.password_file(password_file);
        }
        if let Some(Value::String(tls_ca)) = options.remove("tls_ca") {
            builder = builder.tls_ca(tls_ca);
        }
        if let Some(Value::String(tls_cert)) = options.remove("tls_cert") {
            builder = builder.tls_cert(tls_cert);
        }
        if let Some(Value::String(tls_key)) = options.remove("tls_key") {
            builder = builder.tls_key(tls_key);
        }
        if let Some(Value::String(tls_server_name)) = options.remove("tls_server_name") {
            builder = builder.tls_server_name(tls_server_name);
        }
        if let Some(Value::String(path)) = options.remove("credentials") {
            builder = builder.credentials(move || std::future::ready(login(&path)));
        }
        set!(builder, &options)
    }};
}

/// The login in a file, or the failure that it asks for.
fn login(path: &str) -> Result<Login, io::Error> {
    let login: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    if let Some(error) = login["error"].as_str() {
        return Err(io::Error::other(error));
    }
    let text = |field: &str| login[field].as_str().unwrap_or_default();
    let life = Duration::from_millis(login["ms"].as_u64().unwrap_or_default());
    Ok(Login::new(text("username"), text("password")).lasting(life))
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
                // This is their default.
                ("auto_renew", Value::Bool(false)) => target,
                ("protocol", _) => target,
                _ => return Err(options::unknown(option, str::to_owned).into()),
            };
        }
        target
    }};
}

/// The protocol that options ask for. In Rust it is not an option.
fn protocol(options: &Map<String, Value>) -> Result<Options, Error> {
    let mut protocol = Options::default();
    if let Some(name) = options.get("protocol").and_then(Value::as_str) {
        (options::find("protocol", Scope::Lock)?.set)(&mut protocol, options::Value::Text(name.to_owned()))?;
    }
    Ok(protocol)
}

/// Whether options ask for the older protocol.
fn is_setnx(options: &Map<String, Value>, default: bool) -> Result<bool, Error> {
    protocol(options)?;
    Ok(options.get("protocol").map_or(default, |name| name == "setnx"))
}

/// A lock of either protocol.
#[derive(Clone)]
enum Lock {
    Plain(face::Lock),
    Setnx(face::SetnxLock),
}

impl Lock {
    fn new(client: &Client, setnx: bool, request: &Request) -> Result<Self, Failure> {
        let (name, mut options) = (request.name(), request.options.clone());
        // In Rust it is a setter that only locks have.
        let shared = options.remove("shared").is_some_and(|shared| shared == Value::Bool(true));
        let options = &options;
        Ok(match (request.op.as_str(), setnx) {
            ("lock", false) if shared => {
                Self::Plain(both!(client, client => set!(client.lock(name).shared(), options)))
            }
            ("lock", true) => Self::Setnx(both!(client, client => set_setnx!(client.setnx_lock(name), options))),
            ("lock", false) => Self::Plain(both!(client, client => set!(client.lock(name), options).into())),
            // These would not compile in Rust.
            ("attach", _) => Self::Plain(both!(client, client => set!(client.attach(request.text()), options))),
            (_, true) => return Err(options::unknown("protocol", str::to_owned).into()),
            ("lock_all", false) => {
                Self::Plain(both!(client, client => set!(client.lock_all(request.names()), options)))
            }
            (_, false) => {
                let permits = request.permits()?;
                Self::Plain(both!(client, client => set!(client.semaphore(name, permits), options)))
            }
        })
    }

    async fn acquire(self, timeout: &Map<String, Value>) -> Result<Guard, Failure> {
        Ok(match self {
            Self::Plain(lock) => Guard::Plain(both!(lock, lock => set!(lock, timeout)).acquire().await?),
            Self::Setnx(lock) => Guard::Setnx(both!(lock, lock => set_setnx!(lock, timeout)).acquire().await?),
        })
    }

    async fn try_acquire(self) -> Result<Option<Guard>, Failure> {
        Ok(match self {
            Self::Plain(lock) => lock.try_acquire().await?.map(Guard::Plain),
            Self::Setnx(lock) => lock.try_acquire().await?.map(Guard::Setnx),
        })
    }

    async fn is_locked(&self) -> Result<bool, Error> {
        match self {
            Self::Plain(lock) => lock.is_locked().await,
            // It would not compile in Rust, so it is refused as an unknown option.
            Self::Setnx(_) => Err(options::unknown("is_locked", str::to_owned)),
        }
    }
}

/// Its guard.
enum Guard {
    Plain(face::Guard),
    Setnx(face::SetnxGuard),
}

/// Calls a method on the guard of either protocol.
macro_rules! with {
    ($guard:expr, $it:ident => $do:expr) => {
        match $guard {
            Guard::Plain($it) => $do,
            Guard::Setnx($it) => $do,
        }
    };
}

impl Guard {
    fn fence(&self) -> Option<u64> {
        match self {
            Self::Plain(guard) => Some(guard.fence()),
            Self::Setnx(_) => None,
        }
    }

    fn slot(&self) -> Option<u32> {
        match self {
            Self::Plain(guard) => guard.slot(),
            Self::Setnx(_) => None,
        }
    }

    /// The name and all names.
    fn named(&self) -> Result<Value, Failure> {
        let Self::Plain(guard) = self else { return Err("there are no names of such a lock".into()) };
        let names: Vec<_> = guard.names().into_iter().map(hex).collect();
        Ok(json!({"name": String::from_utf8_lossy(guard.name()), "names": names}))
    }

    async fn extend(&self, ttl_ms: Option<f64>) -> Result<(), Error> {
        match (self, ttl_ms) {
            (Self::Plain(guard), None) => guard.extend().await,
            (Self::Plain(guard), Some(ttl_ms)) => guard.extend_for(Unit::Millis.duration("ttl", ttl_ms)?).await,
            // It would not compile in Rust, so it is refused as an unknown option.
            (Self::Setnx(_), _) => Err(options::unknown("extend", str::to_owned)),
        }
    }

    async fn detach(&self, ttl_ms: Option<f64>) -> Result<String, Error> {
        let detached = match (self, ttl_ms) {
            (Self::Plain(guard), None) => guard.detach().await?,
            (Self::Plain(guard), Some(ttl_ms)) => guard.detach_for(Unit::Millis.duration("ttl", ttl_ms)?).await?,
            // It would not compile in Rust, so it is refused as an unknown option.
            (Self::Setnx(_), _) => return Err(options::unknown("detach", str::to_owned)),
        };
        Ok(detached.into())
    }
}

/// Each client, and whether its locks use the older protocol.
static CLIENTS: Kept<(Client, bool)> = Kept::new("unknown client");
static LOCKS: Kept<Lock> = Kept::new("unknown lock");
/// Each guard, under the handle of its lock.
static GUARDS: Kept<Arc<Guard>> = Kept::new("no guard: a guard is what a handle holds from acquire to release");
static CANDIDATES: Kept<Arc<Candidate>> = Kept::new("unknown election");

/// The servers in memory.
static SERVERS: Kept<Arc<MemoryServer>> = Kept::new("unknown server");

/// Does to a server in memory what the test says.
fn at_server(server: &MemoryServer, request: &Request) -> Result<(), Failure> {
    match request.action.as_str() {
        "hold" => {
            let ttl = request.ttl_ms.map(|ttl_ms| Unit::Millis.duration("ttl", ttl_ms)).transpose()?;
            server.hold(request.name(), ttl)?;
        }
        "release" => server.release(request.name())?,
        "wipe" => server.wipe(),
        "advance" => server.advance(Unit::Millis.duration("by", request.by_ms)?),
        "set_available" => server.set_available(request.available),
        _ => return Err("no such action at a server".into()),
    }
    Ok(())
}

/// The state of a lock's guard, if there is one.
fn state(lock: u64) -> Value {
    let guard = GUARDS.of(lock).ok();
    // The clock is read first, so that `remaining` never counts from a later instant than is meant.
    let read_ns = now_ns();
    let remaining_ms = guard.as_deref().map_or(0.0, |guard| ms(with!(guard, guard => guard.remaining())));
    let held = guard.as_deref().is_some_and(|guard| with!(guard, guard => guard.is_held()));
    let (fence, slot) = guard.map_or((None, None), |guard| (guard.fence(), guard.slot()));
    json!({"read_ns": read_ns, "held": held, "remaining_ms": remaining_ms, "fence": fence, "slot": slot})
}

/// Campaigns and leads. A body that fails panics, so it runs apart.
async fn run(face: Which, candidate: Arc<Candidate>, request: &Request) -> Result<Value, Failure> {
    let (lingers, detaches) = (request.lingers, request.detaches);
    let outcome = match face {
        Face::Async(()) if lingers => return Err("a body that is dropped does not linger".into()),
        Face::Async(()) => {
            let runtime = Handle::current();
            // If this call is cancelled, the election is dropped too.
            let (_call, cancelled) = oneshot::channel::<()>();
            spawn_blocking(move || runtime.block_on(campaign(candidate, detaches, cancelled))).await.ok()
        }
        Face::Blocking(()) => catch_unwind(AssertUnwindSafe(|| now(candidate.run(lingers, detaches)))).ok(),
    };
    Ok(match outcome {
        Some(result) => json!({"result": result?}),
        None => json!({"failed": true}),
    })
}

/// Campaigns until the end, or until the call is cancelled.
async fn campaign(
    candidate: Arc<Candidate>,
    detaches: bool,
    cancelled: oneshot::Receiver<()>,
) -> Result<Option<u64>, Error> {
    tokio::select! {
        result = candidate.run(false, detaches) => result,
        _ = cancelled => Ok(None),
    }
}

/// The result of a future that blocks instead of waiting.
fn now<T>(call: impl Future<Output = T>) -> T {
    let mut result = None;
    face::complete(async { result = Some(call.await) });
    result.expect("it is complete")
}

/// Performs what is about locks of others.
async fn look(request: &Request) -> Result<Value, Failure> {
    let (client, _) = CLIENTS.of(request.client)?;
    Ok(match request.op.as_str() {
        "inspect" => {
            let view = client.inspect(request.name()).await?;
            viewed(&view)
        }
        "inspect_semaphore" => {
            let views = client.inspect_semaphore(request.name(), request.permits()?).await?;
            json!({"views": views.iter().map(viewed).collect::<Vec<_>>()})
        }
        "list_locks" => {
            let views = client.list_locks(request.name(), request.most).await?;
            json!({"views": views.iter().map(viewed).collect::<Vec<_>>()})
        }
        "wait_free" => {
            let timeout = request.timeout.get("timeout_ms").filter(|value| !value.is_null());
            let timeout = timeout.map(|value| duration("timeout", value)).transpose()?;
            json!({"free": client.wait_free(request.name(), timeout).await?})
        }
        _ => {
            let view = client.break_lock(request.name(), request.slot).await?;
            json!({"views": view.iter().map(viewed).collect::<Vec<_>>()})
        }
    })
}

/// Performs what is about an election.
async fn elect(face: Which, request: &Request) -> Result<Value, Failure> {
    if request.op == "election" {
        let (client, _) = CLIENTS.of(request.client)?;
        let election = both!(client, client => set_election!(client.election(request.name()), &request.options));
        return Ok(CANDIDATES.put(request.id, Arc::new(Candidate::new(election))));
    }
    let candidate = CANDIDATES.of(request.election)?;
    Ok(match request.op.as_str() {
        "run" => return run(face, candidate, request).await,
        "terms" => json!({"terms": candidate.terms(), "stopped": candidate.election.is_stopped()}),
        "end_term" => {
            candidate.end(request.fail);
            json!({})
        }
        "stop" => {
            candidate.election.stop();
            json!({})
        }
        _ => json!({"leader": leading(candidate.election.leader().await?)}),
    })
}

/// Drops what is behind a handle.
fn forget(handle: u64) -> Value {
    drop((LOCKS.take(handle), GUARDS.take(handle), CANDIDATES.take(handle), CLIENTS.take(handle)));
    json!({})
}

async fn attach(request: &Request) -> Result<Value, Failure> {
    let (client, default) = CLIENTS.of(request.client)?;
    let lock = Lock::new(&client, default, request)?;
    let guard = lock.clone().acquire(&Map::new()).await?;
    LOCKS.put(request.id, lock);
    GUARDS.put(request.id, Arc::new(guard));
    let mut answer = state(request.id);
    answer["handle"] = request.id.into();
    Ok(answer)
}

pub(crate) async fn perform(face: Which, request: Request) -> Result<Value, Failure> {
    let client = || CLIENTS.of(request.client);
    let lock = || LOCKS.of(request.lock);
    let guard = || GUARDS.of(request.lock);
    let won = |guard| {
        GUARDS.put(request.lock, Arc::new(guard));
        let mut answer = state(request.lock);
        answer["acquired"] = true.into();
        answer
    };
    Ok(match request.op.as_str() {
        "client" => {
            let builder = both!(face::builder(face), builder => {
                let builder = match &request.nodes {
                    Some(nodes) => builder.nodes(nodes),
                    None => builder,
                };
                set_client!(builder, &request.options)
            });
            CLIENTS.put(request.id, (builder.build()?, is_setnx(&request.options, false)?))
        }
        "lock" | "lock_all" | "semaphore" => {
            let (client, default) = client()?;
            let setnx = is_setnx(&request.options, default)?;
            LOCKS.put(request.id, Lock::new(&client, setnx, &request)?)
        }
        "attach" => attach(&request).await?,
        "detach" => json!({"text": guard()?.detach(request.ttl_ms).await?}),
        "acquire" => won(lock()?.acquire(&request.timeout).await?),
        "try_acquire" => lock()?.try_acquire().await?.map_or_else(|| json!({"acquired": false}), won),
        "is_locked" => json!({"is_locked": lock()?.is_locked().await?}),
        "extend" => {
            guard()?.extend(request.ttl_ms).await?;
            state(request.lock)
        }
        "release" => {
            let guard = Arc::into_inner(GUARDS.take(request.lock)?).ok_or("the guard is in use")?;
            with!(guard, guard => guard.release().await)?;
            json!({})
        }
        "leave" => {
            drop(GUARDS.take(request.lock)?);
            json!({})
        }
        "names" => guard()?.named()?,
        "check" => with!(&*guard()?, guard => guard.check()).map(|()| json!({}))?,
        "state" => state(request.lock),
        "wait_lost" => {
            let limit = Duration::from_millis(request.limit_ms);
            let lost = with!(&*guard()?, guard => guard.wait_lost(limit).await);
            json!({"lost": lost.as_ref().map(described), "told_ns": now_ns()})
        }
        "inspect" | "inspect_semaphore" | "list_locks" | "wait_free" | "break_lock" => look(&request).await?,
        "election" | "run" | "terms" | "end_term" | "stop" | "leader" => elect(face, &request).await?,
        "diagnose" => {
            let diagnoses = client()?.0.diagnose().await?;
            json!({"nodes": diagnoses.iter().map(diagnosed).collect::<Vec<_>>()})
        }
        "stats" => measured(&redlock::stats()),
        "count_by_name" => {
            redlock::count_by_name(request.most);
            json!({})
        }
        "events" => json!({"events": heard()}),
        "spans" => json!({"spans": spans()}),
        "cancel" if matches!(face, Face::Async(())) => {
            // The call may have ended.
            if let Ok(cancel) = CANCELS.take(request.call) {
                let _ = cancel.send(());
            }
            json!({})
        }
        "forget" => forget(request.handle),
        "live" => json!({"live": HEAP.allocated(), "tasks": RUNTIME.metrics().num_alive_tasks()}),
        "server" => {
            let server = Arc::new(MemoryServer::new());
            let mut answer = SERVERS.put(request.id, Arc::clone(&server));
            answer["url"] = server.url().into();
            answer
        }
        "at_server" => {
            let server = SERVERS.of(request.server)?;
            at_server(&server, &request)?;
            json!({})
        }
        "lose" => {
            let reason = LostReason::ALL.into_iter().find(|reason| reason.as_str() == request.reason);
            let reason = reason.ok_or("an unknown reason does not compile")?;
            with!(&*guard()?, guard => guard.lose(reason));
            json!({})
        }
        "close" => {
            let (client, _) = client()?;
            client.close(Duration::from_millis(request.limit_ms)).await;
            json!({})
        }
        _ => return Err("no such op on this face".into()),
    })
}
