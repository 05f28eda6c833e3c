//! What a seed means.

use std::time::Duration;

use redlock::simulation::Pace;

use crate::dice::Dice;

/// What goes wrong in a run, beside delays and cancelled calls, which every run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Messages and connections are lost.
    Network,
    /// Nodes crash, keeping their data, and freeze.
    Nodes,
    /// Both.
    Both,
    /// Both, and crashed nodes may lose their data: two holders at once are possible, and fences may fall or come
    /// again.
    Amnesia,
    /// Both, and node clocks jump, keys are deleted and overwritten: two holders at once are possible.
    Meddling,
}

/// Everything that a seed decides at the start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What goes wrong.
    pub trouble: Trouble,
    /// One clock per node.
    pub nodes: Vec<Pace>,
    /// One clock and number of tasks per process.
    pub processes: Vec<(Pace, usize)>,
    /// Calls that each task makes.
    pub calls: usize,
    /// The ttl that most locks ask for.
    pub ttl: Duration,
    /// Messages need this many milliseconds at most, those that are held up excepted.
    pub delay_ms: u64,
    /// How many messages in a thousand are held up.
    pub late_per_thousand: u64,
    /// How many messages in ten thousand are lost.
    pub lost_per_ten_thousand: u64,
    /// Whether a majority of nodes may be out of order at once.
    pub majority_fails: bool,
}

/// Calls per run, all tasks together, at least.
const CALLS: usize = 150;

/// No clock runs faster or slower than this, in parts per million: together with the node's it stays below the 1 % that
/// the drift allows for.
const PPM: i64 = 2_000;

impl Plan {
    /// The plan of `seed`, and the dice for the rest of its run.
    pub(crate) fn new(seed: u64) -> (Self, Dice) {
        let mut dice = Dice::new(seed);
        let trouble = dice.pick(&[
            Trouble::None,
            Trouble::Network,
            Trouble::Network,
            Trouble::Nodes,
            Trouble::Both,
            Trouble::Both,
            Trouble::Both,
            Trouble::Amnesia,
            Trouble::Meddling,
        ]);
        let nodes = dice.pick(&[1_usize, 3, 3, 3, 5]);
        let nodes = (0..nodes).map(|_| pace(&mut dice, 20_000_000)).collect();
        let processes: Vec<_> = (0..dice.between(2, 4))
            .map(|_| (pace(&mut dice, 20_000_000), usize::try_from(dice.between(1, 3)).unwrap_or(1)))
            .collect();
        let tasks: usize = processes.iter().map(|(_, tasks)| tasks).sum();
        let lossy = matches!(trouble, Trouble::Network | Trouble::Both | Trouble::Amnesia | Trouble::Meddling);
        let plan = Self {
            trouble,
            nodes,
            processes,
            calls: CALLS.div_ceil(tasks),
            // Short ones expire all the time; with long ones a key that is left behind stands out.
            ttl: dice.pick(&[Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(2), LONG, LONG]),
            delay_ms: dice.pick(&[0, 1, 3, 20]),
            late_per_thousand: dice.pick(&[0, 5, 50]),
            lost_per_ten_thousand: if lossy { dice.pick(&[5, 20, 100]) } else { 0 },
            majority_fails: dice.chance(300),
        };
        (plan, dice)
    }

    /// Whether two holders at once would be a fault of the lock.
    #[must_use]
    pub fn excludes(&self) -> bool {
        !matches!(self.trouble, Trouble::Amnesia | Trouble::Meddling)
    }

    /// Whether a smaller fence after a larger one, or the same again, would be a fault of the lock.
    #[must_use]
    pub fn orders(&self) -> bool {
        self.trouble != Trouble::Amnesia
    }

    /// Whether the ttl is so long that a key left behind would be seen at the end.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.ttl >= LONG
    }
}

const LONG: Duration = Duration::from_secs(30);

fn pace(dice: &mut Dice, ahead_micros: i64) -> Pace {
    Pace {
        origin: Duration::from_secs(dice.between(10, 1_000_000)),
        ppm: dice.around_zero(PPM),
        ahead_micros: dice.around_zero(ahead_micros),
    }
}
