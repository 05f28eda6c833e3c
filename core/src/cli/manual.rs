//! `redlock manual` and `redlock completions`: the manual page, and what shells complete, both made from the options.

use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::exit::{Exit, Failure};
use crate::cli::{command, say};

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

/// Prints the manual page.
///
/// # Errors
///
/// For a command that does not exist, and if the page cannot be written.
pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let page = page(args.command.as_deref())?;
    say::out(&page)?;
    Ok(Exit::OK)
}

/// Returns the page of the program, or of one command.
fn page(name: Option<&str>) -> Result<String, Failure> {
    let mut program = command();
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
    let written = Man::new(subject).title(title.to_uppercase()).manual("redlock").render(&mut page);
    written.map_err(|error| Failure::new(Exit::BUG, format!("cannot make the page: {error}")))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Prints the completions.
///
/// # Errors
///
/// If they cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "redlock", &mut script);
    say::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser checks its own definition, for all commands.
    #[test]
    fn the_options_fit_together() {
        command().debug_assert();
    }

    #[test]
    fn each_command_has_its_page() {
        let program = page(None).unwrap();
        for command in command().get_subcommands() {
            let name = command.get_name();
            assert!(program.contains(&format!("redlock\\-{name}(1)")), "{name} is in {program}");
            let page = page(Some(name)).unwrap();
            assert!(page.contains(&format!("redlock {name}").replace('-', "\\-")), "{page}");
        }
        assert_eq!(page(Some("no")).unwrap_err().exit, Exit::USAGE);
    }
}
