//! A worker's standard output: one JSON document in a line, the same in every language.

use serde::Serialize;

/// One line. All times are nanoseconds of the clock that the processes of the machine share.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// Waits for the word to start.
    Ready,
    /// Asks for the lock from now on.
    Asking { at_ns: u64 },
    /// Got it. The clock was read before the library was asked what remains.
    Acquired { at_ns: u64, fence: u64, remaining_ns: u64, kept: bool },
    /// More remains than before: the library has renewed the lock.
    Renewed { at_ns: u64, fence: u64, remaining_ns: u64 },
    /// Increased the file once more.
    Counted { fence: u64 },
    /// The file was not as the holder of the lock has a right to find it.
    Damage { message: &'a str },
    /// Gave the lock back.
    Released { asked_ns: u64, at_ns: u64, fence: u64 },
    /// Learned that the lock is lost.
    Lost { at_ns: u64, fence: u64, reason: &'a str },
    /// A call failed in another way; only a failed release has a fence.
    Error { call: &'a str, asked_ns: u64, at_ns: u64, fence: Option<u64>, code: &'a str, message: &'a str },
}

/// Writes the line at once.
pub(crate) fn say(line: &Line) {
    use std::io::Write;

    let mut text = serde_json::to_string(line).expect("a line can be written as JSON");
    text.push('\n');
    // The reader has gone, so there is nothing left to fight for.
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        std::process::exit(1);
    }
}
