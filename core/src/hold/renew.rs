//! Renewal and local loss: the agenda of all held locks, and of claims whose answers are awaited, kept by the
//! background.
//!
//! One task sleeps until the soonest thing that is due, a renewal or the end of a validity. A lock that is acquired and
//! released before anything of it is due costs an entry in a map and wakes nobody, because the task is woken only for
//! something sooner than what it sleeps for. A loss is told from here, by the clock, without waiting for any reply. What
//! is logged of losses comes after all that is due: a subscriber may block, and then nothing else would be told.
//!
//! A claim whose release answers nobody may ever hear stays on the agenda for the nodes' time, for the same price.
//!
//! What may interrupt it: a release or a loss takes the lock's entry away; a renewal on its way is a task of its own,
//! and finds the lock not held when it comes back; after a fork the child's agenda is another, empty one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::fault::{Fault, planted};
use crate::hold::claim::Claim;
use crate::hold::extend::{self, Extended};
use crate::hold::lease::{Due, Held, Unlogged};
use crate::hold::restore;
use crate::net::connections::Members;
use crate::process::Process;
use crate::protocol::backoff;
use crate::sys::clock::{Alarm, Moment};

/// The agenda of one process.
#[derive(Debug, Default)]
pub(crate) struct Renewal {
    agenda: Mutex<Agenda>,
    sooner: Notify,
    /// The nodes that are sought: the place of their set in memory, and the index.
    sought: Mutex<BTreeSet<(usize, usize)>>,
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

impl Item {
    /// The lock that this is, if it is held on `members`.
    fn lock_on(&self, members: &Arc<Members>) -> Option<&Arc<Held>> {
        match self {
            Self::Lock(held) if Arc::ptr_eq(&held.place.set.members, members) => Some(held),
            _ => None,
        }
    }
}

/// The search for one node, until this is dropped.
#[derive(Debug)]
pub(crate) struct Search {
    process: Arc<Process>,
    sought: (usize, usize),
}

impl Search {
    /// Begins to seek `node` of `members`; `None` if it is sought already.
    pub(crate) fn begin(process: &Arc<Process>, members: &Arc<Members>, node: usize) -> Option<Self> {
        let sought = (Arc::as_ptr(members).addr(), node);
        let is_first = process.renewal.sought().insert(sought);
        is_first.then(|| Self { process: Arc::clone(process), sought })
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.process.renewal.sought().remove(&self.sought);
    }
}

impl Renewal {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().expect("no panic while holding this")
    }

    /// Does what is due about a held lock, and gives it its one place on the agenda. The background is woken only if
    /// that is the soonest entry.
    pub(crate) fn add(&self, held: &Arc<Held>) {
        if let Some(unlogged) = self.see_to(held) {
            unlogged.log();
        }
    }

    /// As [`Renewal::add`], but a loss is not logged yet.
    fn see_to(&self, held: &Arc<Held>) -> Option<Unlogged> {
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
                return held.run_out();
            }
            Due::Over => {}
        }
        None
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

    /// The locks that are held on `members`.
    fn held_on(&self, members: &Arc<Members>) -> Vec<Arc<Held>> {
        let held_on = |item: &Item| item.lock_on(members).cloned();
        self.agenda().entries.values().filter_map(held_on).collect()
    }

    /// Whether any lock is held on `members`.
    pub(crate) fn holds_on(&self, members: &Arc<Members>) -> bool {
        self.agenda().entries.values().any(|item| item.lock_on(members).is_some())
    }

    /// A connection to `node` of `members` has ended, or is back: what is held there is renewed soon, and a node that is
    /// one of several is sought.
    pub(crate) fn hasten(&self, members: &Arc<Members>, node: usize) {
        let concerned = self.held_on(members);
        let within = backoff::haste(concerned.len());
        for held in concerned.iter().filter(|held| held.hasten(within)) {
            self.add(held);
        }
        if let Some(held) = concerned.first()
            && members.len() > 1
        {
            restore::seek(&held.place, node);
        }
    }

    /// There is a new connection to `node` of `members`: what is held and may be missing there is put there.
    pub(crate) fn reached(&self, members: &Arc<Members>, node: usize) {
        if members.len() == 1 {
            return;
        }
        let mut lacking = self.held_on(members);
        lacking.retain(|held| held.may_lack(node));
        let within = if lacking.len() == 1 { Duration::ZERO } else { backoff::haste(lacking.len()) };
        for held in &lacking {
            restore::restore(held, node, within);
        }
    }

    fn sought(&self) -> MutexGuard<'_, BTreeSet<(usize, usize)>> {
        self.sought.lock().expect("no panic while holding this")
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
        let mut unlogged = Vec::new();
        loop {
            let now = process.clock.now();
            while let Some(item) = self.due(now) {
                if let Item::Lock(held) = item {
                    unlogged.extend(self.see_to(&held));
                }
            }
            unlogged.drain(..).for_each(Unlogged::log);
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
        held.place.process.lists.used(&held.place.set.list, &held.place.spec.name);
        match extend::extend(&held, &lane, None).await {
            Extended::Done | Extended::Over => {}
            Extended::Unknown(extending, nodes) => held.unanswered(extending, nodes),
            Extended::Lost(loss) => held.lose(&loss),
        }
        held.place.process.renewal.add(&held);
    });
}
