//! The options of a client and of a lock, from keyword arguments.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use redlock::bindings::options::{Kind, Options, Row, Scope, Value, find};

use crate::duration::duration;
use crate::error::{invalid, raised};
use crate::name::text;

/// The options that were given, each converted.
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
        Kind::Flag => Value::Flag(flag(name, given)?),
        Kind::Text => Value::Text(text(name, name, given, "a str")?),
    })
}

fn flag(option: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true());
    }
    let class = value.get_type().qualname()?;
    Err(invalid(value.py(), option, format!("{option} is of type {class}, but must be True or False")))
}
