//! One hold of a lock, from its acquire to its release or loss, as it is written down.

use std::sync::Arc;
use std::time::Duration;

use redlock::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::Fault;
use crate::journal::now_ns;
use crate::worker::Worker;

/// By how much more must remain than before, so that a renewal is worth a line, in nanoseconds.
const RENEWED_NS: u64 = 50_000_000;
/// By how much a planted fault is wrong.
const TOO_LONG: Duration = Duration::from_secs(1);

pub(crate) struct Hold {
    worker: Arc<Worker>,
    client: String,
    pub(crate) name: String,
    pub(crate) fence: u64,
    until_ns: u64,
    pub(crate) lost: bool,
}

impl Hold {
    pub(crate) fn begin(
        worker: &Arc<Worker>,
        client: &str,
        name: &str,
        asked_ns: u64,
        fence: u64,
        remaining: impl FnOnce() -> Duration,
    ) -> Self {
        // The clock is read first: the recorded end of validity must not be later than the library means it.
        let at_ns = now_ns();
        let too_long = if worker.args.fault == Some(Fault::Validity) { TOO_LONG } else { Duration::ZERO };
        let until_ns = at_ns + nanos(remaining() + too_long);
        let (worker, client, name) = (Arc::clone(worker), client.into(), name.into());
        let hold = Self { worker, client, name, fence, until_ns, lost: false };
        hold.record("acquire", (asked_ns, at_ns), true, Some(until_ns));
        hold
    }

    /// Records the lock's own view of its state.
    pub(crate) fn look(&mut self, check: &Result<(), Error>, remaining: impl FnOnce() -> Duration) {
        if self.worker.args.fault == Some(Fault::Renewal) {
            let at_ns = now_ns();
            return self.extended(at_ns, at_ns + nanos(self.worker.ttl()));
        }
        if let Err(error) = check {
            return self.failed("check", 0, error);
        }
        let at_ns = now_ns();
        let until_ns = at_ns + nanos(remaining());
        if until_ns > self.until_ns + RENEWED_NS {
            self.extended(at_ns, until_ns);
        }
    }

    /// Records the result of an extension by hand.
    pub(crate) fn extend_ended(&mut self, asked_ns: u64, result: Result<(), Error>, remaining: impl Fn() -> Duration) {
        match result {
            Ok(()) => {
                let at_ns = now_ns();
                self.extended(asked_ns, at_ns + nanos(remaining()));
            }
            Err(error) => self.failed("extend", asked_ns, &error),
        }
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
            Ok(()) => self.record("release", (asked_ns, now_ns()), true, None),
            Err(error) => self.failed("release", asked_ns, &error),
        }
    }

    /// The holder knows that the lock is lost.
    pub(crate) fn tell_lost(&mut self, error: &Error) {
        if !self.lost && self.worker.args.fault.is_none() {
            self.lost = true;
            let at_ns = now_ns();
            self.record("lost", (at_ns, at_ns), true, None);
            complain(&self.worker, &self.client, "hold", error);
        }
    }

    fn extended(&mut self, asked_ns: u64, until_ns: u64) {
        self.until_ns = until_ns;
        self.record("extend", (asked_ns, now_ns()), true, Some(until_ns));
    }

    fn failed(&mut self, call: &str, asked_ns: u64, error: &Error) {
        if error.kind() == ErrorKind::Lost && call != "release" {
            return self.tell_lost(error);
        }
        // The hold ended when its release began, whatever the result.
        self.record(call, (asked_ns, now_ns()), false, None);
        complain(&self.worker, &self.client, call, error);
    }

    fn record(&self, kind: &str, span_ns: (u64, u64), ok: bool, until_ns: Option<u64>) {
        let call =
            Call { client: &self.client, name: &self.name, kind, span_ns, ok, fence: Some(self.fence), until_ns };
        self.worker.journal.write(&call.line());
    }
}

/// The record of a call that returned.
pub(crate) struct Call<'a> {
    pub(crate) client: &'a str,
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) span_ns: (u64, u64),
    pub(crate) ok: bool,
    pub(crate) fence: Option<u64>,
    pub(crate) until_ns: Option<u64>,
}

impl Call<'_> {
    pub(crate) fn line(&self) -> Value {
        json!({
            "client": self.client,
            "name": self.name,
            "kind": self.kind,
            "invoke_ns": self.span_ns.0,
            "return_ns": self.span_ns.1,
            "ok": self.ok,
            "fence": self.fence,
            "valid_until_ns": self.until_ns,
        })
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
        "reason": error.reason().map(redlock::LostReason::as_str),
    }));
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than 500 years")
}
