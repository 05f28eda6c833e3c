//! Values as JavaScript has them.

/// Milliseconds.
pub(crate) fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Fences count microseconds and ids count calls: both stay far below what a JavaScript number holds exactly.
pub(crate) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
