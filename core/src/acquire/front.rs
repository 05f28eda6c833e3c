//! The front of a name's queue: attempts over the background's connections for waiting, asleep between them.
//!
//! What may interrupt it: the call is cancelled, or its timeout ends. Then its count at the nodes is taken back.

use std::mem;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::acquire::wakeup::Wakeup;
use crate::acquire::{Acquire, Step};
use crate::error::Error;
use crate::hold::owner::LeaseOwner;
use crate::net::ballots::Ballots;
use crate::net::connections::Connections;
use crate::net::footprint::Footprint;
use crate::net::round::{Event, Round};
use crate::process::context::LockContext;
use crate::process::nodes::NodeSet;
use crate::process::waiters::{SharedOutcome, Waiter};
use crate::protocol::outage::Outage;
use crate::protocol::positions::{Positions, Sought};
use crate::protocol::quorum::NodeMask;
use crate::protocol::request::{Action, Request};
use crate::protocol::shape::Names;
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

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
        let counted = Counted { context: &self.context.clone(), connections: &connections, positions: &positions };
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
                    counted.end();
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
        former.map_or_else(|| Positions::new(nodes, sought), |former| Positions::behind(&former, self.meter.began()))
    }
}

/// The count of a front at the nodes, which it takes back when this is dropped: when it gives up, or is cancelled. What is
/// asked is executed behind its last attempt, on the same connections. A count that is not taken back keeps readers away
/// until it expires.
struct Counted<'a> {
    context: &'a LockContext,
    connections: &'a Arc<Connections>,
    positions: &'a Positions,
}

impl Counted<'_> {
    /// Keeps the count: the lock is won, and whoever released it has ended the count.
    fn end(self) {
        mem::forget(self);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let nodes = self.positions.to_withdraw();
        // Of several names, it is not known which one counts the waiter.
        if nodes == NodeMask::NONE || self.context.spec.keys.are_several() {
            return;
        }
        let (context, connections) = (self.context.clone(), Arc::clone(self.connections));
        let (process, footprint) = (Arc::clone(&context.process), Arc::new(Footprint::new(connections.members.len())));
        process.background.spawn(async move {
            let mut round = Round::new(&connections, &footprint, context.spec.settings.node_timeout, Moment::NEVER);
            let token = Token::fresh(&context.process.random);
            for node in (0..connections.members.len()).filter(|node| nodes.contains(*node)) {
                let keys = Arc::clone(&context.spec.keys);
                round.ask(node, Request { keys, token, action: Action::Withdraw }, None);
            }
            while let Some(Event::Vote(..)) = round.next().await {}
        });
    }
}
