//! A candidate of an election, whose body lasts until the test ends it.

use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use face::{Election, Face, GuardRef};
use redlock::{DetachedLock, Error, Guard, blocking};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::json::{described, now_ns};

/// How often a body looks whether it leads.
const POLL: Duration = Duration::from_millis(5);

/// The ttl of a detached term.
const DETACHED: Duration = Duration::from_secs(60);

pub(crate) struct Candidate {
    pub(crate) election: Election,
    terms: Mutex<Vec<Value>>,
    /// Whether the body should fail, once the test has ended its term.
    end: Mutex<Option<bool>>,
    ended: Notify,
}

impl Candidate {
    pub(crate) fn new(election: Election) -> Self {
        Self { election, terms: Mutex::default(), end: Mutex::default(), ended: Notify::new() }
    }

    /// Every term so far.
    pub(crate) fn terms(&self) -> Value {
        self.lock_terms().clone().into()
    }

    /// Ends the present term.
    pub(crate) fn end(&self, fails: bool) {
        *self.end.lock().expect("no panic while it is held") = Some(fails);
        self.ended.notify_one();
    }

    /// Campaigns and leads until the end; panics if the body fails. A body that `detaches` first tries to hand its term over.
    pub(crate) async fn run(&self, lingers: bool, detaches: bool) -> Result<Option<u64>, Error> {
        match &self.election {
            Face::Async(election) => {
                // It is large.
                Box::pin(election.run(async |guard: &Guard| self.wait(guard, detaches).await)).await
            }
            Face::Blocking(election) => {
                Ok(election.run(|guard: &blocking::Guard| self.poll(guard, lingers, detaches))?.flatten())
            }
        }
    }

    /// The body of the async face.
    async fn wait(&self, guard: &Guard, detaches: bool) -> u64 {
        let term = self.begin(Face::Async(guard));
        if detaches {
            term.detached(guard.detach_for(DETACHED).await);
        }
        loop {
            if let Some(fails) = self.take_end() {
                return term.over(fails);
            }
            let _ = timeout(POLL, self.ended.notified()).await;
            term.look();
        }
    }

    /// The body of the blocking face, which nothing ends from outside.
    fn poll(&self, guard: &blocking::Guard, lingers: bool, detaches: bool) -> Option<u64> {
        let term = self.begin(Face::Blocking(guard));
        if detaches {
            term.detached(guard.detach_for(DETACHED));
        }
        while guard.is_held() && !self.election.is_stopped() {
            if let Some(fails) = self.take_end() {
                return Some(term.over(fails));
            }
            drop(guard.wait_lost(POLL));
            term.look();
        }
        drop(term);
        while lingers && self.take_end().is_none() {
            sleep(POLL);
        }
        None
    }

    fn begin<'a>(&'a self, guard: GuardRef<'a>) -> Term<'a> {
        self.take_end();
        let (fence, began_ns) = (guard.fence(), now_ns());
        let valid_until_ns = began_ns + guard.remaining().as_nanos();
        self.lock_terms().push(json!({
            "fence": fence, "began_ns": began_ns, "valid_until_ns": valid_until_ns,
            "over_ns": null, "how": null, "lost": null,
        }));
        Term { candidate: self, guard, how: "cut" }
    }

    fn take_end(&self) -> Option<bool> {
        self.end.lock().expect("no panic while it is held").take()
    }

    fn lock_terms(&self) -> MutexGuard<'_, Vec<Value>> {
        self.terms.lock().expect("no panic while it is held")
    }
}

/// The present term, which is over when this is dropped.
struct Term<'a> {
    candidate: &'a Candidate,
    guard: GuardRef<'a>,
    how: &'static str,
}

impl Term<'_> {
    /// Notes until when it is valid, or that it is lost.
    fn look(&self) {
        let (read_ns, checked, remaining) = (now_ns(), self.guard.check(), self.guard.remaining());
        let mut terms = self.candidate.lock_terms();
        let term = terms.last_mut().expect("this one");
        match checked {
            Ok(()) => term["valid_until_ns"] = json!(read_ns + remaining.as_nanos()),
            Err(error) => term["lost"] = described(&error),
        }
    }

    /// Tells what became of the attempt to hand it over.
    fn detached(&self, tried: Result<DetachedLock, Error>) {
        let mut terms = self.candidate.lock_terms();
        terms.last_mut().expect("this one")["detach"] = tried.err().map(|error| error.code()).into();
    }

    /// Ends as the test says; returns the result of the body.
    fn over(mut self, fails: bool) -> u64 {
        self.how = if fails { "failed" } else { "returned" };
        if fails {
            // The test wants it, so there is nothing to write about it.
            resume_unwind(Box::new("the body failed"));
        }
        self.guard.fence()
    }
}

impl Drop for Term<'_> {
    fn drop(&mut self) {
        self.look();
        let mut terms = self.candidate.lock_terms();
        let term = terms.last_mut().expect("this one");
        term["over_ns"] = json!(now_ns());
        term["how"] = self.how.into();
    }
}
