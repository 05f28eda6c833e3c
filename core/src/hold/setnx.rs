//! The older SETNX protocol, on one node, for a key that is shared with code which still uses it.
//!
//! The key's value is the Unix second up to which it is held, and nothing else: two owners within one second write the
//! same value. So no message can name the key's owner, and none may be executed twice.
//!
//! A *try* is *opening* (no connection) → *asking* (the script was sent, once) → *won* or *lost*. It runs in the
//! background, which drives its connection even if the caller goes. The caller waits for its outcome. What may
//! interrupt each await:
//!
//! - the caller goes while it is opening: the script is not sent;
//! - the caller goes while it is asking, or the node is silent for `node_timeout` (the caller then receives a lost
//!   try): the background still awaits the answer, and releases a grant;
//! - the connection breaks while it is asking: whether the node granted is unknown, and a key is left to expire;
//! - the process forks: the try stays with the parent;
//! - the process ends: it waits for the answer for a moment, as for a release.
//!
//! A [`Grant`] is *kept* → *releasing* (no connection) → *released* (the script was sent, once). Dropped while it is
//! kept, it is released in the background. What may interrupt each await:
//!
//! - the caller goes: the release goes on in the background;
//! - no connection can be made: the caller receives that failure, and the release is sent once there is one, unless the
//!   key has expired by then, or the node has restarted: it may have lost the key, which may be the next owner's then;
//! - the node is silent, or the connection breaks, once it was sent: the caller receives that failure. It is never sent
//!   again, because it could then delete the next owner's key.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{AnswerKind, Error, ErrorKind, LostReason, NodeAnswer};
use crate::hold::outcome::{Loss, Outcome, Won};
use crate::net::ballots::{self, Ballots, NoQuorum, precheck};
use crate::net::connections::{Connections, Via};
use crate::net::round::Round;
use crate::node::Connection;
use crate::process::context::LockContext;
use crate::process::shutdown::PendingWork;
use crate::protocol::backoff;
use crate::protocol::quorum::{self, Vote};
use crate::protocol::request::{Action, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;
use crate::sys::future::unless;
use crate::transport::failure::Failure;

/// The one node.
const NODE: usize = 0;

/// The most that a key outlives its ttl: its value counts whole seconds.
const WHOLE_SECONDS: Duration = Duration::from_secs(3);

/// Runs one try in the background. Uses `connections` if they are tracking, so that the node reports the key's next
/// change. The vote ends after `node_timeout`, or at `limit` if sooner.
pub(crate) async fn attempt(context: &LockContext, connections: &Arc<Connections>, limit: Moment) -> Outcome<Grant> {
    let (caller, outcome) = oneshot::channel();
    let connections = connections.is_tracking().then(|| Arc::clone(connections));
    context.process.background.spawn(ask(context.clone(), connections, limit, caller));
    outcome.await.unwrap_or_else(|_| {
        let mut ballots = Ballots::new(1);
        ballots
            .fail(NODE, Failure::Unreachable("the redlock background thread stopped before the call finished".into()));
        Err(NoQuorum::Lost(ballots.into()))
    })
}

/// Runs the background's part of a try.
async fn ask(
    context: LockContext,
    connections: Option<Arc<Connections>>,
    limit: Moment,
    mut caller: oneshot::Sender<Outcome<Grant>>,
) {
    let settings = &context.spec.settings;
    let connections = connections.unwrap_or_else(|| context.set().connections(&Handle::current()));
    connections.discard_if_idle(NODE);
    let connected = connections.connect_quorum(connections.connect_limit().min(limit));
    if unless(caller.closed(), connected).await.is_err() {
        return;
    }
    if let Err(impossible) = precheck(&connections, settings.restart_delay) {
        drop(caller.send(Err(impossible)));
        return;
    }
    let _pending_work = PendingWork::new(&context.process.shutdown);
    let mut round = Round::untraced(&connections, settings.node_timeout, limit);
    let start = round.started;
    round.ask(NODE, request(&context, Action::SetnxAcquire { ttl: settings.ttl }), None);
    let mut caller = Some(caller);
    loop {
        let mut ballots = Ballots::new(1);
        match round.next().await {
            Some((_, answer)) => {
                let outcome = judge(&context, &connections, start, answer, ballots);
                if let Some(caller) = caller {
                    // A grant that nobody receives is dropped, which releases it.
                    let _ = caller.send(outcome);
                }
                return;
            }
            None if round.is_idle() => return,
            None => {
                ballots.complete = !round.is_cut();
                ballots.ended = connections.clock.now();
                ballots.took = ballots.ended.since(start);
                ballots.fail(NODE, round.silence(NODE));
                round.wait_for_all();
                if let Some(caller) = caller.take() {
                    let _ = caller.send(Err(NoQuorum::Lost(ballots.into())));
                }
            }
        }
    }
}

/// Judges the answer to a try that began at `start`.
fn judge(
    context: &LockContext,
    connections: &Connections,
    start: Moment,
    answer: Result<Reply, Failure>,
    mut ballots: Ballots,
) -> Outcome<Grant> {
    let settings = &context.spec.settings;
    match answer {
        Ok(Reply::GrantedUntil(expiry)) => {
            let now = connections.clock.now();
            let grant = Grant::new(context, expiry, now);
            let valid_until = quorum::valid_until(start, settings.ttl, settings.margin, None);
            if now < valid_until && connections.members.health.counts(settings.restart_delay, now).contains(NODE) {
                // No fence, and no renewal to spread.
                let won = Won { acquired: start, asked: start, kept: settings.ttl, valid_until, ..Won::default() };
                return Ok((grant, won));
            }
            ballots.votes[NODE] = Vote::Granted(0);
        }
        Ok(Reply::Held { ttl_left, .. }) => {
            ballots.votes[NODE] = Vote::Held;
            (ballots.ttl_left, ballots.ended) = (ttl_left, connections.clock.now());
        }
        Ok(_) => ballots.fail(NODE, Failure::UnexpectedReply),
        Err(failure) => ballots.fail(NODE, failure),
    }
    ballots::explain(connections, &mut ballots, settings.restart_delay);
    Err(NoQuorum::Lost(ballots.into()))
}

fn request(context: &LockContext, action: Action) -> Request {
    Request { keys: Arc::clone(&context.spec.keys), token: Token::fresh(&context.process.random), action }
}

/// The right to delete the key, once.
#[derive(Debug)]
pub(crate) struct Grant(Option<Box<Inner>>);

#[derive(Debug)]
struct Inner {
    context: LockContext,
    /// The value that the node wrote: up to this Unix second the key is ours.
    expiry: u64,
    granted: Moment,
    /// When it has certainly expired.
    over: Moment,
}

/// The waiting caller of a release; `None` once it was answered, or without one.
type Caller = Option<oneshot::Sender<Result<Reply, Failure>>>;

impl Grant {
    fn new(context: &LockContext, expiry: u64, now: Moment) -> Self {
        let over = now.after(context.spec.settings.ttl + WHOLE_SECONDS);
        Self(Some(Box::new(Inner { context: context.clone(), expiry, granted: now, over })))
    }

    /// Releases the key. Returns the loss, if it was lost before.
    ///
    /// # Errors
    ///
    /// `unavailable` if the node does not answer in time.
    pub(crate) async fn release(mut self) -> Result<Option<Loss>, Error> {
        let (caller, answer) = oneshot::channel();
        let Some(inner) = self.0.take() else { return Ok(None) };
        let context = inner.context.clone();
        inner.start_release(Some(caller));
        let (reason, (kind, answer)) = match answer.await {
            Ok(Ok(Reply::Deleted { .. })) => return Ok(None),
            Ok(Ok(Reply::Late)) => (LostReason::Expired, (AnswerKind::Free, "already expired")),
            Ok(Ok(Reply::Absent)) => (LostReason::Deleted, (AnswerKind::Free, "did not have it")),
            Ok(Ok(Reply::Foreign(_))) => (LostReason::Taken, (AnswerKind::Held, ballots::HELD)),
            Ok(Ok(_)) => return Err(unavailable(&context, &Failure::UnexpectedReply)),
            Ok(Err(failure)) => return Err(unavailable(&context, &failure)),
            Err(_) => return Err(unavailable(&context, &Failure::Closed)),
        };
        let nodes = vec![NodeAnswer { node: context.address(NODE), kind, answer: answer.to_owned() }];
        Ok(Some(Loss { reason, nodes }))
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(inner) = self.0.take() else { return };
        if inner.context.process.is_foreign() {
            // The parent still holds the lock, and its sockets must not be touched.
            std::mem::forget(inner);
            return;
        }
        inner.start_release(None);
    }
}

impl Inner {
    fn start_release(self: Box<Self>, caller: Caller) {
        let process = Arc::clone(&self.context.process);
        let pending_work = PendingWork::new(&process.shutdown);
        process.background.spawn(async move {
            self.release(caller).await;
            drop(pending_work);
        });
    }

    /// Sends the release, once.
    async fn release(&self, mut caller: Caller) {
        let connections = self.context.set().connections(&Handle::current());
        let Some(connection) = self.connect(&connections, &mut caller).await else { return };
        if self.has_restarted(&connections) {
            return tell(&mut caller, Err(Failure::Closed));
        }
        let time = self.context.spec.settings.release_timeout();
        let mut round = Round::untraced(&connections, time, Moment::NEVER);
        let action = Action::SetnxRelease { expiry: self.expiry };
        round.ask(NODE, request(&self.context, action), Some(Via::unwatched(connection)));
        loop {
            match round.next().await {
                Some((_, answer)) => tell(&mut caller, answer),
                None if round.is_idle() => return,
                None => {
                    // Dropping the round could remove it from the connection's queue.
                    round.wait_for_all();
                    tell(&mut caller, Err(Failure::Silent(time)));
                }
            }
        }
    }

    /// Whether the node is known to have restarted since the grant.
    fn has_restarted(&self, connections: &Connections) -> bool {
        let now = connections.clock.now();
        !connections.members.health.counts(now.since(self.granted), now).contains(NODE)
    }

    /// Returns a connection for the release as soon as there is one, or `None` if the key has expired.
    async fn connect(&self, connections: &Arc<Connections>, caller: &mut Caller) -> Option<Connection> {
        connections.discard_if_idle(NODE);
        connections.connect_quorum(connections.connect_limit()).await;
        for attempt in 0.. {
            match connections.get(NODE, false).await {
                Ok(connection) => return Some(connection),
                Err(failure) => tell(caller, Err(failure)),
            }
            let again = connections.clock.now().after(backoff::release_retry(attempt, self.context.spec.settings.ttl));
            if again >= self.over {
                break;
            }
            connections.clock.sleep_until(again).await;
        }
        None
    }
}

fn tell(caller: &mut Caller, answer: Result<Reply, Failure>) {
    // A caller that has gone does not need it.
    drop(caller.take().map(|caller| caller.send(answer)));
}

fn unavailable(context: &LockContext, failure: &Failure) -> Error {
    let message = "the node did not confirm the release; a release of the protocol setnx is sent once only, and the lock \
                   is free when its time is over at the latest";
    Error::new(ErrorKind::Unavailable, message)
        .with_name(context.spec.name.bytes())
        .with_nodes(vec![failure.of_node(context.address(NODE))])
}
