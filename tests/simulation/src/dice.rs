//! Chance from a seed.

use std::time::Duration;

/// A small generator (SplitMix64): a seed gives the same numbers on every machine and with every version of anything.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self(seed);
        dice.next();
        dice
    }

    /// A generator of its own, so that one part of a run does not change the numbers of another.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A number from `-most` to `most`.
    pub(crate) fn around_zero(&mut self, most: i64) -> i64 {
        let width = most.unsigned_abs();
        i64::try_from(self.between(0, 2 * width)).unwrap_or(0) - most
    }

    /// True `per_thousand` times in a thousand.
    pub(crate) fn chance(&mut self, per_thousand: u64) -> bool {
        self.below(1_000) < per_thousand
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let index = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        of[index]
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let next = self.next().to_le_bytes();
            chunk.copy_from_slice(&next[..chunk.len()]);
        }
    }
}
