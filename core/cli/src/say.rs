//! What the program writes: results on stdout; errors and warnings on stderr, each in one line that begins with
//! `redlock: `.
//!
//! Colours are for terminals only, and not if `NO_COLOR` is set.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, fstat, stat};
use tokio::sync::oneshot;

use crate::exit::{Exit, Failure};
use crate::signals::unstopped;

/// The number of SIGPIPE, which ends programs whose reader has gone.
const PIPE: u8 = 13;

/// Writes one whole text to stdout.
///
/// # Errors
///
/// A failure without a message if the reader has gone, as after `| head`; otherwise one that says why.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    written(io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()))
}

/// Does the same on a thread of its own, for a command that a signal ends: a reader that does not read blocks who writes.
pub(crate) async fn out_unless_ended(text: String) -> Result<(), Failure> {
    let (done, written) = oneshot::channel();
    let write = move || drop(done.send(out(&text)));
    drop(thread::Builder::new().name("redlock-output".to_owned()).spawn(write));
    written.await.unwrap_or_else(|_| Err(Failure::new(Exit::BUG, "cannot start the thread that writes the output")))
}

/// Returns whether stdout was closed when this program began. /dev/null then has its number, for reading too, which
/// shells do not do.
pub(crate) fn out_is_closed() -> bool {
    let device = |file: nix::Result<FileStat>| file.map(|file| file.st_rdev);
    let flags = fcntl(io::stdout(), FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    flags.is_ok_and(|flags| flags.contains(OFlag::O_RDWR)) && device(fstat(io::stdout())) == device(stat("/dev/null"))
}

/// Returns the result of writing to stdout as the program's.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(Exit::signal(PIPE)),
        _ => Failure::new(Exit::OUTPUT, format!("cannot write to standard output: {error}")),
    })
}

/// Writes an error to stderr.
pub(crate) fn error(message: &str) {
    line("\x1b[1;31m", message);
}

/// Writes a warning to stderr.
pub(crate) fn warning(message: &str) {
    line("\x1b[1;33m", message);
}

/// Returns whether this output shows colours.
pub(crate) fn has_colour(output: &impl IsTerminal) -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && moves_cursor() && output.is_terminal()
}

/// Returns whether a terminal, if there is one, understands more than text.
pub(crate) fn moves_cursor() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Writes one line. A stderr that is full or closed is nobody's: there is no place to tell of it.
fn line(colour: &str, message: &str) {
    let message = one_line(message);
    let line = if has_colour(&io::stderr()) {
        format!("{colour}redlock:\x1b[0m {message}\n")
    } else {
        format!("redlock: {message}\n")
    };
    // In one write, so that lines of several programs do not mix.
    unstopped(|| drop(io::stderr().lock().write_all(line.as_bytes())));
}

/// Returns the text without what would make it more than one line, or would move a terminal's cursor: names and labels
/// come from others.
pub(crate) fn one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_plain_text() {
        assert_eq!(one_line("a\nb\x1b[2Jc\n"), r"a\nb\u{1b}[2Jc");
        assert_eq!(one_line("größer"), "größer");
    }

    #[test]
    fn a_reader_that_has_gone_needs_no_message() {
        assert_eq!(written(Err(ErrorKind::BrokenPipe.into())), Err(Failure::quiet(Exit::status(141))));
        let full = written(Err(ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!((full.exit, full.message.is_some()), (Exit::OUTPUT, true));
        assert_eq!(written(Ok(())), Ok(()));
    }
}
