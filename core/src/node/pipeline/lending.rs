//! Lends a connection's socket to the event loop that mostly asks on it.
//!
//! States of a connection:
//!
//! - *own*: its runtime watches the socket. Requests from the thread of one event loop are counted.
//! - *lent*: after [`REGULAR`] of them in a row. The loop reads, and every asker writes.
//!
//! What may interrupt a lent one:
//!
//! - Another thread asks: it takes the socket back first.
//! - Another thread polls a request of the loop, because its deadline has come, or because the task that asked also awaits
//!   a socket that the runtime watches: it reads what has come, and the loop goes on watching.
//! - The loop asks nothing for [`WATCH`]: it is idle, or something keeps it busy. The runtime takes the socket back.
//! - The stream is full: the writer takes the socket back, and the driver waits for room.
//! - The stream ends or fails: the loop reads that, and the driver ends the connection.
//! - The loop or the process ends: it gives the socket back.
//! - The connection ends: the loop watches it no more.
//! - The system refuses to watch it in the loop: it is not lent again.
//!
//! So nothing but the loop's own calls ever waits for the loop for longer than twice [`WATCH`].

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;

use super::queue::Reader;
use super::shared::{Outgoing, Shared};
use crate::node::refusal::io_failure;
use crate::sys::clock::Clock;
use crate::sys::event_loop::{EventLoop, OnReadable, Resume};
use crate::sys::task::spawn;
use crate::transport::socket::Socket;

/// How often the runtime looks whether the loop still asks. The tests of this file take longer steps on a busy machine.
const WATCH: Duration = Duration::from_millis(if cfg!(test) { 4_000 } else { 100 });

impl Shared {
    /// Lets `event_loop`, which this thread has entered, watch the socket, unless something is left to write.
    pub(super) fn lend(&self, event_loop: &Arc<EventLoop>) {
        let Some(me) = self.me.upgrade() else { return };
        let Some(mut outgoing) = self.outgoing.try_lock() else { return };
        let Outgoing { stream: Some(stream), is_flushed: true, failure, .. } = &mut *outgoing else { return };
        let mut queue = self.queue.lock();
        // Another thread may have asked meanwhile. A failure is the driver's to tell.
        let (true, Some(driver), None) = (queue.regular.is(event_loop), queue.driver.clone(), &failure) else { return };
        let Some(socket) = stream.socket() else { return };
        let is_lent = socket.lend(event_loop, Weak::clone(&self.me) as _);
        if !matches!(is_lent, Ok(true)) {
            *failure = is_lent.err().map(|error| io_failure(&error));
            self.is_lendable.store(false, Ordering::Relaxed);
            drop(queue);
            drop(outgoing);
            // The socket has forgotten it.
            return driver.wake();
        }
        queue.reader = Reader::Loop;
        let begins = !mem::replace(&mut queue.regular.is_watched_over, true);
        drop(queue);
        drop(outgoing);
        if begins {
            spawn(&Handle::current(), watch_over(Weak::clone(&self.me)));
        }
        // The stream may hold what it has read before. Not at once: the caller may be in the middle of something.
        event_loop.wake(me);
    }

    /// Lets the runtime watch the socket again.
    pub(super) fn take_back(&self) {
        let driver = self.take_back_from(&mut self.outgoing.lock());
        driver.into_iter().for_each(Waker::wake);
    }

    /// Lets the runtime watch the socket again, and returns the driver, which has to read then. `None` if it is not lent.
    pub(super) fn take_back_from(&self, outgoing: &mut Outgoing) -> Option<Waker> {
        let mut queue = self.queue.lock();
        if queue.reader != Reader::Loop {
            return None;
        }
        queue.reader = Reader::Driver;
        queue.regular.begin(None);
        let driver = queue.driver.clone();
        drop(queue);
        if let Some(Err(error)) = outgoing.socket().map(Socket::take_back) {
            outgoing.failure = Some(io_failure(&error));
        }
        driver
    }

    /// Reads all that has come, for the loop that watches the socket. With `is_last`, nothing comes behind that.
    pub(super) fn read_for_loop(&self, is_last: bool) {
        self.outgoing.lock().look_again(is_last);
        let mut woken = Vec::new();
        loop {
            let read = self.poll_read(Reader::Loop, &mut Context::from_waker(Waker::noop()), &mut woken);
            woken.drain(..).for_each(Waker::wake);
            match read {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.wake_driver(),
                Poll::Pending => return,
            }
        }
    }

    /// Returns how many requests the loop has made that watches the socket. `None` if none does: nobody watches over it
    /// then.
    fn lent_for(&self) -> Option<u64> {
        let mut queue = self.queue.lock();
        let is_lent = queue.reader == Reader::Loop;
        queue.regular.is_watched_over &= is_lent;
        is_lent.then_some(queue.regular.requests)
    }
}

/// Takes the socket back when the loop has asked nothing for some time. One task for each connection.
async fn watch_over(connection: Weak<Shared>) {
    let mut before = None;
    loop {
        Clock::System.sleep(WATCH).await;
        let Some(connection) = connection.upgrade() else { return };
        let now = connection.lent_for();
        if now.is_none() {
            return;
        }
        if now == before {
            connection.take_back();
        }
        before = now;
    }
}

impl OnReadable for Shared {
    fn readable(&self, is_last: bool) {
        self.read_for_loop(is_last);
    }

    fn give_back(&self) {
        self.take_back();
    }
}

impl Resume for Shared {
    fn resume(self: Arc<Self>) {
        self.read_for_loop(false);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::task::Wake;
    use std::thread::{self, ThreadId};

    use harness::{LIMIT, eventually};
    use redis::{Cmd, Value};
    use tokio::runtime::{Builder, Runtime};

    use super::super::{Answer, Asking, Pipeline, Unasked};
    use super::*;
    use crate::sys::handover::Handover;
    use crate::transport::failure::Failure;

    /// A connection, an event loop of this thread that may watch its socket, and the server's side.
    struct Line {
        runtime: Runtime,
        event_loop: Arc<EventLoop>,
        pipeline: Pipeline,
        server: UnixStream,
        ends: Arc<Mutex<usize>>,
    }

    /// The answer to a request, and the thread on which it was taken.
    type Taken = Receiver<(ThreadId, Answer)>;

    fn echo(number: i64) -> Cmd {
        let mut command = redis::cmd("ECHO");
        command.arg(number);
        command
    }

    impl Line {
        fn new(is_lendable: bool) -> Self {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let (mine, server) = UnixStream::pair().unwrap();
            mine.set_nonblocking(true).unwrap();
            server.set_read_timeout(Some(LIMIT)).unwrap();
            let ends = Arc::new(Mutex::new(0));
            let heard = Arc::clone(&ends);
            let hear = move |unasked| *heard.lock().unwrap() += usize::from(matches!(unasked, Unasked::End));
            let pipeline = {
                let _context = runtime.enter();
                let socket = Socket::local(tokio::net::UnixStream::from_std(mine).unwrap());
                Pipeline::open(runtime.handle(), Box::new(socket), is_lendable, Box::new(hear))
            };
            Self { runtime, event_loop: EventLoop::new().unwrap(), pipeline, server, ends }
        }

        /// A connection that this thread's loop reads.
        fn lent() -> Self {
            let line = Self::new(true);
            eventually("the loop watches the socket", || {
                assert_eq!(line.call(3), Ok(Value::Int(3)));
                line.is_lent()
            });
            line
        }

        fn is_lent(&self) -> bool {
            self.pipeline.shared.queue.lock().reader == Reader::Loop
        }

        fn task(&self, command: Cmd) -> (impl Future<Output = ()> + Send + use<>, Taken) {
            let (sender, taken) = channel();
            let pipeline = self.pipeline.clone();
            let task = async move {
                let answer = pipeline.ask(&command).await;
                let _ = sender.send((thread::current().id(), answer));
            };
            (task, taken)
        }

        /// Begins a request on the loop's thread.
        fn begin(&self, command: Cmd) -> Taken {
            let (task, taken) = self.task(command);
            drop(self.event_loop.enter(|| Handover::begin(self.runtime.handle(), Box::pin(task))));
            taken
        }

        /// Makes a request on the loop's thread, and turns the loop until it is answered.
        fn call(&self, number: i64) -> Answer {
            let taken = self.begin(echo(number));
            self.serve(1);
            let mut answer = None;
            eventually("it is answered", || {
                self.event_loop.turn();
                answer = taken.try_recv().ok();
                answer.is_some()
            });
            answer.unwrap().1
        }

        /// Answers so many requests.
        fn serve(&self, requests: usize) {
            let (mut server, mut text, mut done) = (&self.server, String::new(), 0);
            while done < requests {
                let mut bytes = [0; 4_096];
                let more = server.read(&mut bytes).unwrap();
                text.push_str(std::str::from_utf8(&bytes[..more]).unwrap());
                let replies = replies(&mut text);
                done += replies.matches(':').count();
                server.write_all(replies.as_bytes()).unwrap();
            }
        }
    }

    /// Takes the whole requests from `text`, and returns the replies to them.
    fn replies(text: &mut String) -> String {
        let mut replies = String::new();
        while let [_, _, _, _, number, rest] = text.splitn(6, "\r\n").collect::<Vec<_>>()[..] {
            replies.extend([":", number, "\r\n"]);
            *text = rest.to_owned();
        }
        replies
    }

    #[test]
    fn a_loop_that_asks_again_and_again_reads_its_replies_itself() {
        let line = Line::lent();
        for number in 0..100 {
            let taken = line.begin(echo(number));
            line.serve(1);
            assert!(taken.try_recv().is_err(), "the loop has not turned");
            line.event_loop.turn();
            assert_eq!(taken.try_recv().unwrap(), (thread::current().id(), Ok(Value::Int(number))));
        }
        assert!(line.is_lent());
    }

    #[test]
    fn a_loop_that_has_only_begun_watches_nothing() {
        let line = Line::new(true);
        for number in 1..31 {
            assert_eq!(line.call(number), Ok(Value::Int(number)));
            assert!(!line.is_lent());
        }
        let line = Line::new(false);
        for number in 0..100 {
            assert_eq!(line.call(number), Ok(Value::Int(number)));
            assert!(!line.is_lent(), "others wait for what the server says");
        }
    }

    #[test]
    fn another_thread_that_asks_takes_the_socket_back() {
        let line = Line::lent();
        let here = line.begin(echo(1));
        let (task, there) = line.task(echo(2));
        line.runtime.spawn(task);
        line.serve(2);
        // The loop does not turn.
        assert_eq!(here.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(1)));
        assert_eq!(there.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(2)));
        assert!(!line.is_lent());
    }

    /// A waker that nothing takes for the idle one, as it may take [`Waker::noop`].
    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    fn poll(asking: &mut Asking<'_>) -> Poll<Answer> {
        std::pin::Pin::new(asking).poll(&mut Context::from_waker(&Waker::from(Arc::new(Nobody))))
    }

    #[test]
    fn another_thread_that_polls_reads_and_leaves_the_watching_to_the_loop() {
        let line = Line::lent();
        let mut asking = line.event_loop.enter(|| line.pipeline.ask(&echo(1)));
        assert!(line.event_loop.enter(|| poll(&mut asking)).is_pending());
        // This thread has not entered the loop now.
        assert!(poll(&mut asking).is_pending());
        line.serve(1);
        assert_eq!(poll(&mut asking), Poll::Ready(Ok(Value::Int(1))), "the loop does not turn");
        let mut asking = line.event_loop.enter(|| line.pipeline.ask(&echo(2)));
        assert!(poll(&mut asking).is_pending());
        line.serve(1);
        line.event_loop.turn();
        assert!(line.pipeline.shared.queue.lock().is_answered(asking.place.unwrap()), "the loop has read it");
        assert_eq!(poll(&mut asking), Poll::Ready(Ok(Value::Int(2))));
        assert!(line.is_lent());
    }

    #[test]
    fn another_thread_that_polls_reads_the_end() {
        let line = Line::lent();
        let mut asking = line.event_loop.enter(|| line.pipeline.ask(&echo(1)));
        drop(line.server);
        eventually("the request fails, and the loop does not turn", || {
            poll(&mut asking) == Poll::Ready(Err(Failure::Closed))
        });
        eventually("the end is heard", || *line.ends.lock().unwrap() == 1);
    }

    #[test]
    fn a_loop_that_asks_nothing_loses_the_socket() {
        let line = Line::lent();
        let taken = line.begin(echo(1));
        line.serve(1);
        assert_eq!(taken.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(1)), "the loop does not turn");
        assert!(!line.is_lent());
        drop(line.server);
        eventually("the runtime notices the end", || *line.ends.lock().unwrap() == 1);
    }

    #[test]
    fn a_stream_that_is_full_goes_back_to_the_runtime() {
        let line = Line::lent();
        let mut large = redis::cmd("SET");
        large.arg(vec![b'x'; 1 << 16]);
        let mut taken = Vec::new();
        while line.is_lent() {
            taken.push(line.begin(large.clone()));
        }
        let mut server = line.server.try_clone().unwrap();
        let requests = taken.len();
        thread::spawn(move || {
            let (mut bytes, mut left) = (vec![0; 1 << 16], requests * (large.get_packed_command().len()));
            while left > 0 {
                left -= server.read(&mut bytes).unwrap();
            }
            server.write_all("+OK\r\n".repeat(requests).as_bytes()).unwrap();
        });
        for taken in taken {
            assert_eq!(taken.recv_timeout(LIMIT).unwrap().1, Ok(Value::Okay));
        }
    }

    #[test]
    fn the_end_of_a_lent_stream_fails_what_was_asked() {
        let line = Line::lent();
        let first = line.begin(echo(1));
        line.serve(1);
        let second = line.begin(echo(2));
        (&line.server).read_exact(&mut vec![0; echo(2).get_packed_command().len()]).unwrap();
        drop(line.server);
        line.event_loop.turn();
        assert_eq!(first.try_recv().unwrap().1, Ok(Value::Int(1)), "it came before");
        assert_eq!(second.recv_timeout(LIMIT).unwrap().1, Err(Failure::Closed));
        eventually("the end is heard", || *line.ends.lock().unwrap() == 1);
    }

    #[test]
    fn a_socket_that_the_system_refuses_to_lend_stays_as_it_is() {
        let line = Line::new(true);
        let fd = {
            let mut outgoing = line.pipeline.shared.outgoing.lock();
            outgoing.socket().unwrap().fd()
        };
        // It can be registered once.
        let refusing = line.event_loop.watch(fd, Weak::<Shared>::new() as _).unwrap();
        for number in 0..100 {
            assert_eq!(line.call(number), Ok(Value::Int(number)));
            assert!(!line.is_lent());
        }
        assert!(!line.pipeline.shared.is_lendable.load(Ordering::Relaxed));
        drop(refusing);
        let taken = [(); 2].map(|()| line.begin(echo(1)));
        line.serve(2);
        for taken in taken {
            assert_eq!(taken.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(1)));
        }
    }

    #[test]
    fn the_last_words_of_a_server_are_read_although_the_loop_has_not_looked() {
        let line = Line::lent();
        let first = line.begin(echo(1));
        line.serve(1);
        line.server.shutdown(std::net::Shutdown::Both).unwrap();
        // It fails to be written, and the loop does not turn.
        let second = line.begin(echo(2));
        assert_eq!(first.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(1)));
        assert_eq!(second.recv_timeout(LIMIT).unwrap().1, Err(Failure::Closed));
    }

    #[test]
    fn a_loop_that_ends_gives_the_socket_back() {
        let line = Line::lent();
        let taken = line.begin(echo(1));
        line.event_loop.close();
        assert!(!line.is_lent());
        line.serve(1);
        assert_eq!(taken.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(1)));
    }

    #[test]
    fn a_request_that_is_dropped_keeps_its_place() {
        let line = Line::lent();
        let (task, _) = line.task(echo(1));
        let handover = line.event_loop.enter(|| Handover::begin(line.runtime.handle(), Box::pin(task)));
        line.event_loop.enter(|| handover.abort());
        let taken = line.begin(echo(2));
        line.serve(2);
        line.event_loop.turn();
        assert_eq!(taken.try_recv().unwrap().1, Ok(Value::Int(2)));
        assert!(line.is_lent());
    }

    #[test]
    fn every_request_gets_its_own_reply_whoever_watches() {
        let line = Line::new(true);
        let mut server = line.server.try_clone().unwrap();
        thread::spawn(move || {
            let (mut bytes, mut text) = ([0; 4_096], String::new());
            while let Ok(more @ 1..) = server.read(&mut bytes) {
                text.push_str(std::str::from_utf8(&bytes[..more]).unwrap());
                let replies = replies(&mut text);
                server.write_all(replies.as_bytes()).unwrap();
            }
        });
        let mut changes = 0;
        for round in 0..200 {
            let other = (round % 4 == 3).then(|| {
                let (task, taken) = line.task(echo(-round));
                line.runtime.spawn(task);
                taken
            });
            for number in 0..50 {
                let was_lent = line.is_lent();
                let taken = line.begin(echo(number));
                let answer = loop {
                    line.event_loop.turn();
                    if let Ok((_, answer)) = taken.recv_timeout(Duration::from_micros(50)) {
                        break answer;
                    }
                };
                assert_eq!(answer, Ok(Value::Int(number)));
                changes += usize::from(was_lent != line.is_lent());
            }
            if let Some(taken) = other {
                assert_eq!(taken.recv_timeout(LIMIT).unwrap().1, Ok(Value::Int(-round)));
            }
        }
        assert!(changes >= 20, "the socket was lent and taken back again and again: {changes}");
    }
}
