//! The native delete: the release of a held lock without a script, which takes the server less time.
//!
//! Valkey has DELIFEQ for it from 9.0 on, and Redis has DELEX with IFEQ from 8.4 on. It deletes the lock key if its value
//! is exactly what the node has granted. GETDEL follows in the same write, and ends the count of the waiters.
//! `release.lua` judges everything but a deletion: an absent key, another's and the own one with another fence look alike,
//! and the command may be refused. GETDEL has ended the count in any case. If that was the count of another's waiters,
//! they are counted again within 4 s.
//!
//! A connection on which the command is refused does not send it again. Nor do the node's next connections for a minute,
//! also after a hang-up instead of the first answer: some proxies hang up on what they do not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, RedisWrite, Value};

use super::pipeline::Answer;
use super::refusal::is_unwanted;
use super::scripts::text;
use super::setup::AGAIN;
use crate::protocol::request::{Keys, Reply, WAITING_MAX};
use crate::protocol::token::Token;
use crate::sys::clock::{Moment, SharedMoment};
use crate::transport::failure::Failure;

/// The command of a server, and the condition behind its key.
type Comparing = (&'static str, Option<&'static str>);

const DELIFEQ: Comparing = ("DELIFEQ", None);
const DELEX: Comparing = ("DELEX", Some("IFEQ"));

/// What one connection knows about the command.
pub(super) struct NativeDelete {
    command: Option<Comparing>,
    is_left_out: AtomicBool,
    is_answered: AtomicBool,
    /// From when on the node's next connections use it.
    from: Arc<SharedMoment>,
}

impl NativeDelete {
    /// Prepares for a connection that is made `now`, to a server with this answer to INFO.
    pub(super) fn new(from: &Arc<SharedMoment>, info: Option<&str>, now: Moment) -> Self {
        let command = info.and_then(command_of).filter(|_| from.get() <= now);
        Self { command, is_left_out: AtomicBool::default(), is_answered: AtomicBool::default(), from: Arc::clone(from) }
    }

    /// Returns the command to send; `None` if the script releases.
    pub(super) fn command(&self) -> Option<Comparing> {
        self.command.filter(|_| !self.is_left_out.load(Ordering::Relaxed))
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
        self.is_left_out.store(true, Ordering::Relaxed);
        self.from.set(now.after(AGAIN));
    }
}

/// Returns the command that a server has, by its answer to INFO.
fn command_of(info: &str) -> Option<Comparing> {
    let version = |name: &str| {
        let mut parts =
            info.lines().find_map(|line| line.strip_prefix(name))?.split('.').map(|part| part.parse::<u32>().ok());
        Some((parts.next()??, parts.next()??))
    };
    // Valkey also tells the version of Redis that it is compatible with.
    let (since, told, command) = match version("valkey_version:") {
        Some(told) => ((9, 0), told, DELIFEQ),
        None => ((8, 4), version("redis_version:")?, DELEX),
    };
    (told >= since).then_some(command)
}

/// Returns the command that deletes the lock key of a token if the node has granted it this fence, with this label.
pub(super) fn delete((name, condition): Comparing, keys: &Keys, token: &Token, fence: u64, label: &str) -> Cmd {
    let mut command = Cmd::with_capacity(4, keys.lock.len() + keys.want.len() + label.len() + 64);
    command.arg(name).arg(&*keys.lock).arg(condition);
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
            ("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", Some(DELIFEQ)),
            ("redis_version:7.2.4\r\nvalkey_version:10.0.0\r\n", Some(DELIFEQ)),
            ("redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n", None),
            ("redis_version:8.4.0\r\n", Some(DELEX)),
            ("redis_version:10.0.0\r\n", Some(DELEX)),
            ("redis_version:8.3.9\r\n", None),
            ("redis_version:7.0.15\r\n", None),
            ("valkey_version:\r\n", None),
            ("", None),
        ] {
            assert_eq!(command_of(info), expected, "{info}");
        }
    }
}
