//! An error as a value.

use std::error::Error as _;

use napi_derive::napi;
use redlock::Error;

/// The options whose names differ between the languages. Messages come in Rust's case.
const OPTIONS: [(&str, &str); 6] = [
    ("auto_renew", "autoRenew"),
    ("max_hold", "maxHold"),
    ("node_timeout", "nodeTimeout"),
    ("restart_delay", "restartDelay"),
    ("fence_ttl", "fenceTtl"),
    ("connect_timeout", "connectTimeout"),
];

/// What one node answered.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Answer {
    /// The node's address without user name or password.
    pub node: String,
    /// What it said, in a few words.
    pub answer: String,
}

/// Why a call failed.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Failure {
    /// One of the codes in `tests/conformance/tables/errors.json`.
    #[napi(
        ts_type = "'timeout' | 'unavailable' | 'forbidden' | 'lost' | 'not_held' | 'already_held' | 'invalid_argument'"
    )]
    pub code: &'static str,
    /// The whole message.
    pub message: String,
    /// The name of the lock, if one is concerned.
    pub lock_name: Option<String>,
    /// Why the lock was lost, where the code is `lost`.
    #[napi(ts_type = "'expired' | 'taken' | 'unreachable' | 'max_hold' | 'deleted'")]
    pub reason: Option<&'static str>,
    /// What each node answered in the last round.
    pub nodes: Vec<Answer>,
    /// The message of the error behind this one.
    pub cause: Option<String>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let answer = |answer: &redlock::NodeAnswer| Answer { node: answer.node.clone(), answer: answer.answer.clone() };
        Self {
            code: error.code(),
            message: message(&error),
            lock_name: error.name().map(String::from),
            reason: error.reason().map(redlock::LostReason::as_str),
            nodes: error.nodes().iter().map(answer).collect(),
            cause: error.source().map(ToString::to_string),
        }
    }
}

/// The message with options as they are written in JavaScript. The lock's name, which may look like one, stays, and so
/// does what is quoted.
fn message(error: &Error) -> String {
    let whole = error.to_string();
    let named = error.name().map(|name| format!("lock {name:?}: ")).unwrap_or_default();
    let Some(rest) = whole.strip_prefix(&named) else { return whole };
    let parts = rest.split('"').enumerate();
    let renamed: Vec<_> = parts.map(|(i, part)| if i % 2 == 0 { renamed(part) } else { part.to_owned() }).collect();
    named + &renamed.join("\"")
}

fn renamed(text: &str) -> String {
    OPTIONS.iter().fold(text.to_owned(), |text, (ours, theirs)| text.replace(ours, theirs))
}

/// The failure for an option that does not exist.
#[napi(catch_unwind)]
pub fn unknown(option: String) -> Failure {
    let mut failure = Failure::from(redlock::bindings::options::unknown(&option));
    if let Some((_, theirs)) = OPTIONS.iter().find(|(ours, _)| *ours == option) {
        failure.message = format!("{}; use {theirs}", failure.message);
    }
    failure
}
