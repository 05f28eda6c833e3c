//! Plays one seed.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use redlock::Redlock;
use redlock::simulation::{Network, World};
use redlock_history::{Report, Rules, Violation};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{Book, NAMES, Task};
use crate::dice::Dice;
use crate::faults;
use crate::network::Weather;
use crate::plan::Plan;

/// Virtual time after which a run that has not ended hangs.
const HANGS: Duration = Duration::from_secs(3 * 3_600);

/// Virtual time in which what is owed to nodes that answer again is paid: connections that have gone silent are given
/// up after two time-outs, and a release that went unanswered is sent again after 2 s at the latest.
const PAID: Duration = Duration::from_secs(12);

/// Real time after which a run is stuck in a loop that lets no virtual time pass. A run needs a tenth of a second.
const STUCK: Duration = Duration::from_secs(60);

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
    /// The judgement of the recorded calls; not all that it finds is a flaw where nodes lose their data.
    pub report: Report,
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
            "{}; {} cancelled, {} extensions, {} messages in {:?}",
            self.report, self.cancelled, self.extended, self.messages, self.took
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing of the system");
    let (plan, mut dice) = Plan::new(seed);
    let (outcome, trace) = runtime.block_on(async {
        let weather = Arc::new(Weather::new(&plan, dice.fork(), traced));
        let outcome = play(&plan, &mut dice, &weather).await;
        (outcome, weather.trace())
    });
    Run { seed, plan, trace, outcome }
}

/// Ends the program unless what is returned is dropped in time: nothing else gets out of a loop without an await.
fn watchdog(seed: u64) -> mpsc::Sender<()> {
    let (running, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(STUCK) == Err(RecvTimeoutError::Timeout) {
            eprintln!("seed {seed} is stuck: it has let no virtual time pass for a while");
            std::process::abort();
        }
    });
    running
}

async fn play(plan: &Plan, dice: &mut Dice, weather: &Arc<Weather>) -> Outcome {
    let world = World::new(Arc::clone(weather) as Arc<dyn Network>, &plan.nodes);
    let book = Arc::new(Mutex::new(Book::default()));
    let mut extra = Vec::new();
    let processes: Vec<Redlock> = (0..plan.processes.len())
        .map(|process| {
            let random = Mutex::new(dice.fork());
            let fill = move |bytes: &mut [u8]| random.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
            world.process(process, plan.processes[process].0, fill).expect("1 to 5 nodes are allowed")
        })
        .collect();
    let stage = Stage { plan, world: &world, processes: &processes, book: &book };

    let tasks = stage.tasks(dice, |task| task.run(plan.calls));
    let trouble = faults::trouble(world.clone(), plan, dice.fork());
    let finished = tokio::select! {
        biased;
        finished = timeout(HANGS, tasks.join_all()) => finished.is_ok(),
        () = trouble => false,
    };
    if finished {
        world.note(|| "all faults are healed".to_owned());
        weather.clear();
        faults::heal(&world);
        stage.epilogue(dice, &mut extra).await;
    } else {
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        extra.push(format!("the run hangs: {:?}", book.doing));
    }

    let book = std::mem::take(&mut *book.lock().unwrap_or_else(PoisonError::into_inner));
    // Clocks may be 0.2 % off, timers count milliseconds.
    let told_late = Some(Duration::from_millis(5) + plan.ttl / 100);
    let rules = Rules { exclusion: plan.excludes(), told_late, order: plan.orders(), ..Rules::default() };
    let report = book.history.check(&rules);
    // Nodes that have lost their data may give a fence again.
    let counts = |violation: &&Violation| plan.orders() || !matches!(violation, Violation::Duplicate { .. });
    let mut flaws: Vec<String> = report.violations.iter().filter(counts).map(ToString::to_string).collect();
    flaws.extend(book.flaws);
    flaws.extend(extra);
    Outcome {
        flaws,
        report,
        cancelled: book.cancelled,
        extended: book.extended,
        messages: weather.messages(),
        took: world.now(),
    }
}

struct Stage<'a> {
    plan: &'a Plan,
    world: &'a World,
    processes: &'a [Redlock],
    book: &'a Arc<Mutex<Book>>,
}

impl Stage<'_> {
    /// Starts all tasks of all processes.
    fn tasks<F>(&self, dice: &mut Dice, start: impl Fn(Task) -> F) -> JoinSet<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for (process, (redlock, (pace, count))) in self.processes.iter().zip(&self.plan.processes).enumerate() {
            for task in 0..*count {
                tasks.spawn(start(Task {
                    world: self.world.clone(),
                    redlock: redlock.clone(),
                    pace: *pace,
                    label: format!("process {} task {}", process + 1, task + 1),
                    ttl: self.plan.ttl,
                    dice: dice.fork(),
                    book: Arc::clone(self.book),
                }));
            }
        }
        tasks
    }

    /// What must be true once nothing goes wrong any more.
    async fn epilogue(&self, dice: &mut Dice, flaws: &mut Vec<String>) {
        if self.plan.is_long() {
            sleep(PAID).await;
            self.expect_no_keys("after what was owed could be paid", flaws);
        }
        // Keys and bars have run out by then.
        sleep(PAID.max(self.plan.ttl * 4)).await;
        self.expect_no_keys("after everything could expire", flaws);
        self.acquire_all(flaws).await;
        let tasks = self.tasks(dice, |task| task.give_up(8));
        if timeout(HANGS, tasks.join_all()).await.is_err() {
            flaws.push("the run hangs while callers give up".to_owned());
        }
        sleep(PAID).await;
        self.expect_no_keys("after callers gave up", flaws);
        self.acquire_all(flaws).await;
    }

    /// Every process gets every name, without waiting for long.
    async fn acquire_all(&self, flaws: &mut Vec<String>) {
        for (index, redlock) in self.processes.iter().enumerate() {
            for name in NAMES {
                let lock = redlock.lock(name).ttl(self.plan.ttl).timeout(Duration::from_secs(3));
                let result = match lock.acquire().await {
                    Ok(guard) => guard.release().await,
                    Err(error) => Err(error),
                };
                if let Err(error) = result {
                    flaws.push(format!("process {} cannot have {name}: {error}", index + 1));
                }
            }
        }
        sleep(Duration::from_secs(1)).await;
        self.expect_no_keys("after everybody has had and released every name", flaws);
    }

    fn expect_no_keys(&self, when: &str, flaws: &mut Vec<String>) {
        for (index, node) in self.world.nodes().iter().enumerate() {
            for (key, value) in node.keys() {
                if !["redlock:fence:", "redlock:want:"].iter().any(|beside| key.starts_with(beside)) {
                    let at = self.world.now();
                    flaws.push(format!("node {} still has {key} = {value} {when}, at {at:?}", index + 1));
                }
            }
        }
    }
}
