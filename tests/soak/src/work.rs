//! What is done again and again and must leave nothing behind.

use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use redlock::{Error, ErrorKind};

use crate::args::{Args, Leak, Work};
use crate::face::{Face, Wait};

/// How many want one name at once.
const WAITERS: u64 = 4;

/// How many are denied at once.
const DENIED: u64 = 64;

pub(crate) struct Worker<F: Face> {
    args: Args,
    /// Not where each turn opens its own: the clients of one process share connections.
    client: Option<F::Client>,
    done: u64,
    leaked: Leaked<F>,
}

/// What a leaking worker keeps.
struct Leaked<F: Face> {
    guards: Vec<F::Guard>,
    bytes: Vec<[u8; 256]>,
    connections: Vec<UnixStream>,
}

impl<F: Face> Worker<F> {
    pub(crate) fn new(args: Args) -> Self {
        let client = (args.work != Work::Clients).then(|| client::<F>(&args.nodes));
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
            Work::Denied => F::spawn(self.denials(task, count / tasks)),
            _ => F::spawn(self.turns(count / tasks)),
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
        async move {
            for turn in done..done + count {
                let client = own.clone().unwrap_or_else(|| client::<F>(&nodes));
                let name = if work == Work::Names { format!("name-{turn}") } else { "name".into() };
                let guard = F::acquire(&client, &name).await.expect("the node answers within ten seconds");
                confirmed(&F::release(guard).await);
            }
        }
    }

    /// Wants names that others hold.
    fn denials(&self, task: u64, count: u64) -> impl Future<Output = ()> + Send + 'static {
        let (client, done) = (client::<F>(&self.args.nodes), self.done);
        async move {
            for turn in done..done + count {
                let denied = F::want(&client, &format!("name-{task}-{turn}")).await.err().expect("others hold it");
                // On a busy machine nobody may answer within a moment.
                assert!(matches!(denied.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{denied}");
            }
        }
    }

    fn leak(&mut self, count: u64) {
        match self.args.leak {
            None => {}
            Some(Leak::Keys) => {
                let (client, name) = (client::<F>(&self.args.nodes), format!("leaked-{}", self.done));
                let (sender, receiver) = mpsc::channel();
                F::spawn(async move { sender.send(F::acquire(&client, &name).await).expect("it is received") })();
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

pub(crate) fn client<F: Face>(nodes: &[String]) -> F::Client {
    F::client(nodes).expect("the options are right")
}

/// A release may only stay unconfirmed, as that of a frozen or slow node does: the background goes on with it.
pub(crate) fn confirmed(release: &Result<(), Error>) {
    if let Err(error) = release {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
