//! The metrics through the `metrics` facade, for programs that use one of its exporters.

use metrics::Label;

use crate::api::openmetrics::Sample;
use crate::api::stats::{Metric, MetricKind, stats};

/// Sets the counters and gauges of the `metrics` facade to the present [`stats`](crate::stats), for the exporter that the
/// program has installed. Call it before each scrape, or every few seconds.
///
/// A histogram becomes three series, named as in [`OpenMetrics`](crate::Stats::to_openmetrics): `<name>_bucket` with the
/// label `le`, `<name>_count` and `<name>_sum`. The sum is a gauge for the facade, whose counters are integers.
///
/// # Examples
///
/// ```
/// redlock::publish_metrics();
/// ```
pub fn publish_metrics() {
    for Sample { name, kind, labels, value } in stats().metrics.iter().flat_map(Metric::samples) {
        let labels: Vec<_> = labels.into_iter().map(|(label, value)| Label::new(label, value)).collect();
        match kind {
            MetricKind::Counter => metrics::counter!(name, labels).absolute(whole(value)),
            _ => metrics::gauge!(name, labels).set(value),
        }
    }
}

/// Counters hold whole numbers, which are not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
fn whole(number: f64) -> u64 {
    number as u64
}
