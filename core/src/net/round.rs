//! A round: one script to all nodes, or some, and their answers in order of arrival.
//!
//! Acquire, confirm, extend and release share it, so that fan-out, time-outs and the meaning of a missing answer cannot
//! differ. A round counts nothing: its caller reads the votes and decides when it is over.
//!
//! States of one node's part:
//!
//! - *idle*: it has no request.
//! - *connecting*: the request is not sent, and dropping it leaves nothing.
//! - *asked*: the request is sent.
//! - *answered*: the answer was read.
//!
//! What may interrupt `next`:
//!
//! - The round is dropped: unwritten requests are withdrawn, the others are executed unread. The footprint knows the
//!   connection of a create.
//! - The deadline comes: each silent node has missed its vote.
//! - The runtime ends: as if dropped.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::net::connections::{Connections, Via};
use crate::net::footprint::{Footprint, Trace};
use crate::net::redirect::{Asked, follow};
use crate::net::timers::Deadline;
use crate::node::Connection;
use crate::node::way::{Eval, OpenSlot};
use crate::protocol::quorum::{NodeMask, quorum};
use crate::protocol::request::{Action, Reply, Request};
use crate::sys::clock::Moment;
use crate::transport::failure::{Failure, in_millis};

/// One script on its way to some nodes.
pub(crate) struct Round {
    connections: Arc<Connections>,
    footprint: Arc<Footprint>,
    pub(crate) started: Moment,
    /// How long the nodes have, unless a limit is sooner.
    pub(crate) node_timeout: Duration,
    limit: Moment,
    timer: Deadline,
    parts: Vec<Part>,
    /// Whether every vote may decide the caller's result, so that failed nodes are reconnected sooner.
    urgent: bool,
    /// Answers that arrived while another was returned.
    arrived: VecDeque<(usize, Asked)>,
    /// False after the verdict: from then on no request that creates a key is sent.
    open: bool,
    /// Whether the silent nodes have missed their vote. It counts once per script, even while stragglers are read.
    counted: bool,
}

/// A request under way.
type Asking = Pin<Box<dyn Future<Output = Asked> + Send>>;

#[derive(Default)]
struct Part {
    asking: Option<Asking>,
    request: Option<Request>,
    /// Whether the request was polled, and so has its position.
    queued: bool,
    /// Whether the node is written to last, because it lags and the others' answers decide.
    late: bool,
    resent: bool,
    sent: Delivery,
}

impl Part {
    /// Polls the request if it is pending. The first poll assigns its position.
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Poll<Asked>> {
        let polled = self.asking.as_mut()?.as_mut().poll(cx);
        self.queued = true;
        if polled.is_ready() {
            self.asking = None;
        }
        Some(polled)
    }
}

/// How a node's request was sent. This decides what an answer that finds nothing means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Once, behind everything that this token has sent there.
    #[default]
    InOrder,
    /// A second time: the first may have been executed.
    Retried,
    /// Over another connection than an unanswered create, which may be executed after it.
    OutOfOrder,
}

impl Round {
    /// Starts a round that ends after `node_timeout`, or at `limit` if that is sooner.
    pub(crate) fn new(
        connections: &Arc<Connections>,
        footprint: &Arc<Footprint>,
        node_timeout: Duration,
        limit: Moment,
    ) -> Self {
        let started = connections.clock.now();
        let deadline = started.after(node_timeout).min(limit);
        let parts = (0..connections.members.len()).map(|_| Part::default()).collect();
        Self {
            connections: Arc::clone(connections),
            footprint: Arc::clone(footprint),
            started,
            node_timeout,
            limit,
            timer: Deadline::new(&connections.deadlines, &connections.clock, deadline),
            parts,
            urgent: false,
            arrived: VecDeque::new(),
            open: true,
            counted: false,
        }
    }

    /// Starts a round whose requests leave nothing behind that a release would have to find.
    pub(crate) fn untraced(connections: &Arc<Connections>, node_timeout: Duration, limit: Moment) -> Self {
        let footprint = Arc::new(Footprint::new(connections.members.len()));
        Self::new(connections, &footprint, node_timeout, limit)
    }

    /// Makes the round urgent, for a caller that needs every vote. If others deleted the lock from some nodes, the
    /// nodes that were briefly away decide. Where a connection has ended, there is time until `connect_by` for another
    /// one, and `node_timeout` after it is the end in any case.
    pub(crate) fn urgent(mut self, connect_by: Moment) -> Self {
        self.urgent = true;
        self.limit = self.limit.min(connect_by.after(self.node_timeout));
        self
    }

    /// Gives the nodes no time after `limit`, at which the caller has been promised an end.
    pub(crate) fn until(mut self, limit: Moment) -> Self {
        self.limit = self.limit.min(limit);
        if self.limit < self.timer.at {
            self.timer.reset(self.limit);
        }
        self
    }

    /// Gives no node more than `node_timeout`, not even one that has forgotten the script.
    pub(crate) fn strict(mut self) -> Self {
        self.limit = self.timer.at;
        self
    }

    /// Gives the round another `node_timeout` from now, for a second script.
    pub(crate) fn restart_deadline(&mut self) {
        self.started = self.connections.clock.now();
        self.counted = false;
        self.timer.reset(self.started.after(self.node_timeout).min(self.limit));
    }

    /// Whether the caller's limit leaves the nodes less than `node_timeout`. Silence until then says nothing about
    /// them.
    pub(crate) fn is_cut(&self) -> bool {
        self.timer.at < self.started.after(self.node_timeout)
    }

    /// Returns why `node` has not answered in the time that it had, for people to read.
    pub(crate) fn silence(&self, node: usize) -> Failure {
        let given = || Failure::Silent(in_millis(self.timer.at.since(self.started)));
        self.connections.why_unconnected(node).unwrap_or_else(given)
    }

    /// Whether no answer is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.arrived.is_empty() && self.parts.iter().all(|part| part.asking.is_none())
    }

    /// Returns how `node`'s request was sent.
    pub(crate) fn sent(&self, node: usize) -> Delivery {
        self.parts[node].sent
    }

    /// Asks `node` over the round's connections although a create is unanswered on another.
    pub(crate) fn ask_out_of_order(&mut self, node: usize, request: Request) {
        self.ask(node, request, None);
        self.parts[node].sent = Delivery::OutOfOrder;
    }

    /// Asks `node`, over `via` or else over the round's connections, as soon as possible.
    pub(crate) fn ask(&mut self, node: usize, request: Request, via: Option<Via>) {
        let asking = self.asking(node, request.clone(), via, Eval::Sha);
        let late = self.connections.is_lagging(node);
        let part = &mut self.parts[node];
        (part.asking, part.request, part.queued, part.late) = (Some(asking), Some(request), false, late);
    }

    fn asking(&self, node: usize, request: Request, via: Option<Via>, by: Eval) -> Asking {
        let (connections, footprint, urgent, node_timeout) =
            (Arc::clone(&self.connections), Arc::clone(&self.footprint), self.urgent, self.node_timeout);
        Box::pin(async move {
            let mut sent = connections.clock.now();
            let Via { connection, is_idle } = match via.or_else(|| connections.via(node, sent)) {
                Some(via) => via,
                None => match connections.get(node, urgent).await {
                    Ok(connection) => {
                        sent = connections.clock.now();
                        Via::unwatched(connection)
                    }
                    Err(failure) => return (None, Err(failure)),
                },
            };
            let _watched = connections.track_request(node);
            let before = matches!(request.action, Action::Extend { .. }).then(|| footprint.last(node));
            let create = request.action.creates().then(|| footprint.sent(node, &connection, sent));
            let answer = if is_idle && request.action.can_be_given_up() {
                let answer = connection.call(&request, by);
                // On the heap, because few connections are idle.
                Box::pin(connections.unless_forgotten(node, &connection, node_timeout, answer)).await
            } else {
                connection.call(&request, by).await
            };
            if let Some(create) = create {
                footprint.answered(node, create, &answer);
            }
            let is_answered = answer.as_ref().err().is_none_or(Failure::is_answer);
            if is_answered {
                connections.record_answer(node, sent);
            }
            if let Some(before) = before {
                if is_answered {
                    let has_key = matches!(answer, Ok(Reply::Extended | Reply::Raised | Reply::Ahead(_)));
                    footprint.answered_behind(node, &connection, before, has_key);
                }
                if let Some(told) = connection.take_told() {
                    connections.members.health.record_identity(node, &told, connections.clock.now());
                }
            }
            if answer.is_ok() {
                let took = connections.clock.now().since(sent);
                connections.members.nodes[node].endpoint.traffic.answered(&request, took);
            }
            if answer.as_ref().err().is_some_and(Failure::is_redirect) {
                // On the heap, because few requests need it and every request would be as large.
                return Box::pin(follow(&connections, node, &request, (connection, answer), OpenSlot::default())).await;
            }
            (Some(connection), answer)
        })
    }

    /// Returns the unresponsive nodes.
    pub(crate) fn unresponsive(&self) -> NodeMask {
        self.connections.members.health.unresponsive()
    }

    /// Whether `node` is left out for now: it is unresponsive, a quorum of others is not, and one request that will
    /// show its recovery is already in flight.
    pub(crate) fn leaves_out(&self, node: usize) -> bool {
        let unresponsive = self.unresponsive();
        let nodes = self.parts.len();
        unresponsive.contains(node) && nodes - unresponsive.len() >= quorum(nodes) && self.connections.has_request(node)
    }

    /// Returns the next node that answered, or failed to. `None` if no answer is pending, and at the deadline, before which
    /// the pending nodes have not answered. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Reply, Failure>)> {
        loop {
            let (node, (connection, answer)) = self.wait().await?;
            match &answer {
                Ok(_) => self.connections.record_reply(node),
                Err(failure) if failure.is_answer() => {
                    self.connections.record_reply(node);
                    self.connections.report_refusal(node, failure);
                    if matches!(failure, Failure::Refused(code) if &**code == "CLUSTERDOWN") {
                        self.connections.doubt(node);
                    }
                }
                Err(_) => {}
            }
            if let (Err(failure), Some(connection)) = (&answer, &connection)
                && failure.breaks_connection()
            {
                self.connections.discard_if(node, connection);
            }
            if matches!(answer, Ok(Reply::Granted(_) | Reply::GrantedUntil(_))) {
                self.connections.granted(node);
            }
            if !self.ask_again(node, connection, &answer) {
                return Some((node, answer));
            }
        }
    }

    /// Sends an unknown script again as text. Sends a repeatable request again over another connection if the first one
    /// broke. Returns whether it sent.
    fn ask_again(&mut self, node: usize, connection: Option<Connection>, answer: &Result<Reply, Failure>) -> bool {
        let Some(request) = self.parts[node].request.clone() else { return false };
        let creates = request.action.creates();
        let asking = match answer {
            Err(Failure::NoScript) if self.open || !creates => {
                // The node answered in time, and is asked another question: far away, both do not fit into one
                // `node_timeout`.
                self.extend_deadline(self.connections.clock.now().after(self.node_timeout));
                self.asking(node, request, connection.map(Via::unwatched), Eval::Text)
            }
            Err(Failure::Closed) if request.action.is_repeatable() && !self.parts[node].resent => {
                self.parts[node].resent = true;
                if self.parts[node].sent == Delivery::InOrder {
                    self.parts[node].sent = Delivery::Retried;
                }
                if self.urgent {
                    // The caller has to connect after all: a connection that ended while it was idle looks ready.
                    self.extend_deadline(self.limit);
                }
                self.asking(node, request, None, Eval::Sha)
            }
            _ => return false,
        };
        let part = &mut self.parts[node];
        (part.asking, part.queued) = (Some(asking), false);
        true
    }

    fn extend_deadline(&mut self, until: Moment) {
        self.timer.reset(self.timer.at.max(until.min(self.limit)));
    }

    /// Returns the next answer; `None` as [`next`](Self::next) does.
    async fn wait(&mut self) -> Option<(usize, Asked)> {
        let asked = poll_fn(|cx| match self.poll_parts(cx) {
            Poll::Pending => self.timer.poll(cx).map(|()| None),
            answer @ Poll::Ready(_) => answer,
        });
        let asked = asked.await;
        if asked.is_some() || self.is_idle() {
            return asked;
        }
        // Something may have kept this runtime from its sockets until now. The first yield looks at them, the second
        // lets the connections read, so that no answer that has arrived is missed.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            let asked = poll_fn(|cx| match self.poll_parts(cx) {
                Poll::Pending => Poll::Ready(None),
                answer @ Poll::Ready(_) => answer,
            });
            let asked = asked.await;
            if asked.is_some() {
                return asked;
            }
        }
        self.time_up();
        None
    }

    /// Returns the next answer, or `None` when no answer is pending.
    ///
    /// A request's first poll fixes its position on its connection. All are polled even if one is answered already, or
    /// requests sent after the verdict could overtake them. Lagging nodes come last.
    fn poll_parts(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Asked)>> {
        let mut first = self.arrived.pop_front();
        let mut pending = false;
        for late in [false, true] {
            for (node, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.late == late) {
                if part.queued && first.is_some() {
                    continue;
                }
                match part.poll(cx) {
                    None => {}
                    Some(Poll::Pending) => pending = true,
                    Some(Poll::Ready(asked)) if first.is_none() => first = Some((node, asked)),
                    Some(Poll::Ready(asked)) => self.arrived.push_back((node, asked)),
                }
            }
        }
        if first.is_none() && pending { Poll::Pending } else { Poll::Ready(first) }
    }

    fn time_up(&mut self) {
        if !self.is_cut() && !std::mem::replace(&mut self.counted, true) {
            let pending = self.parts.iter().enumerate().filter(|(_, part)| part.asking.is_some());
            pending.for_each(|(node, _)| self.connections.record_timeout(node));
        }
    }

    /// Stops sending requests that create a key, after the verdict. Returns the nodes to which one was still to be
    /// sent.
    fn close(&mut self) -> NodeMask {
        self.open = false;
        let mut unsent = NodeMask::NONE;
        if self.is_idle() {
            return unsent;
        }
        let traces = self.footprint.all();
        for (node, (part, trace)) in self.parts.iter_mut().zip(traces).enumerate() {
            // Still connecting.
            if part.request.as_ref().is_some_and(|request| request.action.creates())
                && matches!(trace, Trace::Nothing)
                && part.asking.take().is_some()
            {
                unsent = unsent.with(node);
            }
        }
        unsent
    }

    /// Closes the round after the verdict and removes its deadline, because every answer still matters.
    pub(crate) fn wait_for_all(&mut self) {
        self.close();
        self.timer.reset(Moment::NEVER);
    }

    /// Closes the round after the verdict and reads stragglers in a task on the same runtime for the rest of
    /// `node_timeout`. This keeps the nodes' health and the footprint true.
    ///
    /// Calls `heard` with `kept`, the node, its answer and how its request was sent, maybe before this returns. Returns
    /// the nodes to which a request that creates a key was still to be sent.
    pub(crate) fn drain_in_background<T: Send + 'static>(
        mut self,
        kept: T,
        mut heard: impl FnMut(&T, usize, &Result<Reply, Failure>, Delivery) + Send + 'static,
    ) -> NodeMask {
        let unsent = self.close();
        if self.is_idle() {
            return unsent;
        }
        self.timer.reset(self.started.after(self.node_timeout));
        let connections = Arc::clone(&self.connections);
        connections.spawn_near(async move {
            while let Some((node, answer)) = self.next().await {
                heard(&kept, node, &answer, self.sent(node));
            }
        });
        unsent
    }
}
