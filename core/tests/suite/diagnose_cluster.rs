//! What an operator is told about clusters, as they really are.

use harness::redis::from_redis_value;
use harness::{Server, Shards, eventually};
use redlock::{Diagnosis, Level, Redlock, blocking};

const NAME: &str = "foo";

/// What was found about each server, by its port.
struct Found(Vec<Diagnosis>);

impl Found {
    fn about(url: &str) -> Self {
        let redlock = Redlock::builder().nodes(url).build().unwrap();
        Self(blocking::Redlock::from(redlock).diagnose().unwrap())
    }

    /// The most serious level that a check found about a server, and all its messages.
    fn check(&self, server: &Server, check: &str) -> Option<(Level, String)> {
        let end = format!(":{}", server.port());
        let diagnosis = self.0.iter().find(|diagnosis| diagnosis.node.ends_with(&end))?;
        let findings = diagnosis.findings.iter().filter(|finding| finding.check == check);
        let messages: Vec<_> = findings.clone().map(|finding| finding.message.clone()).collect();
        Some((findings.map(|finding| finding.level).max()?, messages.join("; ")))
    }

    #[track_caller]
    fn expect(&self, server: &Server, check: &str, level: Level, text: &str) {
        let found = self.check(server, check);
        let is_expected = found.as_ref().is_some_and(|(found, message)| *found == level && message.contains(text));
        assert!(is_expected, "{check} of {}: {found:?}, not {level}: {text}", server.port());
    }
}

fn at(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn id(server: &Server) -> String {
    from_redis_value(server.command(&["CLUSTER", "MYID"])).unwrap()
}

#[test]
fn a_cluster_as_it_should_be() {
    let shards = Shards::start(3, 1);
    let found = Found::about(&shards.url());
    for server in &shards.servers[..3] {
        for check in ["cluster", "slots", "coverage", "failover", "map"] {
            assert_eq!(found.check(server, check).map(|found| found.0), Some(Level::Ok), "{check}: {:?}", found.0);
        }
        found.expect(server, "failover", Level::Ok, "up to 3s with cluster-node-timeout 1000");
        found.expect(server, "map", Level::Ok, "3 servers tell the same");
        // A failover forgets.
        found.expect(server, "replicas", Level::Warning, "1: a failover forgets locks");
    }
    let others = found.0.iter().flat_map(|diagnosis| &diagnosis.findings).filter(|finding| finding.check != "replicas");
    assert_eq!(others.map(|finding| finding.level).max(), Some(Level::Ok), "{:?}", found.0);
}

#[test]
fn a_shard_that_is_down_without_a_replica() {
    for (coverage, of_others) in [("no", Level::Warning), ("yes", Level::Unusable)] {
        let shards = Shards::start_with(3, 0, |server| server.args(["--cluster-require-full-coverage", coverage]));
        let found = Found::about(&shards.url());
        let expected = if coverage == "no" { Level::Ok } else { Level::Warning };
        for server in &shards.servers {
            found.expect(server, "coverage", expected, "a shard that is down stops");
            found.expect(server, "replicas", Level::Warning, "none in sync, so its slots are down with it");
            assert_eq!(found.check(server, "failover"), None, "nobody can take over");
        }
        let dead = shards.owner(NAME);
        dead.kill();
        let others = || shards.servers.iter().filter(|server| server.port() != dead.port());
        let mut found = found;
        eventually("the others notice", || {
            found = Found::about(&shards.url());
            others().all(|server| found.check(server, "slots").is_some_and(|(level, _)| level == of_others))
        });
        found.expect(dead, "connection", Level::Unusable, "");
        for server in others() {
            found.expect(server, "slots", of_others, &format!("{} has slots ", at(dead)));
            found.expect(server, "slots", of_others, "names there cannot be locked");
        }
    }
}

#[test]
fn servers_that_disagree_about_a_slot() {
    let shards = Shards::start(3, 0);
    let (one, two) = (shards.owner(NAME), shards.other(NAME));
    let slot = shards.slot(NAME).to_string();
    for (server, named) in [(one, two), (two, one)] {
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(named)]);
    }
    let found = Found::about(&shards.url());
    for (server, other) in [(one, two), (two, one)] {
        found.expect(server, "map", Level::Warning, &format!("another primary for slot {slot} than reported by "));
        found.expect(server, "map", Level::Warning, &at(other));
    }
}

#[test]
fn a_right_that_is_missing_leaves_something_unknown() {
    let shards = Shards::start(2, 0);
    let fewest = "on nopass ~* resetchannels nocommands +eval +evalsha +get +set +del +pexpire +pttl +time +incr \
                  +getex +getdel +type +zadd +zrem +zrange +zscore +zremrangebyscore +zcount +info +client|tracking +cluster|slots +asking";
    let grant = |rules: &str| {
        for server in &shards.servers {
            server.command(&[&["ACL", "SETUSER", "app"], &rules.split(' ').collect::<Vec<_>>()[..]].concat());
        }
    };
    grant(fewest);
    let url = shards.url().replace("://", "://app:any@");
    let asked = &shards.servers[0];
    let found = Found::about(&url);
    found.expect(asked, "slots", Level::Warning, "CLUSTER INFO is refused (NOPERM)");
    found.expect(asked, "slots", Level::Warning, "CLUSTER NODES is refused (NOPERM)");
    found.expect(asked, "coverage", Level::Warning, "CONFIG GET is refused (NOPERM)");
    assert_eq!([found.check(asked, "failover"), found.check(asked, "map")], [None, None]);
    found.expect(asked, "rights", Level::Ok, "");
    for (right, check, text) in [
        ("+cluster|info", "slots", "CLUSTER INFO"),
        ("+cluster|nodes", "slots", "CLUSTER NODES"),
        ("+config|get", "coverage", "CONFIG GET"),
    ] {
        grant(right);
        let (_, message) = Found::about(&url).check(asked, check).unwrap();
        assert!(!message.contains(text), "{right}: {message}");
    }
    let found = Found::about(&url);
    for check in ["slots", "coverage", "map"] {
        found.expect(asked, check, Level::Ok, "");
    }
}
