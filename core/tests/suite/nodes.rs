//! Nodes that were restarted or are replicas, and what a call says of them.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::os::unix::fs::symlink;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use harness::{LIMIT, SLACK, Server, cluster, eventually, urls};
use redlock::{Error, ErrorKind, NodeState, Redlock, blocking};

use super::log::{Log, of_all_threads, on_this_thread};
use super::one_worker;

/// The default of `node_timeout` at the default ttl.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

const NAME: &str = "foo";

/// A blocking client: those of the simulation are async.
struct Client(blocking::Redlock);

impl Client {
    fn new(nodes: &[String], restart_delay: Duration) -> Self {
        Self(blocking::Redlock::from(Redlock::builder().nodes(nodes).restart_delay(restart_delay).build().unwrap()))
    }

    fn acquire(&self, timeout: Duration) -> Result<blocking::Guard, Error> {
        self.0.lock(NAME).timeout(timeout).acquire()
    }

    /// Tries once, with more time for each node than a busy machine needs.
    fn try_once(&self) -> Result<blocking::Guard, Error> {
        self.0.lock(NAME).timeout(Duration::ZERO).node_timeout(2 * SLACK).acquire()
    }

    /// How many nodes hold the lock, by inspection.
    fn holders(&self) -> usize {
        let view = self.0.inspect(NAME).unwrap();
        view.nodes.iter().filter(|node| matches!(node.state, NodeState::Held { .. })).count()
    }

    /// Acquires and releases, which must work at once.
    fn cycle(&self) {
        self.try_once().unwrap().release().unwrap();
    }

    /// Connects to all nodes, which know the scripts afterwards and hold nothing.
    fn warms_up(&self, servers: &[Server]) {
        self.heals_wholly(servers.len(), "all nodes vote");
        eventually("no key stays", || all_free(servers));
        self.cycle();
        eventually("no key stays", || all_free(servers));
    }

    /// Acquires and releases as soon as that is possible.
    fn heals(&self, what: &str) {
        eventually(what, || self.acquire(Duration::ZERO).is_ok_and(|guard| guard.release().is_ok()));
    }

    /// Acquires as soon as all `nodes` vote again: each of them has the key.
    fn heals_wholly(&self, nodes: usize, what: &str) {
        eventually(what, || {
            let Ok(guard) = self.acquire(Duration::ZERO) else { return false };
            let holders = self.holders();
            drop(guard);
            holders == nodes
        });
    }
}

/// Runs `call`, which may take `limit` and what a busy machine adds.
fn within<T>(limit: Duration, what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let output = call();
    let took = start.elapsed();
    assert!(took <= limit + SLACK, "{what} took {took:?} instead of {limit:?}");
    output
}

fn all_free(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.get(NAME).is_none())
}

/// Ends a fault.
type End<'a> = Box<dyn FnOnce() + 'a>;

/// Makes a server the replica of one that is gone.
fn read_only(server: &Server) -> End<'_> {
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    Box::new(|| drop(server.command(&["REPLICAOF", "NO", "ONE"])))
}

/// Bars are told in every call: with a timeout at its end, and never as a lock that others hold.
#[test]
fn a_call_that_waits_for_a_bar_says_so() {
    let log = of_all_threads();
    for nodes in [1, 3] {
        let servers = cluster(nodes);
        let client = Client::new(&urls(&servers), Duration::from_secs(60));
        client.warms_up(&servers);
        let majority = &servers[..=nodes / 2];
        majority.iter().for_each(Server::restart);
        let error = client.acquire(3 * SLACK).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let barred = |answer: &str| answer.starts_with("restarted; its votes count again in");
        let count = error.nodes().iter().filter(|node| barred(&node.answer)).count();
        assert_eq!(count, majority.len(), "{error}");
        let text = log.text();
        let of_this = |line: &&str| {
            line.contains("nodes restarted and do not count yet; waiting for them") && line.contains(&servers[0].url())
        };
        assert_eq!(text.lines().filter(of_this).count(), 1, "{text}");
    }
}

/// Others want the lock, so that two calls join the line without a try; then the node is silent to the first.
#[test]
fn a_call_behind_one_that_has_heard_nothing_does_not_say_that_others_hold_the_lock() {
    let server = Server::start();
    let redlock = Redlock::builder().nodes(server.url()).node_timeout(Duration::from_secs(5)).build().unwrap();
    one_worker().block_on(async {
        let guard = redlock.lock(NAME).await.unwrap();
        server.command(&["SET", "redlock:waiters:{foo}", "99"]);
        guard.release().await.unwrap();
        server.freeze();
        let [first, second] =
            [1_000, 300].map(|millis| redlock.lock(NAME).timeout(Duration::from_millis(millis)).into_future());
        let (first, second) = tokio::join!(first, second);
        for error in [first.unwrap_err(), second.unwrap_err()] {
            // The node has answered less than `node_timeout` ago, so it is not told as down either.
            assert!(
                error.kind() == ErrorKind::Timeout && error.to_string().contains("before a quorum answered"),
                "{error}"
            );
        }
        server.thaw();
    });
}

/// Its slots are asked about in many parts.
#[test]
fn a_look_at_a_large_semaphore_ends_in_time_if_nobody_answers() {
    let (server, limit) = (Server::start(), 2 * SLACK);
    let builder = blocking::Redlock::builder().nodes(server.url()).node_timeout(limit);
    let semaphore = builder.build().unwrap().semaphore("pool", 1_000);
    assert!(!semaphore.is_locked().unwrap());
    server.freeze();
    within(limit, "a look", || semaphore.is_locked().unwrap_err());
}

#[test]
fn one_barred_node_of_three_is_no_hindrance() {
    let servers = cluster(3);
    let client = Client::new(&urls(&servers), Duration::from_secs(60));
    client.warms_up(&servers);
    servers[0].restart();
    within(2 * NODE_TIMEOUT, "cycles beside a barred node", || (0..10).for_each(|_| client.cycle()));
    // But it does not count: one of the others alone is not a quorum.
    eventually("the restarted node is asked", || {
        let guard = client.try_once().unwrap();
        let asked = servers[0].get(NAME).is_some();
        guard.release().unwrap();
        asked
    });
    eventually("no key stays", || all_free(&servers));
    servers[1].freeze();
    for _ in 0..3 {
        let error = client.acquire(Duration::ZERO).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    servers[1].thaw();
    client.heals("the third is back");
}

#[test]
fn a_replica_never_counts() {
    let master = Server::builder().tcp(true).start();
    let servers = [Server::start(), Server::start()];
    servers[0].command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually("the replica follows", || {
        let info = servers[0].command(&["INFO", "replication"]);
        format!("{info:?}").contains("master_link_status:up")
    });
    let alone = Client::new(&urls(&servers[..1]), Duration::ZERO);
    for _ in 0..2 {
        let error = alone.try_once().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.nodes()[0].answer.contains("is a replica"), "{error}");
    }
    let client = Client::new(&urls([&servers[0], &master, &servers[1]]), Duration::ZERO);
    client.cycle();
    servers[1].freeze();
    for _ in 0..3 {
        assert_eq!(client.acquire(Duration::ZERO).err().unwrap().kind(), ErrorKind::Unavailable);
    }
    servers[1].thaw();
    client.heals("the second master is back");
}

#[test]
fn a_promoted_replica_of_a_minority_counts_again() {
    let servers = cluster(3);
    let client = Client::new(&urls(&servers), Duration::ZERO);
    client.warms_up(&servers);
    let end = read_only(&servers[0]);
    (0..20).for_each(|_| client.cycle());
    // Lets a new connection to the replica become ready, so that it outlives the promotion.
    eventually("the replica is inspected", || client.holders() == 0);
    end();
    (0..20).for_each(|_| client.cycle());
    servers[1].freeze();
    client.heals("the promoted node counts");
    servers[1].thaw();
    client.heals_wholly(3, "all three are back");
}

/// Else a server that cannot reach its master keeps the clients that its successor waits for.
#[test]
fn a_demoted_master_is_left_for_its_successor() {
    for serves_stale_data in ["yes", "no"] {
        let demoted = Server::builder().args(["--replica-serve-stale-data", serves_stale_data]).start();
        let (successor, way) = (Server::start(), demoted.dir().join("way.sock"));
        symlink(demoted.socket(), &way).unwrap();
        let client = Client::new(&[format!("unix://{}", way.display())], Duration::ZERO);
        client.cycle();
        let _end = read_only(&demoted);
        fs::remove_file(&way).unwrap();
        symlink(successor.socket(), &way).unwrap();
        client.heals("the successor is asked");
    }
}

/// Whether the only node of `client` is barred, seen in one try.
fn is_barred(client: &Client) -> bool {
    let Err(error) = client.try_once() else { panic!("acquired on a node that has forgotten") };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    error.nodes()[0].answer.starts_with("restarted; its votes count again in")
}

#[test]
fn what_a_process_knows_of_a_node_outlives_its_last_client() {
    let delay = Duration::from_secs(60);
    let server = Server::start();
    Client::new(&[server.url()], delay).cycle();
    server.restart();
    // The server is the same in another database, and with other options.
    let other = format!("{}?db=2&protocol=2", server.url());
    for url in [server.url(), other, server.url()] {
        let client = Client::new(std::slice::from_ref(&url), delay);
        assert!(is_barred(&client), "{url}");
        drop(client);
        Client::new(&[url], Duration::ZERO).cycle();
    }
}

#[test]
fn a_client_that_may_not_ask_goes_by_what_another_one_learnt() {
    let server = Server::start();
    let limit = || server.command(&["ACL", "SETUSER", "quiet", "on", ">quiet", "~*", "&*", "+@all", "-info"]);
    let of = |url: String| Client::new(&[url], Duration::from_secs(60));
    limit();
    let (quiet, other) = (of(format!("{}?user=quiet&pass=quiet", server.url())), of(server.url()));
    quiet.cycle();
    other.cycle();
    server.restart();
    limit();
    eventually("one of them has learnt it", || is_barred(&other));
    eventually("the other one goes by it", || is_barred(&quiet));
}

#[test]
fn a_first_replica_is_not_a_restart_and_a_failover_is() {
    // A replica's copy begins at once, not after 5 s.
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let [server, replica, other] = [true, false, true].map(|tcp| Server::builder().tcp(tcp).args(at_once).start());
    let client = Client::new(&urls([&server]), Duration::from_secs(60));
    let info = |server: &Server| format!("{:?}", server.command(&["INFO", "replication"]));
    let replid = || info(&server).split_once("master_replid:").unwrap().1[..40].to_owned();
    let follow = |server: &Server, master: &Server| {
        server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        eventually("the replica follows", || info(server).contains("master_link_status:up"));
    };
    client.cycle();
    let before = replid();
    follow(&replica, &server);
    assert_ne!(replid(), before, "the first replica makes the server draw another id");
    server.command(&["FLUSHALL"]);
    server.end_connections();
    client.heals("nothing was lost that a process could see");
    // It follows another one and is promoted again: what it had granted is gone.
    follow(&server, &other);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    server.end_connections();
    eventually("it is barred", || is_barred(&client));
}

#[test]
fn node_lists_that_overlap_but_differ_are_warned_about_once_for_one_name() {
    const WARNING: &str = "different node lists";
    let servers = cluster(4);
    let url = |index: usize| format!("{}?user=default&pass=s3cret", servers[index].url());
    for server in &servers {
        server.command(&["ACL", "SETUSER", "default", ">s3cret"]);
    }
    let client = |nodes: &[String]| Client::new(nodes, Duration::ZERO);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    on_this_thread(subscriber.finish(), || {
        let three = client(&[url(0), url(1), url(2)]);
        // The same nodes, another order; another database; no node in common; another name.
        client(&[url(2), url(0), url(1)]).heals("any order");
        client(&[format!("{}&db=3", url(0)), format!("{}&db=3", url(3))]).heals("other databases");
        client(&[url(3)]).heals("another node");
        let Client(pair) = client(&[url(0), url(3)]);
        eventually("another name", || pair.lock("other").try_acquire().is_ok_and(|guard| guard.is_some()));
        three.heals("the list that the others differ from");
        assert_eq!(log.text().matches(WARNING).count(), 0, "{}", log.text());
        drop(pair);
        // One client after the other, as in a program that makes one for each call.
        for _ in 0..3 {
            client(&[url(0), url(3)]).heals("a list that differs");
            three.heals("the list that the others differ from");
        }
    });
    let text = log.text();
    assert_eq!(text.matches(WARNING).count(), 1, "{text}");
    let line = text.lines().find(|line| line.contains(WARNING)).unwrap();
    for server in [0, 0, 1, 2, 3].map(|index| servers[index].url()) {
        assert!(line.contains(&server), "{line}");
    }
    assert!(line.contains(NAME) && !text.contains("s3cret"), "{text}");
}

#[test]
fn a_log_that_blocks_is_in_nobodys_way() {
    let server = Server::builder().args(["--maxmemory-policy", "allkeys-lru"]).start();
    let client = Client::new(&urls([&server]), Duration::ZERO);
    let (begins, began) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let writer = move || {
        begins.send(()).unwrap();
        let _ = goes_on.lock().unwrap().recv_timeout(LIMIT);
        io::sink()
    };
    let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
    thread::scope(|scope| {
        scope.spawn(|| on_this_thread(subscriber, || drop(client.acquire(Duration::ZERO))));
        began.recv_timeout(LIMIT).expect("the server is warned about");
        let other = scope.spawn(|| client.heals("another thread connects and acquires"));
        eventually("the log does not keep it", || other.is_finished());
        drop(go_on);
    });
}
