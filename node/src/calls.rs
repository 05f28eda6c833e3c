//! The completion queue of one environment.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{Either, Either3, Function, Object};
use napi_derive::napi;
use redlock::Error;
use redlock::bindings::completion_queue::{Completion, Taken};
use redlock::bindings::options::Unit;

use crate::client::{Client, Name, View, bytes};
use crate::convert::number;
use crate::error::Failure;
use crate::lock::Holder;
use crate::options::{Timeout, read_timeout};
use crate::wake::Wake;

/// Calls in the background, and their results. One queue per environment: each worker thread has its own.
#[derive(Debug)]
#[napi]
pub struct Queue(redlock::bindings::completion_queue::Queue, Arc<Wake>);

/// The id of the started call, or the reason why it could not start.
#[napi]
pub type Started = Either<i64, Failure>;

#[napi]
impl Queue {
    /// Makes a queue that calls `wake` soon after calls became ready. One wake-up may stand for many calls. `resource`
    /// stands for it in `async_hooks`.
    #[napi(constructor, catch_unwind)]
    pub fn new(env: Env, wake: Function<'_, (), ()>, resource: Object<'_>) -> napi::Result<Self> {
        crate::shut_down_at_exit();
        let wake = Arc::new(Wake::new(env, wake, resource)?);
        let waker = Arc::clone(&wake);
        Ok(Self(redlock::bindings::completion_queue::Queue::new(move || waker.call()), wake))
    }

    /// Keeps the process alive, or does so no longer, as at first.
    #[napi(catch_unwind)]
    pub fn keep_alive(&self, env: Env, alive: bool) -> napi::Result<()> {
        self.1.keep_alive(env, alive)
    }

    /// Starts an acquire.
    #[napi(catch_unwind)]
    pub fn acquire(&self, holder: &Holder, timeout: Timeout) -> Started {
        started(read_timeout(timeout).and_then(|timeout| self.0.acquire(&holder.0, timeout)))
    }

    /// Starts an extension to `ttl`, or by the ttl in force.
    #[napi(catch_unwind)]
    pub fn extend(&self, holder: &Holder, ttl: Option<f64>) -> Started {
        let ttl = ttl.map(|ttl| Unit::Millis.duration("ttl", ttl)).transpose();
        started(ttl.and_then(|ttl| self.0.extend(&holder.0, ttl)))
    }

    /// Starts a release.
    #[napi(catch_unwind)]
    pub fn release(&self, holder: &Holder) -> Started {
        started(self.0.release(&holder.0))
    }

    /// Starts a release at the end of a block. The release fails only if the lock was lost.
    #[napi(catch_unwind)]
    pub fn leave(&self, holder: &Holder) -> Started {
        started(self.0.release_at_exit(&holder.0))
    }

    /// Starts an inspection of a name on every node.
    #[napi(catch_unwind)]
    pub fn inspect(&self, client: &Client, name: Name) -> Started {
        started(self.0.inspect(&client.0, bytes(&name)))
    }

    /// Starts to ask the nodes whether anybody holds the lock.
    #[napi(catch_unwind)]
    pub fn is_locked(&self, holder: &Holder) -> Started {
        started(self.0.is_locked(&holder.0))
    }

    /// Starts to wait for the end of the current hold. The result is the failure of a loss, or null for a release.
    #[napi(catch_unwind)]
    pub fn wait_lost(&self, holder: &Holder) -> Started {
        started(self.0.wait_lost(&holder.0, None))
    }

    /// Returns an id that becomes ready each time the holder loses the lock, and once more when the holder is dropped.
    #[napi(catch_unwind)]
    pub fn watch(&self, holder: &Holder) -> i64 {
        number(self.0.subscribe_to_losses(&holder.0))
    }

    /// Cancels a call, and leaves no key behind. Does nothing if there is no such call.
    #[napi(catch_unwind)]
    pub fn cancel(&self, id: i64) {
        self.0.cancel(call_number(id));
    }

    /// Returns the ids that became ready. An id is negative if the call succeeded and there is nothing to take.
    #[napi(catch_unwind)]
    pub fn drain(&self) -> Vec<i64> {
        self.0.drain(|| ()).into_iter().map(Completion::signed).collect()
    }

    /// Takes the result of a call that is ready: null if the call succeeded, `locked` or `free` if it asked for that,
    /// `again` if it is not finished and its id becomes ready once more, `gone` if there is no such call.
    #[napi(catch_unwind, ts_return_type = "null | 'again' | 'gone' | 'locked' | 'free' | Array<View> | Failure")]
    pub fn take(&self, id: i64) -> Option<Either3<&'static str, Vec<View>, Failure>> {
        match self.0.take(call_number(id)) {
            Ok(Taken::Completed) => None,
            Ok(Taken::Views(views)) => Some(Either3::B(views.into_iter().map(View::from).collect())),
            Ok(Taken::IsLocked(is_locked)) => Some(Either3::A(if is_locked { "locked" } else { "free" })),
            Ok(Taken::Pending) => Some(Either3::A("again")),
            Ok(_) => Some(Either3::A("gone")),
            Err(error) => Some(Either3::C(error.into())),
        }
    }
}

fn started(id: Result<u64, Error>) -> Started {
    match id {
        Ok(id) => Either::A(number(id)),
        Err(error) => Either::B(error.into()),
    }
}

/// Converts an id from JavaScript. A negative one is wrong, and becomes an id that no call has.
fn call_number(id: i64) -> u64 {
    u64::try_from(id).unwrap_or(u64::MAX)
}
