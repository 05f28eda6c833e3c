//! The result of a turn.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Failure, now_ns};

/// The most samples of a turn; more are thinned out.
const MOST_SAMPLES: usize = 2_000;

/// When a turn ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// At this instant of the shared clock.
    At(u64),
    /// After so many pairs.
    Count(u64),
}

impl Until {
    /// From the `seconds` or the `count` of a request; the count is shared by so many tasks.
    ///
    /// # Errors
    ///
    /// Neither is there.
    pub fn of(request: &Value, tasks: usize) -> Result<Self, Failure> {
        if let Some(count) = request["count"].as_u64() {
            return Ok(Self::Count(count / tasks as u64));
        }
        let seconds = request["seconds"].as_f64().ok_or("neither count nor seconds")?;
        Ok(Self::At(now_ns() + u64::try_from(Duration::from_secs_f64(seconds).as_nanos())?))
    }

    /// Whether there is more to do after so many pairs; at least one is done.
    #[must_use]
    pub fn goes_on(self, done: u64) -> bool {
        match self {
            Self::At(end_ns) => done == 0 || now_ns() < end_ns,
            Self::Count(count) => done < count,
        }
    }
}

/// How often something was done, and how long it took.
#[derive(Debug, Default)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// How long each time.
    pub samples_ns: Vec<u64>,
}

impl Tally {
    /// Adds one that began at this instant and ends now; returns now.
    pub fn add_since(&mut self, begun_ns: u64) -> u64 {
        let now_ns = now_ns();
        self.count += 1;
        self.samples_ns.push(now_ns - begun_ns);
        now_ns
    }

    /// Takes in another one.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.samples_ns.extend(other.samples_ns);
    }

    /// As part of an answer.
    #[must_use]
    pub fn json(&self, wall_ns: u64, cpu_ns: u64) -> Value {
        let step = self.samples_ns.len().div_ceil(MOST_SAMPLES).max(1);
        let samples: Vec<u64> = self.samples_ns.iter().copied().step_by(step).collect();
        json!({"count": self.count, "wall_ns": wall_ns, "cpu_ns": cpu_ns, "samples_ns": samples})
    }
}
