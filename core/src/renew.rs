//! Renewal and local loss: the agenda of all held locks, and of claims whose answers are awaited, kept by the
//! background.
//!
//! One task sleeps until the soonest thing that is due, a renewal or the end of a validity. A lock that is acquired and
//! released before anything of it is due costs an entry in a map and wakes nobody, because the task is woken only for
//! something sooner than what it sleeps for. A loss is told from here, by the clock, without waiting for any reply.
//!
//! A claim whose release answers nobody may ever hear stays on the agenda for `node_timeout`, for the same price.
//!
//! What may interrupt it: a release or a loss takes the lock's entry away; a renewal on its way is a task of its own,
//! and finds the lock not held when it comes back; after a fork the child's agenda is another, empty one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::backoff;
use crate::cleanup::Claim;
use crate::clock::{Alarm, Moment};
use crate::extend::{self, Extended};
use crate::fault::{Fault, planted};
use crate::held::{Due, Held};
use crate::lane::Members;
use crate::process::Process;

/// The agenda of one process.
#[derive(Debug, Default)]
pub(crate) struct Renewal {
    agenda: Mutex<Agenda>,
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Agenda {
    entries: BTreeMap<(Moment, u64), Item>,
    next: u64,
    /// What the task sleeps until; `None` before it is started.
    sleeping: Option<Moment>,
}

/// What is due.
#[derive(Debug)]
enum Item {
    /// A held lock is renewed, or ends.
    Lock(Arc<Held>),
    /// A claim is dropped: what is still unanswered of its releases is owed from then on.
    Claim(#[expect(dead_code, reason = "held to be dropped")] Claim),
}

impl Renewal {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().expect("no panic while holding this")
    }

    /// Does what is due about a held lock, and gives it its one place on the agenda. The background is woken only if
    /// that is the soonest entry.
    pub(crate) fn add(&self, held: &Arc<Held>) {
        let process = &held.place.process;
        // Decided and entered in one step, so that of two threads the one that knows more comes last.
        let agenda = self.agenda();
        match held.due(process.clock.now()) {
            Due::Later(due) => self.enter(agenda, held, due),
            Due::Renew(end) => {
                self.enter(agenda, held, end);
                renew(held);
            }
            Due::Ended if planted(Fault::LossUntold) => {}
            Due::Ended => {
                drop(agenda);
                held.run_out();
            }
            Due::Over => {}
        }
    }

    fn enter(&self, mut agenda: MutexGuard<'_, Agenda>, held: &Arc<Held>, due: Moment) {
        agenda.next += 1;
        let entry = (due, agenda.next);
        if let Ok(former) = held.entered(entry) {
            if let Some(former) = former {
                agenda.entries.remove(&former);
            }
            agenda.entries.insert(entry, Item::Lock(Arc::clone(held)));
            self.look(agenda, due, &held.place.process);
        }
    }

    /// A connection to one of `members` has ended, or is back: what is held there is renewed soon.
    pub(crate) fn hasten(&self, members: &Arc<Members>) {
        let of_members = |item: &Item| match item {
            Item::Lock(held) if Arc::ptr_eq(&held.place.set.members, members) => Some(Arc::clone(held)),
            _ => None,
        };
        let concerned: Vec<_> = self.agenda().entries.values().filter_map(of_members).collect();
        let within = backoff::haste(concerned.len());
        for held in concerned.iter().filter(|held| held.hasten(within)) {
            self.add(held);
        }
    }

    /// Drops `claim` when `due`.
    pub(crate) fn drop_at(&self, claim: Claim, due: Moment) {
        let process = claim.process();
        let mut agenda = self.agenda();
        agenda.next += 1;
        let entry = (due, agenda.next);
        agenda.entries.insert(entry, Item::Claim(claim));
        self.look(agenda, due, &process);
    }

    /// Sees to it that the task looks at the agenda when something is `due`.
    fn look(&self, mut agenda: MutexGuard<'_, Agenda>, due: Moment, process: &Arc<Process>) {
        match agenda.sleeping {
            Some(sleeping) if sleeping <= due => {}
            Some(_) => {
                agenda.sleeping = Some(due);
                drop(agenda);
                self.sooner.notify_one();
            }
            None => {
                agenda.sleeping = Some(due);
                drop(agenda);
                let run = Arc::clone(process);
                process.background.spawn(async move { run.renewal.run(&run).await });
            }
        }
    }

    /// Takes an entry away.
    pub(crate) fn remove(&self, entry: Option<(Moment, u64)>) {
        if let Some(entry) = entry {
            let removed = self.agenda().entries.remove(&entry);
            drop(removed);
        }
    }

    /// Releases every lock on the agenda: the process is ending.
    pub(crate) fn give_back(&self) {
        let entries = std::mem::take(&mut self.agenda().entries);
        for item in entries.into_values() {
            if let Item::Lock(held) = item {
                // The dropped claim lets the background release.
                drop(held.begin_release());
            }
        }
    }

    async fn run(&self, process: &Arc<Process>) {
        let alarm = Alarm::new(&process.clock);
        loop {
            let now = process.clock.now();
            while let Some(item) = self.due(now) {
                if let Item::Lock(held) = item {
                    self.add(&held);
                }
            }
            let until = {
                let mut agenda = self.agenda();
                let first = agenda.entries.keys().next().map_or(Moment::NEVER, |(due, _)| *due);
                agenda.sleeping = Some(first);
                first
            };
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = alarm.ring(until) => {}
            }
        }
    }

    /// The soonest item whose time has come, taken off the agenda.
    fn due(&self, now: Moment) -> Option<Item> {
        let mut agenda = self.agenda();
        let entry = agenda.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

/// Starts one renewal.
fn renew(held: &Arc<Held>) {
    let held = Arc::clone(held);
    let process = Arc::clone(&held.place.process);
    process.background.spawn(async move {
        let lane = held.place.set.lane(&Handle::current());
        match extend::extend(&held, &lane, held.ttl()).await {
            Extended::Done | Extended::Over => {}
            Extended::Unknown(nodes) => held.unanswered(nodes),
            Extended::Lost(loss) => held.lose(loss),
        }
        held.place.process.renewal.add(&held);
    });
}
