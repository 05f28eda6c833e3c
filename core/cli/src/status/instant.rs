//! Instants as text: the day and the time in UTC, as logs of servers have them.

use std::time::{Duration, SystemTime};

/// The seconds of a day.
const DAY: u64 = 86_400;

/// Returns an instant as RFC 3339 writes it, with microseconds: `2026-11-26T03:12:09.000125Z`.
pub(crate) fn rfc3339(instant: SystemTime) -> String {
    let since = since_1970(instant);
    let (date, time) = parts(since.as_secs());
    format!("{date}T{time}.{:06}Z", since.subsec_micros())
}

/// Returns an instant for people, to the second: `2026-11-26 03:12:09 UTC`.
pub(crate) fn shown(instant: SystemTime) -> String {
    let (date, time) = parts(since_1970(instant).as_secs());
    format!("{date} {time} UTC")
}

fn since_1970(instant: SystemTime) -> Duration {
    instant.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the date and the time of a Unix second.
fn parts(seconds: u64) -> (String, String) {
    let (days, of_day) = (seconds / DAY, seconds % DAY);
    // Years begin in March here, so that the day that some years have more is their last one. They are counted from the
    // year 0, in eras of 400 years that have equally many days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let date = format!("{year:04}-{month:02}-{day:02}");
    (date, format!("{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_date_writes_them() {
        // By `date -u -d @N +%FT%T`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000125Z"),
            (951_782_399, "2000-02-28T23:59:59.000125Z"),
            (951_782_400, "2000-02-29T00:00:00.000125Z"),
            (951_868_800, "2000-03-01T00:00:00.000125Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000125Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000125Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000125Z"),
            (9_007_199_254, "2255-06-05T23:47:34.000125Z"),
        ] {
            let instant = SystemTime::UNIX_EPOCH + Duration::new(seconds, 125_999);
            assert_eq!(rfc3339(instant), text);
        }
        let instant = SystemTime::UNIX_EPOCH + Duration::from_secs(1_764_126_729);
        assert_eq!(shown(instant), "2025-11-26 03:12:09 UTC");
    }
}
