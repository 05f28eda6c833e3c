//! A proxy in front of one server that delays, holds, loses or cuts what passes.
//!
//! Each connection has two directions, requests and replies. A direction is one thread that reads into a queue and
//! one that writes from it, so a held or delayed direction still takes everything in and still sees the end.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Server, ports};

/// Stands between clients and one [`Server`], on an address of the same kind: unix socket or TCP (TLS passes through).
///
/// Its methods are for all connections, those made already and those still to come, but for [`Proxy::hold_connection`].
/// Dropping it closes its connections and its address.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    scheme: &'static str,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// Holds the unix socket; gone with the proxy.
    _dir: TempDir,
}

/// One connection through a [`Proxy`].
#[derive(Clone, Debug)]
struct Link {
    requests: Arc<Direction>,
    replies: Arc<Direction>,
    ends: Arc<Mutex<Ends>>,
    met: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy in front of `server`. The server may be killed and restarted behind it.
    #[must_use]
    pub fn to(server: &Server) -> Self {
        let url = server.url();
        let scheme = url.split_once(':').expect("a URL has a scheme").0;
        let scheme = ["unix", "redis", "rediss"].into_iter().find(|&known| known == scheme).expect("a known scheme");
        let dir = tempfile::Builder::new().prefix("redlock-").tempdir().expect("a temporary directory can be made");
        let (address, upstream, listener) = if scheme == "unix" {
            let address = Address::Unix(dir.path().join("proxy.sock"));
            let listener = address.listen();
            (address, Address::Unix(server.socket()), listener)
        } else {
            let listener = ports::listen();
            (Address::Tcp(ports::port(&listener)), Address::Tcp(server.port()), Listener::Tcp(listener))
        };
        let shared = Arc::new(Shared {
            address,
            upstream,
            refusing: AtomicBool::new(false),
            state: Mutex::new(State {
                links: Vec::new(),
                requests: Faults::NONE,
                replies: Faults::NONE,
                met: Arc::default(),
            }),
        });
        let accepting = Mutex::new(Some(accept(&shared, listener)));
        Self { shared, scheme, accepting, _dir: dir }
    }

    /// The address for the code under test.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.shared.address {
            Address::Unix(path) => format!("unix://{}", path.display()),
            Address::Tcp(port) => format!("{}://127.0.0.1:{port}/", self.scheme),
        }
    }

    /// How many connections were accepted so far, closed ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state().links.len()
    }

    /// Takes requests in and keeps them until [`Proxy::let_go`].
    pub fn hold_requests(&self) {
        self.shared.requests(|faults| faults.hold = true);
    }

    /// Lets the server answer and keeps the replies until [`Proxy::let_go`].
    pub fn hold_replies(&self) {
        self.shared.replies(|faults| faults.hold = true);
    }

    /// Holds both directions of the `i`-th connection in the order of accept, from 0.
    pub fn hold_connection(&self, i: usize) {
        let link = self.shared.state().links[i].clone();
        link.requests.change(|faults| faults.hold = true);
        link.replies.change(|faults| faults.hold = true);
    }

    /// Loses everything the server answers from now on. A connection that lost something stays dead after
    /// [`Proxy::let_go`], as no stream goes on after a gap.
    pub fn drop_replies(&self) {
        self.shared.replies(|faults| faults.lose = true);
    }

    /// Sends on what was held, in order, and ends all holding, dropping and cutting, of single connections too.
    pub fn let_go(&self) {
        let heal = |faults: &mut Faults| *faults = Faults { delay: faults.delay, ..Faults::NONE };
        self.shared.requests(heal);
        self.shared.replies(heal);
    }

    /// Adds `delay` to every request and every reply that arrives from now on; zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.shared.requests(|faults| faults.delay = delay);
        self.delay_replies(delay);
    }

    /// Adds `delay` to every reply that arrives from now on; zero ends it.
    pub fn delay_replies(&self, delay: Duration) {
        self.shared.replies(|faults| faults.delay = delay);
    }

    /// Breaks each connection once it has passed `n` more bytes of replies.
    pub fn cut_replies_after(&self, n: usize) {
        self.shared.replies(|faults| faults.cut = Some(n));
    }

    /// Ends each connection at a request with this word, which the server does not get: the first `most` of them.
    pub fn end_at(&self, word: &'static str, most: usize) {
        self.shared.requests(|faults| faults.end_at = Some((word, most)));
    }

    /// How many connections had a request with the word.
    #[must_use]
    pub fn met(&self) -> usize {
        self.shared.state().met.load(Ordering::SeqCst)
    }

    /// Breaks all connections now: with a reset on TCP, by closing on a unix socket.
    pub fn reset(&self) {
        let links = self.shared.state().links.clone();
        links.iter().for_each(Link::reset);
    }

    /// With `true` new connections are refused, as by a machine where nothing listens; open ones stay.
    pub fn refuse(&self, refuse: bool) {
        let mut accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        match (refuse, accepting.take()) {
            (true, Some(thread)) => {
                self.shared.refusing.store(true, Ordering::SeqCst);
                // Wakes the thread out of accept(); it sees the flag and closes the listener.
                let _ = self.shared.address.connect();
                thread.join().expect("the accepting thread does not panic");
            }
            (false, None) => {
                self.shared.refusing.store(false, Ordering::SeqCst);
                *accepting = Some(accept(&self.shared, self.shared.address.listen()));
            }
            (_, unchanged) => *accepting = unchanged,
        }
    }

    /// How many bytes of requests wait here now, held or delayed.
    #[must_use]
    pub fn requests_waiting(&self) -> usize {
        self.shared.state().links.iter().map(|link| link.requests.queue().waiting()).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse(true);
        self.reset();
    }
}

impl Link {
    /// Breaks the connection now: with a reset on TCP, by closing on a unix socket.
    fn reset(&self) {
        let (client, server) = {
            let mut ends = self.ends();
            ends.broken = true;
            (ends.client.take(), ends.server.take())
        };
        if let Some(client) = client {
            // The directions first, or the end of one side would still be passed on to the other in order.
            self.requests.close();
            self.replies.close();
            client.abort();
        }
        if let Some(server) = server {
            server.shutdown(Shutdown::Both);
        }
    }

    /// Connects the two ends and moves bytes until both directions have ended.
    fn run(&self, client: &Stream, upstream: &Address) {
        let Ok(server) = upstream.connect().map(Arc::new) else { return self.reset() };
        {
            let mut ends = self.ends();
            if ends.broken {
                return;
            }
            ends.server = Some(Arc::clone(&server));
        }
        thread::scope(|scope| {
            scope.spawn(|| self.requests.take_in(client));
            scope.spawn(|| self.replies.take_in(&server));
            scope.spawn(|| self.requests.pass_on(&server, self));
            scope.spawn(|| self.replies.pass_on(client, self));
        });
        *self.ends() = Ends::default();
    }

    /// Ends the connection in order, after what was written: what a cut does.
    fn close(&self) {
        let ends = self.ends();
        for end in [&ends.client, &ends.server].into_iter().flatten() {
            end.shutdown(Shutdown::Both);
        }
        drop(ends);
        self.requests.close();
        self.replies.close();
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Shared {
    address: Address,
    upstream: Address,
    refusing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By order of accept, closed ones included.
    links: Vec<Link>,
    /// What new links start with.
    requests: Faults,
    replies: Faults,
    met: Arc<AtomicUsize>,
}

impl State {
    fn add(&mut self, client: &Arc<Stream>) -> Link {
        let link = Link {
            requests: Arc::new(Direction::new(self.requests)),
            replies: Arc::new(Direction::new(self.replies)),
            ends: Arc::new(Mutex::new(Ends { client: Some(Arc::clone(client)), server: None, broken: false })),
            met: Arc::clone(&self.met),
        };
        self.links.push(link.clone());
        link
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self, change: impl Fn(&mut Faults)) {
        let mut state = self.state();
        change(&mut state.requests);
        state.links.iter().for_each(|link| link.requests.change(&change));
    }

    fn replies(&self, change: impl Fn(&mut Faults)) {
        let mut state = self.state();
        change(&mut state.replies);
        state.links.iter().for_each(|link| link.replies.change(&change));
    }
}

/// Accepts until `refusing` is set, then closes the listener.
fn accept(shared: &Arc<Shared>, listener: Listener) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        loop {
            let client = listener.accept();
            if shared.refusing.load(Ordering::SeqCst) {
                return listener.close();
            }
            let Ok(client) = client.map(Arc::new) else { continue };
            let link = shared.state().add(&client);
            let shared = Arc::clone(&shared);
            thread::spawn(move || link.run(&client, &shared.upstream));
        }
    })
}

/// The open sockets of a connection, for [`Link::reset`].
#[derive(Debug, Default)]
struct Ends {
    client: Option<Arc<Stream>>,
    server: Option<Arc<Stream>>,
    /// Reset before the server's end was open.
    broken: bool,
}

#[derive(Clone, Copy, Debug)]
struct Faults {
    hold: bool,
    lose: bool,
    delay: Duration,
    cut: Option<usize>,
    end_at: Option<(&'static str, usize)>,
}

impl Faults {
    const NONE: Self = Self { hold: false, lose: false, delay: Duration::ZERO, cut: None, end_at: None };
}

/// One way through the proxy.
#[derive(Debug)]
struct Direction {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    faults: Faults,
    /// Bytes and when they are due; `None` is the end of the stream.
    chunks: VecDeque<(Instant, Option<Vec<u8>>)>,
    /// Something was lost, so nothing may follow.
    gap: bool,
    closed: bool,
}

impl Queue {
    fn waiting(&self) -> usize {
        self.chunks.iter().filter_map(|(_, bytes)| Some(bytes.as_ref()?.len())).sum()
    }
}

impl Direction {
    fn new(faults: Faults) -> Self {
        let queue = Queue { faults, chunks: VecDeque::new(), gap: false, closed: false };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        let mut queue = self.queue();
        change(&mut queue.faults);
        if queue.faults.lose && !queue.chunks.is_empty() {
            queue.chunks.clear();
            queue.gap = true;
        }
        self.changed.notify_all();
    }

    fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }

    /// Reads `source` to its end.
    fn take_in(&self, source: &Stream) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n = match source.read(&mut buffer) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let mut queue = self.queue();
            if queue.faults.lose || queue.gap {
                queue.gap = true;
            } else {
                let due = Instant::now() + queue.faults.delay;
                queue.chunks.push_back((due, (n > 0).then(|| buffer[..n].to_vec())));
                self.changed.notify_all();
            }
            if n == 0 {
                return;
            }
        }
    }

    /// Writes what is due to `target` until the end of the stream.
    fn pass_on(&self, target: &Stream, link: &Link) {
        while let Some(mut bytes) = self.next() {
            let cut = {
                let mut queue = self.queue();
                if let Some((word, most)) = queue.faults.end_at
                    && bytes.windows(word.len()).any(|part| part == word.as_bytes())
                    && link.met.fetch_add(1, Ordering::SeqCst) < most
                {
                    drop(queue);
                    return link.close();
                }
                match queue.faults.cut.as_mut() {
                    Some(left) if bytes.len() >= *left => {
                        bytes.truncate(*left);
                        true
                    }
                    Some(left) => {
                        *left -= bytes.len();
                        false
                    }
                    None => false,
                }
            };
            if target.write_all(&bytes).is_err() {
                return link.reset();
            }
            if cut {
                return link.close();
            }
        }
        if !self.queue().closed {
            target.shutdown(Shutdown::Write);
        }
    }

    /// The next chunk, once it is due and not held; `None` at the end.
    fn next(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue();
        loop {
            if queue.closed {
                return None;
            }
            let now = Instant::now();
            let due = queue.chunks.front().map(|(due, _)| *due);
            queue = match due {
                Some(due) if !queue.faults.hold && due <= now => return queue.chunks.pop_front()?.1,
                Some(due) if !queue.faults.hold => {
                    self.changed.wait_timeout(queue, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[derive(Debug)]
enum Address {
    Unix(PathBuf),
    Tcp(u16),
}

impl Address {
    fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Self::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    fn listen(&self) -> Listener {
        match self {
            Self::Unix(path) => {
                // Left by an earlier listener, or not there.
                let _ = fs::remove_file(path);
                Listener::Unix(UnixListener::bind(path).expect("a socket can be made in our own directory"))
            }
            Self::Tcp(port) => {
                Listener::Tcp(TcpListener::bind(("127.0.0.1", *port)).expect("nobody else took the proxy's port"))
            }
        }
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Stops listening at once. Closing alone is not enough: a child that another thread is just starting has a copy
    /// of every open file until it runs its own program. (Where a listener cannot be shut down, closing has to do.)
    fn close(self) {
        let how = rustix::net::Shutdown::Read;
        let _ = match &self {
            Self::Unix(listener) => rustix::net::shutdown(listener, how),
            Self::Tcp(listener) => rustix::net::shutdown(listener, how),
        };
    }
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => (&*stream).read(buffer),
            Self::Tcp(stream) => (&*stream).read(buffer),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => (&*stream).write_all(bytes),
            Self::Tcp(stream) => (&*stream).write_all(bytes),
        }
    }

    /// Errors only where the other side is gone already.
    fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }

    /// Wakes our threads out of this socket and makes its close a reset.
    fn abort(&self) {
        match self {
            Self::Unix(_) => self.shutdown(Shutdown::Both),
            Self::Tcp(_) => {
                let _ = rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO));
                // Only reading: a shutdown of writing would send an orderly end before the reset.
                self.shutdown(Shutdown::Read);
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}
