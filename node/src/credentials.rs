//! Credentials that a function of JavaScript provides.
//!
//! The engine's background calls a provider, and never touches JavaScript. So it leaves a request here, wakes the event
//! loop, and waits for the answer. The event loop takes the request, calls the function, and answers. What may
//! interrupt a request:
//!
//! - The engine gives up after its own limit: the request is removed, and a later answer does nothing.
//! - The environment ends: all requests fail, and so do later ones.
//! - No client or lock with the function is left: the event loop finds it garbage-collected, and answers with a failure.
//!
//! Rust knows a function by its number only, and keeps nothing of JavaScript alive.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{Function, Object};
use napi_derive::napi;
use redlock::bindings::options::Unit;
use redlock::bindings::{Mutex, ProviderError};
use redlock::{Builder, Login, Redlock};
use tokio::sync::oneshot::{self, Receiver, Sender};

use crate::convert::number;
use crate::wake::Wake;

/// The requests for logins in one environment: each worker thread has its own.
#[derive(Debug)]
#[napi]
pub struct LoginRequests(Arc<Requests>);

#[derive(Debug)]
struct Requests {
    wake: Wake,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    last: u64,
    /// The requests that the event loop has not taken yet.
    new: Vec<LoginRequest>,
    unanswered: HashMap<u64, Sender<Answer>>,
}

type Answer = Result<Login, ProviderError>;

/// A request for a login.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct LoginRequest {
    /// The number of the request.
    pub id: i64,
    /// The number of the provider.
    pub provider: i64,
}

#[napi]
impl LoginRequests {
    /// Makes the list, which calls `wake` soon after requests were made. One wake-up may stand for many requests. It
    /// does not keep the process alive. `resource` stands for it in `async_hooks`.
    #[napi(constructor, catch_unwind)]
    pub fn new(env: Env, wake: Function<'_, (), ()>, resource: Object<'_>) -> napi::Result<Self> {
        let wake = Wake::new(env, wake, resource)?;
        Ok(Self(Arc::new(Requests { wake, list: Mutex::default() })))
    }

    /// Takes the new requests.
    #[napi(catch_unwind)]
    pub fn take(&self) -> Vec<LoginRequest> {
        std::mem::take(&mut self.0.list.lock().new)
    }

    /// Answers a request. `expires_in` is in milliseconds.
    #[napi(catch_unwind)]
    pub fn answer(&self, id: i64, username: String, password: String, expires_in: Option<f64>) {
        let login = Login::new(username, password);
        // JavaScript has checked the number.
        let lasts = expires_in.map(|amount| Unit::Millis.duration("expiresIn", amount).unwrap_or(Duration::MAX));
        self.0.settle(id, Ok(lasts.into_iter().fold(login, Login::lasting)));
    }

    /// Answers a request with a failure. `kind` is shown, and `thrown` is the number of what the provider threw.
    #[napi(catch_unwind)]
    pub fn fail(&self, id: i64, kind: String, thrown: Option<i64>) {
        let shown = thrown.map(|_| format!("the credentials provider failed: {kind}"));
        self.0.settle(id, Err(ProviderError::named(&kind, NoLogin { thrown, shown: shown.unwrap_or_else(gone) })));
    }
}

/// A provider of logins. Clients with the same one share their logins.
#[derive(Debug)]
#[napi]
pub struct Provider(Builder);

#[napi]
impl Provider {
    /// Makes a provider, which is asked by requests with this number.
    #[napi(constructor, catch_unwind)]
    pub fn new(requests: &LoginRequests, provider: i64) -> Self {
        let requests = Arc::downgrade(&requests.0);
        Self(Redlock::builder().credentials(move || login(&requests, provider)))
    }

    /// Returns a builder for a client with this provider.
    pub(crate) fn builder(&self) -> Builder {
        self.0.clone()
    }
}

/// Requests a login, and waits for the answer.
fn login(requests: &Weak<Requests>, provider: i64) -> impl Future<Output = Answer> + Send + use<> {
    let request = requests.upgrade().map(|requests| requests.add(provider));
    async move {
        let gone = || ProviderError::named("its thread has ended", NoLogin { thrown: None, shown: gone() });
        let mut request = request.ok_or_else(gone)?;
        (&mut request.answer).await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Requests {
    fn add(self: &Arc<Self>, provider: i64) -> Unanswered {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut list = self.list.lock();
            list.last += 1;
            let id = list.last;
            list.new.push(LoginRequest { id: number(id), provider });
            list.unanswered.insert(id, sender);
            id
        };
        self.wake.call();
        Unanswered { requests: Arc::downgrade(self), id, answer }
    }

    fn settle(&self, id: i64, answer: Answer) {
        let sender = u64::try_from(id).ok().and_then(|id| self.list.lock().unanswered.remove(&id));
        if let Some(sender) = sender {
            drop(sender.send(answer));
        }
    }
}

/// A request that the engine waits for. Dropping it removes the request.
struct Unanswered {
    requests: Weak<Requests>,
    id: u64,
    answer: Receiver<Answer>,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(requests) = self.requests.upgrade() {
            let mut list = requests.list.lock();
            list.new.retain(|request| request.id != number(self.id));
            let sender = list.unanswered.remove(&self.id);
            drop(list);
            drop(sender);
        }
    }
}

/// Why a request is sent without a login.
#[derive(Clone, Debug)]
pub(crate) struct NoLogin {
    /// The number by which JavaScript keeps what the provider threw; `None` if it was not called.
    pub(crate) thrown: Option<i64>,
    shown: String,
}

impl fmt::Display for NoLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl StdError for NoLogin {}

fn gone() -> String {
    "the credentials provider is gone".to_owned()
}
