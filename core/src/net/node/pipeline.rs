//! One stream to a server: requests are written in the order in which they were made, and replies are matched with them
//! first in, first out.
//!
//! A request is packed into one buffer. Where few replies are awaited, the task that asks also writes, at once. Else
//! the *driver*, the only task of a connection, writes what all ready tasks have asked, in one piece. A task that makes
//! the piece large writes it itself, so that the server begins.
//!
//! The reader hands out replies and the server's own messages. It is the driver, or the task that awaits the only reply.
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

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker, ready};

use redis::{Cmd, PushKind, Value};
use slab::Slab;
use tokio::io::ReadBuf;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::AbortHandle;

use lending::{Change, Regular};

use super::refusal::{io_failure, is_full};
use super::replies::{Malformed, Replies};
use crate::net::failure::Failure;
use crate::net::socket::Transport;
use crate::sys::event_loop::EventLoop;
use crate::sys::future::{idle_waker, poll_for};
use crate::sys::task::spawn;

mod lending;

/// The number of awaited replies, the request's own included, that does not justify waiting for others. One task leaves
/// a slow node's reply behind when the others have decided.
const FEW: usize = 2;

/// The number of queued requests that are written without waiting for more, so that the server begins with them while the
/// other tasks go on.
const MANY: usize = 16;

/// The bytes that are read at once: more than a hundred replies to scripts.
const READ: usize = 4_096;

/// The capacity that a buffer keeps, for some hundred requests.
const KEPT: usize = 65_536;

/// The result of one request.
pub(super) type Answer = Result<Value, Failure>;

/// An event on a connection that is not a reply.
pub(super) enum Unasked {
    /// A message of the server's own.
    Push(PushKind, Vec<Value>),
    /// The server has ended the connection, or broken it.
    End,
}

/// A handle to a connection.
pub(super) struct Pipeline<S> {
    shared: Arc<Shared<S>>,
    driver: Arc<Driver>,
}

/// The driver's task, which ends with the last handle.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Shared<S> {
    me: Weak<Self>,
    /// Whether an event loop may watch the socket.
    is_lendable: AtomicBool,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing<S>>,
    queue: Mutex<Queue>,
}

/// What the stream has brought.
struct Incoming {
    hear: Box<dyn FnMut(Unasked) + Send>,
    buffer: Box<[u8]>,
    replies: Replies,
    /// Found by a task that is not the driver, which ends the connection.
    failure: Option<Failure>,
}

/// The stream, and the bytes that it is about to get.
struct Outgoing<S> {
    /// `None` once the connection has ended.
    stream: Option<S>,
    bytes: Vec<u8>,
    /// How many of them it has.
    taken: usize,
    /// Whether the stream holds back nothing of what it has taken.
    is_flushed: bool,
    failure: Option<Failure>,
}

/// To whom the reading falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reader {
    #[default]
    Driver,
    /// The task that waits at this place in [`Queue::asked`], while its reply is the only awaited one.
    Asking(usize),
    /// The event loop that watches the socket.
    Loop,
}

/// The requests, and who waits for their replies.
#[derive(Default)]
struct Queue {
    /// The bytes of the queued requests.
    bytes: Vec<u8>,
    /// The requests without a reply, in order. The last ones are the queued ones.
    awaited: VecDeque<Awaited>,
    /// The number of queued requests.
    queued: usize,
    asked: Slab<Asked>,
    reader: Reader,
    regular: Regular,
    /// The driver, once it was polled. Nothing is written before that.
    driver: Option<Waker>,
    /// The failure of all requests from now on; `None` while the connection lasts.
    end: Option<Failure>,
}

struct Awaited {
    /// The place in [`Queue::asked`].
    place: usize,
    /// The number of bytes.
    size: usize,
}

enum Asked {
    Waiting(Option<Waker>),
    Answered(Answer),
    Abandoned,
}

impl<S> Clone for Pipeline<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), driver: Arc::clone(&self.driver) }
    }
}

impl<S: Transport> Pipeline<S> {
    /// Makes a connection of a stream, and drives it on `runtime`. `hear` gets the events on it. An event loop may watch
    /// the socket if it `is_lendable`: if nobody waits for what the server says unasked.
    pub(super) fn open(runtime: &Handle, stream: S, is_lendable: bool, hear: Box<dyn FnMut(Unasked) + Send>) -> Self {
        // On a runtime with several threads, a task that was woken runs right behind the one that woke it, ahead of
        // others that are ready.
        let overtakes = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let (shared, driving) = connect(stream, is_lendable, hear, overtakes);
        Self { shared, driver: Arc::new(Driver(spawn(runtime, driving.run()))) }
    }

    /// Asks. The request has its position in the order when this returns. Dropping the future takes the request back,
    /// unless it is written.
    pub(super) fn ask(&self, command: &Cmd) -> Asking<'_, S> {
        self.shared.ask(command)
    }

    /// Asks all of `commands`, with nothing between them. Each has its own answer.
    pub(super) fn ask_all(&self, commands: &[Cmd]) -> Vec<Asking<'_, S>> {
        self.shared.ask_all(commands)
    }
}

fn connect<S>(
    stream: S,
    is_lendable: bool,
    hear: Box<dyn FnMut(Unasked) + Send>,
    overtakes: bool,
) -> (Arc<Shared<S>>, Driving<S>) {
    let incoming = Incoming { hear, buffer: vec![0; READ].into(), replies: Replies::default(), failure: None };
    let outgoing = Outgoing { stream: Some(stream), bytes: Vec::new(), taken: 0, is_flushed: true, failure: None };
    let shared = Arc::new_cyclic(|me| Shared {
        me: Weak::clone(me),
        is_lendable: AtomicBool::new(is_lendable),
        incoming: Mutex::new(incoming),
        outgoing: Mutex::new(outgoing),
        queue: Mutex::default(),
    });
    let driving = Driving { shared: Arc::clone(&shared), overtakes, has_yielded: false, woken: Vec::new() };
    (shared, driving)
}

impl<S> Shared<S> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic while holding this")
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().expect("no panic while holding this")
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing<S>> {
        self.outgoing.lock().expect("no panic while holding this")
    }

    /// Closes the stream, and fails all requests. Returns who is to be woken.
    fn end(&self, failure: &Failure) -> Vec<Waker> {
        let woken = self.queue().end(failure);
        let stream = self.outgoing().stream.take();
        drop(stream);
        woken
    }

    fn wake_driver(&self) {
        let driver = self.queue().driver.clone();
        driver.into_iter().for_each(Waker::wake);
    }
}

impl<S: Transport> Shared<S> {
    fn ask(&self, command: &Cmd) -> Asking<'_, S> {
        let mut queue = self.queue();
        let place = queue.push(command);
        self.send(queue, 1);
        Asking { shared: self, place: Some(place) }
    }

    fn ask_all(&self, commands: &[Cmd]) -> Vec<Asking<'_, S>> {
        let mut queue = self.queue();
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
        let Ok(mut outgoing) = self.outgoing.try_lock() else { return driver.wake() };
        let mut is_ready = true;
        if let Some(stream) = &mut outgoing.stream {
            // The stream wakes one task only: the one that has begun to read meanwhile. A loop has its own events.
            if self.queue().reader != Reader::Driver {
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
                let Ok(mut outgoing) = self.outgoing.try_lock() else { return driver.wake() };
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
    fn write(&self, outgoing: &mut Outgoing<S>, cx: &mut Context<'_>) -> Option<Failure> {
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

    fn poll_write(&self, outgoing: &mut Outgoing<S>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
            if !self.queue().take_bytes(bytes) {
                return Pin::new(stream).poll_flush(cx);
            }
        }
    }
}

impl<S: Transport> Shared<S> {
    /// Reads once if that falls to `reader`, and hands out what has come. Adds those who wait for it to `woken`, but not
    /// `reader` itself. If it is pending, the stream wakes `reader` when there is more, or the reading falls to another.
    fn poll_read(&self, reader: Reader, cx: &mut Context<'_>, woken: &mut Vec<Waker>) -> Poll<Result<(), Failure>> {
        let mut incoming = self.incoming();
        if let Some(failure) = &incoming.failure {
            // The driver is about to end the connection.
            return if reader == Reader::Driver { Poll::Ready(Err(failure.clone())) } else { Poll::Pending };
        }
        let mut buffer = ReadBuf::new(&mut incoming.buffer);
        let read = {
            let mut outgoing = self.outgoing();
            // After a failed write, the driver reads the server's last words.
            let is_last = reader == Reader::Driver && outgoing.failure.is_some();
            if is_last {
                // The loop that watches the socket may not have looked.
                outgoing.look_again(false);
            } else if !self.queue().falls_to(reader) {
                return Poll::Pending;
            }
            match &mut outgoing.stream {
                Some(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buffer)),
                None => Ok(()),
            }
        };
        let arrived = buffer.filled().len();
        let result = match read {
            Err(error) => Err(io_failure(&error)),
            Ok(()) if arrived == 0 => Err(Failure::Closed),
            Ok(()) => self.hand_out(&mut incoming, arrived, reader, woken),
        };
        if reader != Reader::Driver {
            incoming.failure = result.as_ref().err().cloned();
        }
        Poll::Ready(result)
    }

    /// Hands out the replies and messages in the first bytes of the buffer.
    fn hand_out(
        &self,
        incoming: &mut Incoming,
        arrived: usize,
        reader: Reader,
        woken: &mut Vec<Waker>,
    ) -> Result<(), Failure> {
        let Incoming { hear, buffer, replies, .. } = incoming;
        let mut failure = None;
        let read = replies.read(&buffer[..arrived], |reply| match reply {
            _ if failure.is_some() => {}
            Value::Push { kind, data } => hear(Unasked::Push(kind, data)),
            reply => {
                let reply = if let Value::Attribute { data, .. } = reply { *data } else { reply };
                match self.queue().answer(reply) {
                    Ok(Some((place, waker))) if reader != Reader::Asking(place) => woken.push(waker),
                    Ok(_) => {}
                    Err(unasked) => failure = Some(unasked),
                }
            }
        });
        match (failure, read) {
            (Some(failure), _) => Err(failure),
            (None, Err(Malformed)) => Err(Failure::UnexpectedReply),
            (None, Ok(())) => Ok(()),
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
                    return self.queue().is_answered(place);
                }
                Poll::Ready(Ok(())) if self.queue().is_answered(place) => {
                    let driver = self.queue().leave(place);
                    self.hand_back(driver);
                    return true;
                }
                Poll::Ready(Ok(())) => {}
            }
        }
    }
}

/// What a task has to do after it has queued a request.
enum Next {
    /// Requests before it are not written either. The task that writes those writes this one too.
    Nothing,
    /// To wake the driver, which writes.
    Wake(Waker),
    /// To write. The driver is woken for the rest.
    Write(Waker),
}

impl Queue {
    /// Queues a request, and returns the place of its answer.
    fn push(&mut self, command: &Cmd) -> usize {
        if let Some(end) = &self.end {
            let answer = Asked::Answered(Err(end.clone()));
            return self.asked.insert(answer);
        }
        let before = self.bytes.len();
        command.write_packed_command(&mut self.bytes);
        let place = self.asked.insert(Asked::Waiting(None));
        self.awaited.push_back(Awaited { place, size: self.bytes.len() - before });
        self.queued += 1;
        place
    }

    /// Returns what has to be done after `more` requests were queued.
    fn next(&self, more: usize) -> Next {
        match &self.driver {
            // It begins with writing.
            None => Next::Nothing,
            Some(driver) if self.queued >= MANY => Next::Write(driver.clone()),
            Some(_) if self.queued > more => Next::Nothing,
            Some(driver) if self.awaited.len() <= FEW || self.reader == Reader::Loop => Next::Write(driver.clone()),
            Some(driver) => Next::Wake(driver.clone()),
        }
    }

    /// Swaps the queued bytes into the empty `bytes`: the requests are written. Returns whether there are any.
    fn take_bytes(&mut self, bytes: &mut Vec<u8>) -> bool {
        std::mem::swap(&mut self.bytes, bytes);
        self.queued = 0;
        !bytes.is_empty()
    }

    /// Whether the task at `place` may read.
    fn may_read(&self, place: usize) -> bool {
        self.reader != Reader::Loop && self.awaited.len() == 1 && self.queued == 0 && self.awaited[0].place == place
    }

    /// Whether the reading falls to `reader`. A task takes it over from the driver if it may.
    fn falls_to(&mut self, reader: Reader) -> bool {
        if let Reader::Asking(place) = reader
            && self.may_read(place)
        {
            self.reader = reader;
        }
        self.reader == reader
    }

    /// Leaves the reading to the driver after a request was queued: the task that reads may not be polled any more.
    /// Returns the driver, for [`Shared::hand_back`].
    fn take_reading(&mut self) -> Option<Waker> {
        let Reader::Asking(_) = self.reader else { return None };
        self.reader = Reader::Driver;
        self.driver.clone()
    }

    /// Leaves the reading to the driver if it falls to the task at `place`. Returns the driver, for [`Shared::hand_back`].
    fn leave(&mut self, place: usize) -> Option<Waker> {
        if self.reader == Reader::Asking(place) { self.take_reading() } else { None }
    }

    fn is_answered(&self, place: usize) -> bool {
        matches!(self.asked[place], Asked::Answered(_))
    }

    /// Takes the answer at `place`, if it has come.
    fn take_answer(&mut self, place: usize) -> Option<Answer> {
        if let Asked::Waiting(_) = self.asked[place] {
            return None;
        }
        match self.asked.remove(place) {
            Asked::Answered(answer) => Some(answer),
            _ => Some(Err(Failure::Closed)),
        }
    }

    /// Lets `waker` be woken when the answer at `place` comes. Returns what is to be dropped without the lock.
    fn wait(&mut self, place: usize, waker: &Waker) -> Option<Waker> {
        match &mut self.asked[place] {
            Asked::Waiting(Some(known)) if known.will_wake(waker) => None,
            Asked::Waiting(known) => known.replace(waker.clone()),
            _ => None,
        }
    }

    /// Hands a reply to the oldest request that awaits one. Returns its place, and who is to be woken.
    fn answer(&mut self, reply: Value) -> Result<Option<(usize, Waker)>, Failure> {
        if self.awaited.len() == self.queued {
            // A reply without a request would be taken for that to the next one.
            return Err(match reply {
                Value::ServerError(error) if is_full(error.code(), error.details()) => Failure::Full,
                // Not as a refusal: that would leave the connection in use.
                Value::ServerError(_) => Failure::Closed,
                _ => Failure::UnexpectedReply,
            });
        }
        let Some(Awaited { place, .. }) = self.awaited.pop_front() else { return Ok(None) };
        if let Asked::Waiting(waker) = std::mem::replace(&mut self.asked[place], Asked::Answered(Ok(reply))) {
            return Ok(waker.map(|waker| (place, waker)));
        }
        self.asked.remove(place);
        Ok(None)
    }

    /// Fails all requests, also later ones. Returns who is to be woken.
    fn end(&mut self, failure: &Failure) -> Vec<Waker> {
        if self.end.is_some() {
            return Vec::new();
        }
        (self.end, self.queued, self.bytes, self.driver) = (Some(failure.clone()), 0, Vec::new(), None);
        let mut woken = Vec::new();
        for Awaited { place, .. } in std::mem::take(&mut self.awaited) {
            match std::mem::replace(&mut self.asked[place], Asked::Answered(Err(failure.clone()))) {
                Asked::Waiting(waker) => woken.extend(waker),
                _ => drop(self.asked.remove(place)),
            }
        }
        woken
    }

    /// Forgets a request whose task does not wait any more, and takes it back if it is queued. Returns what is to be
    /// dropped without the lock.
    fn abandon(&mut self, place: usize) -> Option<Asked> {
        if !matches!(self.asked[place], Asked::Waiting(_)) {
            return Some(self.asked.remove(place));
        }
        let written = self.awaited.len() - self.queued;
        let Some(ahead) = self.awaited.iter().skip(written).position(|awaited| awaited.place == place) else {
            return Some(std::mem::replace(&mut self.asked[place], Asked::Abandoned));
        };
        let start: usize = self.awaited.iter().skip(written).take(ahead).map(|awaited| awaited.size).sum();
        let Awaited { size, .. } = self.awaited.remove(written + ahead)?;
        drop(self.bytes.drain(start..start + size));
        self.queued -= 1;
        Some(self.asked.remove(place))
    }
}

/// One request on its way, and then its answer.
pub(super) struct Asking<'a, S: Transport> {
    shared: &'a Shared<S>,
    /// `None` once the answer was taken.
    place: Option<usize>,
}

impl<S: Transport> Future for Asking<'_, S> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let place = self.place.expect("not polled after it was ready");
        let is_idle = cx.waker().will_wake(idle_waker());
        let mut queue = self.shared.queue();
        let mut answer = queue.take_answer(place);
        if answer.is_none() && !is_idle && queue.is_read_elsewhere() {
            drop(queue);
            // The loop may be busy, and the reply may have come.
            self.shared.read_for_loop(false);
            queue = self.shared.queue();
            answer = queue.take_answer(place);
        }
        if answer.is_none() {
            let former = queue.wait(place, cx.waker());
            let may_read = queue.may_read(place) && !is_idle;
            let driver = if may_read { None } else { queue.leave(place) };
            drop(queue);
            drop(former);
            self.shared.hand_back(driver);
            if may_read && self.shared.read_alone(place, cx) {
                answer = self.shared.queue().take_answer(place);
            }
        }
        let Some(answer) = answer else { return Poll::Pending };
        self.place = None;
        Poll::Ready(answer)
    }
}

impl<S: Transport> Drop for Asking<'_, S> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let (asked, driver) = {
            let mut queue = self.shared.queue();
            (queue.abandon(place), queue.leave(place))
        };
        drop(asked);
        self.shared.hand_back(driver);
    }
}

/// The driver's state.
struct Driving<S> {
    shared: Arc<Shared<S>>,
    /// Whether it may run ahead of other ready tasks, so that it lets them ask first.
    overtakes: bool,
    has_yielded: bool,
    /// Empty between two calls.
    woken: Vec<Waker>,
}

impl<S: Transport> Driving<S> {
    async fn run(mut self) {
        let failure = poll_fn(|cx| self.poll(cx)).await;
        let woken = self.shared.end(&failure);
        // Nothing is heard after the end.
        let mut hear = std::mem::replace(&mut self.shared.incoming().hear, Box::new(|_| {}));
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
            let mut queue = self.shared.queue();
            self.has_yielded = self.overtakes && queue.queued > 0 && !self.has_yielded;
            let is_same = queue.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker()));
            if is_same { None } else { queue.driver.replace(cx.waker().clone()) }
        };
        drop(former);
        if self.has_yielded {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let failure = self.shared.write(&mut self.shared.outgoing(), cx);
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

impl<S> Drop for Driving<S> {
    /// Also when the task is aborted, or its runtime ends.
    fn drop(&mut self) {
        self.shared.end(&Failure::Closed).into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/pipeline.rs"]
mod tests;
