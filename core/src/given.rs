//! What a caller of another language gave, turned into what the options are made of. Hidden: for the bindings.

use std::time::Duration;

use crate::error::Error;

/// `amount` seconds, given for `option`.
///
/// # Errors
///
/// `invalid` for a number that is negative or not finite.
pub fn seconds(option: &str, amount: f64) -> Result<Duration, Error> {
    duration(option, amount, "s", 1.0)
}

/// `amount` milliseconds, given for `option`.
///
/// # Errors
///
/// As [`seconds`].
pub fn millis(option: &str, amount: f64) -> Result<Duration, Error> {
    duration(option, amount, "ms", 1000.0)
}

fn duration(option: &str, amount: f64, unit: &str, per_second: f64) -> Result<Duration, Error> {
    if !amount.is_finite() || amount < 0.0 {
        return Err(Error::invalid(format!("{option} is {amount} {unit}, but must be a finite number and not negative")));
    }
    // Whatever is too long to be counted is longer than any limit.
    Ok(Duration::try_from_secs_f64(amount / per_second).unwrap_or(Duration::MAX))
}

/// The error for an option that does not exist, with a hint where it is one of another library's.
#[must_use]
pub fn unknown(option: &str) -> Error {
    Error::invalid(format!("there is no option {option:?}"))
}
