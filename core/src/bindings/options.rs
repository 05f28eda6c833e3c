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

/// The unit of a language's durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
}

impl Unit {
    /// Converts `amount` for `option`.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a number that is negative or not finite.
    pub fn duration(self, option: &'static str, amount: f64) -> Result<Duration, Error> {
        if amount.is_nan() {
            return Err(Error::about(option, " is not a number (NaN), but must be a finite number"));
        }
        if amount.is_infinite() {
            return Err(Error::about(option, " is infinite, but must be a finite number"));
        }
        let (unit, per_second) = match self {
            Self::Seconds => ("s", 1.0),
            Self::Millis => ("ms", 1000.0),
        };
        if amount < 0.0 {
            return Err(Error::about(option, format!(" is {amount} {unit}, but must not be negative")));
        }
        // An amount that is too large for a `Duration` is longer than any limit, as `Duration::MAX` is.
        Ok(Duration::try_from_secs_f64(amount / per_second).unwrap_or(Duration::MAX))
    }

    /// Converts `amount` for a timeout. It has no end if the amount is infinite or -1, which other libraries take for
    /// that.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for not a number, and for other negative ones.
    pub fn timeout(self, option: &'static str, amount: f64) -> Result<Option<Duration>, Error> {
        let is_endless = amount == f64::INFINITY || amount.to_bits() == (-1.0_f64).to_bits();
        if is_endless { Ok(None) } else { self.duration(option, amount).map(Some) }
    }
}

/// Returns the error for an argument whose value cannot be converted.
#[must_use]
pub fn invalid_argument(argument: &str, message: String) -> Error {
    Error::invalid(message).with_option(argument)
}

/// Options of other libraries, and of other functions of this one, in lower case without underscores, with a hint: a
/// text with the options of this library in braces.
const FOREIGN: &[(&str, &str)] = &[
    (
        "host hostname port db database username user password passwd ssl tls unixsocketpath socket",
        "write it into the node's address: redis://user:password@host:port/db, or rediss:// for TLS",
    ),
    (
        "url urls server servers masters connection connectiondetails connectionlist connectionpool redis redisclient \
         client clients adapters node nodes sentinels startupnodes rootnodes",
        "give the nodes' addresses as the first argument, such as redis://127.0.0.1:6379",
    ),
    (
        "blockingtimeout acquiretimeout acquireattemptslimit contextmanagertimeout waittime retryattempts retrycount \
         retrytimes retries maxretries tries",
        "use {timeout}: how long acquire may wait, 0 for one try",
    ),
    (
        "autoreleasetime expire expires expiresin expiry expiration leasetime lifetime locktimeout lockttl duration ttlms \
         px ex",
        "use {ttl}: how long the servers keep the lock",
    ),
    ("sleep retrydelay retryinterval retryjitter delay", "remove it: retries are scheduled automatically"),
    ("threadlocal", "remove it: a lock object is one holder, whichever thread uses it"),
    (
        "autorenewal autoextend autoextendthreshold automaticextensionthreshold extend heartbeat refreshinterval renew \
         watchdog",
        "use {auto_renew}: true or false; renewal comes every third of the ttl",
    ),
    ("numextensions", "use {max_hold}: how long the lock may be held, however often it is extended"),
    ("driftfactor clockdrift clockdriftfactor", "remove it: 1 % of the ttl and 2 ms are set aside for drift"),
    ("id identifier token value", "remove it: every acquisition has a random token of its own; {label} is for people"),
    ("raiseonreleaseerror", "remove it: the end of a block raises an error only for a lost lock; catch that"),
    (
        "acquiredexternally externallyacquiredidentifier",
        "remove it: detach() returns a text, and attach(text) continues that hold in another program",
    ),
    ("raiseonrediserrors", "remove it: without a quorum of servers, acquire always fails as unavailable"),
    ("quorum", "remove it: the quorum is the majority of the nodes"),
    ("reentrant", "remove it: locks are not reentrant; acquire it once, and pass it on"),
    ("lockclass", "remove it: there is one class of locks"),
    ("signalexpire strict", "remove it: those who wait are notified by the servers"),
    ("circuitbreaker performance", "remove it: nodes that do not answer are left alone for a while anyway"),
    ("permits limit capacity", "use semaphore(name, permits), a lock with several holders"),
    ("key resource resources", "give the name of the lock as the first argument of lock(name)"),
    ("skipifheld passlock", "use locked, which runs each call of a function under a lock"),
    ("onlocklost onlost", "remove it: use on_lost (Python), signal (Node) or lost() (Rust) on the lock"),
    ("connecttimeout", "give it to the client as {connect_timeout}: it is for the connections of all its locks"),
    ("keepalive", "give it to the client as {keepalive}: it is for the connections of all its locks"),
    ("maxconnections", "give it to the client as {max_connections}: all locks of a client share connections"),
    ("keyprefix", "give it to the client as {key_prefix}: all locks of a client have the same"),
    ("credentials", "give it to the client as {credentials}: all locks of a client log in with the same"),
    ("passwordfile", "give it to the client as {password_file}: all locks of a client log in with the same"),
    ("tlsca tlscert tlskey tlsservername", "give it to the client: it is for the connections of all its locks"),
    ("sslcacerts sslcafile cafile ca", "use {tls_ca}, an option of the client"),
    (
        "sslcertreqs sslcheckhostname rejectunauthorized",
        "remove it: certificates are always checked, against the file {tls_ca} of the client if there is one",
    ),
    ("sslcertfile certfile", "use {tls_cert}, an option of the client"),
    ("sslkeyfile keyfile", "use {tls_key}, an option of the client"),
    ("prefix namespace", "use {key_prefix}, an option of the client"),
    ("socketconnecttimeout connectiontimeout", "use {connect_timeout}, an option of the client"),
    ("socketkeepalive socketkeepaliveoptions tcpkeepalive", "use {keepalive}, an option of the client"),
    ("sockettimeout commandtimeout", "use {node_timeout}: how long one node may take to answer"),
    ("clientname connectionname", "use {label}: a text that people see beside the lock"),
    (
        "decoderesponses encoding encodingerrors healthcheckinterval retry retryontimeout retryonerror retrystrategy \
         lazyconnect maxretriesperrequest enablereadycheck",
        "remove it: redlock opens and keeps its own connections",
    ),
    ("blocking contextmanagerblocking", "give it to acquire, or use {timeout} 0 for one try"),
    ("signal abortsignal", "give it to the call that it may end, such as acquire"),
];

/// Returns the error for an option that does not exist. It has a hint for an option of another library, and for an
/// option that is not written as `spell` writes it.
#[must_use]
pub fn unknown(option: &str, spell: fn(&str) -> String) -> Error {
    let sought = normalized(option);
    let foreign = FOREIGN.iter().find(|(names, _)| names.split(' ').any(|name| name == sought)).map(|(_, hint)| *hint);
    let respelled = || OPTIONS.iter().find(|row| normalized(row.name) == sought && spell(row.name) != option);
    let unknown = invalid_argument(option, format!("unknown option {option:?}"));
    match (foreign, respelled()) {
        (Some(hint), _) => unknown.and("; ").hint(hint),
        (None, Some(row)) => unknown.and("; use ").mention(row.name, ""),
        (None, None) if OPTIONS.iter().any(|row| normalized(row.name) == sought) => {
            unknown.and("; it is an option of a lock")
        }
        (None, None) => unknown,
    }
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
        for row in OPTIONS.iter().filter(|row| row.scope == Scope::Client) {
            let error = find(row.name, Scope::Lock).unwrap_err();
            assert!(error.to_string().contains("give it to the client"), "{error}");
        }
        assert!(find("tll", Scope::Client).is_err());
    }

    #[test]
    fn numbers_become_durations() {
        let (seconds, millis) = (Unit::Seconds, Unit::Millis);
        assert_eq!(seconds.duration("ttl", 1.5).unwrap(), Duration::from_millis(1500));
        assert_eq!(millis.duration("ttl", 1.5).unwrap(), Duration::from_micros(1500));
        assert_eq!(millis.duration("ttl", 0.0).unwrap(), Duration::ZERO);
        assert_eq!(seconds.duration("ttl", f64::MAX).unwrap(), Duration::MAX);
        for wrong in [-1.0, -0.001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = seconds.duration("ttl", wrong).unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().starts_with("ttl is "), "{error}");
        }
    }

    #[test]
    fn a_timeout_of_minus_one_or_infinity_has_no_end() {
        for unit in [Unit::Seconds, Unit::Millis] {
            for endless in [-1.0, f64::INFINITY] {
                assert_eq!(unit.timeout("timeout", endless).unwrap(), None);
            }
            assert_eq!(unit.timeout("timeout", 0.0).unwrap(), Some(Duration::ZERO));
            for wrong in [-0.5, -2.0, f64::NAN, f64::NEG_INFINITY] {
                assert_eq!(unit.timeout("timeout", wrong).unwrap_err().option(), Some("timeout"));
            }
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
            ("retries", "use timeout"),
            ("signal", "give it to the call"),
            ("onLockLost", "use on_lost"),
            ("context_manager_timeout", "use timeout"),
            ("raise_on_release_error", "remove it"),
            ("externallyAcquiredIdentifier", "attach(text)"),
            ("num_extensions", "use max_hold"),
            ("context_manager_blocking", "timeout 0"),
            ("raise_on_redis_errors", "unavailable"),
            ("permits", "semaphore(name, permits)"),
            ("key", "lock(name)"),
            ("connection_details", "first argument"),
            ("ssl_cert_reqs", "tls_ca"),
            ("rejectUnauthorized", "always checked"),
            ("socket_timeout", "use node_timeout"),
            ("decode_responses", "its own connections"),
            ("skip_if_held", "use locked"),
            ("passLock", "use locked"),
            ("connect_timeout", "give it to the client"),
            ("connectTimeout", "give it to the client"),
            ("socket_connect_timeout", "use connect_timeout"),
            ("host", "redis://user:password@host:port/db"),
            ("unix_socket_path", "address"),
            ("connection_pool", "first argument"),
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
        assert_eq!(message("max_hold"), "unknown option \"max_hold\"; it is an option of a lock");
    }
}
