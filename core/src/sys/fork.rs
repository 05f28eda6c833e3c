//! What a fork means for a process: which one this is, and values that a forked child must not share.

use std::convert::Infallible;
use std::{fmt, mem};

use once_cell::race::OnceBox;

/// The process that a call runs in. A call asks the operating system once, when it begins, and hands the answer down:
/// each time is a system call. Not kept any longer, and not while anything else may run: it may fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pid(pub(crate) u32);

impl Pid {
    pub(crate) fn now() -> Self {
        Self(std::process::id())
    }
}

/// A value that every process has of its own: made at first use, and anew in a forked child. Takes no lock: a fork may
/// happen at any time in another thread. The values of other processes are never touched, not even dropped.
pub(crate) struct PerProcess<T>(OnceBox<Link<T>>);

struct Link<T> {
    pid: Pid,
    /// `None` only while it is dropped.
    value: Option<T>,
    child: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// With a value for this process.
    pub(crate) fn with(value: T) -> Self {
        let first = OnceBox::new();
        let link = Link { pid: Pid::now(), value: Some(value), child: Self::new() };
        drop(first.set(Box::new(link)));
        Self(first)
    }

    /// The value of the process `pid`, which is this one, made by `make` if there is none yet. Where threads race to make
    /// it, one wins.
    pub(crate) fn of(&self, pid: Pid, make: impl Fn() -> T) -> &T {
        let result: Result<&T, Infallible> = self.try_of(pid, || Ok(make()));
        let Ok(value) = result;
        value
    }

    /// As [`PerProcess::of`], where it may fail.
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
