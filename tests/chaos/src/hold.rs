//! One hold of a lock, from its acquire to its release or loss, as it is written down.

use std::sync::Arc;
use std::time::Duration;

use face::GuardRef;
use redlock::{Error, ErrorKind, LostReason};
use serde_json::{Value, json};

use crate::Fault;
use crate::asked::Asked;
use crate::journal::now_ns;
use crate::worker::Worker;

/// By how much more must remain than before, so that a renewal is worth a line, in nanoseconds.
const RENEWED_NS: u64 = 50_000_000;
/// By how much a planted fault is wrong.
const TOO_LONG: Duration = Duration::from_secs(1);

pub(crate) struct Hold {
    worker: Arc<Worker>,
    client: String,
    pub(crate) asked: Asked,
    pub(crate) fence: u64,
    slot: Option<u32>,
    until_ns: u64,
    pub(crate) lost: bool,
}

impl Hold {
    pub(crate) fn begin(worker: &Arc<Worker>, client: &str, asked: &Asked, asked_ns: u64, guard: GuardRef<'_>) -> Self {
        // The clock is read first: the recorded end of validity must not be later than the library means it.
        let at_ns = now_ns();
        let too_long = if worker.args.fault == Some(Fault::Validity) { TOO_LONG } else { Duration::ZERO };
        let until_ns = at_ns + nanos(guard.remaining() + too_long);
        let slot = guard.slot().map(|slot| if worker.args.fault == Some(Fault::WrongSlot) { 0 } else { slot });
        let (worker, client, asked) = (Arc::clone(worker), client.into(), asked.clone());
        let hold = Self { worker, client, asked, fence: guard.fence(), slot, until_ns, lost: false };
        hold.record("acquire", (asked_ns, at_ns), true, Some(until_ns), None);
        hold
    }

    /// What the store has under this lock.
    pub(crate) fn stored(&self) -> Vec<String> {
        match self.slot {
            Some(slot) => vec![format!("{}#{slot}", self.asked.name())],
            None => self.asked.names.clone(),
        }
    }

    /// Records the lock's own view of its state.
    pub(crate) fn look(&mut self, guard: GuardRef<'_>) {
        if self.worker.args.fault == Some(Fault::Renewal) {
            let at_ns = now_ns();
            return self.extended(at_ns, at_ns + nanos(self.worker.ttl()));
        }
        if let Err(error) = guard.check() {
            return self.failed("check", 0, &error);
        }
        let at_ns = now_ns();
        let until_ns = at_ns + nanos(guard.remaining());
        if until_ns > self.until_ns + RENEWED_NS {
            self.extended(at_ns, until_ns);
        }
    }

    /// Records the result of an extension by hand.
    pub(crate) fn extend_ended(&mut self, asked_ns: u64, result: Result<(), Error>, guard: GuardRef<'_>) {
        match result {
            Ok(()) => {
                let at_ns = now_ns();
                self.extended(asked_ns, at_ns + nanos(guard.remaining()));
            }
            Err(error) => self.failed("extend", asked_ns, &error),
        }
    }

    /// Records that the lock is detached, and lasts until then, also if the process ends.
    pub(crate) fn detached(&mut self, asked_ns: u64, until_ns: u64) {
        self.extended(asked_ns, until_ns);
        let line = json!({"event": "releasing", "client": self.client, "at_ns": until_ns});
        self.worker.journal.write(&line);
    }

    /// Records that the lock was not detached.
    pub(crate) fn detach_failed(&mut self, asked_ns: u64, error: &Error) {
        self.failed("extend", asked_ns, error);
    }

    /// Records that the release begins. This ends the hold even if the process does not see the call return.
    pub(crate) fn releasing(&self) -> u64 {
        let at_ns = now_ns();
        self.worker.journal.write(&json!({"event": "releasing", "client": self.client, "at_ns": at_ns}));
        at_ns
    }

    /// Records the result of a release.
    pub(crate) fn release_ended(&mut self, asked_ns: u64, result: Result<(), Error>) {
        match result {
            Ok(()) => self.record("release", (asked_ns, now_ns()), true, None, None),
            Err(error) => self.failed("release", asked_ns, &error),
        }
    }

    /// Records a release of which only an election knows that it failed.
    pub(crate) fn gave_up(&self, asked_ns: u64) {
        self.record("release", (asked_ns, now_ns()), false, None, None);
    }

    /// The holder knows that the lock is lost.
    pub(crate) fn tell_lost(&mut self, error: &Error) {
        if !self.lost && matches!(self.worker.args.fault, None | Some(Fault::WrongSlot)) {
            self.lost = true;
            let at_ns = now_ns();
            self.record("lost", (at_ns, at_ns), true, None, error.reason());
            complain(&self.worker, &self.client, "hold", error);
        }
    }

    fn extended(&mut self, asked_ns: u64, until_ns: u64) {
        self.until_ns = until_ns;
        self.record("extend", (asked_ns, now_ns()), true, Some(until_ns), None);
    }

    fn failed(&mut self, call: &str, asked_ns: u64, error: &Error) {
        if error.kind() == ErrorKind::Lost && call != "release" {
            return self.tell_lost(error);
        }
        // The hold ended when its release began, whatever the result.
        self.record(call, (asked_ns, now_ns()), false, None, None);
        complain(&self.worker, &self.client, call, error);
    }

    fn record(&self, kind: &str, span_ns: (u64, u64), ok: bool, until_ns: Option<u64>, reason: Option<LostReason>) {
        let call = Call {
            client: &self.client,
            asked: &self.asked,
            kind,
            span_ns,
            ok,
            fence: Some(self.fence),
            slot: self.slot,
            until_ns,
            reason,
        };
        self.worker.journal.write(&call.line());
    }
}

/// The record of a call that returned.
pub(crate) struct Call<'a> {
    pub(crate) client: &'a str,
    pub(crate) asked: &'a Asked,
    pub(crate) kind: &'a str,
    pub(crate) span_ns: (u64, u64),
    pub(crate) ok: bool,
    pub(crate) fence: Option<u64>,
    pub(crate) slot: Option<u32>,
    pub(crate) until_ns: Option<u64>,
    pub(crate) reason: Option<LostReason>,
}

impl<'a> Call<'a> {
    /// Returns the record of an acquire that won nothing.
    pub(crate) fn denied(client: &'a str, asked: &'a Asked, asked_ns: u64) -> Self {
        let span_ns = (asked_ns, now_ns());
        Self {
            client,
            asked,
            kind: "acquire",
            span_ns,
            ok: false,
            fence: None,
            slot: None,
            until_ns: None,
            reason: None,
        }
    }

    pub(crate) fn line(&self) -> Value {
        let mut line = json!({
            "client": self.client,
            "name": self.asked.name(),
            "kind": self.kind,
            "invoke_ns": self.span_ns.0,
            "return_ns": self.span_ns.1,
            "ok": self.ok,
            "fence": self.fence,
            "valid_until_ns": self.until_ns,
        });
        let slot = self.slot.map(|slot| json!(slot));
        let reason = self.reason.map(|reason| json!(reason.as_str()));
        self.asked.tell(&mut line);
        for (field, value) in [("slot", slot), ("reason", reason)] {
            if let Some(value) = value {
                line[field] = value;
            }
        }
        line
    }
}

/// Reports a failed call.
pub(crate) fn complain(worker: &Worker, client: &str, call: &str, error: &Error) {
    worker.journal.write(&json!({
        "event": "error",
        "client": client,
        "call": call,
        "at_ns": now_ns(),
        "code": error.code(),
        "message": error.to_string(),
        "reason": error.reason().map(LostReason::as_str),
    }));
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than 500 years")
}
