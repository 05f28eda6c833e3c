//! Small helpers for waiting.

use std::any::Any;
use std::future::{Future, poll_fn, ready};
use std::marker::PhantomData;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use tokio::sync::{Notify, oneshot};
use tokio::task::coop::unconstrained;

use crate::sys::task::Task;

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

/// Lets the tasks go first that are ready. Unlike tokio's yield, it does not look at the sockets before, and tasks that
/// give way go on in order; those of tokio in reverse order.
pub(crate) async fn give_way() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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

/// An output on its way from a task. One type, so that its way is compiled once for all of them.
type Carried = Box<dyn Any + Send>;

/// Awaits the output of a call in a task; `None` if that does not end.
pub(crate) struct Awaited<T>(oneshot::Receiver<Carried>, PhantomData<fn() -> T>);

impl<T: 'static> Future for Awaited<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(cx).map(|carried| carried.ok()?.downcast().ok().map(|output| *output))
    }
}

/// Returns the task that runs `call`, and what awaits its output. The task drops the call if that is dropped.
pub(crate) fn while_awaited<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> (Task, Awaited<T>) {
    let (mut sender, receiver) = oneshot::channel();
    let call: Pin<Box<dyn Future<Output = Carried> + Send>> = Box::pin(async move { Box::new(call.await) as Carried });
    let task = async move {
        if let Ok(output) = unless(sender.closed(), call).await {
            drop(sender.send(output));
        }
    };
    (Box::pin(task), Awaited(receiver, PhantomData))
}

/// Works as [`while_awaited`], but the task runs the call to its end.
pub(crate) fn in_any_case<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> (Task, Awaited<T>) {
    let (sender, receiver) = oneshot::channel();
    (Box::pin(async move { drop(sender.send(Box::new(call.await) as Carried)) }), Awaited(receiver, PhantomData))
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
pub async fn join_all<T: Send, F: Future<Output = T> + Send>(futures: Vec<F>) -> Vec<T> {
    let mut outputs: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut running: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
    for (future, output) in futures.into_iter().zip(&mut outputs) {
        running.push(Box::pin(async move { *output = Some(future.await) }));
    }
    until_ready(running).await;
    outputs.into_iter().flatten().collect()
}

async fn until_ready(mut running: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    poll_fn(|cx| {
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
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
