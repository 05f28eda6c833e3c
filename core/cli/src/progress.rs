//! A line on a terminal that is rewritten while the program waits, and erased when it goes on.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::unistd::{getpgrp, tcgetpgrp, ttyname};
use redlock::bindings::clock::Clock;

use crate::say;
use crate::signals::unstopped;

/// The width of a terminal that does not tell it.
const COLUMNS: usize = 80;

/// The line, on stderr. Nothing is written unless stderr is a terminal, and this program is in its foreground.
#[derive(Debug)]
struct Progress {
    /// The terminal, opened once more: a terminal that is held with ^S must not block this program.
    terminal: Option<File>,
    is_shown: bool,
}

impl Progress {
    /// Makes a line that nobody sees yet; `is_wanted` is false to keep it that way.
    fn new(is_wanted: bool) -> Self {
        let is_wanted = is_wanted && io::stderr().is_terminal() && say::moves_cursor();
        Self { terminal: is_wanted.then(open).flatten(), is_shown: false }
    }

    /// Shows `text` instead of what is there, cut to the terminal's width.
    fn show(&mut self, text: &str) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| is_foreground()) {
            let shown: String = say::one_line(text).chars().take(columns() - 1).collect();
            write(terminal, &format!("\r\x1b[K{shown}"));
            self.is_shown = true;
        }
    }
}

/// Erases the line.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.is_shown && is_foreground()) {
            write(terminal, "\r\x1b[K");
        }
    }
}

/// Shows what `look` finds out after each pause, if that `is_wanted` and somebody would see it. Never ends; dropping it
/// erases the line.
pub(crate) async fn show(is_wanted: bool, pause: Duration, mut look: impl AsyncFnMut() -> Option<String>) {
    let mut progress = Progress::new(is_wanted);
    if progress.terminal.is_none() {
        return std::future::pending().await;
    }
    loop {
        Clock::System.sleep(pause).await;
        if let Some(text) = look().await {
            progress.show(&format!("redlock: {text}"));
        }
    }
}

fn open() -> Option<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    File::options().write(true).custom_flags(flags.bits()).open(ttyname(io::stderr()).ok()?).ok()
}

/// Writes what fits: the next line comes soon.
fn write(mut terminal: &File, text: &str) {
    unstopped(|| drop(terminal.write_all(text.as_bytes())));
}

/// Returns whether this program is what the terminal shows now, and not in the background.
fn is_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground == getpgrp())
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 1).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_to_nobody() {
        let mut progress = Progress::new(false);
        progress.show("text");
        assert!(!progress.is_shown && progress.terminal.is_none());
    }
}
