//! Several processes that want one free lock at the same moment, on several nodes: votes split, and all get their turn.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock::Redlock;
use redlock::testing::simulation::{Fate, Leg, Network, Pace, World};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::dice::Dice;

const NAME: &str = "foo";

/// How long each holds the lock.
const HOLD: Duration = Duration::from_millis(5);

/// In virtual time.
const HANGS: Duration = Duration::from_secs(60);

/// What it took.
#[derive(Clone, Debug)]
pub struct Race {
    /// How many rounds each process began until it had the lock, the winning one included.
    pub rounds: Vec<usize>,
    /// How long it took until every process had had the lock, in virtual time, and the longest time in which nobody had
    /// it; `None` if that never came.
    pub took_and_idle: Option<(Duration, Duration)>,
}

/// How many milliseconds a message takes, as virtual time has whole ones.
pub type Latency = RangeInclusive<u64>;

/// Nodes in the same network. Messages differ by more than any pause between two places in line.
pub const NEAR: Latency = 1..=5;

/// Nodes on another continent.
pub const FAR: Latency = 150..=170;

/// A network in which every round is counted.
struct Course {
    latency: Latency,
    dice: Mutex<Dice>,
    tokens: Mutex<Vec<BTreeSet<String>>>,
}

impl Course {
    fn tokens(&self) -> MutexGuard<'_, Vec<BTreeSet<String>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Network for Course {
    fn fate(&self, _: usize, _: usize, leg: Leg) -> Fate {
        // A socket takes a request at once, however far the node is.
        let latency = if leg == Leg::Write { &NEAR } else { &self.latency };
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        Fate::Deliver(dice.millis(*latency.start(), *latency.end()))
    }

    /// Each round has a token of its own.
    fn note(&self, line: &dyn Fn() -> String) {
        let line = line();
        let words: Vec<&str> = line.split([' ', ':']).collect();
        if let Some(at) = words.windows(3).position(|words| words[0] == "process" && words[2] == "acquire")
            && let (Ok(process), Some(token)) = (words[at + 1].parse::<usize>(), words.get(at + 5))
        {
            self.tokens()[process - 1].insert((*token).to_owned());
        }
    }
}

/// Has so many `processes` want a lock over so many `nodes`, whose messages have this `latency`.
///
/// # Panics
///
/// If no runtime can be made.
#[must_use]
pub fn race(seed: u64, processes: usize, nodes: usize, latency: Latency) -> Race {
    let mut dice = Dice::new(seed);
    let tokens = Mutex::new(vec![BTreeSet::new(); processes]);
    let course = Arc::new(Course { latency, dice: Mutex::new(dice.fork()), tokens });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing of the system");
    let ended = runtime.block_on(async {
        let world = World::new(Arc::clone(&course) as Arc<dyn Network>, &vec![Pace::default(); nodes]);
        let mut racing = JoinSet::new();
        for process in 0..processes {
            let random = Mutex::new(dice.fork());
            let fill = move |bytes: &mut [u8]| random.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
            // Their clocks differ, and so do the fences that they propose.
            let pace = Pace { ahead_micros: i64::try_from(dice.below(2_000)).unwrap_or(0), ..Pace::default() };
            let redlock = world.process(process, pace, fill).expect("1 to 15 nodes are allowed");
            racing.spawn(once(redlock, dice.millis(0, 3), world.clone()));
        }
        timeout(HANGS, racing.join_all()).await.ok()
    });
    let holds = ended.and_then(|holds| holds.into_iter().collect::<Option<Vec<_>>>());
    let rounds = course.tokens().iter().map(BTreeSet::len).collect();
    Race { rounds, took_and_idle: holds.map(took_and_idle) }
}

fn took_and_idle(mut holds: Vec<(Duration, Duration)>) -> (Duration, Duration) {
    holds.sort_unstable();
    let (mut free_since, mut idle) = (Duration::ZERO, Duration::ZERO);
    for (since, until) in holds {
        idle = idle.max(since.saturating_sub(free_since));
        free_since = until;
    }
    (free_since, idle)
}

/// Acquires once, a moment after the start. Returns when it had the lock.
async fn once(redlock: Redlock, after: Duration, world: World) -> Option<(Duration, Duration)> {
    sleep(after).await;
    let guard = redlock.lock(NAME).acquire().await.ok()?;
    let since = world.now();
    sleep(HOLD).await;
    let until = world.now();
    drop(guard.release().await);
    Some((since, until))
}
