//! How the program ends: its exit codes, and the failures that lead to them.
//!
//! The codes are those of `sysexits.h` and of env(1), so that a script can tell the command's own status from ours.

use redlock::{Error, ErrorKind};

/// The status with which the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// The number that the system is given.
    pub(crate) code: u8,
    /// Whether the process should die of SIGINT instead of ending with the code.
    pub(crate) is_interrupted: bool,
}

impl Exit {
    /// Everything is as asked for.
    pub(crate) const OK: Self = Self::status(0);
    /// The answer is no: a name is free, a lock has changed, a check has warnings.
    pub(crate) const NO: Self = Self::status(1);
    /// A node cannot be used.
    pub(crate) const UNUSABLE: Self = Self::status(2);
    /// The command line is wrong.
    pub(crate) const USAGE: Self = Self::status(64);
    /// No quorum of nodes answered.
    pub(crate) const UNAVAILABLE: Self = Self::status(69);
    /// Something that should never happen, or a part of the system that is missing.
    pub(crate) const BUG: Self = Self::status(70);
    /// The output could not be written.
    pub(crate) const OUTPUT: Self = Self::status(74);
    /// Others hold the lock.
    pub(crate) const HELD: Self = Self::status(75);
    /// The lock was lost while the command ran.
    pub(crate) const LOST: Self = Self::status(76);
    /// Nodes refuse the login or lack rights.
    pub(crate) const FORBIDDEN: Self = Self::status(77);
    /// The command cannot be executed.
    pub(crate) const CANNOT_EXECUTE: Self = Self::status(126);
    /// There is no such command.
    pub(crate) const NOT_FOUND: Self = Self::status(127);

    /// The end by SIGINT, which shells tell from a mere status; see [`Exit::is_interrupted`].
    pub(crate) const INTERRUPTED: Self = Self { is_interrupted: true, ..Self::signal(2) };

    /// Returns the status of a command, or one that the user chose.
    pub(crate) const fn status(code: u8) -> Self {
        Self { code, is_interrupted: false }
    }

    /// Returns the status that a shell shows for the end by this signal.
    pub(crate) const fn signal(signal: u8) -> Self {
        Self::status(128_u8.saturating_add(signal))
    }

    /// Returns the status for a call that failed.
    pub(crate) const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::HELD,
            ErrorKind::Unavailable | ErrorKind::Closed => Self::UNAVAILABLE,
            ErrorKind::Forbidden => Self::FORBIDDEN,
            ErrorKind::Lost | ErrorKind::NotHeld => Self::LOST,
            ErrorKind::InvalidArgument => Self::USAGE,
            // `already_held` and `internal`.
            _ => Self::BUG,
        }
    }
}

/// Why the program ends before it has done what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// One line for the person, without `redlock: ` before it; `None` if there is nobody to read it.
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()) }
    }

    /// Ends the program without a word.
    pub(crate) const fn quiet(exit: Exit) -> Self {
        Self { exit, message: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::USAGE, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Exit::of(error.kind()), spelled(&error))
    }
}

/// Returns the message of an error, with options as they are written here.
pub(crate) fn spelled(error: &Error) -> String {
    error.spelled(option)
}

/// Returns an option of the library as it is written on the command line.
fn option(name: &str) -> String {
    match name {
        "auto_renew" => "its renewal".to_owned(),
        "timeout" => "--wait".to_owned(),
        "nodes" => "--node".to_owned(),
        // An argument, as the help calls it.
        "name" | "names" => "NAME".to_owned(),
        "text" => "--token".to_owned(),
        _ => format!("--{}", name.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        let codes = ErrorKind::ALL.map(|kind| Exit::of(kind).code);
        assert_eq!(codes, [75, 69, 77, 76, 76, 70, 69, 64, 70]);
    }

    #[test]
    fn signals_count_from_128() {
        assert_eq!(Exit::signal(15).code, 143);
        assert_eq!(Exit::signal(200).code, 255);
    }

    #[tokio::test]
    async fn options_are_spelled_as_typed() {
        let lock = redlock::Redlock::new("memory://exit").unwrap().lock("spelled").ttl(Duration::from_secs(1));
        let wrong = lock.clone().max_hold(Duration::from_millis(1)).acquire().await.unwrap_err();
        let failure = Failure::from(wrong);
        assert_eq!(failure.exit, Exit::USAGE);
        let message = failure.message.unwrap_or_default();
        assert!(message.starts_with(r#"lock "spelled": --max-hold is "#), "{message}");
        let held_too_long = lock.max_hold(Duration::from_secs(1)).run(async |_| pending::<()>().await).await;
        assert_eq!(spelled(&held_too_long.unwrap_err()), r#"lock "spelled": the lock reached --max-hold"#);
    }
}
