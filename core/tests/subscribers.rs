//! Locks, while the program's log subscriber blocks, panics or makes calls itself.
#![allow(clippy::disallowed_methods, reason = "the end of a lock is waited for in real time")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use harness::{LIMIT, eventually};
use redlock::{ErrorKind, Guard, LostReason, Redlock, blocking};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use crate::suite::current_thread;

const TTL: Duration = Duration::from_secs(1);

/// A subscriber that blocks at some losses until they are let go. It panics at others, or makes a call.
struct Subscriber;

static BLOCKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static LET_GO: Condvar = Condvar::new();
/// What the call of the subscriber was answered.
static ANSWER: Mutex<Option<ErrorKind>> = Mutex::new(None);
/// The losses that the subscriber has heard of.
static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has the subscriber block when the loss of `name` is logged.
fn block(name: &str) {
    static START: Once = Once::new();
    START.call_once(|| tracing::subscriber::set_global_default(Subscriber).unwrap());
    BLOCKED.lock().unwrap().insert(name.to_owned());
}

fn let_go(name: &str) {
    BLOCKED.lock().unwrap().remove(name);
    LET_GO.notify_all();
}

impl Visit for Subscriber {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let name = format!("{value:?}");
        if field.name() != "name" {
            return;
        }
        assert!(!name.starts_with("panics"), "on purpose");
        if name.starts_with("calls") {
            *ANSWER.lock().unwrap() = Some(blocking_call());
        }
        let mut blocked = BLOCKED.lock().unwrap();
        while blocked.contains(&name) {
            blocked = LET_GO.wait(blocked).unwrap();
        }
        HEARD.lock().unwrap().push(name);
    }
}

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("redlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Subscriber);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Waits for the loss as it is told; to ask whether the lock is held would end it on this thread.
async fn told(guard: &Guard) -> Option<LostReason> {
    tokio::time::timeout(LIMIT, guard.lost()).await.ok().and_then(|error| error.reason())
}

#[test]
fn a_subscriber_that_blocks_keeps_no_loss_from_being_told() {
    harness::alone!();
    current_thread().block_on(losses_behind_a_blocked_event());
}

async fn losses_behind_a_blocked_event() {
    let redlock = Redlock::new("memory://hold-blocks").unwrap();
    let names = ["blocks 1", "blocks 2", "blocks 3"];
    let mut guards = Vec::new();
    for name in names {
        block(name);
        guards.push(redlock.lock(name).ttl(TTL / 4).auto_renew(false).acquire().await.unwrap());
    }
    let end = guards.iter().map(|guard| Instant::now() + guard.remaining()).max().unwrap();
    // While its own event is not let go.
    let first = told(&guards[0]).await;
    // The background hears of nothing until the others have ended, too: two losses are found at once.
    eventually("all have ended", || Instant::now() > end);
    // A busy machine finds the second loss with the first one, and its event would then stand before the third loss.
    if tokio::time::timeout(Duration::ZERO, guards[1].lost()).await.is_ok() {
        let_go(names[1]);
    }
    let_go(names[0]);
    let others = tokio::join!(told(&guards[1]), told(&guards[2]));
    for name in names {
        let_go(name);
    }
    assert_eq!((first, others), (Some(LostReason::Expired), (Some(LostReason::Expired), Some(LostReason::Expired))));
}

#[test]
fn a_subscriber_that_panics_ends_no_renewal_and_no_later_loss() {
    harness::alone!();
    block("nothing");
    let redlock = blocking::Redlock::new("memory://hold-panics").unwrap();
    // Long enough for the backtraces of two panics.
    let renewed = redlock.lock("renewed").ttl(3 * TTL).acquire().unwrap();
    for name in ["panics 1", "panics 2"] {
        let guard = redlock.lock(name).ttl(TTL / 10).auto_renew(false).acquire().unwrap();
        assert_eq!(guard.wait_lost(LIMIT).unwrap().reason(), Some(LostReason::Expired));
        // The release was begun before that.
        redlock.lock(name).timeout(LIMIT).acquire().unwrap().release().unwrap();
    }
    let before = renewed.remaining();
    eventually("it is renewed", || renewed.remaining() > before);
    renewed.release().unwrap();
}

/// The answer to an acquire that blocks the calling thread.
fn blocking_call() -> ErrorKind {
    let redlock = blocking::Redlock::new("memory://hold-calls").unwrap();
    redlock.lock("called").acquire().unwrap_err().kind()
}

/// A waker that makes a call on the thread that wakes it.
struct Calls(Sender<(Option<String>, ErrorKind)>);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        drop(self.0.send((thread::current().name().map(str::to_owned), blocking_call())));
    }
}

/// Loses a lock of this name, and returns once that is reported.
fn lose(redlock: &blocking::Redlock, name: &str) {
    let guard = redlock.lock(name).ttl(TTL / 10).auto_renew(false).acquire().unwrap();
    assert_eq!(guard.wait_lost(LIMIT).unwrap().reason(), Some(LostReason::Expired));
}

#[test]
fn a_subscriber_that_blocks_costs_no_other_lock() {
    harness::alone!();
    block("blocks");
    let redlock = blocking::Redlock::new("memory://hold-goes-on").unwrap();
    let renewed = redlock.lock("renewed").ttl(TTL).acquire().unwrap();
    lose(&redlock, "blocks");
    let end = Instant::now() + 2 * TTL;
    eventually("its ttl is over", || Instant::now() > end);
    let is_held = renewed.is_held();
    let_go("blocks");
    assert!(is_held);
    renewed.release().unwrap();
}

#[test]
fn a_call_that_blocks_a_thread_of_the_library_is_refused() {
    harness::alone!();
    block("nothing");
    let redlock = blocking::Redlock::new("memory://hold-calls").unwrap();
    lose(&redlock, "calls");
    eventually("the subscriber has its answer", || ANSWER.lock().unwrap().is_some());
    assert_eq!(*ANSWER.lock().unwrap(), Some(ErrorKind::InvalidArgument));

    let (sender, answer) = channel();
    let waker = Waker::from(Arc::new(Calls(sender)));
    let runtime = current_thread();
    let redlock = Redlock::new("memory://hold-calls").unwrap();
    let lock = redlock.lock("woken").ttl(TTL / 10).auto_renew(false);
    let guard = runtime.block_on(lock.acquire()).unwrap();
    let mut lost = pin!(guard.lost());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let (thread, kind) = answer.recv_timeout(LIMIT).unwrap();
    assert_eq!((thread.as_deref(), kind), (Some("redlock"), ErrorKind::InvalidArgument));
}

/// It may be the last thing of its thread, which has forgotten everything else.
#[test]
fn a_guard_is_dropped_at_the_end_of_its_thread() {
    thread_local! {
        static GUARD: RefCell<Option<blocking::Guard>> = const { RefCell::new(None) };
    }
    harness::alone!();
    tracing_subscriber::fmt().with_writer(std::io::sink).init();
    let redlock = blocking::Redlock::new("memory://hold-to-the-end").unwrap();
    let holds = redlock.clone();
    thread::spawn(move || {
        assert!(GUARD.take().is_none());
        GUARD.set(Some(holds.lock("foo").acquire().unwrap()));
    })
    .join()
    .unwrap();
    redlock.lock("foo").timeout(LIMIT).acquire().unwrap().release().unwrap();
}

#[test]
fn a_shutdown_waits_for_the_subscriber_up_to_its_limit() {
    harness::alone!();
    block("is slow");
    let redlock = blocking::Redlock::new("memory://hold-shutdown").unwrap();
    for name in ["is slow", "comes after it"] {
        lose(&redlock, name);
    }
    let lets_go = thread::spawn(|| {
        thread::sleep(TTL / 10);
        let_go("is slow");
    });
    redlock::shutdown();
    assert_eq!(*HEARD.lock().unwrap(), ["is slow", "comes after it"]);
    lets_go.join().unwrap();
}

#[test]
fn a_subscriber_that_blocks_holds_up_no_shutdown() {
    harness::alone!();
    block("blocks");
    let redlock = blocking::Redlock::new("memory://hold-no-shutdown").unwrap();
    lose(&redlock, "blocks");
    redlock::shutdown();
    assert!(HEARD.lock().unwrap().is_empty());
    let_go("blocks");
}
