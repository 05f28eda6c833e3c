//! The completion queue of one environment.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{Either, Either5, Function, Object};
use napi_derive::napi;
use redlock::Error;
use redlock::bindings::calls::{self as engine, Taken};
use redlock::bindings::completion_queue::{Completion, Queue as Completions};
use redlock::bindings::lock_object::{AbandonedHold, LockObject};
use redlock::bindings::options::Unit;

use crate::client::{Client, Listing, LockView, Name, Names, NodeDiagnosis, Template, bytes};
use crate::convert::number;
use crate::error::Failure;
use crate::events::{Listener, NativeEvents};
use crate::options::{Timeout, read_timeout, read_whole};
use crate::sockets::Sockets;
use crate::table::{Numbered, Table};
use crate::wake::Wake;

thread_local! {
    static QUEUES: Table<Rc<Calls>> = Table::default();
}

/// Calls in the background, and their results. One queue per environment: each worker thread has its own. Other
/// functions take its number.
#[derive(Debug)]
#[napi]
pub struct Queue(Numbered<Rc<Calls>>);

/// The calls and the lock objects of one environment.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Dropped before the descriptor is closed.
    sockets: OnceCell<Sockets>,
    completions: Completions,
    wake: Arc<Wake>,
    events: Rc<Listener>,
    /// The number of calls that JavaScript waits for. The process is kept alive while there are any.
    pending: Cell<u64>,
    objects: RefCell<BTreeMap<i64, Arc<LockObject>>>,
    /// Locks that stay held until the environment ends, because their objects were garbage-collected.
    abandoned: RefCell<Vec<AbandonedHold>>,
}

/// The id of the started call, or the reason why it could not start.
#[napi]
pub type Started = Either<i64, Failure>;

/// The result of a call that is ready.
type Result5 = Option<Either5<&'static str, Vec<LockView>, Vec<NodeDiagnosis>, Detached, Failure>>;

/// A detached lock.
#[napi(object, object_from_js = false)]
#[expect(missing_debug_implementations, reason = "the text is not shown")]
pub struct Detached {
    /// Its text, which is a credential.
    pub text: String,
}

#[napi]
impl Queue {
    /// Makes a queue that calls `wake` soon after calls became ready or events came. One wake-up may stand for many.
    /// `resource` stands for it in `async_hooks`.
    #[napi(constructor, catch_unwind)]
    pub fn new(env: Env, wake: Function<'_, (), ()>, resource: Object<'_>) -> napi::Result<Self> {
        crate::shut_down_at_exit();
        let drain = wake;
        let wake = Arc::new(Wake::new(env, drain, resource)?);
        let waker = Arc::clone(&wake);
        let completions = Completions::watching(move || waker.call());
        let events = Listener::join(&wake);
        let calls = Rc::new(Calls {
            sockets: OnceCell::new(),
            completions,
            wake,
            events,
            pending: Cell::default(),
            objects: RefCell::default(),
            abandoned: RefCell::default(),
        });
        let watched = Rc::downgrade(&calls);
        let turn = move || watched.upgrade().is_some_and(|calls| calls.completions.turn());
        if let Some(fd) = calls.completions.sockets()
            && let Some(sockets) = Sockets::watch(env, fd, turn, &drain, &resource)?
        {
            let _ = calls.sockets.set(sockets);
            calls.completions.begin_to_watch();
        }
        Ok(Self(Numbered::new(&QUEUES, calls)))
    }

    /// Returns its number.
    #[napi(catch_unwind)]
    pub fn number(&self) -> i64 {
        self.0.number()
    }
}

impl Calls {
    /// Returns the queue with this number.
    pub(crate) fn of(number: i64) -> napi::Result<Rc<Self>> {
        Table::get(&QUEUES, number)
    }

    pub(crate) fn find(&self, lock: i64) -> Option<Arc<LockObject>> {
        self.objects.borrow().get(&lock).cloned()
    }

    pub(crate) fn object(&self, lock: i64) -> napi::Result<Arc<LockObject>> {
        self.find(lock).ok_or_else(|| napi::Error::from_reason("bug in redlock: a number without a lock"))
    }

    pub(crate) fn add(&self, lock: i64, object: Arc<LockObject>) {
        let before = self.objects.borrow_mut().insert(lock, object);
        drop(before);
    }

    pub(crate) fn remove(&self, lock: i64) -> Option<Arc<LockObject>> {
        self.objects.borrow_mut().remove(&lock)
    }

    /// Keeps a hold whose object was garbage-collected, and forgets those that have ended.
    pub(crate) fn keep(&self, hold: AbandonedHold) {
        let mut abandoned = self.abandoned.borrow_mut();
        abandoned.retain(AbandonedHold::is_held);
        abandoned.push(hold);
    }

    /// Starts `call` and counts it. Returns what JavaScript is told.
    fn start(&self, env: Env, call: Result<engine::Call, Error>) -> napi::Result<Started> {
        self.started(env, call.and_then(|call| self.completions.start(call)))
    }

    /// Counts a call that was started, and returns what JavaScript is told.
    fn started(&self, env: Env, id: Result<u64, Error>) -> napi::Result<Started> {
        match id {
            Ok(id) => {
                self.begin(env)?;
                Ok(Either::A(number(id)))
            }
            Err(error) => Ok(Either::B(error.into())),
        }
    }

    fn begin(&self, env: Env) -> napi::Result<()> {
        let pending = self.pending.get();
        self.pending.set(pending + 1);
        if pending == 0 { self.wake.keep_alive(env, true) } else { Ok(()) }
    }

    fn end(&self, env: Env, calls: usize) -> napi::Result<()> {
        let before = self.pending.get();
        let pending = before.saturating_sub(calls as u64);
        self.pending.set(pending);
        if pending == 0 && before > 0 { self.wake.keep_alive(env, false) } else { Ok(()) }
    }
}

/// Starts an acquire. Makes the object `lock` as `makeLock` does, unless it exists or the acquire cannot start.
#[napi(catch_unwind)]
pub fn acquire(
    env: Env,
    queue: i64,
    lock: i64,
    template: i64,
    names: Names,
    released: bool,
    timeout: Timeout,
) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    let known = calls.find(lock);
    let is_known = known.is_some();
    let object = match known {
        Some(object) => object,
        None => Template::named(template, &names, released)?,
    };
    let id = read_timeout(timeout).and_then(|timeout| calls.completions.acquire(&object, timeout));
    if !is_known && id.is_ok() {
        calls.add(lock, object);
    }
    calls.started(env, id)
}

/// Has the end of a body release the present hold.
#[napi(catch_unwind)]
pub fn begin_body(queue: i64, lock: i64) -> napi::Result<()> {
    Calls::of(queue)?.object(lock)?.begin_block();
    Ok(())
}

/// Starts an extension to `ttl`, or by the ttl in force.
#[napi(catch_unwind)]
pub fn extend(env: Env, queue: i64, lock: i64, ttl: Option<f64>) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    let object = calls.object(lock)?;
    let ttl = ttl.map(|ttl| Unit::Millis.duration("ttl", ttl)).transpose();
    calls.started(env, ttl.and_then(|ttl| calls.completions.extend(&object, ttl)))
}

/// Starts to end the hold without a release, after an extension to `ttl` if there is one. The result has the text.
#[napi(catch_unwind)]
pub fn detach(env: Env, queue: i64, lock: i64, ttl: Option<f64>) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    let object = calls.object(lock)?;
    let ttl = ttl.map(|ttl| Unit::Millis.duration("ttl", ttl)).transpose();
    calls.started(env, ttl.and_then(|ttl| calls.completions.detach(&object, ttl)))
}

/// Starts a release, `at_exit` of a block one that fails only if the lock was lost. Drops the object if there was anything
/// to release, unless it is to be `kept` for a watch.
#[napi(catch_unwind)]
pub fn release(env: Env, queue: i64, lock: i64, at_exit: bool, kept: bool) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    let object = calls.object(lock)?;
    let completions = &calls.completions;
    let id = if at_exit { completions.release_at_exit(&object) } else { completions.release(&object) };
    if id.is_ok() && !kept && (!at_exit || object.is_released()) {
        drop(calls.remove(lock));
    }
    calls.started(env, id)
}

/// Starts an inspection of a name.
#[napi(catch_unwind)]
pub fn inspect(env: Env, queue: i64, client: &Client, name: Name) -> napi::Result<Started> {
    Calls::of(queue)?.start(env, engine::inspect(&client.0, bytes(&name)))
}

/// Starts an inspection of the slots of a semaphore.
#[napi(catch_unwind)]
pub fn inspect_semaphore(env: Env, queue: i64, client: &Client, name: Name, permits: f64) -> napi::Result<Started> {
    let call =
        read_whole("permits", permits).and_then(|permits| engine::inspect_semaphore(&client.0, bytes(&name), permits));
    Calls::of(queue)?.start(env, call)
}

/// Starts to read the next locks of a listing. The result is an array, which is empty at the end.
#[napi(catch_unwind)]
pub fn list_page(env: Env, queue: i64, listing: &Listing) -> napi::Result<Started> {
    Calls::of(queue)?.start(env, engine::list_page(&listing.0))
}

/// Starts to wait until a lock is free. The result is `free`, or `locked` at the end of the timeout.
#[napi(catch_unwind)]
pub fn wait_free(env: Env, queue: i64, client: &Client, name: Name, timeout: Timeout) -> napi::Result<Started> {
    let timeout = read_timeout(timeout);
    Calls::of(queue)?
        .start(env, timeout.and_then(|timeout| engine::wait_free(&client.0, bytes(&name), timeout.flatten())))
}

/// Starts to delete a lock that somebody else holds. The result is an array with whose it was, or with nothing.
#[napi(catch_unwind)]
pub fn break_lock(env: Env, queue: i64, client: &Client, name: Name, slot: Option<f64>) -> napi::Result<Started> {
    let slot = slot.map(|slot| read_whole("slot", slot)).transpose();
    Calls::of(queue)?.start(env, slot.and_then(|slot| engine::break_lock(&client.0, bytes(&name), slot)))
}

/// Starts a diagnosis of every node.
#[napi(catch_unwind)]
pub fn diagnose(env: Env, queue: i64, client: &Client) -> napi::Result<Started> {
    Calls::of(queue)?.start(env, engine::diagnose(&client.0))
}

/// Closes a client, and starts to wait for the release of its locks.
#[napi(catch_unwind)]
pub fn close(env: Env, queue: i64, client: &Client, limit: f64) -> napi::Result<Started> {
    Calls::of(queue)?.start(env, Unit::Millis.duration("limit", limit).map(|limit| engine::close(&client.0, limit)))
}

/// Starts to ask the nodes whether anybody holds the lock.
#[napi(catch_unwind)]
pub fn is_locked(env: Env, queue: i64, lock: i64) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    calls.start(env, calls.object(lock)?.is_locked())
}

/// Starts to read whose the lock is. Fails if too few nodes answer to know.
#[napi(catch_unwind)]
pub fn view(env: Env, queue: i64, lock: i64) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    calls.start(env, calls.object(lock)?.view())
}

/// Starts to wait for the end of the current hold. The result is the failure of a loss, or null for a release.
#[napi(catch_unwind)]
pub fn wait_lost(env: Env, queue: i64, lock: i64) -> napi::Result<Started> {
    let calls = Calls::of(queue)?;
    calls.start(env, calls.object(lock)?.wait_lost(None))
}

/// Returns an id that becomes ready each time the object loses the lock, and once more when the object is dropped.
#[napi(catch_unwind)]
pub fn watch(queue: i64, lock: i64) -> napi::Result<i64> {
    let calls = Calls::of(queue)?;
    Ok(number(calls.completions.subscribe_to_losses(&calls.object(lock)?)))
}

/// Cancels a call that was not taken yet, and leaves no key behind.
#[napi(catch_unwind)]
pub fn cancel(env: Env, queue: i64, id: i64) -> napi::Result<()> {
    let calls = Calls::of(queue)?;
    calls.completions.cancel(call_number(id));
    calls.end(env, 1)
}

/// Returns the ids that became ready. An id is negative if the call succeeded and there is nothing to take. With
/// `takes`, the won locks are taken too. If nothing else is ready, 0 stands for events.
#[napi(catch_unwind)]
pub fn drain(env: Env, queue: i64, takes: bool) -> napi::Result<Vec<i64>> {
    let calls = Calls::of(queue)?;
    let ready = if takes { calls.completions.drain_and_take() } else { calls.completions.drain(|| ()) };
    calls.end(env, ready.iter().filter(|completion| matches!(completion, Completion::Done(_))).count())?;
    // Events have a wake-up of their own. What a program does with them must not delay callers whose locks are taken.
    if ready.is_empty() && calls.events.has_events() {
        return Ok(vec![0]);
    }
    Ok(ready.into_iter().map(Completion::signed).collect())
}

/// Takes the result of a call that is ready: null if the call succeeded, `locked` or `free` if it asked for that,
/// `again` if it is not finished and its id becomes ready once more.
#[napi(
    catch_unwind,
    ts_return_type = "null | 'again' | 'locked' | 'free' | Array<LockView> | Array<NodeDiagnosis> | Detached | Failure"
)]
pub fn take(env: Env, queue: i64, id: i64) -> napi::Result<Result5> {
    let calls = Calls::of(queue)?;
    // This comes first, so that no failure of the next line keeps the process alive.
    calls.end(env, 1)?;
    let taken = calls.completions.take(call_number(id));
    if matches!(taken, Ok(Taken::Pending)) {
        calls.begin(env)?;
    }
    Ok(match taken {
        Ok(Taken::Completed) => None,
        Ok(Taken::Views(views)) => Some(Either5::B(views.into_iter().map(LockView::from).collect())),
        Ok(Taken::Diagnoses(found)) => Some(Either5::C(found.into_iter().map(NodeDiagnosis::from).collect())),
        Ok(Taken::IsLocked(is_locked)) => Some(Either5::A(if is_locked { "locked" } else { "free" })),
        Ok(Taken::Detached(detaching)) => Some(Either5::D(Detached { text: detaching.into_text() })),
        Ok(Taken::Pending) => Some(Either5::A("again")),
        Ok(_) => Some(Either5::E(calls.completions.ended().into())),
        Err(error) => Some(Either5::E(error.into())),
    })
}

/// Takes the loss that an id of `watch` stands for. Returns false if the object was dropped.
#[napi(catch_unwind)]
pub fn take_loss(queue: i64, id: i64) -> napi::Result<bool> {
    Ok(!matches!(Calls::of(queue)?.completions.take(call_number(id)), Ok(Taken::Cancelled)))
}

/// Takes the events of this environment. Leaves out those that neither are about one of `topics` nor warn.
#[napi(catch_unwind)]
pub fn take_events(queue: i64, topics: Vec<String>) -> napi::Result<NativeEvents> {
    Ok(Calls::of(queue)?.events.take(&topics))
}

/// Converts an id from JavaScript. A negative one is wrong, and becomes an id that no call has.
fn call_number(id: i64) -> u64 {
    u64::try_from(id).unwrap_or(u64::MAX)
}
