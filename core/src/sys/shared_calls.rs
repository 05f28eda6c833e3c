//! Calls that may block for as long as the system likes: look-ups of names, and reads of files that may be on a dead mount.
//!
//! Each runs on a thread of its own, named `redlock-system`, so that no runtime has to wait for it when it ends. Of all
//! calls with the same key, one is under way at a time, and everybody who needs its result waits for that one: a resolver
//! that hangs takes one thread for each name, and not one for each caller.
//!
//! A call that takes longer than [`PATIENCE`] may hang for ever, although another would not: the name server has changed,
//! or something else is mounted. Whoever needs a result then begins another one beside it, and the first that ends serves
//! all. With each call that is still under way the patience doubles, so that a day of hanging takes a dozen threads.
//!
//! What may interrupt it: a caller that is cancelled, which ends no call; work that panics, or a system that gives no
//! thread, which leaves its callers without a result if no other call is under way; a fork, after which the child has
//! calls of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::sys::clock::{Clock, Moment};
use crate::sys::mutex::Mutex;
use crate::sys::task::on_thread;
use crate::texts::opaque;

/// How long a call may take before another one is begun beside it: as long as a resolver waits for one name server.
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls that are under way, by key.
pub(crate) struct SharedCalls<K, T>(Mutex<BTreeMap<K, Calls<T>>>);

/// The calls for one key, of which at least one is under way.
struct Calls<T> {
    under_way: u32,
    /// When the last of them began.
    begun: Moment,
    /// Where their first result is awaited; `None` if nobody has asked since the last one.
    awaited: Option<watch::Sender<Option<T>>>,
}

/// One call, until its end.
pub(crate) struct Running<K: Ord, T> {
    calls: Arc<SharedCalls<K, T>>,
    key: K,
    outcome: Option<T>,
}

impl<K, T> Default for SharedCalls<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

opaque!(SharedCalls<K, T>);

impl<K: Ord + Clone + Send + 'static, T: Clone + Send + Sync + 'static> SharedCalls<K, T> {
    /// Returns the result of the call for `key`, which `work` makes unless one is under way. `None` if that panics, or the
    /// system gives no thread. Cancel safe.
    pub(crate) async fn call(self: &Arc<Self>, key: K, work: impl FnOnce(Running<K, T>) + Send + 'static) -> Option<T> {
        let mut result = self.join(key, Clock::System.now(), work);
        result.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Joins the call for `key`, or begins one if there is none, or if it takes too long.
    fn join(
        self: &Arc<Self>,
        key: K,
        now: Moment,
        work: impl FnOnce(Running<K, T>) + Send + 'static,
    ) -> watch::Receiver<Option<T>> {
        let mut all = self.0.lock();
        let none = Calls { under_way: 0, begun: now, awaited: None };
        let calls = all.entry(key.clone()).or_insert(none);
        if let Some(awaited) = &calls.awaited
            && now < calls.begun.after(PATIENCE.saturating_mul(1 << (calls.under_way - 1).min(16)))
        {
            return awaited.subscribe();
        }
        calls.under_way += 1;
        calls.begun = now;
        let result = calls.awaited.get_or_insert_with(|| watch::channel(None).0).subscribe();
        drop(all);
        let running = Running { calls: Arc::clone(self), key, outcome: None };
        // Without a thread, the call ends at once.
        drop(on_thread("redlock-system", move || work(running)));
        result
    }
}

impl<K: Ord, T> Running<K, T> {
    /// Ends the call with its result.
    pub(crate) fn end(mut self, result: T) {
        self.outcome = Some(result);
    }
}

impl<K: Ord, T> Drop for Running<K, T> {
    /// Ends the call before anybody has its result: who asks after that begins another one.
    fn drop(&mut self) {
        let mut all = self.calls.0.lock();
        let Some(calls) = all.get_mut(&self.key) else { return };
        calls.under_way -= 1;
        let is_last = calls.under_way == 0;
        // Without a result, others that are under way may have one.
        let awaited = if is_last || self.outcome.is_some() { calls.awaited.take() } else { None };
        if is_last {
            all.remove(&self.key);
        }
        drop(all);
        if let (Some(awaited), Some(result)) = (awaited, self.outcome.take()) {
            awaited.send_replace(Some(result));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::sys::clock::Clock;
    use crate::sys::future::join_all;

    const CALLERS: usize = 200;
    const LIMIT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn one_call_that_hangs_serves_all_and_each_keeps_its_own_limit() {
        let (calls, begun) = (Arc::<SharedCalls<&str, usize>>::default(), Arc::new(AtomicUsize::new(0)));
        let (go_on, hangs) = mpsc::channel::<()>();
        let hangs = Arc::new(Mutex::new(hangs));
        let call = |key| {
            let (begun, hangs) = (Arc::clone(&begun), Arc::clone(&hangs));
            calls.call(key, move |running| {
                let number = begun.fetch_add(1, Ordering::Relaxed) + 1;
                let _ = hangs.lock().recv();
                running.end(number);
            })
        };
        let start = Clock::System.now();
        let impatient = |_| async { Clock::System.timeout(LIMIT, pin!(call("a"))).await };
        assert_eq!(join_all((0..CALLERS).map(impatient).collect()).await, vec![None; CALLERS]);
        let took = Clock::System.now().since(start);
        assert!(took >= LIMIT && took < LIMIT + harness::SLACK, "{took:?}");
        let patient = join_all((0..CALLERS).map(|_| call("a")).collect());
        let ends = async {
            tokio::task::yield_now().await;
            go_on.send(()).unwrap();
        };
        assert_eq!(tokio::join!(patient, ends).0, vec![Some(1); CALLERS]);
        drop(go_on);
        for number in 2..CALLERS {
            assert_eq!(call("a").await, Some(number), "a call that has ended serves nobody else");
        }
    }

    #[tokio::test]
    async fn another_call_is_begun_beside_one_that_takes_too_long() {
        let (calls, begun) = (Arc::<SharedCalls<(), usize>>::default(), Arc::new(AtomicUsize::new(0)));
        let (go_on, hangs) = mpsc::channel::<usize>();
        let hangs = Arc::new(Mutex::new(hangs));
        let start = Clock::System.now();
        let join = |seconds| {
            let (begun, hangs) = (Arc::clone(&begun), Arc::clone(&hangs));
            let result = calls.join((), start.after(Duration::from_secs(seconds)), move |running| {
                begun.fetch_add(1, Ordering::Relaxed);
                let result = hangs.lock().recv().unwrap();
                running.end(result);
            });
            (result, calls.0.lock()[&()].under_way)
        };
        let mut first = join(0).0;
        // The patience is 5 s, then 10 s, then 20 s.
        for (seconds, under_way) in [(4, 1), (5, 2), (14, 2), (15, 3), (34, 3), (35, 4)] {
            assert_eq!(join(seconds).1, under_way, "after {seconds} s");
        }
        let last = join(36).0;
        go_on.send(7).unwrap();
        assert_eq!(*first.wait_for(Option::is_some).await.unwrap(), Some(7), "the first that ends serves all");
        assert_eq!(*last.borrow(), Some(7));
        assert_eq!(join(37).1, 4, "another one is begun, beside three that hang");
        for _ in 0..4 {
            go_on.send(8).unwrap();
        }
        harness::eventually("nothing is kept", || calls.0.lock().is_empty());
        assert_eq!(begun.load(Ordering::Relaxed), 5);
    }

    #[tokio::test]
    async fn a_panic_leaves_its_callers_without_a_result() {
        let calls = Arc::<SharedCalls<(), u32>>::default();
        assert_eq!(calls.call((), |_| panic!("on purpose")).await, None);
        assert_eq!(calls.call((), |running| running.end(7)).await, Some(7));
    }
}
