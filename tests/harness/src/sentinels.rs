//! A primary with a replica, and the sentinels that watch over them.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::{Server, eventually, redis, within};

/// The name under which sentinels know the primary.
pub const MASTER: &str = "mymaster";

/// After what silence a sentinel takes a server for dead, in milliseconds. One on a busy machine is silent for a while.
const DOWN_AFTER_MS: u32 = 1_500;

/// A sentinel that stood still for two seconds does nothing for the next thirty.
const FAILOVER: Duration = Duration::from_secs(60);

/// A primary, a replica and three sentinels.
#[derive(Debug)]
pub struct Sentinels {
    /// The primary at first, and its replica.
    pub servers: [Server; 2],
    /// Those who watch.
    pub sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts them, and waits until the sentinels know each other and the replica.
    #[must_use]
    pub fn start() -> Self {
        let primary = Server::builder().tcp(true).start();
        let port = primary.port().to_string();
        let replica = Server::builder().tcp(true).args(["--replicaof", "127.0.0.1", &port]).start();
        let file = format!(
            "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {MASTER} 5000\n"
        );
        let sentinels = (0..3).map(|_| Server::builder().tcp(true).sentinel(&file).start()).collect();
        let this = Self { servers: [primary, replica], sentinels };
        this.settled();
        this
    }

    /// The address for the code under test.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<_> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{MASTER}", places.join(","))
    }

    /// Waits until every sentinel knows the others, and a replica that could take over.
    pub fn settled(&self) {
        for sentinel in &self.sentinels {
            eventually("a sentinel knows the others and the replica", || {
                let told = sentinel.command(&["INFO", "sentinel"]);
                let told: String = redis::from_redis_value(told).expect("a text");
                told.contains("status=ok,") && told.contains("slaves=1,sentinels=3")
            });
        }
    }

    /// Waits until a sentinel names the server that was the replica at first.
    pub fn taken_over(&self) {
        let port = self.servers[1].port().to_string();
        let names = |sentinel: &Server| {
            let told = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
            let [_, named]: [String; 2] = redis::from_redis_value(told).expect("a host and a port");
            named == port
        };
        within(FAILOVER, "a sentinel names the replica", || self.sentinels.iter().any(names));
    }

    /// Which of the servers takes writes.
    #[must_use]
    pub fn is_primary(&self, server: usize) -> bool {
        // A sentinel ends the connections of a server whose role it changes.
        let role = self.servers[server].try_command(&["ROLE"]);
        role.is_ok_and(|role| format!("{role:?}").contains("master"))
    }
}

/// Something that answers as a sentinel does, and tells what a test says.
#[derive(Debug)]
pub struct FakeSentinel {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The port of the primary, and the epoch.
    told: Mutex<Option<(u16, u64)>>,
    delay: Mutex<Duration>,
    asked: AtomicUsize,
}

impl FakeSentinel {
    /// Starts one that answers nothing.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a socket of the test");
        let port = listener.local_addr().expect("a socket of the test").port();
        let shared = Arc::new(Shared { told: Mutex::new(None), delay: Mutex::default(), asked: AtomicUsize::new(0) });
        let answering = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let shared = Arc::clone(&answering);
                thread::spawn(move || drop(shared.answer(client.expect("a socket of the test"))));
            }
        });
        Self { port, shared }
    }

    /// Tells from now on that the primary has this port, since the failover with this epoch.
    pub fn tells(&self, port: u16, epoch: u64) {
        *self.shared.told.lock().expect("no panic while holding this") = Some((port, epoch));
    }

    /// Answers only after some time.
    pub fn answers_after(&self, delay: Duration) {
        *self.shared.delay.lock().expect("no panic while holding this") = delay;
    }

    /// How often it was asked.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Shared {
    fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        let mut bytes = [0; 1_024];
        while let length @ 1.. = client.read(&mut bytes)? {
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            self.asked.fetch_add(text.matches("\r\nMASTER\r\n").count(), Ordering::SeqCst);
            let Some((port, epoch)) = *self.told.lock().expect("no panic while holding this") else { continue };
            thread::sleep(*self.delay.lock().expect("no panic while holding this"));
            let words = |words: &[&str]| {
                words.iter().fold(String::new(), |text, word| format!("{text}${}\r\n{word}\r\n", word.len()))
            };
            let (port, epoch) = (port.to_string(), epoch.to_string());
            // The sentinel that leads a failover tells the former place beside the new epoch, until all replicas know.
            let whole = ["name", MASTER, "ip", "127.0.0.1", "port", "1", "config-epoch", &epoch];
            let (whole, place) = (words(&whole), words(&["127.0.0.1", &port]));
            client.write_all(format!("*2\r\n{place}*8\r\n{whole}").as_bytes())?;
        }
        Ok(())
    }
}
