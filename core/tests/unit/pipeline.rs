//! The connection, step by step: its peer takes and says what a test tells it to, when it tells it to.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use harness::{LIMIT, eventually};
use proptest::prelude::*;
use redis::Value;
use tokio::io::{AsyncRead, AsyncReadExt, DuplexStream, ReadBuf, duplex};
use tokio::net::UnixStream;
use tokio::task::coop;

use super::queue::{FEW, MANY};
use super::*;
use crate::sys::clock::Clock;
use crate::transport::socket::{Socket, Transport};

/// A server's side of a stream, step by step.
#[derive(Clone, Debug, Default)]
struct Peer(Arc<Mutex<PeerState>>);

#[derive(Clone, Copy, Debug)]
enum End {
    HangUp,
    Error(io::ErrorKind),
}

#[derive(Debug, Default)]
struct PeerState {
    /// What was written.
    taken: Vec<u8>,
    /// How many more bytes are taken.
    room: usize,
    /// What is still to be read.
    said: VecDeque<u8>,
    /// How the stream ends behind that, if it does.
    end: Option<End>,
    /// Whom it wakes when there is something to read, and when it takes more.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Peer {
    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.0.lock().unwrap()
    }

    /// Takes so many more bytes.
    fn takes(&self, more: usize) {
        self.state().room += more;
        let writer = self.state().writer.take();
        writer.into_iter().for_each(Waker::wake);
    }

    fn says(&self, text: &str) {
        self.state().said.extend(text.as_bytes());
        let reader = self.state().reader.take();
        reader.into_iter().for_each(Waker::wake);
    }

    fn ends(&self, end: End) {
        self.state().end = Some(end);
        let reader = self.state().reader.take();
        reader.into_iter().for_each(Waker::wake);
    }

    fn taken(&self) -> String {
        String::from_utf8(self.state().taken.clone()).unwrap()
    }
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        let more = state.said.len().min(buffer.remaining());
        if more > 0 {
            buffer.put_slice(&state.said.drain(..more).collect::<Vec<_>>());
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(cx.waker().clone());
        match state.end {
            None => Poll::Pending,
            Some(End::HangUp) => Poll::Ready(Ok(())),
            Some(End::Error(error)) => Poll::Ready(Err(error.into())),
        }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        match state.end {
            None => {}
            Some(End::HangUp) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(End::Error(error)) => return Poll::Ready(Err(error.into())),
        }
        let more = bytes.len().min(state.room);
        if more == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.room -= more;
        state.taken.extend(&bytes[..more]);
        Poll::Ready(Ok(more))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Transport for Peer {
    fn socket(&mut self) -> Option<&mut Socket> {
        None
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if !state.said.is_empty() || state.end.is_some() {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Transport for DuplexStream {
    fn socket(&mut self) -> Option<&mut Socket> {
        None
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A connection whose driver runs only when told.
struct Stepwise {
    peer: Peer,
    shared: Arc<Shared>,
    driving: Driving,
    unasked: Arc<Mutex<Vec<String>>>,
    woken: Arc<Counter>,
}

impl Stepwise {
    /// Makes a connection whose peer takes everything, and whose driver was polled once.
    fn new(overtakes: bool) -> Self {
        let (peer, unasked) = (Peer::default(), Arc::new(Mutex::new(Vec::new())));
        peer.takes(usize::MAX / 2);
        let heard = Arc::clone(&unasked);
        let hear = move |unasked| {
            heard.lock().unwrap().push(match unasked {
                Unasked::Push(kind, data) => format!("{kind} {}", data.len()),
                Unasked::End => "end".to_owned(),
            });
        };
        let (shared, driving) = connect(Box::new(peer.clone()), true, Box::new(hear), overtakes);
        let mut this = Self { peer, shared, driving, unasked, woken: Arc::default() };
        assert!(this.drive().is_none());
        this
    }

    /// Runs the driver once, and returns its failure.
    fn drive(&mut self) -> Option<Failure> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.driving.poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(failure) => Some(failure),
            Poll::Pending => None,
        }
    }

    /// Runs the driver for as long as it is woken.
    fn settle(&mut self) -> Option<Failure> {
        while self.woken.0.swap(0, Ordering::SeqCst) > 0 {
            if let Some(failure) = self.drive() {
                return Some(failure);
            }
        }
        None
    }

    fn unasked(&self) -> Vec<String> {
        self.unasked.lock().unwrap().clone()
    }

    fn times_woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }
}

/// Has the same length for numbers of the same length.
fn packed(text: &str) -> String {
    format!("*1\r\n${}\r\n{text}\r\n", text.len())
}

fn poll(asking: &mut Asking<'_>) -> Option<Answer> {
    poll_as(asking, &Waker::from(Arc::new(Counter::default())))
}

fn poll_as(asking: &mut Asking<'_>, waker: &Waker) -> Option<Answer> {
    match Pin::new(asking).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[test]
fn few_requests_are_written_by_those_who_ask_and_many_by_the_driver() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let mut few: Vec<_> = ["one", "two"].map(|text| shared.ask(&redis::cmd(text))).into();
    assert_eq!(line.peer.taken(), packed("one") + &packed("two"));
    few.extend(["three", "four"].map(|text| shared.ask(&redis::cmd(text))));
    assert_eq!(line.peer.taken(), packed("one") + &packed("two"));
    assert_eq!(line.times_woken(), 1, "once for both");
    assert!(line.drive().is_none());
    assert!(line.peer.taken().ends_with(&(packed("three") + &packed("four"))));
    line.peer.says(":1\r\n+OK\r\n-NOSCRIPT none\r\n$2\r\nab\r\n");
    assert!(line.drive().is_none());
    let answers: Vec<_> = few.iter_mut().map(|asking| poll(asking).unwrap().unwrap()).collect();
    assert!(matches!(&answers[..], [Value::Int(1), Value::Okay, Value::ServerError(_), Value::BulkString(_)]));
    assert!(shared.queue.lock().asked.is_empty());
}

#[test]
fn very_many_requests_do_not_wait_for_the_driver() {
    let line = Stepwise::new(false);
    let asking: Vec<_> = (0..MANY + FEW).map(|_| line.shared.ask(&redis::cmd("x"))).collect();
    assert_eq!(line.peer.taken(), packed("x").repeat(MANY + FEW));
    drop(asking);
}

#[test]
fn a_queued_request_is_taken_back_and_a_written_one_keeps_its_place() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let written = [(); FEW].map(|()| shared.ask(&redis::cmd("written")));
    let [first, middle, last] = ["a", "bb", "ccc"].map(|text| shared.ask(&redis::cmd(text)));
    drop(middle);
    drop(written);
    drop(first);
    assert!(line.drive().is_none());
    assert_eq!(line.peer.taken(), packed("written").repeat(FEW) + &packed("ccc"));
    line.peer.says(":1\r\n:2\r\n:3\r\n");
    assert!(line.drive().is_none());
    let mut last = last;
    assert_eq!(poll(&mut last).unwrap().unwrap(), Value::Int(3));
    assert!(shared.queue.lock().asked.is_empty(), "nothing leaks");
}

/// It would be taken for the answer to the next request.
#[test]
fn a_reply_without_a_request_ends_the_connection() {
    for (said, failure) in [
        (":1\r\n", Failure::UnexpectedReply),
        ("-ERR max number of clients reached\r\n", Failure::Full),
        ("-DENIED Redis is running in protected mode\r\n", Failure::Refused("DENIED".into())),
        ("-ERR idle for too long\r\n", Failure::Closed),
    ] {
        let mut line = Stepwise::new(false);
        line.peer.says(said);
        assert!(failure.breaks_connection(), "{failure}");
        assert_eq!(line.drive(), Some(failure));
    }
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let mut asking = shared.ask(&redis::cmd("x"));
    line.peer.says(":1\r\n:2\r\n");
    assert_eq!(line.drive(), Some(Failure::UnexpectedReply));
    assert_eq!(poll(&mut asking).unwrap().unwrap(), Value::Int(1), "that one was awaited");
}

/// Before the server can have read it.
#[test]
fn a_reply_to_a_request_that_is_not_written_ends_the_connection() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    line.peer.state().room = 0;
    let _asking = [(); FEW + 1].map(|()| shared.ask(&redis::cmd("x")));
    line.peer.says(":1\r\n:2\r\n:3\r\n");
    assert_eq!(line.drive(), Some(Failure::UnexpectedReply));
}

#[test]
fn the_end_fails_what_is_not_answered_and_all_that_follows() {
    for (end, failure) in [
        (End::HangUp, Failure::Closed),
        (End::Error(io::ErrorKind::ConnectionReset), Failure::Closed),
        (End::Error(io::ErrorKind::TimedOut), Failure::Closed),
    ] {
        let mut line = Stepwise::new(false);
        let shared = Arc::clone(&line.shared);
        let [mut answered, mut open] = ["a", "b"].map(|text| shared.ask(&redis::cmd(text)));
        let abandoned = shared.ask(&redis::cmd("c"));
        assert!(line.drive().is_none());
        drop(abandoned);
        line.peer.says(":1\r\n:2");
        line.peer.ends(end);
        let ended = line.drive().unwrap();
        assert_eq!(ended, failure);
        drop(line.shared.end(&ended));
        assert_eq!(poll(&mut answered).unwrap().unwrap(), Value::Int(1));
        assert_eq!(poll(&mut open).unwrap().unwrap_err(), failure);
        assert_eq!(poll(&mut shared.ask(&redis::cmd("d"))).unwrap().unwrap_err(), failure);
        assert!(shared.queue.lock().asked.is_empty() && shared.outgoing.lock().stream.is_none());
    }
}

#[test]
fn a_server_that_hangs_up_while_it_is_written_to_is_heard_to_its_last_word() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    line.peer.says("-ERR max number of clients reached\r\n");
    line.peer.ends(End::Error(io::ErrorKind::BrokenPipe));
    line.woken.0.store(0, Ordering::SeqCst);
    let mut asking = shared.ask(&redis::cmd("x"));
    assert_eq!(line.times_woken(), 1, "who failed to write leaves the rest to the driver");
    assert_eq!(line.drive(), Some(Failure::Closed));
    assert!(matches!(poll(&mut asking), Some(Ok(Value::ServerError(_)))));
}

#[test]
fn the_task_with_the_only_awaited_reply_reads_it_and_nobody_else_is_woken_for_it() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let task = Arc::new(Counter::default());
    for number in 1..4 {
        let mut asking = shared.ask(&redis::cmd("x"));
        assert_eq!(poll_as(&mut asking, &Waker::from(Arc::clone(&task))), None);
        assert_eq!(line.settle(), None, "it leaves the reading to the task");
        line.peer.says(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(poll_as(&mut asking, &Waker::from(Arc::clone(&task))), None);
        line.peer.says(&format!(":{number}\r\n"));
        assert_eq!((task.0.swap(0, Ordering::SeqCst), line.times_woken()), (2, 0), "by the stream alone");
        assert_eq!(poll_as(&mut asking, &Waker::from(Arc::clone(&task))), Some(Ok(Value::Int(number))));
        assert_eq!((task.0.load(Ordering::SeqCst), line.times_woken()), (0, 0), "there is nothing for the driver");
    }
    assert_eq!(line.unasked().len(), 3);
    line.peer.says(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n");
    assert_eq!(line.times_woken(), 1, "the driver reads again");
    assert_eq!(line.settle(), None);
    assert_eq!(line.unasked().len(), 4);
    line.peer.ends(End::HangUp);
    assert_eq!(line.settle(), Some(Failure::Closed));
}

#[test]
fn a_task_reads_both_replies_to_what_it_has_asked_at_once() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let task = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&task));
    let [mut first, mut second] = shared.ask_both(redis::cmd("x"), |command| *command = redis::cmd("y"));
    assert_eq!(line.peer.taken(), packed("x") + &packed("y"));
    assert_eq!(poll_as(&mut second, &waker), None);
    assert_eq!(line.settle(), None, "it leaves the reading to the task");
    line.peer.says(":1\r\n");
    assert_eq!(poll_as(&mut second, &waker), None);
    line.peer.says(":2\r\n");
    assert_eq!((task.0.load(Ordering::SeqCst), line.times_woken()), (2, 0), "by the stream alone");
    assert_eq!(poll_as(&mut second, &waker), Some(Ok(Value::Int(2))));
    assert_eq!(poll_as(&mut first, &waker), Some(Ok(Value::Int(1))));
    assert_eq!((line.times_woken(), shared.queue.lock().asked.len()), (0, 0), "there is nothing for the driver");
}

/// A stream wakes one task for what it has to read.
#[test]
fn the_stream_wakes_who_has_begun_to_read_before_it_was_handed_back() {
    let line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let (mut asking, task) = (shared.ask(&redis::cmd("x")), Arc::new(Counter::default()));
    assert_eq!(poll_as(&mut asking, &Waker::from(Arc::clone(&task))), None);
    shared.hand_back(Some(Waker::from(Arc::clone(&line.woken))));
    line.peer.says(":1\r\n");
    assert_eq!((task.0.load(Ordering::SeqCst), line.times_woken()), (1, 0));
}

#[test]
fn a_driver_that_cannot_be_left_to_the_stream_is_woken() {
    let line = Stepwise::new(false);
    let driver = || Some(Waker::from(Arc::clone(&line.woken)));
    let outgoing = line.shared.outgoing.lock();
    line.shared.hand_back(driver());
    assert_eq!(line.times_woken(), 1, "somebody writes");
    drop(outgoing);
    line.shared.end(&Failure::Closed);
    line.shared.hand_back(driver());
    assert_eq!(line.times_woken(), 2, "the stream is gone");
}

/// It would not leave the reading to the driver afterwards.
#[test]
fn a_task_whose_reply_has_come_meanwhile_does_not_read_for_another() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let answered = shared.ask(&redis::cmd("x"));
    line.peer.says(":1\r\n");
    assert_eq!(line.settle(), None);
    let _other = shared.ask(&redis::cmd("y"));
    let place = answered.place.unwrap();
    let read = shared.poll_read(Reader::Asking(place), &mut Context::from_waker(Waker::noop()), &mut Vec::new());
    assert!(read.is_pending());
    assert_eq!(shared.queue.lock().reader, Reader::Driver);
}

#[test]
fn what_a_reading_task_finds_wrong_ends_the_connection() {
    for (said, end, failure) in [
        ("", Some(End::HangUp), Failure::Closed),
        ("?\r\n", None, Failure::UnexpectedReply),
        ("", Some(End::Error(io::ErrorKind::TimedOut)), Failure::Closed),
    ] {
        let mut line = Stepwise::new(false);
        let shared = Arc::clone(&line.shared);
        let mut asking = shared.ask(&redis::cmd("x"));
        assert_eq!(poll(&mut asking), None);
        assert_eq!(line.settle(), None);
        line.peer.says(said);
        if let Some(end) = end {
            line.peer.ends(end);
        }
        assert_eq!(poll(&mut asking), None, "the driver tells everybody");
        assert_eq!(line.settle(), Some(failure.clone()));
        drop(line.shared.end(&failure));
        assert_eq!(poll(&mut asking), Some(Err(failure)));
    }
}

#[test]
fn after_a_task_that_read_is_dropped_the_driver_hears_messages() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let mut asking = shared.ask(&redis::cmd("x"));
    assert_eq!(poll(&mut asking), None);
    assert_eq!(line.settle(), None);
    drop(asking);
    line.peer.says(":1\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n");
    assert_eq!(line.settle(), None);
    assert_eq!(line.unasked().len(), 1);
}

#[test]
fn a_poll_with_the_idle_waker_does_not_read() {
    let mut line = Stepwise::new(false);
    let shared = Arc::clone(&line.shared);
    let mut asking = shared.ask(&redis::cmd("x"));
    for is_first in [true, false] {
        assert_eq!(poll_as(&mut asking, idle_waker()), None);
        assert_eq!(shared.queue.lock().reader, Reader::Driver);
        assert_eq!(line.settle(), None);
        line.peer.says(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(line.settle(), None);
        assert_eq!(line.unasked().len(), 2 - usize::from(is_first), "the driver hears it");
        assert_eq!(poll(&mut asking), None);
        assert_eq!(shared.queue.lock().reader, Reader::Asking(0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    AskTwo,
    /// Asks two, lets a task run, and takes them back if they are not written.
    AskInVain(usize),
    Drop(usize),
    /// A task does something else from now on.
    Neglect(usize),
    /// A task that was woken runs, whether or not others were woken before.
    Run(usize),
    Drive,
    Take(usize),
    /// A reply to the oldest request that the server has in full.
    Reply,
    Push,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Ask),
        1 => Just(Step::AskTwo),
        1 => (0..8_usize).prop_map(Step::AskInVain),
        3 => (0..8_usize).prop_map(Step::Drop),
        1 => (0..8_usize).prop_map(Step::Neglect),
        6 => (0..8_usize).prop_map(Step::Run),
        4 => Just(Step::Drive),
        3 => (1..40_usize).prop_map(Step::Take),
        4 => Just(Step::Reply),
        1 => Just(Step::Push),
    ]
}

/// Returns the numbers in the requests that arrived in full.
fn numbers(taken: &str) -> Vec<usize> {
    let ends = taken.matches("\r\n").count() / 3;
    taken.split("\r\n").skip(2).step_by(3).take(ends).map(|number| number.parse().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever is dropped or neglected when, and however slowly the stream takes it: the server gets requests in the
    /// order in which they were made, everybody is woken for the reply to their own, and all messages are heard.
    #[test]
    fn everybody_gets_their_own_reply(steps in prop::collection::vec(step(), 1..80), overtakes: bool) {
        let mut line = Stepwise::new(overtakes);
        line.peer.state().room = 0;
        let shared = Arc::clone(&line.shared);
        let (mut next, mut replied, mut pushed) = (1_000, 0, 0);
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for step in steps.into_iter().chain([Step::Take(100_000), Step::Drive, Step::Drive]) {
            match step {
                Step::Ask => {
                    tasks.push(Task::new(next, shared.ask(&redis::cmd(&next.to_string()))));
                    next += 1;
                }
                Step::AskTwo => {
                    let commands = [next, next + 1].map(|number| redis::cmd(&number.to_string()));
                    tasks.extend((next..).zip(shared.ask_all(&commands)).map(|(number, asking)| Task::new(number, asking)));
                    next += 2;
                }
                Step::AskInVain(which) => {
                    let commands = [next, next + 1].map(|number| redis::cmd(&number.to_string()));
                    let asking = shared.ask_all(&commands);
                    if let Some(task) = tasks.get_mut(which) {
                        task.run();
                    }
                    drop(asking);
                    next += 2;
                }
                Step::Drop(which) if which < tasks.len() => drop(tasks.remove(which)),
                Step::Neglect(which) if which < tasks.len() => tasks[which].is_neglected = true,
                Step::Run(which) if which < tasks.len() => tasks[which].run(),
                Step::Drop(_) | Step::Neglect(_) | Step::Run(_) => {}
                Step::Drive => prop_assert_eq!(line.settle(), None),
                Step::Take(more) => line.peer.takes(more),
                Step::Reply => {
                    if let Some(number) = numbers(&line.peer.taken()).get(replied) {
                        line.peer.says(&format!(":{number}\r\n"));
                        replied += 1;
                    }
                }
                Step::Push => {
                    line.peer.says(">1\r\n+other\r\n");
                    pushed += 1;
                }
            }
        }
        prop_assert_eq!(line.settle(), None);
        let all = numbers(&line.peer.taken());
        prop_assert!(all.is_sorted_by(|one, two| one < two), "{:?}", all);
        for number in &all[replied..] {
            line.peer.says(&format!(":{number}\r\n"));
        }
        while line.times_woken() > 0 || tasks.iter().any(Task::is_ready) {
            prop_assert_eq!(line.settle(), None);
            tasks.iter_mut().for_each(Task::run);
        }
        prop_assert!(tasks.iter().all(|task| task.is_neglected || task.answer.is_some()), "one is not woken");
        for mut task in tasks {
            let answer = task.answer.or_else(|| poll(&mut task.asking));
            prop_assert_eq!(answer, Some(Ok(Value::Int(i64::try_from(task.number).unwrap()))));
        }
        prop_assert!(shared.queue.lock().asked.is_empty() && shared.queue.lock().awaited.is_empty());
        prop_assert_eq!(line.settle(), None);
        prop_assert_eq!(line.unasked().len(), pushed);
    }
}

/// A task that waits for one reply, and runs only when it is woken.
struct Task<'a> {
    number: usize,
    asking: Asking<'a>,
    answer: Option<Answer>,
    woken: Arc<Counter>,
    is_neglected: bool,
}

impl<'a> Task<'a> {
    fn new(number: usize, asking: Asking<'a>) -> Self {
        let woken = Arc::new(Counter(AtomicUsize::new(1)));
        Self { number, asking, answer: None, woken, is_neglected: false }
    }

    fn is_ready(&self) -> bool {
        !self.is_neglected && self.answer.is_none() && self.woken.0.load(Ordering::SeqCst) > 0
    }

    fn run(&mut self) {
        if self.is_ready() {
            self.woken.0.store(0, Ordering::SeqCst);
            self.answer = poll_as(&mut self.asking, &Waker::from(Arc::clone(&self.woken)));
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn the_last_handle_closes_the_stream() {
    let runtime = runtime();
    let (client, mut server) = duplex(100);
    let pipeline = Pipeline::open(runtime.handle(), Box::new(client), true, Box::new(|_| {}));
    let other = pipeline.clone();
    drop(pipeline);
    runtime.block_on(async {
        let asking = other.ask(&redis::cmd("x"));
        let mut bytes = [0; 11];
        server.read_exact(&mut bytes).await.unwrap();
        drop(asking);
        drop(other);
        let read = Clock::System.timeout(LIMIT, pin!(server.read(&mut bytes))).await;
        assert_eq!(read.unwrap().unwrap(), 0);
    });
}

#[test]
fn the_end_of_the_runtime_fails_what_is_asked() {
    let runtime = runtime();
    let (client, _server) = duplex(100);
    let pipeline =
        Pipeline::open(runtime.handle(), Box::new(client), true, Box::new(|_| panic!("it is not the server's end")));
    let mut before = pipeline.ask(&redis::cmd("x"));
    runtime.shutdown_background();
    let mut answer = None;
    eventually("it fails", || {
        answer = answer.take().or_else(|| poll(&mut before));
        answer == Some(Err(Failure::Closed))
    });
    assert_eq!(poll(&mut pipeline.ask(&redis::cmd("x"))), Some(Err(Failure::Closed)));
}

/// A connection on a runtime of one thread, and the server's end of it. Counts what it hears.
fn on_one_thread() -> (tokio::runtime::Runtime, Pipeline, StdUnixStream, Arc<AtomicUsize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mine, server) = StdUnixStream::pair().unwrap();
    mine.set_nonblocking(true).unwrap();
    server.set_read_timeout(Some(LIMIT)).unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let pipeline = runtime.block_on(async {
        let (socket, heard) = (UnixStream::from_std(mine).unwrap(), Arc::clone(&heard));
        let hear = move |_| {
            heard.fetch_add(1, Ordering::SeqCst);
        };
        let pipeline = Pipeline::open(&Handle::current(), Box::new(Socket::local(socket)), false, Box::new(hear));
        while pipeline.shared.queue.lock().driver.is_none() {
            tokio::task::yield_now().await;
        }
        pipeline
    });
    (runtime, pipeline, server, heard)
}

/// tokio lets a task do only so much before others have their turn.
async fn spend_budget() {
    while coop::has_budget_remaining() {
        coop::consume_budget().await;
    }
}

#[test]
fn a_request_is_written_by_a_task_that_has_spent_its_budget() {
    let (runtime, pipeline, mut server, _) = on_one_thread();
    let mut asking = None;
    runtime.block_on(async {
        spend_budget().await;
        asking = Some(pipeline.ask(&redis::cmd("x")));
    });
    let mut bytes = [0; 11];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, packed("x").as_bytes());
    drop(asking);
}

#[test]
fn the_driver_reads_again_after_a_task_that_has_spent_its_budget() {
    let (runtime, pipeline, mut server, heard) = on_one_thread();
    let mut asking = Some(pipeline.ask(&redis::cmd("x")));
    runtime.block_on(poll_fn(|cx| {
        assert_eq!(asking.as_mut().map(|asking| Pin::new(asking).poll(cx)), Some(Poll::Pending));
        Poll::Ready(())
    }));
    assert_eq!(pipeline.shared.queue.lock().reader, Reader::Asking(0));
    runtime.block_on(async {
        spend_budget().await;
        asking = None;
    });
    server.write_all(b":1\r\n>1\r\n+other\r\n").unwrap();
    eventually("the message is heard", || {
        runtime.block_on(tokio::task::yield_now());
        heard.load(Ordering::SeqCst) == 1
    });
}
