//! The proxy does to connections what tests rely on, on unix sockets and on TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use redlock_harness::{Proxy, Server, eventually};

/// A client that sees every byte.
enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Client {
    fn to(proxy: &Proxy) -> std::io::Result<Self> {
        let url = proxy.url();
        let client = match url.strip_prefix("unix://") {
            Some(path) => Self::Unix(UnixStream::connect(path)?),
            None => Self::Tcp(TcpStream::connect(url.trim_start_matches("redis://").trim_end_matches('/'))?),
        };
        client.patience(Duration::from_secs(10));
        Ok(client)
    }

    fn patience(&self, patience: Duration) {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(patience)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(patience)),
        }
        .expect("a timeout can be set");
    }

    fn send(&mut self, bytes: &str) {
        match self {
            Self::Unix(stream) => stream.write_all(bytes.as_bytes()),
            Self::Tcp(stream) => stream.write_all(bytes.as_bytes()),
        }
        .expect("the proxy takes everything in");
    }

    fn receive(&mut self) -> std::io::Result<String> {
        let mut buffer = [0; 1024];
        let n = match self {
            Self::Unix(stream) => stream.read(&mut buffer),
            Self::Tcp(stream) => stream.read(&mut buffer),
        }?;
        Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
    }

    fn ping(&mut self) -> std::io::Result<String> {
        self.send("PING\r\n");
        self.receive()
    }

    /// Nothing arrives for a moment.
    fn assert_silent(&mut self) {
        self.patience(Duration::from_millis(30));
        let error = self.receive().expect_err("nothing arrives");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        self.patience(Duration::from_secs(10));
    }

    /// The connection has ended: with a reset on TCP or in order.
    fn assert_ended(&mut self) {
        match self.receive() {
            Ok(bytes) => assert_eq!(bytes, ""),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::ConnectionReset), "{error}"),
        }
    }
}

fn on_both_kinds(test: impl Fn(&Server, &Proxy)) {
    for tcp in [false, true] {
        let server = Server::builder().tcp(tcp).start();
        test(&server, &Proxy::to(&server));
    }
}

fn connect(proxy: &Proxy) -> Client {
    Client::to(proxy).expect("the proxy accepts")
}

#[test]
fn a_held_request_arrives_even_after_its_client_has_gone() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        proxy.hold_requests();
        client.send("SET a b\r\n");
        eventually("the request is held", || proxy.requests_waiting() == 9);
        drop(client);
        proxy.let_go();
        eventually("the request arrives", || server.get("a").is_some());
    });
}

#[test]
fn lost_bytes_never_arrive() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        proxy.drop_replies();
        client.send("SET a b\r\n");
        eventually("the server obeys", || server.get("a").is_some());
        eventually("the reply is lost", || proxy.replies_seen() == 5);
        client.assert_silent();
        proxy.let_go();
        client.send("PING\r\n");
        client.assert_silent(); // a stream with a gap stays dead
        assert_eq!(connect(proxy).ping().expect("a new connection is whole"), "+PONG\r\n");
    });
}

#[test]
fn a_delay_is_added_in_each_direction_without_costing_throughput() {
    on_both_kinds(|_, proxy| {
        let mut client = connect(proxy);
        proxy.delay(Duration::from_millis(40));
        let start = Instant::now();
        for _ in 0..20 {
            client.send("PING\r\n");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut answers = String::new();
        while answers.len() < 20 * 7 {
            answers += &client.receive().expect("an answer");
        }
        assert!(start.elapsed() >= Duration::from_millis(80));
        assert!(start.elapsed() < Duration::from_millis(20 * 80), "delays add up: {:?}", start.elapsed());
        proxy.delay(Duration::ZERO);
        assert_eq!(client.ping().expect("an answer"), "+PONG\r\n");
    });
}

#[test]
fn a_cut_passes_so_many_bytes_and_breaks_the_connection() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        proxy.cut_replies_after(3);
        client.send("SET a b\r\n");
        assert_eq!(client.receive().expect("the first bytes"), "+OK");
        client.assert_ended();
        assert_eq!(server.get("a"), Some(b"b".to_vec()));
        proxy.let_go();
        assert_eq!(connect(proxy).ping().expect("an answer"), "+PONG\r\n");
    });
}
