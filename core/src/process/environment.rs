//! The engine's view of its process: clock, randomness, background, runtimes and shutdown.
//!
//! Production has one value per process, stamped with its id. A simulation makes many in one program.

use std::sync::Arc;

use crate::process::shutdown::Shutdown;
use crate::sys::background::Background;
use crate::sys::clock::Clock;
use crate::sys::fork::Pid;
use crate::sys::random::Random;
use crate::sys::runtimes::Pool;
use crate::texts::opaque;

/// The engine's environment.
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

    /// Whether this value belongs to another process. Then this is a forked child, which must not touch it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign_to(Pid::now())
    }

    /// Whether this value does not belong to `pid`, the current process.
    pub(crate) fn is_foreign_to(&self, pid: Pid) -> bool {
        self.pid.is_some_and(|own| own != pid)
    }
}

opaque!(Environment);
