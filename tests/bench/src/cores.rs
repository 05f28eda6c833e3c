//! Which cores clients and servers run on.
//!
//! Left to itself, the scheduler puts client and server now on one core and now on two. That changes the time of a
//! round trip threefold and for each variant at another moment, so that a ratio may say more about it than about the
//! library.

use clap::ValueEnum;
use redlock_harness::Server;

use crate::Failure;

/// Where clients and servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cores {
    /// All of them on one core: every instruction and every switch counts, and the ratios repeat best. Blind to nodes
    /// that are asked one after the other instead of all at once.
    One,
    /// The servers on one core and the clients on the others, as if they were two machines: waiting counts.
    Apart,
    /// Wherever the scheduler puts them, as a user's are: on a quiet machine mostly apart.
    Free,
}

impl Cores {
    /// Puts this process in its place, before it starts any other thread: those inherit it.
    pub(crate) fn place_clients(self) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        if self != Self::Free {
            let (mut cores, last) = last()?;
            if self == Self::Apart && cores.count() > 1 {
                cores.unset(last);
            } else {
                cores = only(last);
            }
            rustix::thread::sched_setaffinity(None, &cores)?;
        }
        Ok(())
    }

    /// Puts a server's main thread, which does all its work here, in its place; before the clients are.
    pub(crate) fn place_server(self, server: &Server) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        if self != Self::Free {
            let pid = rustix::thread::Pid::from_raw(server.pid().try_into()?);
            rustix::thread::sched_setaffinity(pid, &only(last()?.1))?;
        }
        #[cfg(not(target_os = "linux"))]
        let _ = server;
        Ok(())
    }

    /// For the line about the machine.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            _ if !cfg!(target_os = "linux") => "placed by the scheduler",
            Self::One => "clients and servers on one core",
            Self::Apart => "clients and servers on cores of their own",
            Self::Free => "placed by the scheduler",
        }
    }
}

/// The cores of this process, and the last one of them.
#[cfg(target_os = "linux")]
fn last() -> Result<(rustix::thread::CpuSet, usize), Failure> {
    let cores = rustix::thread::sched_getaffinity(None)?;
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|&core| cores.is_set(core));
    Ok((cores, last.ok_or("this process may run nowhere")?))
}

#[cfg(target_os = "linux")]
fn only(core: usize) -> rustix::thread::CpuSet {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    cores
}
