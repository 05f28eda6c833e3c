//! PURE: the commands that set up a connection to a server, and which of them are left out.
//!
//! Only EVAL is needed. A server that hangs up is asked for less: two hang-ups in a row while a connection is set up
//! leave out HELLO and CLIENT SETINFO, two more INFO too, and two more restore all of it, because then these commands
//! were not the cause. Omitted commands are tried again after [`AGAIN`]; so is HELLO after the server has refused it by
//! name. Later on a connection, [`Hashes`] knows whether the server hangs up on EVALSHA.

use std::time::Duration;

use redis::{Cmd, ToRedisArgs};

use crate::credentials::{Login, Secret};
use crate::sys::clock::Moment;

/// The time until a command that a server rejects is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// The same, the first time: a server behind a proxy that was gone for a moment rejects no command.
const PROOF: Duration = Duration::from_secs(1);

/// The hang-ups in a row that leave out a command: a single one may have another cause.
const HANG_UPS: u32 = 2;

/// The commands sent when a connection is set up, from all to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    #[default]
    All,
    Unnamed,
    Bare,
}

/// The setup of the next connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    extent: Extent,
    /// HELLO, without which the server reports nothing by itself.
    pub(super) hello: bool,
    /// CLIENT SETINFO.
    pub(super) named: bool,
    pub(super) info: bool,
}

/// The knowledge of what a server rejects.
#[derive(Debug, Default)]
pub(super) struct Setup {
    extent: Extent,
    /// In a row, with this extent.
    hang_ups: u32,
    /// When all is tried again; `None` before a smaller extent works.
    all_again: Option<Moment>,
    /// When HELLO is tried again after a refusal by name.
    hello_again: Moment,
}

impl Setup {
    /// Returns the commands to send now. INFO is never left out where it was answered before (`is_known`): else a
    /// restart would not be seen.
    pub(super) fn plan(&self, now: Moment, is_known: bool) -> Plan {
        let extent = if self.all_again.is_some_and(|again| again <= now) { Extent::All } else { self.extent };
        Plan {
            extent,
            hello: extent == Extent::All && self.hello_again <= now,
            named: extent == Extent::All,
            info: extent != Extent::Bare || is_known,
        }
    }

    /// Records that HELLO was refused by name.
    pub(super) fn refused_hello(&mut self, now: Moment) {
        self.hello_again = now.after(AGAIN);
    }

    /// Records that the server hung up during `plan`.
    pub(super) fn hung_up(&mut self, plan: Plan, now: Moment) {
        if plan.extent < self.extent {
            // The server still rejects what it rejected before.
            self.all_again = self.all_again.map(|_| now.after(AGAIN));
            return;
        }
        self.hang_ups += 1;
        if self.hang_ups < HANG_UPS {
            return;
        }
        (self.hang_ups, self.all_again) = (0, None);
        self.extent = match self.extent {
            Extent::All => Extent::Unnamed,
            Extent::Unnamed => Extent::Bare,
            Extent::Bare => Extent::All,
        };
    }

    /// Records that the connection was made. Returns when another one may be set up with more; never if there is no
    /// more.
    pub(super) fn done(&mut self, plan: Plan, now: Moment) -> Moment {
        self.hang_ups = 0;
        if plan.extent == Extent::All {
            (self.extent, self.all_again) = (Extent::All, None);
            return if plan.hello { Moment::NEVER } else { self.hello_again };
        }
        // Another try with all commands shows whether it rejects one or was briefly gone.
        let again = now.after(if self.all_again.is_none() { PROOF } else { AGAIN });
        // Another connection may have learnt meanwhile that all of it works.
        if self.extent == plan.extent {
            self.all_again = Some(again);
        }
        again
    }
}

/// The knowledge of whether a server, or a proxy, hangs up on EVALSHA.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    /// In a row, of connections without an answer to EVALSHA.
    hang_ups: u32,
    /// When EVALSHA is tried again, on a new connection.
    again: Moment,
    /// Whether the last answer to EVALSHA was a refusal.
    refused: bool,
}

impl Hashes {
    /// Returns whether a connection made now leaves EVALSHA out.
    pub(super) fn are_left_out(&self, now: Moment) -> bool {
        self.hang_ups >= HANG_UPS && now < self.again
    }

    /// Returns whether requests have to contain the text of their scripts.
    pub(super) fn are_missing(&self) -> bool {
        self.refused || self.hang_ups >= HANG_UPS
    }

    /// Records that the server refused EVALSHA, which a connection then leaves out by itself.
    pub(super) fn refused(&mut self) {
        self.refused = true;
    }

    /// Returns when another connection than one made now may use EVALSHA; never if this one does.
    pub(super) fn again(&self, now: Moment) -> Moment {
        if self.are_left_out(now) { self.again } else { Moment::NEVER }
    }

    /// Records that a connection ended instead of the first answer to EVALSHA on it.
    pub(super) fn hung_up(&mut self, now: Moment) {
        self.hang_ups = self.hang_ups.saturating_add(1);
        self.again = now.after(AGAIN);
    }

    /// Records the first answer to EVALSHA on a connection.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }
}

/// Returns the command of these words.
pub(super) fn command_of(words: &[impl ToRedisArgs]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// Returns the command that logs in; `None` without a password.
pub(super) fn authentication(login: &Login) -> Option<Cmd> {
    let mut command = redis::cmd("AUTH");
    command.arg(login.username.as_ref().map(Secret::expose)).arg(login.password.as_ref()?.expose());
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hang_ups_leave_out_hashes_for_a_minute() {
        let mut hashes = Hashes::default();
        assert!(!hashes.are_left_out(at(1)));
        hashes.hung_up(at(1));
        assert!(!hashes.are_left_out(at(1)), "one may be chance");
        hashes.answered();
        hashes.hung_up(at(2));
        assert!(!hashes.are_left_out(at(2)));
        hashes.hung_up(at(3));
        assert!(hashes.are_left_out(at(62)) && !hashes.are_left_out(at(63)));
        hashes.hung_up(at(63));
        assert!(hashes.are_left_out(at(64)), "once is enough to know that nothing has changed");
        assert!(hashes.are_missing());
        hashes.answered();
        assert!(!hashes.are_left_out(at(64)) && !hashes.are_missing());
        hashes.refused();
        assert!(!hashes.are_left_out(at(64)) && hashes.are_missing());
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// Returns what is sent, in the order of HELLO, CLIENT SETINFO, INFO.
    fn sent(plan: Plan) -> [bool; 3] {
        [plan.hello, plan.named, plan.info]
    }

    const ALL: [bool; 3] = [true, true, true];
    const UNNAMED: [bool; 3] = [false, false, true];
    const BARE: [bool; 3] = [false, false, false];

    fn hang_up(setup: &mut Setup, seconds: u64, expected: [bool; 3]) {
        let plan = setup.plan(at(seconds), false);
        assert_eq!(sent(plan), expected, "at {seconds} s");
        setup.hung_up(plan, at(seconds));
    }

    fn works(setup: &mut Setup, seconds: u64, expected: [bool; 3]) -> Moment {
        let plan = setup.plan(at(seconds), false);
        assert_eq!(sent(plan), expected, "at {seconds} s");
        setup.done(plan, at(seconds))
    }

    #[test]
    fn two_hang_ups_leave_out_a_part_each() {
        let mut setup = Setup::default();
        for expected in [ALL, ALL, UNNAMED, UNNAMED, BARE, BARE, ALL, ALL, UNNAMED] {
            hang_up(&mut setup, 1, expected);
        }
    }

    #[test]
    fn one_hang_up_leaves_out_nothing() {
        let mut setup = Setup::default();
        for seconds in 1..10 {
            hang_up(&mut setup, seconds, ALL);
            assert_eq!(works(&mut setup, seconds, ALL), Moment::NEVER);
        }
    }

    #[test]
    fn what_was_left_out_is_tried_again_after_a_minute() {
        let mut setup = Setup::default();
        hang_up(&mut setup, 1, ALL);
        hang_up(&mut setup, 1, ALL);
        assert_eq!(works(&mut setup, 2, UNNAMED), at(3), "it may have been gone for a moment");
        hang_up(&mut setup, 3, ALL);
        assert_eq!(works(&mut setup, 4, UNNAMED), at(64), "it was for the command");
        assert_eq!(works(&mut setup, 10, UNNAMED), at(70), "each connection counts for itself");
        works(&mut setup, 69, UNNAMED);
        hang_up(&mut setup, 130, ALL);
        assert_eq!(works(&mut setup, 131, UNNAMED), at(191), "once is enough to know that nothing has changed");
        assert_eq!(works(&mut setup, 191, ALL), Moment::NEVER);
        assert_eq!(works(&mut setup, 192, ALL), Moment::NEVER);
    }

    #[test]
    fn a_server_that_was_gone_for_a_moment_is_sent_everything_again_soon() {
        let mut setup = Setup::default();
        for expected in [ALL, ALL, UNNAMED] {
            hang_up(&mut setup, 1, expected);
        }
        assert_eq!(works(&mut setup, 2, UNNAMED), at(3));
        assert_eq!(works(&mut setup, 3, ALL), Moment::NEVER);
    }

    #[test]
    fn info_is_never_left_out_where_it_was_answered() {
        let mut setup = Setup::default();
        for expected in [ALL, ALL, UNNAMED, UNNAMED] {
            hang_up(&mut setup, 1, expected);
        }
        assert_eq!(sent(setup.plan(at(1), false)), BARE);
        assert_eq!(sent(setup.plan(at(1), true)), UNNAMED);
    }

    #[test]
    fn a_refusal_by_name_leaves_out_hello_alone_for_a_minute() {
        let mut setup = Setup::default();
        setup.refused_hello(at(1));
        assert_eq!(works(&mut setup, 1, [false, true, true]), at(61));
        assert_eq!(works(&mut setup, 60, [false, true, true]), at(61));
        assert_eq!(works(&mut setup, 61, ALL), Moment::NEVER);
    }
}
