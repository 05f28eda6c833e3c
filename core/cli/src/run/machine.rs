//! What a running command's keeper of the lock does, as a pure function of what happens: no clock, no signal, no process.
//!
//! See `run` for the states and the order of things. Each event gives actions, which are carried out in their order.

use std::time::Duration;

use nix::sys::signal::Signal;
use redlock::bindings::clock::Moment;

use crate::signals::ENDING;

/// How often a keeper that somebody killed is replaced.
const KEEPERS_MOST: u32 = 3;

/// Equal signals that are closer together are one: timeout(1) sends two, and nobody presses Ctrl-C twice in this time.
const SAME: Duration = Duration::from_millis(100);

/// A killed group is gone sooner, unless this program may not kill it, or its storage hangs.
const DEATH: Duration = Duration::from_secs(1);

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLoss {
    /// SIGTERM ahead of the end of the lock, then SIGKILL at its end
    #[default]
    Term,
    /// SIGKILL at the end of the lock
    Kill,
    /// Only a warning: the command continues without the lock
    Ignore,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this status.
    Exited(u8),
    /// By the signal with this number.
    Killed(u8),
}

/// Which group is in the foreground of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreground {
    /// This program's own.
    Ours,
    /// The command's.
    Command,
    /// Another one, or there is no terminal.
    Other,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The command has ended.
    Ended(End),
    /// Of what the command has started, nothing is left in its group.
    Alone,
    /// The command has been stopped, by the signal with this number.
    Stopped(i32),
    /// This program was stopped together with the command, and goes on.
    Resumed,
    /// The keeper has ended.
    KeeperEnded,
    /// This program received a signal.
    Received(Signal),
    /// The lock was lost, or its validity is over.
    Lost,
    /// Time has passed.
    Time,
}

/// What is so when an event is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) moment: Moment,
    /// For how long the lock is still valid without a renewal.
    pub(super) left: Duration,
    pub(super) foreground: Foreground,
}

/// What is told to the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The lock ends after this time, and the command has been asked to end before.
    Ending(Duration),
    /// The lock is lost, and the command killed.
    Lost,
    /// The command was asked to end because of the lock, did not in its time, and was killed.
    Overdue,
    /// The command ended because it was asked to, because of the lock.
    Ended,
    /// The command was killed, and is still there.
    Undying,
    /// The lock is lost, and the command goes on.
    Ignored,
    /// No keeper lives for long.
    Unkept,
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send the command's group a signal.
    Send(Signal),
    /// Tell the person.
    Tell(Notice),
    /// Give the terminal to the command's group, if this program has it, and let the group go on.
    Resume,
    /// Take the terminal back from the command's group, and let this program's own group go on.
    TakeTerminal,
    /// Take the terminal back and stop this program's own group, as the command is stopped. Then comes
    /// [`Event::Resumed`].
    Suspend,
    /// Replace the keeper.
    StartKeeper,
    /// The command is over: its end is that of this program.
    Finish,
}

/// The state of a command that runs.
#[derive(Debug, Default)]
pub(super) struct Machine {
    on_loss: OnLoss,
    kill_after: Duration,
    /// How the command ended; `None` while it runs. From then on, its group must be empty, too.
    pub(super) end: Option<End>,
    /// When the group is killed, because it was asked to end.
    kill_at: Option<Moment>,
    /// When it was killed.
    killed: Option<Moment>,
    /// Whether it was told that it lives on.
    is_undying: bool,
    /// Whether the command was asked to end, or was killed, because of the lock.
    pub(super) is_lost: bool,
    /// Whether a loss that changes nothing was told.
    is_ignored: bool,
    /// The number of signals received that ask for an end.
    asked: u32,
    /// The last one of these that counted, and when it was received.
    last: Option<(Signal, Moment)>,
    keepers: u32,
}

impl Machine {
    pub(super) fn new(on_loss: OnLoss, kill_after: Duration) -> Self {
        Self { on_loss, kill_after, ..Self::default() }
    }

    /// Returns whether a loss of the lock was told, or prevented by ending the command.
    pub(super) const fn knows_of_loss(&self) -> bool {
        self.is_lost || self.is_ignored
    }

    /// Returns whether the group was killed.
    pub(super) const fn is_killed(&self) -> bool {
        self.killed.is_some()
    }

    /// Returns whether this program received a signal that asks for an end.
    pub(super) const fn was_asked(&self) -> bool {
        self.asked > 0
    }

    /// Returns after how long [`Event::Time`] has something to do; `None` for never.
    pub(super) fn sleep(&self, now: &Now) -> Option<Duration> {
        if let Some(killed) = self.killed {
            return (!self.is_undying).then(|| killed.after(DEATH).since(now.moment));
        }
        let by_lock = match self.on_loss {
            OnLoss::Term if self.is_lost => Some(now.left),
            OnLoss::Term => Some(now.left.saturating_sub(self.kill_after)),
            OnLoss::Kill => Some(now.left),
            OnLoss::Ignore => None,
        };
        by_lock.into_iter().chain(self.kill_at.map(|at| at.since(now.moment))).min()
    }

    /// Returns what to do about an event.
    pub(super) fn on(&mut self, event: Event, now: &Now) -> Vec<Action> {
        match event {
            Event::Ended(end) => {
                self.end = Some(end);
                // What it leaves running goes on. But where the group was told to end, all of it has to.
                if self.is_lost || self.is_killed() { Vec::new() } else { vec![Action::Finish] }
            }
            Event::Alone => vec![Action::Finish],
            Event::Stopped(signal) => self.stopped(signal, now),
            Event::Resumed => self.resumed(now),
            Event::KeeperEnded => self.keeper_ended(),
            Event::Received(signal) => self.received(signal, now),
            Event::Lost => self.lost(now),
            Event::Time => self.time(now),
        }
    }

    fn stopped(&self, signal: i32, now: &Now) -> Vec<Action> {
        let is = |other: Signal| signal == other as i32;
        if self.is_killed() {
            return Vec::new();
        }
        if is(Signal::SIGTSTP) {
            // In its last seconds, this program must be there to kill it.
            return vec![if self.is_lost { Action::Send(Signal::SIGCONT) } else { Action::Suspend }];
        }
        if is(Signal::SIGTTIN) || is(Signal::SIGTTOU) {
            return match now.foreground {
                Foreground::Ours | Foreground::Command => vec![Action::Resume],
                Foreground::Other if self.is_lost => Vec::new(),
                Foreground::Other => vec![Action::Suspend],
            };
        }
        // A shell goes on when its foreground has stopped, whatever stopped it. Elsewhere, somebody stops the command
        // alone, on purpose.
        let is_foreground = now.foreground == Foreground::Command && !self.is_lost;
        is_foreground.then_some(Action::Suspend).into_iter().collect()
    }

    fn resumed(&mut self, now: &Now) -> Vec<Action> {
        if self.is_killed() {
            return Vec::new();
        }
        let mut actions = if now.left.is_zero() { self.lost(now) } else { self.time(now) };
        if !self.is_killed() {
            actions.push(Action::Resume);
        }
        actions
    }

    fn keeper_ended(&mut self) -> Vec<Action> {
        if self.is_killed() {
            return Vec::new();
        }
        self.keepers += 1;
        if self.keepers <= KEEPERS_MOST { vec![Action::StartKeeper] } else { vec![Action::Tell(Notice::Unkept)] }
    }

    fn received(&mut self, signal: Signal, now: &Now) -> Vec<Action> {
        if self.is_killed() {
            return Vec::new();
        }
        match signal {
            signal if ENDING.contains(&signal) => self.asked_to_end(signal, now),
            Signal::SIGCONT if now.left.is_zero() => self.resumed(now),
            // A process of this program's own group, such as a pager, wants the terminal that it had before.
            Signal::SIGTTIN | Signal::SIGTTOU if now.foreground == Foreground::Command => vec![Action::TakeTerminal],
            // The command first: this program follows when it has stopped.
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => vec![Action::Send(Signal::SIGTSTP)],
            signal => vec![Action::Send(signal)],
        }
    }

    /// The first time, the command decides how it ends. The second time, it gets a limit. The third time, it is killed.
    fn asked_to_end(&mut self, signal: Signal, now: &Now) -> Vec<Action> {
        if self.last.is_some_and(|(last, at)| last == signal && now.moment < at.after(SAME)) {
            return Vec::new();
        }
        self.last = Some((signal, now.moment));
        self.asked += 1;
        match self.asked {
            1 => {}
            2 => self.kill_by(now.moment.after(self.kill_after)),
            _ => return self.kill(now),
        }
        vec![Action::Send(signal)]
    }

    fn lost(&mut self, now: &Now) -> Vec<Action> {
        if self.is_killed() || self.is_ignored {
            return Vec::new();
        }
        if self.on_loss == OnLoss::Ignore {
            self.is_ignored = true;
            return vec![Action::Tell(Notice::Ignored)];
        }
        self.is_lost = true;
        let mut actions = self.kill(now);
        actions.push(Action::Tell(Notice::Lost));
        actions
    }

    fn time(&mut self, now: &Now) -> Vec<Action> {
        if let Some(killed) = self.killed {
            let is_undying = !self.is_undying && killed.after(DEATH) <= now.moment;
            self.is_undying |= is_undying;
            return is_undying.then_some(Action::Tell(Notice::Undying)).into_iter().collect();
        }
        if now.left.is_zero() {
            return self.lost(now);
        }
        if self.kill_at.is_some_and(|at| at <= now.moment) {
            let mut actions = self.kill(now);
            actions.extend(self.is_lost.then_some(Action::Tell(Notice::Overdue)));
            return actions;
        }
        if self.on_loss != OnLoss::Term || self.is_lost || now.left > self.kill_after {
            return Vec::new();
        }
        // From here on there is no way back, even if a renewal succeeds: the command is ending.
        self.is_lost = true;
        self.kill_by(now.moment.after(now.left));
        vec![Action::Send(Signal::SIGTERM), Action::Send(Signal::SIGCONT), Action::Tell(Notice::Ending(now.left))]
    }

    fn kill_by(&mut self, moment: Moment) {
        self.kill_at = Some(self.kill_at.map_or(moment, |at| at.min(moment)));
    }

    fn kill(&mut self, now: &Now) -> Vec<Action> {
        self.killed = Some(now.moment);
        vec![Action::Send(Signal::SIGKILL)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL_AFTER: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);
    const TERM: [Action; 2] = [Action::Send(Signal::SIGTERM), Action::Send(Signal::SIGCONT)];

    /// The state at `at` seconds, with `left` seconds of validity.
    fn now(at: u32, left: u32) -> Now {
        let moment = Moment::default().after(SECOND * at);
        Now { moment, left: SECOND * left, foreground: Foreground::Command }
    }

    fn machine(on_loss: OnLoss) -> Machine {
        Machine::new(on_loss, KILL_AFTER)
    }

    fn kill_and(notice: Notice) -> Vec<Action> {
        vec![Action::Send(Signal::SIGKILL), Action::Tell(notice)]
    }

    #[test]
    fn a_command_that_ends_by_itself_ends_it_all() {
        let mut machine = machine(OnLoss::Term);
        assert_eq!(machine.on(Event::Time, &now(0, 20)), []);
        assert_eq!(machine.on(Event::Ended(End::Exited(3)), &now(1, 20)), [Action::Finish]);
        assert!(!machine.is_lost && machine.end == Some(End::Exited(3)));
    }

    #[test]
    fn it_is_asked_to_end_before_the_lock_does() {
        let mut machine = machine(OnLoss::Term);
        assert_eq!(machine.sleep(&now(0, 20)), Some(15 * SECOND));
        assert_eq!(machine.on(Event::Time, &now(14, 6)), []);
        let told = Action::Tell(Notice::Ending(KILL_AFTER));
        assert_eq!(machine.on(Event::Time, &now(15, 5)), [TERM[0], TERM[1], told]);
        assert_eq!(machine.sleep(&now(16, 4)), Some(4 * SECOND));
        assert_eq!(machine.on(Event::Time, &now(19, 1)), []);
        assert_eq!(machine.on(Event::Time, &now(20, 0)), kill_and(Notice::Lost));
        assert_eq!(machine.on(Event::Lost, &now(20, 0)), []);
        assert_eq!(machine.on(Event::Ended(End::Killed(9)), &now(20, 0)), []);
        assert!(machine.end.is_some() && machine.is_lost);
        assert_eq!(machine.on(Event::Alone, &now(20, 0)), [Action::Finish]);
    }

    #[test]
    fn a_renewal_after_that_changes_nothing() {
        let mut machine = machine(OnLoss::Term);
        machine.on(Event::Time, &now(15, 5));
        assert_eq!(machine.sleep(&now(17, 29)), Some(3 * SECOND));
        assert_eq!(machine.on(Event::Time, &now(20, 26)), kill_and(Notice::Overdue));
    }

    #[test]
    fn what_the_command_started_has_to_end_with_it() {
        let mut machine = machine(OnLoss::Term);
        machine.on(Event::Time, &now(15, 5));
        assert_eq!(machine.on(Event::Ended(End::Exited(0)), &now(16, 4)), []);
        assert_eq!(machine.on(Event::Time, &now(20, 0)), kill_and(Notice::Lost));
        assert_eq!(machine.on(Event::Alone, &now(20, 0)), [Action::Finish]);
    }

    #[test]
    fn what_cannot_be_killed_is_told_of_once() {
        let mut machine = machine(OnLoss::Kill);
        machine.on(Event::Lost, &now(20, 0));
        assert_eq!(machine.sleep(&now(20, 0)), Some(SECOND));
        assert_eq!(machine.on(Event::Time, &now(20, 0)), []);
        assert_eq!(machine.on(Event::Time, &now(21, 0)), [Action::Tell(Notice::Undying)]);
        assert_eq!(machine.on(Event::Time, &now(22, 0)), []);
        assert_eq!(machine.sleep(&now(22, 0)), None);
    }

    #[test]
    fn a_loss_that_is_told_kills_at_once() {
        for on_loss in [OnLoss::Term, OnLoss::Kill] {
            let mut machine = machine(on_loss);
            assert_eq!(machine.on(Event::Lost, &now(3, 0)), kill_and(Notice::Lost));
        }
    }

    #[test]
    fn without_a_word_before() {
        let mut machine = machine(OnLoss::Kill);
        assert_eq!(machine.sleep(&now(0, 20)), Some(20 * SECOND));
        assert_eq!(machine.on(Event::Time, &now(19, 1)), []);
        assert_eq!(machine.on(Event::Time, &now(20, 0)), kill_and(Notice::Lost));
    }

    #[test]
    fn a_loss_can_be_ignored() {
        let mut machine = machine(OnLoss::Ignore);
        assert_eq!(machine.sleep(&now(19, 1)), None);
        assert_eq!(machine.on(Event::Time, &now(19, 1)), []);
        assert_eq!(machine.on(Event::Lost, &now(20, 0)), [Action::Tell(Notice::Ignored)]);
        assert_eq!(machine.on(Event::Time, &now(21, 0)), []);
        let cont = Event::Received(Signal::SIGCONT);
        assert_eq!(machine.on(cont, &now(21, 0)), [Action::Resume]);
        assert_eq!(machine.on(Event::Ended(End::Exited(0)), &now(22, 0)), [Action::Finish]);
        assert!(!machine.is_lost);
    }

    #[test]
    fn signals_are_passed_on_and_a_second_one_hurries() {
        let mut machine = machine(OnLoss::Term);
        for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGTERM] {
            assert_eq!(machine.on(Event::Received(signal), &now(0, 20)), [Action::Send(signal)]);
        }
        assert_eq!(machine.sleep(&now(1, 100)), Some(95 * SECOND));
        let interrupt = Event::Received(Signal::SIGINT);
        assert_eq!(machine.on(interrupt, &now(1, 100)), [Action::Send(Signal::SIGINT)]);
        assert_eq!(machine.sleep(&now(2, 100)), Some(4 * SECOND));
        assert_eq!(machine.on(Event::Time, &now(6, 100)), [Action::Send(Signal::SIGKILL)]);
        assert_eq!(machine.on(interrupt, &now(6, 100)), []);
        assert_eq!(machine.on(Event::Ended(End::Killed(9)), &now(6, 100)), []);
        assert!(!machine.is_lost && machine.end.is_some());
    }

    #[test]
    fn a_third_one_kills() {
        let mut machine = machine(OnLoss::Term);
        let hangup = Event::Received(Signal::SIGHUP);
        machine.on(hangup, &now(0, 20));
        machine.on(hangup, &now(1, 20));
        assert_eq!(machine.on(hangup, &now(2, 20)), [Action::Send(Signal::SIGKILL)]);
    }

    /// timeout(1) signals its child, and then its group, in which the child is.
    #[test]
    fn a_signal_that_comes_twice_is_one() {
        let mut machine = machine(OnLoss::Term);
        let later = |by| Now { moment: now(0, 20).moment.after(by), ..now(0, 20) };
        let term = Event::Received(Signal::SIGTERM);
        assert_eq!(machine.on(term, &now(0, 20)), [Action::Send(Signal::SIGTERM)]);
        assert_eq!(machine.on(term, &later(SAME / 2)), []);
        assert_eq!(machine.sleep(&now(0, 100)), Some(95 * SECOND), "nothing hurries");
        let interrupt = Event::Received(Signal::SIGINT);
        assert_eq!(
            machine.on(interrupt, &later(SAME)),
            [Action::Send(Signal::SIGINT)],
            "another signal is another one"
        );
        assert_eq!(machine.on(interrupt, &later(SAME * 3 / 2)), []);
        assert_eq!(machine.on(interrupt, &later(2 * SAME)), [Action::Send(Signal::SIGKILL)], "a stream is not one");
    }

    #[test]
    fn a_command_that_stops_stops_us() {
        let mut machine = machine(OnLoss::Term);
        let stop = Event::Stopped(Signal::SIGSTOP as i32);
        assert_eq!(machine.on(stop, &Now { foreground: Foreground::Other, ..now(0, 20) }), []);
        assert_eq!(machine.on(stop, &now(0, 20)), [Action::Suspend]);
        assert_eq!(machine.on(Event::Stopped(Signal::SIGTSTP as i32), &now(0, 20)), [Action::Suspend]);
        assert_eq!(machine.on(Event::Resumed, &now(9, 20)), [Action::Resume]);
        let told = Action::Tell(Notice::Ending(2 * SECOND));
        assert_eq!(machine.on(Event::Resumed, &now(19, 2)), [TERM[0], TERM[1], told, Action::Resume]);
        // From here on, this program has to be there.
        let cont = [Action::Send(Signal::SIGCONT)];
        assert_eq!(machine.on(Event::Stopped(Signal::SIGTSTP as i32), &now(19, 2)), cont);
    }

    #[test]
    fn a_lock_that_ended_meanwhile_lets_nothing_go_on() {
        for event in [Event::Resumed, Event::Received(Signal::SIGCONT)] {
            let mut machine = machine(OnLoss::Term);
            assert_eq!(machine.on(event, &now(60, 0)), kill_and(Notice::Lost));
        }
    }

    #[test]
    fn the_terminal_goes_to_who_wants_it() {
        let mut machine = machine(OnLoss::Term);
        let with = |foreground| Now { foreground, ..now(0, 20) };
        let input = Event::Stopped(Signal::SIGTTIN as i32);
        assert_eq!(machine.on(input, &with(Foreground::Ours)), [Action::Resume]);
        assert_eq!(machine.on(input, &with(Foreground::Other)), [Action::Suspend]);
        let wanted = Event::Received(Signal::SIGTTOU);
        assert_eq!(machine.on(wanted, &with(Foreground::Command)), [Action::TakeTerminal]);
        let stop = [Action::Send(Signal::SIGTSTP)];
        assert_eq!(machine.on(wanted, &with(Foreground::Other)), stop);
        assert_eq!(machine.on(Event::Received(Signal::SIGTSTP), &with(Foreground::Command)), stop);
    }

    #[test]
    fn a_keeper_is_replaced_but_not_for_ever() {
        let mut machine = machine(OnLoss::Term);
        for _ in 0..KEEPERS_MOST {
            assert_eq!(machine.on(Event::KeeperEnded, &now(0, 20)), [Action::StartKeeper]);
        }
        assert_eq!(machine.on(Event::KeeperEnded, &now(0, 20)), [Action::Tell(Notice::Unkept)]);
        machine.on(Event::Lost, &now(0, 0));
        assert_eq!(machine.on(Event::KeeperEnded, &now(0, 0)), []);
    }
}
