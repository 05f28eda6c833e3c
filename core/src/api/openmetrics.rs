//! The metrics as text, in the format of `OpenMetrics`.

use std::fmt::{self, Write};

use crate::api::stats::{Metric, MetricKind, Point, PointValue, Stats};

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
            write!(text, "{}", Family(metric)).expect("a text takes what is written to it");
        }
        text + "# EOF\n"
    }
}

/// A metric with its head.
struct Family<'a>(&'a Metric);

impl fmt::Display for Family<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { name, kind, about, points } = self.0;
        // The end of a counter's name belongs to its samples.
        let family = if *kind == MetricKind::Counter { name.trim_end_matches("_total") } else { name };
        writeln!(f, "# TYPE {family} {}\n# HELP {family} {about}", kind.as_str())?;
        for Point { labels, value } in points {
            let labels = Labels(labels, None);
            match value {
                PointValue::Number(number) => writeln!(f, "{name}{labels} {number}")?,
                PointValue::Histogram { count, sum, buckets } => {
                    for (end, inside) in buckets {
                        writeln!(f, "{name}_bucket{} {inside}", Labels(labels.0, Some(*end)))?;
                    }
                    writeln!(f, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}")?;
                }
            }
        }
        Ok(())
    }
}

/// The labels of a sample, with the end of its bucket.
struct Labels<'a>(&'a [(&'static str, String)], Option<f64>);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = '{';
        for (label, value) in self.0 {
            // The names of locks are any text.
            let value = value.replace('\\', r"\\").replace('\n', r"\n").replace('"', r#"\""#);
            write!(f, "{separator}{label}=\"{value}\"")?;
            separator = ',';
        }
        if let Some(end) = self.1 {
            write!(f, "{separator}le=\"{}\"", le(end))?;
            separator = ',';
        }
        if separator == ',' { f.write_char('}') } else { Ok(()) }
    }
}

/// Returns the text of the end of a bucket. A whole number has its `.0`, so that all exporters agree.
pub(crate) fn le(end: f64) -> String {
    if end.is_finite() { format!("{end:?}") } else { "+Inf".to_owned() }
}
