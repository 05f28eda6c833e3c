//! The metrics of the process.

use std::collections::BTreeMap;

use napi_derive::napi;
use redlock::{Metric, Point, PointValue};

use crate::convert::number;

/// One metric.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NativeMetric {
    /// The name, with the unit at its end.
    pub name: &'static str,
    /// What the values mean.
    #[napi(ts_type = "'counter' | 'gauge' | 'histogram'")]
    pub kind: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// The values.
    pub points: Vec<NativePoint>,
}

/// One value with its labels.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NativePoint {
    /// What tells it from the other values of the metric.
    pub labels: BTreeMap<&'static str, String>,
    /// The value of a counter or a gauge.
    pub value: Option<f64>,
    /// The value of a histogram.
    pub histogram: Option<NativeHistogram>,
}

/// Observations by size.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NativeHistogram {
    /// How many there were.
    pub count: i64,
    /// Their sum.
    pub sum: f64,
    /// How many were at most so large.
    pub buckets: Vec<NativeBucket>,
}

/// How many observations were at most so large.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct NativeBucket {
    /// The largest size; infinite for the last one.
    pub le: f64,
    /// How many.
    pub count: i64,
}

impl From<Metric> for NativeMetric {
    fn from(metric: Metric) -> Self {
        let points = metric.points.into_iter().map(NativePoint::from).collect();
        Self { name: metric.name, kind: metric.kind.as_str(), about: metric.about, points }
    }
}

impl From<Point> for NativePoint {
    fn from(point: Point) -> Self {
        let labels = point.labels.into_iter().collect();
        match point.value {
            PointValue::Number(value) => Self { labels, value: Some(value), histogram: None },
            PointValue::Histogram { count, sum, buckets, .. } => {
                let bucket = |(le, count): (f64, u64)| NativeBucket { le, count: number(count) };
                let buckets = buckets.into_iter().map(bucket).collect();
                Self { labels, value: None, histogram: Some(NativeHistogram { count: number(count), sum, buckets }) }
            }
            _ => Self { labels, value: None, histogram: None },
        }
    }
}

/// Returns all metrics of this process.
#[napi(catch_unwind)]
pub fn stats() -> Vec<NativeMetric> {
    redlock::stats().metrics.into_iter().map(NativeMetric::from).collect()
}

/// Returns the same as text.
#[napi(catch_unwind)]
pub fn open_metrics() -> String {
    redlock::stats().to_openmetrics()
}

/// Counts the first `most` names of locks apart from now on.
#[napi(catch_unwind)]
pub fn count_by_name(most: i64) {
    redlock::count_by_name(usize::try_from(most).unwrap_or(0));
}
