//! What a server tells of itself, in its answers to INFO and HELLO, and in pairs of names and values. Pure.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::scripts::text;
use crate::node::identity::{Identity, Lacks, Role, ServerInfo};

/// Returns the role in an answer to HELLO, as it is named there; empty if there is none.
pub(super) fn word_of_hello(hello: &Value) -> &str {
    fields_in(hello).remove("role").unwrap_or_default()
}

/// Returns the role in an answer to HELLO.
pub(super) fn role_of_hello(hello: &Value) -> Role {
    role(word_of_hello(hello))
}

fn role(said: &str) -> Role {
    match said {
        "" => Role::Untold,
        "master" => Role::Master,
        _ => Role::Replica,
    }
}

/// Reads pairs of a name and a value, as SENTINEL MASTER and CONFIG GET answer; none if the answer is another one.
pub(super) fn fields_in(answer: &Value) -> HashMap<&str, &str> {
    let pair = |(name, value)| text(name).zip(text(value));
    match answer {
        Value::Array(items) => items.chunks_exact(2).filter_map(|items| pair((&items[0], &items[1]))).collect(),
        Value::Map(pairs) => pairs.iter().filter_map(|(name, value)| pair((name, value))).collect(),
        _ => HashMap::new(),
    }
}

/// As [`fields_in`].
pub(super) fn owned_fields(answer: &Value) -> HashMap<String, String> {
    fields_in(answer).into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the name of the history that a server's data continues; empty where there is none, for which servers tell zeros.
pub(super) fn former_replid(info: &str) -> &str {
    let told = info.lines().find_map(|line| line.strip_prefix("master_replid2:"));
    told.filter(|replid| replid.bytes().any(|digit| digit != b'0')).unwrap_or_default()
}

/// Returns who a server is by its answer to INFO, or to one section of it.
pub(super) fn identity(info: &str) -> Identity {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
    Identity {
        run_id: field("run_id:"),
        replid: field("master_replid:"),
        former_replid: former_replid(info).to_owned(),
        role: role(&field("role:")),
    }
}

pub(super) fn server_info(info: &str) -> ServerInfo {
    let lines: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| lines.get(name).copied().unwrap_or_default();
    let policy = field("maxmemory_policy");
    ServerInfo {
        uptime: Duration::from_secs(field("uptime_in_seconds").parse().unwrap_or(0)),
        evicts: (!matches!(policy, "noeviction" | "")).then(|| policy.to_owned()),
        lacks: Lacks { info: field("run_id").is_empty(), ..Lacks::default() },
        ..ServerInfo::of(identity(info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_a_server_is_as_it_tells() {
        let info = |fields: &str| server_info(&format!("# Replication\r\n{fields}# Server\r\nrun_id:r\r\n")).identity;
        let identity = |former: &str, role| {
            let [run_id, replid, former_replid] = ["r", "a", former].map(str::to_owned);
            Identity { run_id, replid, former_replid, role }
        };
        let (none, one) = ("0".repeat(40), "0a".repeat(20));
        for (role, told) in [("master", Role::Master), ("slave", Role::Replica), ("", Role::Untold)] {
            let fields = |second: &str| format!("role:{role}\r\nmaster_replid:a\r\nmaster_replid2:{second}\r\n");
            assert_eq!(info(&fields(&none)), identity("", told));
            assert_eq!(info(&fields(&one)), identity(&one, told));
        }
        assert_eq!(info("master_replid:a\r\n"), identity("", Role::Untold), "a server that knows no second id");
        let word = |word: &str| Value::BulkString(word.into());
        let items = vec![word("mode"), word("standalone"), word("role"), word("replica")];
        let pairs = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        for hello in [Value::Array(items), Value::Map(pairs)] {
            assert_eq!(role_of_hello(&hello), Role::Replica);
        }
        assert_eq!(role_of_hello(&Value::Map(vec![(word("role"), word("master"))])), Role::Master);
        assert_eq!(role_of_hello(&Value::Nil), Role::Untold);
    }
}
