//! The proxy does to connections what tests rely on.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redlock_harness::{Proxy, Server, eventually};

/// A client that sees every byte.
struct Client(TcpStream);

impl Client {
    fn to(proxy: &Proxy) -> Self {
        let url = proxy.url();
        let stream = TcpStream::connect(url.trim_start_matches("redis://").trim_end_matches('/'));
        let client = Self(stream.expect("the proxy accepts"));
        client.patience(Duration::from_secs(10));
        client
    }

    fn patience(&self, patience: Duration) {
        self.0.set_read_timeout(Some(patience)).expect("a timeout can be set");
    }

    fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).expect("the proxy takes everything in");
    }

    fn receive(&mut self) -> std::io::Result<String> {
        let mut buffer = [0; 1024];
        let n = self.0.read(&mut buffer)?;
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
}

fn behind_a_proxy() -> (Server, Proxy, Client) {
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    let client = Client::to(&proxy);
    (server, proxy, client)
}

#[test]
fn a_held_request_arrives_even_after_its_client_has_gone() {
    let (server, proxy, mut client) = behind_a_proxy();
    proxy.hold_requests();
    client.send("SET a b\r\n");
    eventually("the request is held", || proxy.requests_waiting() == 9);
    drop(client);
    proxy.let_go();
    eventually("the request arrives", || server.get("a").is_some());
}

#[test]
fn lost_bytes_never_arrive() {
    let (server, proxy, mut client) = behind_a_proxy();
    proxy.drop_replies();
    client.send("SET a b\r\n");
    eventually("the server obeys", || server.get("a").is_some());
    eventually("the reply is lost", || proxy.replies_seen() == 5);
    client.assert_silent();
    proxy.let_go();
    client.send("PING\r\n");
    client.assert_silent(); // a stream with a gap stays dead
    assert_eq!(Client::to(&proxy).ping().expect("a new connection is whole"), "+PONG\r\n");
}

#[test]
fn a_delay_is_added_in_each_direction_without_costing_throughput() {
    let (_server, proxy, mut client) = behind_a_proxy();
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
}

#[test]
fn a_cut_passes_so_many_bytes_and_breaks_the_connection() {
    let (server, proxy, mut client) = behind_a_proxy();
    proxy.cut_replies_after(3);
    client.send("SET a b\r\n");
    assert_eq!(client.receive().expect("the first bytes"), "+OK");
    match client.receive() {
        Ok(bytes) => assert_eq!(bytes, ""),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::ConnectionReset), "{error}"),
    }
    assert_eq!(server.get("a"), Some(b"b".to_vec()));
    proxy.let_go();
    assert_eq!(Client::to(&proxy).ping().expect("an answer"), "+PONG\r\n");
}
