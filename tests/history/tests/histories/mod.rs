//! Histories made by hand: good ones pass, and each bad one is caught for its own reason and for no other. Beside each
//! bad one stands a good one that differs by one nanosecond, or by as little as its rule knows.

mod calls;
mod nodes;
mod shapes;
mod store;
mod trouble;

use std::time::Duration;

use redlock_history::{Flaw, History, Kind, Record, Report, Rules, Violation};

const SLACK: Duration = Duration::from_nanos(10);

/// Every rule at once that needs nothing recorded beside the calls; losses may be told up to 10 ns late.
const STRICT: Rules = Rules {
    exclusion: true,
    told_late: Some(SLACK),
    order: true,
    settle: Duration::ZERO,
    limit: Some(Duration::from_nanos(200)),
    idle: None,
    quorum: None,
};

fn record(client: &str, kind: Kind, times: (u64, u64), fence: u64, valid_until_ns: Option<u64>) -> Record {
    Record { fence: Some(fence), valid_until_ns, ..Record::new(client, kind, "foo", times) }
}

fn acquire(client: &str, times: (u64, u64), fence: u64, valid_until: u64) -> Record {
    record(client, Kind::Acquire, times, fence, Some(valid_until))
}

fn extend(client: &str, times: (u64, u64), fence: u64, valid_until: u64) -> Record {
    record(client, Kind::Extend, times, fence, Some(valid_until))
}

fn release(client: &str, times: (u64, u64), fence: u64) -> Record {
    record(client, Kind::Release, times, fence, None)
}

fn lost(client: &str, at: u64, fence: u64) -> Record {
    record(client, Kind::Lost, (at, at), fence, None)
}

fn denied(client: &str, times: (u64, u64)) -> Record {
    Record { ok: false, fence: None, ..acquire(client, times, 0, 0) }
}

/// Makes a record one of a failed call.
fn failed(record: Record) -> Record {
    Record { ok: false, ..record }
}

fn named(name: &str, record: Record) -> Record {
    Record { name: name.to_owned(), ..record }
}

fn judge(records: impl IntoIterator<Item = Record>, rules: &Rules) -> Report {
    let history: History = records.into_iter().collect();
    let report = history.check(rules);
    let reversed: History = history.records().iter().rev().cloned().collect();
    assert_eq!(reversed.check(rules), report, "the order of the records changed the verdict");
    report
}

#[track_caller]
fn good(rules: &Rules, records: impl IntoIterator<Item = Record>) -> Report {
    let report = judge(records, rules);
    assert!(report.is_ok(), "{:#?}", report.violations);
    report
}

/// The one violation of a bad history.
#[track_caller]
fn one(records: impl IntoIterator<Item = Record>, rules: &Rules) -> Violation {
    let mut violations = judge(records, rules).violations;
    assert_eq!(violations.len(), 1, "{violations:#?}");
    violations.remove(0)
}

#[track_caller]
fn bad(records: impl IntoIterator<Item = Record>) -> Violation {
    one(records, &STRICT)
}

#[track_caller]
fn flaw(records: impl IntoIterator<Item = Record>) -> Flaw {
    match bad(records) {
        Violation::Malformed { flaw, .. } => flaw,
        other => panic!("{other}"),
    }
}
