//! The terminal: who has it, its modes, and stopping with the command.
//!
//! A terminal sends ^C and ^Z to one group, its foreground, and lets only this group read. That has to be the command's
//! while it runs, and this program's own before and after.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use nix::fcntl::OFlag;
use nix::sys::signal::{self, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use rustix::process::WaitOptions;

use crate::run::group::SHELL;
use crate::run::machine::Foreground;
use crate::signals::unstopped;

/// The terminal that controls this program, if there is one, and the command's group.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: Option<File>,
    command: Pid,
    /// Whether the command's group was given it, and has not given it back.
    is_given: bool,
    /// The modes that this program found.
    modes: Option<Termios>,
    /// The modes that the command had when it was stopped.
    command_modes: Option<Termios>,
}

impl Terminal {
    /// Finds the terminal, for a command in this group.
    pub(super) fn find(command: Pid) -> Self {
        let tty = File::options().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open("/dev/tty").ok();
        let modes = tty.as_ref().and_then(|tty| tcgetattr(tty).ok());
        Self { tty, command, is_given: false, modes, command_modes: None }
    }

    /// Returns which group is in the foreground.
    pub(super) fn foreground(&self) -> Foreground {
        match self.tty.as_ref().map(tcgetpgrp) {
            Some(Ok(group)) if group == getpgrp() => Foreground::Ours,
            Some(Ok(group)) if group == self.command => Foreground::Command,
            _ => Foreground::Other,
        }
    }

    /// Gives it to the command's group before the command begins, if it is all about a terminal. In a pipeline, another
    /// process of this program's group may want it, such as a pager: there the command gets it when it asks.
    pub(super) fn give_at_start(&mut self) {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.give();
        }
    }

    /// Gives it to the command's group, if this program's own has it.
    pub(super) fn give(&mut self) {
        let Some(tty) = self.tty.as_ref().filter(|_| self.foreground() == Foreground::Ours) else { return };
        self.modes = tcgetattr(tty).ok();
        unstopped(|| {
            if let Some(modes) = self.command_modes.take() {
                let _ = tcsetattr(tty, SetArg::TCSANOW, &modes);
            }
            self.is_given = tcsetpgrp(tty, self.command).is_ok();
        });
    }

    /// Takes it back, with its modes as they are. Returns whether the command's group had it.
    pub(super) fn take(&mut self) -> bool {
        let was_given = std::mem::take(&mut self.is_given);
        if let Some(tty) = self.tty.as_ref().filter(|_| was_given) {
            let _ = unstopped(|| tcsetpgrp(tty, getpgrp()));
        }
        was_given
    }

    /// Takes it back, with the modes that it had before the command. Returns whether the command's group had it.
    pub(super) fn take_and_restore(&mut self) -> bool {
        let was_given = self.take();
        if let (true, Some(tty), Some(modes)) = (was_given, &self.tty, &self.modes) {
            // Without waiting for what is still to be written: nobody may read it.
            let _ = unstopped(|| tcsetattr(tty, SetArg::TCSANOW, modes));
        }
        was_given
    }

    /// Takes it back and stops this program's group, as a shell expects of a job whose command has stopped. Returns when
    /// it goes on, with false if it cannot be stopped.
    pub(super) fn suspend(&mut self) -> bool {
        if self.is_given {
            self.command_modes = self.tty.as_ref().and_then(|tty| tcgetattr(tty).ok());
        }
        self.take_and_restore();
        let can_stop = can_stop();
        if can_stop {
            let _ = signal::kill(Pid::from_raw(0), Signal::SIGTSTP);
            // This program handles that one.
            let _ = signal::raise(Signal::SIGSTOP);
        }
        can_stop
    }
}

/// Returns whether this program's group can be stopped: nobody would let an orphaned one go on, and so a terminal does
/// not stop it. The system knows, and tells by what happens to a process in the group.
fn can_stop() -> bool {
    let Ok(probe) = Command::new(SHELL).args(["-c", "kill -TSTP $$"]).env_clear().spawn() else { return false };
    let pid = rustix::process::Pid::from_child(&probe);
    let status = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED);
    let is_stopped = matches!(status, Ok(Some((_, status))) if status.stopped());
    if is_stopped {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    }
    is_stopped
}
