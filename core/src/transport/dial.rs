//! Dialing: from a node's address to a stream that is ready for commands.
//!
//! States of one dialing: *resolving* the host's name, anew for every connect unless a look-up is under way; *racing* the addresses, IPv6 and IPv4 in
//! turn, each with a head start of [`HEAD_START`] before the next (RFC 8305, "Happy Eyeballs"); *shaking hands* for
//! TLS, on the first TCP connection alone.
//!
//! What may interrupt it: the caller's limit, or its end. Every state is then dropped with what it has opened, and a
//! look-up that is still running goes on in its own thread, for others that dial the same host.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::address::Target;
use crate::sys::boot_time::MISSING;
use crate::sys::clock::Clock;
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::shared_calls::SharedCalls;
use crate::sys::{limits, local_socket};
use crate::texts::opaque;
use crate::transport::failure::Failure;
use crate::transport::progress::{Phase, Progress};
use crate::transport::socket::{Socket, Stream};
use crate::transport::tls::Tls;

/// The time for which an address is tried alone. RFC 8305, section 5, recommends it.
pub(crate) const HEAD_START: Duration = Duration::from_millis(250);

/// The probes of an idle connection that have to be unanswered before it ends.
const PROBES: u32 = 3;

/// The look-ups under way, by host.
type LookUps = SharedCalls<String, Result<Vec<SocketAddr>, String>>;

static LOOK_UPS: PerProcess<Arc<LookUps>> = PerProcess::new();

/// Returns the addresses behind a host's name.
type Resolve = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// A way to a server's stream.
pub(crate) struct Dialer {
    target: Target,
    tls: Option<Arc<Tls>>,
    /// After how long an idle connection is probed; zero if it is not.
    keepalive: Duration,
    resolve: Resolve,
    look_ups: Arc<LookUps>,
}

opaque!(Dialer);

impl Dialer {
    /// Makes a dialer for a server, with `tls` if the connection is to be encrypted. Its connections are probed when they
    /// were idle for `keepalive`, unless that is zero.
    pub(crate) fn new(target: Target, tls: Option<Arc<Tls>>, keepalive: Duration) -> Self {
        let look_ups = Arc::clone(LOOK_UPS.of(Pid::now(), Arc::default));
        Self { target, tls, keepalive, resolve: Arc::new(resolve), look_ups }
    }

    /// Dials, and says in `progress` where it is. Sets no time limit. Cancel safe.
    pub(crate) async fn dial(&self, clock: &Clock, progress: &Progress) -> Result<Stream, Failure> {
        if let Some(missing) = MISSING {
            return Err(Failure::Unreachable(missing.into()));
        }
        match &self.target {
            Target::Tcp { host, port, .. } => {
                // Before the race: files are read while nothing waits at the other end.
                let Some(tls) = &self.tls else {
                    return Ok(Box::new(self.connect(host, *port, clock, progress).await?));
                };
                progress.enter(Phase::Certificates);
                let config = Arc::clone(tls).config().await?;
                let socket = self.connect(host, *port, clock, progress).await?;
                progress.enter(Phase::Tls);
                Ok(Box::new(tls.shake_hands(config, socket).await?))
            }
            Target::Unix { path } => {
                progress.enter(Phase::Open);
                Ok(Box::new(connect_unix(path).await?))
            }
            Target::Memory { .. } | Target::Sentinel { .. } | Target::Cluster { .. } => {
                Err(Failure::Unreachable("it is not a server".into()))
            }
        }
    }

    async fn connect(&self, host: &str, port: u16, clock: &Clock, progress: &Progress) -> Result<Socket, Failure> {
        progress.enter(Phase::Resolve);
        let addresses = self.look_up(host, port).await.map_err(|error| {
            // The text is the resolver's, and does not repeat the name.
            Failure::Unreachable(format!("the host's name cannot be resolved: {error}").into())
        })?;
        progress.enter(Phase::Open);
        let addresses = in_turn(&addresses);
        race(addresses.clone().into_iter().map(|address| connect_tcp(address, self.keepalive)), clock)
            .await
            .map(Socket::new)
            .map_err(|errors| Failure::Unreachable(unreachable(&addresses, &errors).into()))
    }

    async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        // Not a name: no thread for the resolver is needed.
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let (resolve, name) = (Arc::clone(&self.resolve), host.to_owned());
        let looked = self.look_ups.call(host.to_owned(), move |running| {
            running.end(resolve(&name).map_err(|error| error.to_string()));
        });
        let mut addresses = looked.await.unwrap_or_else(|| Err("the system gives it no thread".to_owned()))?;
        for address in &mut addresses {
            address.set_port(port);
        }
        Ok(addresses)
    }
}

/// Asks the operating system for the addresses behind a host's name, which may take long. The ports are meaningless.
fn resolve(host: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((host, 0).to_socket_addrs()?.collect())
}

/// Sorts addresses so that the families alternate. The resolver's first choice stays first.
fn in_turn(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first_family = |address: &SocketAddr| address.is_ipv6() == addresses[0].is_ipv6();
    let (first, second): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(is_first_family);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut sorted = Vec::with_capacity(addresses.len());
    while sorted.len() < addresses.len() {
        sorted.extend(first.next());
        sorted.extend(second.next());
    }
    sorted
}

/// Runs `attempts` until the first success, and drops the others then. The next attempt begins after [`HEAD_START`], or
/// as soon as one fails. Returns all errors if there is no success.
pub(crate) async fn race<T, E, F>(attempts: impl Iterator<Item = F>, clock: &Clock) -> Result<T, Vec<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut attempts = attempts.peekable();
    let (mut running, mut errors) = (Vec::new(), Vec::new());
    loop {
        running.extend(attempts.next().map(Box::pin));
        if running.is_empty() {
            return Err(errors);
        }
        let finished = pin!(next_finished(&mut running));
        let finished = match attempts.peek() {
            Some(_) => clock.timeout(HEAD_START, finished).await,
            None => Some(finished.await),
        };
        match finished {
            Some(Ok(winner)) => return Ok(winner),
            Some(Err(error)) => errors.push(error),
            None => {}
        }
    }
}

/// Removes the first future that is ready, and returns its output. Cancel safe.
async fn next_finished<F: Future>(running: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|cx| {
        let ready = running.iter_mut().enumerate().find_map(|(i, future)| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some((i, output)),
            Poll::Pending => None,
        });
        match ready {
            Some((i, output)) => {
                drop(running.swap_remove(i));
                Poll::Ready(output)
            }
            None => Poll::Pending,
        }
    })
    .await
}

async fn connect_tcp(address: SocketAddr, keepalive: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // A lock's requests are small and each is awaited: never hold one back to fill a packet.
    stream.set_nodelay(true)?;
    if !keepalive.is_zero() {
        // As servers do it: three probes, which take as long together as the connection was idle before.
        let interval = (keepalive / PROBES).max(Duration::from_secs(1));
        let probes = TcpKeepalive::new().with_time(keepalive).with_interval(interval).with_retries(PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
    }
    Ok(stream)
}

async fn connect_unix(path: &Path) -> Result<Socket, Failure> {
    let stream = local_socket::connect(path).await;
    stream.map(Socket::new).map_err(|error| Failure::Unreachable(reason(&error).into()))
}

/// Words the errors of all addresses. A single address stands in the message already.
fn unreachable(addresses: &[SocketAddr], errors: &[io::Error]) -> String {
    let mut said: Vec<_> = errors.iter().map(reason).collect();
    said.dedup();
    let tried: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
    match (said.join(", "), tried.len()) {
        (_, 0) => "the host's name does not have an address".to_owned(),
        (said, 1) => said,
        (said, _) => format!("{said} (tried {})", tried.join(", ")),
    }
}

/// Words an error of the operating system, without what it is about.
fn reason(error: &io::Error) -> String {
    let said = || match error.kind() {
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        // Of a socket with a path.
        io::ErrorKind::WouldBlock => "too many wait there to be accepted; raise its tcp-backlog".to_owned(),
        io::ErrorKind::InvalidInput if error.raw_os_error().is_none() => "its path is too long for a socket".to_owned(),
        // There the system's own words say more.
        kind if kind.to_string().starts_with("uncategorized") => error.to_string(),
        kind => kind.to_string(),
    };
    limits::exhausted(error).map_or_else(said, str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tokio::net::{TcpListener, TcpSocket};

    use rustix::io::Errno;

    use super::*;
    use crate::sys::future::join_all;
    use crate::sys::mutex::Mutex;

    const LIMIT: Duration = Duration::from_millis(300);
    const KEEPALIVE: Duration = Duration::from_secs(60);
    /// Fewer than a listener keeps for a program that accepts none.
    const DIALS: usize = 50;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 6379)
    }

    fn address6(last: u16) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, last).into(), 6379)
    }

    #[test]
    fn families_alternate_and_the_first_choice_stays() {
        assert_eq!(in_turn(&[]), []);
        let (four, six) = ([1, 2, 3].map(address), [1, 2].map(address6));
        assert_eq!(in_turn(&[six.as_slice(), &four].concat()), [six[0], four[0], six[1], four[1], four[2]]);
        assert_eq!(in_turn(&[four[0], four[1], six[0]]), [four[0], six[0], four[1]]);
        assert_eq!(in_turn(&four), four);
    }

    /// A listener that answers no connect any more: its queue is full.
    async fn dead(ip: IpAddr, port: u16) -> (TcpListener, Vec<tokio::task::JoinHandle<()>>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::new(ip, port)).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut full = Vec::new();
        loop {
            let connect = TcpStream::connect(address);
            match Clock::System.timeout(Duration::from_millis(200), pin!(connect)).await {
                Some(stream) => {
                    let stream = stream.unwrap();
                    full.push(tokio::spawn(async move {
                        let _stream = stream;
                        std::future::pending::<()>().await;
                    }));
                }
                None => return (listener, full),
            }
        }
    }

    /// Makes a dialer to a host, and the addresses behind its name, which a test may change.
    fn dialer(port: u16, addresses: &[IpAddr]) -> (Dialer, Arc<Mutex<Vec<IpAddr>>>) {
        let addresses = Arc::new(Mutex::new(addresses.to_vec()));
        let target = Target::Tcp { host: "name".into(), port, tls: false };
        let named = Arc::clone(&addresses);
        let resolve: Resolve = Arc::new(move |_| Ok(named.lock().iter().map(|ip| SocketAddr::new(*ip, 0)).collect()));
        (Dialer { target, tls: None, keepalive: KEEPALIVE, resolve, look_ups: Arc::default() }, addresses)
    }

    fn peer(mut stream: Stream) -> IpAddr {
        stream.socket().unwrap().peer().ip()
    }

    #[tokio::test]
    async fn a_dead_address_costs_its_head_start() {
        let (dead_ip, live_ip) = (Ipv4Addr::new(127, 0, 0, 2).into(), Ipv4Addr::LOCALHOST.into());
        let live = TcpListener::bind((live_ip, 0)).await.unwrap();
        let port = live.local_addr().unwrap().port();
        let _dead = dead(dead_ip, port).await;
        let (dialer, _) = dialer(port, &[dead_ip, live_ip]);
        let start = Clock::System.now();
        let stream = dialer.dial(&Clock::System, &Progress::default()).await.unwrap();
        assert_eq!(peer(stream), live_ip);
        let took = Clock::System.now().since(start);
        assert!(took >= HEAD_START && took < LIMIT + harness::SLACK, "{took:?}");
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_nothing_and_all_are_named() {
        let (first, second) = (Ipv4Addr::new(127, 0, 0, 2).into(), Ipv4Addr::LOCALHOST.into());
        let live = TcpListener::bind((second, 0)).await.unwrap();
        let port = live.local_addr().unwrap().port();
        let (dialer, addresses) = dialer(port, &[first, second]);
        let start = Clock::System.now();
        assert_eq!(peer(dialer.dial(&Clock::System, &Progress::default()).await.unwrap()), second);
        assert!(Clock::System.now().since(start) < HEAD_START + harness::SLACK);
        drop(live);
        let refused = dialer.dial(&Clock::System, &Progress::default()).await.unwrap_err();
        assert_eq!(refused.to_string(), "cannot be reached: connection refused (tried 127.0.0.2, 127.0.0.1)");
        addresses.lock().clear();
        let refused = dialer.dial(&Clock::System, &Progress::default()).await.unwrap_err();
        assert_eq!(refused.to_string(), "cannot be reached: the host's name does not have an address");
    }

    /// As where a machine lacks IPv6.
    #[test]
    fn the_last_error_does_not_hide_the_others() {
        let addresses = [(Ipv4Addr::LOCALHOST, 1).into(), (Ipv6Addr::LOCALHOST, 1).into()];
        let errors = [io::ErrorKind::ConnectionRefused, io::ErrorKind::AddrNotAvailable].map(io::Error::from);
        assert_eq!(
            unreachable(&addresses, &errors),
            "connection refused, address not available (tried 127.0.0.1, ::1)"
        );
    }

    #[tokio::test]
    async fn a_path_that_leads_to_no_server_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        let [none, datagrams, long] = ["none", "datagrams", &"x".repeat(200)].map(|name| dir.path().join(name));
        let _socket = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
        for (path, said) in [(none, "no such socket"), (datagrams, "wrong type"), (long, "too long")] {
            let dialer = Dialer::new(Target::Unix { path }, None, KEEPALIVE);
            let refused = dialer.dial(&Clock::System, &Progress::default()).await.unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_changed_answer_is_taken_at_the_next_connect() {
        let (before, after) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 2).into());
        let old = TcpListener::bind((before, 0)).await.unwrap();
        let port = old.local_addr().unwrap().port();
        let _new = TcpListener::bind((after, port)).await.unwrap();
        let (dialer, addresses) = dialer(port, &[before]);
        assert_eq!(peer(dialer.dial(&Clock::System, &Progress::default()).await.unwrap()), before);
        *addresses.lock() = vec![after];
        assert_eq!(peer(dialer.dial(&Clock::System, &Progress::default()).await.unwrap()), after);
    }

    #[tokio::test]
    async fn a_resolver_that_hangs_is_asked_once_and_each_keeps_its_own_limit() {
        let live = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (dialer, addresses) = dialer(live.local_addr().unwrap().port(), &[Ipv4Addr::LOCALHOST.into()]);
        let (go_on, hangs) = std::sync::mpsc::channel::<()>();
        let hung = Arc::clone(&addresses);
        let (locked, is_locked) = tokio::sync::oneshot::channel();
        let resolver = std::thread::spawn(move || {
            let _hangs = hung.lock();
            locked.send(()).unwrap();
            let _ = hangs.recv();
        });
        is_locked.await.unwrap();
        let progress = Progress::default();
        let dials = || join_all((0..DIALS).map(|_| dialer.dial(&Clock::System, &progress)).collect());
        let start = Clock::System.now();
        assert!(Clock::System.timeout(LIMIT, pin!(dials())).await.is_none());
        assert!(Clock::System.now().since(start) < LIMIT + harness::SLACK);
        assert_eq!(Arc::strong_count(&dialer.resolve), 2, "the dialer's, and that of one look-up");
        drop(go_on);
        resolver.join().unwrap();
        assert!(dials().await.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn a_connection_is_probed_when_it_was_idle() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = connect_tcp(address, KEEPALIVE).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(
            (socket.tcp_keepalive_interval().unwrap(), socket.tcp_keepalive_retries().unwrap()),
            (KEEPALIVE / 3, 3)
        );
        let stream = connect_tcp(address, Duration::ZERO).await.unwrap();
        assert!(!SockRef::from(&stream).keepalive().unwrap());
    }

    #[test]
    fn a_limit_of_the_system_is_named() {
        let reason = |errno: Errno| reason(&io::Error::from(errno));
        assert_eq!(reason(Errno::MFILE), "this process has too many open files; raise the limit (ulimit -n)");
        assert!(reason(Errno::NFILE).contains("fs.file-max"));
        // What Linux says of a socket with a path whose queue is full.
        assert!(reason(Errno::AGAIN).contains("tcp-backlog"));
        assert_eq!(reason(Errno::CONNREFUSED), "connection refused");
    }

    #[tokio::test]
    async fn the_first_to_succeed_wins_and_the_others_end() {
        let ended = Arc::new(());
        let attempt = |millis: u64, result: Result<u64, u64>| {
            let ended = Arc::clone(&ended);
            async move {
                Clock::System.sleep(Duration::from_millis(millis)).await;
                drop(ended);
                result
            }
        };
        let slow = attempt(60_000, Ok(1));
        assert_eq!(race([slow, attempt(1, Err(2)), attempt(1, Ok(3))].into_iter(), &Clock::System).await, Ok(3));
        assert_eq!(Arc::strong_count(&ended), 1);
        assert_eq!(race([attempt(9, Err(4)), attempt(1, Err(5))].into_iter(), &Clock::System).await, Err(vec![4, 5]));
    }
}
