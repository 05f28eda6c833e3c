//! A process that can be stopped, continued and killed, with runtimes that can end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::World;
use super::time::{Machine, Pace, Time};
use crate::api::client::{Builder, Redlock};
use crate::error::Error;
use crate::process::Process;
use crate::sys::background::Background;
use crate::sys::task::Task;
use crate::sys::task::simulated::{self, StandIn};

/// A simulated process: a background, clients, and runtimes for their callers.
pub struct Program {
    world: World,
    index: usize,
    process: Arc<Process>,
    machine: Machine,
    background: Runtime,
    runtimes: Mutex<Vec<Weak<Host>>>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Program {
    pub(super) fn new(world: &World, index: usize, pace: Pace, random: super::Fill) -> Self {
        let machine = Machine::new(world.time.clone(), pace);
        let background = Runtime::new(&world.time);
        let process = world.process_on(index, &machine, random, Background::on(background.handle().clone()));
        let runtimes = Mutex::new(vec![Arc::downgrade(&background.0)]);
        Self { world: world.clone(), index, process, machine, background, runtimes }
    }

    /// Makes a client with the options of `builder` and the nodes in this `order`. All clients share their knowledge of
    /// the nodes, and those with the same order their connections too, as in every process.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a number of nodes that no client may have.
    pub fn client(&self, order: &[usize], builder: &Builder) -> Result<Redlock, Error> {
        let set = self.world.set(order, &self.process)?;
        Ok(super::client(self.index, Arc::clone(&self.process), set, builder.options.clone()))
    }

    /// Returns its clocks.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Makes a new runtime for callers.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        let runtime = Runtime::new(&self.world.time);
        lock(&self.runtimes).push(Arc::downgrade(&runtime.0));
        runtime
    }

    fn runtimes(&self) -> Vec<Arc<Host>> {
        let mut runtimes = lock(&self.runtimes);
        runtimes.retain(|runtime| runtime.strong_count() > 0);
        runtimes.iter().filter_map(Weak::upgrade).collect()
    }

    /// Stops its tasks until [`Program::go_on`], but not its clocks.
    pub fn stop(&self) {
        self.world.note(|| format!("process {} stands still", self.index + 1));
        self.runtimes().iter().for_each(|runtime| runtime.turn(Phase::Running, Phase::Stopped));
    }

    /// Continues its tasks.
    pub fn go_on(&self) {
        self.world.note(|| format!("process {} goes on", self.index + 1));
        self.runtimes().iter().for_each(|runtime| runtime.turn(Phase::Stopped, Phase::Running));
    }

    /// Ends it at once, with its connections. Requests that were written still travel on.
    pub fn kill(&self) {
        self.world.note(|| format!("process {} is killed", self.index + 1));
        self.runtimes().iter().for_each(|runtime| runtime.end());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.background.end();
        self.process.schedule.clear();
    }
}

/// A runtime of a simulated process.
#[derive(Debug)]
pub struct Runtime(Arc<Host>);

impl Runtime {
    fn new(time: &Time) -> Self {
        // Never driven: it only lends its name, and its place as the current one. A runtime without timers is refused.
        let name =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime without sockets");
        let host = Arc::new(Host { time: time.clone(), name: Some(name), life: Mutex::default() });
        simulated::enter(host.handle(), Arc::clone(&host) as Arc<dyn StandIn>);
        Self(host)
    }

    fn handle(&self) -> &Handle {
        self.0.handle()
    }

    /// Runs `task` on it. The task must not use tokio's time, but [`World::sleep`].
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(Arc::clone(&self.0).spawn(Box::pin(task)));
    }

    /// Ends it: drops its tasks where they stand, and its connections with them.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.0.end();
        simulated::leave(self.handle().id());
    }
}

/// The executor of a simulated runtime's tasks, on the simulation's runtime.
struct Host {
    time: Time,
    /// Taken only by drop.
    name: Option<tokio::runtime::Runtime>,
    life: Mutex<Life>,
}

#[derive(Default)]
struct Life {
    phase: Phase,
    /// Tasks that were woken while they could not go on.
    asleep: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Running,
    Stopped,
    Ended,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("phase", &self.life().phase).finish_non_exhaustive()
    }
}

impl Host {
    fn handle(&self) -> &Handle {
        self.name.as_ref().expect("taken only by drop").handle()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }

    fn turn(&self, from: Phase, to: Phase) {
        let asleep = {
            let mut life = self.life();
            if life.phase == from {
                life.phase = to;
            }
            std::mem::take(&mut life.asleep)
        };
        // Tasks that still may not go on fall asleep again.
        asleep.into_iter().for_each(Waker::wake);
    }

    fn end(&self) {
        let tasks = {
            let mut life = self.life();
            life.phase = Phase::Ended;
            life.asleep.clear();
            std::mem::take(&mut life.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl StandIn for Host {
    fn spawn(self: Arc<Self>, task: Task) -> AbortHandle {
        let mut life = self.life();
        let phase = life.phase;
        let hosted = Hosted { host: Arc::clone(&self), task: Some(task) };
        let task = self.time.runtime.spawn(async move {
            if phase != Phase::Ended {
                hosted.await;
            }
        });
        let task = task.abort_handle();
        if life.tasks.len() == life.tasks.capacity() {
            life.tasks.retain(|task| !task.is_finished());
        }
        life.tasks.push(task.clone());
        task
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            name.shutdown_background();
        }
    }
}

/// A task that only goes on while its runtime does.
struct Hosted {
    host: Arc<Host>,
    /// Taken only by drop.
    task: Option<Task>,
}

impl Drop for Hosted {
    /// Drops in its runtime's context, as an ending runtime does.
    fn drop(&mut self) {
        let _inside = self.host.handle().enter();
        drop(self.task.take());
    }
}

impl Future for Hosted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { host, task } = &mut *self;
        {
            let mut life = host.life();
            match life.phase {
                Phase::Running => {}
                Phase::Stopped => {
                    life.asleep.push(cx.waker().clone());
                    return Poll::Pending;
                }
                Phase::Ended => return Poll::Ready(()),
            }
        }
        let _inside = host.handle().enter();
        task.as_mut().map_or(Poll::Ready(()), |task| task.as_mut().poll(cx))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while holding this")
}
