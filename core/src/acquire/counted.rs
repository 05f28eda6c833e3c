//! The count of a waiter at the nodes: learnt from their answers, and taken back when the waiter gives up. A count that is
//! not taken back keeps readers away until it expires.
//!
//! States: *waiting*, then *given up* unless it has won. What may interrupt the [`Asking`] in which nodes count it:
//!
//! - it is over before all nodes have answered, or it is dropped: the other answers are read in the background, for the
//!   rest of `node_timeout`. If the waiter has given up by then, each takes back the count that it tells of;
//! - a node does not answer in this time, or the runtime ends: its count expires.
//!
//! A count is taken back over the connections of the request that made it, so that nodes execute this one first.

use std::sync::Arc;

use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::process::context::LockContext;
use crate::protocol::positions::Positions;
use crate::protocol::request::{Action, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;
use crate::sys::on_drop::OnDrop;
use crate::transport::failure::Failure;

/// What is needed to learn of the count, and to take it back.
#[derive(Clone)]
pub(super) struct Count {
    context: LockContext,
    connections: Arc<Connections>,
    positions: Arc<Positions>,
}

impl Count {
    pub(super) fn new(context: &LockContext, connections: &Arc<Connections>, positions: &Arc<Positions>) -> Self {
        Self { context: context.clone(), connections: Arc::clone(connections), positions: Arc::clone(positions) }
    }

    /// Records the position that a node has given.
    fn learn(&self, node: usize, answer: &Result<Reply, Failure>) {
        match answer {
            Ok(Reply::Held { ours: None, position, hold, .. }) => self.positions.given(node, *position, *hold),
            Ok(Reply::HeldOff { waiting, hold, .. }) => self.positions.held_off(node, *waiting, *hold),
            _ => {}
        }
    }

    /// Has the waiter, which is in front of its queue, give up when what is returned is dropped.
    pub(super) fn until_dropped(self) -> OnDrop<impl FnOnce()> {
        OnDrop::new(move || {
            self.positions.give_up();
            self.take_back();
        })
    }

    /// Takes back what is known to be counted, if the waiter has given up.
    fn take_back(&self) {
        // Of several names, it is not known which one counts the waiter.
        if self.context.spec.keys.are_several() {
            return;
        }
        let nodes = self.positions.to_withdraw();
        if nodes.is_empty() {
            return;
        }
        let Self { context, connections, .. } = self.clone();
        let process = Arc::clone(&context.process);
        process.background.spawn(async move {
            let mut round = Round::untraced(&connections, context.spec.settings.node_timeout, Moment::NEVER);
            let token = Token::fresh(&context.process.random);
            for node in nodes.nodes() {
                let keys = Arc::clone(&context.spec.keys);
                round.ask(node, Request { keys, token, action: Action::Withdraw }, None);
            }
            while round.next().await.is_some() {}
        });
    }
}

/// A round whose nodes count the waiter, if there is a `count`.
pub(super) struct Asking {
    round: Option<Round>,
    count: Option<Count>,
}

impl Asking {
    pub(super) fn new(round: Round, count: Option<Count>) -> Self {
        Self { round: Some(round), count }
    }

    pub(super) fn round(&mut self) -> &mut Round {
        self.round.as_mut().expect("it is taken only with this")
    }

    /// Returns the next answer of the round. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<Reply, Failure>)> {
        let (node, answer) = self.round().next().await?;
        if let Some(count) = &self.count {
            count.learn(node, &answer);
        }
        Some((node, answer))
    }

    /// Returns the round, whose further answers count nobody.
    pub(super) fn into_round(mut self) -> Round {
        self.round.take().expect("it is taken only with this")
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Without a count, dropping the round takes back unwritten requests.
        if let (Some(round), Some(count)) = (self.round.take(), self.count.take()) {
            round.drain_in_background(count, |count, node, answer, _| {
                count.learn(node, answer);
                count.take_back();
            });
        }
    }
}
