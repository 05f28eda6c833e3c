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
fn without_faults_everything_passes() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        assert_eq!(client.ping().expect("an answer"), "+PONG\r\n");
        assert_eq!((proxy.connections(), proxy.requests_seen(), proxy.replies_seen()), (1, 6, 7));
        client.send("SET a b\r\n");
        assert_eq!(client.receive().expect("an answer"), "+OK\r\n");
        assert_eq!(server.get("a"), Some(b"b".to_vec()));
        // The end of either side reaches the other.
        server.kill();
        client.assert_ended();
    });
}

#[test]
fn held_requests_arrive_when_let_go() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        proxy.hold_requests();
        client.send("SET a b\r\n");
        eventually("the request is held", || proxy.requests_waiting() == 9);
        client.assert_silent();
        assert_eq!(server.get("a"), None);
        proxy.let_go();
        assert_eq!(client.receive().expect("an answer"), "+OK\r\n");
        assert_eq!(server.get("a"), Some(b"b".to_vec()));
    });
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
fn held_replies_arrive_when_let_go() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        proxy.hold_replies();
        client.send("SET a b\r\n");
        eventually("the reply is held", || proxy.replies_waiting() == 5);
        assert_eq!(server.get("a"), Some(b"b".to_vec()));
        client.assert_silent();
        proxy.let_go();
        assert_eq!(client.receive().expect("an answer"), "+OK\r\n");
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

        let mut client = connect(proxy);
        proxy.drop_requests();
        client.send("SET a c\r\n");
        client.assert_silent();
        assert_eq!(server.get("a"), Some(b"b".to_vec()));
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

        let mut client = connect(proxy);
        proxy.connection(1).cut_requests_after(0);
        client.send("SET a c\r\n");
        client.assert_ended();
        assert_eq!(server.get("a"), Some(b"b".to_vec()));
        assert_eq!(connect(proxy).ping().expect("an answer"), "+PONG\r\n");
    });
}

#[test]
fn a_reset_ends_open_connections_and_lets_new_ones_in() {
    on_both_kinds(|server, proxy| {
        let mut clients = [connect(proxy), connect(proxy)];
        for client in &mut clients {
            client.ping().expect("an answer");
        }
        proxy.reset();
        for client in &mut clients {
            let error = client.receive();
            if server.url().starts_with("redis://") {
                assert_eq!(error.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
            }
        }
        assert_eq!(connect(proxy).ping().expect("an answer"), "+PONG\r\n");
        assert_eq!(proxy.connections(), 3);
    });
}

#[test]
fn a_reset_reaches_clients_of_a_frozen_server() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        client.ping().expect("an answer");
        server.freeze();
        client.send("PING\r\n");
        proxy.reset();
        client.assert_ended();
    });
}

#[test]
fn refused_connections_are_refused() {
    on_both_kinds(|_, proxy| {
        let mut open = connect(proxy);
        open.ping().expect("an answer");
        proxy.refuse(true);
        proxy.refuse(true);
        let error = Client::to(proxy).err().expect("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(open.ping().expect("open connections stay"), "+PONG\r\n");
        proxy.refuse(false);
        assert_eq!(connect(proxy).ping().expect("an answer"), "+PONG\r\n");
    });
}

#[test]
fn one_connection_can_be_chosen_even_before_it_is_made() {
    on_both_kinds(|server, proxy| {
        proxy.hold_connection(1);
        let mut clients = [connect(proxy), connect(proxy), connect(proxy)];
        eventually("all are accepted", || proxy.connections() == 3);
        clients[1].send("SET a b\r\n");
        assert_eq!(clients[0].ping().expect("an answer"), "+PONG\r\n");
        assert_eq!(clients[2].ping().expect("an answer"), "+PONG\r\n");
        clients[1].assert_silent();
        assert_eq!(server.get("a"), None);
        proxy.connection(1).let_go();
        assert_eq!(clients[1].receive().expect("an answer"), "+OK\r\n");
        proxy.connection(2).reset();
        clients[2].assert_ended();
        assert_eq!(clients[0].ping().expect("an answer"), "+PONG\r\n");
    });
}

#[test]
fn a_server_can_be_restarted_behind_its_proxy() {
    on_both_kinds(|server, proxy| {
        let mut client = connect(proxy);
        client.ping().expect("an answer");
        server.kill();
        client.assert_ended();
        connect(proxy).assert_ended();
        server.restart();
        assert_eq!(connect(proxy).ping().expect("an answer"), "+PONG\r\n");
    });
}
