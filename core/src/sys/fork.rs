//! The current process, and values that a forked child must not share.

use std::convert::Infallible;
use std::mem;

use once_cell::race::OnceBox;

use crate::texts::opaque;

/// The process that a call runs in. A call asks the operating system once, at its start, and passes the answer down:
/// each query is a system call. It is not kept longer, nor while other code may run, which may fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub(crate) u32);

impl Pid {
    /// Asks for the current process.
    #[must_use]
    pub fn now() -> Self {
        Self(std::process::id())
    }
}

/// A value that every process has of its own: created at first use, and anew in a forked child. Takes no lock, because
/// another thread may fork at any time. The values of other processes are never touched, not even dropped, except by
/// the drop of those that say that they share nothing.
pub struct PerProcess<T> {
    first: OnceBox<Link<T>>,
    shares_nothing: fn(&T) -> bool,
}

struct Link<T> {
    pid: Pid,
    /// `None` only during its drop.
    value: Option<T>,
    child: PerProcess<T>,
}

impl<T> PerProcess<T> {
    /// Starts without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self::dropped_if(|_| false)
    }

    /// Starts without a value. If `shares_nothing` is true of a value, any process may drop it. Then its drop does not
    /// ask for the current process, which is a system call. `shares_nothing` may find the value in any state in which
    /// another thread had it when the process forked.
    pub(crate) const fn dropped_if(shares_nothing: fn(&T) -> bool) -> Self {
        Self { first: OnceBox::new(), shares_nothing }
    }

    /// Starts with `value` for this process.
    pub(crate) fn with(value: T) -> Self {
        let own = Self::new();
        let link = Link { pid: Pid::now(), value: Some(value), child: Self::new() };
        drop(own.first.set(Box::new(link)));
        own
    }

    /// Returns the value of this process, `pid`, and creates it with `make` if there is none yet. If threads race, one
    /// wins.
    pub fn of(&self, pid: Pid, make: impl Fn() -> T) -> &T {
        let result: Result<&T, Infallible> = self.try_of(pid, || Ok(make()));
        let Ok(value) = result;
        value
    }

    /// Works as [`PerProcess::of`], but `make` may fail.
    pub(crate) fn try_of<E>(&self, pid: Pid, make: impl Fn() -> Result<T, E>) -> Result<&T, E> {
        let mut place = self;
        loop {
            let child = || Self::dropped_if(self.shares_nothing);
            let link = place
                .first
                .get_or_try_init(|| make().map(|value| Box::new(Link { pid, value: Some(value), child: child() })))?;
            if link.pid == pid {
                return Ok(link.value.as_ref().expect("taken only by drop"));
            }
            place = &link.child;
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

opaque!(PerProcess<T>);

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        let shares_nothing = self.value.as_ref().is_some_and(self.child.shares_nothing);
        if !shares_nothing && self.pid != Pid::now() {
            mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_value_of_another_process_is_dropped_only_if_it_shares_nothing() {
        let (value, other) = (Arc::new(()), Pid(0));
        drop_value(PerProcess::new(), &value, other);
        assert_eq!(Arc::strong_count(&value), 2, "it may be in use by the parent");
        drop_value(PerProcess::dropped_if(|_| true), &value, other);
        assert_eq!(Arc::strong_count(&value), 2);
        drop_value(PerProcess::new(), &value, Pid::now());
        assert_eq!(Arc::strong_count(&value), 2);
    }

    /// Drops a value that `owner` has made.
    fn drop_value(per_process: PerProcess<Arc<()>>, value: &Arc<()>, owner: Pid) {
        per_process.of(owner, || Arc::clone(value));
        drop(per_process);
    }
}
