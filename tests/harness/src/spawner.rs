//! Starts children that die with this process.
//!
//! Linux can send a child a signal when its parent ends, but "parent" means the *thread* that started it. Tests run
//! on threads that end, so one thread that never ends starts every child.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type Request = (Command, Sender<io::Result<Child>>);

/// Starts `command`; on Linux the child is killed when this process ends, however that happens.
///
/// It is started from a thread that lives as long as the process, and not from the calling one, whose end would kill
/// it.
pub fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, answer) in requests {
                    die_with_parent(&mut command);
                    // Whoever asked is gone only when its thread was torn down; the child then dies with us.
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        sender
    });
    let (answer, result) = channel();
    spawner.send((command, answer)).expect("the spawner thread never ends");
    result.recv().expect("the spawner thread answers every request")
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt;

    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the call above: then no signal will come.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe work is allowed. The closure makes two system calls
    // (prctl, getppid) and builds an error without allocating; it takes no lock and touches no shared memory.
    unsafe { command.pre_exec(before_exec) };
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command) {}
