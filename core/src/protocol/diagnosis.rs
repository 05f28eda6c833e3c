//! PURE: what the answers of a server and of its sentinels mean for locks on it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::protocol::sentinel::{Primary, Told, primary};

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Ok,
    /// Locks work, and something is lost: the message says what.
    Warning,
    /// The node cannot vote, or its vote does not count.
    Unusable,
}

impl Level {
    /// Every level, from the best to the worst.
    pub const ALL: [Self; 3] = [Self::Ok, Self::Warning, Self::Unusable];

    /// Returns the stable text of this level: `ok`, `warning` or `unusable`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Unusable => "unusable",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One finding about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at: `connection`, `tls`, `role`, `version`, `resp3`, `info`, `tracking`, `evalsha`, `rights`,
    /// `eviction`, `persistence`, `replicas`, `clients`, `clock`, `cluster`, `sentinel`, `primary`, `failover`, `alias`
    /// or `vote`.
    pub check: &'static str,
    /// How serious it is.
    pub level: Level,
    /// What was found, and what to do, in one sentence.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(check: &'static str, level: Level, message: impl Into<String>) -> Self {
        Self { check, level, message: message.into() }
    }
}

/// A refusal of a command, by its error code.
pub(crate) type Refusal = String;

/// The rights that a request needs, each a command. Those of the second list only count waiters.
pub(crate) const NEEDED: [&str; 7] = ["eval", "get", "set", "del", "pexpire", "pttl", "time"];
pub(crate) const COUNTING: [&str; 2] = ["incr", "getdel"];

/// The oldest version with everything that the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// Servers without a server clock of their own drift apart by less.
const OFFSET_MOST: Duration = Duration::from_secs(1);

/// The part of the connections that should be left.
const CLIENTS_LEFT: u64 = 10;

/// How long a failover takes after `down-after-milliseconds`, until clients have noticed it.
const FAILOVER_MOST: Duration = Duration::from_secs(5);

/// The answers of one server.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Whether the connection is encrypted; `None` if it does not leave this machine.
    pub(crate) encrypted: Option<bool>,
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
    /// Whether a restart is not to be noticed.
    pub(crate) is_restart_delay_off: bool,
    /// Whether this client follows the slots of the cluster that the server belongs to.
    pub(crate) follows_slots: bool,
    /// Whether sentinels may make a replica the primary.
    pub(crate) has_sentinels: bool,
}

/// The answers to the commands of scripts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    /// The refused commands of [`NEEDED`] and [`COUNTING`], each with whether it is unknown.
    pub(crate) missing: Vec<(&'static str, bool)>,
    /// Whether the user may not use the key of the probe.
    pub(crate) is_key_refused: bool,
}

impl Facts {
    /// Returns the findings, in the order of the documentation.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let info = self.info.as_deref().map(fields).unwrap_or_default();
        let of_info = [
            version(&info),
            eviction(&info),
            persistence(&info, self.is_restart_delay_off),
            replicas(&info, self.has_sentinels),
            clients(&info),
            cluster(&info, self.follows_slots),
        ];
        let mut findings = vec![Finding::new("connection", Level::Ok, "connected and logged in")];
        findings.extend(self.encrypted.map(tls));
        findings.push(self.role(&info));
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
        findings
    }

    fn role(&self, info: &Fields<'_>) -> Finding {
        match info.get("role").copied().or(self.role.as_deref()) {
            Some("master") => Finding::new("role", Level::Ok, "master"),
            Some("") | None => Finding::new("role", Level::Warning, "not reported: a replica would not be noticed"),
            Some(_) => Finding::new("role", Level::Unusable, "a replica; list its master instead"),
        }
    }

    fn rights(&self) -> Vec<Finding> {
        let Some(rights) = &self.rights else {
            let message = "the connection was closed when the commands of scripts were sent directly, so the rights are \
                           not known";
            return vec![Finding::new("rights", Level::Warning, message)];
        };
        let mut findings = Vec::new();
        for &(command, is_unknown) in &rights.missing {
            let (level, message) = if is_unknown {
                (Level::Warning, format!("{command} is unknown outside of scripts; do scripts know it?"))
            } else if COUNTING.contains(&command) {
                (Level::Warning, format!("no right to {command}: waiters have no position; grant +{command}"))
            } else {
                (Level::Unusable, format!("no right to {command}, which locks need; grant +{command}"))
            };
            findings.push(Finding::new("rights", level, message));
        }
        if rights.is_key_refused {
            let message = "no right to a key that begins with redlock:diagnose:, so the rights to keys are not known; \
                           give the client the key_prefix of its locks";
            findings.push(Finding::new("rights", Level::Warning, message));
        }
        if findings.is_empty() {
            findings.push(Finding::new("rights", Level::Ok, "all that locks need"));
        }
        findings
    }
}

type Fields<'a> = HashMap<&'a str, &'a str>;

fn fields(info: &str) -> Fields<'_> {
    info.lines().filter_map(|line| line.split_once(':')).collect()
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

fn tls(encrypted: bool) -> Finding {
    if encrypted {
        return Finding::new("tls", Level::Ok, "encrypted, and the server's certificate was checked");
    }
    let message = "not encrypted: others on the network can read the login and the tokens; use rediss://";
    Finding::new("tls", Level::Warning, message)
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

fn persistence(info: &Fields<'_>, is_restart_delay_off: bool) -> Option<Finding> {
    let has_aof = *info.get("aof_enabled")? == "1";
    Some(match (has_aof, is_restart_delay_off) {
        (true, _) => Finding::new("persistence", Level::Ok, "append-only file"),
        (false, false) => {
            let message = "no append-only file: a restart forgets locks, and restart_delay keeps its grants from \
                           counting";
            Finding::new("persistence", Level::Ok, message)
        }
        (false, true) => {
            let message = "no append-only file and restart_delay is 0: a lock can be granted twice after a restart";
            Finding::new("persistence", Level::Warning, message)
        }
    })
}

fn replicas(info: &Fields<'_>, has_sentinels: bool) -> Option<Finding> {
    let replicas = number(info, "connected_slaves")?;
    if has_sentinels && !info.values().any(|value| value.contains(",state=online,")) {
        let message = "none in sync, so no server can take over; add a replica";
        return Some(Finding::new("replicas", Level::Warning, message));
    }
    if replicas == 0 {
        return Some(Finding::new("replicas", Level::Ok, "none"));
    }
    let bound = match number(info, "min_slaves_good_slaves") {
        Some(_) => "min-replicas-to-write bounds how much",
        None => "min-replicas-to-write would bound how much",
    };
    let message = format!("{replicas}: a failover forgets locks that were not replicated yet; {bound}");
    Some(Finding::new("replicas", Level::Warning, message))
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

/// The fields of the answer to SENTINEL MASTER.
pub(crate) type MasterAnswer = Result<HashMap<String, String>, Refusal>;

/// The answers of one sentinel.
#[derive(Debug)]
pub(crate) struct SentinelFacts {
    /// Where it listens.
    pub(crate) at: String,
    /// What it tells, with its answer to SENTINEL MASTER; the text of the failure if it could not be asked.
    pub(crate) told: Result<(Told, MasterAnswer), String>,
}

/// The answers of the sentinels that a node lists.
#[derive(Debug)]
pub(crate) struct GroupFacts {
    /// The name under which they know the primary.
    pub(crate) master: String,
    /// Those listed.
    pub(crate) sentinels: Vec<SentinelFacts>,
    /// The primary that this process uses.
    pub(crate) in_use: Option<Primary>,
}

impl GroupFacts {
    /// Returns the findings, in the order of the documentation. `ttl` is the client's.
    pub(crate) fn findings(&self, ttl: Duration) -> Vec<Finding> {
        let told = |sentinel: &SentinelFacts| sentinel.told.as_ref().map_or(Told::Silent, |(told, _)| told.clone());
        let told: Vec<_> = self.sentinels.iter().map(told).collect();
        let used = primary(&told, self.in_use.as_ref()).or_else(|| self.in_use.clone());
        let mut findings: Vec<_> =
            self.sentinels.iter().map(|each| each.finding(&self.master, used.as_ref())).collect();
        findings.push(used_primary(used.as_ref(), &told));
        // Without a primary, there is nothing to fail over.
        findings.extend(used.and_then(|_| self.failover(ttl)));
        findings
    }

    /// Returns a field of the answers to SENTINEL MASTER, from all that have it.
    fn numbers<'a>(&'a self, field: &'a str) -> impl Iterator<Item = u64> + 'a {
        let fields = self.sentinels.iter().filter_map(|sentinel| sentinel.told.as_ref().ok()?.1.as_ref().ok());
        fields.filter_map(move |fields| fields.get(field)?.parse().ok())
    }

    /// Judges whether a failover can take place, and whether held locks outlive it.
    fn failover(&self, ttl: Duration) -> Option<Finding> {
        let answers = |sentinel: &&SentinelFacts| matches!(sentinel.told, Ok((Told::Primary { .. }, _)));
        let listed = self.sentinels.len() as u64;
        // A sentinel counts those that it knows, listed or not.
        let all = self.numbers("num-other-sentinels").map(|others| others.saturating_add(1)).max().unwrap_or(listed);
        let quorum = self.numbers("quorum").max().unwrap_or_default();
        let needed = quorum.max(all / 2 + 1);
        let able = self.sentinels.iter().filter(answers).count() as u64 + all.saturating_sub(listed);
        if quorum > all {
            let message =
                format!("does not take place: the quorum is {quorum}, and there are {all} sentinels; lower it");
            return Some(Finding::new("failover", Level::Warning, message));
        }
        if able < needed {
            let message = format!("may not take place: {needed} sentinels have to agree, and {able} can be asked");
            return Some(Finding::new("failover", Level::Warning, message));
        }
        let down_after = self.numbers("down-after-milliseconds").max()?;
        let lasts = Duration::from_millis(down_after).saturating_add(FAILOVER_MOST);
        // A lock is renewed after a third of its ttl, and has two thirds left just before.
        let least = lasts.saturating_mul(3) / 2;
        let message = format!(
            "takes up to {lasts:?} with down-after-milliseconds {down_after}; held locks outlive it with a ttl of \
             {least:?}, and the client has a ttl of {ttl:?}"
        );
        Some(Finding::new("failover", if ttl < least { Level::Warning } else { Level::Ok }, message))
    }
}

impl SentinelFacts {
    fn finding(&self, master: &str, used: Option<&Primary>) -> Finding {
        let (level, message) = match &self.told {
            Ok((Told::Primary { place, epoch }, fields)) => {
                let is_used = used.is_none_or(|used| used.place == *place);
                let flags = fields.as_ref().ok().and_then(|fields| fields.get("flags"));
                let is_down = flags.is_some_and(|flags| flags.contains("s_down"));
                let epoch = epoch.map(|epoch| format!(", epoch {epoch}"));
                let named = format!("names {place}{}", epoch.as_deref().unwrap_or_default());
                match (epoch, fields) {
                    _ if !is_used => {
                        let why = "not the primary in use; it was cut off, or a failover goes on";
                        (Level::Warning, format!("{named}, {why}"))
                    }
                    _ if is_down => {
                        (Level::Warning, format!("{named}, and cannot reach it; check the network and its auth-pass"))
                    }
                    (Some(_), _) => (Level::Ok, named),
                    (None, Ok(_)) => (Level::Warning, format!("{named}, without an epoch")),
                    (None, Err(code)) => {
                        let loss = format!("SENTINEL MASTER is refused ({code}), so its epoch is not known");
                        (Level::Warning, format!("{named}; {loss}; grant +sentinel|master"))
                    }
                }
            }
            Ok(_) => (Level::Warning, format!("monitors no such master: {master}")),
            Err(failure) => (Level::Warning, failure.clone()),
        };
        Finding::new("sentinel", level, format!("{}: {message}", self.at))
    }
}

/// Judges how many sentinels name the primary that is used.
fn used_primary(used: Option<&Primary>, told: &[Told]) -> Finding {
    let Some(used) = used else {
        let message = "not known: a sentinel has to name it with an epoch, or a majority of those listed without one";
        return Finding::new("primary", Level::Unusable, message);
    };
    let names = |told: &&Told| matches!(told, Told::Primary { place, .. } if *place == used.place);
    let (votes, all) = (told.iter().filter(names).count(), told.len());
    let message = format!("{}, named by {votes} of {all} sentinels", used.place);
    if votes > all / 2 {
        return Finding::new("primary", Level::Ok, message);
    }
    let loss = match primary(told, None) {
        Some(_) => "another primary may come unseen",
        None => "a process that starts now finds none",
    };
    Finding::new("primary", Level::Warning, format!("{message}: not a majority, so {loss}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::place::Place;

    const INFO: &str = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n\
                        connected_slaves:0\r\nmaxclients:10000\r\nconnected_clients:1\r\ncluster_enabled:0\r\n";

    fn facts(info: &str) -> Facts {
        Facts {
            encrypted: Some(true),
            info: Ok(info.to_owned()),
            role: None,
            resp3: Ok(()),
            tracking: Ok(()),
            evalsha: Some(Ok(())),
            rights: Some(Rights::default()),
            offset: Some((1_000, Duration::from_millis(1))),
            is_restart_delay_off: false,
            follows_slots: false,
            has_sentinels: false,
        }
    }

    fn level(facts: &Facts, check: &str) -> Level {
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
        let followed = Facts { follows_slots: true, ..facts(&INFO.replace("cluster_enabled:0", "cluster_enabled:1")) };
        assert_eq!(level(&followed, "cluster"), Level::Ok);
        let valkey = facts(&format!("valkey_version:8.1.0\r\n{INFO}"));
        assert!(valkey.findings().iter().any(|finding| finding.message == "Valkey 8.1.0"));
        let unsafe_restart =
            Facts { is_restart_delay_off: true, ..facts(&INFO.replace("aof_enabled:1", "aof_enabled:0")) };
        assert_eq!(level(&unsafe_restart, "persistence"), Level::Warning);
    }

    #[test]
    fn each_refusal_counts() {
        let refused = || Err("NOPERM".to_owned());
        assert_eq!(level(&Facts { resp3: refused(), ..facts(INFO) }, "resp3"), Level::Warning);
        assert_eq!(level(&Facts { tracking: refused(), ..facts(INFO) }, "tracking"), Level::Warning);
        assert_eq!(level(&Facts { evalsha: Some(refused()), ..facts(INFO) }, "evalsha"), Level::Warning);
        assert_eq!(level(&Facts { encrypted: Some(false), ..facts(INFO) }, "tls"), Level::Warning);
        let silent = || Facts { info: Err("NOPERM".to_owned()), ..facts(INFO) };
        assert_eq!(level(&silent(), "info"), Level::Warning);
        assert_eq!(level(&silent(), "role"), Level::Warning);
        assert_eq!(level(&Facts { role: Some("master".into()), ..silent() }, "role"), Level::Ok);
        assert_eq!(level(&Facts { role: Some("replica".into()), ..silent() }, "role"), Level::Unusable);
        let missing = |command, is_unknown| {
            let rights = Rights { missing: vec![(command, is_unknown)], is_key_refused: false };
            level(&Facts { rights: Some(rights), ..facts(INFO) }, "rights")
        };
        for command in NEEDED {
            assert_eq!((missing(command, false), missing(command, true)), (Level::Unusable, Level::Warning));
        }
        for command in COUNTING {
            assert_eq!((missing(command, false), missing(command, true)), (Level::Warning, Level::Warning));
        }
        let refused = Rights { missing: Vec::new(), is_key_refused: true };
        assert_eq!(level(&Facts { rights: Some(refused), ..facts(INFO) }, "rights"), Level::Warning);
        assert_eq!(level(&Facts { rights: None, ..facts(INFO) }, "rights"), Level::Warning);
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
            assert_eq!(level(&Facts { offset, ..facts(INFO) }, "clock"), expected, "{micros}");
        }
    }

    #[test]
    fn a_group_without_a_replica_in_sync() {
        let replica = |state: &str| {
            let text = INFO.replace("connected_slaves:0", "connected_slaves:1");
            facts(&format!("{text}slave0:ip=::1,port=6380,state={state},offset=1,lag=0\r\n"))
        };
        let message = |facts: Facts| {
            let findings = Facts { has_sentinels: true, ..facts }.findings();
            findings.into_iter().find(|finding| finding.check == "replicas").unwrap().message
        };
        assert!(message(replica("online")).starts_with("1: "));
        assert!(message(replica("wait_bgsave")).starts_with("none in sync"));
        assert!(message(facts(INFO)).starts_with("none in sync"));
    }

    const TTL: Duration = Duration::from_secs(10);

    fn place(host: &str) -> Place {
        Place { host: host.to_owned(), port: 6379 }
    }

    /// A sentinel that names `host`, with the fields of its answer to SENTINEL MASTER.
    fn names(host: &str, epoch: u64, fields: &[(&str, &str)]) -> SentinelFacts {
        let told = Told::Primary { place: place(host), epoch: Some(epoch) };
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        SentinelFacts { at: "s:26379".to_owned(), told: Ok((told, Ok(fields.collect()))) }
    }

    fn refuses_epoch(host: &str) -> SentinelFacts {
        let told = Told::Primary { place: place(host), epoch: None };
        SentinelFacts { at: "s:26379".to_owned(), told: Ok((told, Err("NOPERM".to_owned()))) }
    }

    fn fails() -> SentinelFacts {
        SentinelFacts { at: "s:26379".to_owned(), told: Err("closed the connection".to_owned()) }
    }

    fn group<const N: usize>(sentinels: [SentinelFacts; N], in_use: Option<&str>) -> GroupFacts {
        let in_use = in_use.map(|host| Primary { place: place(host), epoch: None });
        GroupFacts { master: "mymaster".to_owned(), sentinels: sentinels.into(), in_use }
    }

    /// The findings of a check, each with its level's text.
    fn said(group: &GroupFacts, check: &str) -> Vec<String> {
        let findings = group.findings(TTL).into_iter().filter(|finding| finding.check == check);
        findings.map(|finding| format!("{}: {}", finding.level, finding.message)).collect()
    }

    #[test]
    fn each_sentinel_counts() {
        let unmonitored = SentinelFacts { at: "s:26379".to_owned(), told: Ok((Told::Unmonitored, Ok(HashMap::new()))) };
        let without = SentinelFacts {
            told: Ok((Told::Primary { place: place("a"), epoch: None }, Ok(HashMap::new()))),
            ..fails()
        };
        let sentinels = [
            names("a", 2, &[("flags", "master")]),
            names("a", 2, &[("flags", "s_down,o_down,master")]),
            names("b", 1, &[]),
            without,
            refuses_epoch("a"),
            unmonitored,
            fails(),
        ];
        let told = said(&group(sentinels, None), "sentinel");
        let expected = [
            "ok: s:26379: names a:6379, epoch 2",
            "warning: s:26379: names a:6379, epoch 2, and cannot reach it; check the network and its auth-pass",
            "warning: s:26379: names b:6379, epoch 1, not the primary in use; it was cut off, or a failover goes on",
            "warning: s:26379: names a:6379, without an epoch",
            "warning: s:26379: names a:6379; SENTINEL MASTER is refused (NOPERM), so its epoch is not known; grant \
             +sentinel|master",
            "warning: s:26379: monitors no such master: mymaster",
            "warning: s:26379: closed the connection",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_primary_and_how_many_name_it() {
        let a = || names("a", 0, &[]);
        let primary = |group: GroupFacts| said(&group, "primary").remove(0);
        assert_eq!(primary(group([a(), a(), fails()], None)), "ok: a:6379, named by 2 of 3 sentinels");
        let few = "warning: a:6379, named by 1 of 2 sentinels: not a majority, so another primary may come unseen";
        assert_eq!(primary(group([a(), fails()], None)), few);
        let none = primary(group([refuses_epoch("a"), fails(), fails()], Some("a")));
        assert!(none.starts_with("warning: a:6379, named by 1 of 3 sentinels: "), "{none}");
        assert!(none.ends_with("a process that starts now finds none"), "{none}");
        assert!(primary(group([fails()], Some("a"))).starts_with("warning: a:6379, named by 0 of 1"));
        for undecided in [group([fails()], None), group([refuses_epoch("a"), fails()], None)] {
            assert!(said(&undecided, "failover").is_empty());
            assert!(primary(undecided).starts_with("unusable: not known: "));
        }
    }

    #[test]
    fn whether_a_failover_takes_place_and_how_long_it_takes() {
        let tells = |quorum: &str, others: &str, down_after: &str| {
            let fields = [("quorum", quorum), ("num-other-sentinels", others), ("down-after-milliseconds", down_after)];
            names("a", 0, &fields)
        };
        let failover = |group: GroupFacts| said(&group, "failover").pop().unwrap_or_default();
        // Two thirds of 10 s are 6.6 s.
        assert!(failover(group([tells("1", "0", "1666")], None)).starts_with("ok: takes up to 6.666s"));
        let long = failover(group([tells("1", "0", "30000")], None));
        assert!(long.starts_with("warning: takes up to 35s with down-after-milliseconds 30000;"), "{long}");
        assert!(long.ends_with("with a ttl of 52.5s, and the client has a ttl of 10s"), "{long}");
        let endless = format!("{}", u64::MAX);
        assert!(failover(group([tells("1", "0", &endless)], None)).starts_with("warning: takes up to"));
        let two = || [tells("2", "2", "1000"), tells("2", "2", "1000"), fails()];
        assert!(failover(group(two(), None)).starts_with("ok: "));
        let one = failover(group([tells("2", "2", "1000"), fails(), fails()], None));
        assert_eq!(one, "warning: may not take place: 2 sentinels have to agree, and 1 can be asked");
        // One is listed, and there are two more, which may answer.
        assert!(failover(group([tells("3", "2", "1000")], None)).starts_with("ok: "));
        let never = failover(group([tells("3", "1", "1000"), tells("2", "1", "1000")], None));
        assert_eq!(never, "warning: does not take place: the quorum is 3, and there are 2 sentinels; lower it");
        // Without the right to SENTINEL MASTER, only their number is known.
        assert_eq!(failover(group([refuses_epoch("a")], None)), "");
        assert!(failover(group([refuses_epoch("a"), fails()], Some("a"))).starts_with("warning: may not take place"));
    }
}
