//! The command line: the program `redlock`, and the functions behind it for other launchers. These are not public API.
//!
//! It parses, calls the public API of `redlock-core` and what that shares with the bindings, and prints. `redlock run` is
//! the one command with a life of its own: see `run`.
//!
//! Three launchers share it: the program of the crate, the console script of the Python package, and that of the Node
//! package. So it must not rely on being the first code in its process: threads, signal handlers and a language's
//! runtime may be there already.
#![expect(
    clippy::doc_markdown,
    reason = "many of these comments are the program's help, which would show the backticks"
)]
#![forbid(unsafe_code)]

mod acquire;
mod around;
mod check;
mod duration;
mod exit;
mod list;
mod manual;
mod nodes;
mod progress;
mod release;
mod run;
#[cfg(test)]
mod sample;
mod say;
mod signals;
mod status;
mod table;
mod wait;
mod waiting;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use redlock::shutdown;

use crate::exit::{Exit, Failure};
use crate::run::group;
use crate::signals::{ENDING, Ignored, Signals, USER};

/// Runs the program that the crate installs, and ends the process. Under the name of a keeper, it is what `redlock run`
/// starts beside its command.
pub fn program(args: impl IntoIterator<Item = OsString>) -> ! {
    let args: Vec<_> = args.into_iter().collect();
    if args.first().is_some_and(|name| name == group::KEEPER) {
        drop(group::keep());
        std::process::exit(Exit::BUG.code.into())
    }
    group::keep_itself();
    main(args)
}

/// Runs the program and ends the process.
///
/// The first argument is the program's name, whatever its path is.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ! {
    std::process::exit(run(args))
}

/// Runs the program and returns the status with which the process has to end, after [`shutdown`].
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<_> = args.into_iter().collect();
    let ended = catch_unwind(AssertUnwindSafe(|| parse(args).and_then(dispatch)));
    let exit = match ended {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            if let Some(message) = &failure.message {
                say::error(message);
            }
            failure.exit
        }
        // The panic's own message stands on stderr.
        Err(_) => {
            say::error("bug in redlock: it panicked; please report it with the message above");
            Exit::BUG
        }
    };
    shutdown();
    if exit.is_interrupted {
        signals::die_of_interrupt();
    }
    exit.code.into()
}

/// What stands above the help.
const EXAMPLE: &str = "redlock run nightly -- ./report.sh    runs ./report.sh while nobody else holds \"nightly\"";

/// What stands below the help.
const AFTER: &str = "\
Nodes: set REDLOCK_URLS to their addresses, with commas between them, or give --node once for each. Without either, it is \
redis://127.0.0.1:6379. All programs that share locks must list the same nodes.

Exit status: 0, the status of the command that was run, or
  1    the answer is no: a name is free, a lock was not released, a node has warnings
  2    a node cannot be used (check)
  64   wrong usage
  69   no quorum of nodes answered
  70   a bug, or a part of the system is missing
  74   the output cannot be written
  75   others hold the lock
  76   the lock was lost
  77   nodes refuse the login, or rights are missing

Documentation: https://github.com/redlock-rs/redlock/blob/main/core/docs/command-line.md";

/// Runs commands, and answers for operators, under distributed locks in Redis or Valkey.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, propagate_version = true, max_term_width = 100)]
#[command(before_help = EXAMPLE, after_help = AFTER)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::args::Args),
    Acquire(acquire::Args),
    Extend(acquire::ExtendArgs),
    Status(status::Args),
    Wait(wait::Args),
    List(list::Args),
    Release(release::Args),
    Check(check::Args),
    Manual(manual::Args),
    Completions(manual::CompletionsArgs),
}

/// Reads the command line. Help and version are answered here.
fn parse(args: Vec<OsString>) -> Result<Command, Failure> {
    let lacks_separator = args.get(1).is_some_and(|word| word == "run") && !args.iter().any(|word| word == "--");
    let error = match Program::try_parse_from(args) {
        Ok(program) => return Ok(program.command),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            say::written(error.print())?;
            Err(Failure::quiet(Exit::OK))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Nothing was asked for: there is no one line that says what would be right.
            drop(error.print());
            Err(Failure::quiet(Exit::USAGE))
        }
        ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument if lacks_separator => {
            let sentence = sentence(&error.render().to_string());
            Err(Failure::usage(format!("put -- before the command; {sentence}")))
        }
        _ => Err(Failure::usage(sentence(&error.render().to_string()))),
    }
}

/// Returns an error of the parser in one line: it writes paragraphs, the first of which says what is wrong, and others
/// what may have been meant.
fn sentence(rendered: &str) -> String {
    let paragraph = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let mut paragraphs = rendered.trim().split("\n\n").map(paragraph);
    let first = paragraphs.next().unwrap_or_default();
    let mut sentence = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    for more in paragraphs {
        if let Some(usage) = more.strip_prefix("Usage: ") {
            sentence.extend(["; usage: ", usage]);
        } else if let Some(tip) = more.strip_prefix("tip: ") {
            sentence.extend(["; ", tip]);
        }
    }
    sentence
}

/// Runs a command to its end.
fn dispatch(command: Command) -> Result<Exit, Failure> {
    // Before any handler is installed.
    let ignored = Ignored::at_start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::BUG, format!("cannot start: {error}; the limit on open files may be reached"))
    })?;
    match command {
        Command::Run(args) => runtime.block_on(run::run(args, ignored)),
        Command::Acquire(args) => runtime.block_on(unless_ended(ignored, acquire::run(args))),
        Command::Extend(args) => runtime.block_on(unless_ended(ignored, acquire::extend(args))),
        Command::Status(args) => runtime.block_on(unless_ended(ignored, status::run(args))),
        Command::Wait(args) => runtime.block_on(unless_ended(ignored, wait::run(args))),
        Command::List(args) => runtime.block_on(unless_ended(ignored, list::run(args))),
        Command::Release(args) => runtime.block_on(unless_ended(ignored, release::run(args))),
        Command::Check(args) => runtime.block_on(unless_ended(ignored, check::run(args))),
        Command::Manual(args) => manual::run(&args, Program::command()),
        Command::Completions(args) => manual::completions(&args, Program::command()),
    }
}

/// Runs a command until it ends, or until a signal ends it. It is dropped at its current await then: it must not block.
async fn unless_ended(ignored: Ignored, command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let mut signals = Signals::listen(ENDING.into_iter().chain(USER), ignored)?;
    tokio::select! {
        biased;
        result = command => result,
        signal = signals.next() => Ok(signals::exit(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Program::command().debug_assert();
    }

    #[test]
    fn each_command_has_its_page() {
        let page = |name| manual::page(Program::command(), name);
        let (definition, program) = (Program::command(), page(None).unwrap());
        for command in definition.get_subcommands() {
            let name = command.get_name();
            assert!(program.contains(&format!("redlock\\-{name}(1)")), "{name} is in {program}");
            let page = page(Some(name)).unwrap();
            assert!(page.contains(&format!("redlock {name}").replace('-', "\\-")), "{page}");
        }
        assert_eq!(page(Some("no")).unwrap_err().exit, Exit::USAGE);
    }

    #[test]
    fn an_error_of_the_parser_is_one_line() {
        let error = |args: &[&str]| {
            let failure = parse(args.iter().map(OsString::from).collect()).unwrap_err();
            assert_eq!(failure.exit, Exit::USAGE);
            failure.message
        };
        let unknown = error(&["redlock", "status", "--what"]).unwrap();
        assert!(unknown.starts_with("unexpected argument '--what' found"), "{unknown}");
        assert!(!unknown.contains('\n'), "{unknown}");
        let near = error(&["redlock", "stats"]).unwrap();
        assert!(near.contains("'status'"), "{near}");
        assert_eq!(error(&["redlock"]), None);
    }
}
