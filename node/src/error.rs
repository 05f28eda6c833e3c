//! Errors as values.

use std::error::Error as _;

use napi_derive::napi;
use redlock::Error;

use crate::convert::{camel, ms};
use crate::credentials::NoLogin;

/// One node's answer.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Answer {
    /// The node's address without user name or password.
    pub node: String,
    /// The answer, in a few words.
    pub answer: String,
}

/// The failure of a call.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Failure {
    /// One of the codes in `tests/conformance/tables/errors.json`.
    #[napi(
        ts_type = "'timeout' | 'unavailable' | 'forbidden' | 'lost' | 'not_held' | 'already_held' | 'closed' | 'invalid_argument' | 'internal'"
    )]
    pub code: &'static str,
    /// The whole message.
    pub message: String,
    /// The lock's name, if the failure is about one lock.
    pub lock_name: Option<String>,
    /// The reason why the lock was lost, if the code is `lost`.
    #[napi(ts_type = "'expired' | 'taken' | 'unreachable' | 'max_hold' | 'deleted'")]
    pub reason: Option<&'static str>,
    /// The option or argument that is wrong, if the failure is about one.
    pub option: Option<String>,
    /// Each node's answer in the last round.
    pub nodes: Vec<Answer>,
    /// The label of the lock's holder, if the code is `timeout` and it has one.
    pub holder_label: Option<String>,
    /// How long the holder's key lasts, in milliseconds, if the code is `timeout` and that is known.
    pub holder_ttl_left: Option<f64>,
    /// Whether this process holds the lock itself, if the code is `timeout`.
    pub held_by_this_process: Option<bool>,
    /// The message of the error that caused this one.
    pub cause: Option<String>,
    /// The number of what the credentials provider threw, if that caused this failure.
    pub thrown: Option<i64>,
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
            holder_label: error.holder_label().map(String::from),
            holder_ttl_left: error.holder_ttl_left().map(ms),
            held_by_this_process: error.is_held_by_this_process().then_some(true),
            cause: error.source().map(ToString::to_string),
            thrown: thrown(&error),
        }
    }
}

/// Returns the number of what the credentials provider threw, if that caused `error`.
fn thrown(error: &Error) -> Option<i64> {
    error.source()?.downcast_ref().and_then(|failure: &NoLogin| failure.thrown)
}

/// Returns the failure for an option that does not exist.
#[napi(catch_unwind)]
pub fn unknown(option: String) -> Failure {
    let failure = Failure::from(redlock::bindings::options::unknown(&option, camel));
    // The option as the caller spelled it.
    Failure { option: Some(option), ..failure }
}
