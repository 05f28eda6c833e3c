//! A probe: what one server can do and may be asked, by commands on a connection of its own.
//!
//! It writes one key that expires soon, and deletes it. What may interrupt it: the caller's limit, after which that key
//! expires; a hang-up, which is an answer from the commands of scripts on, and ends the probe before.

use std::time::Duration;

use redis::Value;

use super::info::{owned_fields, word_of_hello};
use super::pipeline::Answer;
use super::redis::RedisConnection;
use super::refusal::{is_unknown, is_unknown_to_scripts, of_state, refusal};
use super::scripts::text;
use crate::protocol::diagnosis::Refusal;
use crate::protocol::diagnosis::cluster::{ClusterFacts, View};
use crate::protocol::diagnosis::server::{COUNTING, Certificate, NEEDED, Rights, SHARING, ServerFacts, has_aof};
use crate::protocol::name::Name;
use crate::sys::clock::Clock;
use crate::transport::failure::Failure;

/// How long a key of the probe lives if it is not deleted, in milliseconds.
const KEY_TTL: &str = "10000";

/// Probes a server. `key` is free, and belongs to this probe alone.
pub(crate) async fn probe(connection: &RedisConnection, key: &str, clock: &Clock) -> Result<ServerFacts, Failure> {
    let plan = connection.plan;
    let said = if plan.hello { Some(ask(connection, &["HELLO"]).await?) } else { None };
    let info = if plan.info {
        refusal(ask(connection, &["INFO"]).await?).map(|info| text(&info).unwrap_or_default().to_owned())
    } else {
        Err("hang-up".to_owned())
    };
    let resp3 = match &said {
        Some(Value::Map(_)) => Ok(()),
        _ => Err("refused, or hang-up".to_owned()),
    };
    let tracking = match (&connection.reports_to, &resp3) {
        (Some(_), _) => Ok(()),
        (None, Ok(())) => refusal(ask(connection, &["CLIENT", "TRACKING", "ON", "NOLOOP"]).await?).map(drop),
        (None, Err(_)) => Err("needs HELLO".to_owned()),
    };
    // From here on, a proxy may hang up on what it takes from scripts alone.
    let rights = rights(connection, key).await;
    let offset = if rights.is_some() { offset(connection, clock).await } else { None };
    let evalsha = if rights.is_some() { evalsha(connection, key).await } else { None };
    let fsync = if info.as_ref().is_ok_and(|info| has_aof(info)) { fsync(connection).await } else { None };
    Ok(ServerFacts {
        encrypted: None,
        certificate: connection.certificate.map(|validity| {
            let now = clock.wall_micros() / 1_000_000;
            Certificate { left: validity.left(now), lifetime: validity.lifetime() }
        }),
        info,
        role: said.as_ref().map(|said| word_of_hello(said).to_owned()),
        resp3,
        tracking,
        rights,
        offset,
        evalsha,
        fsync,
        is_restart_delay_off: false,
        follows_slots: false,
        has_sentinels: false,
    })
}

/// Asks a server about its cluster.
pub(crate) async fn cluster(connection: &RedisConnection) -> ClusterFacts {
    // Redis 6.2 takes one name or pattern.
    let commands = [vec!["CLUSTER", "INFO"], vec!["CLUSTER", "NODES"], vec!["CONFIG", "GET", "cluster-*"]];
    let mut answers = connection.ask(&commands).await.into_iter();
    let mut next = || match answers.next() {
        Some(Ok(answer)) => refusal(answer),
        Some(Err(_)) | None => Err("hang-up".to_owned()),
    };
    let unreadable = || "not understood".to_owned();
    ClusterFacts {
        info: next().and_then(|info| text(&info).map(str::to_owned).ok_or_else(unreadable)),
        view: next().and_then(|nodes| text(&nodes).and_then(View::parse).ok_or_else(unreadable)),
        settings: next().map(|settings| owned_fields(&settings)),
    }
}

/// Returns the numbers of the keys that exist.
pub(crate) async fn existing(connection: &RedisConnection, keys: &[String]) -> Vec<usize> {
    let commands: Vec<_> = keys.iter().map(|key| vec!["GET", key]).collect();
    let answers = connection.ask(&commands).await;
    let is_text = |answer: &Answer| matches!(answer, Ok(value) if text(value).is_some());
    (0..keys.len()).zip(&answers).filter(|(_, answer)| is_text(answer)).map(|(number, _)| number).collect()
}

/// Writes `key`, which expires soon.
pub(crate) async fn write(connection: &RedisConnection, key: &str) {
    connection.ask(&[vec!["SET", key, "1", "NX", "PX", KEY_TTL]]).await;
}

/// Deletes `key`.
pub(crate) async fn delete(connection: &RedisConnection, key: &str) {
    connection.ask(&[vec!["DEL", key]]).await;
}

async fn ask(connection: &RedisConnection, command: &[&str]) -> Answer {
    connection.ask(&[command.to_vec()]).await.pop().unwrap_or(Err(Failure::Closed))
}

/// Returns the commands that are refused, each with whether scripts do not know it, whether this user may not use `key`
/// and the keys that a lock with this key has beside it, and what the server's state forbids; `None` after a hang-up.
async fn rights(connection: &RedisConnection, key: &str) -> Option<Rights> {
    let command = |name: &'static str| match name {
        "eval" => vec![name, "return 1", "1", key],
        "set" => vec![name, key, "1", "NX", "PX", KEY_TTL],
        "pexpire" => vec![name, key, KEY_TTL],
        "time" => vec![name],
        // A server looks at rights before it looks at the type of a key, but only if the arguments are right.
        "zadd" => vec![name, key, "XX", "1", "1"],
        "zrem" | "zscore" => vec![name, key, "1"],
        "zrange" | "zremrangebyscore" | "zcount" => vec![name, key, "1", "1"],
        _ => vec![name, key],
    };
    // PEXPIRE comes behind those that could make the key without an end.
    let order = ["eval", "get", "set", "incr", "pexpire", "pttl", "time"];
    let order: Vec<_> = order.into_iter().chain(SHARING).chain(["getex", "getdel", "del"]).collect();
    debug_assert!(NEEDED.iter().chain(&COUNTING).all(|name| order.contains(name)));
    let commands: Vec<_> = order.iter().copied().map(command).collect();
    let (mut rights, mut unknown) = (Rights::default(), Vec::new());
    for (name, answer) in order.into_iter().zip(connection.ask(&commands).await) {
        if let Value::ServerError(error) = answer.ok()? {
            let is_key = is_about_key(error.code(), error.details());
            rights.is_key_refused |= is_key;
            rights.refusal = rights.refusal.or_else(|| of_state(error.code()).map(|failure| failure.to_string()));
            if is_unknown(error.code(), error.details()) {
                unknown.push(name);
            } else if error.code() == "NOPERM" && !is_key {
                rights.missing.push((name, false));
            }
        }
    }
    // Scripts may know what a proxy does not.
    let commands: Vec<_> =
        unknown.iter().map(|name| vec!["EVAL", "return redis.pcall(ARGV[1])", "1", key, name]).collect();
    for (name, answer) in unknown.iter().zip(connection.ask(&commands).await) {
        if matches!(answer.ok()?, Value::ServerError(error) if is_unknown_to_scripts(error.code(), error.details())) {
            rights.missing.push((name, true));
        }
    }
    // A script names the keys that it uses, and the server looks at the rights to them.
    let name = Name::parse(key.as_bytes()).ok().filter(|_| !rights.is_key_refused);
    let beside = name.map_or_else(Vec::new, |name| vec![name.fence_key(), name.want_key()]);
    let beside: Vec<_> = beside.iter().map(|key| String::from_utf8_lossy(key)).collect();
    let commands: Vec<_> = beside.iter().map(|key| vec!["EVAL", "return 1", "1", key]).collect();
    let answers = connection.ask(&commands).await.into_iter();
    for (is_refused, answer) in [&mut rights.is_fence_refused, &mut rights.is_want_refused].into_iter().zip(answers) {
        let answer = answer.ok()?;
        *is_refused = matches!(&answer, Value::ServerError(error) if is_about_key(error.code(), error.details()));
    }
    Some(rights)
}

/// Returns how far the server's clock is ahead, in microseconds, and how exactly this is known.
async fn offset(connection: &RedisConnection, clock: &Clock) -> Option<(i64, Duration)> {
    let before = clock.wall_micros();
    let answer = ask(connection, &["TIME"]).await.ok()?;
    let after = clock.wall_micros();
    let Value::Array(parts) = &answer else { return None };
    let number = |part: &Value| text(part).and_then(|digits| digits.parse::<u64>().ok());
    let [seconds, micros] = parts.as_slice() else { return None };
    let server = number(seconds)?.saturating_mul(1_000_000).saturating_add(number(micros)?);
    let half = after.saturating_sub(before) / 2;
    let offset = i128::from(server) - i128::from(before) - i128::from(half);
    let offset = i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX });
    Some((offset, Duration::from_micros(half)))
}

/// Returns whether a user who may send a command may not use its key.
fn is_about_key(code: &str, details: Option<&str>) -> bool {
    code == "NOPERM" && details.is_some_and(|details| details.contains("access") && details.contains("key"))
}

/// Returns whether EVALSHA is refused; `None` if the server's state forbids it now.
async fn evalsha(connection: &RedisConnection, key: &str) -> Option<Result<(), Refusal>> {
    // The hash of `return 1`, which `rights` has just made known.
    let known = ["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", key];
    match ask(connection, &known).await {
        Ok(Value::ServerError(error)) if of_state(error.code()).is_some() => None,
        // The text was refused before, and is not known.
        Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT" => Some(Ok(())),
        Ok(Value::ServerError(error)) if is_about_key(error.code(), error.details()) => Some(Ok(())),
        Ok(answer) => Some(refusal(answer).map(drop)),
        Err(_) => Some(Err("hang-up".to_owned())),
    }
}

/// Returns when the server has its append-only file written to the disk; `None` if this user may not know.
async fn fsync(connection: &RedisConnection) -> Option<String> {
    let answer = ask(connection, &["CONFIG", "GET", "appendfsync"]).await.ok()?;
    owned_fields(&answer).remove("appendfsync")
}
