//! Small helpers for waiting.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use tokio::sync::{Notify, oneshot};
use tokio::task::coop::unconstrained;

/// Returns the waker for a poll that no task waits behind. Unlike [`Waker::noop`], it is the same one everywhere, so
/// [`Waker::will_wake`] recognises it. It may recognise [`Waker::noop`] too, depending on how the program was compiled.
pub(crate) fn idle_waker() -> &'static Waker {
    static IDLE: LazyLock<Waker> = LazyLock::new(|| Waker::noop().clone());
    &IDLE
}

/// Polls for the task behind `waker`, whatever the current one has left of its budget. Without a budget, tokio answers
/// that nothing is ready and wakes the task later. A runtime of one thread forgets to, if its own future is ready first.
pub(crate) fn poll_for<T>(waker: &Waker, poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    pin!(unconstrained(poll_fn(poll))).poll(&mut Context::from_waker(waker))
}

/// Runs `body`. Drops it at its current await as soon as `end` completes.
pub(crate) async fn unless<T, E>(end: impl Future<Output = E>, body: impl Future<Output = T>) -> Result<T, E> {
    let (mut end, mut body) = (pin!(end), pin!(body));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(end) => Poll::Ready(Err(end)),
        Poll::Pending => body.as_mut().poll(cx).map(Ok),
    })
    .await
}

/// Returns the task that runs `call`, and the receiver of its output. The task drops the call if the receiver is dropped.
pub(crate) fn while_awaited<T>(call: impl Future<Output = T>) -> (impl Future<Output = ()>, oneshot::Receiver<T>) {
    let (mut sender, receiver) = oneshot::channel();
    let task = async move {
        let ended = unless(sender.closed(), pin!(call)).await;
        if let Ok(output) = ended {
            drop(sender.send(output));
        }
    };
    (task, receiver)
}

/// Polls `future` once, which fixes a request's position in its connection's order, and returns the rest of it.
pub(crate) fn begun<T: Send + 'static>(
    mut future: Pin<Box<dyn Future<Output = T> + Send>>,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    match future.as_mut().poll(&mut Context::from_waker(idle_waker())) {
        Poll::Pending => future,
        Poll::Ready(output) => Box::pin(ready(output)),
    }
}

/// Runs `futures` together, and returns their outputs in order. Each is first polled in order, too.
pub async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|cx| {
        for (future, output) in &mut running {
            if let Some(Poll::Ready(ready)) = future.as_mut().map(|future| future.as_mut().poll(cx)) {
                (*future, *output) = (None, Some(ready));
            }
        }
        if running.iter().all(|(future, _)| future.is_none()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

/// Waits until `check` returns a value. Calls it now and after each notification. Cancel safe.
pub(crate) async fn notified_until<T>(changed: &Notify, mut check: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(changed.notified());
        // Before the check, so that no change between the two is missed.
        notified.as_mut().enable();
        if let Some(value) = check() {
            return value;
        }
        notified.await;
    }
}
