//! One run: the workers, the store that they write to, the network and what goes wrong.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Leg, Network, Node, Pace, Program, World};
use redlock::{Guard, Redlock};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::Instant;

pub(crate) const TTL: Duration = Duration::from_secs(3);
/// When the trouble begins.
pub(crate) const CUE: Duration = Duration::from_millis(1_500);
pub(crate) const END: Duration = Duration::from_secs(20);
pub(crate) const WORKERS: [&str; 3] = ["A", "B", "C"];

/// For how long the trouble lasts: longer than the ttl.
const LASTS: Duration = Duration::from_millis(4_500);
/// How long a message takes, so that it can be watched.
const JOURNEY: Duration = Duration::from_millis(40);
/// How long a holder prepares what it writes, after it has seen that it holds the lock.
const PREPARES: Duration = Duration::from_millis(400);
/// How much farther each node is than the one before, where one round is drawn.
const SPREAD: Duration = Duration::from_millis(6);
const WRITES: usize = 10;
const NAME: &str = "account:7";
/// How often the nodes are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    Nothing,
    PauseHolder,
    KillHolder,
    /// So many nodes do not answer for a while, or all if there are fewer.
    FreezeNodes(usize),
    /// So many nodes are gone for a while, and come back without their data.
    RestartNodes(usize),
}

/// Everything that happens, in order.
#[derive(Debug)]
struct Tape {
    runtime: Handle,
    /// How much longer a message takes to each node than to the one before.
    spread: Duration,
    start: Instant,
    events: Mutex<Vec<Value>>,
}

impl Tape {
    fn open(&self) -> MutexGuard<'_, Vec<Value>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        let _inside = self.runtime.enter();
        self.start.elapsed()
    }

    fn write(&self, mut event: Value) {
        event["t"] = json!(u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX));
        self.open().push(event);
    }
}

impl Network for Tape {
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate {
        let later = self.spread * u32::try_from(node).unwrap_or(0);
        let journey = if leg == Leg::Write { Duration::ZERO } else { JOURNEY + later };
        match leg {
            Leg::Request => self.write(json!({"e": "ask", "p": process, "n": node})),
            Leg::Reply => self.write(json!({"e": "answer", "p": process, "n": node})),
            Leg::Connect | Leg::Write => {}
        }
        Fate::Deliver(journey)
    }

    /// A line such as `node 1: process 2 acquire account:7 with 1a2b: Ok(Granted(3))`.
    fn note(&self, line: &dyn Fn() -> String) {
        let line = line();
        let Some((node, rest)) = line.strip_prefix("node ").and_then(|rest| rest.split_once(": process ")) else {
            return;
        };
        let mut words = rest.splitn(3, ' ');
        let (Some(process), Some(script), Some(rest)) = (words.next(), words.next(), words.next()) else { return };
        let (Ok(node), Ok(process), Some((_, answer))) =
            (node.parse::<usize>(), process.parse::<usize>(), rest.rsplit_once(": "))
        else {
            return;
        };
        let answer = answer.trim_start_matches("Ok(").trim_start_matches("Err(");
        let kind: String = answer.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        self.write(json!({"e": "ran", "n": node - 1, "p": process - 1, "script": script, "answer": kind}));
    }
}

/// What the workers write to. It remembers the largest fence, and refuses smaller ones.
#[derive(Debug, Default)]
struct Store {
    fence: Mutex<u64>,
}

impl Store {
    fn write(&self, fence: u64) -> bool {
        let mut largest = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = fence >= *largest;
        *largest = fence.max(*largest);
        is_fresh
    }
}

/// A worker, as its own code knows itself.
#[derive(Clone)]
struct Worker {
    number: usize,
    world: World,
    tape: Arc<Tape>,
    store: Arc<Store>,
}

impl Worker {
    /// Works for ever: acquires, writes a few times, releases.
    async fn work(self, client: Redlock) {
        self.world.sleep(Duration::from_millis(100 + 150 * self.number as u64)).await;
        loop {
            self.tape.write(json!({"e": "want", "p": self.number}));
            match client.lock(NAME).ttl(TTL).acquire().await {
                Ok(guard) => self.hold(guard).await,
                Err(error) => {
                    self.tape.write(json!({"e": "failed", "p": self.number, "code": format!("{:?}", error.kind())}))
                }
            }
            self.world.sleep(Duration::from_millis(600)).await;
        }
    }

    async fn hold(&self, guard: Guard) {
        let (number, fence) = (self.number, guard.fence());
        self.tape.write(json!({"e": "won", "p": number, "fence": fence}));
        for _ in 0..WRITES {
            if let Err(error) = guard.check() {
                let reason = error.reason().map_or("", |reason| reason.as_str());
                self.tape.write(json!({"e": "lost", "p": number, "fence": fence, "reason": reason}));
                return;
            }
            // A pause fits between the check and the write. Only the fence covers it.
            self.world.sleep(PREPARES).await;
            let is_taken = self.store.write(fence);
            self.tape.write(json!({"e": "write", "p": number, "fence": fence, "ok": is_taken}));
        }
        match guard.release().await {
            Ok(()) => self.tape.write(json!({"e": "released", "p": number, "fence": fence})),
            Err(error) => match error.reason() {
                Some(reason) => {
                    self.tape.write(json!({"e": "lost", "p": number, "fence": fence, "reason": reason.as_str()}));
                }
                None => self.tape.write(json!({"e": "unconfirmed", "p": number, "fence": fence})),
            },
        }
    }
}

/// Plays a run, and returns what happened.
pub(crate) fn record(nodes: usize, trouble: Trouble) -> Vec<Value> {
    virtual_time().block_on(play(nodes, trouble))
}

/// Plays one acquire of a free lock, to nodes at different distances, of which some are frozen; returns what happened.
pub(crate) fn round(nodes: usize, frozen: usize) -> Vec<Value> {
    virtual_time().block_on(async {
        let (tape, world) = set_up(nodes, SPREAD);
        let program = world.program(0, Pace::default(), bits(0));
        let order: Vec<usize> = (0..nodes).collect();
        let client = program.client(&order, &Redlock::builder().label(WORKERS[0])).expect("1 to 15 nodes");
        let (done, is_done) = tokio::sync::oneshot::channel();
        let (caller, stage) = (program.runtime(), (world.clone(), Arc::clone(&tape)));
        caller.spawn(async move {
            let (world, tape) = stage;
            // Connections are made then, and the servers know the scripts.
            drop(client.lock(NAME).acquire().await);
            world.sleep(TTL).await;
            tape.open().clear();
            world.nodes()[..frozen].iter().for_each(Node::freeze);
            tape.write(json!({"e": "want", "p": 0}));
            if let Ok(guard) = client.lock(NAME).acquire().await {
                tape.write(json!({"e": "won", "p": 0, "fence": guard.fence()}));
                world.sleep(TTL / 10).await;
                let _ = done.send(());
                std::future::pending::<()>().await;
            }
        });
        tokio::select! {
            _ = is_done => {}
            () = world.sleep(END) => {}
        }
        std::mem::take(&mut *tape.open())
    })
}

fn virtual_time() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without sockets needs nothing of the system")
}

fn set_up(nodes: usize, spread: Duration) -> (Arc<Tape>, World) {
    let tape = Tape { runtime: Handle::current(), spread, start: Instant::now(), events: Mutex::default() };
    let tape = Arc::new(tape);
    let world = World::new(Arc::clone(&tape) as Arc<dyn Network>, &vec![Pace::default(); nodes]);
    (tape, world)
}

async fn play(nodes: usize, trouble: Trouble) -> Vec<Value> {
    let (tape, world) = set_up(nodes, Duration::ZERO);
    let store = Arc::new(Store::default());
    let mut programs = Vec::new();
    for (number, label) in WORKERS.into_iter().enumerate() {
        let program = world.program(number, Pace::default(), bits(number));
        let order: Vec<usize> = (0..nodes).collect();
        let client = program.client(&order, &Redlock::builder().label(label)).expect("1 to 15 nodes");
        let caller = program.runtime();
        let worker = Worker { number, world: world.clone(), tape: Arc::clone(&tape), store: Arc::clone(&store) };
        caller.spawn(worker.work(client));
        programs.push((program, caller));
    }
    let looking = look(&world, &tape);
    let trouble = make(trouble, &world, &tape, &programs);
    tokio::select! {
        () = looking => {}
        () = trouble => {}
        () = world.sleep(END) => {}
    }
    std::mem::take(&mut *tape.open())
}

/// The same bits in every run.
fn bits(number: usize) -> impl Fn(&mut [u8]) + Send + Sync + 'static {
    let state = Mutex::new(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64 + 1));
    move |bytes| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in bytes {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *byte = (*state >> 32) as u8;
        }
    }
}

/// Writes down what each node has whenever that has changed, for as long as it is polled.
async fn look(world: &World, tape: &Tape) {
    let mut seen: Vec<Value> = vec![Value::Null; world.nodes().len()];
    loop {
        for (number, node) in world.nodes().iter().enumerate() {
            let has = contents(node);
            if has != seen[number] {
                tape.write(json!({"e": "has", "n": number, "holder": has[0], "fence": has[1], "last": has[2]}));
                seen[number] = has;
            }
        }
        world.sleep(LOOK).await;
    }
}

/// Whose the lock is at a node, with which fence, and the last fence that the node knows.
fn contents(node: &Node) -> Value {
    let (mut holder, mut fence, mut last) = (Value::Null, Value::Null, Value::Null);
    for (key, value) in node.keys() {
        if key == NAME {
            let mut parts = value.splitn(3, ':').skip(1);
            fence = json!(parts.next().and_then(|fence| fence.parse::<u64>().ok()));
            holder = json!(parts.next());
        } else if key == format!("redlock:fence:{{{NAME}}}") {
            last = json!(value.parse::<u64>().ok());
        }
    }
    json!([holder, fence, last])
}

/// Has one thing go wrong, and then waits for ever.
async fn make(
    trouble: Trouble,
    world: &World,
    tape: &Tape,
    programs: &[(Program, redlock::testing::simulation::Runtime)],
) {
    world.sleep(CUE).await;
    let holder = holder(tape);
    let some = |count: usize| &world.nodes()[..count.min(world.nodes().len())];
    let tell = |event: &str, node: &Node| {
        let number = world.nodes().iter().position(|other| other.is(node));
        tape.write(json!({"e": event, "n": number}));
    };
    match trouble {
        Trouble::Nothing => {}
        Trouble::PauseHolder => {
            tape.write(json!({"e": "paused", "p": holder}));
            programs[holder].0.stop();
            world.sleep(LASTS).await;
            tape.write(json!({"e": "resumed", "p": holder}));
            programs[holder].0.go_on();
        }
        Trouble::KillHolder => {
            tape.write(json!({"e": "killed", "p": holder}));
            programs[holder].0.kill();
        }
        Trouble::FreezeNodes(count) => {
            for node in some(count) {
                tell("frozen", node);
                node.freeze();
            }
            world.sleep(LASTS).await;
            for node in some(count) {
                tell("thawed", node);
                node.thaw();
            }
        }
        Trouble::RestartNodes(count) => {
            for node in some(count) {
                tell("down", node);
                node.crash(false);
            }
            world.sleep(LASTS / 3).await;
            for node in some(count) {
                tell("up", node);
                node.start();
            }
        }
    }
    std::future::pending().await
}

/// The worker that holds the lock now.
fn holder(tape: &Tape) -> usize {
    let events = tape.open();
    let won = events.iter().rev().find(|event| event["e"] == "won").expect("somebody has the lock by then");
    won["p"].as_u64().and_then(|number| usize::try_from(number).ok()).expect("a worker has a number")
}
