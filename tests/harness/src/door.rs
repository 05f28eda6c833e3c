//! A door in front of one server that counts connections and decides what becomes of each.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;

use crate::Server;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Open,
    /// It is closed as soon as it is made.
    Closed,
    /// It is closed at the first request with this word.
    Against(&'static str),
    /// As `Against`, and every later connection goes to the server.
    AgainstOnce(&'static str),
}

/// Stands in front of a server, counts the connections, and decides what becomes of each.
#[derive(Debug)]
pub struct Door {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: PathBuf,
    way: RwLock<Way>,
    came: AtomicU64,
    links: Mutex<Vec<TcpStream>>,
}

impl Door {
    /// Starts a door in front of `server`, on a TCP port.
    #[must_use]
    pub fn to(server: &Server, way: Way) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a socket of the test");
        let port = listener.local_addr().expect("a socket of the test").port();
        let (came, links) = Default::default();
        let shared = Arc::new(Shared { server: server.socket(), way: RwLock::new(way), came, links });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                accepting.came.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.pass(&client.expect("a socket of the test")));
            }
        });
        Self { port, shared }
    }

    /// The address for the code under test.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections came.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.shared.came.load(Ordering::SeqCst)
    }

    /// What becomes of connections from now on.
    pub fn set(&self, way: Way) {
        self.shared.set(way);
    }

    /// What becomes of connections now.
    #[must_use]
    pub fn way(&self) -> Way {
        self.shared.way()
    }

    /// Closes every connection.
    pub fn close(&self) {
        for link in self.shared.links.lock().expect("a socket of the test").drain(..) {
            drop(link.shutdown(Shutdown::Both));
        }
    }
}

impl Shared {
    fn way(&self) -> Way {
        *self.way.read().expect("a socket of the test")
    }

    fn set(&self, way: Way) {
        *self.way.write().expect("a socket of the test") = way;
    }

    fn pass(&self, client: &TcpStream) {
        if self.way() == Way::Closed {
            return;
        }
        self.links.lock().expect("a socket of the test").push(client.try_clone().expect("a socket of the test"));
        let server = UnixStream::connect(&self.server).expect("a socket of the test");
        thread::scope(|scope| {
            scope.spawn(|| {
                copy(&server, client, |_| false);
                drop(client.shutdown(Shutdown::Both));
            });
            copy(client, &server, |bytes| match self.way() {
                Way::Against(word) => contains(bytes, word),
                Way::AgainstOnce(word) if contains(bytes, word) => {
                    self.set(Way::Open);
                    true
                }
                _ => false,
            });
            drop(client.shutdown(Shutdown::Both));
            drop(server.shutdown(Shutdown::Both));
        });
    }
}

/// Copies until the end, or until `ends` says so of what has been read, which is not passed on if it ends a request.
fn copy(mut from: impl Read, mut to: impl Write, ends: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if ends(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}
