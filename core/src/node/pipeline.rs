//! One stream to a server: requests are written in the order in which they were made, and replies are matched with them
//! first in, first out.
//!
//! A request is packed into one buffer. Where few replies are awaited, the task that asks also writes, at once. Else
//! the *driver*, the only task of a connection, writes what all ready tasks have asked, in one piece. A task that makes
//! the piece large writes it itself, so that the server begins.
//!
//! The reader hands out replies and the server's own messages. It is the driver, or the task that awaits the only reply, or
//! the last of a few for which no other task waits.
//! That task is woken by the stream itself, so that its runtime looks at its sockets once for a reply, not twice. Or it
//! is an event loop of the program; see `lending`.
//!
//! States of a request:
//!
//! - *queued*: it has its position in the order, and its bytes are still here;
//! - *written*: the stream has its bytes, or is about to get the rest of them, and the server will execute it;
//! - *answered*: its reply waits for the task that asked;
//! - *abandoned*: written, but no task waits for the reply, which is discarded when it comes.
//!
//! What may interrupt it:
//!
//! - The task that asked drops it. A queued request is taken back, and the server never sees it. A written one is
//!   abandoned: later requests stay behind it.
//! - The stream ends or fails, or the server sends what is not a reply, or a reply without a request. All requests fail.
//!   The replies that came before are handed out first.
//! - The last handle is dropped, or the runtime ends, and the driver with it. All requests fail, and the stream is
//!   closed.
//! - The task that reads does not poll its future any more. The next request leaves the reading to the driver. Until
//!   then no other reply is awaited, but messages and the end are heard late. A poll with the idle waker does not read,
//!   because no task waits behind it. When the reply has come, or the future is dropped, the driver reads.
//!
//! A driver to which the reading is left need not run for that: the stream wakes it when there is something to read.
//!
//! The mutexes are locked in the order incoming, outgoing, queue. `outgoing` is locked while the stream takes or gives
//! bytes or is asked whether it has any, and neither it nor `queue` while something is handed out. Messages are heard
//! under `incoming`, the end under none. Wakers of requests are called under none.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use redis::Cmd;
use tokio::io::AsyncWrite;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::AbortHandle;

pub(super) use queue::Answer;
use queue::{Change, Next, Queue, Reader};
pub(super) use shared::Unasked;
use shared::{Hear, Outgoing, Shared};

use super::refusal::io_failure;
use crate::sys::event_loop::EventLoop;
use crate::sys::future::{idle_waker, poll_for};
use crate::sys::task::spawn;
use crate::transport::failure::Failure;
use crate::transport::socket::Stream;

mod lending;
mod queue;
mod shared;

/// The capacity that a buffer keeps, for some hundred requests.
const KEPT: usize = 65_536;

/// A handle to a connection.
#[derive(Clone)]
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    _driver: Arc<Driver>,
}

/// The driver's task, which ends with the last handle.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Pipeline {
    /// Makes a connection of a stream, and drives it on `runtime`. `hear` gets the events on it. An event loop may watch
    /// the socket if it `is_lendable`: if nobody waits for what the server says unasked.
    pub(super) fn open(runtime: &Handle, stream: Stream, is_lendable: bool, hear: Hear) -> Self {
        // On a runtime with several threads, a task that was woken runs right behind the one that woke it, ahead of
        // others that are ready.
        let overtakes = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let (shared, driving) = connect(stream, is_lendable, hear, overtakes);
        Self { shared, _driver: Arc::new(Driver(spawn(runtime, driving.run()))) }
    }
}

impl Deref for Pipeline {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

fn connect(stream: Stream, is_lendable: bool, hear: Hear, overtakes: bool) -> (Arc<Shared>, Driving) {
    let shared = Shared::new(stream, is_lendable, hear);
    let driving = Driving { shared: Arc::clone(&shared), overtakes, has_yielded: false, woken: Vec::new() };
    (shared, driving)
}

impl Shared {
    /// Asks. The request has its position in the order when this returns. Dropping the future takes the request back,
    /// unless it is written.
    pub(super) fn ask(&self, command: &Cmd) -> Asking<'_> {
        let mut queue = self.queue.lock();
        let place = queue.push(command);
        self.send(queue, 1);
        Asking { shared: self, place: Some(place) }
    }

    /// Asks `command`, and then what `change` makes of it, with nothing between them. Each has its own answer. The task
    /// that awaits the second one first reads both.
    pub(super) fn ask_both(&self, mut command: Cmd, change: impl FnOnce(&mut Cmd)) -> [Asking<'_>; 2] {
        let mut queue = self.queue.lock();
        let first = queue.push(&command);
        change(&mut command);
        let second = queue.push(&command);
        self.send(queue, 2);
        [first, second].map(|place| Asking { shared: self, place: Some(place) })
    }

    /// Asks all of `commands`, with nothing between them. Each has its own answer.
    pub(super) fn ask_all(&self, commands: &[Cmd]) -> Vec<Asking<'_>> {
        let mut queue = self.queue.lock();
        let places: Vec<_> = commands.iter().map(|command| queue.push(command)).collect();
        self.send(queue, places.len());
        places.into_iter().map(|place| Asking { shared: self, place: Some(place) }).collect()
    }

    /// Does what has to be done after `more` requests were queued.
    fn send(&self, mut queue: MutexGuard<'_, Queue>, more: usize) {
        let here = EventLoop::entered();
        let change = queue.note_asker(here.as_ref(), self.is_lendable.load(Ordering::Relaxed));
        let (reader, next) = (queue.take_reading(), queue.next(more));
        drop(queue);
        if change == Change::TakeBack {
            self.take_back();
        }
        self.go_on(next);
        self.hand_back(reader);
        if let (Change::Lend, Some(here)) = (change, here) {
            self.lend(&here);
        }
    }

    /// Lets the stream wake the driver, which was just given the reading back, or wakes it now if there may be something
    /// to read. Does not read, because a caller is not prepared for messages here.
    fn hand_back(&self, driver: Option<Waker>) {
        let Some(driver) = driver else { return };
        let Some(mut outgoing) = self.outgoing.try_lock() else { return driver.wake() };
        let mut is_ready = true;
        if let Some(stream) = &mut outgoing.stream {
            // The stream wakes one task only: the one that has begun to read meanwhile. A loop has its own events.
            if self.queue.lock().reader != Reader::Driver {
                return;
            }
            is_ready = poll_for(&driver, |cx| stream.poll_readable(cx)).is_ready();
        }
        drop(outgoing);
        if is_ready {
            driver.wake();
        }
    }

    fn go_on(&self, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Wake(driver) => driver.wake(),
            Next::Write(driver) => {
                let Some(mut outgoing) = self.outgoing.try_lock() else { return driver.wake() };
                // Where the stream is full, the driver is woken once it takes more.
                let failure = poll_for(&driver, |cx| Poll::Ready(self.write(&mut outgoing, cx)));
                drop(outgoing);
                if failure != Poll::Ready(None) {
                    driver.wake();
                }
            }
        }
    }

    /// Writes what is queued, as far as the stream takes it. Returns the failure of the stream.
    fn write(&self, outgoing: &mut Outgoing, cx: &mut Context<'_>) -> Option<Failure> {
        while outgoing.failure.is_none() {
            let written = self.poll_write(outgoing, cx);
            outgoing.is_flushed = matches!(written, Poll::Ready(Ok(())));
            match written {
                Poll::Ready(Ok(())) => break,
                Poll::Ready(Err(error)) => outgoing.failure = Some(io_failure(&error)),
                // A socket that is lent wakes nobody when it has room.
                Poll::Pending => match self.take_back_from(outgoing) {
                    Some(driver) => driver.wake(),
                    None => break,
                },
            }
        }
        outgoing.failure.clone()
    }

    fn poll_write(&self, outgoing: &mut Outgoing, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Outgoing { stream: Some(stream), bytes, taken, .. } = outgoing else { return Poll::Ready(Ok(())) };
        loop {
            while *taken < bytes.len() {
                match ready!(Pin::new(&mut *stream).poll_write(cx, &bytes[*taken..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    more => *taken += more,
                }
            }
            // Two buffers take turns, and keep their capacity unless a rare burst made it a large one.
            bytes.clear();
            bytes.shrink_to(KEPT);
            *taken = 0;
            if !self.queue.lock().take_bytes(bytes) {
                return Pin::new(stream).poll_flush(cx);
            }
        }
    }

    /// Reads for the task that waits at `place`, if its reply is the only awaited one. Returns whether that has come.
    fn read_alone(&self, place: usize, cx: &mut Context<'_>) -> bool {
        let mut woken = Vec::new();
        loop {
            let read = self.poll_read(Reader::Asking(place), cx, &mut woken);
            woken.drain(..).for_each(Waker::wake);
            match read {
                Poll::Pending => return false,
                // The reply may have come before what is wrong.
                Poll::Ready(Err(_)) => {
                    self.wake_driver();
                    return self.queue.lock().is_answered(place);
                }
                Poll::Ready(Ok(())) if self.queue.lock().is_answered(place) => {
                    let driver = self.queue.lock().leave(place);
                    self.hand_back(driver);
                    return true;
                }
                Poll::Ready(Ok(())) => {}
            }
        }
    }
}

/// One request on its way, and then its answer.
pub(super) struct Asking<'a> {
    shared: &'a Shared,
    /// `None` once the answer was taken.
    place: Option<usize>,
}

impl Future for Asking<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let place = self.place.expect("not polled after it was ready");
        let is_idle = cx.waker().will_wake(idle_waker());
        let mut queue = self.shared.queue.lock();
        let mut answer = queue.take_answer(place);
        if answer.is_none() && !is_idle && queue.is_read_elsewhere() {
            drop(queue);
            // The loop may be busy, and the reply may have come.
            self.shared.read_for_loop(false);
            queue = self.shared.queue.lock();
            answer = queue.take_answer(place);
        }
        if answer.is_none() {
            let former = queue.wait(place, cx.waker());
            let may_read = queue.may_read(place) && !is_idle;
            // Another task that reads may not be polled any more.
            let driver = if may_read { None } else { queue.take_reading() };
            drop(queue);
            drop(former);
            self.shared.hand_back(driver);
            if may_read && self.shared.read_alone(place, cx) {
                answer = self.shared.queue.lock().take_answer(place);
            }
        }
        let Some(answer) = answer else { return Poll::Pending };
        self.place = None;
        Poll::Ready(answer)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let (asked, driver) = {
            let mut queue = self.shared.queue.lock();
            (queue.abandon(place), queue.leave(place))
        };
        drop(asked);
        self.shared.hand_back(driver);
    }
}

/// The driver's state.
struct Driving {
    shared: Arc<Shared>,
    /// Whether it may run ahead of other ready tasks, so that it lets them ask first.
    overtakes: bool,
    has_yielded: bool,
    /// Empty between two calls.
    woken: Vec<Waker>,
}

impl Driving {
    async fn run(mut self) {
        let failure = poll_fn(|cx| self.poll(cx)).await;
        let woken = self.shared.end(&failure);
        // Nothing is heard after the end.
        let mut hear = std::mem::replace(&mut self.shared.incoming.lock().hear, Box::new(|_| {}));
        hear(Unasked::End);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Reads and writes as much as it can. Completes with the reason why the connection ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        // Replies first: the tasks that get them ask next.
        if let Poll::Ready(failure) = self.poll_read(cx) {
            return Poll::Ready(failure);
        }
        let former = {
            let mut queue = self.shared.queue.lock();
            self.has_yielded = self.overtakes && queue.queued > 0 && !self.has_yielded;
            let is_same = queue.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker()));
            if is_same { None } else { queue.driver.replace(cx.waker().clone()) }
        };
        drop(former);
        if self.has_yielded {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let failure = self.shared.write(&mut self.shared.outgoing.lock(), cx);
        let Some(failure) = failure else { return Poll::Pending };
        // The server may have said why before it hung up.
        match self.poll_read(cx) {
            Poll::Ready(failure) => Poll::Ready(failure),
            Poll::Pending => Poll::Ready(failure),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            let read = ready!(self.shared.poll_read(Reader::Driver, cx, &mut self.woken));
            self.woken.drain(..).for_each(Waker::wake);
            if let Err(failure) = read {
                return Poll::Ready(failure);
            }
        }
    }
}

impl Drop for Driving {
    /// Also when the task is aborted, or its runtime ends.
    fn drop(&mut self) {
        self.shared.end(&Failure::Closed).into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
#[path = "../../tests/unit/pipeline.rs"]
mod tests;
