//! Durations as they are typed: `30s`, `500ms`, `2m`, `1h`, and bare numbers, which are seconds as in flock(1).

use std::time::Duration;

/// The units, and how many seconds each has.
const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// Reads a duration. For clap's `value_parser`.
///
/// # Errors
///
/// A sentence that follows the name of the option.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = if unit.is_empty() { "s" } else { unit };
    let seconds = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds);
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
    match (number, seconds) {
        // A number that is too large for a `Duration` is longer than any limit, as `Duration::MAX` is.
        (Some(number), Some(seconds)) => Ok(Duration::try_from_secs_f64(number * seconds).unwrap_or(Duration::MAX)),
        _ => Err("a duration is a number and a unit, such as 500ms, 30s, 2m or 1h; without a unit, seconds".to_owned()),
    }
}

/// Returns a duration in one or two units, for people: `350 ms`, `4.2 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub(crate) fn shown(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.as_millis());
    match seconds {
        1..10 if millis % 1_000 >= 100 => format!("{seconds}.{} s", millis % 1_000 / 100),
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds} s"),
        60..3_600 => two(seconds, 60, "min", 1, "s"),
        3_600..86_400 => two(seconds, 3_600, "h", 60, "min"),
        _ => two(seconds, 86_400, "d", 3_600, "h"),
    }
}

/// Returns `seconds` in a unit of `large` seconds and in one of `small` seconds, without the latter if it is zero.
fn two(seconds: u64, large: u64, large_name: &str, small: u64, small_name: &str) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 { format!("{whole} {large_name}") } else { format!("{whole} {large_name} {rest} {small_name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1.5", 1_500),
            ("0", 0),
            (".5", 500),
            ("1.5ms", 1),
        ] {
            assert_eq!(parse(text).map(|duration| duration.as_millis()), Ok(millis), "{text}");
        }
        assert_eq!(parse(&"9".repeat(40)), Ok(Duration::MAX));
        for text in ["", "s", "-1", "1 s", "1S", "1min", "1.2.3", "inf", "NaN", "1e3", "0x1", "1h30m", "½"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown() {
        for (millis, text) in [
            (0, "0 ms"),
            (350, "350 ms"),
            (4_000, "4 s"),
            (4_099, "4 s"),
            (4_200, "4.2 s"),
            (9_999, "9.9 s"),
            (42_900, "42 s"),
            (60_000, "1 min"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
            (86_400_000, "1 d"),
            (273_600_000, "3 d 4 h"),
        ] {
            assert_eq!(shown(Duration::from_millis(millis)), text);
        }
    }
}
