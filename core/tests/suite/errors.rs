//! The codes and reasons are the ones every language knows: `tests/conformance/tables/errors.json`. Which option an error is
//! about.

use std::time::Duration;

use redlock::{ErrorKind, LostReason, blocking};
use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    cases: Vec<Case>,
    lost_reasons: Vec<String>,
}

#[derive(Deserialize)]
struct Case {
    code: String,
    retryable: bool,
}

fn table() -> Table {
    serde_json::from_str(include_str!("../../../tests/conformance/tables/errors.json"))
        .expect("errors.json is a table of errors")
}

#[test]
fn kinds() {
    let table: Vec<_> = table().cases.into_iter().map(|case| (case.code, case.retryable)).collect();
    let kinds: Vec<_> = ErrorKind::ALL.iter().map(|kind| (kind.to_string(), kind.is_retryable())).collect();
    assert_eq!(kinds, table);
    assert!(ErrorKind::ALL.iter().all(|kind| kind.to_string() == kind.code()));
}

#[test]
fn lost_reasons() {
    assert_eq!(LostReason::ALL.map(|reason| reason.to_string()).to_vec(), table().lost_reasons);
    assert!(LostReason::ALL.iter().all(|reason| reason.to_string() == reason.as_str()));
}

#[test]
fn options_are_written_as_a_language_writes_them() {
    let redlock = blocking::Redlock::new("memory://errors").expect("an address");
    let error = redlock.lock("ttl").ttl(Duration::ZERO).acquire().expect_err("a wrong ttl");
    assert_eq!(error.option(), Some("ttl"));
    let rest = "0ns, but must be from 100 ms to 24 h; to keep a lock for longer, extend it or leave";
    assert_eq!(error.to_string(), format!("lock \"ttl\": ttl is {rest} auto_renew on"));
    assert_eq!(error.spelled(str::to_uppercase), format!("lock \"ttl\": TTL is {rest} AUTO_RENEW on"));
}

#[test]
fn names_and_nodes_are_arguments() {
    let redlock = blocking::Redlock::new("memory://errors").expect("an address");
    assert_eq!(redlock.lock("").acquire().expect_err("a wrong name").option(), Some("name"));
    assert_eq!(blocking::Redlock::new("nowhere").expect_err("a wrong address").option(), Some("nodes"));
    let _guard = redlock.lock("foo").acquire().expect("a lock");
    assert_eq!(redlock.lock("foo").timeout(Duration::ZERO).acquire().expect_err("held").option(), None);
}
