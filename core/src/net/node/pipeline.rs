//! Batches: requests of many tasks over one connection, queued there in one step.
//!
//! On a runtime with several threads, the task that writes to a connection runs on the thread of the task that woke it,
//! right behind that task. So it writes one request, and is woken by the next. Where several answers are awaited
//! already, a request therefore waits in a batch for the tasks that the same answers woke. Else it is sent alone, at
//! once.
//!
//! States of a batch:
//!
//! - *closed*: requests are sent alone;
//! - *open*: requests join it, and a task will take it;
//! - *queued*: it is closed again in the same step, so that no request gets ahead of it.
//!
//! A request has its position in the order from its first poll on, in a batch or alone. What may interrupt it:
//!
//! - its caller drops it: the request is left out, unless queued already; a batch is dropped when all its callers have
//!   gone;
//! - the runtime ends: requests still in the batch get no answer.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::sys::future::begun;
use crate::sys::task::spawn;

/// The number of awaited answers, the request's own included, that does not justify waiting for others. One task leaves
/// a slow node's answer behind when the others have decided.
const FEW: usize = 2;

/// Batches requests `Q` with answers `A` for one connection.
pub(super) struct Batcher<Q, A> {
    runtime: Handle,
    send: Box<dyn Fn(Vec<Q>) -> Sending<A> + Send + Sync>,
    batch: Mutex<Batch<Q, A>>,
    /// The number of awaited answers.
    awaited: AtomicUsize,
}

/// The answers to a batch, in the order of its requests. Its first poll queues them.
type Sending<A> = Pin<Box<dyn Future<Output = Vec<A>> + Send>>;

struct Batch<Q, A> {
    requests: Vec<(Q, oneshot::Sender<A>)>,
    open: bool,
}

impl<Q, A> Batcher<Q, A> {
    fn batch(&self) -> MutexGuard<'_, Batch<Q, A>> {
        self.batch.lock().expect("no panic while holding this")
    }

    /// Counts an answer as awaited until the returned value is dropped.
    pub(super) fn awaits(&self) -> Awaited<'_> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        Awaited(&self.awaited)
    }
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Makes a batcher for a connection on `runtime`; `send` sends a batch over it. Returns `None` if all ready tasks
    /// run before the one that writes.
    pub(super) fn on<F>(runtime: &Handle, send: impl Fn(Vec<Q>) -> F + Send + Sync + 'static) -> Option<Arc<Self>>
    where
        F: Future<Output = Vec<A>> + Send + 'static,
    {
        (runtime.runtime_flavor() == RuntimeFlavor::MultiThread).then(|| {
            Arc::new(Self {
                runtime: runtime.clone(),
                send: Box::new(move |requests| Box::pin(send(requests))),
                batch: Mutex::new(Batch { requests: Vec::new(), open: false }),
                awaited: AtomicUsize::new(0),
            })
        })
    }

    /// Takes a request into the batch, or returns it if it can be sent alone.
    pub(super) fn take(self: &Arc<Self>, request: Q) -> Result<oneshot::Receiver<A>, Q> {
        let mut batch = self.batch();
        if !batch.open && self.awaited.load(Ordering::Relaxed) <= FEW {
            return Err(request);
        }
        let (sender, receiver) = oneshot::channel();
        batch.requests.push((request, sender));
        let first = !mem::replace(&mut batch.open, true);
        drop(batch);
        if first {
            let taking = Flush { batcher: Arc::clone(self), queued: false };
            drop(spawn(&self.runtime, taking.run()));
        }
        Ok(receiver)
    }
}

/// One awaited answer.
pub(super) struct Awaited<'a>(&'a AtomicUsize);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes one batch to the connection. If the runtime's end drops it before, it discards the batch.
struct Flush<Q, A> {
    batcher: Arc<Batcher<Q, A>>,
    queued: bool,
}

impl<Q, A> Flush<Q, A> {
    async fn run(mut self)
    where
        A: Send + 'static,
    {
        // Behind all ready tasks.
        tokio::task::yield_now().await;
        let (mut senders, mut sending) = self.queue();
        let mut gone = 0;
        let answers = poll_fn(|cx| {
            while let Some(sender) = senders.get_mut(gone) {
                if sender.poll_closed(cx).is_pending() {
                    return sending.as_mut().poll(cx);
                }
                gone += 1;
            }
            // No caller waits any more, so the connection is not kept.
            Poll::Ready(Vec::new())
        })
        .await;
        for (sender, answer) in senders.into_iter().zip(answers) {
            drop(sender.send(answer));
        }
    }

    fn queue(&mut self) -> (Vec<oneshot::Sender<A>>, Sending<A>)
    where
        A: Send + 'static,
    {
        let mut batch = self.batcher.batch();
        (batch.open, self.queued) = (false, true);
        let wanted = mem::take(&mut batch.requests).into_iter().filter(|(_, sender)| !sender.is_closed());
        let (requests, senders): (Vec<_>, Vec<_>) = wanted.unzip();
        (senders, begun((self.batcher.send)(requests)))
    }
}

impl<Q, A> Drop for Flush<Q, A> {
    fn drop(&mut self) {
        if !self.queued {
            let mut batch = self.batcher.batch();
            let requests = mem::take(&mut batch.requests);
            batch.open = false;
            drop(batch);
            drop(requests);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use harness::{LIMIT, eventually};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    /// Returns a runtime whose only thread is busy until released.
    fn busy() -> (Runtime, Sender<()>) {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (release, held) = channel();
        let (begun, busy) = channel();
        runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = held.recv();
        });
        busy.recv_timeout(LIMIT).unwrap();
        (runtime, release)
    }

    /// Makes a batcher that answers a number with itself, and reports each batch.
    fn numbers(runtime: &Runtime) -> (Arc<Batcher<u32, u32>>, Receiver<Vec<u32>>) {
        let (tell, sent) = channel();
        let echo = move |requests: Vec<u32>| {
            tell.send(requests.clone()).unwrap();
            std::future::ready(requests)
        };
        (Batcher::on(runtime.handle(), echo).unwrap(), sent)
    }

    #[test]
    fn few_requests_go_by_themselves_and_many_go_together_in_order() {
        let (runtime, release) = busy();
        let (batcher, sent) = numbers(&runtime);
        let _few = [(); FEW].map(|()| batcher.awaits());
        assert_eq!(batcher.take(1).unwrap_err(), 1);
        let another = batcher.awaits();
        let mut answers: Vec<_> = [2, 3].map(|request| batcher.take(request).unwrap()).into();
        drop(another);
        answers.push(batcher.take(4).expect("it must not get ahead of those in the batch"));
        release.send(()).unwrap();
        assert_eq!(sent.recv_timeout(LIMIT).unwrap(), [2, 3, 4]);
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.blocking_recv().unwrap()).collect();
        assert_eq!(answers, [2, 3, 4]);
        assert_eq!(batcher.take(5).unwrap_err(), 5, "the batch is closed");
        assert!(sent.try_recv().is_err(), "it was sent twice");
    }

    #[test]
    fn what_nobody_wants_any_more_is_left_out() {
        let (runtime, release) = busy();
        let (batcher, sent) = numbers(&runtime);
        let _awaited = [(); FEW + 1].map(|()| batcher.awaits());
        let [kept, gone] = [1, 2].map(|request| batcher.take(request).unwrap());
        drop(gone);
        release.send(()).unwrap();
        assert_eq!(sent.recv_timeout(LIMIT).unwrap(), [1]);
        assert_eq!(kept.blocking_recv().unwrap(), 1);
    }

    #[test]
    fn a_bundle_of_which_nobody_wants_anything_any_more_is_let_go() {
        struct Told(Sender<()>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let ((tell, sent), (over, dropped)) = (channel(), channel());
        let hang = move |_: Vec<u32>| {
            tell.send(()).unwrap();
            let told = Told(over.clone());
            async move {
                std::future::pending::<()>().await;
                drop(told);
                Vec::<u32>::new()
            }
        };
        let batcher = Batcher::on(runtime.handle(), hang).unwrap();
        let _awaited = [(); FEW + 1].map(|()| batcher.awaits());
        let answer = batcher.take(1).unwrap();
        sent.recv_timeout(LIMIT).unwrap();
        assert!(dropped.try_recv().is_err());
        drop(answer);
        dropped.recv_timeout(LIMIT).unwrap();
    }

    #[test]
    fn what_is_in_a_bundle_at_the_end_of_its_runtime_gets_no_answer() {
        let (runtime, release) = busy();
        let batcher = Batcher::<u32, u32>::on(runtime.handle(), |_| std::future::pending()).unwrap();
        let _awaited = [(); FEW + 1].map(|()| batcher.awaits());
        let before = batcher.take(1).unwrap();
        runtime.shutdown_background();
        let after = batcher.take(2).unwrap();
        drop(release);
        for mut answer in [before, after] {
            eventually("it is let go", || answer.try_recv() == Err(TryRecvError::Closed));
        }
        let mut later = batcher.take(3).unwrap();
        eventually("nobody comes for it", || later.try_recv() == Err(TryRecvError::Closed));
    }

    #[test]
    fn one_thread_needs_no_bundles() {
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(Batcher::<(), ()>::on(runtime.handle(), |_| async { Vec::new() }).is_none());
    }
}
