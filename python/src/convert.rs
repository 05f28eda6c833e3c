//! Values as Python has them: options, durations, names.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyDict, PyFloat, PyInt, PyString};
use redlock::bindings::lock_object;
use redlock::bindings::options::{Kind, Options, Row, Scope, Value, find, seconds};

use crate::error::{invalid, raised};

/// The options that were given as keyword arguments.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>, scope: Scope) -> PyResult<Options> {
    let mut options = Options::default();
    for (option, given) in given.into_iter().flatten() {
        let refused = |error| raised(given.py(), &error);
        let row = find(option.extract()?, scope).map_err(refused)?;
        (row.set)(&mut options, value(row, &given)?).map_err(refused)?;
    }
    Ok(options)
}

fn value(&Row { name, kind, .. }: &Row, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    Ok(match kind {
        Kind::Timeout if given.is_none() => Value::Timeout(None),
        Kind::Timeout => Value::Timeout(Some(duration(name, given)?)),
        Kind::Duration => Value::Duration(duration(name, given)?),
        Kind::Flag => match given.cast::<PyBool>() {
            Ok(flag) => Value::Flag(flag.is_true()),
            Err(_) => return mistyped(name, name, given, "True or False"),
        },
        Kind::Text => Value::Text(text(name, name, given, "a str")?),
    })
}

/// What was given for `option`: a float, an int or a `timedelta`; anything else is `invalid_argument`.
pub(crate) fn duration(option: &'static str, given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = given.py();
    let amount = if given.is_instance_of::<PyDelta>() {
        given.call_method0("total_seconds")?.extract::<f64>()?
    } else if given.is_instance_of::<PyFloat>() || is_int(given) {
        // An int that no float can hold.
        given.extract::<f64>().map_err(|_| invalid(py, option, format!("{option} is too large a number")))?
    } else {
        return mistyped(option, option, given, "seconds (float or int) or a timedelta");
    };
    seconds(option, amount).map_err(|error| raised(py, &error))
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
    pub(crate) fn of_acquire(self, py: Python<'_>, blocking: bool) -> PyResult<lock_object::Timeout> {
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

/// A name as it was given, and its bytes.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) given: Py<PyAny>,
    pub(crate) bytes: Vec<u8>,
}

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let bytes = if let Ok(name) = given.cast::<PyBytes>() {
            name.as_bytes().to_vec()
        } else {
            text("name", "name", &given, "a str or bytes")?.into_bytes()
        };
        Ok(Self { given: given.to_owned().unbind(), bytes })
    }
}

/// The addresses of nodes: one, or several. No message shows any: it may have a password in it.
pub(crate) fn nodes(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    const WANTED: &str = "a str, or a sequence of them";
    if given.is_instance_of::<PyString>() {
        return Ok(vec![text("nodes", "nodes", given, WANTED)?]);
    }
    let Ok(each) = given.try_iter() else { return mistyped("nodes", "nodes", given, WANTED) };
    each.map(|node| text("nodes", "a node", &node?, "a str")).collect()
}

/// The text that `what` of an argument must be, encoded in UTF-8.
fn text(argument: &str, what: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<String> {
    let Ok(text) = given.cast::<PyString>() else { return mistyped(argument, what, given, wanted) };
    // Only lone surrogates have no encoding.
    text.to_str().map(str::to_owned).map_err(|_| {
        invalid(given.py(), argument, format!("{what} contains a lone surrogate and cannot be encoded as UTF-8"))
    })
}

/// The error where `what` of an argument is of another type than `wanted`.
fn mistyped<T>(argument: &str, what: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<T> {
    let class = given.get_type().qualname()?;
    Err(invalid(given.py(), argument, format!("{what} is of type {class}, but must be {wanted}")))
}
