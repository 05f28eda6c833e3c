//! Repeated actions that must leave nothing behind.

use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use face::{Client, Face, Guard, Lock, Wait, Which, both};
use redlock::{Error, ErrorKind};
use tokio::runtime::{Builder, Runtime};

use crate::args::{Args, Leak, Shape, Work};

/// How many tasks compete for one name.
const WAITERS: u64 = 4;

/// How many permits a semaphore has.
const PERMITS: u32 = 2;

/// Of so many turns with a shared lock, one is that of a writer.
pub(crate) const WRITES: u64 = 4;

/// How many calls are denied at once.
const DENIED: u64 = 64;

/// How many threads acquire at once.
const CROWD: u64 = 64;

/// Longer than the servers may take to be empty, so that a key that is not deleted is found.
const TTL: Duration = Duration::from_secs(60);

/// Short, so that calls give up a node while it is frozen.
const NODE_TIMEOUT: Duration = Duration::from_millis(200);

/// Long enough for a call to be denied in the background too.
const MOMENT: Duration = Duration::from_millis(20);

/// The runtime of the async face.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime can be made")
});

pub(crate) struct Worker {
    args: Args,
    /// Not made if each turn opens its own client: the clients of one process share connections.
    client: Option<Client>,
    done: u64,
    leaked: Leaked,
}

/// The objects that a leaking worker keeps.
struct Leaked {
    guards: Vec<Guard>,
    bytes: Vec<[u8; 256]>,
    connections: Vec<UnixStream>,
}

impl Worker {
    pub(crate) fn new(args: Args) -> Self {
        let client = (args.work != Work::Clients).then(|| client(args.face, &args.nodes));
        Self { args, client, done: 0, leaked: Leaked { guards: vec![], bytes: vec![], connections: vec![] } }
    }

    /// Takes `count` turns, and returns with everything released.
    pub(crate) fn perform(&mut self, count: u64) {
        let tasks = match self.args.work {
            Work::Wait => WAITERS,
            Work::Denied => DENIED,
            Work::Crowd => CROWD,
            _ => 1,
        };
        let start = |task| match self.args.work {
            Work::Denied => self.args.face.spawn(&RUNTIME, self.denials(task, count / tasks)),
            _ => self.args.face.spawn(&RUNTIME, self.turns(task, count / tasks)),
        };
        let waits: Vec<Wait> = (0..tasks).map(start).collect();
        for wait in waits {
            wait();
        }
        self.done += count;
        if count > 0 {
            self.leak(count);
        }
    }

    fn turns(&self, task: u64, count: u64) -> impl Future<Output = ()> + Send + 'static {
        let (work, nodes, own, done) = (self.args.work, self.args.nodes.clone(), self.client.clone(), self.done);
        let (face, shape) = (self.args.face, self.args.shape);
        async move {
            for turn in done..done + count {
                let client = own.clone().unwrap_or_else(|| client(face, &nodes));
                let name = match work {
                    Work::Names | Work::Drop => format!("name-{turn}"),
                    Work::Crowd => format!("name-{task}-{turn}"),
                    _ => "name".into(),
                };
                if shape == Shape::Term {
                    lead(&client, &name).await;
                    continue;
                }
                let guard =
                    lock(&client, shape, &name, turn).acquire().await.expect("the node answers within ten seconds");
                match work {
                    Work::Drop => drop(guard),
                    _ => confirmed(&guard.release().await),
                }
            }
        }
    }

    /// Tries to acquire names that others hold.
    fn denials(&self, task: u64, count: u64) -> impl Future<Output = ()> + Send + 'static {
        let (client, done, shape) = (client(self.args.face, &self.args.nodes), self.done, self.args.shape);
        async move {
            for turn in done..done + count {
                let name = format!("name-{task}-{turn}");
                let lock = both!(lock(&client, shape, &name, turn), lock => lock.timeout(MOMENT));
                let denied = lock.acquire().await.expect_err("others hold it");
                // A busy machine may not answer within a moment.
                assert!(matches!(denied.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{denied}");
            }
        }
    }

    fn leak(&mut self, count: u64) {
        match self.args.leak {
            None => {}
            Some(Leak::Keys) => {
                let client = client(self.args.face, &self.args.nodes);
                let lock: Lock = both!(client, client => client.lock(format!("leaked-{}", self.done)).into());
                let (sender, receiver) = mpsc::channel();
                let acquire = async move { sender.send(lock.acquire().await).expect("it is received") };
                self.args.face.spawn(&RUNTIME, acquire)();
                let guard = receiver.recv().expect("it was sent").expect("nobody else wants it");
                self.leaked.guards.push(guard);
            }
            Some(Leak::Memory) => self.leaked.bytes.extend((0..count).map(|_| [1; 256])),
            Some(Leak::Descriptors) => {
                let path = self.args.nodes[0].trim_start_matches("unix://");
                self.leaked.connections.push(UnixStream::connect(path).expect("the node listens"));
            }
        }
    }
}

pub(crate) fn client(face: Which, nodes: &[String]) -> Client {
    let builder = both!(face::builder(face), builder => builder.nodes(nodes).ttl(TTL).node_timeout(NODE_TIMEOUT));
    builder.build().expect("the options are right")
}

/// A lock of this shape. The names of a set stand around its name, so that it is neither the first nor the last.
pub(crate) fn lock(client: &Client, shape: Shape, name: &str, turn: u64) -> Lock {
    both!(client, client => match shape {
        Shape::Set => client.lock_all([format!("a-{name}"), name.into(), format!("z-{name}")]),
        Shape::Slot => client.semaphore(name, PERMITS),
        Shape::Shared if !turn.is_multiple_of(WRITES) => client.lock(name).shared(),
        Shape::One | Shape::Term | Shape::Shared => client.lock(name).into(),
    })
}

/// Leads for a moment.
async fn lead(client: &Client, name: &str) {
    let led = match client {
        Face::Async(client) => client.election(name).run(async |guard| guard.fence()).await,
        Face::Blocking(client) => client.election(name).run(redlock::blocking::Guard::fence),
    };
    led.expect("the node answers").expect("nobody stops it");
}

/// A release may only stay unconfirmed, as on a frozen or slow node: the background continues it.
pub(crate) fn confirmed(release: &Result<(), Error>) {
    if let Err(error) = release {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
