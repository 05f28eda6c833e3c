//! The front of a name's queue: attempts over the background's connections for waiting, asleep between them.
//!
//! What may interrupt it: the call is cancelled, or its timeout ends. Then its count at the nodes is taken back.

use std::mem;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::acquire::counted::Count;
use crate::acquire::wakeup::Wakeup;
use crate::acquire::{Acquire, Step};
use crate::error::Error;
use crate::hold::owner::LeaseOwner;
use crate::net::ballots::Ballots;
use crate::process::nodes::NodeSet;
use crate::process::waiters::{SharedOutcome, Waiter};
use crate::protocol::outage::Outage;
use crate::protocol::positions::{Positions, Sought};
use crate::protocol::shape::Names;

impl Acquire {
    /// Attempts at the front, asleep between attempts, until won or failed.
    pub(super) async fn in_front(&mut self, waiter: &Waiter) -> Result<LeaseOwner, Error> {
        loop {
            let set = self.context.set().into_owned();
            if let Some(owner) = self.in_front_on(&set, waiter).await? {
                return Ok(owner);
            }
        }
    }

    /// Does as [`Acquire::in_front`], until another set than this one has the lock.
    async fn in_front_on(&mut self, set: &NodeSet, waiter: &Waiter) -> Result<Option<LeaseOwner>, Error> {
        let clock = self.context.process.clock.clone();
        let hearing = set.waiting_connections(&Handle::current());
        let mut wakeup = Wakeup::new(self.context.clone(), set, Arc::clone(&hearing));
        let is_slot = self.context.spec.names.permits().is_some();
        // Who asks for slots is told by their bell alone.
        let connections = if is_slot { set.connections(&Handle::current()) } else { hearing };
        let positions = Arc::new(self.positions(waiter, connections.members.len()));
        self.state.positions = Some(Arc::clone(&positions));
        if mem::take(&mut self.defers) {
            wakeup.defer(&positions, self.deadline).await;
        }
        let counted = Count::new(&self.context, &connections, &positions).until_dropped();
        loop {
            if clock.now() >= self.deadline {
                return Err(self.over_unseen());
            }
            // A new connection is a change too, but not for a waiter that has not asked over it yet.
            connections.connect_quorum(connections.connect_limit().min(self.deadline)).await;
            wakeup.note();
            let step = self.attempt(&connections).await;
            if matches!(step, Ok(Step::Won(_))) {
                // A quorum has answered. Those behind are told of it until the next front knows more.
                self.last = Some(Arc::new(Ballots::won(connections.members.len())));
                self.outage = Outage::default();
            }
            let known = self.context.spec.names.are_shared().then(|| Arc::clone(&positions));
            waiter.publish(SharedOutcome { ballots: self.last.clone(), outage: self.outage, positions: known });
            match step? {
                Step::Won(owner) => {
                    // Whoever released the lock has ended the count.
                    counted.cancel();
                    return Ok(Some(owner));
                }
                // What comes next is told elsewhere.
                Step::Denied(..) if self.context.has_moved(&connections) => return Ok(None),
                Step::Denied(ballots, pause) => {
                    self.meter.record_wait();
                    if is_slot {
                        let wait = wakeup.wait_for_slot(&connections, pause, &positions, self.deadline);
                        self.free = Box::pin(wait).await;
                    } else {
                        wakeup.wait(&ballots, pause, &positions, self.deadline).await;
                    }
                }
                Step::Later(pause) => {
                    self.meter.record_wait();
                    wakeup.sleep(clock.now().after(pause).min(self.deadline)).await;
                }
            }
            if self.context.has_moved(&connections) {
                return Ok(None);
            }
        }
    }

    /// Returns the positions of a call that has come to the front of `waiter`'s queue.
    fn positions(&self, waiter: &Waiter, nodes: usize) -> Positions {
        let sought = match self.context.spec.names {
            Names::One(_) | Names::All(..) => Sought::Alone,
            Names::Semaphore(..) => Sought::Slot,
            Names::Shared(_) => Sought::Shared,
        };
        let former = waiter.latest().positions.filter(|former| sought == Sought::Shared && former.nodes() == nodes);
        former.map_or_else(|| Positions::new(nodes, sought), |former| Positions::behind(&former, self.meter.began))
    }
}
