//! Signals: which were ignored when the program began, and those that it hears from then on.
//!
//! A signal that was ignored on purpose, as SIGHUP under nohup(1), gets no handler: so it stays ignored here, and in
//! every command that is started from here. A handled signal is at its default again in a command.

use std::future::poll_fn;
use std::io;
use std::os::unix::net;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};
use tokio::net::UnixStream;

use crate::exit::{Exit, Failure};

/// The signals that end a program, and that people and service managers send for it.
pub(crate) const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// What else would end the program without a word to the nodes.
pub(crate) const USER: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals of job control that can be handled.
pub(crate) const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// The signals that were ignored when the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored(u64);

impl Ignored {
    /// Finds them out. Before any handler is installed.
    pub(crate) fn at_start() -> Self {
        match std::fs::read_to_string("/proc/self/status") {
            Ok(status) => Self::in_status(&status).unwrap_or_default(),
            Err(_) => Self::as_a_shell_finds(),
        }
    }

    /// Reads them from what Linux tells of a process.
    fn in_status(status: &str) -> Option<Self> {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok().map(Self)
    }

    /// Sends each signal that ends a process to one that does not handle it, and looks whether it lives on: there is no
    /// other way without `unsafe`.
    fn as_a_shell_finds() -> Self {
        let script = "ulimit -c 0; for s do /bin/sh -c 'kill -s $0 $$; echo $0' $s; done";
        let signals = ENDING.iter().chain(&USER);
        let names = signals.clone().map(|signal| &signal.as_str()["SIG".len()..]);
        let shell = Command::new("/bin/sh").args(["-c", script, "sh"]).args(names).stderr(Stdio::null()).output();
        let living = shell.map(|shell| String::from_utf8_lossy(&shell.stdout).into_owned()).unwrap_or_default();
        let is_living = |signal: &&Signal| living.lines().any(|line| line == &signal.as_str()["SIG".len()..]);
        Self(signals.filter(is_living).fold(0, |mask, signal| mask | Self::bit(*signal)))
    }

    pub(crate) fn contains(self, signal: Signal) -> bool {
        self.0 & Self::bit(signal) != 0
    }

    fn bit(signal: Signal) -> u64 {
        1 << (signal as i32 - 1)
    }
}

/// Signals that are heard. While it exists, and after it, they have no other effect on this process.
#[derive(Debug)]
pub(crate) struct Signals(Vec<Heard>);

impl Signals {
    /// Begins to hear `signals`, but not those that are ignored. Needs a runtime.
    ///
    /// # Errors
    ///
    /// A failure if the system refuses a handler.
    pub(crate) fn listen(signals: impl IntoIterator<Item = Signal>, ignored: Ignored) -> Result<Self, Failure> {
        let mut heard = Self(Vec::new());
        heard.listen_to(signals, ignored)?;
        Ok(heard)
    }

    /// Begins to hear `signals`, too; see [`Signals::listen`].
    pub(crate) fn listen_to(
        &mut self,
        signals: impl IntoIterator<Item = Signal>,
        ignored: Ignored,
    ) -> Result<(), Failure> {
        for signal in signals.into_iter().filter(|signal| !ignored.contains(*signal)) {
            let heard = Heard::listen(signal);
            self.0.push(heard.map_err(|error| Failure::new(Exit::BUG, format!("cannot handle {signal}: {error}")))?);
            // It may have been blocked in whatever started this program.
            let _ = SigSet::from(signal).thread_unblock();
        }
        Ok(())
    }

    /// Waits for the next signal. Several of one kind may come as one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let come = self.0.iter().find(|heard| heard.has_come(cx));
            come.map_or(Poll::Pending, |heard| Poll::Ready(heard.signal))
        })
        .await
    }

    /// Waits for the next signal that asks for an end. Cancel safe.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) || USER.contains(&signal) {
                return signal;
            }
        }
    }
}

/// One signal that is heard: its handler writes into a pair of sockets.
///
/// tokio's own signals would give each runtime of the process a socket that all of them share. A child of a fork that
/// closes its descriptors, as daemons do, could then start no runtime, or would read from whatever has the number now.
#[derive(Debug)]
struct Heard {
    signal: Signal,
    socket: UnixStream,
    handler: SigId,
}

impl Heard {
    fn listen(signal: Signal) -> io::Result<Self> {
        let (socket, written) = net::UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        Ok(Self { signal, socket, handler: pipe::register(signal as i32, written)? })
    }

    /// Whether it has come since the last look. If not, the task is woken when it comes.
    fn has_come(&self, cx: &mut Context<'_>) -> bool {
        let mut marks = [0; 64];
        while self.socket.poll_read_ready(cx).is_ready() {
            match self.socket.try_read(&mut marks) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.is_ok(),
            }
        }
        false
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        unregister(self.handler);
    }
}

/// Begins to hear of children that have ended or stopped.
///
/// # Errors
///
/// A failure if the system refuses a handler.
pub(crate) fn children() -> Result<Signals, Failure> {
    Signals::listen([Signal::SIGCHLD], Ignored::default())
}

/// Returns the status of a program that ended for this signal.
pub(crate) fn exit(signal: Signal) -> Exit {
    match signal {
        Signal::SIGINT => Exit::INTERRUPTED,
        _ => Exit::signal(u8::try_from(signal as i32).unwrap_or_default()),
    }
}

/// Ends this process by SIGINT, or with its status where it has no effect, as in the first process of a container: a shell goes on with its script after a ^C that a program seems to have handled. Without
/// `unsafe`, only another program can do it in place of this one. Returns if that cannot be started.
pub(crate) fn die_of_interrupt() {
    drop(Command::new("/bin/sh").args(["-c", "kill -INT $$; exit 130"]).exec());
}

/// Runs `write`, which may write to the terminal or change its state, from the background too: there it would stop this
/// process, which then could not keep its promises.
pub(crate) fn unstopped<T>(write: impl FnOnce() -> T) -> T {
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let result = write();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_their_mask() {
        let ignored = Ignored::in_status("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n").unwrap();
        assert!(ignored.contains(Signal::SIGHUP) && ignored.contains(Signal::SIGPIPE));
        assert!(!ignored.contains(Signal::SIGTERM));
        assert_eq!(Ignored::in_status("Name:\tx\n"), None);
    }

    #[test]
    fn both_ways_find_the_same() {
        let common = |ignored: Ignored| ENDING.map(|signal| ignored.contains(signal));
        assert_eq!(common(Ignored::as_a_shell_finds()), common(Ignored::at_start()));
    }

    #[tokio::test]
    async fn a_signal_is_heard() {
        let mut signals = Signals::listen(USER, Ignored::default()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGUSR2).unwrap();
        assert_eq!(signals.next().await, Signal::SIGUSR2);
    }
}
