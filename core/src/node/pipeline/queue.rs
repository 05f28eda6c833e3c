//! The requests of a connection: their order, who waits for their replies, and to whom the reading falls. Pure, but for
//! wakers.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

use redis::{Cmd, Value};
use slab::Slab;

use crate::node::refusal::is_full;
use crate::sys::event_loop::EventLoop;
use crate::transport::failure::Failure;

/// The number of awaited replies, the request's own included, that does not justify waiting for others. One task leaves
/// a slow node's reply behind when the others have decided.
pub(super) const FEW: usize = 2;

/// The number of queued requests that are written without waiting for more, so that the server begins with them while the
/// other tasks go on.
pub(super) const MANY: usize = 16;

/// After so many requests in a row from one event loop, it watches the socket. A change of the watcher is two system
/// calls, and one that wakes the runtime.
pub(super) const REGULAR: u64 = 32;

/// The result of one request.
pub(crate) type Answer = Result<Value, Failure>;

/// To whom the reading falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reader {
    #[default]
    Driver,
    /// The task that waits at this place in [`Queue::asked`], while its reply is the only awaited one.
    Asking(usize),
    /// The event loop that watches the socket.
    Loop,
}

/// The requests, and who waits for their replies.
#[derive(Default)]
pub(super) struct Queue {
    /// The bytes of the queued requests.
    pub(super) bytes: Vec<u8>,
    /// The requests without a reply, in order. The last ones are the queued ones.
    pub(super) awaited: VecDeque<Awaited>,
    /// The number of queued requests.
    pub(super) queued: usize,
    pub(super) asked: Slab<Asked>,
    pub(super) reader: Reader,
    pub(super) regular: Regular,
    /// The driver, once it was polled. Nothing is written before that.
    pub(super) driver: Option<Waker>,
    /// The failure of all requests from now on; `None` while the connection lasts.
    pub(super) end: Option<Failure>,
}

pub(super) struct Awaited {
    /// The place in [`Queue::asked`].
    pub(super) place: usize,
    /// The number of bytes.
    pub(super) size: usize,
}

pub(super) enum Asked {
    Waiting(Option<Waker>),
    Answered(Answer),
    Abandoned,
}

/// The event loop on whose thread the last requests were made, if it was one.
#[derive(Default)]
pub(super) struct Regular {
    pub(super) event_loop: Option<Weak<EventLoop>>,
    /// Their number.
    pub(super) requests: u64,
    /// Whether [`watch_over`] is at work.
    pub(super) is_watched_over: bool,
}

impl Regular {
    pub(super) fn begin(&mut self, event_loop: Option<Weak<EventLoop>>) {
        (self.event_loop, self.requests) = (event_loop, 1);
    }

    pub(super) fn is(&self, here: &Arc<EventLoop>) -> bool {
        self.event_loop.as_ref().is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(here)))
    }
}

/// What a request changes about the watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Lend,
    TakeBack,
}

/// What a task has to do after it has queued a request.
pub(super) enum Next {
    /// Requests before it are not written either. The task that writes those writes this one too.
    Nothing,
    /// To wake the driver, which writes.
    Wake(Waker),
    /// To write. The driver is woken for the rest.
    Write(Waker),
}

impl Queue {
    /// Queues a request, and returns the place of its answer.
    pub(super) fn push(&mut self, command: &Cmd) -> usize {
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
    pub(super) fn next(&self, more: usize) -> Next {
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
    pub(super) fn take_bytes(&mut self, bytes: &mut Vec<u8>) -> bool {
        std::mem::swap(&mut self.bytes, bytes);
        self.queued = 0;
        !bytes.is_empty()
    }

    /// Whether the task at `place` may read: its reply is the last awaited one, and no task waits for one before.
    pub(super) fn may_read(&self, place: usize) -> bool {
        let has_waker = |awaited: &Awaited| matches!(self.asked[awaited.place], Asked::Waiting(Some(_)));
        self.reader != Reader::Loop
            && self.queued == 0
            && self.awaited.len() <= FEW
            && self.awaited.back().is_some_and(|last| last.place == place)
            && self.awaited.iter().all(|awaited| awaited.place == place || !has_waker(awaited))
    }

    /// Whether the reading falls to `reader`. A task takes it over from the driver if it may.
    pub(super) fn falls_to(&mut self, reader: Reader) -> bool {
        if let Reader::Asking(place) = reader
            && self.may_read(place)
        {
            self.reader = reader;
        }
        self.reader == reader
    }

    /// Leaves the reading to the driver after a request was queued: the task that reads may not be polled any more.
    /// Returns the driver, for `hand_back`.
    pub(super) fn take_reading(&mut self) -> Option<Waker> {
        let Reader::Asking(_) = self.reader else { return None };
        self.reader = Reader::Driver;
        self.driver.clone()
    }

    /// Leaves the reading to the driver if it falls to the task at `place`. Returns the driver, for `hand_back`.
    pub(super) fn leave(&mut self, place: usize) -> Option<Waker> {
        if self.reader == Reader::Asking(place) { self.take_reading() } else { None }
    }

    pub(super) fn is_answered(&self, place: usize) -> bool {
        matches!(self.asked[place], Asked::Answered(_))
    }

    /// Takes the answer at `place`, if it has come.
    pub(super) fn take_answer(&mut self, place: usize) -> Option<Answer> {
        if let Asked::Waiting(_) = self.asked[place] {
            return None;
        }
        match self.asked.remove(place) {
            Asked::Answered(answer) => Some(answer),
            _ => Some(Err(Failure::Closed)),
        }
    }

    /// Lets `waker` be woken when the answer at `place` comes. Returns what is to be dropped without the lock.
    pub(super) fn wait(&mut self, place: usize, waker: &Waker) -> Option<Waker> {
        match &mut self.asked[place] {
            Asked::Waiting(Some(known)) if known.will_wake(waker) => None,
            Asked::Waiting(known) => known.replace(waker.clone()),
            _ => None,
        }
    }

    /// Hands a reply to the oldest request that awaits one. Returns its place, and who is to be woken.
    pub(super) fn answer(&mut self, reply: Value) -> Result<Option<(usize, Waker)>, Failure> {
        if self.awaited.len() == self.queued {
            // A reply without a request would be taken for that to the next one.
            return Err(match reply {
                Value::ServerError(error) if is_full(error.code(), error.details()) => Failure::Full,
                // Protected mode, which ends the connection.
                Value::ServerError(error) if error.code() == "DENIED" => Failure::of_code(error.code()),
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
    pub(super) fn end(&mut self, failure: &Failure) -> Vec<Waker> {
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
    pub(super) fn abandon(&mut self, place: usize) -> Option<Asked> {
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

    /// Notes who makes a request: the event loop whose thread this is, if there is one.
    pub(super) fn note_asker(&mut self, here: Option<&Arc<EventLoop>>, is_lendable: bool) -> Change {
        let is_lent = self.reader == Reader::Loop;
        match here {
            Some(here) if self.regular.is(here) => self.regular.requests += 1,
            here => {
                if is_lent || self.regular.event_loop.is_some() || here.is_some() {
                    self.regular.begin(here.map(Arc::downgrade));
                }
                return if is_lent { Change::TakeBack } else { Change::Nothing };
            }
        }
        let is_regular = is_lendable && self.regular.requests >= REGULAR;
        if is_regular && !is_lent { Change::Lend } else { Change::Nothing }
    }

    /// Whether an event loop reads, and this is not its thread.
    pub(super) fn is_read_elsewhere(&self) -> bool {
        let watching = self.regular.event_loop.as_ref().and_then(Weak::upgrade);
        self.reader == Reader::Loop && !watching.is_some_and(|watching| watching.is_entered())
    }
}
