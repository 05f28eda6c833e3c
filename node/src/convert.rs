//! Conversions to JavaScript's values.

/// Converts a duration to milliseconds.
pub(crate) fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
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
