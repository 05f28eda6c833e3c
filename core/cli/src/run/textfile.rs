//! `--textfile`: how this run went, in a file that the textfile collector of node_exporter reads.
//!
//! The file is written once, when everything else is over, and put in its place whole. A run that fails keeps the time of
//! the last success from the file that is there.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redlock::bindings::clock::{Clock, Moment};

use crate::exit::{Exit, Failure};
use crate::say;

/// What a program of node_exporter reads.
const ENDING: &str = ".prom";

const SUCCESS: &str = "redlock_run_last_success_timestamp_seconds";

/// How far a run has come.
#[derive(Debug)]
pub(super) struct Record {
    began: Moment,
    /// When the lock was acquired; `None` if it was not.
    acquired: Option<Moment>,
}

/// Reads a value of the option.
///
/// # Errors
///
/// For a name that node_exporter does not look for.
pub(super) fn parse(value: &str) -> Result<PathBuf, String> {
    if value.ends_with(ENDING) { Ok(value.into()) } else { Err(format!("node_exporter reads only files *{ENDING}")) }
}

impl Record {
    pub(super) fn begin() -> Self {
        Self { began: Clock::System.now(), acquired: None }
    }

    pub(super) fn acquired(&mut self) {
        self.acquired = Some(Clock::System.now());
    }

    /// Writes the file for a lock of these names. The command has not failed if it cannot be written.
    pub(super) fn write(&self, file: &Path, names: &[OsString], result: &Result<Exit, Failure>) {
        let exit = match result {
            Ok(exit) => exit.code,
            Err(failure) => failure.exit.code,
        };
        let before = fs::read_to_string(file).unwrap_or_default();
        let now = Duration::from_micros(Clock::System.wall_micros());
        let text = self.text(&label(names), exit, now, &before);
        if let Err(error) = put(file, &text) {
            say::warning(&format!("cannot write {}: {error}", file.display()));
        }
    }

    fn text(&self, names: &str, exit: u8, now: Duration, before: &str) -> String {
        let held = self.acquired.map_or(Duration::ZERO, |acquired| Clock::System.now().since(acquired));
        let waited = self.acquired.unwrap_or_else(|| Clock::System.now()).since(self.began);
        let sample = |name: &str| format!("{name}{{name=\"{names}\"}} ");
        let success = match self.acquired {
            Some(_) if exit == 0 => Some(seconds(now)),
            _ => before.lines().find_map(|line| line.strip_prefix(&sample(SUCCESS))).map(str::to_owned),
        };
        let metrics = [
            ("redlock_run_last_end_timestamp_seconds", "When the last run ended.", Some(seconds(now))),
            ("redlock_run_last_exit_status", "Exit status of the last run.", Some(exit.to_string())),
            ("redlock_run_last_wait_seconds", "How long the last run waited for the lock.", Some(seconds(waited))),
            ("redlock_run_last_hold_seconds", "How long the last run held the lock.", Some(seconds(held))),
            (SUCCESS, "When a run of the command last ended with status 0.", success),
        ];
        let metrics = metrics.into_iter().filter_map(|(name, help, value)| Some((name, help, value?)));
        let line =
            |(name, help, value)| format!("# HELP {name} {help}\n# TYPE {name} gauge\n{}{value}\n", sample(name));
        metrics.map(line).collect::<Vec<_>>().concat()
    }
}

/// Returns the value of the label.
fn label(names: &[OsString]) -> String {
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    names.join(" ").replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn seconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64())
}

/// Puts a file in its place, whole, and readable for every user, whatever the umask is: node_exporter is another one. The
/// name of the file before is one that node_exporter does not read.
fn put(file: &Path, text: &str) -> io::Result<()> {
    let part = file.with_extension(format!("part{}", std::process::id()));
    fs::write(&part, text)
        .and_then(|()| fs::set_permissions(&part, Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&part, file))
        .inspect_err(|_| drop(fs::remove_file(&part)))
}
