//! What the engine needs of the process that it runs in: its clock, randomness, background, runtimes and end. Production has
//! one value for each process, stamped with its id; a simulation makes many in one program.

use std::fmt;
use std::sync::Arc;

use crate::process::shutdown::Shutdown;
use crate::sys::background::Background;
use crate::sys::clock::Clock;
use crate::sys::fork::Pid;
use crate::sys::random::Random;
use crate::sys::runtimes::Pool;

/// Where the engine runs.
pub(crate) struct Environment {
    /// `None` for a simulated process, which has no pid of its own.
    pid: Option<Pid>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) background: Background,
    pub(crate) pool: Arc<Pool>,
    pub(crate) shutdown: Arc<Shutdown>,
}

impl Environment {
    pub(crate) fn new(pid: Option<Pid>, clock: Clock, random: Random, background: Background) -> Self {
        Self { pid, clock, random, background, pool: Arc::default(), shutdown: Arc::default() }
    }

    /// Whether this is the value of another process: we are in a forked child and must not touch it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign_to(Pid::now())
    }

    /// Whether this is not the value of the process `pid`, which is this one.
    pub(crate) fn is_foreign_to(&self, pid: Pid) -> bool {
        self.pid.is_some_and(|own| own != pid)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("pid", &self.pid).finish_non_exhaustive()
    }
}
