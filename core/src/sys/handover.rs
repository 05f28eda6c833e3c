//! A task that one thread begins, and that a runtime goes on with.
//!
//! A thread that starts a task on another thread's runtime wakes that thread, and the task then mostly writes a request
//! and waits. Here the calling thread does that part itself, and the runtime hears of the task when the answer comes,
//! which mostly wakes its thread anyway.
//!
//! A task that an event loop begins (`sys/event_loop.rs`) goes on there for as long as it is woken there, by what the
//! loop reads itself.
//!
//! States of the task:
//!
//! - *begun*: a thread that is not the runtime's polls it, in the runtime's context;
//! - *resting*: it waits, and the runtime does not know of it;
//! - *woken*: the event loop's thread is about to poll it;
//! - *running*: it is a task of the runtime, for good;
//! - *over*.
//!
//! What may interrupt it:
//!
//! - It is woken while it is begun: it runs as soon as the poll is over.
//! - It is aborted: a resting or woken task is dropped at once, by the caller. A begun one is dropped when its poll is
//!   over, and a running one is aborted.
//! - It panics: it is dropped, and must report that in its own drop.
//! - It is dropped with its runtime: whatever it waits for ends then and wakes it, and the runtime drops it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::sys::event_loop::{EventLoop, Resume};
use crate::sys::mutex::Mutex;
use crate::sys::task::{Task, spawn_boxed};
use crate::texts::opaque;

/// A task that was handed over.
pub(crate) struct Handover(Arc<Place>);

struct Place {
    runtime: Handle,
    /// On whose thread the task began, and goes on when it is woken there.
    event_loop: Option<Arc<EventLoop>>,
    state: Mutex<State>,
}

enum State {
    Begun {
        is_woken: bool,
    },
    Resting(Task),
    /// Woken, and about to be polled on the event loop's thread.
    Woken(Task),
    Running(AbortHandle),
    Over,
}

impl Handover {
    /// Polls `task` once on the calling thread, and leaves the rest of it to `runtime`.
    pub(crate) fn begin(runtime: &Handle, task: Task) -> Self {
        let state = Mutex::new(State::Begun { is_woken: false });
        let place = Arc::new(Place { runtime: runtime.clone(), event_loop: EventLoop::entered(), state });
        place.poll(task);
        Self(place)
    }

    /// Drops the task, soon if it is running.
    pub(crate) fn abort(&self) {
        let mut state = self.0.state.lock();
        if let State::Running(task) = &*state {
            return task.abort();
        }
        let former = mem::replace(&mut *state, State::Over);
        drop(state);
        let _context = self.0.runtime.enter();
        drop(former);
    }
}

opaque!(Handover);

impl Place {
    /// Polls the task, which is begun, on this thread.
    fn poll(self: &Arc<Self>, mut task: Task) {
        let waker = Waker::from(Arc::clone(self));
        let _context = self.runtime.enter();
        let poll = || task.as_mut().poll(&mut Context::from_waker(&waker));
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => self.rest(task),
            Ok(Poll::Ready(())) | Err(_) => {
                *self.state.lock() = State::Over;
                drop(task);
            }
        }
    }

    fn rest(&self, task: Task) {
        let mut state = self.state.lock();
        *state = match *state {
            State::Begun { is_woken: true } => State::Running(spawn_boxed(&self.runtime, task)),
            State::Begun { is_woken: false } => State::Resting(task),
            // It was aborted meanwhile.
            _ => {
                drop(state);
                return drop(task);
            }
        };
    }
}

impl Wake for Place {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Over) {
            State::Begun { .. } => *state = State::Begun { is_woken: true },
            State::Resting(task) => match &self.event_loop {
                Some(event_loop) if event_loop.is_entered() => {
                    *state = State::Woken(task);
                    drop(state);
                    event_loop.wake(Arc::clone(self) as _);
                }
                _ => *state = State::Running(spawn_boxed(&self.runtime, task)),
            },
            // A waker of its first poll that is late. The task is polled again when it runs, and gives out others then.
            former => *state = former,
        }
    }
}

impl Resume for Place {
    fn resume(self: Arc<Self>) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Begun { is_woken: false }) {
            State::Woken(task) => {
                drop(state);
                self.poll(task);
            }
            // It was aborted.
            former => *state = former,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{self, ThreadId};

    use harness::LIMIT;
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::Notify;

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    /// Reports the thread of each poll, and at last its end.
    struct Reporting(Sender<Option<ThreadId>>);

    impl Drop for Reporting {
        fn drop(&mut self) {
            let _ = self.0.send(None);
        }
    }

    /// Waits for `notify` once, and reports the thread before and after.
    fn waits_for(notify: &Arc<Notify>) -> (Task, Receiver<Option<ThreadId>>) {
        let (sender, receiver) = channel();
        let (reporting, notify) = (Reporting(sender), Arc::clone(notify));
        let task = async move {
            reporting.0.send(Some(thread::current().id())).unwrap();
            notify.notified().await;
            reporting.0.send(Some(thread::current().id())).unwrap();
        };
        (Box::pin(task), receiver)
    }

    #[test]
    fn a_task_begins_here_and_goes_on_there() {
        let (runtime, notify) = (runtime(), Arc::new(Notify::new()));
        let (task, reported) = waits_for(&notify);
        let _handover = Handover::begin(runtime.handle(), task);
        assert_eq!(reported.try_recv().unwrap(), Some(thread::current().id()));
        assert!(reported.try_recv().is_err());
        notify.notify_one();
        assert_ne!(reported.recv_timeout(LIMIT).unwrap().unwrap(), thread::current().id());
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), None);
    }

    #[test]
    fn a_task_that_has_nothing_to_wait_for_ends_here() {
        let (runtime, notify) = (runtime(), Arc::new(Notify::new()));
        notify.notify_one();
        let (task, reported) = waits_for(&notify);
        Handover::begin(runtime.handle(), task).abort();
        let here = Some(thread::current().id());
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [here, here, None]);
    }

    #[test]
    fn a_task_that_is_woken_while_it_is_polled_goes_on() {
        let (runtime, (sender, receiver)) = (runtime(), channel());
        let mut is_first = true;
        let task = poll_fn(move |cx| {
            if mem::take(&mut is_first) {
                let waker = cx.waker().clone();
                thread::spawn(move || waker.wake()).join().unwrap();
                return Poll::Pending;
            }
            sender.send(thread::current().id()).unwrap();
            Poll::Ready(())
        });
        let _handover = Handover::begin(runtime.handle(), Box::pin(task));
        assert_ne!(receiver.recv_timeout(LIMIT).unwrap(), thread::current().id());
    }

    #[test]
    fn a_task_goes_on_where_it_is_woken() {
        let (runtime, notify) = (runtime(), Arc::new(Notify::new()));
        let event_loop = EventLoop::new().unwrap();
        let here = thread::current().id();

        let (task, reported) = waits_for(&notify);
        let _handover = event_loop.enter(|| Handover::begin(runtime.handle(), task));
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [Some(here)]);
        event_loop.enter(|| {
            notify.notify_one();
            assert!(reported.try_recv().is_err(), "not inside of what wakes it");
        });
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [Some(here), None]);

        let (task, reported) = waits_for(&notify);
        let _handover = event_loop.enter(|| Handover::begin(runtime.handle(), task));
        notify.notify_one();
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), Some(here));
        assert_ne!(reported.recv_timeout(LIMIT).unwrap().unwrap(), here, "woken by a thread that is not in the loop");
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), None);
    }

    #[test]
    fn a_task_that_is_woken_and_aborted_does_not_go_on() {
        let (runtime, notify) = (runtime(), Arc::new(Notify::new()));
        let event_loop = EventLoop::new().unwrap();
        let (task, reported) = waits_for(&notify);
        let handover = event_loop.enter(|| Handover::begin(runtime.handle(), task));
        event_loop.enter(|| {
            notify.notify_one();
            handover.abort();
        });
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [Some(thread::current().id()), None]);
    }

    #[test]
    fn a_task_that_is_aborted_while_the_loop_polls_it_is_dropped() {
        let (runtime, notify) = (runtime(), Arc::new(Notify::new()));
        let event_loop = EventLoop::new().unwrap();
        let ((sender, dropped), (polled, polls)) = (channel::<()>(), channel::<()>());
        let (aborted, is_aborted) = channel::<()>();
        let (woken, mut is_first) = (Arc::clone(&notify), true);
        let mut waits = Box::pin(async move { woken.notified().await });
        let task = poll_fn(move |cx| {
            let _sender = &sender;
            if !mem::take(&mut is_first) {
                polled.send(()).unwrap();
                is_aborted.recv().unwrap();
                return Poll::Pending;
            }
            waits.as_mut().poll(cx)
        });
        let handover = event_loop.enter(|| Handover::begin(runtime.handle(), Box::pin(task)));
        thread::scope(|scope| {
            let handover = &handover;
            scope.spawn(move || {
                polls.recv().unwrap();
                handover.abort();
                aborted.send(()).unwrap();
            });
            event_loop.enter(|| notify.notify_one());
        });
        assert_eq!(dropped.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }

    #[test]
    fn an_abort_drops_the_task_at_rest_and_at_work() {
        let (runtime, notify) = (runtime(), Arc::new(Notify::new()));
        let (task, reported) = waits_for(&notify);
        Handover::begin(runtime.handle(), task).abort();
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [Some(thread::current().id()), None]);
        notify.notify_waiters();

        let (sender, reported) = channel();
        let reporting = Reporting(sender);
        let task = poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            let _ = reporting.0.send(Some(thread::current().id()));
            Poll::Pending
        });
        let handover = Handover::begin(runtime.handle(), Box::pin(task));
        while reported.recv_timeout(LIMIT).unwrap() == Some(thread::current().id()) {}
        handover.abort();
        while reported.recv_timeout(LIMIT).unwrap().is_some() {}
    }

    #[test]
    fn a_panic_ends_the_task_alone() {
        let (sender, reported) = channel();
        let reporting = Reporting(sender);
        let task = async move {
            let _reporting = reporting;
            panic!("on purpose");
        };
        Handover::begin(runtime().handle(), Box::pin(task)).abort();
        assert_eq!(reported.try_recv().unwrap(), None);
    }
}
