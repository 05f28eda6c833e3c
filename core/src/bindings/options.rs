//! Options of callers in other languages: their names, and numbers in each language's unit.
//!
//! Hidden: for the bindings.

use std::time::Duration;

use crate::error::Error;
pub use crate::options::{Kind, OPTIONS, Options, Row, Scope, Value};

/// Returns the option of this name, for a client or for a lock.
///
/// # Errors
///
/// The error of [`unknown`] if there is no such option.
pub fn find(option: &str, scope: Scope) -> Result<&'static Row, Error> {
    let row = OPTIONS.iter().find(|row| row.name == option);
    row.filter(|row| row.scope == Scope::Lock || scope == Scope::Client).ok_or_else(|| unknown(option, str::to_owned))
}

/// Converts `amount`, in seconds, for `option`.
///
/// # Errors
///
/// `invalid_argument` for a number that is negative or not finite.
pub fn seconds(option: &'static str, amount: f64) -> Result<Duration, Error> {
    duration(option, amount, "s", 1.0)
}

/// Converts `amount`, in milliseconds, for `option`.
///
/// # Errors
///
/// As [`seconds`].
pub fn millis(option: &'static str, amount: f64) -> Result<Duration, Error> {
    duration(option, amount, "ms", 1000.0)
}

fn duration(option: &'static str, amount: f64, unit: &str, per_second: f64) -> Result<Duration, Error> {
    if !amount.is_finite() || amount < 0.0 {
        let rest = format!(" is {amount} {unit}, but must be a finite number and not negative");
        return Err(Error::about(option, rest));
    }
    // An amount that is too large for a `Duration` is longer than any limit, as `Duration::MAX` is.
    Ok(Duration::try_from_secs_f64(amount / per_second).unwrap_or(Duration::MAX))
}

/// Returns the error for an argument whose value cannot be converted.
#[must_use]
pub fn invalid_argument(argument: &str, message: String) -> Error {
    Error::invalid(message).with_option(argument)
}

/// Options of other libraries, in lower case without underscores, with a hint: a text, an option of this library, a
/// text.
const FOREIGN: [(&str, [&str; 3]); 11] = [
    (
        "blockingtimeout acquiretimeout acquireattemptslimit waittime retryattempts retrycount retrytimes maxretries \
         tries",
        ["use ", "timeout", ": how long acquire may wait, 0 for one try"],
    ),
    (
        "autoreleasetime expire expiry leasetime locktimeout duration ttlms px ex",
        ["use ", "ttl", ": how long the servers keep the lock"],
    ),
    ("sleep retrydelay retryinterval retryjitter delay", ["remove it: retries are scheduled automatically", "", ""]),
    ("threadlocal", ["remove it: a lock object is one holder, whichever thread uses it", "", ""]),
    (
        "autorenewal autoextend autoextendthreshold automaticextensionthreshold refreshinterval",
        ["use ", "auto_renew", ": true or false; renewal comes every third of the ttl"],
    ),
    ("driftfactor clockdrift clockdriftfactor", ["remove it: 1 % of the ttl and 2 ms are set aside for drift", "", ""]),
    (
        "id identifier token value",
        ["remove it: every acquisition has a random token of its own; ", "label", " is for people"],
    ),
    ("onlocklost onlost", ["remove it: use on_lost (Python), signal (Node) or lost() (Rust) on the lock", "", ""]),
    (
        "connecttimeout",
        ["give it to the client as ", "connect_timeout", ": it is for the connections of all its locks"],
    ),
    ("socketconnecttimeout connectiontimeout", ["use ", "connect_timeout", ", an option of the client"]),
    ("blocking", ["give it to acquire, or use ", "timeout", " 0 for one try"]),
];

/// Returns the error for an option that does not exist. It has a hint for an option of another library, and for an
/// option that is not written as `spell` writes it.
#[must_use]
pub fn unknown(option: &str, spell: fn(&str) -> String) -> Error {
    let sought = normalized(option);
    let foreign = FOREIGN.iter().find(|(names, _)| names.split(' ').any(|name| name == sought)).map(|(_, hint)| *hint);
    let respelled = || OPTIONS.iter().find(|row| normalized(row.name) == sought && spell(row.name) != option);
    let hint = foreign.or_else(|| respelled().map(|row| ["use ", row.name, ""]));
    let Some([before, known, after]) = hint else {
        return invalid_argument(option, format!("unknown option {option:?}"));
    };
    invalid_argument(option, format!("unknown option {option:?}; {before}")).mention(known, after)
}

/// Returns the name of an option in lower case without underscores, the same for every language.
fn normalized(option: &str) -> String {
    option.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_has_the_options_of_a_client() {
        assert_eq!(find("ttl", Scope::Lock).unwrap().name, "ttl");
        assert_eq!(find("connect_timeout", Scope::Client).unwrap().kind, Kind::Duration);
        let error = find("connect_timeout", Scope::Lock).unwrap_err();
        assert!(error.to_string().contains("give it to the client"), "{error}");
        assert!(find("tll", Scope::Client).is_err());
    }

    #[test]
    fn numbers_become_durations() {
        assert_eq!(seconds("ttl", 1.5).unwrap(), Duration::from_millis(1500));
        assert_eq!(millis("ttl", 1.5).unwrap(), Duration::from_micros(1500));
        assert_eq!(millis("timeout", 0.0).unwrap(), Duration::ZERO);
        assert_eq!(seconds("timeout", f64::MAX).unwrap(), Duration::MAX);
        for wrong in [-1.0, -0.001, f64::NAN, f64::INFINITY] {
            let error = seconds("ttl", wrong).unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().starts_with("ttl is "), "{error}");
        }
    }

    #[test]
    fn options_of_other_libraries_get_a_hint() {
        for (given, hint) in [
            ("blocking_timeout", "use timeout"),
            ("sleep", "remove it"),
            ("thread_local", "one holder"),
            ("expire", "use ttl"),
            ("retryCount", "use timeout"),
            ("automaticExtensionThreshold", "use auto_renew"),
            ("auto_release_time", "use ttl"),
            ("acquireAttemptsLimit", "use timeout"),
            ("onLockLost", "use on_lost"),
            ("connect_timeout", "give it to the client"),
            ("connectTimeout", "give it to the client"),
            ("socket_connect_timeout", "use connect_timeout"),
        ] {
            let error = unknown(given, str::to_owned);
            assert_eq!(error.option(), Some(given));
            let error = error.to_string();
            assert!(error.contains(given) && error.contains(hint), "{error}");
        }
        let message = |option| unknown(option, str::to_owned).to_string();
        assert_eq!(message("tll"), "unknown option \"tll\"");
        assert_eq!(message("maxHold"), "unknown option \"maxHold\"; use max_hold");
        // The spelling is right, so another one would not help.
        assert_eq!(message("max_hold"), "unknown option \"max_hold\"");
    }
}
