//! The metrics as text, in the format of `OpenMetrics`.

use crate::api::stats::{Metric, MetricKind, Point, PointValue, Stats};
use crate::sys::histogram::to_float;

impl Stats {
    /// Returns the metrics in the text format of [OpenMetrics] 1.0, which Prometheus and most agents scrape. A web server
    /// sends it as `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// Histograms have the series `<name>_bucket` with the label `le`, `<name>_sum` and `<name>_count`.
    ///
    /// [OpenMetrics]: https://prometheus.io/docs/specs/om/open_metrics_spec/
    ///
    /// # Examples
    ///
    /// ```
    /// let text = redlock::stats().to_openmetrics();
    /// assert!(text.contains("# TYPE redlock_held gauge\n"));
    /// ```
    #[must_use]
    pub fn to_openmetrics(&self) -> String {
        let mut text = String::new();
        for metric in &self.metrics {
            let Metric { name, kind, about, .. } = metric;
            // The end of a counter's name belongs to its samples.
            let family = if *kind == MetricKind::Counter { name.trim_end_matches("_total") } else { name };
            text.extend([format!("# TYPE {family} {kind}\n# HELP {family} {about}\n")]);
            let line = |Sample { name, labels, value, .. }| format!("{name}{} {value}\n", shown(&labels));
            text.extend(metric.samples().into_iter().map(line));
        }
        text + "# EOF\n"
    }
}

/// A value as exporters have it, of which a histogram is several.
pub(crate) struct Sample {
    pub(crate) name: String,
    /// Gauge or counter.
    pub(crate) kind: MetricKind,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

impl Metric {
    /// Returns its samples: of a histogram the buckets, each with its end as a label, the sum and the count.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for Point { labels, value } in &self.points {
            let mut add = |end: &str, kind, bucket: Option<String>, value| {
                let labels = labels.iter().cloned().chain(bucket.map(|end| ("le", end))).collect();
                samples.push(Sample { name: format!("{}{end}", self.name), kind, labels, value });
            };
            match value {
                PointValue::Number(number) => add("", self.kind, None, *number),
                PointValue::Histogram { count, sum, buckets } => {
                    for (end, inside) in buckets {
                        add("_bucket", MetricKind::Counter, Some(le(*end)), to_float(*inside));
                    }
                    // Counters of other formats are whole numbers.
                    add("_sum", MetricKind::Gauge, None, *sum);
                    add("_count", MetricKind::Counter, None, to_float(*count));
                }
            }
        }
        samples
    }
}

/// Returns the labels of a sample as text.
fn shown(labels: &[(&'static str, String)]) -> String {
    let label = |(label, value): &(&'static str, String)| {
        // The names of locks are any text.
        format!("{label}=\"{}\"", value.replace('\\', r"\\").replace('\n', r"\n").replace('"', r#"\""#))
    };
    let labels: Vec<_> = labels.iter().map(label).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

/// Returns the text of the end of a bucket. A whole number has its `.0`, so that all exporters agree.
pub(crate) fn le(end: f64) -> String {
    if end.is_finite() { format!("{end:?}") } else { "+Inf".to_owned() }
}
