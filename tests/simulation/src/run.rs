//! Plays one seed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use redlock::ErrorKind;
use redlock::testing::simulation::{Network, Shards, World};
use redlock_history::{
    BRIDGED, COUNTED_TWICE, DUPLICATE, Kind, OUT_OF_ORDER, Record, Report, Rules, SUPERSEDED, Violation, check,
};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::book::{Shared, nanos, seen};
use crate::cast::Role;
use crate::client::{Crew, MASS, OLDER, Task};
use crate::dice::Dice;
use crate::faults;
use crate::moves;
use crate::network::{REFUSED_WITHIN, Weather};
use crate::plan::{LONG, MASS_MOST, Plan, Topology, Trouble};
use crate::shape::{CONTESTED, NAMES, Shape, lock_of};
use crate::story::Story;

/// Virtual time after which a run that has not ended hangs.
const HANGS: Duration = Duration::from_secs(3 * 3_600);

/// Virtual time in which what is owed to nodes that answer again is paid: connections that have gone silent are given
/// up after two time-outs, and a release that went unanswered is sent again after 2 s at the latest.
const PAID: Duration = Duration::from_secs(12);

/// Virtual time for which a lock may lie idle in calm while somebody waits for it. A message takes 20 ms there at most, so
/// that the longest way to a lock is this: the news of its release 20 ms, what a process leaves to others and the place
/// in line 100 ms each, a look at the nodes 40 ms, an attempt 160 ms where the node has to be sent the script, the fence
/// has to be confirmed and a split vote be taken back. Twice that, for a vote that was split, is less; and whoever has
/// slept through the news is not woken before 1.5 s have passed.
const IDLE: Duration = Duration::from_secs(1);

/// The default at the ttl of a mass.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// Virtual time in which keys expire on nodes whose clocks were set back as far as they are here.
const EXPIRED: Duration = Duration::from_secs(2 * 3_600);

/// Seconds of real time after which a run is stuck in a loop that lets no virtual time pass. A run needs a tenth of one, and
/// without optimisation half of one. They are counted one by one: a machine that stood still for long has counted one.
const STUCK_AFTER: u32 = 300;

/// How often one node may refuse a process within [`REFUSED_WITHIN`]: 20 times a second, and as many at once.
const REFUSED_MOST: usize = 120;

/// What one seed came to.
#[derive(Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// What it meant.
    pub plan: Plan,
    /// What happened; empty unless asked for.
    pub trace: Vec<String>,
    /// What was wrong, and numbers.
    pub outcome: Outcome,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Everything that should not have been, one line each.
    pub flaws: Vec<String>,
    /// Those among them that the recorded calls show.
    pub violations: Vec<Violation>,
    /// The judgement of the recorded calls; not all that it finds is a flaw where nodes lose their data.
    pub report: Report,
    /// Calls to the library, looking at guards left out.
    pub operations: usize,
    /// Calls that were cancelled half-way.
    pub cancelled: usize,
    /// Extensions and renewals seen.
    pub extended: usize,
    /// Messages that were sent.
    pub messages: u64,
    /// Virtual time.
    pub took: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {} operations, {} cancelled, {} extensions, {} messages in {:?}",
            self.report, self.operations, self.cancelled, self.extended, self.messages, self.took
        )
    }
}

/// Plays `seed`.
///
/// # Panics
///
/// If no runtime can be made, or if the run sends messages without end. A run that is stuck ends the whole program.
#[must_use]
pub fn run(seed: u64, traced: bool) -> Run {
    let _watchdog = watchdog(seed);
    let (plan, mut dice) = Plan::new(seed);
    let (outcome, trace) = runtime().block_on(async {
        let weather = Arc::new(Weather::new(&plan, dice.fork(), traced));
        let stage = Stage::new(seed, &plan, &mut dice, &weather);
        let outcome = stage.play(dice).await;
        (outcome, weather.trace())
    });
    Run { seed, plan, trace, outcome }
}

/// Tells `story` to the processes and nodes of `plan`, and judges it as the run of a seed.
///
/// # Panics
///
/// As [`run`].
pub fn tell<'a>(plan: &'a Plan, story: impl AsyncFnOnce(&mut Story<'a>)) -> Outcome {
    let _watchdog = watchdog(0);
    let mut dice = Dice::new(0);
    runtime().block_on(async {
        let weather = Arc::new(Weather::new(plan, dice.fork(), false));
        let mut told = Story(Stage::new(0, plan, &mut dice, &weather));
        for role in &told.0.roles {
            role.meet_nodes().await;
        }
        story(&mut told).await;
        let mut stage = told.0;
        stage.end_well().await;
        stage.judge()
    })
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without sockets needs nothing of the system")
}

/// Ends the program unless what is returned is dropped in time: nothing else gets out of a loop without an await.
fn watchdog(seed: u64) -> mpsc::Sender<()> {
    let (running, ended) = mpsc::channel();
    thread::spawn(move || {
        let is_running = |_| ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout);
        if (0..STUCK_AFTER).all(is_running) {
            eprintln!("seed {seed} is stuck: it has let no virtual time pass for a while");
            std::process::abort();
        }
    });
    running
}

/// Everything that takes part in a run.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    plan: &'a Plan,
    /// What is unusual is drawn from this, apart from the rest.
    seed: u64,
    weather: Arc<Weather>,
    pub(crate) world: World,
    pub(crate) book: Shared,
    pub(crate) roles: Vec<Role>,
    flaws: Vec<String>,
}

impl<'a> Stage<'a> {
    fn new(seed: u64, plan: &'a Plan, dice: &mut Dice, weather: &Arc<Weather>) -> Self {
        let weather = Arc::clone(weather);
        let network = Arc::clone(&weather) as Arc<dyn Network>;
        let world = match plan.unusual.topology {
            Topology::Server => World::new(network, &plan.nodes),
            Topology::Cluster => World::of_clusters(network, &plan.nodes),
            Topology::Sentinels => World::of_sentinels(network, &plan.nodes),
        };
        if plan.unusual.old_servers {
            world.clusters().iter().for_each(Shards::age);
        }
        let book = Shared::default();
        weather.write_to(&book);
        let role = |index| Role::new(&world, plan, index, &book, dice.fork());
        let roles = (0..plan.processes.len()).map(role).collect();
        Self { plan, seed, weather, world, book, roles, flaws: Vec::new() }
    }

    async fn play(mut self, mut dice: Dice) -> Outcome {
        for role in &self.roles {
            role.meet_nodes().await;
        }
        let (plan, world, book, weather) =
            (self.plan, self.world.clone(), self.book.clone(), Arc::clone(&self.weather));
        let trouble = faults::trouble(world.clone(), plan, &book, dice.fork());
        let oddities = faults::oddities(world.clone(), plan, Dice::new(!self.seed));
        let acting = self.act(plan.calls, true, async |task: Task, crew, number| task.run(&crew, number).await);
        let finished = tokio::select! {
            biased;
            finished = timeout(HANGS, acting) => finished.is_ok(),
            () = trouble => false,
            () = oddities => false,
            () = weather.flooded() => false,
        };
        if finished {
            self.end_well().await;
        } else {
            let doing = self.book.open().doing.clone();
            self.flaws.push(format!("the run hangs: {doing:?}"));
        }
        self.judge()
    }

    /// Has every task of every process play `part`.
    async fn act<F>(&mut self, calls: usize, may: bool, part: impl Fn(Task, Arc<Crew>, usize) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let acting = self.roles.iter_mut().map(|role| {
            let crew = Arc::new(Crew::new(role.tasks(), calls));
            let part = &part;
            async move { role.play(&crew, may, part).await }
        });
        all(acting.map(Box::pin).collect()).await;
    }

    /// Ends all trouble, and sees what must be true from then on.
    async fn end_well(&mut self) {
        self.world.note(|| "all faults are healed".to_owned());
        self.weather.clear();
        faults::heal(&self.world);
        sleep(PAID).await;
        // What a killed process had asked for, or the network doubled, lives for its ttl, which is long for a mass.
        let is_mass = self.plan.unusual.mass > 0;
        let shows_mass = is_mass && self.plan.twice_per_thousand == 0 && !self.plan.mishaps.kills;
        if self.plan.shows_leaks() || shows_mass {
            self.note_keys(shows_mass);
        }
        if self.plan.trouble == Trouble::Clocks {
            sleep(EXPIRED).await;
            self.book.open().prolonged.clear();
        }
        faults::end_connections(&self.world);
        for role in &self.roles {
            role.meet_nodes().await;
        }
        // Keys and bars have run out by then.
        sleep(PAID.max(self.plan.ttl * 4).max(if is_mass { LONG * 2 } else { Duration::ZERO })).await;
        self.note_keys(true);
        self.acquire_all().await;
        let giving_up = self.act(8, false, async |task: Task, crew, number| task.give_up(&crew, number).await);
        if timeout(HANGS, giving_up).await.is_err() {
            self.flaws.push("the run hangs while callers give up".to_owned());
        }
        sleep(PAID).await;
        self.note_keys(true);
        self.acquire_all().await;
        self.take_turns().await;
    }

    /// New processes, whose connections have seen no trouble, want the same lock.
    async fn take_turns(&mut self) {
        self.book.open().history.push(seen(Kind::Outage, "the trouble before", "", 0, nanos(self.world.now()), None));
        self.roles.iter_mut().for_each(Role::start_anew);
        let calm = moves::in_calm(self.world.clone(), self.plan, Dice::new(self.seed));
        let turns = self.act(2, false, async |task: Task, crew, number| task.take_turns(&crew, number).await);
        let turns = async {
            tokio::select! {
                biased;
                () = turns => {}
                () = calm => {}
            }
        };
        if timeout(HANGS, turns).await.is_err() {
            self.flaws.push("the run hangs while callers take turns".to_owned());
        }
    }

    /// What every process must be able to have.
    fn shapes(&self) -> Vec<Shape> {
        let mix = self.plan.mix;
        let names = if mix.sets > 0 { &NAMES[..] } else { &NAMES[..CONTESTED] };
        let mut shapes: Vec<Shape> = names.iter().map(|name| Shape::One(name)).collect();
        if mix.sets > 0 {
            shapes.push(Shape::All(vec![NAMES[0], NAMES[2]]));
            shapes.push(Shape::All(vec![NAMES[3], NAMES[1]]));
        }
        if mix.shared > 0 {
            shapes.push(Shape::Shared(NAMES[0]));
        }
        if mix.permits > 0 {
            // Two slots of one, and whichever of another.
            shapes.push(Shape::Permit(NAMES[0], 1));
            shapes.push(Shape::Permit(NAMES[1], 4));
        }
        shapes
    }

    /// Every process gets every lock, without waiting for long.
    async fn acquire_all(&mut self) {
        let is_far = self.plan.unusual.least_ms > 0;
        // An attempt that has to send scripts, and to confirm, is four round trips and its clean-up another one.
        let patience = Duration::from_secs(if is_far { 10 } else { 3 });
        for role in &self.roles {
            let clients = role.life.clients.all();
            for (shape, client) in self.shapes().iter().zip(clients.iter().rev().cycle()) {
                let lock = shape.lock(client).ttl(self.plan.ttl).timeout(patience);
                let result = match lock.acquire().await {
                    Ok(guard) => match guard.release().await {
                        // A server that was just started is sent each script, which takes a release two round trips.
                        Err(error) if is_far && error.kind() == ErrorKind::Unavailable => Ok(()),
                        result => result,
                    },
                    Err(error) => Err(error),
                };
                if let Err(error) = result {
                    self.flaws.push(format!("a process cannot have {}: {error}", shape.told()));
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
        self.note_keys(true);
    }

    /// Writes down the keys that are left on the nodes, those of a mass if they should be gone too.
    fn note_keys(&self, with_mass: bool) {
        let now_ns = nanos(self.world.now());
        for (index, node) in self.world.nodes().iter().enumerate() {
            let node_name = format!("node {}", index + 1);
            for (key, value) in node.keys() {
                if self.book.open().prolonged.contains(&(index, key.clone(), value.clone())) {
                    continue;
                }
                let fence = value.split(':').nth(1).and_then(|fence| fence.parse().ok());
                if let Some((name, slot)) = lock_of(&key)
                    && ((with_mass && name.starts_with(MASS)) || NAMES.contains(&name))
                {
                    let key = seen(Kind::Key, &node_name, name, now_ns, now_ns, fence);
                    self.book.open().history.push(Record { slot, ..key });
                }
                if key == OLDER {
                    self.world.note(|| format!("{node_name} has {key} = {value}"));
                }
            }
        }
    }

    fn judge(self) -> Outcome {
        let book = std::mem::take(&mut *self.book.open());
        let rules = self.rules();
        let report = check(&book.history, &rules);
        let older = Rules {
            exclusion: self.plan.excludes_older(),
            told_late: None,
            order: false,
            idle: None,
            quorum: None,
            ..rules
        };
        let older = check(&book.older, &older);
        let remembers_after = self.plan.forgets().then(|| nanos(self.plan.remembers_after(self.world.now())));
        let mut violations: Vec<Violation> =
            report.violations.iter().filter(|violation| counts(violation, remembers_after)).cloned().collect();
        violations.extend(older.violations);
        let mut flaws: Vec<String> = violations.iter().map(ToString::to_string).collect();
        flaws.extend(book.flaws);
        flaws.extend(self.flaws);
        let refused = self.weather.refused_most();
        // Another process takes the place of one that was killed; clocks that run at any rate pace nothing.
        if refused > REFUSED_MOST && !self.plan.mishaps.kills && self.plan.trouble != Trouble::Clocks {
            flaws.push(format!("a process was refused {refused} connections by one node within {REFUSED_WITHIN:?}"));
        }
        Outcome {
            flaws,
            violations,
            report,
            operations: book.operations,
            cancelled: book.cancelled,
            extended: book.extended,
            messages: self.weather.messages(),
            took: self.world.now(),
        }
    }

    /// What [`Plan`] says of the promises.
    fn rules(&self) -> Rules {
        let Plan { ttl, trouble, nodes, unusual, mix, .. } = self.plan;
        // So many ways of a message go by until somebody has the lock.
        let ways = match unusual.topology {
            // Where a slot moves on the way, servers have to be connected to, and all is asked again.
            Topology::Cluster => 40,
            // The caller and the background connect, six each. Others are faster at a permit, which is taken back where
            // it was granted and looked for with a script that has to be sent, eight, and at the next one, two. Then the
            // bell is read, a permit looked for and taken, six.
            _ if mix.permits > 0 => 28,
            _ => 20,
        };
        let mut idle = IDLE + ways * Duration::from_millis(unusual.least_ms);
        if unusual.mass == MASS_MOST && self.plan.lost_per_ten_thousand > 0 {
            // Of so many messages at once one is lost, and its connection is silent for a time-out: in the attempt,
            // and in what it takes back.
            idle += 2 * NODE_TIMEOUT;
        }
        // Clocks may be 0.2 % off, timers count milliseconds. Clocks that stand still are their holder's own affair.
        // Where a caller's runtime ends, nobody writes down a renewal that came since the last look, a twentieth of the ttl ago.
        let unseen = if self.plan.mishaps.ends { *ttl / 20 } else { Duration::ZERO };
        let told_late = (*trouble != Trouble::Clocks).then(|| Duration::from_millis(5) + *ttl / 100 + unseen);
        Rules {
            exclusion: self.plan.excludes(),
            told_late,
            order: true,
            settle: PAID,
            limit: None,
            idle: (*trouble != Trouble::Clocks).then_some(idle),
            quorum: Some(nodes.len() / 2 + 1),
        }
    }
}

/// Whether a violation is one where nodes forget: fences may come again, or fall, until some time has passed.
fn counts(violation: &Violation, remembers_after: Option<u64>) -> bool {
    let Some(after_ns) = remembers_after else { return true };
    match (violation.rule, &violation.records[..]) {
        (DUPLICATE | OUT_OF_ORDER, [earlier, later]) => {
            earlier.return_ns.is_some_and(|returned_ns| later.invoke_ns > returned_ns.saturating_add(after_ns))
        }
        (rule, _) => ![BRIDGED, SUPERSEDED, COUNTED_TWICE].contains(&rule),
    }
}

/// Awaits all of `futures`.
pub(crate) async fn all<F: Future<Output = ()> + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| Pin::new(future).poll(cx).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
