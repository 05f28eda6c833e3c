//! What a seed means, and what the promises say of it.

use std::time::Duration;

use redlock::testing::simulation::Pace;

use crate::dice::Dice;

/// What goes wrong with nodes, network and clocks, beside delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Messages and connections are lost.
    Network,
    /// Nodes crash, keeping their data, and freeze.
    Nodes,
    /// Both.
    Both,
    /// Both, and crashed nodes lose their data, which every process sees; all locks have one ttl.
    Restarts,
    /// Both, and crashed nodes may lose their data: two holders at once are possible.
    Amnesia,
    /// Both, and lock keys are deleted and overwritten: two holders at once are possible.
    Meddling,
    /// Both, and clocks jump, stand still and run at any rate: two holders at once are possible.
    Clocks,
}

/// What happens to processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// They stand still for a while.
    pub stops: bool,
    /// They are killed, and others take their place.
    pub kills: bool,
    /// Callers' runtimes end while their process goes on.
    pub ends: bool,
}

/// Everything that a seed decides at the start.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What goes wrong.
    pub trouble: Trouble,
    /// What happens to processes.
    pub mishaps: Mishaps,
    /// How many acquires in a thousand are begun, and then neither polled nor dropped, for a while or for ever.
    pub neglected_per_thousand: u64,
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
    /// How many requests in a thousand arrive twice.
    pub twice_per_thousand: u64,
    /// Whether a majority of nodes may be out of order at once.
    pub majority_fails: bool,
    /// Milliseconds between two faults, at most.
    pub calm_ms: u64,
    /// What is unusual about the programs, the servers and the way between them.
    pub unusual: Unusual,
    /// What is locked beside single names.
    pub mix: Mix,
}

/// What is locked beside single names, and how. All but the permits are calls in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Several names.
    pub sets: u64,
    /// A permit of a semaphore.
    pub permits: u64,
    /// How many permits most callers allow.
    pub usual_permits: u32,
    /// How many of a thousand callers allow any other number of permits.
    pub other_permits: u64,
    /// Candidates for a few terms.
    pub elections: u64,
    /// With a least time.
    pub at_least: u64,
    /// With a margin.
    pub margin: u64,
    /// A name that may be shared with others.
    pub shared: u64,
    /// Detached and attached before the release.
    pub handed_over: u64,
}

impl Mix {
    /// Drawn apart, as what is unusual. In a part of all runs there are single names alone.
    fn new(seed: u64, plan: &Plan) -> Self {
        let mut dice = Dice::new(seed.rotate_left(32) ^ 0x5eed);
        let usual_permits = u32::try_from(dice.between(1, 4)).unwrap_or(1);
        if plan.unusual.mass == MASS_MOST || dice.chance(250) {
            return Self { usual_permits, ..Self::default() };
        }
        let mut some = |of: &[u64]| dice.pick(of);
        Self {
            sets: some(&[0, 150, 400]),
            permits: some(&[0, 200, 500]),
            usual_permits,
            other_permits: some(&[0, 0, 200]),
            elections: some(&[0, 0, 30, 100]),
            at_least: some(&[0, 0, 100, 300]),
            margin: some(&[0, 0, 200, 500]),
            shared: some(&[0, 0, 200, 600]),
            handed_over: some(&[0, 0, 0, 300]),
        }
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    #[default]
    Server,
    /// A cluster.
    Cluster,
    /// The primary that sentinels name.
    Sentinels,
}

/// What most programs and servers are not, and some are.
#[expect(clippy::struct_excessive_bools, reason = "each is unusual by itself, and any of them can meet")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unusual {
    /// Every message takes so many milliseconds at least.
    pub least_ms: u64,
    /// Every call has a client of its own, made for it and dropped.
    pub brief_clients: bool,
    /// So many locks are taken at once, and dropped at once or cancelled on the way.
    pub mass: usize,
    /// Nodes get their first replica, again and again.
    pub replicas: bool,
    /// Nodes hang up on whoever connects, for a while.
    pub hang_ups: bool,
    /// So many nodes, the first ones, do not know INFO.
    pub lack_info: usize,
    /// So many nodes, the first ones, do not know CLIENT TRACKING.
    pub lack_tracking: usize,
    /// What each node is.
    pub topology: Topology,
    /// Their servers answer ASK where others answer TRYAGAIN.
    pub old_servers: bool,
}

impl Unusual {
    /// Drawn apart, so that what is usual does not change where nothing is unusual.
    fn new(seed: u64, plan: &Plan) -> Self {
        let nodes = plan.nodes.len();
        let mut dice = Dice::new(!seed);
        let some = |dice: &mut Dice| if dice.chance(40) { 1 + dice.index(nodes) } else { 0 };
        Self {
            // Half of a round trip. A node that was just started needs two of them to answer.
            least_ms: if dice.chance(60) && plan.ttl >= Duration::from_secs(2) { 150 } else { 0 },
            // What is known of a restart must outlive them.
            brief_clients: dice.chance(if plan.trouble == Trouble::Restarts { 400 } else { 60 }),
            mass: if dice.chance(4) {
                MASS_MOST
            } else if dice.chance(60) {
                50
            } else {
                0
            },
            replicas: dice.chance(100),
            hang_ups: dice.chance(100),
            // Whose restarts cannot be seen is not counted out after one.
            lack_info: if plan.forgets() { 0 } else { some(&mut dice) },
            lack_tracking: some(&mut dice),
            topology: match dice.below(1_000) {
                _ if matches!(plan.trouble, Trouble::Meddling | Trouble::Clocks) => Topology::Server,
                0..150 => Topology::Cluster,
                150..230 => Topology::Sentinels,
                _ => Topology::Server,
            },
            old_servers: dice.chance(300),
        }
    }
}

/// As many as a service may hold for the requests that it is serving.
pub(crate) const MASS_MOST: usize = 1_200;

/// A lost message ends its connection, and with it all answers of a mass that are on their way there: with more losses
/// than this hardly any mass is ever taken.
const MASS_LOST_MOST: u64 = 5;

/// Locks asked for in one run, all tasks together, at least. Each is one operation of a client or more.
const CALLS: usize = 200;

/// No clock runs faster or slower than this, in parts per million: together with the node's it stays below the 1 % that
/// the drift allows for.
const PPM: i64 = 2_000;

/// The same where clocks are the trouble.
const WILD_PPM: i64 = 300_000;

/// How far wall clocks are off at the start, at most.
const AHEAD_MICROS: i64 = 20_000_000;

pub(crate) const LONG: Duration = Duration::from_secs(30);

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self::new(seed).0
    }

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
            Trouble::Restarts,
            Trouble::Restarts,
            Trouble::Amnesia,
            Trouble::Meddling,
            Trouble::Clocks,
        ]);
        let ppm = if trouble == Trouble::Clocks { WILD_PPM } else { PPM };
        let nodes = dice.pick(&[1_usize, 1, 3, 3, 3, 5]);
        let nodes = (0..nodes).map(|_| pace(&mut dice, ppm)).collect();
        let processes: Vec<_> = (0..dice.between(2, 4))
            .map(|_| (pace(&mut dice, ppm), usize::try_from(dice.between(1, 3)).unwrap_or(1)))
            .collect();
        let tasks: usize = processes.iter().map(|(_, tasks)| tasks).sum();
        let is_lossy = !matches!(trouble, Trouble::None | Trouble::Nodes);
        let mut plan = Self {
            trouble,
            mishaps: Mishaps {
                stops: dice.chance(400),
                // A process that is started later knows nothing of a restart.
                kills: dice.chance(400) && trouble != Trouble::Restarts,
                ends: dice.chance(400),
            },
            neglected_per_thousand: if dice.chance(400) { 50 } else { 0 },
            nodes,
            processes,
            calls: CALLS.div_ceil(tasks),
            // Short ones expire all the time; with long ones a key that is left behind stands out.
            ttl: dice.pick(&[Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(2), LONG, LONG]),
            delay_ms: dice.pick(&[0, 1, 3, 20]),
            late_per_thousand: dice.pick(&[0, 5, 50]),
            lost_per_ten_thousand: if is_lossy { dice.pick(&[5, 20, 100]) } else { 0 },
            twice_per_thousand: if dice.chance(250) { dice.pick(&[5, 50]) } else { 0 },
            majority_fails: dice.chance(300),
            calm_ms: if trouble == Trouble::Meddling { dice.pick(&[20, 200, 3_000]) } else { 3_000 },
            unusual: Unusual::default(),
            mix: Mix::default(),
        };
        plan.unusual = Unusual::new(seed, &plan);
        plan.mix = Mix::new(seed, &plan);
        if plan.unusual.mass == MASS_MOST {
            plan.lost_per_ten_thousand = plan.lost_per_ten_thousand.min(MASS_LOST_MOST);
        }
        (plan, dice)
    }

    /// A plan by which nothing happens by itself, for a story that makes its own `trouble` on so many `nodes`, with so
    /// many `processes`. Locks are long, so that a key that is left behind stands out.
    #[must_use]
    pub fn quiet(trouble: Trouble, nodes: usize, processes: usize) -> Self {
        Self {
            trouble,
            nodes: vec![Pace::default(); nodes],
            processes: vec![(Pace::default(), 1); processes],
            ttl: LONG,
            delay_ms: 1,
            calm_ms: 3_000,
            ..Self::default()
        }
    }

    /// Whether any node ever ends and starts again, or is another server from then on.
    #[must_use]
    pub fn restarts(&self) -> bool {
        !matches!(self.trouble, Trouble::None | Trouble::Network)
    }

    /// Whether nothing but an owner deletes a key before its time, or takes it again with a late copy of a request to attach.
    #[must_use]
    pub fn keeps_keys(&self) -> bool {
        let is_attached_once = self.twice_per_thousand == 0 || self.mix.handed_over == 0;
        is_attached_once && !self.lapses() && !self.forgets() && self.trouble != Trouble::Clocks
    }

    /// Whether two holders at once would be a fault of the lock. The promise rests on bounded clock rates, on keys that
    /// are not lost early, and on bars after restarts: these hold back for one ttl, the one of the lock that is asked
    /// for, and only in processes that saw the restart.
    #[must_use]
    pub fn excludes(&self) -> bool {
        self.trouble != Trouble::Clocks
    }

    /// Whether keys may be lost before their time, which voids that promise for a while.
    #[must_use]
    pub fn lapses(&self) -> bool {
        matches!(self.trouble, Trouble::Amnesia | Trouble::Meddling)
    }

    /// The same in the older SETNX protocol, where no message may be executed twice.
    #[must_use]
    pub fn excludes_older(&self) -> bool {
        self.excludes() && !self.lapses() && self.twice_per_thousand == 0
    }

    /// Whether nodes may forget their fence keys. Only lost data does that here: no clock jumps as far as `fence_ttl`,
    /// and nobody rests so long. Whatever else goes wrong, clocks included, fences are unique and in order then; so
    /// lost data and wrong clocks never come together.
    #[must_use]
    pub fn forgets(&self) -> bool {
        matches!(self.trouble, Trouble::Amnesia | Trouble::Restarts)
    }

    /// Where nodes forget: fences still increase from an acquisition to the next one that comes later than this. On one
    /// node its clock alone counts, and that goes forward; on several, the clients' clocks, as far as they differ by
    /// `end`.
    #[must_use]
    pub fn remembers_after(&self, end: Duration) -> Duration {
        if self.nodes.len() == 1 {
            return Duration::ZERO;
        }
        let off = |at: Duration| {
            let nanos = i64::try_from(at.as_micros()).unwrap_or(i64::MAX / PPM);
            let shown = self.processes.iter().map(move |(pace, _)| pace.ahead_micros + nanos / 1_000_000 * pace.ppm);
            shown.clone().max().unwrap_or(0).abs_diff(shown.min().unwrap_or(0))
        };
        // One more than the largest fence seen, for each of a burst.
        Duration::from_micros(off(Duration::ZERO).max(off(end))) + Duration::from_millis(2)
    }

    /// Whether every lock that is asked for, and every extension, has the same ttl.
    #[must_use]
    pub fn has_one_ttl(&self) -> bool {
        self.trouble == Trouble::Restarts
    }

    /// Whether a key that is left behind would be seen at the end: it lives long, and no message that is executed twice
    /// makes it anew.
    #[must_use]
    pub fn shows_leaks(&self) -> bool {
        self.ttl >= LONG && self.twice_per_thousand == 0
    }
}

fn pace(dice: &mut Dice, ppm: i64) -> Pace {
    Pace {
        origin: Duration::from_secs(dice.between(10, 1_000_000)),
        ppm: dice.around_zero(ppm),
        ahead_micros: dice.around_zero(AHEAD_MICROS),
    }
}
