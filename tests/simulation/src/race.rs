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
    /// How long it took until every process had had the lock, in virtual time; `None` if that never came.
    pub took: Option<Duration>,
    /// The longest time in which nobody had the lock.
    pub idle: Duration,
}

/// How many milliseconds a message takes, as virtual time has whole ones.
pub type Way = RangeInclusive<u64>;

/// Nodes in the same network. Messages differ by more than any pause between two places in line.
pub const NEAR: Way = 1..=5;

/// Nodes on another continent.
pub const FAR: Way = 150..=170;

/// A network in which every round is counted.
struct Course {
    way: Way,
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
        let way = if leg == Leg::Write { &NEAR } else { &self.way };
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        Fate::Deliver(dice.millis(*way.start(), *way.end()))
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

/// Has so many `processes` want a lock over so many `nodes`, to which a message takes so long.
///
/// # Panics
///
/// If no runtime can be made.
#[must_use]
pub fn race(seed: u64, processes: usize, nodes: usize, way: Way) -> Race {
    let mut dice = Dice::new(seed);
    let tokens = Mutex::new(vec![BTreeSet::new(); processes]);
    let course = Arc::new(Course { way, dice: Mutex::new(dice.fork()), tokens });
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
            let redlock = world.process(process, Pace::default(), fill).expect("1 to 15 nodes are allowed");
            racing.spawn(once(redlock, dice.millis(0, 3), world.clone()));
        }
        timeout(HANGS, racing.join_all()).await.ok()
    });
    let mut holds: Vec<_> = ended.iter().flatten().flatten().copied().collect();
    holds.push((Duration::ZERO, Duration::ZERO));
    holds.sort_unstable();
    let idle = holds.windows(2).map(|holds| holds[1].0.saturating_sub(holds[0].1)).max().unwrap_or_default();
    let rounds = course.tokens().iter().map(BTreeSet::len).collect();
    Race { rounds, took: ended.and_then(|_| holds.last().map(|hold| hold.1)), idle }
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
