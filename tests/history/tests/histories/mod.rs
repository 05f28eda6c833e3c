//! Histories made by hand: good ones pass, and each bad one is caught for its own reason and for no other. Beside each
//! bad one stands a good one that differs by one nanosecond, or by as little as its rule knows.
//!
//! A history is a text, `a acquire 0-10 #1 <100; a release 30-40 #1`: who did what from when to when, under which fence, and
//! until when it is valid then. A call with one time takes none, and one whose second time is missing has not come back.
//! What else there is of a record follows by its name.

mod calls;
mod nodes;
mod shapes;
mod store;
mod trouble;

use std::time::Duration;

use redlock_history::{
    BRIDGED, DUPLICATE, MALFORMED, OUT_OF_ORDER, OVERLAP, REVIVED, Record, Report, Rules, TOLD_LATE, check,
};
use serde_json::{Map, Value, json};

/// Every rule at once that needs nothing recorded beside the calls; losses may be told up to 10 ns late.
const STRICT: Rules = Rules {
    exclusion: true,
    told_late: Some(Duration::from_nanos(10)),
    order: true,
    settle: Duration::ZERO,
    limit: Some(Duration::from_nanos(200)),
    idle: None,
    quorum: None,
};

/// Losses are not recorded.
const UNTOLD: Rules = Rules { told_late: None, ..STRICT };

/// Two may hold the lock.
const LAX: Rules = Rules { exclusion: false, ..STRICT };

fn record(text: &str) -> Record {
    let mut words = text.split_whitespace();
    let mut next = || words.next().expect("who, what and when");
    let (client, kind, times) = (next(), next(), next());
    let (invoked, returned) = times.split_once('-').unwrap_or((times, times));
    let number = |text: &str| text.parse::<u64>().ok();
    let mut fields = Map::from_iter([
        ("client".to_owned(), json!(client)),
        ("kind".to_owned(), json!(kind)),
        ("name".to_owned(), json!(if kind == "stopped" { "" } else { "foo" })),
        ("invoke_ns".to_owned(), json!(number(invoked))),
        ("return_ns".to_owned(), json!(number(returned))),
        ("ok".to_owned(), json!(true)),
    ]);
    for word in words {
        let (field, value) = match (word.strip_prefix('#'), word.strip_prefix('<')) {
            (Some(fence), _) => ("fence", json!(number(fence))),
            (_, Some(until)) => ("valid_until_ns", json!(number(until))),
            _ => match word.split_once('=') {
                Some(("names", names)) => ("names", json!(names.split('+').collect::<Vec<_>>())),
                Some((field, value)) => (field, number(value).map_or(json!(value), Value::from)),
                None if word == "failed" => ("ok", json!(false)),
                None => (word, json!(true)),
            },
        };
        fields.insert(field.to_owned(), value);
    }
    serde_json::from_value(Value::Object(fields)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn records(history: &str) -> Vec<Record> {
    history.split(';').filter(|text| !text.trim().is_empty()).map(record).collect()
}

/// What is demanded of histories.
trait Judges {
    fn judge(&self, history: &str) -> Report;

    #[track_caller]
    fn good(&self, history: &str) -> Report {
        let report = self.judge(history);
        assert!(report.is_ok(), "{history}: {:#?}", report.violations);
        report
    }

    /// One violation, in whose sentence this comes.
    #[track_caller]
    fn bad(&self, history: &str, shows: &str) {
        let violations = self.judge(history).violations;
        let [violation] = &violations[..] else { panic!("{history}: {violations:#?}") };
        assert!(violation.to_string().contains(shows), "{history}: {violation}");
    }

    /// A history is good with each of the first texts in place of its `@`, and with each of the others it shows this. The
    /// texts of a list are apart by `|`.
    #[track_caller]
    fn edge(&self, history: &str, good: &str, bad: &str, shows: &str) {
        for good in good.split('|') {
            self.good(&history.replace('@', good));
        }
        for bad in bad.split('|') {
            self.bad(&history.replace('@', bad), shows);
        }
    }
}

impl Judges for Rules {
    fn judge(&self, history: &str) -> Report {
        let mut records = records(history);
        let report = check(&records, self);
        records.reverse();
        assert_eq!(check(&records, self), report, "the order of the records changed the verdict");
        report
    }
}
