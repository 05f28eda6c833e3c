//! Calls that may block for as long as the system likes: look-ups of names, and reads of files that may be on a dead mount.
//!
//! Each runs on a thread of its own, named `redlock-system`, so that no runtime has to wait for it when it ends. Of all
//! calls with the same key, one is under way at a time, and everybody who needs its result waits for that one: a resolver
//! that hangs takes one thread for each name, and not one for each caller.
//!
//! What may interrupt it: a caller that is cancelled, which ends no call; work that panics, or a system that gives no
//! thread, which leaves its callers without a result; a fork, after which the child has calls of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use tokio::sync::watch;

/// The calls that are under way, by key.
pub(crate) struct SharedCalls<K, T>(Mutex<BTreeMap<K, watch::Receiver<Option<T>>>>);

/// One call, until its end.
pub(crate) struct Running<K: Ord, T> {
    calls: Arc<SharedCalls<K, T>>,
    key: K,
    outcome: Option<T>,
    result: watch::Sender<Option<T>>,
}

impl<K, T> Default for SharedCalls<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, T> fmt::Debug for SharedCalls<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedCalls")
    }
}

impl<K, T> SharedCalls<K, T> {
    fn calls(&self) -> MutexGuard<'_, BTreeMap<K, watch::Receiver<Option<T>>>> {
        self.0.lock().expect("no panic while holding this")
    }
}

impl<K: Ord + Clone + Send + 'static, T: Clone + Send + Sync + 'static> SharedCalls<K, T> {
    /// Returns the result of the call for `key`, which `work` makes unless one is under way. `None` if that panics, or the
    /// system gives no thread. Cancel safe.
    pub(crate) async fn call(self: &Arc<Self>, key: K, work: impl FnOnce(Running<K, T>) + Send + 'static) -> Option<T> {
        let mut result = self.join(key, work);
        result.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Joins the call for `key`, or begins it.
    fn join(self: &Arc<Self>, key: K, work: impl FnOnce(Running<K, T>) + Send + 'static) -> watch::Receiver<Option<T>> {
        let mut calls = self.calls();
        if let Some(result) = calls.get(&key) {
            return result.clone();
        }
        let (sender, result) = watch::channel(None);
        calls.insert(key.clone(), result.clone());
        drop(calls);
        let running = Running { calls: Arc::clone(self), key, outcome: None, result: sender };
        // Without a thread, the call ends at once.
        drop(thread::Builder::new().name("redlock-system".to_owned()).spawn(move || work(running)));
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
        self.calls.calls().remove(&self.key);
        if let Some(result) = self.outcome.take() {
            self.result.send_replace(Some(result));
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
                let _ = hangs.lock().unwrap().recv();
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
    async fn a_panic_leaves_its_callers_without_a_result() {
        let calls = Arc::<SharedCalls<(), u32>>::default();
        assert_eq!(calls.call((), |_| panic!("on purpose")).await, None);
        assert_eq!(calls.call((), |running| running.end(7)).await, Some(7));
    }
}
