//! An event loop of the program that hosts this library: it watches sockets in place of the background.
//!
//! A reply that the background reads wakes two threads: the background's, and that of the event loop which awaits the
//! result. Where a loop makes one call after the other, it watches the sockets itself, and tasks that it began go on
//! there.
//!
//! States of a loop: *made*; *watching*, once the program watches its descriptor; *closed*, when every socket has gone
//! back. Tasks go on there, and sockets are lent to it, only while it is watching.
//!
//! What may interrupt it:
//!
//! - The loop is kept busy: what a socket brings is read late. So the lender takes it back after a while, and before
//!   another thread needs it.
//! - The loop or the process ends: [`EventLoop::close`].
//! - A task panics: it is dropped, and the loop goes on.
//! - The process forks: a child shares the queue of events with its parent, and must not look at it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mio::{Events, Poll, Registry, Token};
use slab::Slab;

use crate::sys::descriptor::{self, RawFd};
use crate::sys::mutex::Mutex;
use crate::sys::on_drop::OnDrop;
use crate::texts::opaque;

/// The number of sockets that one turn looks at. The others wait for the next one.
const EVENTS: usize = 64;

/// With the value `background`, no loop of the process watches sockets.
const SWITCH: &str = "REDLOCK_SOCKETS";

thread_local! {
    /// The loop whose thread this is, while it runs tasks of this library.
    static ENTERED: RefCell<Option<Arc<EventLoop>>> = const { RefCell::new(None) };
    /// Whether this thread looks at the sockets.
    static IS_TURNING: Cell<bool> = const { Cell::new(false) };
}

/// A connection whose socket an event loop may watch.
pub(crate) trait OnReadable: Send + Sync {
    /// Called on the loop's thread when there is something to read, or the end. With `is_last`, nothing comes behind it.
    fn readable(&self, is_last: bool);

    /// The loop ends: gives the socket back to the background. Called on any thread.
    fn give_back(&self);
}

/// Something that goes on on a loop's thread.
pub(crate) trait Resume: Send + Sync {
    /// Goes on. Must not panic.
    fn resume(self: Arc<Self>);
}

/// The sockets that one event loop watches, and the tasks that it runs.
pub(crate) struct EventLoop {
    queue: Mutex<(Poll, Events)>,
    registry: Registry,
    watched: Mutex<Slab<Weak<dyn OnReadable>>>,
    woken: Mutex<VecDeque<Arc<dyn Resume>>>,
    fd: RawFd,
    is_watching: AtomicBool,
}

impl EventLoop {
    /// Makes a loop. `None` if the environment has switched loops off, or if the system gives no descriptor: then the
    /// background watches all sockets.
    pub(crate) fn if_wanted() -> Option<Arc<Self>> {
        let is_off = std::env::var_os(SWITCH).is_some_and(|value| value == "background");
        if is_off { None } else { Self::new().ok() }
    }

    /// Makes the queue of events.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let poll = Poll::new()?;
        let (registry, fd) = (poll.registry().try_clone()?, descriptor::of_queue(&poll)?);
        let queue = Mutex::new((poll, Events::with_capacity(EVENTS)));
        Ok(Arc::new(Self {
            queue,
            registry,
            watched: Mutex::default(),
            woken: Mutex::default(),
            fd,
            is_watching: AtomicBool::new(false),
        }))
    }

    /// Notes that the program watches the descriptor from now on.
    pub(crate) fn begin(&self) {
        self.is_watching.store(true, Ordering::Release);
    }

    /// Whether the program watches the descriptor.
    pub(crate) fn is_watching(&self) -> bool {
        self.is_watching.load(Ordering::Acquire)
    }

    /// Returns the descriptor that is readable when [`turn`](Self::turn) has something to do.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Returns the loop that this thread has entered.
    pub(crate) fn entered() -> Option<Arc<Self>> {
        // At the end of a thread it may be gone.
        ENTERED.try_with(|entered| entered.borrow().clone()).ok().flatten()
    }

    /// Whether this thread has entered a loop.
    pub(crate) fn is_any_entered() -> bool {
        ENTERED.try_with(|entered| entered.borrow().is_some()).unwrap_or(false)
    }

    /// Whether this thread has entered this loop.
    pub(crate) fn is_entered(&self) -> bool {
        let is_this = |entered: &Arc<Self>| std::ptr::eq(Arc::as_ptr(entered), self);
        ENTERED.try_with(|entered| entered.borrow().as_ref().is_some_and(is_this)).unwrap_or(false)
    }

    /// Whether this thread is at work in this loop's [`turn`](Self::turn).
    pub(crate) fn is_turning(&self) -> bool {
        IS_TURNING.get() && self.is_entered()
    }

    /// Runs `body` as a part of this loop, and then the tasks that were woken. Called on the loop's thread, and not inside
    /// itself.
    pub(crate) fn enter<T>(self: &Arc<Self>, body: impl FnOnce() -> T) -> T {
        let before = ENTERED.replace(Some(Arc::clone(self)));
        debug_assert!(before.is_none(), "a thread is in one loop at a time");
        let _entered = OnDrop::new(|| {
            IS_TURNING.set(false);
            let left = ENTERED.take();
            drop(left);
        });
        let output = body();
        while let Some(task) = { self.woken.lock().pop_front() } {
            task.resume();
        }
        output
    }

    /// Reads from the sockets that have something, and runs the tasks that awaited it. Called on the loop's thread.
    pub(crate) fn turn(self: &Arc<Self>) {
        self.enter(|| {
            IS_TURNING.set(true);
            let mut queue = self.queue.lock();
            let (poll, events) = &mut *queue;
            // A signal may interrupt it. The descriptor stays readable then.
            if poll.poll(events, Some(Duration::ZERO)).is_err() {
                return;
            }
            for event in &*events {
                let reader = self.watched.lock().get(event.token().0).and_then(Weak::upgrade);
                if let Some(reader) = reader {
                    reader.readable(event.is_read_closed() || event.is_error());
                }
            }
        });
    }

    /// Lets `task` go on as soon as this thread has done what it is at. Called on a thread that has entered.
    pub(crate) fn wake(&self, task: Arc<dyn Resume>) {
        self.woken.lock().push_back(task);
    }

    /// Watches a socket until the result is dropped.
    pub(crate) fn watch(self: &Arc<Self>, fd: RawFd, reader: Weak<dyn OnReadable>) -> io::Result<Registration> {
        let place = self.watched.lock().insert(reader);
        let registration = Registration { event_loop: Arc::clone(self), place, fd };
        descriptor::watch(&self.registry, fd, Token(place))?;
        Ok(registration)
    }

    /// Gives every socket back, and watches none any more. Called on any thread.
    pub(crate) fn close(&self) {
        self.is_watching.store(false, Ordering::Release);
        let readers: Vec<_> = self.watched.lock().iter().filter_map(|(_, reader)| reader.upgrade()).collect();
        for reader in readers {
            reader.give_back();
        }
    }
}

opaque!(EventLoop);

/// A socket that an event loop watches.
#[derive(Debug)]
pub(crate) struct Registration {
    event_loop: Arc<EventLoop>,
    place: usize,
    fd: RawFd,
}

impl Drop for Registration {
    fn drop(&mut self) {
        descriptor::forget(&self.event_loop.registry, self.fd);
        let reader = self.event_loop.watched.lock().try_remove(self.place);
        drop(reader);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Counts {
        readable: AtomicUsize,
        given_back: AtomicUsize,
    }

    impl OnReadable for Counts {
        fn readable(&self, _: bool) {
            self.readable.fetch_add(1, Ordering::SeqCst);
        }

        fn give_back(&self) {
            self.given_back.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Notes its number when it goes on, and wakes another one.
    struct Step(usize, Arc<Mutex<Vec<usize>>>, Option<Arc<Step>>);

    impl Resume for Step {
        fn resume(self: Arc<Self>) {
            self.1.lock().push(self.0);
            if let (Some(next), Some(event_loop)) = (&self.2, EventLoop::entered()) {
                event_loop.wake(Arc::clone(next) as _);
            }
        }
    }

    #[test]
    fn a_turn_tells_the_readers_of_the_sockets_that_have_something() {
        let (event_loop, counts) = (EventLoop::new().unwrap(), Arc::new(Counts::default()));
        let (mine, mut theirs) = UnixStream::pair().unwrap();
        let reader: Weak<Counts> = Arc::downgrade(&counts);
        let registration = event_loop.watch(mine.as_raw_fd(), reader).unwrap();
        event_loop.turn();
        assert_eq!(counts.readable.load(Ordering::SeqCst), 0);
        theirs.write_all(b"x").unwrap();
        event_loop.turn();
        assert_eq!(counts.readable.load(Ordering::SeqCst), 1);
        drop(registration);
        theirs.write_all(b"x").unwrap();
        event_loop.turn();
        assert_eq!(counts.readable.load(Ordering::SeqCst), 1, "it is not watched any more");
    }

    #[test]
    fn what_is_woken_goes_on_after_the_body() {
        let (event_loop, order) = (EventLoop::new().unwrap(), Arc::default());
        let second = Arc::new(Step(2, Arc::clone(&order), None));
        let first = Arc::new(Step(1, Arc::clone(&order), Some(second)));
        event_loop.enter(|| {
            assert!(event_loop.is_entered() && !event_loop.is_turning());
            assert!(thread::scope(|scope| !scope.spawn(|| event_loop.is_entered()).join().unwrap()));
            event_loop.wake(first);
            assert!(order.lock().is_empty());
        });
        assert_eq!(*order.lock(), [1, 2]);
        assert!(!event_loop.is_entered());
    }

    #[test]
    fn a_panic_leaves_the_loop() {
        let event_loop = EventLoop::new().unwrap();
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| event_loop.enter(|| panic!("on purpose"))));
        assert!(panicked.is_err() && EventLoop::entered().is_none());
    }

    #[test]
    fn a_loop_that_ends_gives_every_socket_back() {
        let (event_loop, counts) = (EventLoop::new().unwrap(), Arc::new(Counts::default()));
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let reader = || -> Weak<Counts> { Arc::downgrade(&counts) };
        let _registrations: Vec<_> =
            pairs.iter().map(|(mine, _)| event_loop.watch(mine.as_raw_fd(), reader()).unwrap()).collect();
        event_loop.close();
        assert_eq!(counts.given_back.load(Ordering::SeqCst), 3);
    }
}
