//! The metrics through the `metrics` facade, for programs that use one of its exporters.

use metrics::Label;

use crate::api::stats::{Metric, MetricKind, Point, PointValue, stats};

/// Sets the counters and gauges of the `metrics` facade to the present [`stats`](crate::stats), for the exporter that the
/// program has installed. Call it before each scrape, or every few seconds.
///
/// A histogram becomes three series: `<name>_bucket_total` with the label `le`, `<name>_count_total` and
/// `<name>_sum_total`. The sum is a gauge for the facade, whose counters are integers.
///
/// Only with the feature `metrics`.
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
                let end = if end.is_finite() { end.to_string() } else { "+Inf".to_owned() };
                let labels: Vec<_> = labels.iter().cloned().chain([Label::new("le", end)]).collect();
                metrics::counter!(format!("{}_bucket_total", metric.name), labels).absolute(*inside);
            }
            metrics::counter!(format!("{}_count_total", metric.name), labels.clone()).absolute(*count);
            metrics::gauge!(format!("{}_sum_total", metric.name), labels).set(*sum);
        }
    }
}

/// Counters hold whole numbers, which are not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
fn whole(number: f64) -> u64 {
    number as u64
}
