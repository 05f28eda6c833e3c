//! An error as a value.

use std::error::Error as _;

use napi_derive::napi;
use redlock::Error;

use crate::convert::camel;

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
    /// The option or argument that is wrong, if one is.
    pub option: Option<String>,
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
            message: error.spelled(camel),
            lock_name: error.name().map(String::from),
            reason: error.reason().map(redlock::LostReason::as_str),
            option: error.option().map(camel),
            nodes: error.nodes().iter().map(answer).collect(),
            cause: error.source().map(ToString::to_string),
        }
    }
}

/// The failure for an option that does not exist.
#[napi(catch_unwind)]
pub fn unknown(option: String) -> Failure {
    let failure = Failure::from(redlock::bindings::options::unknown(&option, camel));
    // As the caller wrote it.
    Failure { option: Some(option), ..failure }
}
