//! Durations as Python has them: seconds, or a `timedelta`.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyFloat, PyInt};

use crate::error::{invalid, raised};

/// What was given for `option`: a float, an int or a `timedelta`; anything else is `invalid_argument`.
pub(crate) fn duration(option: &'static str, given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = given.py();
    let seconds = if given.is_instance_of::<PyDelta>() {
        given.call_method0("total_seconds")?.extract::<f64>()?
    } else if given.is_instance_of::<PyFloat>() || is_int(given) {
        // An int that no float can hold.
        given.extract::<f64>().map_err(|_| invalid(py, option, format!("{option} is too large a number")))?
    } else {
        let class = given.get_type().qualname()?;
        let message = format!("{option} is of type {class}, but must be seconds (float or int) or a timedelta");
        return Err(invalid(py, option, message));
    };
    redlock::bindings::options::seconds(option, seconds).map_err(|error| raised(py, &error))
}

/// Nobody means one second by `True`.
fn is_int(given: &Bound<'_, PyAny>) -> bool {
    given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>()
}

/// The argument `timeout` of an acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeout {
    /// Left out, or `...`: the lock's own.
    Own,
    /// A duration, or `None` for ever.
    Given(Option<Duration>),
}

impl Timeout {
    /// As the engine takes it. Not blocking is a timeout of zero.
    pub(crate) fn of_acquire(
        self,
        py: Python<'_>,
        blocking: bool,
    ) -> PyResult<redlock::bindings::lock_object::Timeout> {
        match (blocking, self) {
            (true, Self::Own) => Ok(None),
            (true, Self::Given(timeout)) => Ok(Some(timeout)),
            (false, Self::Own) => Ok(Some(Some(Duration::ZERO))),
            (false, Self::Given(_)) => {
                Err(invalid(py, "timeout", String::from("timeout cannot be combined with blocking=False")))
            }
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Timeout {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is(given.py().Ellipsis()) {
            return Ok(Self::Own);
        }
        if given.is_none() {
            return Ok(Self::Given(None));
        }
        Ok(Self::Given(Some(duration("timeout", &given)?)))
    }
}

/// The argument `ttl` of an extend; `None` for the ttl in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ttl(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Ttl {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        duration("ttl", &given).map(Self)
    }
}
