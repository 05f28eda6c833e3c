//! Locks: what all have in common, and the one whose calls block.

use std::ffi::CString;
use std::sync::Arc;

use pyo3::exceptions::{PyResourceWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use redlock::bindings::lock_object::Holder;
use redlock::bindings::options::Scope;
use redlock::{Error, ErrorKind};

use crate::client::Client;
use crate::convert::{self, Name, Timeout, Ttl};
use crate::error::raised;
use crate::signals::Signals;

/// The part of a lock that blocking and asyncio locks share: everything that never waits.
#[pyclass(frozen, subclass, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) holder: Arc<Holder>,
    name: Py<PyAny>,
}

impl Handle {
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        let message = format!("lock {} was garbage-collected while held; releasing it", self.name.bind(py).repr()?);
        PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &CString::new(message)?, 1)
    }
}

#[pymethods]
impl Handle {
    // Of a client, with name and options, which are checked; or another one with those of a lock.
    #[new]
    #[pyo3(signature = (source, name = None, /, **options))]
    fn new(source: &Bound<'_, PyAny>, name: Option<Name>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let py = source.py();
        let Ok(client) = source.cast::<Client>() else {
            let Self { holder, name } = source.cast::<Self>()?.get();
            return Ok(Self { holder: holder.fresh(), name: name.clone_ref(py) });
        };
        let name = name.map_or_else(|| py.None().extract(py), Ok)?;
        let lock = client.get().0.lock(&name.bytes).options(convert::options(options, Scope::Lock)?);
        let holder = Holder::new(lock).map_err(|error| raised(py, &error))?;
        Ok(Self { holder, name: name.given })
    }

    /// The name, as it was given.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The fence: larger than every one of this name before it. Send it along, and have smaller ones rejected.
    ///
    /// Raises `LockNotHeld` before an acquire and after a release, while a lost lock still tells it;
    /// `LockInvalidArgument` with `protocol="setnx"`, which has none.
    #[getter]
    fn fence(&self, py: Python<'_>) -> PyResult<u64> {
        self.holder.fence().map_err(|error| raised(py, &error))
    }

    /// Whether the lock is held at this moment. Never raises.
    #[getter]
    fn held(&self) -> bool {
        self.holder.held()
    }

    /// Seconds for which the lock can be relied on without another extension; 0.0 when it is not held.
    #[getter]
    fn remaining(&self) -> f64 {
        self.holder.remaining().as_secs_f64()
    }

    /// Raise unless the lock is held at this moment. Sends nothing.
    ///
    /// Raises `LockLost` with its reason, or `LockNotHeld` before an acquire, after a release and in a forked child.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.holder.check().map_err(|error| raised(py, &error))
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __reduce_ex__(&self, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = protocol;
        Err(PyTypeError::new_err(
            "a lock is one holder and cannot be pickled or copied; make another with its name where it is needed",
        ))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let this = slf.get();
        let state = if this.holder.held() { "held" } else { "not held" };
        Ok(format!("<{}.{} {} {state}>", class.module()?, class.qualname()?, this.name.bind(slf.py()).repr()?))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.holder.held() {
            return;
        }
        Python::attach(|py| {
            // An object may go while an exception is on its way, which must arrive.
            let underway = PyErr::take(py);
            if let Err(error) = self.warn(py) {
                error.write_unraisable(py, None);
            }
            if let Some(underway) = underway {
                underway.restore(py);
            }
        });
    }
}

/// A lock whose calls block the calling thread.
#[pyclass(frozen, subclass, extends = Handle, module = "redlock._native")]
#[derive(Debug)]
pub(crate) struct Lock;

impl Lock {
    /// Blocks without the interpreter; the outer error is what a signal handler raised.
    fn block(
        slf: &Bound<'_, Self>,
        call: impl FnOnce(&Arc<Holder>, Signals) -> PyResult<Result<(), Error>> + Send,
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
    #[pyo3(signature = (source, name = None, /, **options))]
    fn new(
        source: &Bound<'_, PyAny>,
        name: Option<Name>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        Ok(PyClassInitializer::from(Handle::new(source, name, options)?).add_subclass(Self))
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
