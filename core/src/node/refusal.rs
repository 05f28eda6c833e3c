//! What an error means: of a server, by its code and text, or of a stream. Pure.

use std::io;

use redis::Value;

use crate::protocol::diagnosis::Refusal;
use crate::transport::failure::Failure;
use crate::transport::tls;

/// Errors without a code of their own that are not secret: how a server's text begins, in lower case, and what is said
/// instead, which never is the server's own text, because that may repeat arguments.
const KNOWN: [(&str, &str); 12] = [
    ("db index is out of range", "DB index is out of range; write a database that it has into the address"),
    ("invalid db index", "invalid DB index in the address"),
    ("select is not allowed in cluster mode", "a cluster has database 0 alone"),
    ("this instance has cluster support disabled", "it is not a server of a cluster: write the address as redis://"),
    ("protocol error", "it does not understand the protocol; is this a Redis or Valkey server?"),
    ("wrong number of arguments", "wrong number of arguments for a command"),
    ("syntax error", "syntax error"),
    ("unknown subcommand", "unknown subcommand"),
    ("operation not permitted", "operation not permitted"),
    ("script attempted to access nonexistent global variable", "its Lua lacks what the scripts need"),
    ("error compiling script", "its Lua cannot compile the scripts"),
    ("could not find scripting engine", "it lacks Lua, which locks need"),
];

/// Said of a command that a server, a proxy or a script does not know.
const UNKNOWN: &str = "unknown command; `redlock check` says which";

/// Sorts a server's error by its code, or by its text where that is known.
pub(super) fn of_error(code: &str, details: Option<&str>) -> Failure {
    let text = details.unwrap_or_default().to_ascii_lowercase();
    let known = KNOWN.iter().find(|(begin, _)| code == "ERR" && text.starts_with(begin)).map(|(_, said)| *said);
    let told = known.or_else(|| is_unknown_to_scripts(code, details).then_some(UNKNOWN));
    told.map_or_else(|| Failure::of_code(code), Failure::Told)
}

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
        "ERR" => Offence::Some(of_error("ERR", error.details())),
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
        // With HELLO, a user without a password is logged in with any.
        Value::ServerError(error) if needs_no_password(error.details()) => Ok(Value::Okay),
        Value::ServerError(error) => Err(Offence::None(of_error(error.code(), error.details()))),
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
        Value::ServerError(error) => Err(match of_error(error.code(), error.details()) {
            Failure::Refused(code) | Failure::Forbidden(code) => code.into(),
            Failure::Told(text) => text.to_owned(),
            _ => "ERR".to_owned(),
        }),
        value => Ok(value),
    }
}

/// Returns the failure of a server that refuses requests because of the state that it is in, and no matter who asks.
pub(super) fn of_state(code: &str) -> Option<Failure> {
    let is_state = matches!(
        code,
        "OOM" | "MISCONF" | "NOREPLICAS" | "READONLY" | "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN"
    );
    is_state.then(|| Failure::of_code(code))
}

/// Returns whether the server has its maximum of clients. It says so as soon as it is connected to, and hangs up.
pub(super) fn is_full(code: &str, details: Option<&str>) -> bool {
    code == "ERR" && details.is_some_and(|details| details.starts_with("max number of clients"))
}

/// Returns whether AUTH got a password that the server, or a proxy, does not ask for.
fn needs_no_password(details: Option<&str>) -> bool {
    let texts = ["called without any password configured", "no password is set"];
    details.is_some_and(|details| texts.iter().any(|text| details.contains(text)))
}

/// Returns whether a command is refused by name: this server does not know it, or this user may not send it.
pub(super) fn is_unwanted(code: &str, details: Option<&str>) -> bool {
    matches!(code, "NOPERM" | "NOPROTO") || is_unknown(code, details)
}

/// Returns whether a server, or a proxy, does not know a command, or offers it to nobody. Only the text shows it, which
/// some proxies send without a code.
pub(super) fn is_unknown(code: &str, details: Option<&str>) -> bool {
    const TEXTS: [&str; 6] = [
        "unknown command",
        "unknown subcommand",
        "unsupported command",
        "command not supported",
        "invalid request",
        // EVAL, of Valkey without its module for Lua.
        "could not find scripting engine",
    ];
    let whole = format!("{code} {}", details.unwrap_or_default()).to_ascii_lowercase();
    let text = whole.strip_prefix("err ").unwrap_or(&whole);
    TEXTS.iter().any(|known| text.starts_with(known))
        || text.starts_with("command '") && text.trim_end_matches('.').ends_with("is not allowed")
}

/// Returns whether an error of a script that calls a command says that the server does not know it.
pub(super) fn is_unknown_to_scripts(code: &str, details: Option<&str>) -> bool {
    // Redis 6.2 says first where the script is.
    is_unknown(code, details) || details.is_some_and(|details| details.contains("Unknown Redis command"))
}

/// Sorts an error of a stream: without a word of TLS, it has ended, however the system says so.
pub(super) fn io_failure(error: &io::Error) -> Failure {
    tls::failure(error).unwrap_or(Failure::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_are_not_secret_are_told_and_no_other_text() {
        for (code, details, said) in [
            (
                "ERR",
                Some("DB index is out of range"),
                "refused: DB index is out of range; write a database that it has into the address",
            ),
            (
                "ERR",
                Some("Protocol error: invalid bulk length S3CR3T"),
                "refused: it does not understand the protocol; is \
                this a Redis or Valkey server?",
            ),
            (
                "ERR",
                Some("wrong number of arguments for 'S3CR3T' command"),
                "refused: wrong number of arguments for a command",
            ),
            ("ERR", Some("invalid password S3CR3T"), "refused with ERR"),
            ("ERR", None, "refused with ERR"),
            ("ERR", Some("Could not find scripting engine 'lua'"), "refused: it lacks Lua, which locks need"),
            (
                "ERR",
                Some("unknown command 'EVAL', with args beginning with: 'S3CR3T'"),
                "refused: unknown command; `redlock check` says which",
            ),
            (
                "ERR",
                Some("Error running script: 1: Unknown Redis command called from Lua script S3CR3T"),
                "refused: unknown command; `redlock check` says which",
            ),
            ("S3CR3T", Some("syntax error"), "refused with ERR"),
            ("OOM", Some("command not allowed"), "refused with OOM (out of memory: raise maxmemory)"),
            (
                "CROSSSLOT",
                Some("Keys in request don't hash to the same slot"),
                "refused with CROSSSLOT (it keeps these names apart: give them the same hash tag)",
            ),
        ] {
            assert_eq!(of_error(code, details).to_string(), said, "{code} {details:?}");
        }
        assert!(KNOWN.iter().all(|(begin, _)| *begin == begin.to_ascii_lowercase()));
    }

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
            ("ERR", "Could not find scripting engine 'lua'", true),
            ("ERR", "command is not allowed from script", false),
            ("ERR", "max number of clients reached", false),
            ("ERR", "wrong number of arguments for 'info' command", false),
            ("LOADING", "unknown command", false),
        ] {
            assert_eq!(is_unknown(code, Some(details)), unknown, "{code} {details}");
        }
        for (code, details) in [
            ("ERR", "Unknown Redis command called from script script: 1f5a, on @user_script:1."),
            ("@user_script:", "1: Unknown Redis command called from Lua script"),
        ] {
            assert!(is_unknown_to_scripts(code, Some(details)) && !is_unknown(code, Some(details)), "{code} {details}");
        }
        assert!(!is_unknown_to_scripts("ERR", Some("Wrong number of args calling Redis command from script")));
        assert!(is_full("ERR", Some("max number of clients reached")));
        assert!(is_full("ERR", Some("max number of clients + cluster connections reached")));
        assert!(!is_full("ERR", Some("unknown command")) && !is_full("ERR", None));
    }
}
