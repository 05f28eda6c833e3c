//! The completion queue: calls that are started in one place and heard of in another, for languages with an event loop.
//!
//! Hidden: for the bindings. One queue per event loop, or Node environment. A call is *running* in the background →
//! *ready*, when its number is put on the list that the loop drains, woken once per batch → *taken* by whoever asked for
//! it. Only what is taken counts: a lock that was won becomes its object's hold then, its renewal starts then, and if
//! its validity is past by then it is released and waited for again. What leaves nothing to take, as most releases do,
//! is told as *done* and forgotten. What may interrupt it:
//!
//! - cancelled before or after it is ready: an acquire is dropped, which releases; a release and an extension go on in
//!   the background, and nobody hears of them;
//! - never taken (the loop is closed, the environment is gone): dropped with the queue, as if it were cancelled;
//! - a panic in the call: it becomes an error;
//! - a fork: the child finds the queue foreign, makes another one, and never touches this one's list;
//! - the process ends: as if everything were cancelled.
//!
//! A *watch* is a number that gets ready each time a hold of one object is lost. It ends with its object.
//!
//! The list is locked for moments only, and nothing that locks anything else is done or dropped meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::acquire::Acquire;
use crate::api::client::Redlock;
use crate::api::inspect::NodeView;
use crate::api::lock;
use crate::bindings::lock_object::{Extension, Hold, Holder, Reservation, Timeout};
use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::lease::{LossCallback, OnLoss};
use crate::hold::owner::LeaseOwner;
use crate::options::Options;
use crate::process::Process;
use crate::process::shutdown::{OnShutdown, PendingWork};
use crate::sys::background::Started;
use crate::sys::fork::Pid;
use crate::sys::task::spawn;

/// The calls of one event loop.
#[derive(Debug)]
pub struct Queue(Arc<Shared>);

struct Shared {
    process: Arc<Process>,
    /// Tells the event loop that there is something to drain.
    wake: Box<dyn Fn() + Send + Sync>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    last: u64,
    calls: HashMap<u64, Call>,
    ready: Vec<Ready>,
}

/// A number whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The call did what it was asked to do, and there is nothing to take.
    Done(u64),
    /// [`Queue::take`] says what there is.
    Take(u64),
}

impl Ready {
    /// As one number, for a language without such a type: negative where there is nothing to take.
    #[must_use]
    pub fn signed(self) -> i64 {
        // Calls are counted: no process lives to see so many.
        let signed = |id| i64::try_from(id).unwrap_or(i64::MAX);
        match self {
            Self::Done(id) => -signed(id),
            Self::Take(id) => signed(id),
        }
    }
}

#[derive(Debug)]
enum Call {
    /// Under way. The reservation is an acquire's, which alone can be broken off.
    Running(Option<Reservation>, Option<AbortHandle>),
    /// An acquire that was won, not taken yet.
    Won(Box<Acquire>, LeaseOwner, Reservation),
    /// The reservation of an acquire that failed is given back by who takes the failure: from then on, not later, the
    /// object can be acquired again.
    Over(Result<Taken, Error>, Option<Reservation>),
    /// A watch, with a loss nobody has heard of yet.
    Watch(Option<Error>),
}

/// What came of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Taken {
    /// It did what it was asked to do.
    Done,
    /// What an inspection saw.
    Views(Vec<NodeView>),
    /// Not over yet: wait for the same number again.
    Again,
    /// There is no such call: it was taken before, or cancelled, or it was a watch whose object is gone.
    Gone,
}

/// A call on its way, whose end the queue hears of.
type Reported = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a call in the background comes to.
#[derive(Debug)]
enum Outcome {
    Won(Box<Acquire>, LeaseOwner),
    Over(Result<Taken, Error>),
}

impl Queue {
    /// A queue whose event loop is woken by `wake`. That is called from any thread, once for all that gets ready before
    /// the next [`Queue::drain`]; it must neither block nor panic.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let process = Process::current();
        let shared = Arc::new(Shared { process, wake: Box::new(wake), list: Mutex::default() });
        let listener: Weak<dyn OnShutdown> = Arc::downgrade(&shared) as _;
        shared.process.shutdown.on_shutdown(listener);
        Self(shared)
    }

    /// Whether this is another process's queue: in a forked child a new one is needed.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.0.process.is_foreign()
    }

    /// Starts to acquire.
    ///
    /// # Errors
    ///
    /// `already_held`, `invalid_argument` or `unavailable`, at once; all others come with [`Queue::take`].
    pub fn acquire(&self, holder: &Arc<Holder>, timeout: Timeout) -> Result<u64, Error> {
        let pid = self.here()?;
        let reservation = holder.reserve(pid)?;
        let acquire = Acquire::begin(holder.context(pid, timeout)?)?;
        let id = self.0.enlist(Call::Running(Some(reservation), None));
        self.pursue(id, acquire)?;
        Ok(id)
    }

    /// Starts to extend, to `ttl` or by the ttl in force.
    ///
    /// # Errors
    ///
    /// `not_held`, `lost` or `invalid_argument`, at once; `lost` and `unavailable` with [`Queue::take`].
    pub fn extend(&self, holder: &Arc<Holder>, ttl: Option<Duration>) -> Result<u64, Error> {
        let Extension { lease, ttl, .. } = holder.extension(self.here()?, ttl)?;
        lease.remaining_here()?;
        let id = self.0.enlist(Call::Running(None, None));
        self.spawn(id, move || async move { Outcome::Over(hold::extend(lease, ttl).await.map(|()| Taken::Done)) })?;
        Ok(id)
    }

    /// Starts to release. From here on the lock is not held, whatever becomes of the call.
    ///
    /// # Errors
    ///
    /// `not_held` at once; `lost` and `unavailable` with [`Queue::take`].
    pub fn release(&self, holder: &Arc<Holder>) -> Result<u64, Error> {
        self.part(holder.part(self.here()?)?, |released| released)
    }

    /// Starts to release at the end of a block: silent where there is nothing to release, or no quorum that confirms
    /// it.
    ///
    /// # Errors
    ///
    /// `unavailable` at once if there is no background, `lost` with [`Queue::take`].
    pub fn leave(&self, holder: &Arc<Holder>) -> Result<u64, Error> {
        self.part(holder.part(self.here()?).unwrap_or(None), lock::ignore_unconfirmed)
    }

    /// Starts to look at a lock; [`Taken::Views`] is the result.
    ///
    /// # Errors
    ///
    /// `invalid_argument`, at once.
    pub fn inspect(&self, client: &Redlock, name: &[u8]) -> Result<u64, Error> {
        client.session().spec(self.here()?, name, Options::default())?;
        let (client, name) = (client.clone(), name.to_vec());
        let id = self.0.enlist(Call::Running(None, None));
        self.spawn(id, move || async move { Outcome::Over(client.inspect(name).await.map(Taken::Views)) })?;
        Ok(id)
    }

    /// Watches `holder`: the number gets ready each time a hold of it is lost (for the present one, at once if it is
    /// lost already and neither released nor acquired again), and [`Queue::take`] then fails with that loss. It gets ready
    /// once more when the object is gone. An object may have several watches, which are told in the order in which they
    /// began; [`Queue::cancel`] ends one. Zero, which is nobody's number, for another process's queue.
    pub fn watch(&self, holder: &Arc<Holder>) -> u64 {
        let Ok(pid) = self.here() else { return 0 };
        let id = self.0.enlist(Call::Watch(None));
        let watch = Watch { shared: Arc::downgrade(&self.0), id };
        holder.on_lost(pid, LossCallback::new(watch));
        id
    }

    /// Breaks a call off. An acquire leaves no key behind; releases and extensions go on unheard.
    pub fn cancel(&self, id: u64) {
        if self.is_foreign() {
            return;
        }
        let call = self.0.list().calls.remove(&id);
        drop_call(call);
    }

    /// The numbers of the calls that are ready, and of watches that have something to tell.
    ///
    /// `silence` ends the wake-up that led here, so that what gets ready later can wake again. In a forked child it is not
    /// called: a descriptor is its parent's too, which would sleep through what is ready there.
    pub fn drain(&self, silence: impl FnOnce()) -> Vec<Ready> {
        if self.is_foreign() {
            return Vec::new();
        }
        // First: between these two, what gets ready wakes once more than it has to; the other way round, not at all.
        silence();
        // Its room stays, for whoever gets ready next on another thread.
        self.0.list().ready.drain(..).collect()
    }

    /// The result of a call, for the one who has started it, at the time that it goes on.
    ///
    /// # Errors
    ///
    /// Those of the call; `lost` for a watch.
    pub fn take(&self, id: u64) -> Result<Taken, Error> {
        let Ok(pid) = self.here() else { return Ok(Taken::Gone) };
        let mut list = self.0.list();
        let call = match list.calls.get_mut(&id) {
            None => return Ok(Taken::Gone),
            Some(Call::Running(..)) => return Ok(Taken::Again),
            Some(Call::Watch(loss)) => return loss.take().map_or(Ok(Taken::Again), Err),
            Some(_) => list.calls.remove(&id),
        };
        drop(list);
        match call {
            Some(Call::Won(acquire, owner, reservation)) => self.hold(pid, id, *acquire, owner, reservation),
            Some(Call::Over(result, reservation)) => {
                drop(reservation);
                result
            }
            _ => Ok(Taken::Gone),
        }
    }

    /// A won lock reaches its object, or is waited for again.
    fn hold(
        &self,
        pid: Pid,
        id: u64,
        acquire: Acquire,
        owner: LeaseOwner,
        reservation: Reservation,
    ) -> Result<Taken, Error> {
        match acquire.activate(owner)? {
            Ok(owner) => {
                reservation.hold(pid, Hold::in_background(owner));
                Ok(Taken::Done)
            }
            Err(acquire) => {
                self.0.list().calls.insert(id, Call::Running(Some(reservation), None));
                self.pursue(id, acquire)?;
                Ok(Taken::Again)
            }
        }
    }

    /// The process that the call runs in, which has to be the queue's.
    fn here(&self) -> Result<Pid, Error> {
        let pid = Pid::now();
        if self.0.process.is_foreign_to(pid) {
            let message = "this event loop was inherited through fork; start a new event loop in the child process";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(pid)
    }

    /// Runs an acquire in the background, where it can be broken off.
    fn pursue(&self, id: u64, acquire: Acquire) -> Result<(), Error> {
        let report = self.report(id);
        self.background(id)?.begin(move |runtime| {
            let Some(shared) = report.shared.upgrade() else { return };
            let call = report.of(async move {
                match acquire.win().await {
                    Ok((acquire, owner)) => Outcome::Won(Box::new(acquire), owner),
                    Err(error) => Outcome::Over(Err(error)),
                }
            });
            let task = spawn(runtime, call);
            match shared.list().calls.get_mut(&id) {
                Some(Call::Running(_, abort)) => *abort = Some(task),
                // Broken off before it has begun.
                _ => task.abort(),
            }
        });
        Ok(())
    }

    /// Starts the release of `hold`, and puts its result through `said`.
    fn part(&self, hold: Option<Hold>, said: fn(Result<(), Error>) -> Result<(), Error>) -> Result<u64, Error> {
        let Some(hold) = hold else {
            let id = self.0.enlist(Call::Running(None, None));
            self.0.finish(id, Outcome::Over(Ok(Taken::Done)));
            return Ok(id);
        };
        let id = self.0.enlist(Call::Running(None, None));
        let pending_work = PendingWork::new(&self.0.process.shutdown);
        self.spawn(id, move || async move {
            let released = hold::release(hold.into_owner()).await;
            drop(pending_work);
            Outcome::Over(said(released).map(|()| Taken::Done))
        })?;
        Ok(id)
    }

    /// Runs `call` in the background to its end. It is made there: its memory, much more than what it is made from, then
    /// comes from the thread that gives it back.
    fn spawn<F>(&self, id: u64, call: impl FnOnce() -> F + Send + 'static) -> Result<(), Error>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let report = self.report(id);
        self.background(id)?.begin(move |runtime| drop(spawn(runtime, report.of(call()))));
        Ok(())
    }

    /// The background. If that cannot be started, the call is dropped.
    fn background(&self, id: u64) -> Result<Started, Error> {
        self.0.process.background.start().inspect_err(|_| self.cancel(id))
    }

    fn report(&self, id: u64) -> Report {
        Report { shared: Arc::downgrade(&self.0), id }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_foreign() {
            // The parent's calls and locks.
            mem::forget(Arc::clone(&self.0));
            return;
        }
        self.0.drop_calls();
    }
}

/// Drops a call; what it has won is released.
fn drop_call(call: Option<Call>) {
    if let Some(Call::Running(_, Some(task))) = &call {
        task.abort();
    }
    drop(call);
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("no panic while holding this")
    }

    fn enlist(&self, call: Call) -> u64 {
        let mut list = self.list();
        list.last += 1;
        let id = list.last;
        list.calls.insert(id, call);
        id
    }

    /// A call has come to `outcome`. If it was cancelled meanwhile, or the process is ending, that is dropped.
    fn finish(&self, id: u64, outcome: Outcome) {
        if self.process.shutdown.has_started() {
            return;
        }
        let mut list = self.list();
        let Some(call) = list.calls.get_mut(&id) else { return };
        let Call::Running(reservation, _) = call else { return };
        *call = match (outcome, reservation.take()) {
            (Outcome::Won(acquire, owner), Some(reservation)) => Call::Won(acquire, owner, reservation),
            (Outcome::Won(..), None) => unreachable!("only an acquire is won, and it has its reservation"),
            (Outcome::Over(Ok(Taken::Done)), None) => {
                list.calls.remove(&id);
                return self.ready(list, Ready::Done(id));
            }
            (Outcome::Over(result), reservation) => Call::Over(result, reservation),
        };
        self.ready(list, Ready::Take(id));
    }

    fn ready(&self, mut list: MutexGuard<'_, List>, ready: Ready) {
        list.ready.push(ready);
        let first = list.ready.len() == 1;
        drop(list);
        if first {
            (self.wake)();
        }
    }
}

impl OnShutdown for Shared {
    fn drop_calls(&self) {
        let calls = mem::take(&mut self.list().calls);
        for call in calls.into_values() {
            drop_call(Some(call));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Reports what a call has come to when its task ends, be it by a panic.
struct Report {
    /// Nobody's from when it has reported.
    shared: Weak<Shared>,
    id: u64,
}

impl Report {
    /// `call`, whose end the queue hears of. Boxed, because it is large and is handed on several times.
    fn of(mut self, call: impl Future<Output = Outcome> + Send + 'static) -> Reported {
        Box::pin(async move { self.tell(call.await) })
    }

    fn tell(&mut self, outcome: Outcome) {
        if let Some(shared) = mem::take(&mut self.shared).upgrade() {
            shared.finish(self.id, outcome);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.shared.strong_count() > 0 {
            self.tell(Outcome::Over(Err(Error::panicked())));
        }
    }
}

/// Tells the queue of one object's losses, and of its end.
struct Watch {
    shared: Weak<Shared>,
    id: u64,
}

impl OnLoss for Watch {
    fn heard(&self, error: Error) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut list = shared.list();
        if let Some(Call::Watch(loss)) = list.calls.get_mut(&self.id) {
            *loss = Some(error);
            shared.ready(list, Ready::Take(self.id));
        }
    }

    fn is_over(&self) -> bool {
        self.shared.upgrade().is_none_or(|shared| !shared.list().calls.contains_key(&self.id))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if shared.process.is_foreign() {
            mem::forget(shared);
            return;
        }
        let mut list = shared.list();
        if list.calls.remove(&self.id).is_some() {
            shared.ready(list, Ready::Take(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_panic_in_a_call_becomes_an_error() {
        let (sender, woken) = channel();
        let queue = Queue::new(move || sender.send(()).unwrap());
        let redlock = Redlock::new("memory://queue-panic").unwrap();
        let holder = Holder::new(redlock.lock("foo")).unwrap();
        let reservation = holder.reserve(Pid::now()).unwrap();
        let id = queue.0.enlist(Call::Running(Some(reservation), None));
        queue.spawn(id, || async { panic!("on purpose") }).unwrap();
        woken.recv_timeout(harness::LIMIT).unwrap();
        assert_eq!(queue.drain(|| ()), [Ready::Take(id)]);
        let error = queue.take(id).unwrap_err();
        assert!(error.to_string().contains("bug"), "{error}");
        assert!(holder.reserve(Pid::now()).is_ok(), "the object can be acquired again");
    }

    #[test]
    fn what_gets_ready_while_the_wake_up_is_silenced_is_drained() {
        let queue = Queue::new(|| ());
        let id = queue.0.enlist(Call::Running(None, None));
        let ready = queue.drain(|| queue.0.finish(id, Outcome::Over(Ok(Taken::Done))));
        assert_eq!(ready, [Ready::Done(id)]);
    }
}
