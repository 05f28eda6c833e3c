//! The seams of the engine, for a simulation: the real client in many simulated processes, on nodes in memory, under
//! tokio's paused time.
//!
//! A [`World`] is made inside a current-thread runtime whose time is paused. It owns the nodes ([`Node`]) and makes the
//! processes ([`World::process`]), each with its own clock and random source. Every message between the two asks the
//! [`Network`] for its [`Fate`]; that is where a seed comes in. Nothing in here is random, reads real time or starts a
//! thread, so that the same answers repeat the same run.
//!
//! One connection behaves as TCP does: what is written on it arrives in order in both directions, or not at all from
//! some point on; several connections know no order among each other. A request whose future is dropped before it was
//! written is taken back; later it is executed, and its reply goes nowhere, even if the client has long given up the
//! connection.

#![allow(clippy::disallowed_methods, reason = "this file is what the clock and the timers of a simulation are")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::address::Addresses;
use crate::background::Background;
use crate::client::Redlock;
use crate::clock::{Clock, SimulatedClock, SimulatedTime};
use crate::error::Error;
use crate::lane::Member;
use crate::node::memory::{Content, Store};
use crate::node::{
    Answer, By, Connecting, Ear, Failure, Heard, Identity, Introduction, Node as EngineNode, SimulatedLink,
    SimulatedNode, SimulatedWire,
};
use crate::options::Options;
use crate::process::{NodeSet, Process};
use crate::random::{Random, SimulatedRandom};
use crate::script::{Action, Reply, Request};

/// Wall time at the start of every simulation, in microseconds since the epoch.
const WALL_START: u64 = 1_750_000_000_000_000;

/// Which part of a message's way a [`Fate`] is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// A connection is being made.
    Connect,
    /// A request waits to be written; until it is, it can be taken back.
    Write,
    /// A request is on its way to the node.
    Request,
    /// A reply, or the end of the connection, is on its way to the client.
    Reply,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after this time, and never before what was sent earlier on the same connection.
    Deliver(Duration),
    /// It is lost, and with it everything that follows in this direction of its connection. Nobody is told.
    Drop,
    /// It is lost and its connection ends, which the client sees.
    Break,
}

/// The network of a simulation, and the ear for what happens there.
pub trait Network: Send + Sync {
    /// Decides what becomes of the next message between a process and a node, both by index.
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate;

    /// Hears what happened, for a trace. `line` need not be called.
    fn note(&self, line: &dyn Fn() -> String);
}

/// How a clock differs from virtual time, which begins at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// What a process's suspend-aware clock shows at the start. A node has no such clock.
    pub origin: Duration,
    /// How much faster it runs, in parts per million; less than a million.
    pub ppm: i64,
    /// How far its wall clock is ahead, in microseconds.
    pub ahead_micros: i64,
}

impl Pace {
    /// How much this clock shows of `nanos` of virtual time.
    fn shown(self, nanos: u64) -> u64 {
        let shown = i128::from(nanos) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        u64::try_from(shown).unwrap_or(0)
    }

    /// How much virtual time passes while this clock shows `duration`, rounded down.
    #[must_use]
    pub fn passes(self, duration: Duration) -> Duration {
        let nanos = i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX / 1_000_000);
        let passed = nanos * 1_000_000 / i128::from(1_000_000 + self.ppm);
        Duration::from_nanos(u64::try_from(passed).unwrap_or(0))
    }

    fn wall_micros(self, nanos: u64) -> u64 {
        (WALL_START + self.shown(nanos) / 1_000).saturating_add_signed(self.ahead_micros)
    }
}

/// The clock of one process.
struct ProcessTime {
    start: Instant,
    pace: Pace,
    slept: Arc<AtomicU64>,
}

impl ProcessTime {
    fn nanos(&self) -> u64 {
        nanos_since(self.start) + self.slept.load(Ordering::Relaxed)
    }
}

impl SimulatedTime for ProcessTime {
    fn monotonic_nanos(&self) -> u64 {
        let origin = u64::try_from(self.pace.origin.as_nanos()).unwrap_or(0);
        origin + self.pace.shown(self.nanos())
    }

    fn wall_micros(&self) -> u64 {
        self.pace.wall_micros(self.nanos())
    }
}

/// The machine of one process.
#[derive(Clone, Debug)]
pub struct Machine {
    slept: Arc<AtomicU64>,
}

impl Machine {
    /// It was suspended for `duration` until now: its clocks have gone on, its timers have not. The nodes are elsewhere:
    /// [`Node::step_clock`] lets the time pass for them.
    pub fn suspended(&self, duration: Duration) {
        self.slept.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A simulation: its nodes, and the processes that it makes.
#[derive(Clone)]
pub struct World {
    start: Instant,
    network: Arc<dyn Network>,
    nodes: Vec<Node>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl World {
    /// A world with one node for each of `nodes`, all up. Must be called in the runtime that is to run all of it.
    pub fn new(network: Arc<dyn Network>, nodes: &[Pace]) -> Self {
        let start = Instant::now();
        let node = |(index, pace): (usize, &Pace)| Node::new(index, *pace, start, Arc::clone(&network));
        let nodes = nodes.iter().enumerate().map(node).collect();
        Self { start, network, nodes }
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The nodes, by index.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A client in a process of its own. `index` is what the network calls it, `random` fills slices with its bits.
    ///
    /// # Errors
    ///
    /// `invalid` for a number of nodes that no client may have.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn process(
        &self,
        index: usize,
        pace: Pace,
        random: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<Redlock, Error> {
        self.machine(index, pace, random).map(|(client, _)| client)
    }

    /// As [`World::process`], with the machine that the process runs on.
    ///
    /// # Errors
    ///
    /// As [`World::process`].
    ///
    /// # Panics
    ///
    /// As [`World::process`].
    pub fn machine(
        &self,
        index: usize,
        pace: Pace,
        random: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<(Redlock, Machine), Error> {
        let slept = Arc::<AtomicU64>::default();
        let time = ProcessTime { start: self.start, pace, slept: Arc::clone(&slept) };
        let clock = Clock::Simulated(SimulatedClock(Arc::new(time)));
        let random = Random::Simulated(SimulatedRandom(Arc::new(random)));
        let background = Background::on(Handle::current());
        let process = Arc::new(Process::new(None, clock, random, background));
        let addresses = Addresses::parse((1..=self.nodes.len()).map(|node| format!("memory://sim-{node}")))?;
        let member = |(address, node): (&_, &Node)| Member {
            node: EngineNode::Simulated(SimulatedNode(Arc::new(Wire { process: index, node: node.clone() }))),
            address: Clone::clone(address),
        };
        let members = addresses.iter().zip(&self.nodes).map(member).collect();
        let set = Arc::new(NodeSet::new(members, &process));
        // Not the host's name: a run must not depend on the machine.
        let options = Options { owner: Some(format!("process-{}", index + 1).into()), ..Options::default() };
        Ok((Redlock::simulated(process, set, options), Machine { slept }))
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl Fn() -> String) {
        self.network.note(&line);
    }
}

/// One node.
#[derive(Clone)]
pub struct Node(Arc<Server>);

struct Server {
    index: usize,
    pace: Pace,
    start: Instant,
    network: Arc<dyn Network>,
    state: Mutex<State>,
    /// Has thawed, gone down or come up.
    changed: Notify,
}

struct State {
    store: Store,
    /// The scripts that the server knows by hash.
    scripts: BTreeSet<&'static str>,
    up: bool,
    frozen: bool,
    /// Counts starts.
    run: u32,
    started: Instant,
    step_micros: i64,
    lines: Vec<Weak<Line>>,
    /// The connections that are told of the next change of a key, once.
    armed: BTreeMap<Vec<u8>, Vec<Weak<Line>>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.0.index).finish()
    }
}

impl Node {
    fn new(index: usize, pace: Pace, start: Instant, network: Arc<dyn Network>) -> Self {
        let state = State {
            store: Store::default(),
            scripts: BTreeSet::new(),
            up: true,
            frozen: false,
            run: 1,
            started: start,
            step_micros: 0,
            lines: Vec::new(),
            armed: BTreeMap::new(),
        };
        Self(Arc::new(Server { index, pace, start, network, state: Mutex::new(state), changed: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while holding this")
    }

    fn note(&self, line: impl Fn() -> String) {
        self.0.network.note(&|| format!("node {}: {}", self.0.index + 1, line()));
    }

    /// Microseconds on the node's own clock.
    fn wall_micros(&self, state: &State) -> u64 {
        self.0.pace.wall_micros(nanos_since(self.0.start)).saturating_add_signed(state.step_micros)
    }

    /// Ends the server: its connections break, requests that have not been executed never will be. Without `keep` its
    /// data is gone.
    pub fn crash(&self, keep: bool) {
        self.note(|| format!("crashes{}", if keep { "" } else { " and loses its data" }));
        let lines = {
            let mut state = self.state();
            state.up = false;
            state.frozen = false;
            state.scripts.clear();
            state.armed.clear();
            if !keep {
                state.store = Store::default();
            }
            std::mem::take(&mut state.lines)
        };
        self.0.changed.notify_waiters();
        for line in lines.into_iter().filter_map(|line| line.upgrade()) {
            match self.0.network.fate(line.process, self.0.index, Leg::Reply) {
                // The machine went with it: nobody says that the connection is over.
                Fate::Drop => {}
                Fate::Break => line.end(),
                Fate::Deliver(delay) => {
                    let at = Instant::now() + delay;
                    drop(Handle::current().spawn(async move {
                        sleep_until(at).await;
                        line.end();
                    }));
                }
            }
        }
    }

    /// Starts a server that has crashed, with a new run id.
    pub fn start(&self) {
        let mut state = self.state();
        if !state.up {
            state.up = true;
            state.run += 1;
            state.started = Instant::now();
            drop(state);
            self.note(|| "starts".to_owned());
            self.0.changed.notify_waiters();
        }
    }

    /// Stops executing; requests wait until it thaws.
    pub fn freeze(&self) {
        self.note(|| "freezes".to_owned());
        self.state().frozen = true;
    }

    /// Goes on executing.
    pub fn thaw(&self) {
        self.note(|| "thaws".to_owned());
        self.state().frozen = false;
        self.0.changed.notify_waiters();
    }

    /// Sets the node's clock forward, or back.
    pub fn step_clock(&self, micros: i64) {
        self.note(|| format!("clock steps by {micros} us"));
        self.state().step_micros += micros;
    }

    /// Deletes a key, as anybody with access to the server could.
    pub fn delete(&self, key: &[u8]) {
        self.note(|| format!("loses key {:?}", String::from_utf8_lossy(key)));
        let mut state = self.state();
        state.store.delete(key);
        let told = state.armed.remove(key).unwrap_or_default();
        drop(state);
        self.tell(&told, key);
    }

    /// Overwrites a key with what is no lock of ours, for `ttl`.
    pub fn take(&self, key: &[u8], ttl: Duration) {
        self.note(|| format!("key {:?} is taken by a stranger", String::from_utf8_lossy(key)));
        let mut state = self.state();
        let until = self.wall_micros(&state) + u64::try_from(ttl.as_micros()).unwrap_or(0);
        state.store.put(key, Content::Text(b"a-stranger".to_vec()), Some(until));
        let told = state.armed.remove(key).unwrap_or_default();
        drop(state);
        self.tell(&told, key);
    }

    /// Tells connections that a key has changed.
    fn tell(&self, lines: &[Weak<Line>], key: &[u8]) {
        for line in lines.iter().filter_map(Weak::upgrade) {
            self.note(|| format!("tells process {} of a change of {}", line.process + 1, String::from_utf8_lossy(key)));
            line.send(self, Down::Changed(key.to_vec()));
        }
    }

    /// The keys that have not expired, fence keys included, with their values.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, String)> {
        let state = self.state();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let shown = |content: &Content| match content {
            Content::Text(value) => text(value),
            Content::Other => "no string".to_owned(),
        };
        state.store.contents(self.wall_micros(&state)).map(|(key, content)| (text(key), shown(content))).collect()
    }

    /// Waits until the server executes; `None` if its `run` is over.
    async fn executing(&self, run: u32) -> Option<()> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state();
                if !state.up || state.run != run {
                    return None;
                }
                if !state.frozen {
                    return Some(());
                }
            }
            changed.await;
        }
    }

    /// Executes one request; `None` if the server's `run` ended before.
    async fn execute(&self, run: u32, line: &Arc<Line>, request: &Request, by: By) -> Option<Result<Reply, Failure>> {
        self.executing(run).await?;
        let mut state = self.state();
        let script = script(&request.action);
        let answer = if by == By::Hash && !state.scripts.contains(script) {
            Err(Failure::NoScript)
        } else {
            state.scripts.insert(script);
            let now = self.wall_micros(&state);
            state.store.execute(now, request)
        };
        let told = state.arm(line, request, &answer);
        drop(state);
        self.tell(&told, &request.keys.lock);
        self.note(|| {
            let token = String::from_utf8_lossy(&request.token.as_bytes()[..4]).into_owned();
            let name = String::from_utf8_lossy(&request.keys.lock).into_owned();
            format!("process {} {script} {name} with {token}: {answer:?}", line.process + 1)
        });
        Some(answer)
    }
}

impl State {
    /// Whoever reads a key is told of its next change by another. Returns who is told now.
    fn arm(&mut self, line: &Arc<Line>, request: &Request, answer: &Result<Reply, Failure>) -> Vec<Weak<Line>> {
        let Ok(reply) = answer else { return Vec::new() };
        let is_own = |other: &Weak<Line>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(line));
        if reply.changes() {
            let mut told = self.armed.remove(&request.keys.lock).unwrap_or_default();
            told.retain(|other| !is_own(other));
            return told;
        }
        if reply.reads() && line.ear.as_ref().is_some_and(Ear::watches) {
            let lines = self.armed.entry(request.keys.lock.clone()).or_default();
            if !lines.iter().any(is_own) {
                lines.push(Arc::downgrade(line));
            }
        }
        Vec::new()
    }
}

fn script(action: &Action) -> &'static str {
    match action {
        Action::Acquire { .. } => "acquire",
        Action::Confirm { .. } => "confirm",
        Action::Extend { .. } => "extend",
        Action::Release { .. } => "release",
        Action::Restore { .. } => "restore",
        Action::Inspect => "inspect",
        Action::Peek { .. } => "peek",
        Action::SetnxAcquire { .. } => "setnx_acquire",
        Action::SetnxRelease { .. } => "setnx_release",
    }
}

/// The way from one process to one node.
#[derive(Clone)]
struct Wire {
    process: usize,
    node: Node,
}

impl Wire {
    fn fate(&self, leg: Leg) -> Fate {
        self.node.0.network.fate(self.process, self.node.0.index, leg)
    }

    /// One leg of making a connection.
    async fn travel(&self, leg: Leg) -> Result<(), Failure> {
        match self.fate(leg) {
            Fate::Deliver(delay) => {
                sleep_until(Instant::now() + delay).await;
                Ok(())
            }
            Fate::Drop => std::future::pending().await,
            Fate::Break => Err(Failure::Unreachable("connection reset".into())),
        }
    }

    async fn introduced(self, ear: Option<Ear>) -> Result<(Arc<dyn SimulatedLink>, Introduction), Failure> {
        let refused = || Failure::Unreachable("connection refused".into());
        self.travel(Leg::Connect).await?;
        let run = {
            let state = self.node.state();
            if !state.up {
                return Err(refused());
            }
            state.run
        };
        self.node.executing(run).await.ok_or(Failure::Closed)?;
        let (link, introduction) = {
            let mut state = self.node.state();
            let identity = Identity {
                run_id: format!("run-{}-of-node-{}", state.run, self.node.0.index + 1),
                replid: format!("data-of-node-{}", self.node.0.index + 1),
                replica: false,
            };
            // Servers tell whole seconds.
            let uptime = Duration::from_secs(state.started.elapsed().as_secs());
            let watched = ear.as_ref().is_some_and(Ear::watches);
            let (replies, arriving) = mpsc::unbounded_channel();
            let way = Mutex::new(Way { earliest: Instant::now(), lost: false, replies });
            let line = Arc::new(Line { process: self.process, ear, state: Mutex::default(), way });
            drop(Handle::current().spawn(listen(Arc::downgrade(&line), arriving)));
            state.lines.retain(|line| line.strong_count() > 0);
            state.lines.push(Arc::downgrade(&line));
            (
                Link::new(self.clone(), line, run),
                Introduction { identity, uptime, evicts: None, silent: false, watched },
            )
        };
        self.travel(Leg::Reply).await?;
        Ok((Arc::new(link), introduction))
    }
}

impl SimulatedWire for Wire {
    fn connect(&self, ear: Option<Ear>) -> Connecting {
        Box::pin(self.clone().introduced(ear))
    }
}

/// What the two ends of one connection share.
struct Line {
    process: usize,
    ear: Option<Ear>,
    state: Mutex<LineState>,
    way: Mutex<Way>,
}

/// The way from the node to the client.
struct Way {
    /// What is sent now does not arrive before this.
    earliest: Instant,
    /// Whether nothing arrives any more.
    lost: bool,
    replies: mpsc::UnboundedSender<(Instant, Down)>,
}

/// What a node sends.
enum Down {
    /// The answer to a call.
    Answer(u64, Result<Reply, Failure>),
    /// A key has changed.
    Changed(Vec<u8>),
}

#[derive(Default)]
struct LineState {
    ended: bool,
    calls: u64,
    /// Calls without an answer so far. Dropping a sender tells its call that the connection is over.
    pending: BTreeMap<u64, oneshot::Sender<Result<Reply, Failure>>>,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().expect("no panic while holding this")
    }

    /// The connection is over, as seen by the client.
    fn end(&self) {
        let (pending, is_news) = {
            let mut state = self.state();
            let is_news = !std::mem::replace(&mut state.ended, true);
            (std::mem::take(&mut state.pending), is_news)
        };
        drop(pending);
        if let Some(ear) = self.ear.as_ref().filter(|_| is_news) {
            ear.hear(Heard::Ended);
        }
    }

    /// The node sends something down the line.
    fn send(&self, node: &Node, down: Down) {
        let mut way = self.way.lock().expect("no panic while holding this");
        if way.lost {
            return;
        }
        match node.0.network.fate(self.process, node.0.index, Leg::Reply) {
            Fate::Deliver(delay) => {
                way.earliest = way.earliest.max(Instant::now() + delay);
                drop(way.replies.send((way.earliest, down)));
            }
            Fate::Drop => {
                way.lost = true;
                node.note(|| format!("process {} hears nothing any more on one connection", self.process + 1));
            }
            Fate::Break => {
                drop(way);
                node.note(|| format!("process {} loses a connection before a reply", self.process + 1));
                self.end();
            }
        }
    }

    fn arrived(&self, down: Down) {
        match (down, &self.ear) {
            (Down::Answer(call, answer), _) => self.answer(call, answer),
            (Down::Changed(key), Some(ear)) if !self.is_ended() => ear.hear(Heard::Changed(&key)),
            (Down::Changed(_), _) => {}
        }
    }

    fn is_ended(&self) -> bool {
        self.state().ended
    }

    /// Whether nobody waits for the answer to `call` any more; it is forgotten then.
    fn is_taken_back(&self, call: u64) -> bool {
        let mut state = self.state();
        let unwanted = state.pending.get(&call).is_none_or(oneshot::Sender::is_closed);
        if unwanted {
            state.pending.remove(&call);
        }
        unwanted
    }

    fn answer(&self, call: u64, answer: Result<Reply, Failure>) {
        let sender = self.state().pending.remove(&call);
        if let Some(sender) = sender {
            drop(sender.send(answer));
        }
    }
}

/// A request on its way.
struct Call {
    id: u64,
    request: Request,
    by: By,
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
        let runtime = Handle::current();
        drop(runtime.spawn(write(wire.clone(), Arc::clone(&line), calls, written)));
        drop(runtime.spawn(serve(wire, Arc::clone(&line), run, arriving)));
        Self { line, queue }
    }
}

impl SimulatedLink for Link {
    fn call(&self, request: Request, by: By) -> Answer {
        let (line, queue) = (Arc::clone(&self.line), self.queue.clone());
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let id = {
                let mut state = line.state();
                if state.ended {
                    return Err(Failure::Closed);
                }
                state.calls += 1;
                let id = state.calls;
                state.pending.insert(id, sender);
                id
            };
            if queue.send(Call { id, request, by }).is_err() {
                return Err(Failure::Closed);
            }
            receiver.await.unwrap_or(Err(Failure::Closed))
        })
    }
}

/// Writes requests in their order.
async fn write(
    wire: Wire,
    line: Arc<Line>,
    mut calls: mpsc::UnboundedReceiver<Call>,
    written: mpsc::UnboundedSender<(Instant, Call)>,
) {
    let mut earliest = Instant::now();
    let mut lost = false;
    while let Some(call) = calls.recv().await {
        if let Fate::Deliver(delay) = wire.fate(Leg::Write)
            && !delay.is_zero()
        {
            sleep_until(Instant::now() + delay).await;
        }
        if line.is_taken_back(call.id) {
            let script = script(&call.request.action);
            wire.node.note(|| format!("process {} takes back {script}", wire.process + 1));
            continue;
        }
        match wire.fate(Leg::Request) {
            _ if lost || line.is_ended() => {}
            Fate::Deliver(delay) => {
                earliest = earliest.max(Instant::now() + delay);
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
        sleep_until(at).await;
        match wire.node.execute(run, &line, &call.request, call.by).await {
            Some(answer) => line.send(&wire.node, Down::Answer(call.id, answer)),
            // A crash has its own way to say so; a server that has started anew refuses what it does not know.
            None if wire.node.state().up => line.end(),
            None => {}
        }
    }
}

/// Hands over what arrives at the client.
async fn listen(line: Weak<Line>, mut arriving: mpsc::UnboundedReceiver<(Instant, Down)>) {
    while let Some((at, down)) = arriving.recv().await {
        sleep_until(at).await;
        if let Some(line) = line.upgrade() {
            line.arrived(down);
        }
    }
}
