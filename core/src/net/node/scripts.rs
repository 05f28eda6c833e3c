//! The scripts as commands of the `redis` crate, and its values as their replies. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script, ToRedisArgs, Value};

use super::refusal::of_error;
use crate::net::failure::Failure;
use crate::net::node::way::Eval;
use crate::protocol::request::{self, Action, FENCES, KeyState, Keys, Reply, Request, Wants};
use crate::protocol::shape::LOOK_MOST;
use crate::protocol::token::Fingerprint;

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

/// The text of a script about shared locks.
macro_rules! of_shared {
    ($name:literal) => {
        concat!(
            include_str!("../../protocol/lua/period.lua"),
            include_str!(concat!("../../protocol/lua/", $name, ".lua"))
        )
    };
}

/// The scripts, in the order of [`ScriptId`].
static SCRIPTS: LazyLock<[Text; ScriptId::COUNT]> = LazyLock::new(|| {
    [
        Text::new(include_str!("../../protocol/lua/acquire.lua")),
        Text::new(include_str!("../../protocol/lua/confirm.lua")),
        Text::new(include_str!("../../protocol/lua/extend.lua")),
        Text::new(include_str!("../../protocol/lua/release.lua")),
        Text::new(include_str!("../../protocol/lua/restore.lua")),
        Text::new(include_str!("../../protocol/lua/rekey.lua")),
        Text::new(include_str!("../../protocol/lua/inspect.lua")),
        Text::new(include_str!("../../protocol/lua/setnx_acquire.lua")),
        Text::new(include_str!("../../protocol/lua/setnx_release.lua")),
        Text::new(include_str!("../../protocol/lua/leave.lua")),
        Text::new(include_str!("../../protocol/lua/look.lua")),
        Text::new(include_str!("../../protocol/lua/acquire_all.lua")),
        Text::new(include_str!("../../protocol/lua/confirm_all.lua")),
        Text::new(include_str!("../../protocol/lua/extend_all.lua")),
        Text::new(include_str!("../../protocol/lua/release_all.lua")),
        Text::new(include_str!("../../protocol/lua/restore_all.lua")),
        Text::new(include_str!("../../protocol/lua/rekey_all.lua")),
        Text::new(of_shared!("acquire_shared")),
        Text::new(of_shared!("confirm_shared")),
        Text::new(of_shared!("extend_shared")),
        Text::new(of_shared!("release_shared")),
        Text::new(of_shared!("restore_shared")),
        Text::new(of_shared!("rekey_shared")),
        Text::new(concat!(include_str!("../../protocol/lua/unshared.lua"), of_shared!("withdraw"))),
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
    if request.keys.are_several() {
        return command_of_several(request, by, hints);
    }
    if request.keys.are_shared() {
        return command_of_shared(request, by, hints && !bare, bare);
    }
    let hints = hints && !bare;
    let token = request.token.as_bytes();
    let (lock, fence, want) = (&*request.keys.lock, &*request.keys.fence, &*request.keys.want);
    let question = ScriptId::of(request);
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
        Action::Extend { ttl, fence: mine, fence_ttl, floor } => {
            let mut command = if bare { begin(&[lock]) } else { begin(&[lock, fence]) };
            command.arg(token).arg(millis(*ttl)).arg(*mine).arg(millis(*fence_ttl)).arg(floor);
            command
        }
        Action::Release { .. } => {
            let mut command = if hints { begin(&[lock, want]) } else { begin(&[lock]) };
            command.arg(token);
            command
        }
        Action::Leave { rest, .. } => {
            let mut command = match request.keys.bell() {
                _ if !hints => begin(&[lock]),
                None => begin(&[lock, want]),
                Some(bell) => begin(&[lock, want, bell]),
            };
            command.arg(token).arg(millis(*rest));
            command
        }
        Action::Look { slots, wants, anyway } => {
            let mut keys: Vec<&[u8]> = slots.iter().map(|keys| &*keys.lock).collect();
            if hints {
                keys.extend([Some(want), request.keys.bell()].into_iter().flatten());
            }
            let mut command = begin(&keys);
            command.arg(slots.len()).arg(wants.map_or(0, |_| 1 + u8::from(*anyway)));
            add_whole_position(&mut command, wants.unwrap_or_default());
            command
        }
        Action::Restore { ttl, fence: mine, level, fence_ttl, label } => {
            let mut command = begin(&[lock, fence]);
            command.arg(token).arg(millis(*ttl)).arg(*level).arg(millis(*fence_ttl)).arg(&**label).arg(*mine);
            command
        }
        Action::Rekey { former, ttl, fence: mine, fence_ttl } => {
            let mut command = begin(&[lock, fence]);
            command.arg(token).arg(millis(*ttl)).arg(*mine).arg(millis(*fence_ttl)).arg(former.as_bytes());
            command
        }
        Action::Inspect { .. } if hints => begin(&[lock, want]),
        Action::Inspect { .. } => begin(&[lock]),
        Action::Peek { wants } => {
            let mut command = if hints { begin(&[lock, fence, want]) } else { begin(&[lock, fence]) };
            let mut arguments = Sparse { command: command.arg(token).arg("").arg(0).arg(""), left_out: 0 };
            add_position(&mut arguments, Some(*wants));
            command
        }
        Action::Withdraw => begin(&[lock, want]),
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

/// Builds the command that deletes the lock key if its value is `proof` or begins with it and a colon, and says which
/// script's reply answers it. With `hints` it ends the count of waiters, and rings a slot's bell `in_our_form`.
pub(super) fn deletion(keys: &Keys, proof: &[u8], in_our_form: bool, hints: bool) -> (ScriptId, Cmd) {
    let bell = keys.bell().filter(|_| in_our_form && hints);
    let question = if bell.is_some() { ScriptId::Leave } else { ScriptId::Release };
    let want = hints.then_some(&*keys.want);
    let named: Vec<&[u8]> = [Some(&*keys.lock), want, bell].into_iter().flatten().collect();
    let mut command = begin(&SCRIPTS[question as usize], Eval::Text, &named);
    command.arg(proof);
    if bell.is_some() {
        command.arg(0);
    }
    (question, command)
}

/// Builds the command for a request about several names. Which keys are of which name shows in their order.
fn command_of_several(request: &Request, by: Eval, hints: bool) -> Cmd {
    let each = request.keys.each();
    let (locks, token) = (each.len(), request.token.as_bytes());
    let mut keys: Vec<&[u8]> = each.clone().map(|keys| &*keys.lock).collect();
    if !matches!(request.action, Action::Release { .. } | Action::Leave { .. }) {
        keys.extend(each.clone().map(|keys| &*keys.fence));
    }
    // A look that does not come from a waiter counts nobody.
    if hints && !matches!(request.action, Action::Inspect { .. }) {
        keys.extend(each.map(|keys| &*keys.want));
    }
    let mut command = begin(&SCRIPTS[ScriptId::of(request) as usize], by, &keys);
    match &request.action {
        Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants } => {
            let proposal = if slack.is_zero() { 0 } else { *proposal };
            command
                .arg(token)
                .arg(proposal)
                .arg(micros(*slack))
                .arg(millis(*ttl))
                .arg(millis(*fence_ttl))
                .arg(&**label);
            command.arg(locks);
            add_whole_position(&mut command, wants.unwrap_or_default());
        }
        Action::Confirm { granted, fence, fence_ttl, label } => {
            command.arg(request.token.value(*granted, label)).arg(*fence).arg(millis(*fence_ttl)).arg(locks);
        }
        Action::Extend { ttl, fence, fence_ttl, floor } => {
            command.arg(token).arg(millis(*ttl)).arg(*fence).arg(millis(*fence_ttl)).arg(locks).arg(floor);
        }
        Action::Restore { ttl, fence, level, fence_ttl, label } => {
            command
                .arg(token)
                .arg(millis(*ttl))
                .arg(*level)
                .arg(millis(*fence_ttl))
                .arg(&**label)
                .arg(locks)
                .arg(*fence);
        }
        Action::Rekey { former, ttl, fence, fence_ttl } => {
            command.arg(token).arg(millis(*ttl)).arg(*fence).arg(millis(*fence_ttl)).arg(former.as_bytes()).arg(locks);
        }
        Action::Release { .. } | Action::Leave { .. } => {
            command.arg(token).arg(locks);
        }
        // Those that take nothing: a look at all of the locks.
        Action::Peek { .. } | Action::Inspect { .. } | Action::Look { .. } => {
            let wants = if let Action::Peek { wants } = &request.action { *wants } else { Wants::default() };
            command.arg(token).arg(0).arg(0).arg(0).arg(0).arg("").arg(locks);
            add_whole_position(&mut command, wants);
        }
        Action::Withdraw | Action::SetnxAcquire { .. } | Action::SetnxRelease { .. } => {
            unreachable!("locks of that protocol have one name")
        }
    }
    command
}

/// Builds the command for a request about a lock that many share. With `hints` it looks whether somebody waits for the
/// lock alone.
fn command_of_shared(request: &Request, by: Eval, hints: bool, bare: bool) -> Cmd {
    let (lock, fence, want) = (&*request.keys.lock, &*request.keys.fence, &*request.keys.want);
    let keys = match &request.action {
        Action::Acquire { .. } | Action::Peek { .. } if hints => &[lock, fence, want][..],
        Action::Withdraw => &[lock, want],
        Action::Release { .. } | Action::Leave { .. } | Action::Inspect { .. } if hints => &[lock, want],
        Action::Release { .. } | Action::Leave { .. } | Action::Inspect { .. } => &[lock],
        Action::Extend { .. } if bare => &[lock],
        _ => &[lock, fence],
    };
    let mut command = begin(&SCRIPTS[ScriptId::of(request) as usize], by, keys);
    let member = request.keys.member(&request.token);
    match &request.action {
        Action::Acquire { ttl, proposal, slack, fence_ttl, wants, .. } => {
            let proposal = if slack.is_zero() { 0 } else { *proposal };
            command.arg(member).arg(proposal).arg(micros(*slack)).arg(millis(*ttl)).arg(millis(*fence_ttl));
            match wants {
                Some(wants) => add_whole_position(&mut command, *wants),
                None => _ = command.arg("").arg(0).arg(0),
            }
            command.arg(u8::from(wants.is_some_and(|wants| wants.anyway)));
        }
        Action::Peek { wants } => {
            command.arg(member).arg(0).arg(0).arg(0).arg(0);
            add_whole_position(&mut command, *wants);
            command.arg(u8::from(wants.anyway));
        }
        Action::Confirm { granted, fence, fence_ttl, .. } => {
            command.arg(member).arg(*granted).arg(*fence).arg(millis(*fence_ttl));
        }
        Action::Extend { ttl, fence, fence_ttl, floor } => {
            command.arg(member).arg(millis(*ttl)).arg(*fence).arg(millis(*fence_ttl)).arg(floor);
        }
        Action::Restore { ttl, fence, level, fence_ttl, .. } => {
            command.arg(member).arg(millis(*ttl)).arg(*level).arg(millis(*fence_ttl)).arg(*fence);
        }
        Action::Rekey { former, ttl, fence, fence_ttl } => {
            let former = request.keys.member(former);
            command.arg(member).arg(millis(*ttl)).arg(*fence).arg(millis(*fence_ttl)).arg(former);
        }
        Action::Release { .. } | Action::Leave { .. } => {
            command.arg(member);
        }
        Action::Inspect { .. } | Action::Withdraw => {}
        Action::Look { .. } | Action::SetnxAcquire { .. } | Action::SetnxRelease { .. } => {
            unreachable!("locks of these kinds are not shared")
        }
    }
    command
}

/// Adds a waiter's position, or none.
fn add_whole_position(command: &mut Cmd, wants: Wants) {
    command.arg(wants.position).arg(wants.hold).arg(u8::from(wants.keep));
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
    Rekey,
    Inspect,
    SetnxAcquire,
    SetnxRelease,
    Leave,
    Look,
    AcquireAll,
    ConfirmAll,
    ExtendAll,
    ReleaseAll,
    RestoreAll,
    RekeyAll,
    AcquireShared,
    ConfirmShared,
    ExtendShared,
    ReleaseShared,
    RestoreShared,
    RekeyShared,
    Withdraw,
}

impl ScriptId {
    pub(super) const COUNT: usize = 24;

    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::Acquire,
        Self::Confirm,
        Self::Extend,
        Self::Release,
        Self::Restore,
        Self::Rekey,
        Self::Inspect,
        Self::SetnxAcquire,
        Self::SetnxRelease,
        Self::Leave,
        Self::Look,
        Self::AcquireAll,
        Self::ConfirmAll,
        Self::ExtendAll,
        Self::ReleaseAll,
        Self::RestoreAll,
        Self::RekeyAll,
        Self::AcquireShared,
        Self::ConfirmShared,
        Self::ExtendShared,
        Self::ReleaseShared,
        Self::RestoreShared,
        Self::RekeyShared,
        Self::Withdraw,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Confirm => "confirm",
            Self::Extend => "extend",
            Self::Release => "release",
            Self::Restore => "restore",
            Self::Rekey => "rekey",
            Self::Inspect => "inspect",
            Self::SetnxAcquire => "setnx_acquire",
            Self::SetnxRelease => "setnx_release",
            Self::Leave => "leave",
            Self::Look => "look",
            Self::AcquireAll => "acquire_all",
            Self::ConfirmAll => "confirm_all",
            Self::ExtendAll => "extend_all",
            Self::ReleaseAll => "release_all",
            Self::RestoreAll => "restore_all",
            Self::RekeyAll => "rekey_all",
            Self::AcquireShared => "acquire_shared",
            Self::ConfirmShared => "confirm_shared",
            Self::ExtendShared => "extend_shared",
            Self::ReleaseShared => "release_shared",
            Self::RestoreShared => "restore_shared",
            Self::RekeyShared => "rekey_shared",
            Self::Withdraw => "withdraw",
        }
    }

    pub(super) fn of(request: &Request) -> Self {
        let script = Self::of_one(&request.action);
        if request.keys.are_several() {
            script.of_several()
        } else if request.keys.are_shared() {
            script.of_shared()
        } else {
            script
        }
    }

    /// Returns whether the script lets a key live longer.
    fn extends(self) -> bool {
        matches!(
            self,
            Self::Extend | Self::ExtendAll | Self::ExtendShared | Self::Rekey | Self::RekeyAll | Self::RekeyShared
        )
    }

    /// Returns whether the script puts a lock back.
    fn restores(self) -> bool {
        matches!(self, Self::Restore | Self::RestoreAll | Self::RestoreShared)
    }

    /// Returns whether the script may answer that it found no key, or that of another.
    fn finds(self) -> bool {
        self.extends()
            || matches!(self, Self::Release | Self::ReleaseAll | Self::ReleaseShared | Self::Leave | Self::SetnxRelease)
    }

    /// Returns the script that does to several locks what this one does to one.
    fn of_several(self) -> Self {
        match self {
            Self::Acquire | Self::Inspect => Self::AcquireAll,
            Self::Confirm => Self::ConfirmAll,
            Self::Extend => Self::ExtendAll,
            Self::Release | Self::Leave => Self::ReleaseAll,
            Self::Restore => Self::RestoreAll,
            Self::Rekey => Self::RekeyAll,
            script => script,
        }
    }

    /// Returns the script that does to a lock that many share what this one does to another.
    fn of_shared(self) -> Self {
        match self {
            Self::Acquire => Self::AcquireShared,
            Self::Confirm => Self::ConfirmShared,
            Self::Extend => Self::ExtendShared,
            Self::Release | Self::Leave => Self::ReleaseShared,
            Self::Restore => Self::RestoreShared,
            Self::Rekey => Self::RekeyShared,
            script => script,
        }
    }

    fn of_one(action: &Action) -> Self {
        match action {
            Action::Acquire { .. } | Action::Peek { .. } => Self::Acquire,
            Action::Confirm { .. } => Self::Confirm,
            Action::Extend { .. } => Self::Extend,
            Action::Release { .. } => Self::Release,
            Action::Leave { .. } => Self::Leave,
            Action::Look { .. } => Self::Look,
            Action::Restore { .. } => Self::Restore,
            Action::Rekey { .. } => Self::Rekey,
            Action::Inspect { .. } => Self::Inspect,
            Action::Withdraw => Self::Withdraw,
            Action::SetnxAcquire { .. } => Self::SetnxAcquire,
            Action::SetnxRelease { .. } => Self::SetnxRelease,
        }
    }
}

/// Reads a reply strictly: a value unknown to our scripts is a failed vote, never a guess.
pub(super) fn reply(question: ScriptId, value: Value) -> Result<Reply, Failure> {
    use ScriptId as Id;
    match (question, value) {
        (_, Value::ServerError(error)) => Err(refusal(error.code(), error.details())),
        (Id::Acquire | Id::AcquireAll | Id::AcquireShared, Value::Int(0)) => Ok(Reply::FREE),
        (Id::Acquire | Id::AcquireAll | Id::AcquireShared, Value::Int(fence)) => fence_of(fence).map(Reply::Granted),
        (Id::Acquire | Id::AcquireAll, Value::Array(items)) => held(&items),
        (Id::AcquireShared, Value::Array(items)) => held_off(&items).map_or_else(|| held(&items), Ok),
        (Id::Confirm | Id::ConfirmAll | Id::ConfirmShared, Value::Int(1)) => Ok(Reply::Confirmed),
        (Id::Confirm | Id::ConfirmAll | Id::ConfirmShared | Id::Withdraw, Value::Int(0)) => Ok(Reply::Refused),
        (question, Value::Int(0)) if question.restores() => Ok(Reply::Refused),
        (question, Value::Int(1)) if question.restores() => Ok(Reply::Restored),
        (question, Value::Int(1)) if question.extends() => Ok(Reply::Extended),
        (Id::Extend | Id::ExtendAll | Id::ExtendShared, Value::Int(2)) => Ok(Reply::Raised),
        (question, Value::Int(ahead @ ..=-2)) if question.extends() || question.restores() => {
            fence_of(ahead.saturating_neg()).map(Reply::Ahead)
        }
        (Id::Release | Id::ReleaseAll | Id::ReleaseShared | Id::Leave, Value::Int(waiting @ 1..)) => {
            Ok(Reply::Deleted { waiting: u32::try_from(waiting - 1).unwrap_or(u32::MAX) })
        }
        (Id::Withdraw, Value::Int(waiting @ 1..)) => {
            Ok(Reply::Withdrawn { waiting: u32::try_from(waiting - 1).unwrap_or(u32::MAX) })
        }
        (Id::SetnxRelease, Value::Int(1)) => Ok(Reply::Deleted { waiting: 0 }),
        (question, Value::Int(0)) if question.finds() => Ok(Reply::Absent),
        (question, Value::Int(-1)) if question.finds() => Ok(Reply::Foreign(None)),
        (question, label @ Value::BulkString(_)) if question.extends() => Ok(Reply::Foreign(label_of(&label))),
        (Id::Look, Value::Array(items)) => slots(&items),
        (Id::Inspect, Value::Array(items)) => seen(&items),
        (Id::SetnxAcquire, Value::Int(expiry)) => {
            u64::try_from(expiry).map(Reply::GrantedUntil).map_err(|_| Failure::UnexpectedReply)
        }
        (Id::SetnxAcquire, Value::Array(items)) => held_until(&items),
        (Id::SetnxRelease, Value::Int(-2)) => Ok(Reply::Late),
        _ => Err(Failure::UnexpectedReply),
    }
}

/// Sorts a script's error. If this user may not do something inside a script, servers say ERR: only the text shows it.
pub(super) fn refusal(code: &str, details: Option<&str>) -> Failure {
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
    of_error(if code == "ERR" && is_right { "NOPERM" } else { code }, Some(details))
}

fn fence_of(number: i64) -> Result<u64, Failure> {
    u64::try_from(number).ok().filter(|fence| FENCES.contains(fence)).ok_or(Failure::UnexpectedReply)
}

pub(super) fn ttl_left(millis: i64) -> Option<Duration> {
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

fn held_off(items: &[Value]) -> Option<Reply> {
    let [Value::Int(left), Value::Int(waiting), Value::Int(hold)] = items else { return None };
    let (waiting, hold) = (u32::try_from(*waiting).ok()?, u64::try_from(*hold).ok()?);
    Some(Reply::HeldOff { ttl_left: ttl_left(*left), waiting, hold })
}

fn held_until(items: &[Value]) -> Result<Reply, Failure> {
    let [Value::Int(left)] = items else { return Err(Failure::UnexpectedReply) };
    Ok(Reply::Held { ours: None, ttl_left: ttl_left(*left), label: None, position: 0, hold: 0 })
}

fn slots(items: &[Value]) -> Result<Reply, Failure> {
    let [free, Value::Int(left), Value::Int(position), Value::Int(ring)] = items else {
        return Err(Failure::UnexpectedReply);
    };
    let flags = text(free).ok_or(Failure::UnexpectedReply)?;
    let free = (0..LOOK_MOST).zip(flags.bytes()).filter(|(_, flag)| *flag == b'1').map(|(place, _)| place).collect();
    let (position, hold) = (u32::try_from(*position).unwrap_or(0), u64::try_from(*ring).unwrap_or(0));
    Ok(Reply::Slots { free, ttl_left: ttl_left(*left), position, hold })
}

fn seen(items: &[Value]) -> Result<Reply, Failure> {
    let [Value::Int(kind), Value::Int(waiting), rest @ ..] = items else { return Err(Failure::UnexpectedReply) };
    let state = match (kind, rest) {
        (0, []) => KeyState::Free,
        (1, [Value::Int(left), fence, label, Value::BulkString(half)]) => {
            let digits = text(fence).and_then(|digits| digits.parse().ok()).ok_or(Failure::UnexpectedReply)?;
            let owner = Fingerprint::parse(half).ok_or(Failure::UnexpectedReply)?;
            KeyState::Ours { owner, label: label_of(label), fence: fence_of(digits)?, ttl_left: ttl_left(*left) }
        }
        (3, [Value::Int(left), fence, Value::Int(readers), Value::Array(labels)]) => {
            let digits = text(fence).and_then(|digits| digits.parse().ok()).ok_or(Failure::UnexpectedReply)?;
            let readers = u32::try_from(*readers).map_err(|_| Failure::UnexpectedReply)?;
            let (labels, fence) = (labels.iter().filter_map(label_of).collect(), fence_of(digits)?);
            KeyState::Shared { readers, labels, fence, ttl_left: ttl_left(*left) }
        }
        (2, [Value::Int(left)]) => KeyState::Foreign { ttl_left: ttl_left(*left) },
        _ => return Err(Failure::UnexpectedReply),
    };
    Ok(Reply::Seen { state, waiting: u32::try_from(*waiting).ok() })
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
