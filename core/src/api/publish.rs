//! The metrics through the `metrics` facade, for programs that use one of its exporters.

use metrics::Label;

use crate::api::openmetrics::le;
use crate::api::stats::{Metric, MetricKind, Point, PointValue, stats};

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
    for metric in stats().metrics {
        for point in &metric.points {
            publish(&metric, point);
        }
    }
}

fn publish(metric: &Metric, point: &Point) {
    let labels: Vec<Label> = point.labels.iter().map(|(label, value)| Label::new(*label, value.clone())).collect();
    match &point.value {
        PointValue::Number(number) if metric.kind == MetricKind::Gauge => {
            metrics::gauge!(metric.name, labels).set(*number);
        }
        PointValue::Number(number) => metrics::counter!(metric.name, labels).absolute(whole(*number)),
        PointValue::Histogram { count, sum, buckets } => {
            for (end, inside) in buckets {
                let labels: Vec<_> = labels.iter().cloned().chain([Label::new("le", le(*end))]).collect();
                metrics::counter!(format!("{}_bucket", metric.name), labels).absolute(*inside);
            }
            metrics::counter!(format!("{}_count", metric.name), labels.clone()).absolute(*count);
            metrics::gauge!(format!("{}_sum", metric.name), labels).set(*sum);
        }
    }
}

/// Counters hold whole numbers, which are not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
fn whole(number: f64) -> u64 {
    number as u64
}
