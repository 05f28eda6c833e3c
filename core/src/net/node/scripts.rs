//! The scripts as commands of the `redis` crate, and its values as their replies. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script, ToRedisArgs, Value};

use super::{Eval, Failure};
use crate::protocol::request::{self, Action, FENCES, KeyState, Reply, Request, Wants};

/// The values that `acquire.lua` knows, so that they are not sent.
const USUAL_TTL: Duration = Duration::from_secs(10);
const USUAL_FENCE_TTL: Duration = Duration::from_secs(3_600);
const USUAL_SLACK: Duration = Duration::from_secs(60);

/// A script's text and its hash.
struct Text {
    text: &'static str,
    hash: String,
}

impl Text {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().to_owned() }
    }
}

/// The scripts, in the order of [`ScriptId`].
static SCRIPTS: LazyLock<[Text; ScriptId::COUNT]> = LazyLock::new(|| {
    [
        Text::new(include_str!("../../protocol/lua/acquire.lua")),
        Text::new(include_str!("../../protocol/lua/confirm.lua")),
        Text::new(include_str!("../../protocol/lua/extend.lua")),
        Text::new(include_str!("../../protocol/lua/release.lua")),
        Text::new(include_str!("../../protocol/lua/restore.lua")),
        Text::new(include_str!("../../protocol/lua/inspect.lua")),
        Text::new(include_str!("../../protocol/lua/setnx_acquire.lua")),
        Text::new(include_str!("../../protocol/lua/setnx_release.lua")),
    ]
});

/// Begins a command up to its keys, with room for the rest, so that it does not grow stepwise.
fn begin(script: &Text, by: Eval, keys: &[&[u8]]) -> Cmd {
    let (name, script) = match by {
        Eval::Sha => ("EVALSHA", script.hash.as_str()),
        Eval::Text => ("EVAL", script.text),
    };
    let most_arguments = 9;
    let usual_size = script.len() + keys.iter().map(|key| key.len()).sum::<usize>() + 128;
    let mut command = Cmd::with_capacity(3 + keys.len() + most_arguments, usual_size);
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(*key);
    }
    command
}

/// Builds the command for a request, with the waiters key if `hints`, or with as few keys as it can do with if `bare`. An
/// acquire looks at the lock first if its reads are `watched`. Every key stands in KEYS and no key is built from strings on the server.
pub(super) fn command(request: &Request, by: Eval, hints: bool, watched: bool, bare: bool) -> Cmd {
    let hints = hints && !bare;
    let token = request.token.as_bytes();
    let (lock, fence, want) = (&*request.keys.lock, &*request.keys.fence, &*request.keys.want);
    let question = ScriptId::of(&request.action);
    let begin = |keys: &[&[u8]]| begin(&SCRIPTS[question as usize], by, keys);
    match &request.action {
        Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants } => {
            let mut command = if hints { begin(&[lock, fence, want]) } else { begin(&[lock, fence]) };
            let wants = wants.unwrap_or_default();
            let is_proposed = !slack.is_zero();
            let is_in_line = watched || wants.position > 0;
            let label = if is_proposed {
                // In one argument with the token, it costs the server less.
                command.arg(request.token.value(*proposal, label));
                ""
            } else {
                command.arg(token);
                &**label
            };
            let mut arguments = Sparse { command: &mut command, left_out: 0 };
            arguments.add((!label.is_empty()).then_some(label));
            arguments.add((*ttl != USUAL_TTL).then(|| millis(*ttl)));
            arguments.add((*fence_ttl != USUAL_FENCE_TTL).then(|| millis(*fence_ttl)));
            add_position(&mut arguments, is_in_line.then_some(wants));
            arguments.add((is_proposed && *slack != USUAL_SLACK).then(|| micros(*slack)));
            command
        }
        Action::Confirm { granted, fence: decided, fence_ttl, label } => {
            let mut command = begin(&[lock, fence]);
            command.arg(request.token.value(*granted, label)).arg(*decided).arg(millis(*fence_ttl));
            command
        }
        Action::Extend { ttl, fence: mine, fence_ttl } => {
            let mut command = if bare { begin(&[lock]) } else { begin(&[lock, fence]) };
            command.arg(token).arg(millis(*ttl)).arg(*mine).arg(millis(*fence_ttl));
            command
        }
        Action::Release { .. } => {
            let mut command = if hints { begin(&[lock, want]) } else { begin(&[lock]) };
            command.arg(token);
            command
        }
        Action::Restore { ttl, fence: mine, fence_ttl, label } => {
            let mut command = begin(&[lock, fence]);
            command.arg(token).arg(millis(*ttl)).arg(*mine).arg(millis(*fence_ttl)).arg(&**label);
            command
        }
        Action::Inspect => begin(&[lock]),
        Action::Peek { wants } => {
            let mut command = if hints { begin(&[lock, fence, want]) } else { begin(&[lock, fence]) };
            let mut arguments = Sparse { command: command.arg(token).arg("").arg(0).arg(""), left_out: 0 };
            add_position(&mut arguments, Some(*wants));
            command
        }
        Action::SetnxAcquire { ttl } => {
            let mut command = begin(&[lock]);
            command.arg(millis(*ttl));
            command
        }
        Action::SetnxRelease { expiry } => {
            let mut command = begin(&[lock]);
            command.arg(*expiry);
            command
        }
    }
}

/// Adds a waiter's position, if it looks at the lock first or has one.
fn add_position(arguments: &mut Sparse<'_>, wants: Option<Wants>) {
    arguments.add(wants.map(|wants| wants.position));
    arguments.add(wants.filter(|wants| wants.position > 0).map(|wants| wants.hold));
    arguments.add(wants.filter(|wants| wants.keep).map(|_| 1));
}

/// Adds arguments that may be left out, because the script knows the usual value. Each argument costs the server time,
/// so an empty one stands in only where another follows.
struct Sparse<'a> {
    command: &'a mut Cmd,
    left_out: usize,
}

impl Sparse<'_> {
    fn add(&mut self, argument: Option<impl ToRedisArgs>) {
        let Some(argument) = argument else {
            self.left_out += 1;
            return;
        };
        for _ in 0..std::mem::take(&mut self.left_out) {
            self.command.arg("");
        }
        self.command.arg(argument);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The script of a request and its reply.
#[derive(Clone, Copy)]
pub(super) enum ScriptId {
    Acquire,
    Confirm,
    Extend,
    Release,
    Restore,
    Inspect,
    SetnxAcquire,
    SetnxRelease,
}

impl ScriptId {
    pub(super) const COUNT: usize = 8;

    pub(super) fn of(action: &Action) -> Self {
        match action {
            Action::Acquire { .. } | Action::Peek { .. } => Self::Acquire,
            Action::Confirm { .. } => Self::Confirm,
            Action::Extend { .. } => Self::Extend,
            Action::Release { .. } => Self::Release,
            Action::Restore { .. } => Self::Restore,
            Action::Inspect => Self::Inspect,
            Action::SetnxAcquire { .. } => Self::SetnxAcquire,
            Action::SetnxRelease { .. } => Self::SetnxRelease,
        }
    }
}

/// Reads a reply strictly: a value unknown to our scripts is a failed vote, never a guess.
pub(super) fn reply(question: ScriptId, value: Value) -> Result<Reply, Failure> {
    match (question, value) {
        (_, Value::ServerError(error)) => Err(refusal(error.code(), error.details())),
        (ScriptId::Acquire, Value::Int(0)) => Ok(Reply::Seen(KeyState::Free)),
        (ScriptId::Acquire, Value::Int(fence)) => fence_of(fence).map(Reply::Granted),
        (ScriptId::Acquire, Value::Array(items)) => held(&items),
        (ScriptId::Confirm, Value::Int(1)) => Ok(Reply::Confirmed),
        (ScriptId::Confirm | ScriptId::Restore, Value::Int(0)) => Ok(Reply::Refused),
        (ScriptId::Restore, Value::Int(1)) => Ok(Reply::Restored),
        (ScriptId::Extend, Value::Int(1)) => Ok(Reply::Extended),
        (ScriptId::Extend, Value::Int(-2)) => Ok(Reply::Ahead),
        (ScriptId::Release, Value::Int(waiting @ 1..)) => {
            Ok(Reply::Deleted { waiting: u32::try_from(waiting - 1).unwrap_or(u32::MAX) })
        }
        (ScriptId::SetnxRelease, Value::Int(1)) => Ok(Reply::Deleted { waiting: 0 }),
        (ScriptId::Extend | ScriptId::Release | ScriptId::SetnxRelease, Value::Int(0)) => Ok(Reply::Absent),
        (ScriptId::Extend | ScriptId::Release | ScriptId::SetnxRelease, Value::Int(-1)) => Ok(Reply::Foreign(None)),
        (ScriptId::Extend, label @ Value::BulkString(_)) => Ok(Reply::Foreign(label_of(&label))),
        (ScriptId::Inspect, Value::Array(items)) => key_state(&items),
        (ScriptId::SetnxAcquire, Value::Int(expiry)) => {
            u64::try_from(expiry).map(Reply::GrantedUntil).map_err(|_| Failure::UnexpectedReply)
        }
        (ScriptId::SetnxAcquire, Value::Array(items)) => held_until(&items),
        (ScriptId::SetnxRelease, Value::Int(-2)) => Ok(Reply::Late),
        _ => Err(Failure::UnexpectedReply),
    }
}

/// Sorts a script's error. If this user may not do something inside a script, servers say ERR: only the text shows it.
fn refusal(code: &str, details: Option<&str>) -> Failure {
    // Redis 7.2, Valkey and later; Redis 7.0 and before.
    const RIGHTS: [&str; 2] = ["ACL failure in script", "The user executing the script can't"];
    let whole = format!("{code} {}", details.unwrap_or_default());
    // Redis 6.2 says ERR, then the line of the script, and then its command's error.
    let said = whole.split_once("@user_script: ").and_then(|(_, inside)| inside.split_once(": "));
    let (code, details) = match said.map(|(_, said)| said.strip_prefix('-').ok_or(said)) {
        None => (code, details.unwrap_or_default()),
        Some(Ok(error)) => error.split_once(' ').unwrap_or((error, "")),
        Some(Err(text)) => ("ERR", text),
    };
    if let Some(failure) = Failure::of_cluster(code, Some(details)) {
        return failure;
    }
    let is_right = RIGHTS.iter().any(|text| details.starts_with(text));
    Failure::of_code(if code == "ERR" && is_right { "NOPERM" } else { code })
}

fn fence_of(number: i64) -> Result<u64, Failure> {
    u64::try_from(number).ok().filter(|fence| FENCES.contains(fence)).ok_or(Failure::UnexpectedReply)
}

fn ttl_left(millis: i64) -> Option<Duration> {
    // -1: a key without a ttl.
    u64::try_from(millis).ok().map(Duration::from_millis)
}

fn held(items: &[Value]) -> Result<Reply, Failure> {
    let [mine, Value::Int(left), label, Value::Int(position), Value::Int(hold)] = items else {
        return Err(Failure::UnexpectedReply);
    };
    let ours = match text(mine).ok_or(Failure::UnexpectedReply)? {
        "" => None,
        digits => Some(fence_of(digits.parse().map_err(|_| Failure::UnexpectedReply)?)?),
    };
    let (position, hold) =
        (u32::try_from(*position).unwrap_or(0), u64::try_from(*hold).map_err(|_| Failure::UnexpectedReply)?);
    Ok(Reply::Held { ours, ttl_left: ttl_left(*left), label: label_of(label), position, hold })
}

fn held_until(items: &[Value]) -> Result<Reply, Failure> {
    let [Value::Int(left)] = items else { return Err(Failure::UnexpectedReply) };
    Ok(Reply::Held { ours: None, ttl_left: ttl_left(*left), label: None, position: 0, hold: 0 })
}

fn key_state(items: &[Value]) -> Result<Reply, Failure> {
    let sight = match items {
        [Value::Int(0)] => KeyState::Free,
        [Value::Int(2), Value::Int(left)] => KeyState::Foreign { ttl_left: ttl_left(*left) },
        [Value::Int(1), Value::Int(left), fence, label] => {
            let digits = text(fence).and_then(|digits| digits.parse().ok()).ok_or(Failure::UnexpectedReply)?;
            KeyState::Ours { label: label_of(label), fence: fence_of(digits)?, ttl_left: ttl_left(*left) }
        }
        _ => return Err(Failure::UnexpectedReply),
    };
    Ok(Reply::Seen(sight))
}

fn label_of(value: &Value) -> Option<Box<str>> {
    let Value::BulkString(bytes) = value else { return None };
    request::label(bytes)
}

/// Returns the text of a string, if `value` is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_scripts_on_every_server() {
        let position = "Error running script (call to f_a7f30a777e3a14deb342c34c70e37dd1e66eb928): @user_script:28:";
        let line = |said: &str| format!("{position} @user_script: 28: {said}");
        let refused = |code: &str| Failure::Refused(code.into());
        let forbidden = Failure::Forbidden("NOPERM".into());
        let cases = [
            ("OOM", "command not allowed when used memory > 'maxmemory'.".into(), refused("OOM")),
            ("ERR", line("-OOM command not allowed when used memory > 'maxmemory'."), refused("OOM")),
            ("ERR", line("-READONLY You can't write against a read only replica."), refused("READONLY")),
            ("@user_script:", "28: -NOREPLICAS Not enough good replicas to write.".into(), refused("NOREPLICAS")),
            ("ERR", line("Wrong number of args calling Redis command From Lua script"), refused("ERR")),
            ("ERR", position.into(), refused("ERR")),
            ("NOPERM", "this user has no permissions to run the 'eval' command".into(), forbidden.clone()),
            ("ERR", "ACL failure in script: User w has no permissions".into(), forbidden.clone()),
            ("ERR", "The user executing the script can't run this command".into(), forbidden.clone()),
            ("ERR", line("The user executing the script can't run this command or subcommand"), forbidden),
        ];
        for (code, details, failure) in cases {
            assert_eq!(refusal(code, Some(&details)), failure, "{code} {details}");
        }
        assert_eq!(refusal("BUSY", None), refused("BUSY"));
    }
}
