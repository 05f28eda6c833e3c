//! Lock objects and the completion queue, which the Python and Node packages stand on: what no test of a package sees.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Proxy, SLACK, Server, cluster, eventually, ran, this_test, urls};
use redlock::bindings::Stop;
use redlock::bindings::completion_queue::{Completion, Queue};
use redlock::bindings::lock_object::LockObject;
use redlock::{Error, Redlock, shutdown};

use super::processes::SHUTDOWN;

#[expect(clippy::unnecessary_wraps, reason = "the form of an interruption")]
fn never() -> Result<(), Infallible> {
    Ok(())
}

/// What a call that nothing interrupts comes to.
fn through<T>(result: Result<T, Stop<Infallible>>) -> Result<T, Error> {
    result.map_err(|Stop::Failed(error)| error)
}

fn acquire(lock: &Arc<LockObject>) -> Result<(), Error> {
    through(lock.acquire(None, || Ok(()), Some(never)))
}

fn release(lock: &LockObject) -> Result<(), Error> {
    through(lock.release(Some(never)))
}

fn object(redlock: &Redlock, name: &str) -> Arc<LockObject> {
    LockObject::new(redlock.lock(name)).unwrap()
}

fn code(result: Result<(), Error>) -> &'static str {
    result.unwrap_err().code()
}

/// A queue, and what its loop hears.
fn queue() -> (Queue, Receiver<()>) {
    let (sender, woken) = channel();
    let wake = move || {
        let _ = sender.send(());
    };
    (Queue::new(wake), woken)
}

/// Waits until there is something to take for `id`; false if it is done.
fn ready(queue: &Queue, woken: &Receiver<()>, id: u64) -> bool {
    loop {
        woken.recv_timeout(harness::LIMIT).unwrap();
        let ready = queue.drain(|| ());
        if ready.contains(&Completion::Result(id)) || ready.contains(&Completion::Done(id)) {
            return ready.contains(&Completion::Result(id));
        }
    }
}

#[test]
fn the_end_of_a_block_is_silent_about_servers_that_do_not_answer() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let lock = object(&redlock, "foo");
    acquire(&lock).unwrap();
    server.freeze();
    through(lock.release_at_exit(Some(never))).unwrap();
    server.thaw();
    eventually("the background finishes the release", || server.get("foo").is_none());
}

#[test]
fn a_cancelled_wait_asks_no_more() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let (queue, _woken) = queue();
    let (holder, waiter) = (object(&redlock, "foo"), object(&redlock, "foo"));
    acquire(&holder).unwrap();
    let before = server.scripts_asked();
    let id = queue.acquire(&waiter, None).unwrap();
    eventually("it was denied in the call and in the background", || server.scripts_asked() >= before + 2);
    queue.cancel(id);
    // So does a wait whose queue goes.
    let (gone, _woken) = self::queue();
    gone.acquire(&waiter, None).unwrap();
    drop(gone);
    // Longer than a waiter sleeps whom nothing wakes.
    let mut last = server.scripts_asked();
    eventually("nobody asks any more", || {
        thread::sleep(Duration::from_millis(2_100));
        std::mem::replace(&mut last, server.scripts_asked()) == last
    });
}

#[test]
fn what_a_drain_takes_too_late_is_waited_for_again() {
    let server = Server::start();
    let ttl = 2 * SLACK;
    let redlock = Redlock::builder().nodes(server.url()).ttl(ttl).build().unwrap();
    let (queue, woken) = queue();
    let expires = || {
        woken.recv_timeout(harness::LIMIT).unwrap();
        eventually("what was won has expired", || server.get("foo").is_none());
    };
    let lock = object(&redlock, "foo");
    let id = queue.acquire(&lock, None).unwrap();
    expires();
    assert!(queue.drain_and_take().is_empty() && !lock.held(), "its acquire continues");
    eventually("it is won again", || queue.drain_and_take() == [Completion::Done(id)]);
    assert!(lock.held());
    release(&lock).unwrap();

    // What woke before does not count.
    while woken.try_recv().is_ok() {}
    let id = queue.acquire(&lock, Some(Some(Duration::ZERO))).unwrap();
    expires();
    assert_eq!(queue.drain_and_take(), [Completion::Result(id)]);
    assert_eq!(queue.take(id).unwrap_err().code(), "unavailable");
    assert_eq!(code(lock.check()), "not_held");

    // The one in front had it, and whoever asks that queue would hear of this.
    let holder = object(&redlock, "foo");
    acquire(&holder).unwrap();
    let before = server.scripts_asked();
    let id = queue.acquire(&lock, Some(Some(ttl))).unwrap();
    eventually("it was denied in the call and in the background", || server.scripts_asked() >= before + 2);
    release(&holder).unwrap();
    expires();
    eventually("its time is over", || queue.drain_and_take() == [Completion::Result(id)]);
    let error = queue.take(id).unwrap_err();
    assert!(error.code() == "timeout" && !error.is_held_by_this_process(), "{error}");
}

/// Nobody has received it, so that the text is as good as before.
#[test]
fn an_attached_lock_that_is_not_taken_goes_back_to_its_text() {
    let servers = cluster(3);
    let redlock = Redlock::builder().nodes(urls(&servers)).ttl(Duration::from_secs(60)).build().unwrap();
    let lock = object(&redlock, "foo");
    acquire(&lock).unwrap();
    let text = through(lock.detach(None, Some(never))).unwrap().into_text();
    let (queue, woken) = queue();
    let won = |queue: &Queue, woken: &Receiver<()>| {
        let lock = LockObject::new(redlock.attach(&text)).unwrap();
        let id = queue.acquire(&lock, None).unwrap();
        assert!(ready(queue, woken, id));
        (lock, id)
    };
    let (_cancelled, id) = won(&queue, &woken);
    queue.cancel(id);
    let (gone, woken_last) = self::queue();
    let _untaken = won(&gone, &woken_last);
    drop(gone);
    let (lock, id) = won(&queue, &woken);
    queue.take(id).unwrap();
    release(&lock).unwrap();
    eventually("a release deletes it", || servers.iter().all(|server| server.get("foo").is_none()));
}

/// Runs `test` of this file in a process of its own, with the node at `url`. Returns what it printed.
fn child(test: &str, url: &str) -> String {
    let mut command = this_test(module_path!(), test);
    command.env("REDLOCK_TEST_URL", url);
    ran(command)
}

#[test]
fn the_clean_up_of_an_interrupted_call_is_on_its_way_when_it_returns() {
    const NAME: &str = "the_clean_up_of_an_interrupted_call_is_on_its_way_when_it_returns";
    // In a process of its own: in this one, other tests may drive the same connection.
    if let Ok(url) = std::env::var("REDLOCK_TEST_URL") {
        let redlock = Redlock::builder()
            .nodes(url)
            .ttl(Duration::from_secs(60))
            .node_timeout(Duration::from_secs(20))
            .build()
            .unwrap();
        let lock = object(&redlock, "foo");
        acquire(&lock).unwrap();
        release(&lock).unwrap();
        assert!(lock.acquire(None, || Ok(()), Some(|| Err(()))).is_err());
        // Nobody drives the connection any more, and the background does not give it up for 20 s.
        thread::sleep(Duration::from_millis(100));
        std::process::exit(0);
    }
    let server = Server::builder().tcp(true).start();
    let proxy = Proxy::to(&server);
    proxy.delay_replies(Duration::from_millis(60));
    child(NAME, &proxy.url());
    eventually("what the child has sent arrives", || server.get("foo").is_none());
}

#[test]
fn shutdown_lets_go_of_what_was_not_taken() {
    const NAME: &str = "shutdown_lets_go_of_what_was_not_taken";
    const GAVE_UP: &str = "it has waited for the server in vain";
    if let Ok(url) = std::env::var("REDLOCK_TEST_URL") {
        let redlock = Redlock::builder().nodes(url).ttl(Duration::from_secs(60)).build().unwrap();
        let (queue, woken) = queue();
        let warm = queue.acquire(&object(&redlock, "warm"), None).unwrap();
        assert!(ready(&queue, &woken, warm));
        queue.cancel(warm);
        for n in 0..20 {
            let id = queue.acquire(&object(&redlock, &format!("name:{n}")), None).unwrap();
            if n < 17 {
                assert!(ready(&queue, &woken, id));
            }
            // Some are cancelled, some are won and not taken, some are under way.
            if n % 3 == 0 {
                queue.cancel(id);
            }
        }
        let begun = Instant::now();
        shutdown();
        println!("\n{}", if begun.elapsed() < SHUTDOWN { "ended" } else { GAVE_UP });
        return;
    }
    for _ in 0..10 {
        // A server on a busy machine may need longer than a shutdown waits.
        eventually("the server answers in time", || {
            let server = Server::start();
            let has_ended = !child(NAME, &server.url()).contains(GAVE_UP);
            assert!(!has_ended || (0..20).all(|n| server.get(format!("name:{n}")).is_none()));
            has_ended
        });
    }
}
