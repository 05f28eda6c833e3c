//! Notices to the person while a command runs, written by a thread of their own.
//!
//! A terminal that is held with ^S, or a pipe that nobody reads, blocks whoever writes to it. That must not be the
//! thread that has a command to kill.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::say;

/// For how long the end of the program waits for what is still to be written.
const LIMIT: Duration = Duration::from_secs(1);

/// A text, and what writes it.
type Line = (fn(&str), String);

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Notices {
    lines: Option<Sender<Line>>,
    written: Receiver<()>,
    is_quiet: bool,
}

impl Notices {
    /// Starts the thread. If it cannot be started, nothing is told: the command matters more.
    pub(super) fn start(is_quiet: bool) -> Self {
        let (lines, read) = mpsc::channel::<Line>();
        let (done, written) = mpsc::channel();
        let write = move || {
            for (say, text) in read {
                say(&text);
            }
            drop(done);
        };
        let lines = thread::Builder::new().name("redlock-notices".to_owned()).spawn(write).ok().map(|_| lines);
        Self { lines, written, is_quiet }
    }

    /// Tells what is good to know.
    pub(super) fn warn(&self, text: String) {
        if !self.is_quiet {
            self.send((say::warning, text));
        }
    }

    /// Tells why the program fails.
    pub(super) fn error(&self, text: String) {
        self.send((say::error, text));
    }

    fn send(&self, line: Line) {
        if let Some(lines) = &self.lines {
            drop(lines.send(line));
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.written.recv_timeout(LIMIT);
    }
}
