//! A candidate of an election: it campaigns, leads for a while, loses, and campaigns again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::testing::simulation::Pace;
use redlock::{Election, ErrorKind, Guard};

use crate::asked::Asked;
use crate::book::{Pen, Pending, Tenure, Won, nanos};
use crate::client::{CONNECT, Task, cancelled, valid_until_ns};
use crate::shape::{CONTESTED, NAMES, Shape};

/// A candidate, and the campaign that it is in.
struct Candidate {
    pen: Pen,
    pace: Pace,
    asked: Asked,
    /// How long it leads in each term, and whether it resigns then, or waits until its term ends.
    plans: Vec<(Duration, bool)>,
    pending: Option<Pending>,
    /// Whether its clock may stand still.
    stalls: bool,
}

/// What a body owns of it. A body that borrowed anything could not be sent to another thread.
type Shared = Arc<Mutex<Candidate>>;

fn open(candidate: &Shared) -> MutexGuard<'_, Candidate> {
    candidate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A term of a candidate. When it is dropped, its body has ended, and the lock is about to be released.
struct Term<'a> {
    candidate: Shared,
    guard: &'a Guard,
    tenure: Tenure,
    acquired_ns: u64,
    /// When its validity was looked at last, and until when it is valid, as last written down.
    looked_ns: u64,
    until_ns: u64,
}

impl Drop for Term<'_> {
    fn drop(&mut self) {
        self.look();
        let mut candidate = open(&self.candidate);
        match self.guard.check() {
            Err(error) if error.kind() == ErrorKind::Lost => {
                candidate.pen.note(&error.to_string());
                self.tenure.lost(error.reason());
            }
            _ => self.tenure.release(),
        }
        // If it does not return by this, it campaigns again.
        candidate.pending = Some(candidate.asked.pending(&candidate.pen));
    }
}

/// The body of a term.
async fn lead(candidate: Shared, guard: &Guard) {
    let (pen, tenure, (leads, resigns), ttl, until_ns) = {
        let mut candidate = open(&candidate);
        candidate.asked.compare(&candidate.pen, guard);
        let Some(pending) = candidate.pending.take() else {
            return candidate.pen.flaw("a term begins without a campaign");
        };
        let term = Won { is_term: true, ..candidate.asked.won(&candidate.pen, candidate.pace, guard) };
        let plan = candidate.plans.pop().unwrap_or((Duration::ZERO, true));
        (candidate.pen.clone(), pending.win(&term), plan, candidate.asked.ttl, term.until_ns)
    };
    let acquired_ns = pen.now_ns();
    let mut term = Term { candidate, guard, tenure, acquired_ns, looked_ns: acquired_ns, until_ns };
    let over = acquired_ns + nanos(leads);
    pen.doing("leads");
    // Else until the loss ends it, or its caller does.
    while !resigns || pen.now_ns() < over {
        let step = ttl / 20;
        pen.world.sleep(if resigns { step.min(Duration::from_nanos(over - pen.now_ns())) } else { step }).await;
        term.look();
    }
    drop(term);
}

impl Term<'_> {
    /// Writes down a renewal, which came since the last look, and was asked for up to a ttl before its end.
    fn look(&mut self) {
        let candidate = open(&self.candidate);
        let Candidate { pen, pace, asked, stalls, .. } = &*candidate;
        let until_ns = valid_until_ns(pen, *pace, self.guard);
        if until_ns > self.until_ns + 1_000 && !stalls {
            let asked_ns = until_ns.saturating_sub(nanos(pace.passes(asked.ttl)));
            self.tenure.extended(self.looked_ns.min(asked_ns).max(self.acquired_ns), until_ns);
            self.until_ns = until_ns;
        }
        self.looked_ns = pen.now_ns();
    }
}

impl Task {
    /// A candidate for a few terms.
    pub(crate) async fn elect(&mut self) {
        let name = self.dice.pick(&NAMES[..CONTESTED]);
        let (shape, client, margin) = (Shape::One(name), self.client(), self.margin());
        let election = client.election(name).ttl(self.ttl).margin(margin);
        let asked = Asked { margin, ..Asked::plainly(shape.lock(&client), shape, self.ttl) };
        let longest = self.dice.pick(&[20, 300, 3_000]);
        let terms = self.dice.between(1, 3);
        let plans: Vec<_> = (0..terms).map(|_| (self.dice.millis(0, longest), self.dice.chance(700))).collect();
        let (patience, stops) = (self.patience_mostly(), self.dice.millis(0, 6_000));
        self.pen.begins(&format!("is a candidate for {}, and stops after {stops:?}", asked.told()));
        let (pen, pace, pending) = (self.pen.clone(), self.pace, Some(asked.pending(&self.pen)));
        let candidate = Arc::new(Mutex::new(Candidate { pen, pace, asked, plans, pending, stalls: self.stalls }));
        let result = {
            let body = Arc::clone(&candidate);
            let run = Box::pin(election.run(async move |guard: &Guard| lead(Arc::clone(&body), guard).await));
            let running = async {
                tokio::select! {
                    biased;
                    result = run => Some(result),
                    () = stop_after(&self.pen, &election, stops) => None,
                }
            };
            cancelled(&self.pen.world, running, patience).await.flatten()
        };
        let has_led = u64::try_from(open(&candidate).plans.len()).unwrap_or(0) < terms;
        if let Some(pending) = open(&candidate).pending.take() {
            pending.fail();
        }
        match result {
            None => self.pen.note("is a candidate no more"),
            Some(Ok(None)) if election.is_stopped() => {}
            Some(Ok(Some(()))) if has_led => {}
            Some(result) => self.pen.flaw(&format!("an election ended with {result:?}")),
        }
        self.ask_for_leader(&election).await;
    }

    async fn ask_for_leader(&mut self, election: &Election) {
        self.pen.begins("asks who leads");
        let (invoke_ns, patience) = (self.pen.now_ns(), self.patience_mostly());
        let Some(result) = cancelled(&self.pen.world, election.leader(), patience).await else { return };
        self.in_time("leader", invoke_ns, CONNECT + Duration::from_millis(500));
        match result {
            Ok(Some(leader)) if leader.term.is_some() != self.one_node => {
                self.pen.flaw(&format!("leader answers {leader:?}"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Unavailable => self.pen.note(&error.to_string()),
            Err(error) => self.pen.flaw(&format!("leader failed with {error}")),
        }
    }
}

/// Stops an election after a while.
async fn stop_after(pen: &Pen, election: &Election, after: Duration) {
    pen.world.sleep(after).await;
    pen.note("stops its election");
    election.stop();
    std::future::pending::<()>().await;
}
