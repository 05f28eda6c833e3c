//! Lock objects, the completion queue and shutdown: what the Python and Node packages stand on.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Proxy, SLACK, Server, cluster, eventually, ran, this_test};
use redlock::bindings::Stop;
use redlock::bindings::calls::inspect;
use redlock::bindings::completion_queue::{Completion, Queue, Taken};
use redlock::bindings::lock_object::{AbandonedHold, LockObject};
use redlock::{Error, LostReason, Redlock, shutdown};

/// Of keys that would not go by themselves within a test.
const LONG: Duration = Duration::from_secs(60);
/// Longer than a call of a test is kept waiting.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);

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

fn finish(queue: &Queue, woken: &Receiver<()>, id: u64) -> Result<Taken, Error> {
    loop {
        if !ready(queue, woken, id) {
            assert!(matches!(queue.take(id), Ok(Taken::Cancelled)), "there is nothing more to take");
            return Ok(Taken::Completed);
        }
        match queue.take(id) {
            Ok(Taken::Pending) => {}
            taken => return taken,
        }
    }
}

#[test]
fn a_hold_that_no_block_ends_outlives_its_object() {
    let server = Server::start();
    let redlock = Redlock::builder().nodes(server.url()).ttl(Duration::from_millis(500)).build().unwrap();
    let (queue, woken) = queue();
    let (here, queued) = (object(&redlock, "here"), object(&redlock, "queued"));
    acquire(&here).unwrap();
    finish(&queue, &woken, queue.acquire(&queued, None).unwrap()).unwrap();
    let kept: Vec<_> = [here, queued].iter().map(|lock| lock.abandon().unwrap()).collect();
    let (entered, queued) = (object(&redlock, "entered"), object(&redlock, "queued-block"));
    through(entered.enter(never, Some(never))).unwrap();
    finish(&queue, &woken, queue.enter(&queued).unwrap()).unwrap();
    for lock in [entered, queued] {
        assert!(lock.is_in_block() && lock.abandon().is_none() && lock.held());
        drop(lock);
    }
    let present = || ["here", "queued", "entered", "queued-block"].map(|name| server.get(name).is_some());
    eventually("the end of the block releases", || present() == [true, true, false, false]);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(present(), [true, true, false, false], "the others are renewed");
    assert!(kept.iter().all(AbandonedHold::is_held));
    drop(kept);
    eventually("they are released", || present() == [false; 4]);
}

#[test]
fn a_lost_hold_is_told_until_it_is_released() {
    let server = Server::start();
    let redlock =
        Redlock::builder().nodes(server.url()).ttl(Duration::from_millis(100)).auto_renew(false).build().unwrap();
    let lock = object(&redlock, "foo");
    acquire(&lock).unwrap();
    let fence = lock.fence().unwrap();
    eventually("the lock runs out", || !lock.held());
    assert_eq!(lock.check().unwrap_err().reason(), Some(LostReason::Expired));
    assert_eq!(lock.fence().unwrap(), fence);
    assert_eq!(code(release(&lock)), "lost");
    release(&lock).unwrap();
    assert_eq!(code(lock.check()), "not_held");

    acquire(&lock).unwrap();
    eventually("the lock runs out", || !lock.held());
    acquire(&lock).unwrap();
    assert!(lock.fence().unwrap() > fence);
    eventually("the lock runs out", || !lock.held());
    assert_eq!(code(through(lock.release_at_exit(Some(never)))), "lost");
    through(lock.release_at_exit(Some(never))).unwrap();
    through(lock.fresh().release_at_exit(Some(never))).unwrap();
}

#[test]
fn a_wait_for_a_loss_ends_with_the_hold() {
    let redlock = Redlock::new("memory://objects-wait-lost").unwrap();
    let (queue, woken) = queue();
    let lock = object(&redlock, "foo");
    assert_eq!(queue.wait_lost(&lock, None).unwrap_err().code(), "not_held");
    assert_eq!(code(through(lock.wait_lost(None, Some(never))).map(drop)), "not_held");

    acquire(&lock).unwrap();
    let released = queue.wait_lost(&lock, None).unwrap();
    let limited = queue.wait_lost(&lock, Some(Duration::from_millis(10))).unwrap();
    assert!(matches!(finish(&queue, &woken, limited), Ok(Taken::Completed)));
    assert!(lock.held());
    assert!(through(lock.wait_lost(Some(Duration::from_millis(10)), Some(never))).unwrap().is_none());
    let cancelled = queue.wait_lost(&lock, None).unwrap();
    queue.cancel(cancelled);
    let waiter = thread::spawn({
        let lock = Arc::clone(&lock);
        move || through(lock.wait_lost(None, Some(never))).map(|loss| loss.is_some())
    });
    release(&lock).unwrap();
    assert!(matches!(finish(&queue, &woken, released), Ok(Taken::Completed)));
    // It may have begun after the release.
    let result = waiter.join().unwrap();
    assert!(matches!(&result, Ok(false)) || code(result.map(drop)) == "not_held");

    let short = LockObject::new(redlock.lock("foo").ttl(Duration::from_millis(100)).auto_renew(false)).unwrap();
    acquire(&short).unwrap();
    let lost = queue.wait_lost(&short, None).unwrap();
    let told = through(short.wait_lost(None, Some(never))).unwrap().unwrap();
    assert_eq!(told.reason(), Some(LostReason::Expired));
    assert_eq!(finish(&queue, &woken, lost).unwrap_err().reason(), Some(LostReason::Expired));
    // A loss is told until the lock is released.
    assert!(through(short.wait_lost(None, Some(never))).unwrap().is_some());
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

/// What a signal handler may do with locks: everything, also with those that the interrupted call is about.
#[test]
fn an_interrupted_call_can_make_other_calls_while_it_waits() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let silent = Redlock::builder().nodes(proxy.url()).ttl(LONG).node_timeout(NODE_TIMEOUT).build().unwrap();
    let redlock = Redlock::builder().nodes(server.url()).ttl(LONG).build().unwrap();
    for call in ["acquire", "wait", "extend", "release", "inspect"] {
        // Both lead to one server, but over the proxy it does not answer.
        let (lock, holder) = (object(&silent, call), object(&redlock, call));
        let (other, same) = (object(&redlock, "other"), object(&redlock, call));
        match call {
            "wait" => acquire(&holder).unwrap(),
            "extend" | "release" => acquire(&lock).unwrap(),
            _ => {
                let warm = object(&silent, "warm");
                acquire(&warm).unwrap();
                release(&warm).unwrap();
            }
        }
        if call != "wait" {
            proxy.hold_replies();
        }
        let mut asked = 0;
        let nested = || {
            asked += 1;
            if asked == 2 {
                acquire(&other).unwrap();
                through(other.extend(None, Some(never))).unwrap();
                assert_eq!(through(inspect(&redlock, b"other").unwrap().drive(Some(never))).unwrap().holders, 1);
                release(&other).unwrap();
                match call {
                    "acquire" => eventually("it is executed", || server.get(call).is_some()),
                    "release" => eventually("it is executed", || server.get(call).is_none()),
                    _ => {}
                }
                let tried = through(same.acquire(Some(Some(Duration::ZERO)), || Ok(()), Some(never)));
                assert_eq!(tried.is_ok(), matches!(call, "release" | "inspect"), "{call}: {tried:?}");
                if call == "acquire" || call == "wait" {
                    assert_eq!(code(acquire(&lock)), "already_held");
                }
                // Which ends what the call waits for.
                match call {
                    "wait" => release(&holder).unwrap(),
                    _ => proxy.let_go(),
                }
            }
            Ok::<_, Infallible>(())
        };
        match call {
            "acquire" | "wait" => through(lock.acquire(None, || Ok(()), Some(nested))).unwrap(),
            "extend" => through(lock.extend(None, Some(nested))).unwrap(),
            "release" => through(lock.release(Some(nested))).unwrap(),
            _ => drop(through(inspect(&silent, b"inspect").unwrap().drive(Some(nested))).unwrap()),
        }
        assert!(asked >= 2, "{call}: asked {asked} times");
        assert_eq!(lock.held(), !matches!(call, "release" | "inspect"), "{call}");
    }
}

#[test]
fn calls_go_through_the_queue() {
    for servers in [cluster(1), cluster(3)] {
        let redlock = Redlock::new(servers.iter().map(Server::url).collect::<Vec<_>>()).unwrap();
        let (queue, woken) = queue();
        let lock = object(&redlock, "foo");
        let id = queue.acquire(&lock, None).unwrap();
        assert_eq!(queue.acquire(&lock, None).unwrap_err().code(), "already_held");
        assert!(ready(&queue, &woken, id));
        assert!(!lock.held(), "held only when taken");
        assert!(matches!(queue.take(id), Ok(Taken::Completed)) && lock.held());
        assert!(matches!(queue.take(id), Ok(Taken::Cancelled)));

        let id = queue.start(inspect(&redlock, b"foo").unwrap()).unwrap();
        assert!(matches!(finish(&queue, &woken, id), Ok(Taken::View(view)) if view.nodes.len() == servers.len()));
        let id = queue.extend(&lock, Some(Duration::from_secs(60))).unwrap();
        assert!(!ready(&queue, &woken, id), "there is nothing to take");
        let id = queue.release(&lock).unwrap();
        assert!(!lock.held(), "not held as soon as its release begins");
        assert!(!ready(&queue, &woken, id), "there is nothing to take");
        let id = queue.release(&lock).unwrap();
        assert!(matches!(finish(&queue, &woken, id), Ok(Taken::Completed)));
        let id = queue.release_at_exit(&lock.fresh()).unwrap();
        assert!(matches!(finish(&queue, &woken, id), Ok(Taken::Completed)));
        assert_eq!(queue.extend(&lock, None).unwrap_err().code(), "not_held");
        assert_eq!(queue.release(&lock.fresh()).unwrap_err().code(), "not_held");
        assert_eq!(inspect(&redlock, b"").unwrap_err().code(), "invalid_argument");
    }
}

#[test]
fn a_batch_is_one_wake_up() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let wakes = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&wakes);
    let queue = Queue::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let locks: Vec<_> = (0..50).map(|n| object(&redlock, &format!("name:{n}"))).collect();
    let ids: Vec<_> = locks.iter().map(|lock| queue.acquire(lock, None).unwrap()).collect();
    // Taken without draining: the loop has not answered its first call yet.
    for id in &ids {
        eventually("it is ready", || matches!(queue.take(*id), Ok(Taken::Completed)));
    }
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
    assert_eq!(queue.drain(|| ()).len(), ids.len());
    queue.release(&locks[0]).unwrap();
    eventually("what gets ready after a drain is called for anew", || wakes.load(Ordering::SeqCst) == 2);
}

#[test]
fn what_is_not_taken_goes_with_its_queue() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let (queue, woken) = queue();
    let lock = object(&redlock, "foo");
    let id = queue.acquire(&lock, None).unwrap();
    assert!(ready(&queue, &woken, id));
    assert!(server.get("foo").is_some());
    drop(queue);
    eventually("it is released", || server.get("foo").is_none());
    assert_eq!(code(lock.check()), "not_held");
    acquire(&lock).unwrap();
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
fn what_is_taken_too_late_is_released_and_waited_for_again() {
    let server = Server::start();
    let ttl = Duration::from_secs(1);
    let redlock = Redlock::builder().nodes(server.url()).ttl(ttl).build().unwrap();
    let (queue, woken) = queue();
    let lock = object(&redlock, "foo");
    let id = queue.acquire(&lock, None).unwrap();
    assert!(ready(&queue, &woken, id));
    thread::sleep(ttl);
    assert!(matches!(queue.take(id), Ok(Taken::Pending)) && !lock.held());
    // A busy machine may be late more than once.
    assert!(matches!(finish(&queue, &woken, id), Ok(Taken::Completed)));
    release(&lock).unwrap();

    let id = queue.acquire(&lock, Some(Some(Duration::ZERO))).unwrap();
    assert!(ready(&queue, &woken, id));
    thread::sleep(ttl);
    assert_eq!(queue.take(id).unwrap_err().code(), "unavailable");
    assert_eq!(code(lock.check()), "not_held");
}

/// Waits for the next batch in which all won locks are taken at once.
fn drained(queue: &Queue, woken: &Receiver<()>) -> Vec<Completion> {
    woken.recv_timeout(harness::LIMIT).unwrap();
    queue.drain_and_take()
}

#[test]
fn a_drain_can_take_what_was_won() {
    let server = Server::start();
    let ttl = Duration::from_secs(3);
    let redlock = Redlock::builder().nodes(server.url()).ttl(ttl).build().unwrap();
    let (queue, woken) = queue();
    let lock = object(&redlock, "foo");
    let id = queue.acquire(&lock, None).unwrap();
    assert_eq!(drained(&queue, &woken), [Completion::Done(id)]);
    assert!(lock.held() && matches!(queue.take(id), Ok(Taken::Cancelled)));
    let taken = Instant::now();
    eventually("its first ttl is over", || {
        assert!(lock.held(), "it is renewed from then on");
        taken.elapsed() > ttl + Duration::from_secs(1)
    });

    let denied = queue.acquire(&lock.fresh(), Some(Some(Duration::ZERO))).unwrap();
    assert_eq!(drained(&queue, &woken), [Completion::Result(denied)]);
    assert_eq!(queue.take(denied).unwrap_err().code(), "timeout");
    release(&lock).unwrap();

    let id = queue.acquire(&lock, None).unwrap();
    queue.cancel(id);
    eventually("it is released", || server.get("foo").is_none());
    assert!(!queue.drain_and_take().contains(&Completion::Done(id)) && !lock.held());
}

#[test]
fn what_a_drain_takes_too_late_is_waited_for_again() {
    let server = Server::start();
    let ttl = Duration::from_millis(600);
    let redlock = Redlock::builder().nodes(server.url()).ttl(ttl).build().unwrap();
    let (queue, woken) = queue();
    let lock = object(&redlock, "foo");
    let id = queue.acquire(&lock, None).unwrap();
    woken.recv_timeout(harness::LIMIT).unwrap();
    thread::sleep(ttl);
    assert!(queue.drain_and_take().is_empty() && !lock.held(), "its acquire continues");
    eventually("it is won again", || queue.drain_and_take() == [Completion::Done(id)]);
    assert!(lock.held());
    release(&lock).unwrap();

    // What woke before does not count.
    while woken.try_recv().is_ok() {}
    let id = queue.acquire(&lock, Some(Some(Duration::ZERO))).unwrap();
    woken.recv_timeout(harness::LIMIT).unwrap();
    thread::sleep(ttl);
    assert_eq!(queue.drain_and_take(), [Completion::Result(id)]);
    assert_eq!(queue.take(id).unwrap_err().code(), "unavailable");
    assert_eq!(code(lock.check()), "not_held");
}

#[test]
fn an_object_has_the_options_of_its_template_and_a_name_of_its_own() {
    let server = Server::start();
    let redlock = Redlock::builder().nodes(server.url()).key_prefix("a:").build().unwrap();
    let template = LockObject::new(redlock.lock("template").ttl(Duration::from_secs(60))).unwrap();
    let lock = template.named(b"foo", false);
    assert_eq!(lock.name(), b"foo");
    assert!(!lock.is_released());
    let error = through(lock.release(Some(never))).unwrap_err();
    assert_eq!((error.code(), error.name()), ("not_held", Some("a:foo")));
    acquire(&lock).unwrap();
    assert!(server.get("a:foo").is_some() && lock.remaining() > Duration::from_secs(50));
    acquire(&template).unwrap();
    assert!(!lock.is_released());
    release(&lock).unwrap();
    assert!(lock.is_released());
    release(&template.named(b"foo", true)).unwrap();
    for (name, mention) in [(&b""[..], "empty"), (b"redlock:fence:foo", "a:redlock:fence:foo"), (&[b'x'; 511], "513")] {
        let result = acquire(&template.named(name, false));
        if mention.starts_with("a:") {
            result.unwrap();
        } else {
            let error = result.unwrap_err();
            assert!(error.option() == Some("name") && error.to_string().contains(mention), "{error}");
        }
    }
}

#[test]
fn a_cancelled_release_is_released() {
    let server = Server::start();
    let redlock = Redlock::builder().nodes(server.url()).ttl(Duration::from_secs(60)).build().unwrap();
    let (queue, _woken) = queue();
    let lock = object(&redlock, "foo");
    acquire(&lock).unwrap();
    let id = queue.release(&lock).unwrap();
    queue.cancel(id);
    eventually("the key is gone", || server.get("foo").is_none());
    acquire(&lock).unwrap();
    queue.release(&lock).unwrap();
    drop(queue);
    eventually("the key is gone", || server.get("foo").is_none());
}

#[test]
fn a_loss_subscription_reports_every_loss_and_the_end_of_its_object() {
    let server = Server::start();
    let redlock =
        Redlock::builder().nodes(server.url()).ttl(Duration::from_millis(500)).auto_renew(false).build().unwrap();
    let (queue, woken) = queue();
    let lock = object(&redlock, "foo");
    acquire(&lock).unwrap();
    let early = queue.subscribe_to_losses(&lock);
    assert!(matches!(queue.take(early), Ok(Taken::Pending)));
    for _ in 0..2 {
        assert!(ready(&queue, &woken, early));
        assert_eq!(queue.take(early).unwrap_err().reason(), Some(LostReason::Expired));
        acquire(&lock).unwrap();
        release(&lock).unwrap();
        acquire(&lock).unwrap();
    }
    eventually("the lock runs out", || !lock.held());
    assert!(ready(&queue, &woken, early));
    assert_eq!(queue.take(early).unwrap_err().code(), "lost");
    // Each subscription reports the current loss, and once.
    let late = queue.subscribe_to_losses(&lock);
    assert!(ready(&queue, &woken, late));
    assert_eq!(queue.take(late).unwrap_err().code(), "lost");
    assert!(matches!(queue.take(early), Ok(Taken::Pending)));
    queue.cancel(early);
    drop(lock);
    assert!(ready(&queue, &woken, late));
    assert!(matches!(queue.take(late), Ok(Taken::Cancelled)));
}

/// Runs `test` of this file in a process of its own, with the node at `url`.
fn child(test: &str, url: &str) {
    let mut command = this_test(module_path!(), test);
    command.env("REDLOCK_TEST_URL", url);
    ran(command);
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
        shutdown();
        return;
    }
    for _ in 0..10 {
        let server = Server::start();
        child(NAME, &server.url());
        assert!((0..20).all(|n| server.get(format!("name:{n}")).is_none()));
    }
}

#[test]
fn a_process_that_shuts_down_leaves_no_key() {
    const NAME: &str = "a_process_that_shuts_down_leaves_no_key";
    if let Ok(url) = std::env::var("REDLOCK_TEST_URL") {
        let redlock = Redlock::builder().nodes(url).ttl(Duration::from_secs(60)).build().unwrap();
        let (queue, woken) = queue();
        let locks: Vec<_> = (0..20).map(|n| object(&redlock, &format!("name:{n}"))).collect();
        for lock in &locks[..10] {
            acquire(lock).unwrap();
        }
        for lock in &locks[10..] {
            let id = queue.acquire(lock, None).unwrap();
            finish(&queue, &woken, id).unwrap();
        }
        // One waits for ever, one is cancelled in the middle, one is dropped.
        let waiter = locks[0].fresh();
        let waits = thread::spawn(move || acquire(&waiter));
        let cancelled = queue.acquire(&object(&redlock, "cancelled"), None).unwrap();
        thread::sleep(Duration::from_micros(150));
        queue.cancel(cancelled);
        let dropped = object(&redlock, "dropped");
        acquire(&dropped).unwrap();
        drop(dropped);
        let began = Instant::now();
        shutdown();
        assert!(began.elapsed() < Duration::from_millis(500) + SLACK);
        assert_eq!(code(acquire(&object(&redlock, "afterwards"))), "closed");
        assert!(locks.iter().all(|lock| !lock.held()));
        let late = object(&redlock, "late");
        let begins = thread::spawn(move || acquire(&late));
        // Longer than the longest pause of the one that waits.
        thread::sleep(Duration::from_millis(2_100));
        assert!(!waits.is_finished() && !begins.is_finished(), "a wait returned into a process that ends");
        return;
    }
    let server = Server::start();
    child(NAME, &server.url());
    let left: Vec<_> = (0..20)
        .map(|n| format!("name:{n}"))
        .chain(["cancelled", "dropped"].map(str::to_owned))
        .filter(|name| server.get(name).is_some())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
