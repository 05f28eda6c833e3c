//! Counts, and histograms: how many observations were at most so large, in plain atomics.
//!
//! An observation is two additions. A reader may see one of them without the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::texts::opaque;

/// The upper ends of the buckets of a histogram, in its unit.
#[derive(Debug)]
pub(crate) struct Bounds {
    limits: &'static [f64],
    /// How many of what is counted the unit has.
    parts: f64,
}

/// Seconds, counted in nanoseconds: from less than any round trip to longer than any wait that people accept.
pub(crate) static SECONDS: Bounds = Bounds {
    limits: &[
        0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        60.0, 300.0,
    ],
    parts: 1e9,
};

/// Shares of a whole, counted in millionths.
pub(crate) static RATIO: Bounds =
    Bounds { limits: &[0.05, 0.1, 0.2, 0.333_333, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 1.0], parts: 1e6 };

/// How often something has happened, or how many there are now.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of observations by size.
pub(crate) struct Histogram {
    bounds: &'static Bounds,
    /// The last bucket is for all larger observations.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// The state of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    /// The upper end of each bucket, and how many observations were at most that.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static Bounds) -> Self {
        let counts = (0..=bounds.limits.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Adds a duration to a histogram of seconds.
    pub(crate) fn record(&self, duration: Duration) {
        self.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds what `part` is of `whole` to a histogram of shares.
    pub(crate) fn record_share(&self, part: Duration, whole: Duration) {
        let millionths = part.as_nanos().saturating_mul(1_000_000) / whole.as_nanos().max(1);
        self.add(u64::try_from(millionths).unwrap_or(u64::MAX));
    }

    fn add(&self, parts: u64) {
        let observed = to_float(parts) / self.bounds.parts;
        let bucket = self.bounds.limits.partition_point(|limit| *limit < observed);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(parts, Ordering::Relaxed);
    }

    /// Returns the state; `None` without an observation.
    pub(crate) fn read(&self) -> Option<Reading> {
        let mut count = 0;
        let ends = self.bounds.limits.iter().copied();
        let buckets = ends.chain([f64::INFINITY]).zip(&self.counts).map(|(end, inside)| {
            count += inside.load(Ordering::Relaxed);
            (end, count)
        });
        let buckets = buckets.collect();
        let sum = to_float(self.sum.load(Ordering::Relaxed)) / self.bounds.parts;
        (count > 0).then_some(Reading { count, sum, buckets })
    }
}

/// Above 2^53 the last digits are lost, which no reader needs.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(crate) fn to_float(number: u64) -> f64 {
    number as f64
}

opaque!(Histogram);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_is_counted_in_its_bucket_and_in_all_larger_ones() {
        let histogram = Histogram::new(&SECONDS);
        assert_eq!(histogram.read(), None);
        for millis in [1, 2, 400_000] {
            histogram.record(Duration::from_millis(millis));
        }
        let Reading { count, sum, buckets } = histogram.read().unwrap();
        assert_eq!((count, buckets.len()), (3, SECONDS.limits.len() + 1));
        assert!((sum - 400.003).abs() < 1e-9, "{sum}");
        let at_most = |end: f64| buckets.iter().find(|(limit, _)| *limit >= end).unwrap().1;
        assert_eq!([at_most(0.0005), at_most(0.001), at_most(0.0025), at_most(300.0), at_most(301.0)], [0, 1, 2, 2, 3]);
    }

    #[test]
    fn shares_are_counted_by_what_they_are_of_the_whole() {
        let histogram = Histogram::new(&RATIO);
        histogram.record_share(Duration::from_secs(1), Duration::from_secs(3));
        histogram.record_share(Duration::ZERO, Duration::ZERO);
        let Reading { count, sum, buckets } = histogram.read().unwrap();
        assert_eq!((count, buckets[3], buckets[0]), (2, (0.333_333, 2), (0.05, 1)));
        assert!((sum - 0.333_333).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn bounds_rise() {
        for bounds in [&SECONDS, &RATIO] {
            assert!(bounds.limits.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
