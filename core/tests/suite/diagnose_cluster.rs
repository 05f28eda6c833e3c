//! What an operator is told about clusters, as they really are.

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
