//! Conversions to JavaScript's values.

use std::time::{Duration, SystemTime};

/// Converts a duration to milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Converts a time to milliseconds since 1970, exact to the microsecond.
pub(crate) fn epoch_ms(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // In one number of seconds, a fraction would lose digits before it is multiplied.
    ms(Duration::from_secs(since.as_secs())) + f64::from(since.subsec_micros()) / 1000.0
}

/// Converts a fence, which counts microseconds, or an id, which counts calls. A JavaScript number holds both exactly.
pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns an option's name as JavaScript spells it: `maxHold` for `max_hold`.
pub(crate) fn camel(option: &str) -> String {
    let mut starts_word = false;
    let letters = option.chars().filter_map(|letter| {
        let is_first = std::mem::replace(&mut starts_word, letter == '_');
        (letter != '_').then_some(if is_first { letter.to_ascii_uppercase() } else { letter })
    });
    letters.collect()
}
