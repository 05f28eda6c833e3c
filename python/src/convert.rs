//! Conversions of Python values: options, durations, names.

use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use redlock::bindings::lock_object;
use redlock::bindings::options::{Kind, Options, Row, Scope, Unit, Value, find, unknown};

use crate::error::{invalid, to_pyerr};

/// Converts keyword arguments to options.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>, scope: Scope) -> PyResult<Options> {
    let mut options = Options::default();
    for (option, given) in given.into_iter().flatten() {
        let raise = |error| to_pyerr(given.py(), &error);
        let row = find(option.extract()?, scope).map_err(raise)?;
        (row.set)(&mut options, value(row, &given)?).map_err(raise)?;
    }
    Ok(options)
}

/// Takes the option `shared` of a lock out of keyword arguments. It is not an option of clients.
pub(crate) fn take_shared(given: &Bound<'_, PyDict>) -> PyResult<bool> {
    const NAME: &str = "shared";
    let Some(shared) = given.get_item(NAME)? else { return Ok(false) };
    given.del_item(NAME)?;
    if shared.is_none() { Ok(false) } else { flag(NAME, &shared, "True or False") }
}

fn value(&Row { name, kind, .. }: &Row, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    Ok(match kind {
        Kind::Timeout => Value::Timeout(timeout(name, given)?),
        _ if given.is_none() => Value::BuiltIn,
        Kind::Duration => Value::Duration(duration(name, given)?),
        Kind::Flag => Value::Flag(flag(name, given, "True or False")?),
        Kind::Count => Value::Count(number(name, given, "a small number")?),
        Kind::Text => Value::Text(text(name, name, given, "a str")?),
        Kind::Path => match given.extract() {
            Ok(path) => Value::Path(path),
            Err(_) => return wrong_type(name, name, given, "a str or an os.PathLike"),
        },
    })
}

/// Writes the value of an option as Python does.
pub(crate) fn shown(py: Python<'_>, value: Value) -> PyResult<String> {
    let value = match value {
        Value::Duration(duration) | Value::Timeout(Some(duration)) => duration.as_secs_f64().into_bound_py_any(py)?,
        Value::Flag(flag) => flag.into_bound_py_any(py)?,
        Value::Count(count) => count.into_bound_py_any(py)?,
        Value::Text(text) => text.into_bound_py_any(py)?,
        Value::Path(path) => path.into_os_string().into_bound_py_any(py)?,
        Value::Timeout(None) | Value::BuiltIn => py.None().into_bound(py),
    };
    Ok(value.repr()?.to_string())
}

/// Converts the value of `option`: a float, an int or a `timedelta`. Refuses another type with `invalid_argument`.
pub(crate) fn duration(option: &'static str, given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let amount = seconds(option, given, "seconds (float or int) or a timedelta")?;
    let is_doubtful = option == "ttl" && amount > HOUR && amount <= TTL_MOST;
    if is_doubtful && !given.is_instance_of::<PyDelta>() {
        given.py().import("redlock._checks")?.call_method1("doubt_ttl", (amount,))?;
    }
    Unit::Seconds.duration(option, amount).map_err(|error| to_pyerr(given.py(), &error))
}

/// A longer ttl is rather meant as milliseconds: a lock is renewed, and the ttl is only how long a crash blocks others.
const HOUR: f64 = 3600.0;
/// A longer one is refused.
const TTL_MOST: f64 = 24.0 * HOUR;

/// Converts a timeout: as a duration, and `None`, infinity or -1 for one without an end.
fn timeout(option: &'static str, given: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if given.is_none() {
        return Ok(None);
    }
    let amount = seconds(option, given, "seconds (float or int), a timedelta, or None to wait forever")?;
    Unit::Seconds.timeout(option, amount).map_err(|error| to_pyerr(given.py(), &error))
}

/// Converts the argument `timeout` of a wait that has no other limit.
pub(crate) fn limit(timeout: Option<Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    timeout.map_or(Ok(None), |given| self::timeout("timeout", &given))
}

fn seconds(option: &'static str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<f64> {
    if given.is_instance_of::<PyFloat>() || is_int(given) {
        // This fails for an int that no float can hold.
        given.extract().map_err(|_| invalid(given.py(), option, format!("{option} is too large a number")))
    } else if given.is_instance_of::<PyDelta>() {
        // Asked last: it imports datetime, which panics while the interpreter ends.
        given.call_method0("total_seconds")?.extract()
    } else {
        wrong_type(option, option, given, wanted)
    }
}

/// Returns whether a value is an int, but not a bool: `True` is not meant as one second.
fn is_int(given: &Bound<'_, PyAny>) -> bool {
    given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>()
}

/// Converts the argument `timeout` of an acquire. With `...`, as without it, the lock's own timeout applies.
pub(crate) fn own_timeout(given: &Bound<'_, PyAny>) -> PyResult<lock_object::Timeout> {
    if given.is(given.py().Ellipsis()) { Ok(None) } else { timeout("timeout", given).map(Some) }
}

/// Converts the argument `blocking` of an acquire.
pub(crate) fn blocking(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag("blocking", given, "True or False; to wait for 5 s, write acquire(timeout=5)")
}

fn flag(argument: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<bool> {
    match given.cast::<PyBool>() {
        Ok(flag) => Ok(flag.is_true()),
        Err(_) => wrong_type(argument, argument, given, wanted),
    }
}

/// Returns the timeout of an acquire. `blocking=False` is one of zero.
pub(crate) fn timeout_of_acquire(
    py: Python<'_>,
    blocking: bool,
    timeout: lock_object::Timeout,
) -> PyResult<lock_object::Timeout> {
    match timeout {
        timeout if blocking => Ok(timeout),
        None | Some(None) => Ok(Some(Some(Duration::ZERO))),
        Some(Some(_)) => Err(invalid(py, "timeout", String::from("timeout cannot be combined with blocking=False"))),
    }
}

/// Refuses arguments that an acquire does not have, with a hint for those of other libraries.
pub(crate) fn no_others(given: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    if let Some((argument, _)) = given.into_iter().flatten().next() {
        return Err(to_pyerr(argument.py(), &unknown(argument.extract()?, str::to_owned)));
    }
    Ok(())
}

/// Converts the argument `ttl` of a call that can do without.
pub(crate) fn ttl(ttl: Option<Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    ttl.map(|given| duration("ttl", &given)).transpose()
}

/// Converts the argument `most` of `count_by_name`: a number of names.
pub(crate) fn most(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    number("most", given, "0 or a number of names")
}

/// Converts the argument `permits` of a semaphore.
pub(crate) fn permits(given: &Bound<'_, PyAny>) -> PyResult<u32> {
    number("permits", given, "from 1 to 1000")
}

/// Converts the argument `slot`: that of one holder of a semaphore.
pub(crate) fn slot(slot: Option<Bound<'_, PyAny>>) -> PyResult<Option<u32>> {
    slot.map(|given| number("slot", &given, "from 0 to 999")).transpose()
}

/// Converts a whole number. The engine checks the limits of numbers that fit.
fn number<'py, T>(argument: &str, given: &Bound<'py, PyAny>, limits: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    if !is_int(given) {
        return wrong_type(argument, argument, given, "an int");
    }
    let wrong = |_| invalid(given.py(), argument, format!("{argument} is {given}, but must be {limits}"));
    given.extract().map_err(wrong)
}

/// Converts the argument `pattern`.
pub(crate) fn pattern(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    Name::of("pattern", "pattern", given).map(|name| name.bytes)
}

/// A name as the caller gave it, and its bytes.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) given: Py<PyAny>,
    pub(crate) bytes: Vec<u8>,
}

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            return wrong_type("name", "name", &given, "a str or bytes; for several names, use lock_all");
        }
        if given.is_callable() {
            return wrong_type("name", "name", &given, "a str or bytes; to make it from arguments, use locked");
        }
        Self::of("name", "name", &given)
    }
}

impl Name {
    /// Converts one name. `what` names the part of the argument that it is.
    fn of(argument: &str, what: &str, given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = if let Ok(name) = given.cast::<PyBytes>() {
            name.as_bytes().to_vec()
        } else {
            text(argument, what, given, "a str or bytes")?.into_bytes()
        };
        Ok(Self { given: given.clone().unbind(), bytes })
    }
}

/// Converts the argument `names` of a lock of several names.
pub(crate) fn names(given: &Bound<'_, PyAny>) -> PyResult<Vec<Name>> {
    const WANTED: &str = "a list of names, each of them a str or bytes; for one name, use lock";
    if given.is_callable() {
        return wrong_type("names", "names", given, "a list of names; to make them from arguments, use locked");
    }
    // The items of a text are its letters.
    let is_text = given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>();
    if is_text || !given.get_type().hasattr("__iter__")? {
        return wrong_type("names", "names", given, WANTED);
    }
    let each = given.try_iter()?.enumerate();
    let names = each.map(|(index, name)| Name::of("names", &format!("names[{index}]"), &name?));
    names.collect()
}

/// Converts the nodes of a client: an address or a client of redis-py, or several. Clients may add to `options`. Error
/// messages do not show an address, because it may contain a password.
pub(crate) fn nodes(given: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Vec<String>> {
    const WANTED: &str = "a str such as redis://127.0.0.1:6379, a client of redis-py, or a sequence of these; redlock \
                          opens its own connections";
    const EACH: &str =
        "a str such as redis://127.0.0.1:6379, or a client of redis-py; redlock opens its own connections";
    static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // Iterating over a mapping gives its keys, and those are not addresses. Iterating over a client of redis-py, which
    // has only `__getitem__`, sends commands.
    let is_text = given.is_instance_of::<PyString>();
    let is_several = !is_text && given.get_type().hasattr("__iter__")? && given.cast::<PyMapping>().is_err();
    let each = if is_several { given.try_iter()?.collect::<PyResult<_>>()? } else { vec![given.clone()] };
    let each = if each.iter().all(PyAnyMethods::is_instance_of::<PyString>) {
        each
    } else {
        READ.import(given.py(), "redlock._clients", "read")?.call1((each, options))?.extract()?
    };
    let (what, wanted) = if is_several { ("a node", EACH) } else { ("nodes", WANTED) };
    each.iter().map(|node| text("nodes", what, node, wanted)).collect()
}

/// Converts `given` to UTF-8. `what` names the part of the argument that must be text.
pub(crate) fn text(argument: &str, what: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<String> {
    let Ok(text) = given.cast::<PyString>() else { return wrong_type(argument, what, given, wanted) };
    // Only a lone surrogate cannot be encoded.
    text.to_str().map(str::to_owned).map_err(|_| {
        invalid(given.py(), argument, format!("{what} contains a lone surrogate and cannot be encoded as UTF-8"))
    })
}

/// Fails with the error for another type than `wanted`. `what` names the part of the argument that has it.
pub(crate) fn wrong_type<T>(argument: &str, what: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyResult<T> {
    let class = given.get_type().qualname()?;
    Err(invalid(given.py(), argument, format!("{what} is of type {class}, but must be {wanted}")))
}
