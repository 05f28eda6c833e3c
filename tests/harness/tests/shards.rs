//! A cluster does what tests rely on, on every kind of server that there is.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use redlock_harness::{Program, Server, Shards, eventually, redis, slot};

/// Runs a test case with each program: the embedded server, and the system's.
fn with_each(test: impl Fn(&Program)) {
    let programs: Vec<_> = [Program::embedded(), Program::system()].into_iter().flatten().collect();
    assert!(!programs.is_empty(), "no server: run `make test`, which installs one");
    for program in programs {
        println!("with {}", program.path().display());
        test(&program);
    }
}

fn start(program: &Program, primaries: usize, replicas: usize) -> Shards {
    let begun = Instant::now();
    let shards = Shards::start_with(primaries, replicas, |server| server.program(program.clone()));
    println!("{primaries} primaries and {replicas} replicas of each started in {:?}", begun.elapsed());
    shards
}

fn role(server: &Server) -> String {
    let role: Vec<redis::Value> = redis::from_redis_value(server.command(&["ROLE"])).expect("a list");
    redis::from_redis_value(role[0].clone()).expect("a word")
}

#[track_caller]
fn assert_same(one: &Server, other: &Server) {
    assert_eq!(one.port(), other.port());
}

/// Waits until the replica has all keys of its primary. WAIT is about its own connection alone.
fn has_all(replica: &Server, primary: &Server) {
    eventually("the replica has them", || replica.command(&["DBSIZE"]) == primary.command(&["DBSIZE"]));
}

#[test]
fn a_slot_is_that_of_the_hash_tag() {
    // Of the specification: 0x31C3 is the checksum of these digits.
    assert_eq!(slot("123456789"), 0x31C3);
    assert_eq!((slot("foo"), slot("bar"), slot("")), (12_182, 5_061, 0));
    assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
    assert_eq!(slot("redlock:fence:{foo}"), slot("foo"));
    assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
    assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    assert_ne!(slot("foo{}{bar}"), slot("bar"));
}

#[test]
fn the_servers_know_the_same_slots() {
    with_each(|program| {
        let server = Server::builder().tcp(true).cluster(true).program(program.clone()).start();
        for key in ["123456789", "foo", "", "{a}b", "a{b}c", "a{}b", "a{}{b}", "a{{b}}c", "}a{", "a{b", "{}", "é{ü}"]
        {
            assert_eq!(server.command(&["CLUSTER", "KEYSLOT", key]), redis::Value::Int(slot(key).into()), "{key}");
        }
    });
}

#[test]
fn a_cluster_is_well_once_it_has_started() {
    with_each(|program| {
        let shards = start(program, 3, 1);
        assert_eq!(shards.url().matches("127.0.0.1:").count(), 6);
        // Below those that systems give to connections.
        assert!(shards.servers.iter().all(|server| (30_000..32_768).contains(&server.bus_port())));
        for shard in 0..3 {
            assert_same(shards.primary(shard), &shards.servers[shard]);
            assert_same(shards.replicas(shard)[0], shards.replica(shard, 0));
            assert_eq!(role(shards.primary(shard)), "master");
            assert_eq!(role(shards.replica(shard, 0)), "slave");
        }
        for (key, shard) in [("foo", 2), ("bar", 0), ("hello", 0), ("a", 2), ("b", 0), ("c", 1)] {
            assert_eq!(shards.shard(key), shard, "{key}");
            assert_same(shards.owner(key), &shards.servers[shard]);
            assert!(shards.servers.iter().all(|server| shards.owner_by(server, key).is_some()));
            shards.owner(key).command(&["SET", key, "x"]);
            has_all(shards.replica(shard, 0), &shards.servers[shard]);
        }
        assert!(shards.owner("foo").try_command(&["GET", "bar"]).is_err(), "it is not alone");
    });
}

#[test]
fn more_arguments_win() {
    let args = ["--cluster-require-full-coverage", "yes", "--cluster-node-timeout", "700"];
    let shards = Shards::start_with(2, 2, |server| server.args(args));
    assert_eq!(shards.servers.len(), 6);
    assert_eq!(shards.replicas(1).len(), 2);
    let told = |name| -> Vec<String> {
        redis::from_redis_value(shards.servers[5].command(&["CONFIG", "GET", name])).expect("a pair")
    };
    assert_eq!(told("cluster-require-full-coverage")[1], "yes");
    assert_eq!(told("cluster-node-timeout")[1], "700");
}

#[test]
fn a_slot_moves_with_its_keys() {
    with_each(|program| {
        let shards = start(program, 3, 1);
        let (from, to) = (shards.owner("foo"), shards.other("foo"));
        for number in 0..250 {
            from.command(&["SET", &format!("{{foo}}{number}"), "x"]);
        }
        shards.open("foo", from, to);
        // It has nothing to answer with, and leads to the target.
        let asked = from.try_command(&["GET", "foo"]).expect_err("it is on its way").to_string();
        assert!(asked.to_uppercase().contains("ASK") && asked.contains(&to.port().to_string()), "{asked}");
        assert_same(shards.owner("foo"), from);
        shards.move_keys(&["{foo}1", "{foo}2"], from, to);
        assert!(from.try_command(&["GET", "{foo}1"]).is_err());
        assert!(from.get("{foo}3").is_some());
        shards.move_all("foo", from, to);
        shards.close("foo", from, to);
        assert_same(shards.owner("foo"), to);
        assert_same(shards.other("foo"), shards.primary((shards.shard("foo") + 1) % 3));
        assert_eq!(to.command(&["DBSIZE"]), redis::Value::Int(250));
        assert!(
            shards
                .servers
                .iter()
                .all(|server| { shards.owner_by(server, "foo").is_some_and(|owner| owner.port() == to.port()) })
        );
        let begun = Instant::now();
        shards.migrate("foo", to, from);
        println!("moved in {:?}", begun.elapsed());
        // Each server has to know the epoch of a move before the slot comes back.
        for _ in 0..10 {
            shards.migrate("foo", from, to);
            shards.migrate("foo", to, from);
        }
        println!("moved to and fro in {:?}", begun.elapsed());
        assert_same(shards.owner("foo"), from);
        assert_eq!(from.command(&["DBSIZE"]), redis::Value::Int(250));
        shards.settled();
    });
}

#[test]
fn a_replica_takes_over_as_often_as_it_is_asked() {
    with_each(|program| {
        let shards = start(program, 3, 1);
        let shard = shards.shard("foo");
        for number in 0..4 {
            let former = shards.primary(shard);
            let begun = Instant::now();
            let primary = shards.fail_over(shard);
            println!("failed over in {:?}", begun.elapsed());
            assert_ne!(primary.port(), former.port());
            assert_same(shards.owner("foo"), primary);
            assert_same(shards.primary(shard), primary);
            assert_same(shards.replicas(shard)[0], former);
            assert!(
                shards.servers.iter().all(|server| {
                    shards.owner_by(server, "foo").is_some_and(|owner| owner.port() == primary.port())
                })
            );
            assert_ne!(shards.other("foo").port(), former.port());
            primary.command(&["SET", "foo", &number.to_string()]);
            shards.settled();
        }
    });
}

#[test]
fn a_replica_takes_over_from_a_dead_or_frozen_primary() {
    with_each(|program| {
        let shards = start(program, 3, 1);
        // The first server too, which no method here may depend on.
        for (key, shard) in [("bar", 0), ("foo", 2)] {
            let former = shards.owner(key);
            former.command(&["SET", key, "x"]);
            has_all(shards.replica(shard, 0), former);
            if shard == 0 {
                former.kill();
            } else {
                former.freeze();
            }
            // Until then nobody else has it.
            assert_same(shards.owner(key), former);
            let begun = Instant::now();
            let primary = shards.successor(former);
            println!("taken over in {:?}", begun.elapsed());
            assert_same(primary, shards.replica(shard, 0));
            assert_same(shards.owner(key), primary);
            assert_eq!(shards.shard(key), shard);
            assert!(primary.get(key).is_some());
            let other = shards.other(key);
            shards.migrate(key, primary, other);
            assert_same(shards.owner(key), other);
            shards.migrate(key, other, primary);
            if shard == 0 {
                former.restart();
            } else {
                former.thaw();
            }
            // Both are primaries for a moment; the latest is told.
            assert_same(shards.owner(key), primary);
            assert_same(shards.primary(shard), primary);
            shards.settled();
            assert_eq!((role(former).as_str(), role(primary).as_str()), ("slave", "master"));
        }
    });
}

#[test]
fn a_server_waits_for_both_of_its_ports() {
    with_each(|program| {
        let server = Server::builder().tcp(true).cluster(true).program(program.clone()).start();
        assert_eq!(server.port() + 10_000, server.bus_port());
        server.kill();
        let taken = TcpListener::bind(("127.0.0.1", server.bus_port())).expect("its server is gone");
        thread::scope(|scope| {
            scope.spawn(|| {
                eventually("the server has met it", || server.log().contains("in use"));
                drop(taken);
            });
            server.restart();
        });
        assert!(server.answers());
        server.freeze();
        assert!(server.running() && !server.answers());
        server.kill();
        assert!(!server.answers());
        server.restart();
        assert!(server.answers());
    });
}
