//! What an error means: of a server, by its code and text, or of a stream. Pure.

use std::io::{self, ErrorKind};

use redis::Value;

use super::Failure;
use crate::net::tls;
use crate::protocol::diagnosis::Refusal;

/// The reason why a connect failed, and whether the commands sent may be the cause.
#[derive(Debug)]
pub(super) enum Offence {
    /// HELLO was refused by name.
    Hello,
    /// The server hung up, or refused a command without naming it.
    Some(Failure),
    /// The commands were not the cause.
    None(Failure),
}

/// Checks the answer to HELLO. `has_login` says whether HELLO contained a login.
pub(super) fn greeted(answer: Value, has_login: bool) -> Result<Value, Offence> {
    let Value::ServerError(error) = answer else { return Ok(answer) };
    Err(match error.code() {
        code if is_full(code, error.details()) => Offence::None(Failure::Full),
        code if is_unwanted(code, error.details()) => Offence::Hello,
        // A proxy that knows AUTH, and not the login of HELLO.
        "NOAUTH" if has_login => Offence::Hello,
        "ERR" => Offence::Some(Failure::of_code("ERR")),
        code => Offence::None(Failure::of_code(code)),
    })
}

/// Sorts a failure before a connection was set up.
pub(super) fn during_setup(failure: Failure) -> Offence {
    match failure {
        Failure::Closed => Offence::Some(Failure::HungUp),
        failure => Offence::None(failure),
    }
}

/// Checks the answer to a required command.
pub(super) fn accepted(answer: Value) -> Result<Value, Offence> {
    match answer {
        Value::ServerError(error) if is_full(error.code(), error.details()) => Err(Offence::None(Failure::Full)),
        Value::ServerError(error) => Err(Offence::None(Failure::of_code(error.code()))),
        answer => Ok(answer),
    }
}

/// Checks the answer to a required command on a connection without a setup of its own.
pub(super) fn unrefused(answer: Result<Value, Failure>) -> Result<Value, Failure> {
    accepted(answer?).map_err(|offence| match offence {
        Offence::Some(failure) | Offence::None(failure) => failure,
        Offence::Hello => Failure::UnexpectedReply,
    })
}

/// Checks the answer to a command of a diagnosis.
pub(super) fn refusal(answer: Value) -> Result<Value, Refusal> {
    match answer {
        Value::ServerError(error) if is_unknown(error.code(), error.details()) => Err("unknown command".to_owned()),
        // A code is a short word; the text may repeat arguments.
        Value::ServerError(error) => Err(match Failure::of_code(error.code()) {
            Failure::Refused(code) | Failure::Forbidden(code) => code.into(),
            _ => "ERR".to_owned(),
        }),
        value => Ok(value),
    }
}

/// Returns whether the server has its maximum of clients. It says so as soon as it is connected to, and hangs up.
pub(super) fn is_full(code: &str, details: Option<&str>) -> bool {
    code == "ERR" && details.is_some_and(|details| details.starts_with("max number of clients"))
}

/// Returns whether a command is refused by name: this server does not know it, or this user may not send it.
pub(super) fn is_unwanted(code: &str, details: Option<&str>) -> bool {
    matches!(code, "NOPERM" | "NOPROTO") || is_unknown(code, details)
}

/// Returns whether a server, or a proxy, does not know a command, or offers it to nobody. Only the text shows it, which
/// some proxies send without a code.
pub(super) fn is_unknown(code: &str, details: Option<&str>) -> bool {
    const TEXTS: [&str; 5] =
        ["unknown command", "unknown subcommand", "unsupported command", "command not supported", "invalid request"];
    let whole = format!("{code} {}", details.unwrap_or_default()).to_ascii_lowercase();
    let text = whole.strip_prefix("err ").unwrap_or(&whole);
    TEXTS.iter().any(|known| text.starts_with(known))
        || text.starts_with("command '") && text.trim_end_matches('.').ends_with("is not allowed")
}

/// Sorts an error of a stream.
pub(super) fn io_failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe
        | ErrorKind::ConnectionAborted
        | ErrorKind::ConnectionReset
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof => Failure::Closed,
        kind => tls::failure(error).unwrap_or_else(|| Failure::Unreachable(kind.to_string().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_by_their_text() {
        for (code, details, unknown) in [
            ("ERR", "unknown command 'INFO', with args beginning with: ", true),
            ("ERR", "unknown command `HELLO`, with args beginning with: `3`, ", true),
            ("ERR", "Unknown subcommand or wrong number of arguments for 'TRACKING'. Try CLIENT HELP.", true),
            ("ERR", "unknown subcommand 'SETINFO'. Try CLIENT HELP.", true),
            ("ERR", "unsupported command 'hello'", true),
            ("unsupported", "command 'HELLO'", true),
            ("invalid", "request", true),
            ("ERR", "command 'client|tracking' is not allowed", true),
            ("ERR", "command is not allowed from script", false),
            ("ERR", "max number of clients reached", false),
            ("ERR", "wrong number of arguments for 'info' command", false),
            ("LOADING", "unknown command", false),
        ] {
            assert_eq!(is_unknown(code, Some(details)), unknown, "{code} {details}");
        }
        assert!(is_full("ERR", Some("max number of clients reached")));
        assert!(is_full("ERR", Some("max number of clients + cluster connections reached")));
        assert!(!is_full("ERR", Some("unknown command")) && !is_full("ERR", None));
    }
}
