//! The completion queue of one environment.

use napi::bindgen_prelude::{Either, Either3, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;
use redlock::Error;
use redlock::bindings::completion_queue::{Ready, Taken};
use redlock::bindings::options::millis;

use crate::client::{Client, Name, View, bytes};
use crate::convert::number;
use crate::error::Failure;
use crate::lock::Holder;
use crate::options::{Timeout, timeout};

/// Calls that run in the background and what became of them. One per environment: a worker thread has its own.
#[derive(Debug)]
#[napi]
pub struct Queue(redlock::bindings::completion_queue::Queue);

/// The id of a call that was started, or why none was.
#[napi]
pub type Started = Either<i64, Failure>;

#[napi]
impl Queue {
    /// `wake` is called soon after results are there; one call may stand for many results.
    #[napi(constructor, catch_unwind)]
    pub fn new(wake: Function<'_, (), ()>) -> napi::Result<Self> {
        crate::shut_down_at_exit();
        // Weak: an idle queue must not keep the process alive.
        let wake = wake.build_threadsafe_function::<()>().weak::<true>().build()?;
        Ok(Self(redlock::bindings::completion_queue::Queue::new(move || {
            // An environment that is ending has nobody left to wake.
            let _ = wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        })))
    }

    /// Starts an acquire.
    #[napi(catch_unwind)]
    pub fn acquire(&self, holder: &Holder, given: Timeout) -> Started {
        started(timeout(given).and_then(|timeout| self.0.acquire(&holder.0, timeout)))
    }

    /// Starts an extend, by the ttl in force unless one is given.
    #[napi(catch_unwind)]
    pub fn extend(&self, holder: &Holder, ttl: Option<f64>) -> Started {
        let ttl = ttl.map(|ttl| millis("ttl", ttl)).transpose();
        started(ttl.and_then(|ttl| self.0.extend(&holder.0, ttl)))
    }

    /// Starts a release.
    #[napi(catch_unwind)]
    pub fn release(&self, holder: &Holder) -> Started {
        started(self.0.release(&holder.0))
    }

    /// Starts the release at the end of a block, which fails only where the lock was lost.
    #[napi(catch_unwind)]
    pub fn leave(&self, holder: &Holder) -> Started {
        started(self.0.leave(&holder.0))
    }

    /// Starts a look at a name on every node.
    #[napi(catch_unwind)]
    pub fn inspect(&self, client: &Client, name: Name) -> Started {
        started(self.0.inspect(&client.0, bytes(&name)))
    }

    /// An id that becomes ready each time the holder loses the lock, and once more when the holder is gone.
    #[napi(catch_unwind)]
    pub fn watch(&self, holder: &Holder) -> i64 {
        number(self.0.watch(&holder.0))
    }

    /// Ends a call and leaves no key behind. Harmless where there is no such call.
    #[napi(catch_unwind)]
    pub fn cancel(&self, id: i64) {
        self.0.cancel(call(id));
    }

    /// The ids that became ready; negative where the call did what it was asked to do, so that there is nothing to take.
    #[napi(catch_unwind)]
    pub fn drain(&self) -> Vec<i64> {
        self.0.drain(|| ()).into_iter().map(Ready::signed).collect()
    }

    /// Takes the result of a call that is ready: null where there is nothing more to say, `again` where the call goes
    /// on and the id becomes ready once more, `gone` where there is no such call.
    #[napi(catch_unwind, ts_return_type = "null | 'again' | 'gone' | Array<View> | Failure")]
    pub fn take(&self, id: i64) -> Option<Either3<&'static str, Vec<View>, Failure>> {
        match self.0.take(call(id)) {
            Ok(Taken::Done) => None,
            Ok(Taken::Views(views)) => Some(Either3::B(views.into_iter().map(View::from).collect())),
            Ok(Taken::Again) => Some(Either3::A("again")),
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

/// No call has a negative id, so a wrong one becomes one that does not exist either.
fn call(id: i64) -> u64 {
    u64::try_from(id).unwrap_or(u64::MAX)
}
