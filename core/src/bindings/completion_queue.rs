//! The completion queue: one part of a program starts a call, another receives its result. For languages with an event
//! loop.
//!
//! Hidden: for the bindings. There is one queue for each event loop, or for each Node environment. A call is *running*,
//! then *ready*, then *taken*. A ready call has its number on a list that the event loop drains, and
//! one wake-up covers a batch of numbers. The code that started the call takes its result, or has the drain take it. Only
//! taken results count. A won lock becomes the lease of its object when it is taken, and its renewal starts then. If its
//! validity has ended by then, the lock is released, and the acquire continues. A call without a result, such as most
//! releases, is reported as *done*, and the queue forgets it. What may interrupt a call:
//!
//! - It is cancelled before or after it is ready. A cancelled acquire is dropped, which releases the lock. A release or
//!   an extension continues in the background without a report.
//! - It is never taken, because its loop is closed or its environment has ended. It is dropped with the queue, as if it
//!   were cancelled.
//! - It panics. The panic becomes an error.
//! - The process forks. The child sees that the queue is foreign, makes another one, and never touches the parent's
//!   list.
//! - The process ends. All its calls are dropped, as if they were cancelled.
//!
//! Once the background has begun all that it was given, a call that is alone begins on the thread that starts it, and is
//! handed over to the background (`sys/handover.rs`). An event loop that makes one such call after the other watches the
//! sockets itself, and the call goes on there (`sys/event_loop.rs`). The background begins all others.
//!
//! A *loss subscription* is a number that becomes ready each time a lease of one object is lost. It ends with its
//! object.
//!
//! A thread locks the list for moments only. Meanwhile it takes no other lock, and drops nothing that takes one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::acquire::Acquire;
use crate::acquire::thread::forked;
use crate::api::lock;
use crate::bindings::calls::{self, Taken};
use crate::bindings::lock_object::{CurrentLease, Extension, LockObject, Reservation, Timeout};
use crate::error::{Error, ErrorKind};
use crate::hold;
use crate::hold::detach::detach;
use crate::hold::lease::OnLoss;
use crate::hold::owner::LeaseOwner;
use crate::process::Process;
use crate::process::shutdown::{OnShutdown, PendingWork};
use crate::process::waiters::Leaving;
use crate::sys::background::Started;
use crate::sys::descriptor::RawFd;
use crate::sys::event_loop::EventLoop;
use crate::sys::fork::Pid;
use crate::sys::handover::Handover;
use crate::sys::mutex::Mutex;
use crate::sys::task::spawn;
use crate::texts::opaque;

/// The calls of one event loop.
#[derive(Debug)]
pub struct Queue(Arc<QueueState>);

struct QueueState {
    process: Arc<Process>,
    /// Wakes the event loop, which then drains the list.
    wake: Box<dyn Fn() + Send + Sync>,
    /// The event loop, if it watches sockets.
    event_loop: Option<Arc<EventLoop>>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    last: u64,
    calls: HashMap<u64, Call>,
    /// The number of calls that are running.
    running: usize,
    /// The acquires that were cancelled and whose tasks have not ended yet. The next call for the name begins behind them.
    leaving: HashMap<u64, Option<Leaving>>,
    completions: Vec<Completion>,
}

/// The number of a call or a loss subscription that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The call succeeded, and there is nothing to take.
    Done(u64),
    /// [`Queue::take`] returns the result.
    Result(u64),
}

impl Completion {
    /// Returns the number, negative if there is nothing to take. For languages without such a type.
    #[must_use]
    pub fn signed(self) -> i64 {
        // The numbers count calls, and no process makes so many.
        let signed = |id| i64::try_from(id).unwrap_or(i64::MAX);
        match self {
            Self::Done(id) => -signed(id),
            Self::Result(id) => signed(id),
        }
    }
}

#[derive(Debug)]
enum Call {
    /// Running in the background. Only an acquire has a reservation. Only a call that changes nothing when it is dropped
    /// can be aborted.
    Running(Option<Reservation>, Option<Abort>),
    /// An acquire that was won and not taken yet.
    Won(Box<Acquire>, LeaseOwner, Reservation),
    /// A finished call. A failed acquire keeps its reservation until its error is taken. The object can be acquired
    /// again at that moment, not later.
    Finished(Result<Taken, Error>, Option<Reservation>),
    /// A loss subscription, with the last loss if it was not taken yet.
    LossSubscription(Option<Error>),
}

/// How to drop a running call.
#[derive(Debug)]
enum Abort {
    Task(AbortHandle),
    Handover(Handover),
}

/// A call that reports its outcome to the queue.
type ReportedCall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The outcome of a call in the background.
#[derive(Debug)]
enum Outcome {
    Won(Box<Acquire>, LeaseOwner),
    Finished(Result<Taken, Error>),
}

impl List {
    fn insert(&mut self, id: u64, call: Call) {
        self.running += usize::from(matches!(call, Call::Running(..)));
        self.calls.insert(id, call);
    }

    fn remove(&mut self, id: u64) -> Option<Call> {
        let call = self.calls.remove(&id);
        self.running -= usize::from(matches!(call, Some(Call::Running(..))));
        call
    }

    /// Whether the call that was added last is the only one that is running.
    fn is_alone(&self) -> bool {
        self.running == 1
    }
}

impl Queue {
    /// Makes a queue that calls `wake` to wake its event loop. Any thread may call `wake`, once for all numbers that
    /// become ready before the next [`Queue::drain`]. `wake` must neither block nor panic.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self::on(None, wake)
    }

    /// Makes a queue like [`Queue::new`] whose event loop can also watch sockets, for as long as it makes one call after
    /// the other. While [`sockets`](Queue::sockets) is readable, the loop calls [`turn`](Queue::turn). It does so from
    /// [`begin_to_watch`](Queue::begin_to_watch) on; until then the background watches them all.
    pub fn watching(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self::on(EventLoop::if_wanted(), wake)
    }

    fn on(event_loop: Option<Arc<EventLoop>>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let process = Process::current();
        let shared = Arc::new(QueueState { process, wake: Box::new(wake), event_loop, list: Mutex::default() });
        let listener: Weak<dyn OnShutdown> = Arc::downgrade(&shared) as _;
        shared.process.shutdown.on_shutdown(listener);
        Self(shared)
    }

    /// Returns whether the queue belongs to another process. A forked child needs a new one.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.0.process.is_foreign()
    }

    /// Returns the descriptor of the sockets that the event loop can watch. It is open for as long as the queue is.
    #[must_use]
    pub fn sockets(&self) -> Option<RawFd> {
        self.0.event_loop.as_ref().map(|event_loop| event_loop.fd())
    }

    /// Notes that the event loop watches the descriptor from now on.
    pub fn begin_to_watch(&self) {
        if let Some(event_loop) = &self.0.event_loop {
            event_loop.begin();
        }
    }

    /// Reads what the sockets have brought. Returns whether there is something to [drain](Queue::drain): the loop is not
    /// woken for that. Called on the loop's thread.
    #[must_use]
    pub fn turn(&self) -> bool {
        match &self.0.event_loop {
            Some(event_loop) if !self.is_foreign() => event_loop.turn(),
            _ => return false,
        }
        !self.0.list.lock().completions.is_empty()
    }

    /// Begins `call` on this thread, as a part of the background.
    fn begin_here(&self, background: &Started, call: ReportedCall) -> Handover {
        match &self.0.event_loop {
            Some(event_loop) if event_loop.is_watching() => event_loop.enter(|| background.begin_here(call)),
            _ => background.begin_here(call),
        }
    }

    /// Starts an acquire.
    ///
    /// # Errors
    ///
    /// `already_held`, `invalid_argument` or `unavailable`, at once. [`Queue::take`] returns all other errors.
    pub fn acquire(&self, object: &Arc<LockObject>, timeout: Timeout) -> Result<u64, Error> {
        let pid = self.current_pid()?;
        self.start_acquire(object, object.reserve(pid, false)?, pid, timeout)
    }

    /// Starts an acquire for a block that [`Queue::release_at_exit`] ends.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::acquire`], and `lost` at once if the object was attached and has lost that hold.
    pub fn enter(&self, object: &Arc<LockObject>) -> Result<u64, Error> {
        let pid = self.current_pid()?;
        if object.enter_attached(pid)? {
            return Ok(self.add_completed());
        }
        self.start_acquire(object, object.reserve(pid, true)?, pid, None)
    }

    fn start_acquire(
        &self,
        object: &LockObject,
        reservation: Reservation,
        pid: Pid,
        timeout: Timeout,
    ) -> Result<u64, Error> {
        let context = object.context(pid, timeout)?;
        let acquire = match Acquire::begin(context) {
            Ok(acquire) => acquire,
            Err(error) => return Err(reservation.failed(error)),
        };
        let id = self.0.add_call(Call::Running(Some(reservation), None));
        self.run_acquire(id, acquire)?;
        Ok(id)
    }

    /// Starts an extension, to `ttl` or by the ttl in force.
    ///
    /// # Errors
    ///
    /// `not_held`, `lost` or `invalid_argument`, at once; `lost` and `unavailable` with [`Queue::take`].
    pub fn extend(&self, object: &Arc<LockObject>, ttl: Option<Duration>) -> Result<u64, Error> {
        let Extension { lease, ttl, .. } = object.extension(self.current_pid()?, ttl)?;
        lease.remaining_here()?;
        self.add(false, move || async move { hold::extend(lease, ttl.into()).await.map(|()| Taken::Completed) })
    }

    /// Starts to end the hold without a release, after an extension to `ttl` if there is one. Its result is
    /// [`Taken::Detached`]. If it is cancelled or not taken, the lock is held as before, or released.
    ///
    /// # Errors
    ///
    /// `not_held`, `lost` or `invalid_argument`, at once; `lost` and `unavailable` with [`Queue::take`].
    pub fn detach(&self, object: &Arc<LockObject>, ttl: Option<Duration>) -> Result<u64, Error> {
        let Extension { lease, ttl, .. } = object.detaching(self.current_pid()?, ttl)?;
        lease.remaining_here()?;
        self.add(true, move || async move { detach(lease, ttl).await.map(Taken::Detached) })
    }

    /// Starts a release. From here on the lock is not held, even if the release fails or is cancelled.
    ///
    /// # Errors
    ///
    /// `not_held` at once; `lost` and `unavailable` with [`Queue::take`].
    pub fn release(&self, object: &Arc<LockObject>) -> Result<u64, Error> {
        self.start_release(object.take_lease(self.current_pid()?)?, |released| released)
    }

    /// Starts a release at the end of a block. It also succeeds if there is nothing to release, or if no quorum
    /// confirms the release.
    ///
    /// # Errors
    ///
    /// `unavailable` at once if there is no background, `lost` with [`Queue::take`].
    pub fn release_at_exit(&self, object: &Arc<LockObject>) -> Result<u64, Error> {
        self.start_release(object.take_lease(self.current_pid()?).unwrap_or(None), lock::ignore_unconfirmed)
    }

    /// Starts a call. Its result is what the call returns. If it is cancelled, a call that changes something continues.
    ///
    /// # Errors
    ///
    /// `unavailable` if the background cannot be started.
    pub fn start(&self, call: calls::Call) -> Result<u64, Error> {
        self.current_pid()?;
        self.add(call.only_asks, move || call.run)
    }

    /// Subscribes to the losses of `object`, and returns a number. The number becomes ready each time a lease of the
    /// object is lost, and [`Queue::take`] then fails with that loss. If the current lease is lost already, and was
    /// neither released nor acquired again, the number becomes ready at once. When the object is dropped, the number
    /// becomes ready once more. An object may have several subscriptions. They become ready in the order in which they
    /// began, and [`Queue::cancel`] ends one. Returns zero, which is never the number of a subscription, if the queue
    /// belongs to another process.
    pub fn subscribe_to_losses(&self, object: &Arc<LockObject>) -> u64 {
        let Ok(pid) = self.current_pid() else { return 0 };
        let id = self.0.add_call(Call::LossSubscription(None));
        let subscription = LossSubscription { shared: Arc::downgrade(&self.0), id };
        object.on_lost(pid, Arc::new(subscription));
        id
    }

    /// Cancels a call, or ends a loss subscription. A cancelled acquire leaves no key behind. Releases and extensions
    /// continue without a report.
    pub fn cancel(&self, id: u64) {
        if self.is_foreign() {
            return;
        }
        let call = {
            let mut list = self.0.list.lock();
            let call = list.remove(id);
            if matches!(call, Some(Call::Running(Some(_), _))) {
                list.leaving.insert(id, None);
            }
            call
        };
        if let Some(Call::Running(Some(reservation), _)) = &call {
            let mut leaving = reservation.leave();
            if let Some(entry) = self.0.list.lock().leaving.get_mut(&id) {
                *entry = leaving.take();
            }
        }
        self.0.drop_call(call);
    }

    /// Returns the numbers of the calls and loss subscriptions that became ready.
    ///
    /// Calls `reset` to end the wake-up that led to this call, so that later numbers can wake the event loop again. A
    /// forked child does not call it: it shares the descriptor with its parent, and the parent would miss a wake-up.
    pub fn drain(&self, reset: impl FnOnce()) -> Vec<Completion> {
        if self.is_foreign() {
            return Vec::new();
        }
        // A number that becomes ready between these two steps causes one wake-up too many. In the other order, it would
        // cause none.
        reset();
        // The list keeps its capacity, so that another thread need not allocate for the next number.
        self.0.list.lock().completions.drain(..).collect()
    }

    /// Returns the numbers as [`Queue::drain`] does, and takes each won lock at once. Reports a taken lock as done. Does
    /// not report a lock that was won too late, because its acquire continues.
    ///
    /// For event loops on which nothing can cancel a call between this call and the moment when its caller continues.
    #[must_use]
    pub fn drain_and_take(&self) -> Vec<Completion> {
        let Ok(pid) = self.current_pid() else { return Vec::new() };
        let mut completions: Vec<_> = self.0.list.lock().completions.drain(..).collect();
        completions.retain_mut(|completion| self.take_won(pid, completion));
        completions
    }

    /// Takes the lock of `completion` if that is a won acquire. Returns whether there is anything to report.
    fn take_won(&self, pid: Pid, completion: &mut Completion) -> bool {
        let Completion::Result(id) = *completion else { return true };
        let mut list = self.0.list.lock();
        let Entry::Occupied(entry) = list.calls.entry(id) else { return true };
        if !matches!(entry.get(), Call::Won(..)) {
            return true;
        }
        let call = entry.remove();
        drop(list);
        let Call::Won(acquire, owner, reservation) = call else { unreachable!("it was won under the lock") };
        // A panic must fail only this call, because the rest of the batch is not on the list any more.
        let take = AssertUnwindSafe(|| self.activate(pid, id, *acquire, owner, reservation));
        match catch_unwind(take).unwrap_or_else(|_| Err(Error::panicked())) {
            Ok(Taken::Pending) => return false,
            Ok(_) => *completion = Completion::Done(id),
            Err(error) => {
                let mut list = self.0.list.lock();
                let former = list.remove(id);
                list.insert(id, Call::Finished(Err(error), None));
                drop(list);
                drop(former);
            }
        }
        true
    }

    /// Takes the result of a call. The code that started the call takes it at the moment when it continues.
    ///
    /// # Errors
    ///
    /// Those of the call; `lost` for a loss subscription.
    pub fn take(&self, id: u64) -> Result<Taken, Error> {
        let Ok(pid) = self.current_pid() else { return Ok(Taken::Cancelled) };
        let mut list = self.0.list.lock();
        let call = match list.calls.get_mut(&id) {
            None => return Ok(Taken::Cancelled),
            Some(Call::Running(..)) => return Ok(Taken::Pending),
            Some(Call::LossSubscription(loss)) => return loss.take().map_or(Ok(Taken::Pending), Err),
            Some(_) => list.remove(id),
        };
        drop(list);
        match call {
            Some(Call::Won(acquire, owner, reservation)) => self.activate(pid, id, *acquire, owner, reservation),
            Some(Call::Finished(Err(error), Some(reservation))) => Err(reservation.failed(error)),
            Some(Call::Finished(result, _)) => result,
            _ => Ok(Taken::Cancelled),
        }
    }

    /// Returns the error of a call that nobody has cancelled, and that [`Queue::take`] does not have.
    #[must_use]
    pub fn ended(&self) -> Error {
        if self.is_foreign() {
            return forked();
        }
        Error::new(ErrorKind::Closed, "not finished: redlock is shut down in this process")
    }

    /// Gives a won lock to its object, or runs the acquire again if the lock was taken too late.
    fn activate(
        &self,
        pid: Pid,
        id: u64,
        acquire: Acquire,
        owner: LeaseOwner,
        reservation: Reservation,
    ) -> Result<Taken, Error> {
        let activated = match acquire.activate(owner) {
            Ok(activated) => activated,
            Err(error) => return Err(reservation.failed(error)),
        };
        match activated {
            Ok(owner) => {
                reservation.complete(pid, owner, None);
                Ok(Taken::Completed)
            }
            Err(acquire) => {
                self.0.list.lock().insert(id, Call::Running(Some(reservation), None));
                self.run_acquire(id, acquire)?;
                Ok(Taken::Pending)
            }
        }
    }

    /// Returns the current process's id. Fails if the queue belongs to another process.
    fn current_pid(&self) -> Result<Pid, Error> {
        let pid = Pid::now();
        if self.0.process.is_foreign_to(pid) {
            let message = "this event loop was inherited through fork; start a new event loop in the child process";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(pid)
    }

    /// Runs an acquire in the background.
    fn run_acquire(&self, id: u64, acquire: Acquire) -> Result<(), Error> {
        self.run(id, true, move || async move {
            match acquire.win(Some(&Handle::current())).await {
                Ok((acquire, owner)) => Outcome::Won(Box::new(acquire), owner),
                Err(error) => Outcome::Finished(Err(error)),
            }
        })
    }

    /// Adds a call that is done already.
    fn add_completed(&self) -> u64 {
        let id = self.0.add_call(Call::Running(None, None));
        self.0.finish(id, Outcome::Finished(Ok(Taken::Completed)));
        id
    }

    /// Adds a call, and runs it; see [`Queue::run`].
    fn add<F>(&self, can_abort: bool, call: impl FnOnce() -> F + Send + 'static) -> Result<u64, Error>
    where
        F: Future<Output = Result<Taken, Error>> + Send + 'static,
    {
        let id = self.0.add_call(Call::Running(None, None));
        self.run(id, can_abort, move || async move { Outcome::Finished(call().await) })?;
        Ok(id)
    }

    /// Runs `call`, to its end unless it `can_abort` and is cancelled. A call that is alone begins on this thread if the
    /// background is settled, which is not woken for it then. All others begin in the background, which is woken once for
    /// many of them. It makes the future from `call`, which is much smaller. So the thread that frees the future's memory
    /// has also allocated it.
    fn run<F>(&self, id: u64, can_abort: bool, call: impl FnOnce() -> F + Send + 'static) -> Result<(), Error>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let report = Report { shared: Arc::downgrade(&self.0), id };
        let background = self.0.process.background.start().inspect_err(|_| self.cancel(id))?;
        if background.is_settled() && self.0.list.lock().is_alone() {
            let handover = self.begin_here(&background, report.wrap(call()));
            if !can_abort {
                return Ok(());
            }
            if let Some(Call::Running(_, abort)) = self.0.list.lock().calls.get_mut(&id) {
                *abort = Some(Abort::Handover(handover));
                return Ok(());
            }
            // The call is finished, or the process is ending.
            handover.abort();
            return Ok(());
        }
        background.begin(move |runtime| {
            let shared = report.shared.upgrade();
            if can_abort && shared.is_none() {
                return;
            }
            let task = spawn(runtime, report.wrap(call()));
            let Some(shared) = shared.filter(|_| can_abort) else { return };
            match shared.list.lock().calls.get_mut(&id) {
                Some(Call::Running(_, abort)) => *abort = Some(Abort::Task(task)),
                // The call was cancelled before its task began.
                _ => task.abort(),
            }
        });
        Ok(())
    }

    /// Starts the release of `lease`, if there is one, and passes its result through `map_result`.
    fn start_release(
        &self,
        lease: Option<CurrentLease>,
        map_result: fn(Result<(), Error>) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let Some(lease) = lease else { return Ok(self.add_completed()) };
        let pending_work = PendingWork::new(&self.0.process.shutdown);
        self.add(false, move || async move {
            let released = hold::release(lease.owner).await;
            drop(pending_work);
            map_result(released).map(|()| Taken::Completed)
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_foreign() {
            // The calls and locks are the parent's.
            mem::forget(Arc::clone(&self.0));
            return;
        }
        self.0.drop_calls();
    }
}

impl QueueState {
    /// Drops a call, and aborts its task if it has one. A lock that it has won is released.
    fn drop_call(&self, call: Option<Call>) {
        match &call {
            // Not from here: tokio would end one of several waiters only after the one before it has let it come in front.
            Some(Call::Running(_, Some(Abort::Task(task)))) => {
                let (task, background) = (task.clone(), self.process.background.started());
                background.expect("it has begun the task").begin(move |_| task.abort());
            }
            Some(Call::Running(_, Some(Abort::Handover(handover)))) => handover.abort(),
            _ => {}
        }
        drop(call);
    }

    fn add_call(&self, call: Call) -> u64 {
        let mut list = self.list.lock();
        list.last += 1;
        let id = list.last;
        list.insert(id, call);
        id
    }

    /// Records the outcome of a call. Drops it if the call was cancelled meanwhile, or if the process is ending.
    fn finish(&self, id: u64, outcome: Outcome) {
        if self.process.shutdown.has_started() {
            return;
        }
        let mut list = self.list.lock();
        if !matches!(list.calls.get(&id), Some(Call::Running(..))) {
            let left = list.leaving.remove(&id);
            drop(list);
            // After what the call has won, whose drop releases it.
            drop(outcome);
            drop(left);
            return;
        }
        let Some(Call::Running(reservation, abort)) = list.remove(id) else { return };
        let call = match (outcome, reservation) {
            (Outcome::Finished(Ok(Taken::Completed)), None) => None,
            (Outcome::Finished(result), reservation) => Some(Call::Finished(result, reservation)),
            (Outcome::Won(acquire, owner), Some(reservation)) => Some(Call::Won(acquire, owner, reservation)),
            (Outcome::Won(..), None) => unreachable!("only an acquire is won, and it has its reservation"),
        };
        let completion = if call.is_some() { Completion::Result(id) } else { Completion::Done(id) };
        if let Some(call) = call {
            list.insert(id, call);
        }
        self.complete(list, completion);
        drop(abort);
    }

    /// Adds `completion` to the list, and wakes the event loop if the list was empty.
    fn complete(&self, mut list: MutexGuard<'_, List>, completion: Completion) {
        list.completions.push(completion);
        let first = list.completions.len() == 1;
        drop(list);
        // The loop drains after its turn.
        if first && !self.event_loop.as_ref().is_some_and(|event_loop| event_loop.is_turning()) {
            (self.wake)();
        }
    }
}

impl OnShutdown for QueueState {
    fn drop_calls(&self) {
        // First: the loop does not turn any more, and the background reads the answers that the shutdown waits for.
        if let Some(event_loop) = &self.event_loop {
            event_loop.close();
        }
        let calls = {
            let mut list = self.list.lock();
            list.running = 0;
            mem::take(&mut list.calls)
        };
        for call in calls.into_values() {
            self.drop_call(Some(call));
        }
    }
}

opaque!(QueueState);

/// Reports the outcome of a call when its task ends, even if the task panics.
struct Report {
    /// Empty once the outcome is reported.
    shared: Weak<QueueState>,
    id: u64,
}

impl Report {
    /// Wraps `call`, so that it reports its outcome. Boxes it, because it is large and is moved several times.
    fn wrap(mut self, call: impl Future<Output = Outcome> + Send + 'static) -> ReportedCall {
        Box::pin(async move { self.send(call.await) })
    }

    fn send(&mut self, outcome: Outcome) {
        if let Some(shared) = mem::take(&mut self.shared).upgrade() {
            shared.finish(self.id, outcome);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.shared.strong_count() > 0 {
            self.send(Outcome::Finished(Err(Error::panicked())));
        }
    }
}

/// Reports the losses of one object to the queue, and its drop.
#[derive(Debug)]
struct LossSubscription {
    shared: Weak<QueueState>,
    id: u64,
}

impl OnLoss for LossSubscription {
    fn heard(&self, error: Error) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut list = shared.list.lock();
        if let Some(Call::LossSubscription(loss)) = list.calls.get_mut(&self.id) {
            *loss = Some(error);
            shared.complete(list, Completion::Result(self.id));
        }
    }

    fn is_over(&self) -> bool {
        self.shared.upgrade().is_none_or(|shared| !shared.list.lock().calls.contains_key(&self.id))
    }
}

impl Drop for LossSubscription {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        if shared.process.is_foreign() {
            mem::forget(shared);
            return;
        }
        let mut list = shared.list.lock();
        if list.remove(self.id).is_some() {
            shared.complete(list, Completion::Result(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, channel};
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::api::client::Redlock;

    #[test]
    fn a_panic_in_a_call_becomes_an_error() {
        let (sender, woken) = channel();
        let queue = Queue::new(move || sender.send(()).unwrap());
        let redlock = Redlock::new("memory://queue-panic").unwrap();
        let object = LockObject::new(redlock.lock("foo")).unwrap();
        let reservation = object.reserve(Pid::now(), false).unwrap();
        let id = queue.0.add_call(Call::Running(Some(reservation), None));
        queue.run(id, false, || async { panic!("on purpose") }).unwrap();
        woken.recv_timeout(harness::LIMIT).unwrap();
        assert_eq!(queue.drain(|| ()), [Completion::Result(id)]);
        let error = queue.take(id).unwrap_err();
        assert!(error.to_string().contains("bug"), "{error}");
        assert!(object.reserve(Pid::now(), false).is_ok(), "the object can be acquired again");
    }

    /// Returns the threads on which two calls began that were started one after the other.
    fn threads_of_two_calls(queue: &Queue) -> [ThreadId; 2] {
        let (sender, threads) = channel();
        let ids = [(); 2].map(|()| {
            let (id, sender) = (queue.0.add_call(Call::Running(None, None)), sender.clone());
            let call = move || async move {
                sender.send(thread::current().id()).unwrap();
                std::future::pending().await
            };
            queue.run(id, true, call).unwrap();
            (id, threads.recv_timeout(harness::LIMIT).unwrap())
        });
        ids.map(|(id, thread)| {
            queue.cancel(id);
            thread
        })
    }

    // Other tests keep the background busy at times, so that each of these is played until it was settled once.

    #[test]
    fn only_a_call_that_is_alone_begins_on_its_own_thread() {
        let queue = Queue::new(|| ());
        harness::eventually("the background is settled", || {
            let [first, second] = threads_of_two_calls(&queue);
            assert_ne!(second, thread::current().id());
            assert_eq!(queue.0.list.lock().running, 0);
            first == thread::current().id()
        });
    }

    /// Whether a call that began on this thread is a part of the event loop.
    fn begins_in_the_loop(queue: &Queue) -> bool {
        let mut is_in_loop = false;
        harness::eventually("the background is settled", || {
            let (sender, begun) = channel();
            let id = queue.0.add_call(Call::Running(None, None));
            let call = move || async move {
                sender.send((thread::current().id(), EventLoop::is_any_entered())).unwrap();
                std::future::pending().await
            };
            queue.run(id, true, call).unwrap();
            let (thread, entered) = begun.recv_timeout(harness::LIMIT).unwrap();
            queue.cancel(id);
            is_in_loop = entered;
            thread == thread::current().id()
        });
        is_in_loop
    }

    #[test]
    fn nothing_relies_on_a_loop_that_does_not_watch() {
        let queue = Queue::watching(|| ());
        assert!(!begins_in_the_loop(&queue), "nobody may ever watch it");
        queue.begin_to_watch();
        assert!(begins_in_the_loop(&queue));
        queue.0.drop_calls();
        assert!(!begins_in_the_loop(&queue), "the process ends");
        assert!(!begins_in_the_loop(&Queue::new(|| ())));
    }

    #[test]
    fn a_call_that_begins_here_may_be_over_at_once() {
        let (sender, woken) = channel();
        let queue = Queue::new(move || sender.send(()).unwrap());
        let redlock = Redlock::new("memory://queue-at-once").unwrap();
        let object = LockObject::new(redlock.lock("foo")).unwrap();
        harness::eventually("the background is settled", || {
            let id = queue.acquire(&object, None).unwrap();
            let is_over = woken.try_recv().is_ok();
            if !is_over {
                woken.recv_timeout(harness::LIMIT).unwrap();
            }
            assert_eq!(queue.drain(|| ()), [Completion::Result(id)]);
            assert!(matches!(queue.take(id), Ok(Taken::Completed)));
            let id = queue.release(&object).unwrap();
            woken.recv_timeout(harness::LIMIT).unwrap();
            assert_eq!(queue.drain(|| ()), [Completion::Done(id)]);
            assert_eq!(queue.0.list.lock().running, 0);
            is_over
        });
    }

    #[test]
    fn a_cancelled_call_that_began_here_is_dropped_here() {
        let queue = Queue::new(|| ());
        harness::eventually("the background is settled", || {
            let (sender, dropped) = channel::<()>();
            let id = queue.0.add_call(Call::Running(None, None));
            let call = move || async move {
                let _sender = sender;
                std::future::pending().await
            };
            queue.run(id, true, call).unwrap();
            queue.cancel(id);
            dropped.try_recv() == Err(TryRecvError::Disconnected)
        });
    }

    #[test]
    fn a_call_that_becomes_ready_during_the_reset_is_drained() {
        let queue = Queue::new(|| ());
        let id = queue.0.add_call(Call::Running(None, None));
        let completions = queue.drain(|| queue.0.finish(id, Outcome::Finished(Ok(Taken::Completed))));
        assert_eq!(completions, [Completion::Done(id)]);
    }
}
