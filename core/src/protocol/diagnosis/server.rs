//! PURE: what the answers of a server mean for locks on it.

use std::collections::HashMap;
use std::time::Duration;

use crate::protocol::diagnosis::{Finding, Level, Refusal};

/// The rights that a request needs, each a command. Those of the second list only count waiters, and those of the third are
/// for shared locks and what is shown of them.
pub(crate) const NEEDED: [&str; 7] = ["eval", "get", "set", "del", "pexpire", "pttl", "time"];
pub(crate) const COUNTING: [&str; 3] = ["incr", "getex", "getdel"];
pub(crate) const SHARING: [&str; 7] = ["type", "zadd", "zrem", "zrange", "zscore", "zremrangebyscore", "zcount"];

/// The oldest version with everything that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// The field of INFO that says whether there is an append-only file.
const AOF: &str = "aof_enabled";

/// Servers without a server clock of their own drift apart by less.
const OFFSET_MOST: Duration = Duration::from_secs(1);

const DAY: Duration = Duration::from_secs(86_400);

/// How long a certificate should be valid yet: time for a person to renew it.
const CERTIFICATE_LEFT: Duration = Duration::from_secs(14 * 86_400);

/// The part of the connections that should be left.
const CLIENTS_LEFT: u64 = 10;

/// The answers of one server.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    /// Whether the connection is encrypted; `None` if it does not leave this machine.
    pub(crate) encrypted: Option<bool>,
    /// The server's certificate; `None` without TLS.
    pub(crate) certificate: Option<Certificate>,
    /// The answer to INFO.
    pub(crate) info: Result<String, Refusal>,
    /// The role by another command, if INFO is refused.
    pub(crate) role: Option<String>,
    pub(crate) resp3: Result<(), Refusal>,
    pub(crate) tracking: Result<(), Refusal>,
    /// `None` if it could not be asked.
    pub(crate) evalsha: Option<Result<(), Refusal>>,
    /// `None` if the server hung up on the commands of scripts.
    pub(crate) rights: Option<Rights>,
    /// How far the server's clock is ahead of this machine's, in microseconds, and how exactly this is known.
    pub(crate) offset: Option<(i64, Duration)>,
    /// When the append-only file is written to the disk: the setting `appendfsync`. `None` if it is not known.
    pub(crate) fsync: Option<String>,
    /// Whether a restart is not to be noticed.
    pub(crate) is_restart_delay_off: bool,
    /// Whether this client follows the slots of the cluster that the server belongs to.
    pub(crate) follows_slots: bool,
    /// Whether sentinels may make a replica the primary.
    pub(crate) has_sentinels: bool,
}

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certificate {
    pub(crate) left: Duration,
    /// From its first to its last second.
    pub(crate) lifetime: Duration,
}

/// The answers to the commands of scripts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    /// The refused commands of [`NEEDED`], [`COUNTING`] and [`SHARING`], each with whether it is unknown, to scripts too.
    pub(crate) missing: Vec<(&'static str, bool)>,
    /// Whether the user may not use the key of the probe.
    pub(crate) is_key_refused: bool,
    /// Whether the user may not use the key where the fence of a lock with that key would be.
    pub(crate) is_fence_refused: bool,
    /// Whether the user may not use the key where its waiters would be counted.
    pub(crate) is_want_refused: bool,
    /// The first refusal by the state of the server, in words: it is out of memory, or short of replicas.
    pub(crate) refusal: Option<String>,
}

impl ServerFacts {
    /// Returns the findings, in the order of the documentation.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let info = self.info.as_deref().map(fields).unwrap_or_default();
        let of_info = [
            version(&info),
            eviction(&info),
            self.persistence(&info),
            self.replicas(&info),
            clients(&info),
            cluster(&info, self.follows_slots),
        ];
        let mut findings = vec![Finding::new("connection", Level::Ok, "connected and logged in")];
        findings.extend(self.encrypted.map(|encrypted| tls(encrypted, self.certificate)));
        findings.push(self.role(&info));
        if is_sentinel(&info) {
            // It is not asked for locks, so what else it lacks does not matter.
            return findings;
        }
        findings.push(optional(
            "resp3",
            "HELLO",
            &self.resp3,
            "the server cannot notify waiters, which poll, and the end of a connection is noticed by the next request only",
        ));
        findings.push(optional(
            "info",
            "INFO",
            &self.info.as_ref().map(drop).map_err(Clone::clone),
            "restarts, replicas and duplicates cannot be seen, and restart_delay has no effect",
        ));
        findings.push(optional("tracking", "CLIENT TRACKING", &self.tracking, "waiters poll"));
        let evalsha = |answer| optional("evalsha", "EVALSHA", answer, "each request contains the text of its script");
        findings.extend(self.evalsha.as_ref().map(evalsha));
        findings.extend(self.rights());
        findings.extend(of_info.into_iter().flatten());
        findings.extend(self.offset.map(clock));
        findings.extend(self.rights.as_ref().and_then(|rights| rights.refusal.as_deref()).map(vote));
        findings
    }

    fn role(&self, info: &Fields<'_>) -> Finding {
        if is_sentinel(info) {
            let message =
                "a sentinel; write the address as redis+sentinel://host:port/name, with the name of its primary";
            return Finding::new("role", Level::Unusable, message);
        }
        match info.get("role").copied().or(self.role.as_deref()) {
            Some("master") => Finding::new("role", Level::Ok, "master"),
            Some("") | None => Finding::new("role", Level::Warning, "not reported: a replica would not be noticed"),
            Some(_) => Finding::new("role", Level::Unusable, "a replica; list its master instead"),
        }
    }

    fn replicas(&self, info: &Fields<'_>) -> Option<Finding> {
        let replicas = number(info, "connected_slaves")?;
        let in_sync = info.values().filter(|value| value.contains(",state=online,")).count() as u64;
        let can_fail_over = self.has_sentinels || self.follows_slots;
        if can_fail_over && in_sync == 0 {
            let loss = if self.follows_slots { "its slots are down with it" } else { "no server can take over" };
            let message = format!("none in sync, so {loss}; add a replica");
            return Some(Finding::new("replicas", Level::Warning, message));
        }
        if replicas == 0 {
            return Some(Finding::new("replicas", Level::Ok, "none"));
        }
        let bound = match number(info, "min_slaves_good_slaves") {
            Some(_) => "min-replicas-to-write bounds how much",
            None => "min-replicas-to-write would bound how much",
        };
        let known = if can_fail_over && in_sync < replicas {
            format!("{in_sync} of {replicas} in sync")
        } else {
            replicas.to_string()
        };
        let message = format!("{known}: a failover forgets locks that were not replicated yet; {bound}");
        Some(Finding::new("replicas", Level::Warning, message))
    }

    fn persistence(&self, info: &Fields<'_>) -> Option<Finding> {
        let has_aof = *info.get(AOF)? == "1";
        let fsync = self.fsync.as_deref();
        if has_aof && fsync == Some("always") {
            return Some(Finding::new("persistence", Level::Ok, "append-only file, appendfsync always"));
        }
        let what = match fsync {
            _ if !has_aof => "no append-only file: a restart forgets locks".to_owned(),
            Some(fsync) => format!("append-only file, appendfsync {fsync}: a power cut forgets the last grants"),
            None => "append-only file, but CONFIG GET appendfsync is not answered: unless it is always, a power cut forgets \
                     the last grants"
                .to_owned(),
        };
        Some(if self.is_restart_delay_off {
            let message =
                format!("{what}, and restart_delay is 0, so a lock can be granted twice; set appendfsync always");
            Finding::new("persistence", Level::Warning, message)
        } else {
            Finding::new("persistence", Level::Ok, format!("{what}, and restart_delay keeps its grants from counting"))
        })
    }

    fn rights(&self) -> Vec<Finding> {
        let Some(rights) = &self.rights else {
            let message = "the connection was closed when the commands of scripts were sent directly, so the rights are \
                           not known";
            return vec![Finding::new("rights", Level::Warning, message)];
        };
        let mut findings = Vec::new();
        for &(command, is_unknown) in &rights.missing {
            let (level, loss) = if COUNTING.contains(&command) {
                (Level::Warning, ": waiters have no position")
            } else if SHARING.contains(&command) {
                (Level::Warning, ": locks cannot be shared")
            } else {
                (Level::Unusable, ", which locks need")
            };
            let message = if is_unknown {
                format!("the server does not know {command}{loss}")
            } else {
                format!("no right to {command}{loss}; grant +{command}")
            };
            findings.push(Finding::new("rights", level, message));
        }
        if rights.is_key_refused {
            let message = "no right to a key that begins with redlock:diagnose:, so the rights to keys are not known; \
                           give the client the key_prefix of its locks";
            findings.push(Finding::new("rights", Level::Warning, message));
        }
        if rights.is_fence_refused {
            let message = "no right to keys that begin with redlock:fence:, which locks need; grant ~redlock:fence:*";
            findings.push(Finding::new("rights", Level::Unusable, message));
        }
        if rights.is_want_refused {
            let message = "no right to keys that begin with redlock:waiters:: waiters have no position; grant \
                           ~redlock:waiters:*";
            findings.push(Finding::new("rights", Level::Warning, message));
        }
        if findings.is_empty() {
            findings.push(Finding::new("rights", Level::Ok, "all that locks need"));
        }
        findings
    }
}

/// Returns whether a server with this INFO has an append-only file.
pub(crate) fn has_aof(info: &str) -> bool {
    fields(info).get(AOF) == Some(&"1")
}

type Fields<'a> = HashMap<&'a str, &'a str>;

fn fields(info: &str) -> Fields<'_> {
    info.lines().filter_map(|line| line.split_once(':')).collect()
}

fn is_sentinel(info: &Fields<'_>) -> bool {
    // The second is that of Valkey.
    ["redis_mode", "server_mode"].iter().any(|field| info.get(field) == Some(&"sentinel"))
}

fn number(info: &Fields<'_>, field: &str) -> Option<u64> {
    info.get(field)?.parse().ok()
}

fn optional(check: &'static str, command: &str, answer: &Result<(), Refusal>, loss: &str) -> Finding {
    match answer {
        Ok(()) => Finding::new(check, Level::Ok, format!("{command} works")),
        Err(code) => Finding::new(check, Level::Warning, format!("{command} is refused ({code}): {loss}")),
    }
}

fn tls(encrypted: bool, certificate: Option<Certificate>) -> Finding {
    if !encrypted {
        let message = "not encrypted: others on the network can read the login and the tokens; use rediss://";
        return Finding::new("tls", Level::Warning, message);
    }
    let message = "encrypted, and the server's certificate was checked";
    let Some(Certificate { left, lifetime }) = certificate else { return Finding::new("tls", Level::Ok, message) };
    let end = if left < 2 * DAY {
        format!("{} h", left.as_secs() / 3_600)
    } else {
        format!("{} days", left.as_secs() / DAY.as_secs())
    };
    // Certificates that are made anew by a program are, well before their last sixth.
    if left < CERTIFICATE_LEFT.min(lifetime / 6) {
        let message = format!("the server's certificate ends in {end}, and then no client can connect; renew it");
        return Finding::new("tls", Level::Warning, message);
    }
    Finding::new("tls", Level::Ok, format!("{message}; it ends in {end}"))
}

fn version(info: &Fields<'_>) -> Option<Finding> {
    let (name, version) = match info.get("valkey_version") {
        Some(version) => ("Valkey", *version),
        None => ("Redis", *info.get("redis_version")?),
    };
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if name == "Redis" && number < OLDEST {
        let message = format!("{name} {version}; locks are tested with Redis 6.2 and Valkey 8, and newer");
        return Some(Finding::new("version", Level::Warning, message));
    }
    Some(Finding::new("version", Level::Ok, format!("{name} {version}")))
}

fn eviction(info: &Fields<'_>) -> Option<Finding> {
    let policy = *info.get("maxmemory_policy")?;
    if policy == "noeviction" {
        return Some(Finding::new("eviction", Level::Ok, policy));
    }
    let message = format!("{policy}: locks may be evicted when memory is short; set maxmemory-policy noeviction");
    Some(Finding::new("eviction", Level::Warning, message))
}

fn clients(info: &Fields<'_>) -> Option<Finding> {
    let most = number(info, "maxclients")?;
    let left = most.saturating_sub(number(info, "connected_clients")?);
    let message = format!("{left} of {most} connections are free");
    if left >= most / CLIENTS_LEFT {
        return Some(Finding::new("clients", Level::Ok, message));
    }
    Some(Finding::new("clients", Level::Warning, format!("{message}; raise maxclients")))
}

fn cluster(info: &Fields<'_>, follows_slots: bool) -> Option<Finding> {
    if *info.get("cluster_enabled")? != "1" {
        return None;
    }
    if follows_slots {
        return Some(Finding::new("cluster", Level::Ok, "a primary of a Redis Cluster, whose slots are followed"));
    }
    let message = "a server of a Redis Cluster: names whose slots are elsewhere cannot be locked; write the address as \
                   redis+cluster://";
    Some(Finding::new("cluster", Level::Unusable, message))
}

fn vote(refusal: &str) -> Finding {
    Finding::new("vote", Level::Unusable, format!("does not count now: {refusal}"))
}

fn clock((micros, exact): (i64, Duration)) -> Finding {
    let offset = Duration::from_micros(micros.unsigned_abs());
    let direction = if micros < 0 { "behind" } else { "ahead of" };
    let message = format!("{offset:.1?} {direction} this machine, within {exact:.1?}");
    if offset <= OFFSET_MOST + exact {
        return Finding::new("clock", Level::Ok, message);
    }
    let advice = "fences of a node that forgot its own follow the clocks; synchronise them";
    Finding::new("clock", Level::Warning, format!("{message}: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n\
                        connected_slaves:0\r\nmaxclients:10000\r\nconnected_clients:1\r\ncluster_enabled:0\r\n";

    fn facts(info: &str) -> ServerFacts {
        ServerFacts {
            encrypted: Some(true),
            certificate: Some(Certificate { left: 30 * DAY, lifetime: 90 * DAY }),
            info: Ok(info.to_owned()),
            role: None,
            resp3: Ok(()),
            tracking: Ok(()),
            evalsha: Some(Ok(())),
            rights: Some(Rights::default()),
            offset: Some((1_000, Duration::from_millis(1))),
            fsync: Some("always".to_owned()),
            is_restart_delay_off: false,
            follows_slots: false,
            has_sentinels: false,
        }
    }

    fn level(facts: &ServerFacts, check: &str) -> Level {
        let levels = facts.findings().into_iter().filter(|finding| finding.check == check).map(|finding| finding.level);
        levels.max().unwrap_or_else(|| panic!("no finding about {check}"))
    }

    #[test]
    fn a_server_as_it_should_be() {
        let findings = facts(INFO).findings();
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
        assert_eq!(findings.len(), 14);
    }

    #[test]
    fn each_field_of_info_counts() {
        for (field, value, check, expected) in [
            ("redis_version", "6.0.16", "version", Level::Warning),
            ("redis_version", "8.4.0", "version", Level::Ok),
            ("role", "slave", "role", Level::Unusable),
            ("cluster_enabled", "0\r\nserver_mode:sentinel", "role", Level::Unusable),
            ("maxmemory_policy", "allkeys-lru", "eviction", Level::Warning),
            ("aof_enabled", "0", "persistence", Level::Ok),
            ("connected_slaves", "2", "replicas", Level::Warning),
            ("connected_clients", "9001", "clients", Level::Warning),
            ("connected_clients", "9000", "clients", Level::Ok),
            ("cluster_enabled", "1", "cluster", Level::Unusable),
        ] {
            let line = INFO.lines().find(|line| line.starts_with(field)).unwrap();
            let changed = facts(&INFO.replace(line, &format!("{field}:{value}")));
            assert_eq!(level(&changed, check), expected, "{field}:{value}");
        }
        let followed =
            ServerFacts { follows_slots: true, ..facts(&INFO.replace("cluster_enabled:0", "cluster_enabled:1")) };
        assert_eq!(level(&followed, "cluster"), Level::Ok);
        let valkey = facts(&format!("valkey_version:8.1.0\r\n{INFO}"));
        assert!(valkey.findings().iter().any(|finding| finding.message == "Valkey 8.1.0"));
    }

    #[test]
    fn without_a_restart_delay_each_write_has_to_be_on_the_disk() {
        let level = |aof: u8, fsync: Option<&str>, is_restart_delay_off: bool| {
            let info = INFO.replace("aof_enabled:1", &format!("aof_enabled:{aof}"));
            let fsync = fsync.map(str::to_owned);
            level(&ServerFacts { fsync, is_restart_delay_off, ..facts(&info) }, "persistence")
        };
        for (aof, fsync) in [(0, None), (1, Some("everysec")), (1, Some("no")), (1, None)] {
            assert_eq!((level(aof, fsync, false), level(aof, fsync, true)), (Level::Ok, Level::Warning), "{fsync:?}");
        }
        assert_eq!(level(1, Some("always"), true), Level::Ok);
    }

    #[test]
    fn a_certificate_is_renewed_before_it_ends() {
        let tls = |left: Duration, lifetime: Duration| {
            let facts = ServerFacts { certificate: Some(Certificate { left, lifetime }), ..facts(INFO) };
            let finding = facts.findings().into_iter().find(|finding| finding.check == "tls").unwrap();
            (finding.level, finding.message)
        };
        let (day, hour) = (DAY, DAY / 24);
        assert!(tls(14 * day, 90 * day).1.ends_with("was checked; it ends in 14 days"));
        for (left, lifetime, level, end) in [
            (14 * day, 90 * day, Level::Ok, "14 days"),
            (13 * day, 90 * day, Level::Warning, "13 days"),
            (47 * hour, 90 * day, Level::Warning, "47 h"),
            (hour / 2, 90 * day, Level::Warning, "0 h"),
            (5 * hour, day, Level::Ok, "5 h"),
            (3 * hour, day, Level::Warning, "3 h"),
        ] {
            let (found, message) = tls(left, lifetime);
            assert!(found == level && message.contains(&format!("ends in {end}")), "{found} {message}");
        }
    }

    #[test]
    fn each_refusal_counts() {
        let refused = || Err("NOPERM".to_owned());
        assert_eq!(level(&ServerFacts { resp3: refused(), ..facts(INFO) }, "resp3"), Level::Warning);
        assert_eq!(level(&ServerFacts { tracking: refused(), ..facts(INFO) }, "tracking"), Level::Warning);
        assert_eq!(level(&ServerFacts { evalsha: Some(refused()), ..facts(INFO) }, "evalsha"), Level::Warning);
        assert_eq!(level(&ServerFacts { encrypted: Some(false), ..facts(INFO) }, "tls"), Level::Warning);
        let silent = || ServerFacts { info: Err("NOPERM".to_owned()), ..facts(INFO) };
        assert_eq!(level(&silent(), "info"), Level::Warning);
        assert_eq!(level(&silent(), "role"), Level::Warning);
        assert_eq!(level(&ServerFacts { role: Some("master".into()), ..silent() }, "role"), Level::Ok);
        assert_eq!(level(&ServerFacts { role: Some("replica".into()), ..silent() }, "role"), Level::Unusable);
        let missing = |command, is_unknown| {
            let rights = Rights { missing: vec![(command, is_unknown)], ..Rights::default() };
            level(&ServerFacts { rights: Some(rights), ..facts(INFO) }, "rights")
        };
        for command in NEEDED {
            assert_eq!((missing(command, false), missing(command, true)), (Level::Unusable, Level::Unusable));
        }
        for command in COUNTING.into_iter().chain(SHARING) {
            assert_eq!((missing(command, false), missing(command, true)), (Level::Warning, Level::Warning));
        }
        let refused = Rights { is_key_refused: true, ..Rights::default() };
        assert_eq!(level(&ServerFacts { rights: Some(refused), ..facts(INFO) }, "rights"), Level::Warning);
        assert_eq!(level(&ServerFacts { rights: None, ..facts(INFO) }, "rights"), Level::Warning);
    }

    #[test]
    fn a_clock_that_is_off() {
        for (micros, exact_ms, expected) in [
            (1_000_000, 0, Level::Ok),
            (1_000_001, 0, Level::Warning),
            (-1_000_001, 0, Level::Warning),
            (-1_400_000, 500, Level::Ok),
            (i64::MIN, 0, Level::Warning),
        ] {
            let offset = Some((micros, Duration::from_millis(exact_ms)));
            assert_eq!(level(&ServerFacts { offset, ..facts(INFO) }, "clock"), expected, "{micros}");
        }
    }

    #[test]
    fn a_group_without_a_replica_in_sync() {
        let replica = |state: &str| {
            let text = INFO.replace("connected_slaves:0", "connected_slaves:1");
            facts(&format!("{text}slave0:ip=::1,port=6380,state={state},offset=1,lag=0\r\n"))
        };
        let message = |facts: ServerFacts| {
            let findings = ServerFacts { has_sentinels: true, ..facts }.findings();
            findings.into_iter().find(|finding| finding.check == "replicas").unwrap().message
        };
        assert!(message(replica("online")).starts_with("1: "));
        assert!(message(replica("wait_bgsave")).starts_with("none in sync"));
        assert!(message(facts(INFO)).starts_with("none in sync, so no server can take over"));
        let two = || {
            let one = replica("online").info.unwrap().replace("connected_slaves:1", "connected_slaves:2");
            facts(&format!("{one}slave1:ip=::1,port=6381,state=wait_bgsave,offset=0,lag=0\r\n"))
        };
        assert!(message(two()).starts_with("1 of 2 in sync: "));
        let shard = |facts| message(ServerFacts { follows_slots: true, ..facts });
        assert!(shard(two()).starts_with("1 of 2 in sync: "));
        assert!(shard(replica("online")).starts_with("1: "));
        assert!(
            message(ServerFacts { follows_slots: true, has_sentinels: false, ..facts(INFO) })
                .starts_with("none in sync")
        );
    }
}
