//! A lock that a hand hands over to one of another language: the same hold in the records; see `hand.py`.

use std::time::Duration;

use face::{Guard, both};
use redlock::{DetachedLock, Error, ErrorKind};
use serde_json::{Value, json};

use crate::hand::{BUSY, Hand, LOOK};
use crate::hold::{Hold, nanos};
use crate::journal::now_ns;
use crate::worker::{Epoch, Shape};

/// For how long the nodes keep a lock that is detached.
const GIVEN: Duration = Duration::from_secs(3);
/// What has to be left of it to take it.
const TAKEN: Duration = Duration::from_secs(1);
/// How long a hand waits until its lock is taken.
const OFFERED: Duration = Duration::from_millis(500);
/// How often a hand looks whether one is offered.
const TAKES: f64 = 0.1;

/// Looks for a lock that another language offers, goes on with its hold and releases it. Returns whether there was one.
pub(crate) async fn take(hand: &mut Hand, epoch: &Epoch) -> bool {
    if !epoch.hands_over() || hand.rng.f64() >= TAKES {
        return false;
    }
    let Some(offered) = hand.store.take() else { return false };
    let parts: Vec<_> = offered.split(' ').collect();
    let [giver, until_ns, shape, text] = parts[..] else { panic!("an offer has four parts: {offered}") };
    let until_ns = until_ns.parse().expect("a time");
    let state = if attach(hand, text, until_ns, shape == "shared").await { "over" } else { "gone" };
    hand.store.finished(giver, state);
    true
}

/// Detaches the lock, and waits until another hand has released it.
pub(crate) async fn hand_over(hand: &mut Hand, hold: &mut Hold, guard: Guard) {
    let asked_ns = now_ns();
    let text: DetachedLock = match guard.detach_for(GIVEN).await {
        Ok(text) => text,
        Err(error) => {
            hold.detach_failed(asked_ns, &error);
            let asked_ns = hold.releasing();
            return hold.release_ended(asked_ns, guard.release().await);
        }
    };
    drop(guard);
    let valid = GIVEN.mul_f64(0.99).saturating_sub(Duration::from_millis(2) + hold.asked.margin);
    let until_ns = asked_ns + nanos(valid);
    hold.detached(asked_ns, until_ns);
    let shape = serde_json::to_value(hold.asked.shape).expect("a shape is a word");
    hand.store.give(until_ns, shape.as_str().expect("a word"), text.as_str());
    let back_ns = now_ns() + nanos(OFFERED);
    loop {
        let state = hand.store.given();
        let is_late = state == "open" && (now_ns() > back_ns || hand.worker.epoch().is_none());
        if state == "over" {
            return;
        }
        if is_late && hand.store.withdraw() {
            if !attach(hand, text.as_str(), until_ns, hold.asked.shape == Shape::Shared).await {
                hold.gave_up(now_ns());
            }
            return;
        }
        if state == "gone" {
            return hold.gave_up(now_ns());
        }
        hand.redlock.sleep(LOOK).await;
    }
}

/// Goes on with the hold of another hand, and releases it. Returns whether it could.
async fn attach(hand: &mut Hand, text: &str, until_ns: u64, is_shared: bool) -> bool {
    let asked_ns = now_ns();
    if asked_ns + nanos(TAKEN) > until_ns {
        return false;
    }
    let lock = both!(hand.redlock.attach(text), lock => lock.timeout(TAKEN / 2));
    let guard = match lock.acquire().await {
        Ok(guard) => guard,
        Err(error) => {
            say(hand, 0, Some(&error));
            return false;
        }
    };
    let at_ns = now_ns();
    let valid_ns = at_ns + nanos(guard.lend().remaining());
    let names: Vec<_> = guard.names().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let (fence, slot) = (guard.fence(), guard.slot());
    let mut of = json!({"client": hand.client, "name": names.join(", "), "fence": fence, "valid_until_ns": null});
    if names.len() > 1 {
        of["names"] = json!(names);
    }
    if is_shared {
        of["shared"] = json!(true);
    }
    if let Some(slot) = slot {
        of["slot"] = json!(slot);
    }
    let more = json!({"valid_until_ns": valid_ns, "attached": true});
    record(hand, &of, "extend", (asked_ns, at_ns), true, more);
    let stored = slot.map_or_else(|| names.clone(), |slot| vec![format!("{}#{slot}", names[0])]);
    let values: Vec<_> = stored.iter().map(|name| hand.store.read(name, fence)).collect();
    hand.redlock.sleep(BUSY.mul_f64(hand.rng.f64())).await;
    for (name, value) in stored.iter().zip(values) {
        if let Some(value) = value.filter(|_| !is_shared && guard.lend().is_held()) {
            hand.store.write(name, fence, value + 1);
        }
    }
    let asked_ns = now_ns();
    let error = guard.release().await.err();
    // If that fails, it has not relied on the lock for longer, although it may have been stopped.
    let over_ns = asked_ns.min(valid_ns.max(until_ns));
    let span_ns = if error.is_none() { (asked_ns, now_ns()) } else { (over_ns, over_ns) };
    record(hand, &of, "release", span_ns, error.is_none(), json!({}));
    say(hand, 1, error.as_ref());
    true
}

/// Records a call on the hold of another hand.
fn record(hand: &Hand, of: &Value, kind: &str, span_ns: (u64, u64), ok: bool, more: Value) {
    let mut line = of.clone();
    let call = json!({"kind": kind, "invoke_ns": span_ns.0, "return_ns": span_ns.1, "ok": ok});
    for fields in [call, more] {
        let Value::Object(fields) = fields else { unreachable!("it is made so") };
        line.as_object_mut().expect("it is made so").extend(fields);
    }
    hand.worker.journal.write(&line);
}

/// Tells what came of it.
fn say(hand: &Hand, acquired: u32, error: Option<&Error>) {
    let lost = u32::from(acquired > 0 && error.is_some_and(|error| error.kind() == ErrorKind::Lost));
    let code = error.map(Error::code);
    hand.worker.journal.write(&json!({"event": "attached", "acquired": acquired, "lost": lost, "code": code}));
}
