//! The command: found before the lock is taken, and started with what it is told about its lock.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use redlock::Guard;

use crate::around;
use crate::exit::{Exit, Failure};
use crate::run::group::{Group, SHELL};

/// Where commands are looked for without a PATH, as the system's own functions do.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Refuses a command that cannot be executed: it should not wait for a lock, and nobody else for it.
///
/// # Errors
///
/// A failure with the status of env(1).
pub(super) fn check(program: &OsStr) -> Result<(), Failure> {
    find(program).map(drop)
}

/// Returns the file that is executed.
fn find(program: &OsStr) -> Result<PathBuf, Failure> {
    let paths = if program.as_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    let found: Vec<_> = paths.into_iter().filter(|path| path.metadata().is_ok_and(|file| !file.is_dir())).collect();
    let executable = found.iter().find(|path| access(path.as_path(), AccessFlags::X_OK).is_ok());
    match (executable, found.first()) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(path)) => {
            Err(refused(program, Exit::CANNOT_EXECUTE, &format!("{} is not executable", path.display())))
        }
        (None, None) if Path::new(program).is_dir() && program.as_bytes().contains(&b'/') => {
            Err(refused(program, Exit::CANNOT_EXECUTE, "it is a directory"))
        }
        (None, None) => Err(refused(program, Exit::NOT_FOUND, "there is no such command")),
    }
}

fn refused(program: &OsStr, exit: Exit, why: &str) -> Failure {
    Failure::new(exit, format!("cannot run {:?}: {why}", program.display().to_string()))
}

/// Starts the command in the group.
///
/// # Errors
///
/// A failure with the status of env(1) if the command cannot be executed.
pub(super) fn spawn(group: &mut Group, line: &[OsString], guard: &Guard, ttl: Duration) -> Result<(), Failure> {
    let [program, args @ ..] = line else { return Err(Failure::usage("there is no command")) };
    let mut command = Command::new(program);
    let mut spawned = group.spawn(tell(command.args(args), guard, ttl));
    if spawned.as_ref().is_err_and(is_without_interpreter) {
        // A script without its first line, which env(1) and shells run, too.
        let mut shell = Command::new(SHELL);
        spawned = group.spawn(tell(shell.arg(find(program)?).args(args), guard, ttl));
    }
    spawned.map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NOT_FOUND,
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Exit::BUG,
            _ => Exit::CANNOT_EXECUTE,
        };
        refused(program, exit, &error.to_string())
    })
}

fn is_without_interpreter(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ENOEXEC as i32)
}

/// Puts into the command's environment what it may want to know of its lock, and nothing of a lock around this one.
fn tell<'a>(command: &'a mut Command, guard: &Guard, ttl: Duration) -> &'a mut Command {
    let names = OsString::from_vec(guard.names().join(&b'\n'));
    command
        .env(around::NAME, names)
        .env(around::FENCE, guard.fence().to_string())
        .env("REDLOCK_TTL_MS", ttl.as_millis().to_string())
        .env_remove(around::SLOT);
    if let Some(slot) = guard.slot() {
        command.env(around::SLOT, slot.to_string());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_of(program: &str) -> Option<u8> {
        check(OsStr::new(program)).err().map(|failure| failure.exit.code)
    }

    #[test]
    fn commands_are_found_as_env_finds_them() {
        assert_eq!(exit_of("sh"), None);
        assert_eq!(exit_of("/bin/sh"), None);
        assert_eq!(exit_of("redlock-no-such-command"), Some(127));
        assert_eq!(exit_of("/redlock/no/such/command"), Some(127));
        assert_eq!(exit_of("/"), Some(126));
        assert_eq!(exit_of("/etc/passwd"), Some(126));
        assert_eq!(exit_of(""), Some(127));
    }
}
