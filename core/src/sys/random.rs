//! Randomness: the only file that draws it.
//!
//! Every draw comes from the operating system. This process has no generator whose state a fork could copy, so two
//! processes never draw the same token.

use std::sync::Arc;

use crate::texts::opaque;

/// A source of random bits.
#[derive(Clone, Debug)]
pub(crate) enum Random {
    /// The operating system's generator.
    System,
    /// A seeded generator, so that a seed repeats a run.
    Simulated(SimulatedRandom),
}

impl Random {
    /// Fills `bytes` with random bits.
    ///
    /// # Panics
    ///
    /// If the operating system has no randomness, which supported systems rule out once they have booted.
    #[expect(clippy::disallowed_methods, reason = "this file owns randomness")]
    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        match self {
            Self::System => getrandom::fill(bytes).expect("the operating system has no randomness"),
            Self::Simulated(source) => (source.0)(bytes),
        }
    }

    /// Draws a number in [0, 1), for jitter.
    pub(crate) fn unit(&self) -> f64 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        unit(u32::from_le_bytes(bytes))
    }
}

/// Converts 32 random bits to a number in [0, 1).
pub(crate) fn unit(bits: u32) -> f64 {
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

/// A seeded source for a simulation.
#[derive(Clone)]
pub(crate) struct SimulatedRandom(pub(crate) Arc<Fill>);

/// Fills the slice it is given.
pub(crate) type Fill = dyn Fn(&mut [u8]) + Send + Sync;

opaque!(SimulatedRandom);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_lie_between_zero_and_one() {
        for _ in 0..1_000 {
            let unit = Random::System.unit();
            assert!((0.0..1.0).contains(&unit));
        }
    }
}
