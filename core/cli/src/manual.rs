//! `redlock manual` and `redlock completions`: the manual page, and what shells complete, both made from the options.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::say;

/// Print the manual page, of the program or of one of its commands
///
/// To read it: redlock manual run | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Command to print the page of
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Print what a shell needs to complete options
///
/// For bash: redlock completions bash > ~/.local/share/bash-completion/completions/redlock
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the manual page of `program`.
///
/// # Errors
///
/// For a command that does not exist, and if the page cannot be written.
pub(crate) fn run(args: &Args, program: Command) -> Result<Exit, Failure> {
    let page = page(program, args.command.as_deref())?;
    say::out(&page)?;
    Ok(Exit::OK)
}

/// Returns the page of the program, or of one command.
pub(crate) fn page(mut program: Command, name: Option<&str>) -> Result<String, Failure> {
    // Gives the commands their whole names.
    program.build();
    let (title, subject) = match name {
        None => ("redlock".to_owned(), program),
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            let found = found.ok_or_else(|| Failure::usage(format!("there is no command {name:?}")))?;
            (format!("redlock-{}", found.get_name()), found)
        }
    };
    let mut page = Vec::new();
    let man = Man::new(subject).title(title.to_uppercase()).manual("User Commands");
    // An empty date would leave its place to the next word.
    let man = man.date(" ").source(concat!("redlock ", env!("CARGO_PKG_VERSION")));
    let written = man.render(&mut page);
    written.map_err(|error| Failure::new(Exit::BUG, format!("cannot make the page: {error}")))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Prints the completions for `program`.
///
/// # Errors
///
/// If they cannot be written.
pub(crate) fn completions(args: &CompletionsArgs, mut program: Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "redlock", &mut script);
    say::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::OK)
}
