//! DELIFEQ: the release of a held lock without a script, which takes the server less time.
//!
//! Valkey has it from 9.0 on. It deletes the lock key if its value is exactly what the node has granted. GETDEL follows in
//! the same write, and ends the count of the waiters. `release.lua` judges everything but a deletion: an absent key,
//! another's and the own one with another fence look alike, and the command may be refused. GETDEL has ended the count in
//! any case. If that was the count of another's waiters, they are counted again within 4 s.
//!
//! A connection on which the command is refused does not send it again. Nor do the node's next connections for a minute,
//! also after a hang-up instead of the first answer: some proxies hang up on what they do not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{Cmd, RedisWrite, Value};

use super::pipeline::Answer;
use super::refusal::is_unwanted;
use super::scripts::text;
use super::setup::AGAIN;
use crate::net::failure::Failure;
use crate::protocol::request::{Keys, Reply, WAITING_MAX};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

/// The first version of Valkey that has it.
const SINCE: u32 = 9;

/// What one connection knows about the command.
pub(super) struct Delifeq {
    is_used: AtomicBool,
    is_answered: AtomicBool,
    /// From when on the node's next connections use it, in nanoseconds.
    from: Arc<AtomicU64>,
}

impl Delifeq {
    /// Prepares for a connection that is made `now`, to a server with this answer to INFO.
    pub(super) fn new(from: &Arc<AtomicU64>, info: Option<&str>, now: Moment) -> Self {
        let is_used = info.is_some_and(is_known) && from.load(Ordering::Relaxed) <= now.nanos();
        Self { is_used: AtomicBool::new(is_used), is_answered: AtomicBool::new(false), from: Arc::clone(from) }
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Returns the node's answer to a release by what it said to both commands, or what is left to the script: how many wait
    /// in any case, for their count has ended.
    pub(super) fn judge(&self, deleted: Answer, count: Answer, now: Moment) -> Result<Result<Reply, Failure>, u32> {
        let waiting = waiting(count);
        match deleted {
            Err(failure) => {
                if matches!(failure, Failure::Closed) && !self.is_answered.load(Ordering::Relaxed) {
                    self.leave_out(now);
                }
                return Ok(Err(failure));
            }
            Ok(Value::ServerError(error)) if is_unwanted(error.code(), error.details()) => self.leave_out(now),
            Ok(Value::Int(number)) => {
                self.is_answered.store(true, Ordering::Relaxed);
                if number == 1 {
                    return Ok(Ok(Reply::Deleted { waiting }));
                }
            }
            Ok(_) => {}
        }
        Err(waiting)
    }

    fn leave_out(&self, now: Moment) {
        self.is_used.store(false, Ordering::Relaxed);
        self.from.store(now.after(AGAIN).nanos(), Ordering::Relaxed);
    }
}

/// Whether a server has the command, by its answer to INFO.
fn is_known(info: &str) -> bool {
    let version = info.lines().find_map(|line| line.strip_prefix("valkey_version:"));
    version.and_then(|version| version.split('.').next()?.parse().ok()).is_some_and(|major: u32| major >= SINCE)
}

/// Returns the command that deletes the lock key of a token if the node has granted it this fence, with this label.
pub(super) fn delete(keys: &Keys, token: &Token, fence: u64, label: &str) -> Cmd {
    let mut command = Cmd::with_capacity(3, keys.lock.len() + keys.want.len() + label.len() + 64);
    command.arg("DELIFEQ").arg(&*keys.lock);
    token.write_value(fence, label, command.writer_for_next_arg());
    command
}

/// Makes of that command the one behind it.
pub(super) fn end_count(command: &mut Cmd, keys: &Keys) {
    command.clear();
    command.arg("GETDEL").arg(&*keys.want);
}

/// Returns the number of waiters whose count has ended. This user may have no right to it.
fn waiting(count: Answer) -> u32 {
    let count = count.ok().and_then(|value| text(&value)?.parse().ok());
    count.map_or(0, |count: u32| count.min(WAITING_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it_tells_so_with_the_version() {
        for (info, expected) in [
            ("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", true),
            ("redis_version:7.2.4\r\nvalkey_version:10.0.0\r\n", true),
            ("redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n", false),
            ("redis_version:9.0.0\r\n", false),
            ("valkey_version:\r\n", false),
            ("", false),
        ] {
            assert_eq!(is_known(info), expected, "{info}");
        }
    }
}
