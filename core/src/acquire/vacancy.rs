//! Finding a free slot of a semaphore: for an attempt that was denied one, and for the front of those who wait. All nodes
//! are asked which slots are free; nothing is taken. Of many slots, they are asked for a random part first, and for the
//! others only if no slot of it is free: a server does nothing else meanwhile.
//!
//! States of a wait: *listening* (the bell is read over connections that nodes notify) → *looking*, and if no slot is free
//! on a quorum, but some are on single nodes, once more to be counted there as well → *asleep* until the bell rings →
//! *pausing*, by the position → *listening*. The bell is read before the slots, so that a release after the look rings it.
//! What may interrupt it:
//!
//! - nobody rings: a holder has crashed, which the least ttl left shows, or a key was deleted by hand, for which there is
//!   the backstop of 2 s;
//! - fewer nodes than a quorum notify: it polls, with growing pauses;
//! - no quorum answers the look: an attempt, which shows that to the caller;
//! - a slot looks free again and again, and is not won: it pauses, for longer each time;
//! - the cluster has given the slots to another server: it ends;
//! - dropped anywhere: it holds only an entry in the tracking.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::wakeup::Wakeup;
use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::process::context::LockContext;
use crate::protocol::backoff;
use crate::protocol::positions::Positions;
use crate::protocol::quorum::{NodeMask, quorum};
use crate::protocol::request::{Action, Keys, Reply, Request};
use crate::protocol::shape::LOOK_MOST;
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

/// Returns one of the slots, chosen by `unit`; `None` if there is none.
pub(super) fn choose(slots: &[u32], unit: f64) -> Option<u32> {
    let number = u32::try_from(slots.len()).ok().filter(|number| *number > 0)?;
    slots.get(one_of(number, unit) as usize).copied()
}

/// Returns the slots that are in at least `needed` of these sets, in each of which a slot is once.
fn in_most(sets: &[Vec<u32>], needed: usize) -> Vec<u32> {
    let mut all = sets.concat();
    all.sort_unstable();
    all.chunk_by(|one, other| one == other).filter(|same| same.len() >= needed).map(|same| same[0]).collect()
}

/// Returns one of the numbers below `number`, chosen by `unit`.
pub(super) fn one_of(number: u32, unit: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the number")]
    let chosen = (unit * f64::from(number)) as u32;
    chosen
}

/// Returns the parts of so many slots that are looked at one after the other, from one that `unit` chooses on.
fn parts(permits: u32, unit: impl FnOnce() -> f64) -> impl Iterator<Item = Range<u32>> {
    let number = permits.div_ceil(LOOK_MOST).max(1);
    let size = permits.div_ceil(number);
    let first = if number > 1 { one_of(number, unit()) } else { 0 };
    (first..first + number).map(move |part| part % number * size).map(move |start| start..(start + size).min(permits))
}

/// What the nodes show of the slots together.
#[derive(Debug)]
pub(super) struct Looked {
    /// The slots that are free on a quorum.
    pub(super) free: Vec<u32>,
    /// Whether a node has a free slot. Such a node may not have counted who waits, unless it is told to.
    is_split: bool,
    /// How long the first key to expire on any node is kept.
    ttl_left: Option<Duration>,
    /// Whether a quorum of nodes that count has answered.
    is_answered: bool,
}

impl Wakeup {
    /// Sleeps until a slot may be free, for the time of `pause` at least, but not beyond `limit`. Returns the slots that
    /// are free. The nodes are asked over `connections`, which do not notify.
    pub(crate) async fn wait_for_slot(
        &mut self,
        connections: &Arc<Connections>,
        pause: Duration,
        positions: &Arc<Positions>,
        limit: Moment,
    ) -> Vec<u32> {
        let clock = self.connections.clock.clone();
        self.denials = self.denials.saturating_add(1);
        clock.sleep_until(clock.now().after(pause.max(self.pause_in_vain())).min(limit)).await;
        let mut polls = 0;
        // Nodes report a change once, and none is missed while it is not read again.
        let mut is_listening = false;
        loop {
            // Attempts use other connections than these, which nobody else makes.
            self.connections.connect_quorum(self.connections.connect_limit().min(limit)).await;
            let is_told = self.is_told();
            if is_told && !is_listening {
                self.note();
                self.listen(limit).await;
            }
            let mut looked = look(&self.context, connections, Some((positions, false)), limit).await;
            if looked.is_split && looked.free.is_empty() {
                looked = look(&self.context, connections, Some((positions, true)), limit).await;
            }
            if !looked.free.is_empty() {
                self.in_vain = self.in_vain.saturating_add(1);
                return looked.free;
            }
            self.in_vain = 0;
            if clock.now() >= limit || self.context.has_moved(connections) {
                return Vec::new();
            }
            if !looked.is_answered {
                // Not at once, or a node that answers attempts, and no look, would be asked without a pause.
                self.poll(polls, None, limit).await;
                return Vec::new();
            }
            if is_told {
                is_listening = self.reported(NodeMask::NONE, looked.ttl_left, positions, limit).await.is_none();
            } else {
                is_listening = false;
                self.poll(polls, looked.ttl_left, limit).await;
                polls += 1;
            }
            if clock.now() >= limit || self.context.has_moved(connections) {
                return Vec::new();
            }
        }
    }

    /// Returns how long to pause because the slots that looked free were not won. A node may show a slot that it cannot
    /// grant, for as long as it is full, or its cluster moves the slot.
    fn pause_in_vain(&self) -> Duration {
        match self.in_vain {
            0 => Duration::ZERO,
            times => backoff::contended(times - 1, self.context.process.random.unit(), None),
        }
    }

    /// Reads the bell, so that nodes report its next change.
    async fn listen(&self, limit: Moment) {
        let Some(bell) = self.context.spec.keys.bell() else { return };
        let (keys, token) = (Keys::of_key(bell), Token::fresh(&self.context.process.random));
        let request = |_| Request { keys: Arc::clone(&keys), token, action: Action::Inspect { asks: false } };
        ask(&self.context, &self.connections, limit, &request, &mut |_, _| {}).await;
    }
}

/// Asks the nodes which slots are free, part by part until one is. With positions, a waiter is counted where none is, or
/// anyway, and its positions are recorded.
///
/// It is counted with the first part: a release after that, of whichever slot, rings the bell.
pub(super) async fn look(
    context: &LockContext,
    connections: &Arc<Connections>,
    mut positions: Option<(&Arc<Positions>, bool)>,
    limit: Moment,
) -> Looked {
    let permits = context.spec.names.permits().unwrap_or(0);
    let mut all = Looked { free: Vec::new(), is_split: false, ttl_left: None, is_answered: true };
    for part in parts(permits, || context.process.random.unit()) {
        let looked = look_at(context, connections, part, positions.take(), limit).await;
        all.free = looked.free;
        all.is_split |= looked.is_split;
        all.ttl_left = all.ttl_left.into_iter().chain(looked.ttl_left).min();
        all.is_answered &= looked.is_answered;
        if !all.free.is_empty() || !all.is_answered {
            break;
        }
    }
    all
}

/// Asks the nodes which of these slots are free; see [`look`].
async fn look_at(
    context: &LockContext,
    connections: &Arc<Connections>,
    part: Range<u32>,
    positions: Option<(&Arc<Positions>, bool)>,
    limit: Moment,
) -> Looked {
    let (names, first) = (&context.spec.names, part.start);
    let slots: Arc<[Arc<Keys>]> = part.map(|slot| names.slot_keys(slot)).collect();
    let token = Token::fresh(&context.process.random);
    let started = connections.clock.now();
    let anyway = positions.is_some_and(|(_, anyway)| anyway);
    let request = |node| {
        let wants = positions.map(|(positions, _)| positions.asks(node, started));
        let action = Action::Look { slots: Arc::clone(&slots), wants, anyway };
        Request { keys: Arc::clone(&context.spec.keys), token, action }
    };
    let mut seen = vec![None; connections.members.len()];
    let mut ttl_left: Option<Duration> = None;
    ask(context, connections, limit, &request, &mut |node, reply| {
        let Reply::Slots { free, ttl_left: left, position, hold } = reply else { return };
        ttl_left = ttl_left.into_iter().chain(left).min();
        if let Some((positions, _)) = positions.filter(|_| anyway || free.is_empty()) {
            positions.given(node, position, hold);
        }
        seen[node] = Some(free.into_iter().map(|place| first + place).collect());
    })
    .await;
    let counts = connections.members.health.counts(context.spec.settings.restart_delay, connections.clock.now());
    let needed = quorum(seen.len());
    let counted = seen.into_iter().enumerate().filter(|(node, _)| counts.contains(*node));
    let counted: Vec<Vec<u32>> = counted.filter_map(|(_, seen)| seen).collect();
    let is_split = counted.iter().any(|free| !free.is_empty());
    Looked { free: in_most(&counted, needed), is_split, ttl_left, is_answered: counted.len() >= needed }
}

/// Asks every node, and reads the answers of all that are not unresponsive, until `limit`.
async fn ask(
    context: &LockContext,
    connections: &Arc<Connections>,
    limit: Moment,
    request: &(dyn Fn(usize) -> Request + Sync),
    read: &mut (dyn FnMut(usize, Reply) + Send),
) {
    let nodes = connections.members.len();
    connections.connect_quorum(connections.connect_limit().min(limit)).await;
    let mut round = Round::untraced(connections, context.spec.settings.node_timeout, limit);
    let mut waiting = NodeMask::NONE;
    for node in (0..nodes).filter(|node| !round.leaves_out(*node)).collect::<Vec<_>>() {
        round.ask(node, request(node), None);
        waiting = waiting.with(node);
    }
    let mut answered = 0;
    while let Some((node, answer)) = round.next().await {
        waiting = waiting.without(node);
        if let Ok(reply) = answer {
            answered += 1;
            read(node, reply);
        }
        let unresponsive = round.unresponsive();
        if answered >= quorum(nodes) && waiting.nodes().all(|node| unresponsive.contains(node)) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_chosen_and_no_other() {
        for (slots, first, last) in [(vec![0], 0, 0), ((0..32).collect(), 0, 31), (vec![1, 3], 1, 3)] {
            assert_eq!((choose(&slots, 0.0), choose(&slots, 0.999_999)), (Some(first), Some(last)));
        }
        assert_eq!(choose(&[], 0.5), None);
        assert_eq!((one_of(1_000, 0.0), one_of(1_000, 0.999_999)), (0, 999));
    }

    #[test]
    fn a_slot_is_free_if_a_quorum_shows_it() {
        let sets = [vec![0, 1], vec![0], vec![0, 2]];
        assert_eq!(in_most(&sets, 2), [0]);
        assert_eq!(in_most(&sets[..1], 2), [0; 0]);
    }

    #[test]
    fn every_slot_is_looked_at_once_from_a_random_part_on() {
        for permits in [1, 2, 127, 128, 129, 200, 256, 257, 999, 1_000] {
            for unit in [0.0, 0.3, 0.5, 0.999_999] {
                let parts: Vec<_> = parts(permits, || unit).collect();
                assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= 128), "{parts:?}");
                let mut all: Vec<u32> = parts.into_iter().flatten().collect();
                all.sort_unstable();
                assert_eq!(all, (0..permits).collect::<Vec<_>>(), "{permits}");
            }
        }
        let begins = |unit: f64| parts(1_000, || unit).next().unwrap().start;
        assert_eq!([0.0, 0.25, 0.5, 0.75].map(begins), [0, 250, 500, 750]);
    }
}
