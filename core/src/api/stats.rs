//! A snapshot of all metrics.

use std::sync::Arc;

use crate::error::LostReason;
use crate::node::endpoint::Endpoint;
use crate::process::Process;
use crate::process::metrics::{self, AcquireEnd, Counts, HoldEnd, Metrics, ReleaseEnd, RenewalEnd};
use crate::sys::clock::Moment;
use crate::sys::histogram::{Reading, to_float};
use crate::sys::log_queue;
use crate::texts::texts;

/// All metrics of this process at one moment; see [`stats`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The metrics, always the same ones in the same order.
    pub metrics: Vec<Metric>,
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// The name, with the unit at its end: the same in every language and in every exporter.
    pub name: &'static str,
    /// What the values mean.
    pub kind: MetricKind,
    /// What it measures, in one sentence.
    pub about: &'static str,
    /// The values, each with other labels. A histogram without an observation has none.
    pub points: Vec<Point>,
}

/// What the values of a metric mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only grows while the process lives.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of observations by size.
    Histogram,
}

texts! {
    MetricKind:
    /// Returns the stable text: `counter`, `gauge` or `histogram`.
    pub as_str: Counter = "counter", Gauge = "gauge", Histogram = "histogram",
}

/// One value with its labels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Point {
    /// What tells this value from the others of the metric.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: PointValue,
}

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PointValue {
    /// That of a counter or a gauge.
    Number(f64),
    /// That of a histogram.
    #[non_exhaustive]
    Histogram {
        /// How many observations there were.
        count: u64,
        /// Their sum.
        sum: f64,
        /// The upper end of each bucket, and how many observations were at most that. The last end is infinite.
        buckets: Vec<(f64, u64)>,
    },
}

/// Returns all metrics of this process: what happened since its start, and what is there now. Sends nothing, takes some
/// microseconds, and may be called at any time.
///
/// A forked child begins with zeros. The page on observing explains every metric.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// let redlock = redlock::Redlock::new("memory://stats")?;
/// let guard = redlock.lock("report").await?;
/// let held = redlock::stats().metric("redlock_held").unwrap().points[0].clone();
/// assert_eq!(held.value, redlock::PointValue::Number(1.0));
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn stats() -> Stats {
    let process = Process::current();
    let mut metrics = of_locks(&process.metrics);
    metrics.extend(of_nodes(&process.endpoints.in_use(), process.clock.now()));
    let lost = Point::number(Vec::new(), log_queue::dropped());
    metrics.push(counter("redlock_events_dropped_total", "Events that were lost before they were logged.", vec![lost]));
    Stats { metrics }
}

/// Has acquisitions, holds, losses and margins counted by the lock's name from now on: the first `most` names each under
/// a label `name`, and all others together. 0 counts all names together, which is the default.
///
/// A name for each user or order would make as many series as there are users or orders. So this is for programs with
/// few names. Locks that are held already, and calls that wait, are counted as they began. A forked child goes on with
/// it.
///
/// # Examples
///
/// ```
/// redlock::count_by_name(20);
/// # redlock::count_by_name(0);
/// ```
pub fn count_by_name(most: usize) {
    metrics::count_by_name(most);
}

impl Stats {
    /// Returns the metric with this name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

type Label = (&'static str, String);

impl Point {
    fn number(labels: Vec<Label>, number: u64) -> Self {
        Self { labels, value: PointValue::Number(to_float(number)) }
    }

    fn histogram(labels: Vec<Label>, reading: Option<Reading>) -> Option<Self> {
        let Reading { count, sum, buckets } = reading?;
        Some(Self { labels, value: PointValue::Histogram { count, sum, buckets } })
    }
}

fn counter(name: &'static str, about: &'static str, points: Vec<Point>) -> Metric {
    Metric { name, kind: MetricKind::Counter, about, points }
}

fn gauge(name: &'static str, about: &'static str, points: Vec<Point>) -> Metric {
    Metric { name, kind: MetricKind::Gauge, about, points }
}

fn histogram(name: &'static str, about: &'static str, points: Vec<Point>) -> Metric {
    Metric { name, kind: MetricKind::Histogram, about, points }
}

/// The points of `of`, for the locks that are counted together and for each name that is counted separately.
fn by_name(metrics: &Metrics, of: impl Fn(&Counts, &[Label]) -> Vec<Point>) -> Vec<Point> {
    let mut points = of(&metrics.unnamed, &[]);
    for (name, counts) in metrics.by_name() {
        // As it is: exporters escape it.
        points.extend(of(&counts, &[("name", String::from_utf8_lossy(name.bytes()).into_owned())]));
    }
    points
}

fn with(labels: &[Label], more: impl IntoIterator<Item = (&'static str, &'static str)>) -> Vec<Label> {
    let more = more.into_iter().map(|(label, value)| (label, value.to_owned()));
    labels.iter().cloned().chain(more).collect()
}

fn of_locks(metrics: &Metrics) -> Vec<Metric> {
    let one = |read: fn(&Counts) -> u64| {
        by_name(metrics, move |counts, labels| vec![Point::number(labels.to_vec(), read(counts))])
    };
    let acquires = by_name(metrics, |counts, labels| {
        let ends = AcquireEnd::ALL.into_iter().flat_map(|end| [(end, false), (end, true)]);
        let point = |(end, is_contended): (AcquireEnd, bool)| {
            let contended = if is_contended { "true" } else { "false" };
            let labels = with(labels, [("outcome", end.as_str()), ("contended", contended)]);
            Point::histogram(labels, counts.acquires[end as usize][usize::from(is_contended)].read())
        };
        ends.filter_map(point).collect()
    });
    let holds = by_name(metrics, |counts, labels| {
        let point =
            |end: HoldEnd| Point::histogram(with(labels, [("end", end.as_str())]), counts.holds[end as usize].read());
        HoldEnd::ALL.into_iter().filter_map(point).collect()
    });
    let lost = by_name(metrics, |counts, labels| {
        let point = |reason: LostReason| {
            Point::number(with(labels, [("reason", reason.as_str())]), counts.lost[reason as usize].read())
        };
        LostReason::ALL.into_iter().map(point).collect()
    });
    let margins = by_name(metrics, |counts, labels| {
        Point::histogram(labels.to_vec(), counts.margins.read()).into_iter().collect()
    });
    let outcome = |outcome: &'static str| with(&[], [("outcome", outcome)]);
    let renewals =
        RenewalEnd::ALL.map(|end| Point::number(outcome(end.as_str()), metrics.renewals[end as usize].read()));
    let releases =
        ReleaseEnd::ALL.map(|end| Point::number(outcome(end.as_str()), metrics.releases[end as usize].read()));
    vec![
        histogram("redlock_acquire_duration_seconds", "How long calls to acquire took, by how they ended.", acquires),
        gauge("redlock_waiting", "Calls that wait for a lock now.", one(|counts| counts.waiting.read())),
        gauge("redlock_held", "Locks that are held now.", one(|counts| counts.held.read())),
        histogram("redlock_hold_duration_seconds", "How long locks were held, by how that ended.", holds),
        counter("redlock_lost_total", "Held locks that were lost, by reason.", lost),
        histogram(
            "redlock_renewal_margin_ratio",
            "The share of the ttl that was left when a renewal succeeded: about two thirds, and less before a loss.",
            margins,
        ),
        counter("redlock_renewals_total", "Renewals, by how they ended.", renewals.into()),
        counter("redlock_releases_total", "Calls to release that have ended, by how they ended.", releases.into()),
    ]
}

fn of_nodes(endpoints: &[(String, Arc<Endpoint>)], now: Moment) -> Vec<Metric> {
    let each = |read: &dyn Fn(&Endpoint) -> Option<u64>| {
        let point = |(node, endpoint): &(String, Arc<Endpoint>)| {
            Some(Point::number(vec![("node", node.clone())], read(endpoint)?))
        };
        endpoints.iter().filter_map(point).collect::<Vec<_>>()
    };
    let took = endpoints.iter().flat_map(|(node, endpoint)| {
        let labels = move |script: &str| vec![("node", node.clone()), ("script", script.to_owned())];
        endpoint.traffic.took().filter_map(move |(script, took)| Point::histogram(labels(script), Some(took)))
    });
    let took = took.collect();
    vec![
        gauge(
            "redlock_node_up",
            "Whether the node answered when it was asked last: 1, or 0 if not. Left out if that was over a minute ago.",
            each(&|endpoint| endpoint.is_up(now).map(u64::from)),
        ),
        gauge(
            "redlock_node_evicts",
            "Whether the node may evict locks when its memory is short: 1, or 0 if not.",
            each(&|endpoint| Some(u64::from(endpoint.traffic.evicts()))),
        ),
        histogram("redlock_node_duration_seconds", "How long a node took to answer, by script.", took),
        counter(
            "redlock_node_connections_total",
            "Connections that were made to the node.",
            each(&|endpoint| Some(endpoint.traffic.connections.read())),
        ),
        gauge(
            "redlock_releases_pending",
            "Releases that the node has not answered yet.",
            each(&|endpoint| Some(endpoint.traffic.pending.read())),
        ),
    ]
}
