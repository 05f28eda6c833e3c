//! The current process, and values that a forked child must not share.

use std::convert::Infallible;
use std::{fmt, mem};

use once_cell::race::OnceBox;

/// The process that a call runs in. A call asks the operating system once, at its start, and passes the answer down:
/// each query is a system call. It is not kept longer, nor while other code may run, which may fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pid(pub(crate) u32);

impl Pid {
    pub(crate) fn now() -> Self {
        Self(std::process::id())
    }
}

/// A value that every process has of its own: created at first use, and anew in a forked child. Takes no lock, because
/// another thread may fork at any time. The values of other processes are never touched, not even dropped.
pub(crate) struct PerProcess<T>(OnceBox<Link<T>>);

struct Link<T> {
    pid: Pid,
    /// `None` only during its drop.
    value: Option<T>,
    child: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// Starts with `value` for this process.
    pub(crate) fn with(value: T) -> Self {
        let first = OnceBox::new();
        let link = Link { pid: Pid::now(), value: Some(value), child: Self::new() };
        drop(first.set(Box::new(link)));
        Self(first)
    }

    /// Returns the value of this process, `pid`, and creates it with `make` if there is none yet. If threads race, one
    /// wins.
    pub(crate) fn of(&self, pid: Pid, make: impl Fn() -> T) -> &T {
        let result: Result<&T, Infallible> = self.try_of(pid, || Ok(make()));
        let Ok(value) = result;
        value
    }

    /// Works as [`PerProcess::of`], but `make` may fail.
    pub(crate) fn try_of<E>(&self, pid: Pid, make: impl Fn() -> Result<T, E>) -> Result<&T, E> {
        let mut place = self;
        loop {
            let link = place.0.get_or_try_init(|| {
                make().map(|value| Box::new(Link { pid, value: Some(value), child: Self::new() }))
            })?;
            if link.pid == pid {
                return Ok(link.value.as_ref().expect("taken only by drop"));
            }
            place = &link.child;
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerProcess")
    }
}

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        if self.pid != Pid::now() {
            mem::forget(self.value.take());
        }
    }
}
