//! What a caller may set, in milliseconds. Types were checked in TypeScript; amounts are checked by the lock.

use std::time::Duration;

use napi::ValueType;
use napi::bindgen_prelude::{Either3, Either5, JsValue, Null, Undefined, Unknown};
use napi_derive::napi;
use redlock::Error;
use redlock::bindings::options::{Kind, OPTIONS, Options, Scope, Value, millis, refused};

use crate::convert::camel;

/// An option of clients and locks.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// What its values are.
    #[napi(ts_type = "'duration' | 'timeout' | 'flag' | 'text'")]
    pub kind: &'static str,
    /// Whether locks do not have it.
    pub of_client: bool,
}

/// Every option.
#[napi(catch_unwind)]
pub fn known_options() -> Vec<Known> {
    let known = OPTIONS.iter().map(|row| Known {
        name: camel(row.name),
        kind: match row.kind {
            Kind::Duration => "duration",
            Kind::Timeout => "timeout",
            Kind::Flag => "flag",
            Kind::Text => "text",
        },
        of_client: row.scope == Scope::Client,
    });
    known.collect()
}

/// What was given for each of [`OPTIONS`].
pub(crate) fn given(values: Option<Vec<Unknown<'_>>>) -> Result<Options, Error> {
    let mut options = Options::default();
    for (row, value) in OPTIONS.iter().zip(values.into_iter().flatten()) {
        let value = read(&value).map_err(|error| refused(row.name, error.to_string()))?;
        let value = match (row.kind, value) {
            (_, Either5::A(())) => continue,
            (Kind::Timeout, Either5::B(amount)) => Value::Timeout(Some(millis(row.name, amount)?)),
            (_, Either5::B(amount)) => Value::Duration(millis(row.name, amount)?),
            (_, Either5::C(flag)) => Value::Flag(flag),
            (_, Either5::D(text)) => Value::Text(text),
            (_, Either5::E(Null)) => Value::Timeout(None),
        };
        (row.set)(&mut options, value)?;
    }
    Ok(options)
}

/// By its type: to try one after the other, napi writes a message for each that a value is not.
fn read(value: &Unknown<'_>) -> napi::Result<Either5<Undefined, f64, bool, String, Null>> {
    Ok(match value.get_type()? {
        ValueType::Number => Either5::B(value.coerce_to_number()?.get_double()?),
        ValueType::Boolean => Either5::C(value.coerce_to_bool()?),
        ValueType::String => Either5::D(value.coerce_to_string()?.into_utf8()?.into_owned()?),
        ValueType::Null => Either5::E(Null),
        _ => Either5::A(()),
    })
}

/// The timeout of one call: undefined for the lock's own, a number of milliseconds, or null for ever. In this order: napi
/// writes a message for every type that a value is not, and mostly none is given.
#[napi]
pub type Timeout = Either3<Undefined, f64, Null>;

#[expect(clippy::option_option, reason = "what the lock takes: not said, for ever, or this long")]
pub(crate) fn timeout(given: Timeout) -> Result<Option<Option<Duration>>, Error> {
    Ok(match given {
        Either3::A(()) => None,
        Either3::B(amount) => Some(Some(millis("timeout", amount)?)),
        Either3::C(Null) => Some(None),
    })
}
