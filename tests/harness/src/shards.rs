//! A Redis Cluster: primaries that share the slots, each with its replicas.

use std::thread;
use std::time::Duration;

use crate::redis::{self, Value};
use crate::{Server, eventually, ports};

/// After what silence a server of the cluster is taken for dead, in milliseconds.
const NODE_TIMEOUT_MS: u32 = 1_000;

/// The slots of every cluster.
const SLOTS: usize = 16_384;

/// A cluster.
#[derive(Debug)]
pub struct Shards {
    /// The primaries at first, and then their replicas, in the same order for each round of them.
    pub servers: Vec<Server>,
    primaries: usize,
}

impl Shards {
    /// Starts a cluster with this many primaries, each with this many replicas, and waits until all of it is well.
    #[must_use]
    pub fn start(primaries: usize, replicas: usize) -> Self {
        let server = |_| {
            let timeout = NODE_TIMEOUT_MS.to_string();
            let bus = ports::port(&ports::listen()).to_string();
            let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout, "--cluster-port", &bus];
            let builder = Server::builder().tcp(true).args(args);
            // A shard that is down is no reason for the others to refuse; a replica counts at once.
            builder.args(["--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"]).start()
        };
        let servers: Vec<_> = (0..primaries * (1 + replicas)).map(server).collect();
        let this = Self { servers, primaries };
        this.join(replicas);
        this
    }

    fn join(&self, replicas: usize) {
        for (index, server) in self.servers.iter().enumerate() {
            // Without equal epochs, which would have to be told apart first.
            server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for (index, server) in self.servers[..self.primaries].iter().enumerate() {
            let first = index * SLOTS / self.primaries;
            let last = (index + 1) * SLOTS / self.primaries - 1;
            server.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for server in &self.servers[1..] {
            let port = server.port().to_string();
            let bus = bus_port(server);
            self.servers[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let count = self.servers.len().to_string();
        for server in &self.servers {
            eventually("a server knows all others", || {
                let told = info(server);
                told.contains(&format!("cluster_known_nodes:{count}\r\n")) && !nodes(server).contains("handshake")
            });
        }
        for round in 1..=replicas {
            for shard in 0..self.primaries {
                let (primary, replica) = (&self.servers[shard], self.replica(shard, round - 1));
                eventually("it may follow", || replica.try_command(&["CLUSTER", "REPLICATE", &id(primary)]).is_ok());
            }
        }
        self.settled();
    }

    /// Waits until every server finds the cluster well, and every replica has its primary's data.
    pub fn settled(&self) {
        for server in self.servers.iter().filter(|server| server.running()) {
            eventually("the cluster is well", || {
                let told = info(server);
                let replication = text(&server.command(&["INFO", "replication"]));
                let is_replica = replication.contains("role:slave");
                told.contains("cluster_state:ok")
                    && (!is_replica || replication.contains("master_link_status:up"))
                    && nodes(server).lines().filter(|line| line.contains("slave")).count()
                        == self.servers.len() - self.primaries
            });
        }
    }

    /// The address for the code under test.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<_> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redis+cluster://{}", places.join(","))
    }

    /// The replica of a shard with this number.
    #[must_use]
    pub fn replica(&self, shard: usize, number: usize) -> &Server {
        &self.servers[self.primaries * (1 + number) + shard]
    }

    /// The server that has the slot of `key`, as `asked` tells.
    #[must_use]
    pub fn owner_by(&self, asked: &Server, key: &str) -> Option<&Server> {
        let slot = i64::from(self.slot(key));
        let Value::Array(ranges) = asked.command(&["CLUSTER", "SLOTS"]) else { panic!("an array") };
        let has = |range: &&Value| {
            let Value::Array(items) = range else { panic!("an array") };
            matches!(items[..], [Value::Int(first), Value::Int(last), ..] if first <= slot && slot <= last)
        };
        let Value::Array(items) = ranges.iter().find(has)? else { panic!("an array") };
        let Value::Array(primary) = &items[2] else { panic!("an array") };
        let Value::Int(port) = primary[1] else { panic!("a port") };
        self.servers.iter().find(|server| i64::from(server.port()) == port)
    }

    /// The server that has the slot of `key`.
    #[must_use]
    pub fn owner(&self, key: &str) -> &Server {
        let asked = self.servers.iter().find(|server| server.running()).expect("a server runs");
        self.owner_by(asked, key).expect("all slots are assigned")
    }

    /// Another primary than the one that has the slot of `key`.
    #[must_use]
    pub fn other(&self, key: &str) -> &Server {
        let owner = self.owner(key).port();
        self.servers[..self.primaries].iter().find(|server| server.port() != owner).expect("there is another one")
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let Value::Int(slot) = self.servers[0].command(&["CLUSTER", "KEYSLOT", key]) else { panic!("a number") };
        u16::try_from(slot).expect("a slot")
    }

    /// Opens the slot of `key`: it is on its way from one server to another.
    pub fn open(&self, key: &str, from: &Server, to: &Server) {
        let slot = self.slot(key).to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves some keys of an open slot.
    pub fn move_keys(&self, keys: &[&str], from: &Server, to: &Server) {
        let port = to.port().to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        command.extend(keys);
        from.command(&command);
    }

    /// Moves all keys of an open slot.
    pub fn move_all(&self, key: &str, from: &Server, to: &Server) {
        let slot = self.slot(key).to_string();
        loop {
            let Value::Array(keys) = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) else { panic!("keys") };
            if keys.is_empty() {
                return;
            }
            let keys: Vec<_> = keys.iter().map(text).collect();
            self.move_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>(), from, to);
        }
    }

    /// Closes the slot of `key`, which is at `to` from then on.
    pub fn close(&self, key: &str, from: &Server, to: &Server) {
        let (slot, id) = (self.slot(key).to_string(), id(to));
        for server in [to, from] {
            server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
        for server in &self.servers {
            let is_told = || self.owner_by(server, key).is_some_and(|owner| owner.port() == to.port());
            eventually("all servers know of the move", is_told);
        }
    }

    /// Moves the slot of `key` with all that is in it.
    pub fn migrate(&self, key: &str, from: &Server, to: &Server) {
        self.open(key, from, to);
        self.move_all(key, from, to);
        self.close(key, from, to);
    }

    /// Has the first replica of a shard take over, as an operator does.
    pub fn fail_over(&self, shard: usize) {
        let replica = self.replica(shard, 0);
        replica.command(&["CLUSTER", "FAILOVER"]);
        eventually("the replica has taken over", || {
            let Ok(role) = replica.try_command(&["ROLE"]) else { return false };
            format!("{role:?}").contains("master")
        });
    }

    /// Waits until `server` takes writes.
    pub fn promoted(&self, server: &Server) {
        eventually("it is promoted", || {
            thread::sleep(Duration::from_millis(10));
            server.try_command(&["ROLE"]).is_ok_and(|role| format!("{role:?}").contains("master"))
        });
    }
}

fn id(server: &Server) -> String {
    text(&server.command(&["CLUSTER", "MYID"]))
}

fn info(server: &Server) -> String {
    text(&server.command(&["CLUSTER", "INFO"]))
}

fn nodes(server: &Server) -> String {
    text(&server.command(&["CLUSTER", "NODES"]))
}

fn bus_port(server: &Server) -> String {
    let Value::Array(pair) = server.command(&["CONFIG", "GET", "cluster-port"]) else { panic!("a pair") };
    text(&pair[1])
}

fn text(value: &Value) -> String {
    redis::from_redis_value(value.clone()).expect("a text")
}
