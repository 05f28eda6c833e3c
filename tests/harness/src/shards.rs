//! A Redis Cluster: primaries that share the slots, each with its replicas.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::redis::{self, RedisResult, Value};
use crate::{Builder, Server, eventually};

/// After what silence a server of the cluster is taken for dead, in milliseconds.
const NODE_TIMEOUT_MS: u32 = 1_000;

/// How long a server holds no second election. Redis 7.0 may count the votes of the last one instead, and is then a
/// primary that no other server knows, until it hears of the present one.
const ELECTION: Duration = Duration::from_millis(4 * NODE_TIMEOUT_MS as u64 + 200);

/// When a planned failover that failed is asked for again; servers give it up after 5 s.
const FAILOVER_LIMIT: Duration = Duration::from_secs(6);

/// The slots of every cluster.
const SLOTS: u16 = 16_384;

/// How often the state of a whole cluster is looked at.
const POLL: Duration = Duration::from_millis(10);

/// A cluster.
///
/// A shard is a number from 0. Its servers stay the same; failovers only change their roles. The methods that look for
/// a server pass by servers that are frozen or killed, and believe the latest epoch, as the servers do.
///
/// The cluster keeps nothing on disk but its map. A killed primary that is restarted before its replica took over is an
/// empty primary, and its replicas become empty too.
#[derive(Debug)]
pub struct Shards {
    /// The primaries at first, and then their replicas, in the same order for each round of them.
    pub servers: Vec<Server>,
    count: usize,
    /// When servers won their last election.
    elections: Mutex<HashMap<u16, Instant>>,
}

impl Shards {
    /// Starts a cluster with this many primaries, each with this many replicas, and waits until all of it is well.
    ///
    /// It takes 2 s, because no server lets a primary take writes earlier.
    #[must_use]
    pub fn start(primaries: usize, replicas: usize) -> Self {
        Self::start_with(primaries, replicas, |server| server)
    }

    /// Starts a cluster of servers with more arguments or another program.
    ///
    /// ```no_run
    /// use redlock_harness::Shards;
    ///
    /// Shards::start_with(3, 1, |server| server.args(["--cluster-require-full-coverage", "yes"]));
    /// ```
    #[must_use]
    pub fn start_with(primaries: usize, replicas: usize, setup: impl Fn(Builder) -> Builder + Sync) -> Self {
        let start = || setup(builder()).start();
        let servers = thread::scope(|scope| {
            let starts: Vec<_> = (0..primaries * (1 + replicas)).map(|_| scope.spawn(start)).collect();
            starts.into_iter().map(|start| start.join().expect("every server starts")).collect()
        });
        let this = Self { servers, count: primaries, elections: Mutex::default() };
        this.join(replicas);
        this
    }

    fn join(&self, replicas: usize) {
        for (index, server) in self.servers.iter().enumerate() {
            // Without equal epochs, which would have to be told apart first.
            server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for (index, server) in self.servers[..self.count].iter().enumerate() {
            let [first, end] = [index, index + 1].map(|number| number * usize::from(SLOTS) / self.count);
            // Redis 6.2 takes no range.
            let slots = (first..end).map(|slot| slot.to_string());
            let command: Vec<_> = ["CLUSTER", "ADDSLOTS"].map(str::to_owned).into_iter().chain(slots).collect();
            server.command(&command);
        }
        for server in &self.servers[1..] {
            let (port, bus_port) = (server.port().to_string(), server.bus_port().to_string());
            self.servers[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
        }
        gradually("all servers of the cluster know each other", || self.agree());
        for round in 0..replicas {
            for shard in 0..self.count {
                let id = id(&self.servers[shard]);
                self.replica(shard, round).command(&["CLUSTER", "REPLICATE", &id]);
            }
        }
        self.settled();
    }

    /// Waits until all servers that answer find the cluster well, agree on it, and have their primary's data.
    pub fn settled(&self) {
        gradually("the cluster is well", || {
            self.answering().all(|server| told(server, &["CLUSTER", "INFO"]).contains("cluster_state:ok"))
                && self.agree()
                && self.answering().all(|server| self.is_in_sync(server))
        });
    }

    /// The address for the code under test.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<_> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redis+cluster://{}", places.join(","))
    }

    /// The server that was started as the replica of a shard with this number.
    #[must_use]
    pub fn replica(&self, shard: usize, number: usize) -> &Server {
        &self.servers[self.count * (1 + number) + shard]
    }

    /// The present primary of each shard.
    #[must_use]
    pub fn primaries(&self) -> Vec<&Server> {
        (0..self.count).map(|shard| self.primary(shard)).collect()
    }

    /// The present primary of a shard. It may be down.
    #[must_use]
    pub fn primary(&self, shard: usize) -> &Server {
        let of_shard = |member: &Member| self.of_shard(shard).any(|server| server.port() == member.port);
        self.latest(of_shard).expect("every shard has a primary")
    }

    /// The servers of a shard other than its present primary. They may be down.
    #[must_use]
    pub fn replicas(&self, shard: usize) -> Vec<&Server> {
        let primary = self.primary(shard).port();
        self.of_shard(shard).filter(|server| server.port() != primary).collect()
    }

    /// The server that has the slot of `key`, as `asked` tells.
    #[must_use]
    pub fn owner_by(&self, asked: &Server, key: &str) -> Option<&Server> {
        let slot = i64::from(slot(key));
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

    /// The server that has the slot of `key`. It may be down.
    #[must_use]
    pub fn owner(&self, key: &str) -> &Server {
        let slot = slot(key);
        self.latest(|member| member.has(slot)).expect("all slots are assigned")
    }

    /// The shard that has the slot of `key`.
    #[must_use]
    pub fn shard(&self, key: &str) -> usize {
        self.shard_of(self.owner(key))
    }

    /// Another primary than the one that has the slot of `key`.
    #[must_use]
    pub fn other(&self, key: &str) -> &Server {
        let owner = self.owner(key).port();
        let is_other = |server: &&Server| server.port() != owner && server.answers();
        self.primaries().into_iter().find(is_other).expect("there is another one")
    }

    /// The slot of a key.
    #[must_use]
    #[allow(clippy::unused_self, reason = "tests have a cluster at hand")]
    pub fn slot(&self, key: &str) -> u16 {
        slot(key)
    }

    /// Opens the slot of `key`: it is on its way from one server to another.
    pub fn open(&self, key: &str, from: &Server, to: &Server) {
        let slot = slot(key).to_string();
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
        let slot = slot(key).to_string();
        loop {
            let Value::Array(keys) = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) else { panic!("keys") };
            if keys.is_empty() {
                return;
            }
            let keys: Vec<_> = keys.iter().map(text).collect();
            self.move_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>(), from, to);
        }
    }

    /// Closes the slot of `key`, which is at `to` from then on, and waits until all servers know of it.
    pub fn close(&self, key: &str, from: &Server, to: &Server) {
        let (slot, id) = (slot(key).to_string(), id(to));
        // Only primaries can be told; replicas hear of it.
        let others = self.primaries().into_iter().filter(|server| server.answers());
        let others = others.filter(|server| ![from.port(), to.port()].contains(&server.port()));
        for server in [to, from].into_iter().chain(others) {
            server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
        // A server that has the map and not yet the epoch would give a slot that comes back its own epoch, which is too
        // old. Then two servers point at each other for good.
        eventually("all servers know of the move", || {
            self.agree() && self.answering().all(|server| self.is_told(server, key, to))
        });
    }

    /// Moves the slot of `key` with all that is in it.
    pub fn migrate(&self, key: &str, from: &Server, to: &Server) {
        self.open(key, from, to);
        self.move_all(key, from, to);
        self.close(key, from, to);
    }

    /// Has the first replica of a shard take over, as an operator does, and waits until all servers know of it.
    /// Returns the new primary.
    pub fn fail_over(&self, shard: usize) -> &Server {
        let replica = self.replicas(shard).into_iter().find(|server| server.answers()).expect("a replica answers");
        let elected = self.elections().get(&replica.port()).copied();
        if let Some(elected) = elected {
            thread::sleep(ELECTION.saturating_sub(elected.elapsed()));
        }
        let mut asked: Option<Instant> = None;
        gradually("the replica has taken over", || {
            if asked.is_none_or(|asked| asked.elapsed() > FAILOVER_LIMIT)
                && replica.try_command(&["CLUSTER", "FAILOVER"]).is_ok()
            {
                asked = Some(Instant::now());
            }
            is_primary(replica) && self.agree()
        });
        self.elections().insert(replica.port(), Instant::now());
        replica
    }

    /// Waits until `server` takes writes.
    pub fn promoted(&self, server: &Server) {
        gradually("it is promoted", || is_primary(server));
    }

    fn elections(&self) -> MutexGuard<'_, HashMap<u16, Instant>> {
        self.elections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answering(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| server.answers())
    }

    fn of_shard(&self, shard: usize) -> impl Iterator<Item = &Server> {
        self.servers.iter().skip(shard).step_by(self.count)
    }

    fn shard_of(&self, server: &Server) -> usize {
        let port = server.port();
        let place = self.servers.iter().position(|server| server.port() == port);
        place.expect("the server is in this cluster") % self.count
    }

    /// Whether all servers that answer tell the same of each other, as each does of itself.
    fn agree(&self) -> bool {
        let views: Vec<_> = self.answering().map(members).collect();
        let of_itself: Vec<_> = views.iter().flatten().filter(|member| member.is_myself()).collect();
        let has = |view: &Vec<Member>, itself: &Member| view.iter().any(|member| member.is_as(itself));
        of_itself.len() == views.len()
            && views
                .iter()
                .all(|view| view.len() == self.servers.len() && of_itself.iter().all(|itself| has(view, itself)))
    }

    /// Whether `asked` tells that `owner` has the slot of `key`.
    fn is_told(&self, asked: &Server, key: &str, owner: &Server) -> bool {
        self.owner_by(asked, key).is_some_and(|told| told.port() == owner.port())
    }

    /// Of the primaries that are `wanted`, the one with the latest epoch. A server that answers tells of itself.
    fn latest(&self, wanted: impl Fn(&Member) -> bool) -> Option<&Server> {
        let answering: Vec<_> = self.answering().map(Server::port).collect();
        let told = self.answering().flat_map(members);
        let told = told.filter(|member| member.is_myself() || !answering.contains(&member.port));
        let latest = told.filter(|member| member.is_primary() && wanted(member)).max_by_key(|member| member.epoch)?;
        self.servers.iter().find(|server| server.port() == latest.port)
    }

    /// Whether a server is the primary of its shard, or a replica that has all of the primary's data.
    fn is_in_sync(&self, server: &Server) -> bool {
        let primary = self.primary(self.shard_of(server));
        primary.port() == server.port()
            || told(server, &["INFO", "replication"]).contains("master_link_status:up")
                && told(primary, &["INFO", "replication"]).contains(&format!("port={},state=online", server.port()))
    }
}

/// Returns the slot of a key, which is that of its hash tag, if it has one.
#[must_use]
pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    // CRC16 as of XMODEM.
    let crc = hashed.bytes().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    });
    crc % SLOTS
}

/// One server of the cluster, as one of them tells in a line of CLUSTER NODES.
#[derive(Debug)]
struct Member {
    port: u16,
    flags: Vec<String>,
    /// The id of the primary, if it is a replica.
    follows: String,
    epoch: u64,
    slots: Vec<String>,
}

impl Member {
    fn read(line: &str) -> Self {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, place, flags, follows, _, _, epoch, _, slots @ ..] = &words[..] else { panic!("{line}") };
        let port = place.split_once('@').and_then(|(place, _)| place.rsplit_once(':')).expect("a place").1;
        Self {
            port: port.parse().expect("a port"),
            flags: flags.split(',').map(ToOwned::to_owned).collect(),
            follows: (*follows).to_owned(),
            epoch: epoch.parse().expect("an epoch"),
            // Without those on their way.
            slots: slots.iter().filter(|slots| !slots.starts_with('[')).map(|&slots| slots.to_owned()).collect(),
        }
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    fn is_myself(&self) -> bool {
        self.is("myself")
    }

    fn is_primary(&self) -> bool {
        self.is("master")
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| {
            let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
            let [first, last] = [first, last].map(|slot| slot.parse::<u16>().expect("a slot"));
            (first..=last).contains(&slot)
        })
    }

    /// Whether it is what the server tells of itself.
    fn is_as(&self, itself: &Self) -> bool {
        let is_well = !["handshake", "noaddr", "fail", "fail?"].iter().any(|flag| self.is(flag));
        is_well
            && self.port == itself.port
            && self.is_primary() == itself.is_primary()
            && (&self.follows, self.epoch, &self.slots) == (&itself.follows, itself.epoch, &itself.slots)
    }
}

/// All servers of the cluster, as one of them tells; none if it does not answer.
fn members(asked: &Server) -> Vec<Member> {
    told(asked, &["CLUSTER", "NODES"]).lines().map(Member::read).collect()
}

/// The setup of every server.
fn builder() -> Builder {
    Server::builder()
        .tcp(true)
        .cluster(true)
        .args(["--cluster-node-timeout", &NODE_TIMEOUT_MS.to_string()])
        // A shard that is down is no reason for the others to refuse.
        .args(["--cluster-require-full-coverage", "no"])
        // No replica changes its shard. Without replica migration, a former primary might stay one that has no slots.
        .args(["--cluster-migration-barrier", "100"])
        // A replica counts at once.
        .args(["--repl-diskless-sync-delay", "0"])
}

/// As [`eventually`], with pauses: each look asks all servers.
fn gradually(what: &str, mut state: impl FnMut() -> bool) {
    eventually(what, || {
        thread::sleep(POLL);
        state()
    });
}

fn is_primary(server: &Server) -> bool {
    // A server ends connections when its role changes.
    server.try_command(&["ROLE"]).is_ok_and(|role| format!("{role:?}").contains("master"))
}

fn id(server: &Server) -> String {
    text(&server.command(&["CLUSTER", "MYID"]))
}

/// Returns the answer in text, which is empty if the server does not answer.
fn told(server: &Server, command: &[&str]) -> String {
    let answer = server.answers().then(|| server.try_command(command));
    answer.and_then(RedisResult::ok).map_or_else(String::new, |answer| text(&answer))
}

fn text(value: &Value) -> String {
    redis::from_redis_value(value.clone()).expect("a text")
}
