//! An election in which a hand runs: until its term is over, or until it is stopped.

use face::{Face, GuardRef, both, complete};
use redlock::Error;
use serde_json::json;

use crate::asked::{Asked, PATIENCE};
use crate::hand::Hand;
use crate::hold::{Hold, complain};
use crate::journal::now_ns;

struct Campaign<'a> {
    hand: &'a mut Hand,
    asked: &'a Asked,
    /// The term, unless it campaigns.
    term: Option<Hold>,
    /// Since when it campaigns, or has.
    asked_ns: u64,
    /// When its last term came to its end.
    left_ns: u64,
}

/// Runs in an election, and stops after a while.
pub(crate) async fn campaign(hand: &mut Hand, asked: &Asked) {
    let election = both!(&hand.redlock, client => {
        client.election(&asked.names[0]).ttl(asked.ttl).margin(asked.margin)
    });
    let limit = PATIENCE.mul_f64(hand.rng.f64());
    let asked_ns = hand.ask(asked, now_ns());
    let mut campaign = Campaign { hand, asked, term: None, asked_ns, left_ns: 0 };
    let ended = match election {
        Face::Async(election) => {
            let stopping = election.clone();
            let stop = tokio::spawn(async move {
                tokio::time::sleep(limit).await;
                stopping.stop();
            });
            let ended = election.run(async |guard| campaign.lead(Face::Async(guard), || false).await).await;
            stop.abort();
            ended.map(drop)
        }
        Face::Blocking(election) => {
            let stopping = election.clone();
            let stop = std::thread::spawn(move || {
                std::thread::park_timeout(limit);
                stopping.stop();
            });
            let ended = election.run(|guard| complete(campaign.lead(Face::Blocking(guard), || election.is_stopped())));
            stop.thread().unpark();
            stop.join().expect("it did not panic");
            ended.map(drop)
        }
    };
    campaign.over(ended).await;
}

impl Campaign<'_> {
    /// One term.
    async fn lead(&mut self, guard: GuardRef<'_>, is_over: impl Fn() -> bool) {
        if let Some(before) = self.term.take() {
            // Only its release found out that it was lost.
            before.gave_up(self.left_ns);
            self.say("resigned");
            self.asked_ns = self.hand.ask(self.asked, self.left_ns);
        }
        let Hand { worker, client, .. } = &*self.hand;
        self.term = Some(Hold::begin(worker, client, self.asked, self.asked_ns, guard));
        let leading = Leading { campaign: self, guard };
        let Campaign { hand, term, .. } = &mut *leading.campaign;
        hand.work(term.as_mut().expect("it leads"), guard, is_over).await;
    }

    /// Records the end of the election.
    async fn over(mut self, ended: Result<(), Error>) {
        if let Err(error) = ended {
            complain(&self.hand.worker, &self.hand.client, "acquire", &error);
        }
        if let Some(mut term) = self.term.take() {
            term.release_ended(self.left_ns, Ok(()));
            self.say("resigned");
        } else {
            self.hand.denied(self.asked, self.asked_ns).await;
            self.say("stopped");
        }
    }

    fn say(&self, event: &str) {
        self.hand.worker.journal.write(&json!({"event": event, "client": self.hand.client}));
    }
}

/// A term while it lasts. It also ends where it is dropped, because it is lost or because the election is stopped.
struct Leading<'a, 'b> {
    campaign: &'a mut Campaign<'b>,
    guard: GuardRef<'a>,
}

impl Drop for Leading<'_, '_> {
    fn drop(&mut self) {
        let Campaign { hand, asked, term, asked_ns, left_ns } = &mut *self.campaign;
        let Some(hold) = term else { return };
        hold.look(self.guard);
        *left_ns = hold.releasing();
        if hold.lost {
            hold.release_ended(*left_ns, Ok(()));
            *asked_ns = hand.ask(asked, *left_ns);
            *term = None;
        }
    }
}
