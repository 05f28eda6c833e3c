//! The command's process group: the keeper that leads it, the command itself, and what the command starts.
//!
//! The keeper reads from a pipe to which only this program can write. At the pipe's end, so when this program is gone,
//! whatever became of it, the keeper kills its own group. It exists before the command does, and the command joins its
//! group: at no moment does the command run with nobody to kill it.
//!
//! The program of the crate is its own keeper, under another name: so it needs no shell, which an image from scratch does
//! not have. The programs of the wheel and of the npm package are Python and Node, which would be large keepers: theirs is
//! a shell.
//!
//! Children are waited for on the thread that signals them. So no number of a process or a group is used after it may
//! have been given to another.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{self, SigSet, Signal};
use nix::unistd::{Pid, getpgid};
use rustix::process::{WaitOptions, WaitStatus};
use tokio::net::unix::pipe;

use crate::run::machine::{End, Event};

/// The name of a keeper.
pub(crate) const KEEPER: &str = "redlock-keeper";

/// Whether this process is a program that can be its own keeper.
static KEEPS_ITSELF: AtomicBool = AtomicBool::new(false);

/// The file of this program, also if another one has taken its place. It is the child's own when the child looks.
const SELF: &str = "/proc/self/exe";

/// The shell that keeps a group, and takes other jobs that need no `unsafe` there.
pub(super) const SHELL: &str = "/bin/sh";

/// What a shell runs as the keeper. It survives everything that a terminal, this program or the command sends to the group, but
/// SIGKILL, with which it ends itself, too.
const KEEP: &str = "trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE PROF VTALRM XCPU XFSZ TSTP TTIN TTOU
echo ready
while read -r line; do :; done
kill -KILL 0";

/// What a keeper says once it can be relied on.
const READY: &[u8] = b"ready\n";

/// A process group. When it is dropped while its command runs, as in a panic, the group is killed.
#[derive(Debug)]
pub(super) struct Group {
    /// Its number, which is that of its first keeper.
    pub(super) id: Pid,
    keeper: Option<Keeper>,
    /// The command; `None` before it begins, and once it has ended and was waited for.
    command: Option<Pid>,
}

#[derive(Debug)]
struct Keeper {
    pid: Pid,
    /// The pipe at whose end it kills. Closed by the system, whatever happens to this program.
    pipe: ChildStdin,
}

impl Group {
    /// Starts the keeper of a new group, and waits until it is ready. Cancel safe: a keeper that nobody waits for kills
    /// itself.
    pub(super) async fn start() -> io::Result<Self> {
        let (keeper, ready) = Keeper::start(0)?;
        let group = Self { id: keeper.pid, keeper: Some(keeper), command: None };
        wait_until_ready(ready).await?;
        Ok(group)
    }

    /// Starts the command in the group.
    pub(super) fn spawn(&mut self, command: &mut Command) -> io::Result<()> {
        let child = command.process_group(self.id.as_raw()).spawn()?;
        self.command = Some(pid(child.id()));
        Ok(())
    }

    /// Starts another keeper, in the place of one that somebody has killed.
    pub(super) fn replace_keeper(&mut self) -> io::Result<()> {
        let (keeper, _) = Keeper::start(self.id.as_raw())?;
        self.keeper = Some(keeper);
        Ok(())
    }

    /// Sends a signal to the group, and to the command if it has left the group.
    pub(super) fn send(&self, signal: Signal) {
        if self.exists() {
            // It may be that nobody may be signalled, as where the command has become another user. Then it is not
            // this program that can end it, and the wait for its end goes on.
            let _ = signal::killpg(self.id, signal);
        }
        if let Some(command) = self.command
            && getpgid(Some(command)).is_ok_and(|group| group != self.id)
        {
            let _ = signal::kill(command, signal);
        }
    }

    /// Returns whether the group's number is still its own.
    const fn exists(&self) -> bool {
        self.keeper.is_some() || self.command.is_some()
    }

    /// Returns what has changed, and takes in whatever else this program is the parent of: as the first process of a
    /// container, it is everybody's.
    pub(super) fn changes(&mut self) -> Vec<Event> {
        let mut changes: Vec<_> = reap().into_iter().filter_map(|(pid, status)| self.change(pid, status)).collect();
        // A keeper that ended together with the command need not be replaced.
        changes.sort_by_key(|change| *change == Event::KeeperEnded);
        changes
    }

    fn change(&mut self, pid: Pid, status: WaitStatus) -> Option<Event> {
        let is_over = !status.stopped();
        if self.keeper.as_ref().is_some_and(|keeper| keeper.pid == pid) {
            return is_over.then(|| {
                self.keeper = None;
                Event::KeeperEnded
            });
        }
        if self.command != Some(pid) {
            return None;
        }
        if let Some(signal) = status.stopping_signal() {
            return Some(Event::Stopped(signal));
        }
        self.command = None;
        Some(Event::Ended(end(status)))
    }

    /// Returns whether the command lives in its group.
    pub(super) fn has_command(&self) -> bool {
        members(self.id).any(|pid| self.command == Some(pid))
    }

    /// Returns whether nothing lives in the group but its keeper.
    pub(super) fn is_alone(&self) -> bool {
        self.command.is_none() && !members(self.id).any(|pid| self.keeper.as_ref().is_none_or(|it| it.pid != pid))
    }

    /// Ends the keeper alone: what the command has left behind goes on.
    pub(super) fn end_keeper(&mut self) {
        let Some(Keeper { pid, pipe }) = self.keeper.take() else { return };
        if signal::kill(pid, Signal::SIGKILL).is_ok() {
            // Only then may the pipe be closed.
            let _ = rustix::process::waitpid(Some(raw(pid)), WaitOptions::empty());
        }
        drop(pipe);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(command) = self.command {
            self.send(Signal::SIGKILL);
            // Its lock is released after this.
            let _ = rustix::process::waitpid(Some(raw(command)), WaitOptions::empty());
        }
        self.end_keeper();
    }
}

impl Keeper {
    /// Starts a keeper in this group, in one of its own for 0.
    fn start(group: i32) -> io::Result<(Self, OwnedFd)> {
        let spawn = |mut command: Command| {
            // Nothing of the environment changes how it works, and it keeps no file system in use.
            command.env_clear().current_dir("/").process_group(group);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        };
        let mut shell = Command::new(SHELL);
        shell.args(["-c", KEEP, KEEPER]);
        let mut child = match itself() {
            // Its file may be out of reach, as where /proc is that of other processes.
            Some(keeper) => spawn(keeper).or_else(|_| spawn(shell)),
            None => spawn(shell),
        }?;
        let (Some(pipe), Some(ready)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok((Self { pid: pid(child.id()), pipe }, ready.into()))
    }
}

/// Makes this program its own keeper from now on.
pub(crate) fn keep_itself() {
    KEEPS_ITSELF.store(true, Ordering::Relaxed);
}

/// Returns whether there is something that can keep a group.
pub(super) fn can_keep() -> bool {
    itself().is_some() || Path::new(SHELL).exists()
}

/// Returns this program as a keeper, if it can be one.
fn itself() -> Option<Command> {
    if !KEEPS_ITSELF.load(Ordering::Relaxed) {
        return None;
    }
    let own = Path::new(SELF);
    let mut command = Command::new(if own.exists() { own.to_owned() } else { std::env::current_exe().ok()? });
    command.arg0(KEEPER);
    Some(command)
}

/// Keeps the group of this process until the end of standard input, as a shell does with [`KEEP`]. Then it kills the
/// group, and so itself. Returns if something fails before that.
pub(crate) fn keep() -> io::Result<()> {
    // A signal that is blocked neither ends nor stops a process.
    SigSet::all().thread_block()?;
    // Who replaces a keeper does not wait for it.
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(signal::killpg(Pid::from_raw(0), Signal::SIGKILL)?)
}

/// Waits until a keeper says that it is ready. Cancel safe.
async fn wait_until_ready(ready: OwnedFd) -> io::Result<()> {
    let ready = pipe::Receiver::from_owned_fd(ready)?;
    let (mut said, mut room) = (Vec::new(), [0; READY.len()]);
    while !said.starts_with(READY) {
        ready.readable().await?;
        match ready.try_read(&mut room) {
            Ok(0) => return Err(io::Error::other("it ended at once")),
            Ok(length) => said.extend_from_slice(&room[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns every child that has changed its state since the last call.
pub(super) fn reap() -> Vec<(Pid, WaitStatus)> {
    let mut found = Vec::new();
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
        found.push((Pid::from_raw(pid.as_raw_nonzero().get()), status));
    }
    found
}

fn end(status: WaitStatus) -> End {
    let number = |status: i32| u8::try_from(status).unwrap_or(u8::MAX);
    status
        .terminating_signal()
        .map_or_else(|| End::Exited(status.exit_status().map_or(u8::MAX, number)), |signal| End::Killed(number(signal)))
}

/// Returns the processes of a group that are alive: not those that only wait to be waited for, by somebody else.
fn members(group: Pid) -> impl Iterator<Item = Pid> {
    let is_there = !matches!(signal::killpg(group, None), Err(nix::errno::Errno::ESRCH));
    let listed = is_there.then(|| if Path::new("/proc/self/stat").exists() { in_proc() } else { as_ps_lists() });
    let alive =
        listed.unwrap_or_default().into_iter().filter(move |process| process.group == group && process.is_alive);
    alive.map(|process| process.pid)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    pid: Pid,
    group: Pid,
    is_alive: bool,
}

/// Returns the processes that Linux shows.
fn in_proc() -> Vec<Listed> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stat.filter_map(|stat| parse_stat(&stat)).collect()
}

/// Reads `pid (name) state parent group …`, whatever stands in the name.
fn parse_stat(stat: &str) -> Option<Listed> {
    let (pid, rest) = stat.split_once(" (")?;
    let mut fields = rest[rest.rfind(')')? + 1..].split_ascii_whitespace();
    let is_alive = is_alive(fields.next()?);
    let group = fields.nth(1)?;
    Some(Listed { pid: number(pid)?, group: number(group)?, is_alive })
}

/// Returns the processes of a system that shows them through ps(1) alone.
fn as_ps_lists() -> Vec<Listed> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,pgid=,stat="]).stderr(Stdio::null()).output();
    let text = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
}

/// Reads `pid group state`.
fn parse_line(line: &str) -> Option<Listed> {
    let mut fields = line.split_ascii_whitespace();
    let (pid, group, state) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Listed { pid: number(pid)?, group: number(group)?, is_alive: is_alive(state) })
}

fn is_alive(state: &str) -> bool {
    !state.starts_with(['Z', 'X'])
}

fn number(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().expect("the system's numbers of processes are positive"))
}

fn raw(pid: Pid) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid.as_raw()).expect("a process has a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read_as_they_are_shown() {
        let found =
            |pid, group, is_alive| Some(Listed { pid: Pid::from_raw(pid), group: Pid::from_raw(group), is_alive });
        assert_eq!(parse_stat("17 (sh) S 1 16 16 0"), found(17, 16, true));
        assert_eq!(parse_stat("17 (a) Z (b) Z 1 16 16 0"), found(17, 16, false));
        assert_eq!(parse_stat("17 (sh) S 1"), None);
        assert_eq!(parse_line("  17    16 Ss+"), found(17, 16, true));
        assert_eq!(parse_line("  17    16 Z"), found(17, 16, false));
    }

    #[tokio::test]
    async fn a_group_that_nobody_watches_is_killed() {
        let mut group = Group::start().await.unwrap();
        let id = group.id;
        group.spawn(Command::new("sleep").arg("100")).unwrap();
        assert_eq!(members(id).count(), 2);
        assert!(!group.is_alone());
        drop(group);
        assert_eq!(members(id).count(), 0);
    }

    #[tokio::test]
    async fn a_keeper_alone_can_be_ended() {
        let mut group = Group::start().await.unwrap();
        assert!(group.is_alone());
        // All of these it survives.
        group.send(Signal::SIGTERM);
        group.send(Signal::SIGINT);
        group.send(Signal::SIGTSTP);
        assert_eq!(members(group.id).count(), 1);
        group.end_keeper();
        assert_eq!(members(group.id).count(), 0);
    }

    #[test]
    fn both_lists_show_this_process() {
        let own = Pid::this();
        for list in [in_proc(), as_ps_lists()] {
            // A system has one of them at least.
            assert!(list.is_empty() || list.iter().any(|process| process.pid == own && process.is_alive));
        }
    }
}
