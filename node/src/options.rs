//! Options, with durations in milliseconds. TypeScript has checked their types; the engine checks their limits.

use std::time::Duration;

use napi::ValueType;
use napi::bindgen_prelude::{Either3, Either5, JsValue, Null, Undefined, Unknown};
use napi_derive::napi;
use redlock::Error;
use redlock::bindings::options::{Kind, OPTIONS, Options, Scope, Unit, Value, invalid_argument};

use crate::convert::camel;

/// An option of clients and locks.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// The kind of its values.
    #[napi(ts_type = "'duration' | 'timeout' | 'flag' | 'count' | 'text'")]
    pub kind: &'static str,
    /// Whether only clients have it.
    pub of_client: bool,
}

/// Returns every option.
#[napi(catch_unwind)]
pub fn known_options() -> Vec<Known> {
    let known = OPTIONS.iter().map(|row| Known {
        name: camel(row.name),
        kind: match row.kind {
            Kind::Duration => "duration",
            Kind::Timeout => "timeout",
            Kind::Flag => "flag",
            Kind::Count => "count",
            Kind::Text | Kind::Path => "text",
        },
        of_client: row.scope == Scope::Client,
    });
    known.collect()
}

/// Converts the values of all [`OPTIONS`], in their order.
pub(crate) fn read_options(values: Option<Vec<Unknown<'_>>>) -> Result<Options, Error> {
    let mut options = Options::default();
    for (row, value) in OPTIONS.iter().zip(values.into_iter().flatten()) {
        let value = read_value(&value).map_err(|error| invalid_argument(row.name, error.to_string()))?;
        let value = match (row.kind, value) {
            (_, Either5::A(())) => continue,
            (Kind::Timeout, Either5::B(amount)) => Value::Timeout(Unit::Millis.timeout(row.name, amount)?),
            (Kind::Count, Either5::B(count)) => Value::Count(read_whole(row.name, count)?),
            (_, Either5::B(amount)) => Value::Duration(Unit::Millis.duration(row.name, amount)?),
            (_, Either5::C(flag)) => Value::Flag(flag),
            (Kind::Path, Either5::D(path)) => Value::Path(path.into()),
            (_, Either5::D(text)) => Value::Text(text),
            (Kind::Timeout, Either5::E(Null)) => Value::Timeout(None),
            (_, Either5::E(Null)) => Value::BuiltIn,
        };
        (row.set)(&mut options, value)?;
    }
    Ok(options)
}

/// Converts a number that has to be whole. The engine checks its limits.
pub(crate) fn read_whole(argument: &str, number: f64) -> Result<u32, Error> {
    let wrong = |_| invalid_argument(argument, format!("{} is {number}, but must be a whole number", camel(argument)));
    // Only a whole number is written without a point.
    number.to_string().parse().map_err(wrong)
}

/// Converts a value by its type. If napi tried one type after another, it would write a message for each wrong one.
fn read_value(value: &Unknown<'_>) -> napi::Result<Either5<Undefined, f64, bool, String, Null>> {
    Ok(match value.get_type()? {
        ValueType::Number => Either5::B(value.coerce_to_number()?.get_double()?),
        ValueType::Boolean => Either5::C(value.coerce_to_bool()?),
        ValueType::String => Either5::D(value.coerce_to_string()?.into_utf8()?.into_owned()?),
        ValueType::Null => Either5::E(Null),
        _ => Either5::A(()),
    })
}

/// The timeout of one call: undefined for the lock's own, a number of milliseconds, or null to wait forever. Undefined
/// comes first, because it is the most frequent, and napi writes a message for each type that it tries in vain.
#[napi]
pub type Timeout = Either3<Undefined, f64, Null>;

#[expect(clippy::option_option, reason = "the type that the engine takes: left out, forever, or this long")]
pub(crate) fn read_timeout(timeout: Timeout) -> Result<Option<Option<Duration>>, Error> {
    Ok(match timeout {
        Either3::A(()) => None,
        Either3::B(amount) => Some(Unit::Millis.timeout("timeout", amount)?),
        Either3::C(Null) => Some(None),
    })
}
