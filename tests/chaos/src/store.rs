//! One hand's connection to the store that the locks protect.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection. The store answers at once, so the async face needs no other way.
pub(crate) struct Store {
    client: String,
    stream: BufReader<UnixStream>,
}

impl Store {
    pub(crate) fn new(path: &Path, client: &str) -> Self {
        let stream = UnixStream::connect(path).expect("the store listens");
        Self { client: client.into(), stream: BufReader::new(stream) }
    }

    /// Returns the number, or `None` if the fence is too small.
    pub(crate) fn read(&mut self, name: &str, fence: u64) -> Option<u64> {
        let answer = self.ask(&format!("read {name} {fence} {}", self.client));
        answer.strip_prefix("ok ").map(|value| value.trim().parse().expect("the value is a number"))
    }

    /// Writes the number, unless the fence is too small.
    pub(crate) fn write(&mut self, name: &str, fence: u64, value: u64) {
        self.ask(&format!("write {name} {fence} {} {value}", self.client));
    }

    fn ask(&mut self, line: &str) -> String {
        let mut answer = String::new();
        // At once, as the store reads it.
        let asked = self.stream.get_mut().write_all(format!("{line}\n").as_bytes());
        let asked = asked.and_then(|()| self.stream.read_line(&mut answer));
        asked.expect("the store answers");
        answer
    }
}
