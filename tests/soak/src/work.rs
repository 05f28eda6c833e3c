//! Repeated actions that must leave nothing behind.

use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use face::{Client, Guard, Wait, Which, both};
use redlock::{Error, ErrorKind};
use tokio::runtime::{Builder, Runtime};

use crate::args::{Args, Leak, Work};

/// How many tasks compete for one name.
const WAITERS: u64 = 4;

/// How many calls are denied at once.
const DENIED: u64 = 64;

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
            _ => 1,
        };
        let start = |task| match self.args.work {
            Work::Denied => self.args.face.spawn(&RUNTIME, self.denials(task, count / tasks)),
            _ => self.args.face.spawn(&RUNTIME, self.turns(count / tasks)),
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

    fn turns(&self, count: u64) -> impl Future<Output = ()> + Send + 'static {
        let (work, nodes, own, done) = (self.args.work, self.args.nodes.clone(), self.client.clone(), self.done);
        let face = self.args.face;
        async move {
            for turn in done..done + count {
                let client = own.clone().unwrap_or_else(|| client(face, &nodes));
                let name = if work == Work::Names { format!("name-{turn}") } else { "name".into() };
                let lock = both!(&client, client => client.lock(&name));
                let guard = lock.acquire().await.expect("the node answers within ten seconds");
                confirmed(&guard.release().await);
            }
        }
    }

    /// Tries to acquire names that others hold.
    fn denials(&self, task: u64, count: u64) -> impl Future<Output = ()> + Send + 'static {
        let (client, done) = (client(self.args.face, &self.args.nodes), self.done);
        async move {
            for turn in done..done + count {
                let name = format!("name-{task}-{turn}");
                let lock = both!(&client, client => client.lock(&name).timeout(MOMENT));
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
                let lock = both!(client, client => client.lock(format!("leaked-{}", self.done)));
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

/// A release may only stay unconfirmed, as on a frozen or slow node: the background continues it.
pub(crate) fn confirmed(release: &Result<(), Error>) {
    if let Err(error) = release {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
