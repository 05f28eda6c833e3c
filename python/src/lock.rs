//! The blocking face: the calling thread drives the engine, without the interpreter.

use std::sync::Arc;

use pyo3::prelude::*;
use redlock::{Error, ErrorKind};

use crate::duration::{Timeout, Ttl};
use crate::error::raised;
use crate::handle::Handle;
use crate::holder::Holder;
use crate::signals::Signals;

/// A lock whose calls block the calling thread.
#[pyclass(frozen, subclass, extends = Handle, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Lock;

impl Lock {
    /// Blocks without the interpreter; the outer error is what a signal handler raised.
    fn block(
        slf: &Bound<'_, Self>,
        call: impl FnOnce(&Arc<redlock::bindings::lock_object::Holder>, Signals) -> PyResult<Result<(), Error>> + Send,
    ) -> PyResult<Result<(), Error>> {
        let py = slf.py();
        let holder = &slf.as_super().get().holder;
        let signals = Signals::here(py)?;
        py.detach(|| call(holder, signals))
    }
}

#[pymethods]
impl Lock {
    #[new]
    fn new(holder: &Bound<'_, Holder>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Handle::of(holder)).add_subclass(Self)
    }

    /// Acquire the lock, waiting for as long as others hold it.
    ///
    /// `timeout` in seconds overrides the lock's own: zero is one try, `None` waits for ever. `blocking=False` is one
    /// try too. Returns `False` only if the time is over and others hold the lock (or, in a split vote, were taking
    /// it).
    ///
    /// Raises `LockUnavailable` if no quorum of nodes could be asked or would answer until the timeout, or for 10 s
    /// where there is none; `LockForbidden` if nodes that refuse the credentials rule out a quorum; `LockAlreadyHeld`
    /// if this object holds it already, or is about to; `LockInvalidArgument` for a wrong timeout.
    ///
    /// Ctrl-C ends it within 50 ms on the main thread and leaves no key behind.
    ///
    /// >>> import redlock
    /// >>> lock = redlock.lock("job")
    /// >>> lock.acquire(timeout=5)
    /// True
    /// >>> lock.release()
    #[pyo3(signature = (blocking = true, timeout = Timeout::Own))]
    fn acquire(slf: &Bound<'_, Self>, blocking: bool, timeout: Timeout) -> PyResult<bool> {
        let timeout = timeout.of_acquire(slf.py(), blocking)?;
        match Self::block(slf, |holder, signals| holder.acquire(timeout, signals.check()))? {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(false),
            Err(error) => Err(raised(slf.py(), &error)),
        }
    }

    /// Let the lock last for `ttl` seconds from now, which is then the ttl of later renewals; left out, its ttl.
    ///
    /// Raises `LockLost` if the lock is lost, `LockNotHeld` if it was not acquired, `LockUnavailable` if no quorum
    /// answered (the lock stays valid for as long as `remaining` says), `LockInvalidArgument` for a wrong ttl and with
    /// `protocol="setnx"`.
    ///
    /// >>> import redlock
    /// >>> with redlock.lock("job", ttl=1) as lock:
    /// ...     lock.extend(60)
    /// ...     lock.remaining > 50
    /// True
    #[pyo3(signature = (ttl = None))]
    fn extend(slf: &Bound<'_, Self>, ttl: Option<Ttl>) -> PyResult<()> {
        let ttl = ttl.map(|ttl| ttl.0);
        Self::block(slf, |holder, signals| holder.extend(ttl, signals.check()))?
            .map_err(|error| raised(slf.py(), &error))
    }

    /// Release the lock. Once this begins the lock is not held, whatever becomes of the call. Again is no error.
    ///
    /// Raises `LockNotHeld` if it was never acquired, `LockLost` if it was lost before, and `LockUnavailable` if no
    /// quorum confirmed it: the background goes on with it until it is released or its ttl has passed. So it does
    /// after Ctrl-C.
    fn release(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::block(slf, |holder, signals| holder.release(signals.check()))?.map_err(|error| raised(slf.py(), &error))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        Self::block(slf, |holder, signals| holder.acquire(None, signals.check()))?
            .map_err(|error| raised(slf.py(), &error))?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (kind, error, traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (error, traceback);
        match Self::block(slf, |holder, signals| holder.leave(signals.check()))? {
            // What the body raises says more than that its lock is gone.
            Err(lost) if kind.is_none() => Err(raised(slf.py(), &lost)),
            _ => Ok(()),
        }
    }
}
