//! The scripts as commands of the `redis` crate, and its values as their replies. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script, ToRedisArgs, Value};

use super::refusal::of_error;
use crate::node::way::Eval;
use crate::protocol::request::{self, Action, FENCES, KeyState, Proof, Reply, Request, Wants};
use crate::protocol::shape::LOOK_MOST;
use crate::protocol::token::{Fingerprint, Token};
use crate::transport::failure::Failure;

/// The values that `acquire.lua` knows, so that they are not sent.
const USUAL_TTL: Duration = Duration::from_secs(10);
const USUAL_FENCE_TTL: Duration = Duration::from_secs(3_600);
const USUAL_SLACK: Duration = Duration::from_secs(60);

/// A script's text and its hash.
type Text = (&'static str, String);

/// Makes the scripts: for each its id, its name, which is that of its file, and the files that stand before that.
macro_rules! scripts {
    ($($id:ident = $name:literal $(behind $before:literal)*,)+) => {
        /// The script of a request and its reply.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(super) enum ScriptId {
            $($id,)+
        }

        impl ScriptId {
            const NAMES: &[&str] = &[$($name),+];
            pub(super) const COUNT: usize = Self::NAMES.len();
            pub(super) const ALL: [Self; Self::COUNT] = [$(Self::$id),+];
        }

        static SCRIPTS: LazyLock<[Text; ScriptId::COUNT]> = LazyLock::new(|| {
            [$(concat!(
                $(include_str!(concat!("../protocol/lua/", $before, ".lua")),)*
                include_str!(concat!("../protocol/lua/", $name, ".lua"))
            )),+].map(|text| (text, Script::new(text).get_hash().to_owned()))
        });
    };
}

scripts! {
    Acquire = "acquire",
    Confirm = "confirm",
    Extend = "extend",
    Release = "release",
    Restore = "restore",
    Rekey = "rekey",
    Inspect = "inspect",
    SetnxAcquire = "setnx_acquire",
    SetnxRelease = "setnx_release",
    Leave = "leave",
    Look = "look",
    AcquireAll = "acquire_all",
    ConfirmAll = "confirm_all",
    ExtendAll = "extend_all",
    ReleaseAll = "release_all",
    RestoreAll = "restore_all",
    RekeyAll = "rekey_all",
    AcquireShared = "acquire_shared" behind "period",
    ConfirmShared = "confirm_shared" behind "period",
    ExtendShared = "extend_shared" behind "period",
    ReleaseShared = "release_shared" behind "period",
    RestoreShared = "restore_shared" behind "period",
    RekeyShared = "rekey_shared" behind "period",
    Withdraw = "withdraw" behind "unshared" behind "period",
}

/// Begins a command up to its keys, with room for the rest, so that it does not grow stepwise.
fn begin<'a>(question: ScriptId, by: Eval, keys: impl Iterator<Item = &'a [u8]> + Clone) -> Cmd {
    let (text, hash) = &SCRIPTS[question as usize];
    let (name, script) = match by {
        Eval::Sha => ("EVALSHA", hash.as_str()),
        Eval::Text => ("EVAL", *text),
    };
    let most_arguments = 9;
    let (count, sizes) = keys.clone().fold((0, 0), |(count, sizes), key| (count + 1, sizes + key.len()));
    let mut command = Cmd::with_capacity(3 + count + most_arguments, script.len() + sizes + 128);
    command.arg(name).arg(script).arg(count);
    for key in keys {
        command.arg(key);
    }
    command
}

/// Begins the command for a request with its keys: the locks, the fences, and the waiters. Of several names, which keys are
/// of which shows in their order.
fn begin_with_keys(request: &Request, by: Eval, hints: bool, bare: bool) -> Cmd {
    let (question, keys) = (ScriptId::of(request), &request.keys);
    let are_several = keys.are_several();
    if let Action::Look { slots, .. } = &request.action {
        let slots = slots.iter().map(|keys| &*keys.lock);
        let rest = [Some(&*keys.want), keys.bell()].into_iter().flatten().filter(|_| hints);
        return begin(question, by, slots.chain(rest));
    }
    let (fences, wants) = match &request.action {
        Action::Acquire { .. } | Action::Peek { .. } => (true, hints),
        Action::Confirm { .. } | Action::Restore { .. } | Action::Rekey { .. } => (true, false),
        Action::Extend { .. } => (are_several || !bare, false),
        Action::Release { .. } | Action::Leave { .. } | Action::Read | Action::Evict { .. } => (false, hints),
        // A look that does not come from a waiter counts nobody.
        Action::Inspect { .. } => (are_several, hints && !are_several),
        Action::Withdraw => (false, true),
        Action::Look { .. } | Action::SetnxAcquire { .. } | Action::SetnxRelease { .. } => (false, false),
    };
    let locks = keys.each().map(|keys| &*keys.lock);
    let fences = keys.each().filter(move |_| fences).map(|keys| &*keys.fence);
    let wants = keys.each().filter(move |_| wants).map(|keys| &*keys.want);
    let bell = keys.bell().filter(|_| hints && matches!(request.action, Action::Leave { .. }));
    begin(question, by, locks.chain(fences).chain(wants).chain(bell))
}

/// Builds the command for a request, with the waiters key if `hints`, or with as few keys as it can do with if `bare`. An
/// acquire looks at the lock first if its reads are `watched`. Every key stands in KEYS and no key is built from strings on the server.
pub(super) fn command(request: &Request, by: Eval, hints: bool, watched: bool, bare: bool) -> Cmd {
    let (keys, token) = (&request.keys, &request.token);
    let (are_several, are_shared) = (keys.are_several(), keys.are_shared());
    let mut command = begin_with_keys(request, by, hints && (are_several || !bare), bare);
    let locks = are_several.then(|| keys.each().len());
    let member = |token: &Token| are_shared.then(|| keys.member(token));
    // What stands for the owner: the token, or the member.
    let own = member(token);
    let owner = own.as_deref().unwrap_or(token.as_bytes());
    match &request.action {
        Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants } if are_several || are_shared => {
            let proposal = if slack.is_zero() { 0 } else { *proposal };
            command.arg(owner).arg(proposal).arg(micros(*slack)).arg(millis(*ttl)).arg(millis(*fence_ttl));
            command.arg((!are_shared).then_some(&**label)).arg(locks);
            add_waiter(&mut command, *wants, are_shared);
        }
        Action::Acquire { .. } => add_acquire(&mut command, request, watched),
        // Those that take nothing: a look at all of the locks.
        Action::Peek { wants } if are_several || are_shared => {
            command.arg(owner).arg(0).arg(0).arg(0).arg(0).arg((!are_shared).then_some("")).arg(locks);
            add_waiter(&mut command, Some(*wants), are_shared);
        }
        Action::Inspect { .. } if are_several => {
            command.arg(owner).arg(0).arg(0).arg(0).arg(0).arg("").arg(locks);
            add_whole_position(&mut command, Wants::default());
        }
        Action::Peek { wants } => {
            let mut arguments = Sparse { command: command.arg(owner).arg("").arg(0).arg(""), left_out: 0 };
            add_position(&mut arguments, Some(*wants));
        }
        Action::Confirm { granted, fence, fence_ttl, label } => {
            if are_shared {
                command.arg(owner).arg(*granted);
            } else {
                command.arg(token.value(*granted, label));
            }
            command.arg(*fence).arg(millis(*fence_ttl)).arg(locks);
        }
        Action::Extend { ttl, fence, fence_ttl, floor } => {
            command.arg(owner).arg(millis(*ttl)).arg(*fence).arg(millis(*fence_ttl)).arg(locks).arg(floor);
        }
        Action::Leave { rest, .. } if !are_several && !are_shared => {
            command.arg(owner).arg(millis(*rest));
        }
        Action::Release { .. } | Action::Leave { .. } => {
            command.arg(owner).arg(locks);
        }
        Action::Look { slots, wants, anyway } => {
            command.arg(slots.len()).arg(wants.map_or(0, |_| 1 + u8::from(*anyway)));
            add_whole_position(&mut command, wants.unwrap_or_default());
        }
        Action::Restore { ttl, fence, level, fence_ttl, label } => {
            command.arg(owner).arg(millis(*ttl)).arg(*level).arg(millis(*fence_ttl));
            command.arg((!are_shared).then_some(&**label)).arg(locks).arg(*fence);
        }
        Action::Rekey { former, ttl, fence, fence_ttl, .. } => {
            command.arg(owner).arg(millis(*ttl)).arg(*fence).arg(millis(*fence_ttl));
            command.arg(member(former).as_deref().unwrap_or(former.as_bytes())).arg(locks);
        }
        Action::Inspect { .. } | Action::Withdraw => {}
        Action::Read => {
            command.arg(1);
        }
        Action::Evict { value } => {
            command.arg(&**value);
        }
        Action::SetnxAcquire { ttl } => {
            command.arg(millis(*ttl));
        }
        Action::SetnxRelease { expiry } => {
            command.arg(*expiry);
        }
    }
    command
}

/// Adds the arguments of an acquire of one lock, as few as it can do with.
fn add_acquire(command: &mut Cmd, request: &Request, watched: bool) {
    let Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants } = &request.action else { return };
    let wants = wants.unwrap_or_default();
    let is_proposed = !slack.is_zero();
    let is_in_line = watched || wants.position > 0;
    let label = if is_proposed {
        // In one argument with the token, it costs the server less.
        command.arg(request.token.value(*proposal, label));
        ""
    } else {
        command.arg(request.token.as_bytes());
        &**label
    };
    let mut arguments = Sparse { command, left_out: 0 };
    arguments.add((!label.is_empty()).then_some(label));
    arguments.add((*ttl != USUAL_TTL).then(|| millis(*ttl)));
    arguments.add((*fence_ttl != USUAL_FENCE_TTL).then(|| millis(*fence_ttl)));
    add_position(&mut arguments, is_in_line.then_some(wants));
    arguments.add((is_proposed && *slack != USUAL_SLACK).then(|| micros(*slack)));
}

/// Adds a waiter's position, and whether it shares the lock anyway if many do.
fn add_waiter(command: &mut Cmd, wants: Option<Wants>, are_shared: bool) {
    match wants {
        None if are_shared => _ = command.arg("").arg(0).arg(0),
        wants => add_whole_position(command, wants.unwrap_or_default()),
    }
    command.arg(are_shared.then(|| u8::from(wants.is_some_and(|wants| wants.anyway))));
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

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The scripts that do the same to one lock, to several locks, and to a lock that many share.
const ALIKE: [[ScriptId; 3]; 6] = [
    [ScriptId::Acquire, ScriptId::AcquireAll, ScriptId::AcquireShared],
    [ScriptId::Confirm, ScriptId::ConfirmAll, ScriptId::ConfirmShared],
    [ScriptId::Extend, ScriptId::ExtendAll, ScriptId::ExtendShared],
    [ScriptId::Release, ScriptId::ReleaseAll, ScriptId::ReleaseShared],
    [ScriptId::Restore, ScriptId::RestoreAll, ScriptId::RestoreShared],
    [ScriptId::Rekey, ScriptId::RekeyAll, ScriptId::RekeyShared],
];

impl ScriptId {
    pub(super) const fn as_str(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub(super) fn of(request: &Request) -> Self {
        let keys = &request.keys;
        let script = Self::of_one(&request.action);
        match script {
            _ if !keys.are_several() && !keys.are_shared() => script,
            Self::Inspect if keys.are_several() => Self::AcquireAll,
            Self::Leave => Self::Release.alike(1 + usize::from(!keys.are_several())),
            script => script.alike(1 + usize::from(!keys.are_several())),
        }
    }

    /// Returns the script in this column of [`ALIKE`]; the same if it is the only one of its kind.
    fn alike(self, column: usize) -> Self {
        ALIKE.iter().find(|row| row.contains(&self)).map_or(self, |row| row[column])
    }

    fn of_one(action: &Action) -> Self {
        match action {
            Action::Acquire { .. } | Action::Peek { .. } => Self::Acquire,
            Action::Confirm { .. } => Self::Confirm,
            Action::Extend { .. } => Self::Extend,
            Action::Release { .. } | Action::Evict { .. } => Self::Release,
            Action::Leave { .. } => Self::Leave,
            Action::Look { .. } => Self::Look,
            Action::Restore { .. } => Self::Restore,
            Action::Rekey { .. } => Self::Rekey,
            Action::Inspect { .. } | Action::Read => Self::Inspect,
            Action::Withdraw => Self::Withdraw,
            Action::SetnxAcquire { .. } => Self::SetnxAcquire,
            Action::SetnxRelease { .. } => Self::SetnxRelease,
        }
    }
}

/// Reads a reply strictly: a value unknown to our scripts is a failed vote, never a guess.
pub(super) fn reply(question: ScriptId, value: Value) -> Result<Reply, Failure> {
    use ScriptId as Id;
    let count = |more: i64| u32::try_from(more - 1).unwrap_or(u32::MAX);
    match (question.alike(0), value) {
        (_, Value::ServerError(error)) => Err(refusal(error.code(), error.details())),
        (Id::Acquire, Value::Int(0)) => Ok(Reply::FREE),
        (Id::Acquire, Value::Int(fence)) => fence_of(fence).map(Reply::Granted),
        (Id::Acquire, Value::Array(items)) if question == Id::AcquireShared => {
            held_off(&items).map_or_else(|| held(&items), Ok)
        }
        (Id::Acquire, Value::Array(items)) => held(&items),
        (Id::Confirm, Value::Int(1)) => Ok(Reply::Confirmed),
        (Id::Confirm | Id::Restore | Id::Withdraw, Value::Int(0)) => Ok(Reply::Refused),
        (Id::Restore, Value::Int(1)) => Ok(Reply::Restored),
        (Id::Extend | Id::Rekey, Value::Int(1)) => Ok(Reply::Extended),
        (Id::Extend, Value::Int(2)) => Ok(Reply::Raised),
        (Id::Rekey, Value::Int(2)) => Ok(Reply::Already),
        (Id::Extend | Id::Rekey | Id::Restore, Value::Int(ahead @ ..=-2)) => {
            fence_of(ahead.saturating_neg()).map(Reply::Ahead)
        }
        (Id::Extend | Id::Rekey, label @ Value::BulkString(_)) => Ok(Reply::Foreign(label_of(&label))),
        (Id::SetnxRelease, Value::Int(1)) => Ok(Reply::Deleted { waiting: 0 }),
        (Id::Release | Id::Leave, Value::Int(more @ 1..)) => Ok(Reply::Deleted { waiting: count(more) }),
        (Id::Withdraw, Value::Int(more @ 1..)) => Ok(Reply::Withdrawn { waiting: count(more) }),
        (Id::Extend | Id::Rekey | Id::Release | Id::Leave | Id::SetnxRelease, Value::Int(0)) => Ok(Reply::Absent),
        (Id::Extend | Id::Rekey | Id::Release | Id::Leave | Id::SetnxRelease, Value::Int(-1)) => {
            Ok(Reply::Foreign(None))
        }
        (Id::SetnxRelease, Value::Int(-2)) => Ok(Reply::Late),
        (Id::Look, Value::Array(items)) => slots(&items),
        (Id::Inspect, Value::Array(items)) => seen(&items),
        (Id::SetnxAcquire, Value::Int(expiry)) => {
            u64::try_from(expiry).map(Reply::GrantedUntil).map_err(|_| Failure::UnexpectedReply)
        }
        (Id::SetnxAcquire, Value::Array(items)) => held_until(&items),
        _ => Err(Failure::UnexpectedReply),
    }
}

/// Sorts a script's error. For some, servers say ERR inside a script: only the text shows what they say outside.
pub(super) fn refusal(code: &str, details: Option<&str>) -> Failure {
    const INSIDE: [(&str, &str); 3] = [
        // Redis 7.2, Valkey and later; Redis 7.0 and before.
        ("ACL failure in script", "NOPERM"),
        ("The user executing the script can't", "NOPERM"),
        ("while the cluster is down", "CLUSTERDOWN"),
    ];
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
    let meant = INSIDE.iter().find(|(text, _)| code == "ERR" && details.contains(text));
    of_error(meant.map_or(code, |(_, outside)| *outside), Some(details))
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
        (1, [Value::Int(left), fence, label, Value::BulkString(half), ..]) => {
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
        (2, [Value::Int(left), ..]) => KeyState::Foreign { ttl_left: ttl_left(*left) },
        _ => return Err(Failure::UnexpectedReply),
    };
    let proof = match (kind, rest) {
        (1, [_, _, _, _, Value::BulkString(value)]) | (2, [_, Value::BulkString(value)]) => Some(Proof::of(value)),
        _ => None,
    };
    Ok(Reply::Seen { state, waiting: u32::try_from(*waiting).ok(), proof: proof.map(Box::new) })
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
            (
                "ERR",
                line("Script attempted to execute a write command while the cluster is down"),
                refused("CLUSTERDOWN"),
            ),
            ("ERR", line("The user executing the script can't run this command or subcommand"), forbidden),
        ];
        for (code, details, failure) in cases {
            assert_eq!(refusal(code, Some(&details)), failure, "{code} {details}");
        }
        assert_eq!(refusal("BUSY", None), refused("BUSY"));
    }
}
