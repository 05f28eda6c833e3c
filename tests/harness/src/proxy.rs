//! A proxy in front of one server that delays, holds, loses or cuts what passes.
//!
//! Each connection has two directions, requests and replies. A direction is one thread that reads into a queue and
//! one that writes from it, so a held or delayed direction still takes everything in and still sees the end.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
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
        let unix = |path| SockAddr::unix(path).expect("a path that is short enough");
        let (address, upstream, listener) = if scheme == "unix" {
            let address = unix(dir.path().join("proxy.sock"));
            let listener = listen(&address);
            (address, unix(server.socket()), listener)
        } else {
            let local = |port| SockAddr::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
            let listener = ports::listen();
            (local(ports::port(&listener)), local(server.port()), listener.into())
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
        let address = &self.shared.address;
        match address.as_pathname() {
            Some(path) => format!("unix://{}", path.display()),
            None => format!("{}://{}/", self.scheme, address.as_socket().expect("an address of TCP")),
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
                let _ = connect(&self.shared.address);
                thread.join().expect("the accepting thread does not panic");
            }
            (false, None) => {
                self.shared.refusing.store(false, Ordering::SeqCst);
                *accepting = Some(accept(&self.shared, listen(&self.shared.address)));
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
    /// Breaks the connection now: with a reset on TCP, with its end on a unix socket.
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
            // Its close is a reset then. Only reading ends at once: an end of writing would be sent before the reset.
            let _ = client.set_linger(Some(Duration::ZERO));
            let _ = client.shutdown(Shutdown::Read);
        }
        if let Some(server) = server {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Connects the two ends and moves bytes until both directions have ended.
    fn run(&self, client: &Socket, upstream: &SockAddr) {
        let Ok(server) = connect(upstream).map(Arc::new) else { return self.reset() };
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
            let _ = end.shutdown(Shutdown::Both);
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
    address: SockAddr,
    upstream: SockAddr,
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
    fn add(&mut self, client: &Arc<Socket>) -> Link {
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
fn accept(shared: &Arc<Shared>, listener: Socket) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        loop {
            let client = listener.accept();
            if shared.refusing.load(Ordering::SeqCst) {
                // Closing alone does not stop it at once: a child that another thread is just starting has a copy of
                // every open file until it runs its own program. Where it cannot be shut down, closing has to do.
                let _ = listener.shutdown(Shutdown::Read);
                return;
            }
            let Ok(client) = client.and_then(|(client, _)| at_once(client)).map(Arc::new) else { continue };
            let link = shared.state().add(&client);
            let shared = Arc::clone(&shared);
            thread::spawn(move || link.run(&client, &shared.upstream));
        }
    })
}

/// The open sockets of a connection, for [`Link::reset`].
#[derive(Debug, Default)]
struct Ends {
    client: Option<Arc<Socket>>,
    server: Option<Arc<Socket>>,
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
    fn take_in(&self, source: &Socket) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n = match (&*source).read(&mut buffer) {
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
    fn pass_on(&self, target: &Socket, link: &Link) {
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
            if (&*target).write_all(&bytes).is_err() {
                return link.reset();
            }
            if cut {
                return link.close();
            }
        }
        if !self.queue().closed {
            // It may be gone already.
            let _ = target.shutdown(Shutdown::Write);
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

fn connect(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.connect(address)?;
    at_once(socket)
}

/// Has a connection send small parts at once.
fn at_once(socket: Socket) -> io::Result<Socket> {
    if socket.domain()? == Domain::IPV4 {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(socket)
}

fn listen(address: &SockAddr) -> Socket {
    if let Some(path) = address.as_pathname() {
        // Left by an earlier listener, or not there.
        let _ = fs::remove_file(path);
    }
    let listening = || {
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(address)?;
        socket.listen(128)?;
        io::Result::Ok(socket)
    };
    listening().expect("nobody else took the proxy's address")
}
