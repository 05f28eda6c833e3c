//! What an operator is told about servers, as they really are.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::time::{Duration, Instant};

use harness::redis::from_redis_value;
use harness::{FakeSentinel, MASTER, Proxy, SLACK, Sentinels, Server, cluster, eventually, urls};
use redlock::{Diagnosis, Level, Redlock, blocking};

/// The most serious level that a check found, and its message.
fn found<'a>(diagnosis: &'a Diagnosis, check: &str) -> (Level, &'a str) {
    let findings = diagnosis.findings.iter().filter(|finding| finding.check == check);
    let worst = findings.max_by_key(|finding| finding.level);
    worst.map_or_else(
        || panic!("nothing about {check}: {diagnosis:?}"),
        |finding| (finding.level, finding.message.as_str()),
    )
}

fn diagnose(builder: redlock::Builder) -> Vec<Diagnosis> {
    blocking::Redlock::from(builder.build().unwrap()).diagnose().unwrap()
}

fn one(url: &str) -> Diagnosis {
    diagnose(Redlock::builder().nodes(url)).remove(0)
}

/// What a user with these rules is told about a server.
fn one_with_user(rules: &str, prefix: &str) -> Diagnosis {
    let server = Server::start();
    let rules = ["ACL", "SETUSER", "app", "on", "nopass", "resetkeys"].into_iter().chain(rules.split(' '));
    server.command(&rules.collect::<Vec<_>>());
    let url = format!("{}?user=app&pass=any", server.url());
    diagnose(Redlock::builder().nodes(url).key_prefix(prefix)).remove(0)
}

fn keys(server: &Server) -> u64 {
    from_redis_value(server.command(&["DBSIZE"])).unwrap()
}

#[test]
fn servers_as_they_should_be_and_no_key_stays() {
    let servers = cluster(3);
    for diagnosis in diagnose(Redlock::builder().nodes(urls(&servers))) {
        assert_eq!(diagnosis.level(), Level::Ok, "{diagnosis:?}");
        for check in
            ["connection", "role", "version", "resp3", "info", "tracking", "evalsha", "rights", "eviction", "clock"]
        {
            assert_eq!(found(&diagnosis, check).0, Level::Ok, "{check}");
        }
    }
    assert!(servers.iter().all(|server| keys(server) == 0));
}

#[test]
fn nodes_that_cannot_be_asked() {
    let gone = Server::start();
    let url = gone.url();
    drop(gone);
    let diagnosis = one(&url);
    assert_eq!(diagnosis.level(), Level::Unusable);
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:?}");
    let locked = Server::builder().args(["--requirepass", "secret"]).start();
    assert!(found(&one(&locked.url()), "connection").1.contains("password"));
    let frozen = Server::start();
    frozen.freeze();
    let start = Instant::now();
    let limit = Duration::from_millis(300);
    let diagnosis = diagnose(Redlock::builder().nodes(frozen.url()).connect_timeout(limit)).remove(0);
    assert!(found(&diagnosis, "connection").1.contains("no answer"), "{diagnosis:?}");
    assert!(start.elapsed() < 5 * limit + SLACK);
}

#[test]
fn one_server_under_two_addresses() {
    let (server, other) = (Server::start(), Server::start());
    let proxy = Proxy::to(&server);
    let diagnoses = diagnose(Redlock::builder().nodes([server.url(), other.url(), proxy.url()]));
    for (node, other) in [(0, 2), (2, 0)] {
        let expected = format!("the same server as {}; list each server once", diagnoses[other].node);
        assert_eq!(found(&diagnoses[node], "alias"), (Level::Unusable, &*expected));
    }
    assert_eq!(
        found(&diagnoses[2], "vote").1,
        format!("does not count now: is the same server as {}", diagnoses[0].node)
    );
    assert!(diagnoses[1].findings.iter().all(|finding| finding.check != "alias"));
    assert_eq!(keys(&server) + keys(&other), 0);
}

#[test]
fn one_server_with_two_databases() {
    let server = Server::start();
    let diagnoses = diagnose(Redlock::builder().nodes([server.url(), format!("{}?db=1", server.url())]));
    assert!(diagnoses.iter().any(|diagnosis| diagnosis.level() == Level::Unusable), "{diagnoses:?}");
    assert!(found(&diagnoses[1], "vote").1.contains("same server"));
}

#[test]
fn replicas_and_their_master() {
    let (master, replica) = (Server::builder().tcp(true).start(), Server::start());
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually("it is known as a replica", || found(&one(&master.url()), "replicas").0 == Level::Warning);
    assert_eq!(found(&one(&replica.url()), "role").0, Level::Unusable);
}

#[test]
fn each_right_that_is_missing_is_named() {
    let all = "+eval +evalsha +get +set +del +pexpire +pttl +time +incr +getex +getdel +type +zadd +zrem +zrange +zscore \
               +zremrangebyscore +zcount +info +client|tracking +hello";
    let diagnose_as = |rights: &str, prefix: &str| {
        one_with_user(&format!("~lock:* ~redlock:* resetchannels nocommands {rights}"), prefix)
    };
    assert_eq!(found(&diagnose_as(all, "lock:"), "rights").0, Level::Ok);
    let other = diagnose_as(all, "other:");
    assert_eq!(found(&other, "rights").0, Level::Warning, "the rights to keys are not known");
    assert_eq!(found(&other, "evalsha").0, Level::Ok, "not the command is refused");
    let needed = ["+get", "+set", "+del", "+pexpire", "+pttl", "+time"].map(|right| (right, "rights", Level::Unusable));
    let counting = ["+incr", "+getex", "+getdel", "+type", "+zadd", "+zrem", "+zrange", "+zscore", "+zremrangebyscore"];
    let counting = counting.into_iter().chain(["+zcount"]).map(|right| (right, "rights", Level::Warning));
    let others = [("+evalsha", "evalsha"), ("+info", "info"), ("+client|tracking", "tracking")];
    let others = others.map(|(right, check)| (right, check, Level::Warning));
    for (right, check, expected) in needed.into_iter().chain(counting).chain(others) {
        let fewer: Vec<_> = all.split(' ').filter(|each| *each != right).collect();
        let diagnosis = diagnose_as(&fewer.join(" "), "lock:");
        let (level, message) = found(&diagnosis, check);
        assert_eq!(level, expected, "{right}: {message}");
        let command = right.trim_start_matches('+').replace('|', " ");
        assert!(message.to_lowercase().contains(&command), "{right}: {message}");
    }
}

#[test]
fn rights_to_the_keys_beside_a_lock_are_asked_for() {
    for (keys, level, said) in [
        ("~lock:*", Level::Unusable, "redlock:fence:"),
        ("~lock:* ~redlock:waiters:*", Level::Unusable, "redlock:fence:"),
        ("~lock:* ~redlock:fence:*", Level::Warning, "redlock:waiters:"),
        ("~lock:* ~redlock:fence:{lock:* ~redlock:waiters:{lock:*", Level::Ok, "all that locks need"),
    ] {
        let diagnosis = one_with_user(&format!("+@all {keys}"), "lock:");
        let (found, message) = found(&diagnosis, "rights");
        assert!(found == level && message.contains(said), "{keys}: {message}");
    }
}

/// The address of a primary that these sentinels name.
fn named_by(ports: impl IntoIterator<Item = u16>) -> String {
    let places: Vec<_> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+sentinel://{}/{MASTER}", places.join(","))
}

/// What was found about the sentinel with this port.
fn of_sentinel(diagnosis: &Diagnosis, port: u16) -> (Level, &str) {
    let begin = format!("127.0.0.1:{port}: ");
    let finding = diagnosis.findings.iter().find(|finding| finding.message.starts_with(&begin));
    let finding = finding.unwrap_or_else(|| panic!("nothing about {port}: {diagnosis:?}"));
    assert_eq!(finding.check, "sentinel");
    (finding.level, &finding.message[begin.len()..])
}

#[test]
fn sentinels_as_they_should_be() {
    let all = Sentinels::start();
    let diagnosis = one(&all.url());
    let primary = format!("127.0.0.1:{}", all.servers[0].port());
    for sentinel in &all.sentinels {
        let message = format!("names {primary}, epoch 0");
        assert_eq!(of_sentinel(&diagnosis, sentinel.port()), (Level::Ok, &*message));
    }
    let message = format!("{primary}, named by 3 of 3 sentinels");
    assert_eq!(found(&diagnosis, "primary"), (Level::Ok, &*message));
    let (level, message) = found(&diagnosis, "failover");
    assert!(level == Level::Ok && message.contains("up to 6.5s") && message.contains("ttl of 10s"), "{diagnosis:?}");
    let replicas = |begin: &str| {
        let diagnosis = one(&all.url());
        found(&diagnosis, "replicas").1.starts_with(begin)
    };
    eventually("the replica is in sync", || replicas("1: "));
    all.servers[1].kill();
    eventually("none is in sync", || replicas("none in sync"));
}

#[test]
fn sentinels_that_do_not_answer_or_were_cut_off() {
    let servers = [(); 2].map(|()| Server::builder().tcp(true).start());
    let sentinels = [(); 3].map(|()| FakeSentinel::start());
    sentinels[0].tells(servers[0].port(), 3);
    sentinels[1].tells(servers[1].port(), 4);
    let limit = Duration::from_millis(700);
    let url = named_by(sentinels.iter().map(FakeSentinel::port));
    let diagnosed = || diagnose(Redlock::builder().nodes(&url).connect_timeout(limit)).remove(0);
    let mut diagnosis = diagnosed();
    // A connect waits for sentinels for 300 ms, in which these threads may not get a processor.
    eventually("they are heard in time", || {
        found(&diagnosis, "connection").0 == Level::Ok || {
            diagnosis = diagnosed();
            false
        }
    });
    let (level, message) = of_sentinel(&diagnosis, sentinels[0].port());
    let old = format!("names 127.0.0.1:{}, epoch 3, ", servers[0].port());
    assert!(level == Level::Warning && message.starts_with(&old), "{diagnosis:?}");
    assert_eq!(of_sentinel(&diagnosis, sentinels[1].port()).0, Level::Ok);
    assert_eq!(of_sentinel(&diagnosis, sentinels[2].port()), (Level::Warning, "no answer within 700ms"));
    let new = format!("127.0.0.1:{}, named by 1 of 3", servers[1].port());
    assert!(found(&diagnosis, "primary").1.starts_with(&new), "{diagnosis:?}");
    let (level, message) = found(&diagnosis, "replicas");
    assert!(level == Level::Warning && message.contains("none in sync"), "{diagnosis:?}");
}

#[test]
fn sentinels_that_refuse_a_login_or_a_right() {
    let all = Sentinels::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "S3CR3T\n").unwrap();
    let rights = ["-@all", "+auth", "+sentinel|get-master-addr-by-name", "+sentinel|master"];
    for (sentinel, (password, rights)) in
        all.sentinels.iter().zip([(">S3CR3T", &rights[..]), (">another", &rights[..]), (">S3CR3T", &rights[..3])])
    {
        sentinel.command(&[&["ACL", "SETUSER", "lock", "on", password], rights].concat());
    }
    let ports: Vec<_> = all.sentinels.iter().map(Server::port).collect();
    let diagnosis = one(&format!("{}?sentinel_user=lock&sentinel_password_file={}", all.url(), file.path().display()));
    assert_eq!(of_sentinel(&diagnosis, ports[0]).0, Level::Ok);
    let (level, message) = of_sentinel(&diagnosis, ports[1]);
    assert!(level == Level::Warning && message.contains("WRONGPASS"), "{diagnosis:?}");
    let (level, message) = of_sentinel(&diagnosis, ports[2]);
    assert!(level == Level::Warning && message.contains("NOPERM"), "{diagnosis:?}");
    assert!(message.ends_with("grant +sentinel|master"), "{diagnosis:?}");
    assert_eq!(found(&diagnosis, "primary").0, Level::Ok, "two of them name it");
    assert!(!format!("{diagnosis:?}").contains("S3CR3T"));
}
