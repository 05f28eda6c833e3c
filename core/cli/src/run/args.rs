//! The command line of `redlock run`, and the lock that it asks for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use redlock::{Fixed, Lock, Redlock};

use crate::duration::{self, shown};
use crate::exit::{Exit, Failure};
use crate::nodes;
use crate::run::machine::OnLoss;
use crate::run::textfile;

/// For how long a crashed host blocks others. Renewals every ten seconds outlast a restart of a node.
const TTL: &str = "30s";
/// Longer than most commands need to clean up, and short beside the ttl.
const KILL_AFTER_MOST: Duration = Duration::from_secs(5);
/// The default leaves most of the ttl for renewals that are not answered.
const KILL_AFTERS_PER_TTL: u32 = 6;
/// With more, the first renewal that is not answered at once would end the command.
const KILL_AFTERS_PER_TTL_LEAST: u32 = 3;
/// Longer than a busy machine needs to let a killed command die.
const MARGIN_MOST: Duration = Duration::from_millis(500);
const MARGINS_PER_TTL: u32 = 20;

/// What stands below the help.
const AFTER: &str = "\
The command gets REDLOCK_NAME (several names: one per line), REDLOCK_FENCE, REDLOCK_TTL_MS and, with --permits, \
REDLOCK_SLOT in its environment. It runs in its own process group, and has the terminal while it runs. What it leaves \
running in the background continues without the lock.

If the lock cannot be kept, the command's group gets SIGTERM while the lock still has --kill-after left, and SIGKILL \
--margin before somebody else can have it. If redlock itself is killed, the command's group is killed, too. Signals are \
passed on to the command: after a second SIGTERM, SIGINT, SIGHUP or SIGQUIT it has --kill-after left, the third one \
kills it.

Exit status: that of the command, 128+n if signal n ended it, or
  75   others hold the lock (see -E), with -n or at the end of --wait
  69   no quorum of nodes answered
  76   the lock was lost
  77   nodes refuse the login, or rights are missing
  64   wrong usage: options, names or addresses
  70   a bug, or a part of the system that is missing
  126  the command cannot be executed
  127  the command does not exist

Examples:
  redlock run backup -- pg_dump shop
  redlock run -q -w 5s --at-least 30s nightly -- ./report
  redlock run --permits 4 -w 1h encode -- ffmpeg -i in.mov out.mp4
  redlock run --shared page -- ./render";

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command without a shell, releases the lock, and ends with the command's status.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER, override_usage = "redlock run [OPTIONS] <NAME>... -- <COMMAND> [ARG]...")]
pub(crate) struct Args {
    /// Name of the lock; of several names, all are locked at once
    #[arg(required = true, value_name = "NAME")]
    pub(super) names: Vec<OsString>,

    /// Command, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,

    /// One try: exit with 75 if others hold the lock, or ask several nodes at the same moment
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,

    /// Longest wait for the lock, such as 30s, 500ms, 2m; 0 is --no-wait [default: forever]
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", value_parser = duration::parse)]
    pub(super) wait: Option<Duration>,

    /// How long nodes keep the lock without renewal, and a crashed host blocks others
    #[arg(short, long, value_name = "DURATION", default_value = TTL, value_parser = duration::parse)]
    pub(super) ttl: Duration,

    /// End the command this long after the acquire; at least the ttl [default: forever]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(super) max_hold: Option<Duration>,

    /// A semaphore: at most N commands at once, each in its own slot
    #[arg(long, value_name = "N")]
    pub(super) permits: Option<u32>,

    /// Share the lock with others that use this option; a command without it waits for all of them
    #[arg(short, long, conflicts_with_all = ["permits", "at_least"])]
    pub(super) shared: bool,

    /// Shortest time from the acquire until others can have the lock, for hosts whose clocks differ; at most 7 days [default: 0]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    at_least: Option<Duration>,

    /// Time between SIGTERM and SIGKILL; at most a third of the ttl, and half of what --margin leaves of it [default: 5s, or a sixth of the ttl if less]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    kill_after: Option<Duration>,

    /// Time between SIGKILL and the moment at which others can have the lock [default: 500ms, or a twentieth of the ttl if less]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    margin: Option<Duration>,

    /// What happens to the command if the lock cannot be kept
    #[arg(long, value_name = "ACTION", value_enum, default_value = "term")]
    pub(super) on_loss: OnLoss,

    /// Exit status instead of 75 if others hold the lock
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,

    /// File *.prom for metrics of this run, which node_exporter's textfile collector reads
    #[arg(long, value_name = "FILE", value_parser = textfile::parse)]
    pub(super) textfile: Option<PathBuf>,

    /// Print only errors, and nothing if others hold the lock
    #[arg(short, long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) nodes: nodes::Args,
}

impl Args {
    /// Returns the time between SIGTERM and SIGKILL.
    pub(super) fn kill_after(&self) -> Result<Duration, Failure> {
        let Some(kill_after) = self.kill_after else {
            return Ok(KILL_AFTER_MOST.min(self.ttl / KILL_AFTERS_PER_TTL));
        };
        // Half of what a lock is valid for is left when a renewal begins that is late.
        let most = (self.ttl / KILL_AFTERS_PER_TTL_LEAST).min(self.ttl.saturating_sub(self.margin()) / 2);
        if kill_after > most {
            return Err(Failure::usage(format!(
                "--kill-after is {}, but must be at most {}, a third of --ttl and half of what --margin leaves of it; use a longer --ttl",
                shown(kill_after),
                shown(most)
            )));
        }
        Ok(kill_after)
    }

    pub(super) fn margin(&self) -> Duration {
        self.margin.unwrap_or(MARGIN_MOST.min(self.ttl / MARGINS_PER_TTL))
    }

    /// Returns the lock. Its options are checked when it is acquired, before anything is sent.
    pub(super) fn lock(&self, redlock: &Redlock) -> Result<Lock<Fixed>, Failure> {
        let lock = match &self.names[..] {
            [name] if self.shared => redlock.lock(name.as_bytes()).shared(),
            _ if self.shared => return Err(Failure::usage("--shared is for one name, but there are several")),
            names => nodes::lock(redlock, names, self.permits)?,
        };
        let lock = lock.ttl(self.ttl).margin(self.margin()).at_least(self.at_least.unwrap_or_default());
        let lock = if let Some(max_hold) = self.max_hold { lock.max_hold(max_hold) } else { lock };
        Ok(nodes::waiting(lock, self.no_wait, self.wait))
    }

    /// Returns how an acquire that failed ends the program.
    pub(super) fn denied(&self, failure: Failure) -> Failure {
        if failure.exit != Exit::HELD {
            return failure;
        }
        let exit = self.conflict_exit_code.map_or(Exit::HELD, Exit::status);
        if self.quiet { Failure::quiet(exit) } else { Failure { exit, ..failure } }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Program::try_parse_from(line.split(' ')).unwrap().args
    }

    #[test]
    fn what_follows_the_dashes_is_the_command() {
        let args = args("run a b -- make -n --wait a -- b");
        assert_eq!(args.names, ["a", "b"]);
        assert_eq!(args.command, ["make", "-n", "--wait", "a", "--", "b"]);
        for wrong in ["run a", "run -- true", "run a --", "run a true", "run -n -w 1 a -- true", "run -E 256 a -- true"]
        {
            assert!(Program::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_limits_of_a_lock_follow_its_ttl() {
        let seconds = |args: &Args| (args.kill_after().unwrap().as_secs_f64(), args.margin().as_secs_f64());
        for (line, expected) in [
            ("run a -- true", (5.0, 0.5)),
            ("run -t 6 a -- true", (1.0, 0.3)),
            ("run -t 10h a -- true", (5.0, 0.5)),
            ("run --kill-after 10s a -- true", (10.0, 0.5)),
            ("run --kill-after 0 --margin 0 a -- true", (0.0, 0.0)),
        ] {
            assert_eq!(seconds(&args(line)), expected, "{line}");
        }
        for (line, most) in
            [("run --kill-after 10.1 a -- true", "10 s"), ("run --kill-after 8 --margin 15 a -- true", "7.5 s")]
        {
            let failure = args(line).kill_after().unwrap_err();
            assert_eq!(failure.exit, Exit::USAGE);
            assert!(failure.message.unwrap().contains(most), "{line}");
        }
    }

    #[test]
    fn permits_are_for_one_name() {
        let redlock = Redlock::new("memory://run-permits").unwrap();
        assert!(args("run --permits 2 a -- true").lock(&redlock).is_ok());
        assert_eq!(args("run --permits 2 a b -- true").lock(&redlock).unwrap_err().exit, Exit::USAGE);
    }

    #[test]
    fn one_name_alone_is_shared() {
        let redlock = Redlock::new("memory://run-shared").unwrap();
        for line in ["run -s a -- true", "run --shared a -- true"] {
            let args = args(line);
            assert!(args.shared && args.lock(&redlock).is_ok(), "{line}");
        }
        let failure = args("run -s a b -- true").lock(&redlock).unwrap_err();
        assert_eq!(failure, Failure::usage("--shared is for one name, but there are several"));
        for wrong in ["run -s --permits 2 a -- true", "run -s --at-least 1s a -- true"] {
            assert!(Program::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_lock_that_is_held_may_be_none_of_anybodys_business() {
        let held = Failure::new(Exit::HELD, "held");
        assert_eq!(args("run -n a -- true").denied(held.clone()), held);
        assert_eq!(args("run -nq -E 0 a -- true").denied(held), Failure::quiet(Exit::OK));
        let other = Failure::new(Exit::UNAVAILABLE, "no quorum");
        assert_eq!(args("run -nq -E 0 a -- true").denied(other.clone()), other);
    }
}
