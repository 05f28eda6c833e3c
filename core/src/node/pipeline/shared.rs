//! What the tasks of one connection share: its stream, what that has brought, and its requests.

use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use redis::{PushKind, Value};
use tokio::io::{AsyncRead, ReadBuf};

use super::queue::{Queue, Reader};
use crate::node::refusal::io_failure;
use crate::node::replies::{Malformed, Replies};
use crate::sys::mutex::Mutex;
use crate::transport::failure::Failure;
use crate::transport::socket::{Socket, Stream};

/// The bytes that are read at once: more than a hundred replies to scripts.
pub(super) const READ: usize = 4_096;

/// An event on a connection that is not a reply.
pub(crate) enum Unasked {
    /// A message of the server's own.
    Push(PushKind, Vec<Value>),
    /// The server has ended the connection, or broken it.
    End,
}

/// Gets the events on a connection.
pub(super) type Hear = Box<dyn FnMut(Unasked) + Send>;

pub(crate) struct Shared {
    pub(super) me: Weak<Self>,
    /// Whether an event loop may watch the socket.
    pub(super) is_lendable: AtomicBool,
    pub(super) incoming: Mutex<Incoming>,
    pub(super) outgoing: Mutex<Outgoing>,
    pub(super) queue: Mutex<Queue>,
}

/// What the stream has brought.
pub(super) struct Incoming {
    pub(super) hear: Hear,
    pub(super) buffer: Box<[u8]>,
    pub(super) replies: Replies,
    /// Found by a task that is not the driver, which ends the connection.
    pub(super) failure: Option<Failure>,
}

/// The stream, and the bytes that it is about to get.
pub(super) struct Outgoing {
    /// `None` once the connection has ended.
    pub(super) stream: Option<Stream>,
    pub(super) bytes: Vec<u8>,
    /// How many of them it has.
    pub(super) taken: usize,
    /// Whether the stream holds back nothing of what it has taken.
    pub(super) is_flushed: bool,
    pub(super) failure: Option<Failure>,
}

impl Outgoing {
    pub(super) fn socket(&mut self) -> Option<&mut Socket> {
        self.stream.as_mut().and_then(|stream| stream.socket())
    }

    /// Lets a lent socket be read, although the loop may not have told of anything.
    pub(super) fn look_again(&mut self, is_last: bool) {
        if let Some(socket) = self.socket() {
            socket.set_ready(is_last);
        }
    }
}

impl Shared {
    pub(super) fn new(stream: Stream, is_lendable: bool, hear: Hear) -> Arc<Self> {
        let incoming = Incoming { hear, buffer: vec![0; READ].into(), replies: Replies::default(), failure: None };
        let outgoing = Outgoing { stream: Some(stream), bytes: Vec::new(), taken: 0, is_flushed: true, failure: None };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            is_lendable: AtomicBool::new(is_lendable),
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(outgoing),
            queue: Mutex::default(),
        })
    }

    /// Closes the stream, and fails all requests. Returns who is to be woken.
    pub(super) fn end(&self, failure: &Failure) -> Vec<Waker> {
        let woken = self.queue.lock().end(failure);
        let stream = self.outgoing.lock().stream.take();
        drop(stream);
        woken
    }

    pub(super) fn wake_driver(&self) {
        let driver = self.queue.lock().driver.clone();
        driver.into_iter().for_each(Waker::wake);
    }

    /// Reads once if that falls to `reader`, and hands out what has come. Adds those who wait for it to `woken`, but not
    /// `reader` itself. If it is pending, the stream wakes `reader` when there is more, or the reading falls to another.
    pub(super) fn poll_read(
        &self,
        reader: Reader,
        cx: &mut Context<'_>,
        woken: &mut Vec<Waker>,
    ) -> Poll<Result<(), Failure>> {
        let mut incoming = self.incoming.lock();
        if let Some(failure) = &incoming.failure {
            // The driver is about to end the connection.
            return if reader == Reader::Driver { Poll::Ready(Err(failure.clone())) } else { Poll::Pending };
        }
        let mut buffer = ReadBuf::new(&mut incoming.buffer);
        let read = {
            let mut outgoing = self.outgoing.lock();
            // After a failed write, the driver reads the server's last words.
            let is_last = reader == Reader::Driver && outgoing.failure.is_some();
            if is_last {
                // The loop that watches the socket may not have looked.
                outgoing.look_again(false);
            } else if !self.queue.lock().falls_to(reader) {
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
    pub(super) fn hand_out(
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
                match self.queue.lock().answer(reply) {
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
}
