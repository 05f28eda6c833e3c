//! What an operator is told about servers, as they really are.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::time::{Duration, Instant};

use harness::redis::from_redis_value;
use harness::{Proxy, SLACK, Server, cluster, eventually};
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

fn keys(server: &Server) -> u64 {
    from_redis_value(server.command(&["DBSIZE"])).unwrap()
}

#[test]
fn servers_as_they_should_be_and_no_key_stays() {
    let servers = cluster(3);
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    for diagnosis in diagnose(Redlock::builder().nodes(urls)) {
        assert_eq!(diagnosis.level(), Level::Ok, "{diagnosis:?}");
        for check in
            ["connection", "role", "version", "resp3", "info", "tracking", "evalsha", "rights", "eviction", "clock"]
        {
            assert_eq!(found(&diagnosis, check).0, Level::Ok, "{check}");
        }
    }
    assert!(servers.iter().all(|server| keys(server) == 0));
}

#[tokio::test]
async fn in_async_programs_too() {
    let servers = cluster(2);
    let redlock = Redlock::new([servers[0].url(), "memory://one".to_owned(), servers[1].url()]).unwrap();
    let diagnoses = redlock.diagnose().await.unwrap();
    assert!(diagnoses.iter().all(|diagnosis| diagnosis.level() == Level::Ok), "{diagnoses:?}");
    assert!(found(&diagnoses[1], "connection").1.contains("in this process"));
    redlock.close();
    assert_eq!(redlock.diagnose().await.unwrap_err().code(), "invalid_argument");
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
    assert_eq!(found(&diagnoses[0], "alias"), (Level::Unusable, "the same server as node 3; list each server once"));
    assert_eq!(found(&diagnoses[2], "alias"), (Level::Unusable, "the same server as node 1; list each server once"));
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
fn settings_that_can_lose_locks() {
    let server = Server::builder().args(["--maxmemory-policy", "allkeys-lru", "--maxclients", "3"]).start();
    let diagnosis = diagnose(Redlock::builder().nodes(server.url()).restart_delay(Duration::ZERO)).remove(0);
    assert_eq!(found(&diagnosis, "eviction").0, Level::Warning);
    assert_eq!(found(&diagnosis, "persistence").0, Level::Warning);
    let server = Server::builder().persist(true).start();
    let diagnosis = diagnose(Redlock::builder().nodes(server.url()).restart_delay(Duration::ZERO)).remove(0);
    assert_eq!(found(&diagnosis, "persistence").0, Level::Ok);
}

#[test]
fn each_right_that_is_missing_is_named() {
    let all = "+eval +evalsha +get +set +del +pexpire +pttl +time +incr +getdel +info +client|tracking +hello";
    let diagnose_as = |rights: &str, prefix: &str| {
        let server = Server::start();
        let rules = format!("on nopass resetkeys ~lock:* ~redlock:* resetchannels nocommands {rights}");
        let mut command = vec!["ACL", "SETUSER", "app"];
        command.extend(rules.split(' '));
        server.command(&command);
        let url = format!("{}?user=app&pass=any", server.url());
        diagnose(Redlock::builder().nodes(url).key_prefix(prefix)).remove(0)
    };
    assert_eq!(found(&diagnose_as(all, "lock:"), "rights").0, Level::Ok);
    assert_eq!(found(&diagnose_as(all, "other:"), "rights").0, Level::Warning, "the rights to keys are not known");
    for (right, check, expected) in [
        ("+evalsha", "evalsha", Level::Warning),
        ("+get", "rights", Level::Unusable),
        ("+set", "rights", Level::Unusable),
        ("+del", "rights", Level::Unusable),
        ("+pexpire", "rights", Level::Unusable),
        ("+pttl", "rights", Level::Unusable),
        ("+time", "rights", Level::Unusable),
        ("+incr", "rights", Level::Warning),
        ("+getdel", "rights", Level::Warning),
        ("+info", "info", Level::Warning),
        ("+client|tracking", "tracking", Level::Warning),
    ] {
        let fewer: Vec<_> = all.split(' ').filter(|each| *each != right).collect();
        let diagnosis = diagnose_as(&fewer.join(" "), "lock:");
        let (level, message) = found(&diagnosis, check);
        assert_eq!(level, expected, "{right}: {message}");
        let command = right.trim_start_matches('+').replace('|', " ");
        assert!(message.to_lowercase().contains(&command), "{right}: {message}");
    }
}
