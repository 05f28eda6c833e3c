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

    /// Offers a detached lock to hands of other languages.
    pub(crate) fn give(&mut self, until_ns: u64, shape: &str, text: &str) {
        self.ask(&format!("give {} rust {until_ns} {shape} {text}", self.client));
    }

    /// Returns what became of the offer.
    pub(crate) fn given(&mut self) -> String {
        self.ask(&format!("given {}", self.client)).trim().to_owned()
    }

    /// Ends the offer, unless it is taken.
    pub(crate) fn withdraw(&mut self) -> bool {
        self.ask(&format!("withdraw {}", self.client)).trim() == "withdrawn"
    }

    /// Returns what another language offers: its giver, until when it lives, its shape, and the text.
    pub(crate) fn take(&mut self) -> Option<String> {
        let offered = self.ask("take rust").trim().to_owned();
        offered.contains(' ').then_some(offered)
    }

    /// Tells the giver what became of its lock.
    pub(crate) fn finished(&mut self, giver: &str, state: &str) {
        self.ask(&format!("done {giver} {state}"));
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
