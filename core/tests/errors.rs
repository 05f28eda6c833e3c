//! The codes and reasons are the ones every language knows: `tests/conformance/tables/errors.json`.

use redlock::{ErrorKind, LostReason};
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
    serde_json::from_str(include_str!("../../tests/conformance/tables/errors.json"))
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
