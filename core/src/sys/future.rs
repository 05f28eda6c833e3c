//! Small pieces of waiting that many files need.

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// Polls `future` once, which makes a request take its place in its connection's order, and returns what is left of it.
pub(crate) fn begun<T: Send + 'static>(
    mut future: Pin<Box<dyn Future<Output = T> + Send>>,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => future,
        Poll::Ready(output) => Box::pin(ready(output)),
    }
}

/// Waits until `check` returns a value, which is asked now and after each notification. Cancel safe.
pub(crate) async fn notified_until<T>(changed: &Notify, mut check: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(changed.notified());
        // Before the check: a change between the two must not be missed.
        notified.as_mut().enable();
        if let Some(value) = check() {
            return value;
        }
        notified.await;
    }
}
