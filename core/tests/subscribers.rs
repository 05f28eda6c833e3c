//! Losses, while the program's log subscriber blocks or panics.
#![allow(clippy::disallowed_methods, reason = "the end of a lock is waited for in real time")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use harness::eventually;
use redlock::{Guard, LostReason, Redlock, blocking};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

const TTL: Duration = Duration::from_secs(1);

/// A subscriber that blocks at some losses until they are let go, and panics at others.
struct Subscriber;

static BLOCKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static LET_GO: Condvar = Condvar::new();

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
        let mut blocked = BLOCKED.lock().unwrap();
        while blocked.contains(&name) {
            blocked = LET_GO.wait(blocked).unwrap();
        }
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
    tokio::time::timeout(harness::LIMIT, guard.lost()).await.ok().and_then(|error| error.reason())
}

#[test]
fn a_subscriber_that_blocks_keeps_no_loss_from_being_told() {
    harness::alone!();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(losses_behind_a_blocked_event());
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
        assert_eq!(guard.wait_lost(harness::LIMIT).unwrap().reason(), Some(LostReason::Expired));
        // The release was begun before that.
        redlock.lock(name).timeout(harness::LIMIT).acquire().unwrap().release().unwrap();
    }
    let before = renewed.remaining();
    eventually("it is renewed", || renewed.remaining() > before);
    renewed.release().unwrap();
}
