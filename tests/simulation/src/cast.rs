//! The processes of a run: what happens to them, and who takes the place of those that end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlock::testing::simulation::{Program, Runtime, World};
use redlock::{NodeState, NodeView, Redlock};
use redlock_history::Kind;

use crate::book::{Fate, Pen, Shared, nanos, seen};
use crate::client::{Crew, Task};
use crate::dice::Dice;
use crate::plan::{Plan, Topology, Trouble};
use crate::shape::{CONTESTED, NAMES};

/// One process after the other, each with the same tasks.
#[derive(Debug)]
pub(crate) struct Role {
    world: World,
    plan: Plan,
    index: usize,
    book: Shared,
    dice: Dice,
    /// How many have played it.
    lives: usize,
    pub(crate) life: Life,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) program: Arc<Program>,
    pub(crate) clients: Clients,
    runtimes: Vec<Runtime>,
    pub(crate) fate: Fate,
    pub(crate) label: String,
}

/// The clients of a process: two that share what they know, and one that lists the nodes in another order.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    program: Arc<Program>,
    label: String,
    nodes: usize,
    /// Those that live as long as the process; none where each call makes its own.
    kept: Vec<Redlock>,
}

impl Clients {
    const COUNT: usize = 3;

    fn new(program: &Arc<Program>, label: &str, plan: &Plan) -> Self {
        let (program, label) = (Arc::clone(program), label.to_owned());
        let mut clients = Self { program, label, nodes: plan.nodes.len(), kept: Vec::new() };
        if !plan.unusual.brief_clients {
            clients.kept = clients.all();
        }
        clients
    }

    pub(crate) fn get(&self, index: usize) -> Redlock {
        if let Some(client) = self.kept.get(index) {
            return client.clone();
        }
        let mut order: Vec<usize> = (0..self.nodes).collect();
        let owner = [&*self.label, "a second client", ""][index];
        if index == 2 {
            order.reverse();
        }
        self.program.client(&order, &Redlock::builder().label(owner)).expect("1 to 5 nodes are allowed")
    }

    /// Whether each call has a client of its own.
    pub(crate) fn are_brief(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn any(&self, dice: &mut Dice) -> Redlock {
        self.get(dice.index(Self::COUNT))
    }

    pub(crate) fn all(&self) -> Vec<Redlock> {
        (0..Self::COUNT).map(|index| self.get(index)).collect()
    }
}

impl Role {
    pub(crate) fn new(world: &World, plan: &Plan, index: usize, book: &Shared, mut dice: Dice) -> Self {
        let label = format!("process {}", index + 1);
        let life = Life::new(world, plan, index, label, &mut dice);
        Self { world: world.clone(), plan: plan.clone(), index, book: book.clone(), dice, lives: 1, life }
    }

    /// How many tasks it has.
    pub(crate) fn tasks(&self) -> usize {
        self.plan.processes[self.index].1
    }

    /// Connects to every node, so that its restarts are seen.
    pub(crate) async fn meet_nodes(&self) {
        let clients = self.life.clients.all();
        for (client, name) in
            clients.iter().flat_map(|client| NAMES[..CONTESTED].iter().map(move |name| (client, name)))
        {
            for _ in 0..100 {
                let is_met = |node: &NodeView| !matches!(node.state, NodeState::Unavailable { .. });
                if client.inspect(name).await.is_ok_and(|view| view.nodes.iter().all(is_met)) {
                    break;
                }
                // A node that could not be connected to may not be connected to again before that.
                self.world.sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Has the tasks play `part` until all of `crew` are done, and things happen meanwhile if they `may`.
    pub(crate) async fn play<F>(&mut self, crew: &Arc<Crew>, may: bool, part: impl Fn(Task, Arc<Crew>, usize) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(crew, &crew.busy(), &part);
        loop {
            let pause = self.dice.millis(0, 8_000);
            let mishap = self.dice.below(4);
            tokio::select! {
                biased;
                () = crew.done() => return,
                () = self.world.sleep(pause), if may => {}
                () = std::future::pending(), if !may => {}
            }
            let mishaps = self.plan.mishaps;
            match mishap {
                0 if mishaps.stops => self.stop().await,
                1 if mishaps.kills => {
                    self.kill().await;
                    self.start(crew, &crew.busy(), &part);
                }
                2 if mishaps.ends => {
                    let runtime = self.dice.index(self.life.runtimes.len());
                    self.world.note(|| format!("{}: runtime {} ends", self.life.label, runtime + 1));
                    self.life.runtimes[runtime].end();
                    self.life.runtimes[runtime] = self.life.program.runtime();
                    let runtimes = self.life.runtimes.len();
                    let tasks: Vec<usize> = crew.busy().into_iter().filter(|task| task % runtimes == runtime).collect();
                    // Its tasks are dropped first.
                    self.world.sleep(Duration::from_millis(1)).await;
                    self.start(crew, &tasks, &part);
                }
                _ if !self.plan.forgets() => {
                    let most = self.dice.pick(&[1_000, 1_000_000, 3_600_000_000]);
                    let micros = self.dice.around_zero(most);
                    // A lock that changes hands counts its least time by this clock.
                    if self.plan.mix.handed_over == 0 || self.plan.mix.at_least == 0 {
                        self.life.program.machine().step_clock(micros);
                    }
                }
                _ => {}
            }
        }
    }

    fn start<F>(&mut self, crew: &Arc<Crew>, tasks: &[usize], part: impl Fn(Task, Arc<Crew>, usize) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        for task in tasks {
            let pen = Pen {
                world: self.world.clone(),
                book: self.book.clone(),
                fate: self.life.fate.clone(),
                label: format!("{} task {}", self.life.label, task + 1),
            };
            let player = Task {
                pen,
                clients: self.life.clients.clone(),
                pace: self.plan.processes[self.index].0,
                ttl: self.plan.ttl,
                one_ttl: self.plan.has_one_ttl(),
                stalls: self.plan.trouble == Trouble::Clocks,
                restarts: self.plan.restarts(),
                keeps_keys: self.plan.keeps_keys(),
                mass: if (self.index, *task) == (0, 0) { self.plan.unusual.mass } else { 0 },
                masses: 0,
                journey: Duration::from_millis(2 * (self.plan.unusual.least_ms + self.plan.delay_ms)),
                one_node: self.plan.nodes.len() == 1,
                are_clusters: self.plan.unusual.topology == Topology::Cluster,
                mix: self.plan.mix,
                neglected_per_thousand: self.plan.neglected_per_thousand,
                neglected: Mutex::default(),
                dice: self.dice.fork(),
            };
            let runtime = &self.life.runtimes[task % self.life.runtimes.len()];
            runtime.spawn(part(player, Arc::clone(crew), *task));
        }
    }

    fn now_ns(&self) -> u64 {
        nanos(self.world.now())
    }

    async fn stop(&mut self) {
        let longest = self.dice.pick(&[50, 500, 5_000, 60_000]);
        let pause = self.dice.millis(1, longest);
        let from_ns = self.now_ns();
        self.life.program.stop();
        self.world.sleep(pause).await;
        let to_ns = self.now_ns();
        self.life.fate.stood_still(from_ns, to_ns);
        for task in 0..self.tasks() {
            let label = format!("{} task {}", self.life.label, task + 1);
            self.book.open().history.push(seen(Kind::Stopped, &label, "", from_ns, to_ns, None));
        }
        if self.plan.trouble == Trouble::Clocks && self.dice.chance(300) {
            // As a virtual machine that does not know that it was stopped.
            self.life.program.machine().stalled(Duration::from_nanos(to_ns - from_ns));
        }
        self.life.program.go_on();
    }

    async fn kill(&mut self) {
        self.life.fate.kill();
        self.life.program.kill();
        let (world, book, fate) = (self.world.clone(), self.book.clone(), self.life.fate.clone());
        Pen { world, book, fate, label: self.life.label.clone() }.leave_owed();
        let longest = self.dice.pick(&[1, 500, 5_000]);
        self.world.sleep(self.dice.millis(1, longest)).await;
        self.start_anew();
    }

    /// Another process takes its place.
    pub(crate) fn start_anew(&mut self) {
        self.lives += 1;
        let label = format!("process {} life {}", self.index + 1, self.lives);
        self.life = Life::new(&self.world, &self.plan, self.index, label, &mut self.dice);
    }
}

impl Life {
    fn new(world: &World, plan: &Plan, index: usize, label: String, dice: &mut Dice) -> Self {
        let random = Mutex::new(dice.fork());
        let fill = move |bytes: &mut [u8]| random.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
        let program = Arc::new(world.program(index, plan.processes[index].0, fill));
        let clients = Clients::new(&program, &label, plan);
        let runtimes = (0..dice.between(1, 2)).map(|_| program.runtime()).collect();
        Self { program, clients, runtimes, fate: Fate::default(), label }
    }
}
