//! The connections between processes and nodes of a simulation.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::link::{Down, Line};
use super::membership::Membership;
use super::server::{Node, script};
use super::time::Time;
use super::{Fate, Leg};
use crate::node::event::{EventSink, NodeEvent};
use crate::node::identity::{Identity, Lacks, Role, ServerInfo};
use crate::node::sentinels::Sentinels;
use crate::node::simulated::SimulatedNode;
use crate::node::simulated::answers::{Answer, SimulatedLink};
use crate::node::way::{Eval, OpenSlot};
use crate::protocol::cluster::{Standing, Told};
use crate::protocol::request::{Reply, Request};
use crate::sys::clock::Moment;
use crate::sys::task::spawn;
use crate::transport::failure::Failure;

/// The way from one process to one node.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) process: usize,
    pub(super) node: Node,
}

impl Wire {
    fn fate(&self, leg: Leg) -> Fate {
        self.node.0.network.fate(self.process, self.node.0.index, leg)
    }

    fn time(&self) -> &Time {
        &self.node.0.time
    }

    /// Travels one leg of a connect.
    async fn travel(&self, leg: Leg) -> Result<(), Failure> {
        travel(self.fate(leg), self.time()).await
    }

    /// Travels to the server, and waits until it executes. Returns its run.
    async fn arrive(&self) -> Result<u32, Failure> {
        let refused = || Failure::Unreachable("connection refused".into());
        self.travel(Leg::Connect).await?;
        let run = {
            let state = self.node.state();
            if !state.up || state.hangs_up {
                self.node.0.network.refused(self.process, self.node.0.index, self.time().passed());
                return Err(if state.up { Failure::Closed } else { refused() });
            }
            state.run
        };
        self.node.executing(run).await.ok_or(Failure::Closed)?;
        Ok(run)
    }

    /// Asks for the map of the server's cluster.
    pub(super) async fn slots(self) -> Result<Vec<Told>, Failure> {
        self.arrive().await?;
        let told = self.node.state().membership.as_ref().map(Membership::told).ok_or(Failure::UnexpectedReply)?;
        self.travel(Leg::Reply).await?;
        Ok(told)
    }

    /// Asks what the server says of its data.
    pub(super) async fn standing(self) -> Result<Standing, Failure> {
        self.arrive().await?;
        let standing = {
            let state = self.node.state();
            if state.lacks_info {
                return Err(Failure::of_code("ERR"));
            }
            let uptime = self.time().now().duration_since(state.started).as_secs();
            Standing {
                is_primary: state.is_primary(self.node.0.index),
                uptime: Duration::from_secs(uptime),
                replid: state.replid.clone(),
                former_replid: state.former_replid.clone(),
            }
        };
        self.travel(Leg::Reply).await?;
        Ok(standing)
    }

    async fn record_info(self, events: Option<EventSink>) -> Result<(Arc<dyn SimulatedLink>, ServerInfo), Failure> {
        let run = self.arrive().await?;
        let (link, server_info) = {
            let mut state = self.node.state();
            let silent = state.lacks_info;
            let lacks = Lacks { info: silent, ..Lacks::default() };
            let told = |text: String| if silent { String::new() } else { text };
            let identity = Identity {
                run_id: told(format!("run-{}-of-node-{}", state.run, self.node.0.index + 1)),
                replid: told(state.replid.clone()),
                former_replid: told(if state.membership.is_some() {
                    state.former_replid.clone()
                } else {
                    String::new()
                }),
                role: match state.is_primary(self.node.0.index) {
                    _ if silent => Role::Untold,
                    true => Role::Master,
                    false => Role::Replica,
                },
            };
            // Servers report whole seconds.
            let uptime = Duration::from_secs(self.time().now().duration_since(state.started).as_secs());
            let uptime = if silent { Duration::ZERO } else { uptime };
            let watched = events.as_ref().is_some_and(EventSink::tracks) && !state.lacks_tracking;
            let (replies, arriving) = mpsc::unbounded_channel();
            let line = Arc::new(Line::new(self.process, events, watched, (self.time().now(), replies)));
            spawn(&Handle::current(), listen(self.time().clone(), Arc::downgrade(&line), arriving));
            state.lines.retain(|line| line.strong_count() > 0);
            state.lines.push(Arc::downgrade(&line));
            (
                Link::new(self.clone(), line, run),
                ServerInfo { identity, uptime, evicts: None, lacks, watched, again: Moment::NEVER },
            )
        };
        self.travel(Leg::Reply).await?;
        Ok((Arc::new(link), server_info))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl SimulatedNode for Wire {
    fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        None
    }

    fn connect(&self, events: Option<EventSink>) -> Answer<(Arc<dyn SimulatedLink>, ServerInfo)> {
        Box::pin(self.clone().record_info(events))
    }
}

/// Travels one leg with this `fate`.
pub(super) async fn travel(fate: Fate, time: &Time) -> Result<(), Failure> {
    match fate {
        Fate::Deliver(delay) => {
            time.sleep(delay).await;
            Ok(())
        }
        Fate::Drop => std::future::pending().await,
        Fate::Break => Err(Failure::Unreachable("connection reset".into())),
    }
}

/// A request on its way.
struct Call {
    id: u64,
    request: Request,
    way: (Eval, OpenSlot),
}

/// The client's end of a connection.
struct Link {
    line: Arc<Line>,
    queue: mpsc::UnboundedSender<Call>,
}

impl Link {
    fn new(wire: Wire, line: Arc<Line>, run: u32) -> Self {
        let (queue, calls) = mpsc::unbounded_channel();
        let (written, arriving) = mpsc::unbounded_channel();
        drop(wire.time().runtime.spawn(serve(wire.clone(), Arc::clone(&line), run, arriving)));
        spawn(&Handle::current(), write(wire, ClientEnd(Arc::clone(&line)), calls, written));
        Self { line, queue }
    }
}

impl SimulatedLink for Link {
    fn call(&self, request: Request, by: Eval, open: OpenSlot) -> Answer<Reply> {
        let (line, queue) = (Arc::clone(&self.line), self.queue.clone());
        Box::pin(async move {
            let (id, receiver) = line.ask().ok_or(Failure::Closed)?;
            if queue.send(Call { id, request, way: (by, open) }).is_err() {
                return Err(Failure::Closed);
            }
            receiver.await.unwrap_or(Err(Failure::Closed))
        })
    }

    fn reports_to(&self) -> Option<&EventSink> {
        self.line.events.as_ref().filter(|_| self.line.watched)
    }
}

/// The driver of a connection on the client's runtime. Dropping it closes the connection.
struct ClientEnd(Arc<Line>);

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Writes requests in their order.
async fn write(
    wire: Wire,
    end: ClientEnd,
    mut calls: mpsc::UnboundedReceiver<Call>,
    written: mpsc::UnboundedSender<(Instant, Call)>,
) {
    let (line, time) = (&end.0, wire.time());
    let mut earliest = time.now();
    let mut lost = false;
    while let Some(call) = calls.recv().await {
        if let Fate::Deliver(delay) = wire.fate(Leg::Write)
            && !delay.is_zero()
        {
            time.sleep(delay).await;
        }
        if line.is_taken_back(call.id) {
            let script = script(&call.request);
            wire.node.note(|| format!("process {} takes back {script}", wire.process + 1));
            continue;
        }
        match wire.fate(Leg::Request) {
            _ if lost || line.is_ended() => {}
            Fate::Deliver(delay) => {
                earliest = earliest.max(time.now() + delay);
                if let Some(later) = wire.node.0.network.echo(wire.process, wire.node.0.index) {
                    let again = repeat(wire.node.clone(), Arc::clone(line), earliest + later, call.request.clone());
                    drop(time.runtime.spawn(again));
                }
                drop(written.send((earliest, call)));
            }
            Fate::Drop => {
                lost = true;
                wire.node.note(|| format!("process {} is not heard any more on one connection", wire.process + 1));
            }
            Fate::Break => {
                wire.node.note(|| format!("process {} loses a connection", wire.process + 1));
                line.end();
            }
        }
    }
}

/// Executes requests as they arrive.
async fn serve(wire: Wire, line: Arc<Line>, run: u32, mut arriving: mpsc::UnboundedReceiver<(Instant, Call)>) {
    while let Some((at, call)) = arriving.recv().await {
        wire.time().sleep_until(at).await;
        match wire.node.execute(run, &line, &call.request, call.way).await {
            Some(answer) => wire.node.send(&line, Down::Answer(call.id, answer)),
            // A crash ends its connections itself. A server that has started anew closes them here.
            None if wire.node.state().up => line.end(),
            None => {}
        }
    }
}

/// Executes a request that has arrived twice, in no order with others, and discards the answer.
async fn repeat(node: Node, line: Arc<Line>, at: Instant, request: Request) {
    node.0.time.sleep_until(at).await;
    node.note(|| format!("hears process {} once more", line.process + 1));
    let run = node.state().run;
    drop(node.execute(run, &line, &request, (Eval::Text, OpenSlot::default())).await);
}

/// Delivers what arrives at the client.
async fn listen(time: Time, line: Weak<Line>, mut arriving: mpsc::UnboundedReceiver<(Instant, Down)>) {
    let Some(over) = line.upgrade().map(|line| Arc::clone(&line.over)) else { return };
    let hear = async {
        while let Some((at, down)) = arriving.recv().await {
            time.sleep_until(at).await;
            if let Some(line) = line.upgrade() {
                line.arrived(down);
            }
        }
    };
    let is_over = tokio::select! {
        biased;
        () = over.notified() => true,
        () = hear => false,
    };
    if is_over
        && let Some(line) = line.upgrade()
        && let Some(events) = &line.events
    {
        events.emit(NodeEvent::Disconnected);
    }
}
