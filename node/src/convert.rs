//! Values as JavaScript has them.

/// Milliseconds.
pub(crate) fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Fences count microseconds and ids count calls: both stay far below what a JavaScript number holds exactly.
pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The name of an option: `maxHold` for `max_hold`.
pub(crate) fn camel(option: &str) -> String {
    let mut begins = false;
    let letters = option.chars().filter_map(|letter| {
        let begun = std::mem::replace(&mut begins, letter == '_');
        (letter != '_').then_some(if begun { letter.to_ascii_uppercase() } else { letter })
    });
    letters.collect()
}
