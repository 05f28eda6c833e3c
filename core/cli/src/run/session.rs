//! The command under its lock: from the acquired lock to its release. See `run` for the states.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use redlock::bindings::clock::{Alarm, Clock, Moment};
use redlock::bindings::operator;
use redlock::{ErrorKind, Guard};

use crate::duration::shown;
use crate::exit::{Exit, Failure, spelled};
use crate::run::args::Args;
use crate::run::child;
use crate::run::group::Group;
use crate::run::machine::{Action, End, Event, Machine, Notice, Now, OnLoss};
use crate::run::notices::Notices;
use crate::run::terminal::Terminal;
use crate::signals::{self, Ignored, STOPPING, Signals};

/// How often a group that must be empty is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long a `redlock run` that was in a killed group needs to be missed: its keeper then kills its command.
const INNER_KEEPERS: Duration = Duration::from_millis(50);
/// How long after this program was stopped and goes on its own SIGTSTP may arrive.
const OWN_STOP: Duration = Duration::from_millis(200);
/// How much sooner than at the very end of `--max-hold` a renewal sees that it is the reason.
const MAX_HOLD_NEAR: Duration = Duration::from_millis(100);

/// A lock that was acquired for a command.
#[derive(Debug)]
pub(super) struct Session<'a> {
    args: &'a Args,
    kill_after: Duration,
    signals: Signals,
    children: Signals,
    began: Moment,
    notices: Notices,
    guard: Guard,
}

/// A command that runs.
#[derive(Debug)]
struct Running<'a> {
    /// Dropped first, in a panic: it kills the command.
    group: Group,
    terminal: Terminal,
    machine: Machine,
    events: VecDeque<Event>,
    /// Until when a SIGTSTP is the one that this program has sent to its own group.
    own_stop_until: Moment,
    session: Session<'a>,
}

impl<'a> Session<'a> {
    /// Takes over a lock.
    ///
    /// # Errors
    ///
    /// A failure if the system refuses handlers; the lock is released then.
    pub(super) fn new(
        args: &'a Args,
        kill_after: Duration,
        guard: Guard,
        mut signals: Signals,
        ignored: Ignored,
    ) -> Result<Self, Failure> {
        let more = STOPPING.into_iter().chain([Signal::SIGWINCH, Signal::SIGCONT]);
        signals.listen_to(more, ignored)?;
        let children = signals::children()?;
        let (began, notices) = (Clock::System.now(), Notices::start(args.quiet));
        Ok(Self { args, kill_after, signals, children, began, notices, guard })
    }

    /// Runs the command and releases the lock.
    pub(super) async fn run(mut self) -> Result<Exit, Failure> {
        let group = match self.start_keeper().await {
            Ok(group) => group,
            Err(result) => {
                self.release(false).await;
                return result;
            }
        };
        let mut running = Running {
            terminal: Terminal::find(group.id),
            group,
            machine: Machine::new(self.args.on_loss, self.kill_after),
            events: VecDeque::new(),
            own_stop_until: Clock::System.now(),
            session: self,
        };
        let started = running.start();
        if started.is_ok() {
            running.watch().await;
        }
        running.finish(started).await
    }

    /// Starts what will kill the command if this program cannot.
    ///
    /// # Errors
    ///
    /// How the program ends: by a signal, because the lock is lost, or because the system refuses the process.
    async fn start_keeper(&mut self) -> Result<Group, Result<Exit, Failure>> {
        let lost = self.guard.lost();
        tokio::select! {
            biased;
            signal = self.signals.next_ending() => Err(Ok(signals::exit(signal))),
            error = lost => {
                Err(Err(Failure::new(Exit::LOST, format!("{}; the command was not started", spelled(&error)))))
            }
            group = Group::start() => group.map_err(|error| {
                let message = format!("cannot start what would end the command if redlock died: {error}");
                Err(Failure::new(Exit::BUG, message))
            }),
        }
    }

    /// Releases the lock, and returns whether its loss ends this program. A signal ends the wait for the nodes, but not the
    /// release. Nobody needs to be told that a lock was not released if it has been told that it is lost.
    async fn release(self, is_loss_known: bool) -> bool {
        let Self { args, guard, mut signals, notices, .. } = self;
        let result = tokio::select! {
            biased;
            result = guard.release() => result,
            _ = signals.next_ending() => Ok(()),
        };
        let Err(error) = result else { return false };
        let is_lost = error.kind() == ErrorKind::Lost && args.on_loss != OnLoss::Ignore;
        match (is_loss_known, is_lost) {
            (true, _) => {}
            (false, true) => notices.error(spelled(&error)),
            (false, false) => notices.warn(spelled(&error)),
        }
        is_lost
    }

    fn name(&self) -> String {
        format!("lock {:?}", String::from_utf8_lossy(self.guard.name()))
    }

    /// Tells the person.
    fn tell(&self, notice: Notice) {
        // Says why the lock is lost, if it is.
        let lost = || self.guard.check().map_or_else(|error| spelled(&error), |()| self.name());
        match notice {
            Notice::Ending(left) => {
                self.notices.warn(format!("{}: {}; sent SIGTERM to the command", self.name(), self.reason(left)));
            }
            Notice::Lost => self.notices.error(format!("{}; killed the command", lost())),
            Notice::Overdue => {
                let after = shown(self.kill_after);
                self.notices.error(format!("{}: the command did not end within {after}; killed it", self.name()));
            }
            Notice::Ended => {
                let (name, answers) = (self.name(), self.answers());
                self.notices.error(format!("{name}: ended the command before the lock could be lost{answers}"));
            }
            Notice::Undying => {
                let text = "the command lives on after SIGKILL; does it belong to another user, as after sudo?";
                self.notices.error(format!("{}: {text}", self.name()));
            }
            Notice::Ignored => self.notices.warn(format!("{}; the command continues without it", lost())),
            Notice::Unkept => {
                let text = "something kills the process that would end the command if redlock died; going on without";
                self.notices.warn(format!("{}: {text}", self.name()));
            }
        }
    }

    /// Returns why the lock ends soon.
    fn reason(&self, left: Duration) -> String {
        let limit = self.args.max_hold.map(|max_hold| self.began.after(max_hold.saturating_sub(self.args.margin())));
        match limit {
            Some(limit) if Clock::System.now().after(left + MAX_HOLD_NEAR) >= limit => {
                format!("reaches --max-hold in {}", shown(left))
            }
            _ => format!("was not renewed, so it ends in {}{}", shown(left), self.answers()),
        }
    }

    /// Returns what each node answered to the last renewals, as an error shows it; nothing if none has failed.
    fn answers(&self) -> String {
        let nodes = operator::unanswered(&self.guard);
        let answers: Vec<_> = nodes.iter().map(|each| format!("{}: {}", each.node, each.answer)).collect();
        if answers.is_empty() { String::new() } else { format!(" [{}]", answers.join("; ")) }
    }
}

impl Running<'_> {
    /// Starts the command.
    fn start(&mut self) -> Result<(), Failure> {
        let session = &self.session;
        if session.guard.remaining() <= session.kill_after {
            let text = "acquired so late that the command would have to end at once; use a longer --ttl";
            return Err(Failure::new(Exit::UNAVAILABLE, format!("{}: {text}", session.name())));
        }
        self.terminal.give_at_start();
        child::spawn(&mut self.group, &session.args.command, &session.guard, session.args.ttl)
    }

    /// Watches over the command until it is over.
    async fn watch(&mut self) {
        let mut lost = pin!(self.session.guard.lost());
        let mut is_told = false;
        let alarm = Alarm::new(&Clock::System);
        while !self.handle() {
            let now = self.now();
            let at = self.machine.sleep(&now).map_or(Moment::NEVER, |sleep| now.moment.after(sleep));
            tokio::select! {
                biased;
                // Looked for whenever something happens.
                _ = self.session.children.next() => {}
                _ = &mut lost, if !is_told => {
                    is_told = true;
                    self.events.push_back(Event::Lost);
                }
                signal = self.session.signals.next() => self.received(signal),
                () = alarm.ring(at) => self.events.push_back(Event::Time),
                () = Clock::System.sleep(LOOK), if self.machine.end.is_some() => {
                    if self.group.is_alone() {
                        self.events.push_back(Event::Alone);
                    }
                }
            }
        }
    }

    /// Handles what has happened. Returns whether the command is over. Changes of processes come first: a command that
    /// has ended needs no signal.
    fn handle(&mut self) -> bool {
        loop {
            for change in self.group.changes().into_iter().rev() {
                self.events.push_front(change);
            }
            let Some(event) = self.events.pop_front() else { return false };
            for action in self.machine.on(event, &self.now()) {
                if action == Action::Finish {
                    return true;
                }
                self.act(action);
            }
        }
    }

    fn now(&self) -> Now {
        let left = self.session.guard.remaining();
        Now { moment: Clock::System.now(), left, foreground: self.terminal.foreground() }
    }

    fn received(&mut self, signal: Signal) {
        if signal != Signal::SIGTSTP || Clock::System.now() > self.own_stop_until {
            self.events.push_back(Event::Received(signal));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(signal) => self.group.send(signal),
            Action::Tell(notice) => self.session.tell(notice),
            Action::Resume => {
                self.terminal.give();
                self.group.send(Signal::SIGCONT);
            }
            Action::TakeTerminal => {
                self.terminal.take();
                let _ = signal::kill(Pid::from_raw(0), Signal::SIGCONT);
            }
            Action::Suspend => {
                if self.terminal.suspend() {
                    self.own_stop_until = Clock::System.now().after(OWN_STOP);
                }
                self.events.push_back(Event::Resumed);
            }
            Action::StartKeeper => {
                // The group may be on its way to its end.
                if self.group.replace_keeper().is_err() && self.group.has_command() {
                    self.session.tell(Notice::Unkept);
                }
            }
            Action::Finish => {}
        }
    }

    /// Ends the keeper, takes the terminal back and releases the lock, in this order.
    async fn finish(self, started: Result<(), Failure>) -> Result<Exit, Failure> {
        let Self { mut group, mut terminal, machine, session, .. } = self;
        group.end_keeper();
        drop(group);
        let end = machine.end;
        // As shells do: a program that ends by itself may change the modes for good.
        let was_given = if matches!(end, Some(End::Exited(_))) { terminal.take() } else { terminal.take_and_restore() };
        if machine.is_killed() {
            Clock::System.sleep(INNER_KEEPERS).await;
        } else if machine.is_lost {
            session.tell(Notice::Ended);
        }
        let is_lost = session.release(machine.knows_of_loss()).await;
        started?;
        if machine.is_lost || is_lost {
            return Err(Failure::quiet(Exit::LOST));
        }
        match end {
            Some(End::Killed(number)) => Ok(killed(number, was_given && !machine.was_asked())),
            Some(End::Exited(code)) => Ok(Exit::status(code)),
            None => Err(Failure::new(Exit::BUG, "the command was lost sight of")),
        }
    }
}

/// Returns the status after a command that a signal ended. If the terminal sent it, and only to the command, the group of
/// this program gets it too: without this program between them, the terminal would have sent it to all of them.
fn killed(number: u8, is_by_terminal: bool) -> Exit {
    let from_keyboard =
        [Signal::SIGINT, Signal::SIGQUIT].into_iter().find(|signal| *signal as i32 == i32::from(number));
    let Some(signal) = from_keyboard else { return Exit::signal(number) };
    if is_by_terminal {
        let _ = signal::kill(Pid::from_raw(0), signal);
    }
    signals::exit(signal)
}
