//! Leader election: a lock without a timeout, and a body that runs while it is held.
//!
//! States of one candidate: *campaigning* (waits for the lock), *leading* (its body runs), then *over* (the body has
//! returned, or the election was stopped). After a loss it campaigns again, once its body has ended. What may interrupt
//! each await:
//!
//! - The future of `run` is dropped: a campaign is cancelled, and a body is dropped before its lock is released.
//! - The election is stopped: the same, and `run` returns.
//! - The lock is lost: the body is dropped at its current await. With a margin, that is before another can lead.
//! - No quorum answers for 10 s: the campaign begins again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire;
use crate::api::guard::Guard;
use crate::api::inspect::{self, LockView};
use crate::api::session::Session;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::process::context::LockContext;
use crate::process::shutdown::Ending;
use crate::protocol::quorum::LockState;
use crate::protocol::shape::Shape;
use crate::sys::future::unless;

/// An election among all that use its name: at most one candidate leads at any moment.
///
/// It is a lock with this name that a candidate waits for without a timeout. A term is the time of one leader, and its
/// number is the fence of the lock: terms rise, and a resource that refuses smaller numbers is safe from a former leader
/// that does not know yet that it was replaced. [`Election::margin`] is the time that a leader has to stop in.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock::Error> {
/// # let redlock = redlock::Redlock::new("memory://election-example")?;
/// let election = redlock.election("scheduler");
/// let term = election.run(async |guard| guard.fence()).await?;
/// assert!(term.is_some());
/// assert!(election.leader().await?.is_none(), "it has resigned by returning");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nobody leads until an election is run"]
pub struct Election {
    session: Arc<Session>,
    shape: Shape,
    options: Options,
    stopped: Arc<Ending>,
}

/// A leader, as the nodes show it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The label of the leader, by default `host:pid`; `None` if it has none.
    pub label: Option<String>,
    /// The term. With several nodes it is `None`, because each node shows only the fence that it granted.
    pub term: Option<u64>,
}

impl Election {
    pub(crate) fn new(session: Arc<Session>, name: &[u8]) -> Self {
        Self { session, shape: Shape::Term(name.into()), options: Options::default(), stopped: Arc::default() }
    }

    pub(crate) fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    crate::api::setters::candidate_setters!();

    /// Campaigns until it leads, and then runs `body` with the guard of its term. Returns what `body` returned, or
    /// `None` once the election was stopped.
    ///
    /// If the term is lost, `body` is dropped at its current await, and the candidate campaigns again. While no quorum of
    /// nodes answers, it goes on trying. In a task that is spawned, `body` has to own what it uses;
    /// [`Election::campaign`] is for one that borrows.
    ///
    /// # Errors
    ///
    /// - `forbidden`: nodes that refuse the credentials or rights rule out a quorum.
    /// - `unavailable`: the system gives no thread.
    /// - `invalid_argument`: a wrong name or option.
    /// - `closed`: the client is closed, also while `body` runs, or redlock is shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and resigns.
    pub async fn run<T>(&self, mut body: impl AsyncFnMut(&Guard) -> T) -> Result<Option<T>, Error> {
        loop {
            let Some(guard) = self.campaign().await? else { return Ok(None) };
            let led = self.unless_stopped(unless(guard.lost(), body(&guard))).await;
            let is_led_to_the_end = guard.lease().is_held_to_the_end();
            // It resigns, whether the term is over already or not. The background goes on with a release that fails.
            drop(guard.release().await);
            match led {
                Some(Ok(output)) if is_led_to_the_end => return Ok(Some(output)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Campaigns until it leads, and returns the guard of its term, or `None` once the election was stopped. While no
    /// quorum of nodes answers, it goes on trying.
    ///
    /// Releasing or dropping the guard resigns. Stop as soon as [`Guard::lost`] completes, and campaign again;
    /// [`Election::run`] does all of this, and also resigns when the election is stopped.
    ///
    /// # Errors
    ///
    /// As [`Election::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the campaign.
    ///
    /// # Examples
    ///
    /// The body is a plain future, so a task that is spawned may let it borrow:
    ///
    /// ```
    /// # async fn step(_: &[&str], _term: u64) {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://campaign-example")?;
    /// let election = redlock.election("scheduler");
    /// let candidate = tokio::spawn(async move {
    ///     let jobs = vec!["mail", "report"];
    ///     while let Some(guard) = election.campaign().await? {
    ///         tokio::select! {
    ///             error = guard.lost() => println!("{error}"),
    ///             () = step(&jobs, guard.fence()) => return guard.release().await,
    ///         }
    ///     }
    ///     Ok(())
    /// });
    /// candidate.await.expect("no panic")?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn campaign(&self) -> Result<Option<Guard>, Error> {
        self.unless_stopped(self.acquire()).await.transpose()
    }

    /// Ends the election for this candidate and its clones: each `run` resigns and returns `None`, also those that begin
    /// later.
    pub fn stop(&self) {
        self.stopped.start();
    }

    /// Returns whether the election was stopped for this candidate.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.has_started()
    }

    /// Asks the nodes who leads; `None` if no quorum shows a leader. The answer may be out of date when it arrives.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if too few nodes answer to know, `invalid_argument` for a wrong name, `closed` if the
    /// client is closed; `unavailable` also if the system gives no thread.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        inspect::inspect_known(self.context()?).await.map(leader)
    }

    /// Checks its name and options, and returns the context of a call.
    pub(crate) fn context(&self) -> Result<LockContext, Error> {
        self.session.context(&self.shape, &self.options)
    }

    /// Returns the end of the election for this candidate.
    pub(crate) fn stopped(&self) -> &Arc<Ending> {
        &self.stopped
    }

    /// Acquires the lock, however long no quorum answers.
    async fn acquire(&self) -> Result<Guard, Error> {
        loop {
            match acquire::acquire(self.context()?).await {
                Err(error) if is_outage(&error) => {}
                acquired => return acquired.map(Guard::new),
            }
        }
    }

    /// Returns the output of `call`, or `None` if the election is stopped first.
    async fn unless_stopped<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        unless(self.stopped.wait_started(), call).await.ok()
    }
}

/// Returns whether a campaign goes on after `error`: no quorum of nodes answered. Without their answers, the reason is in
/// this process.
pub(crate) fn is_outage(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && !error.nodes().is_empty()
}

/// Returns the leader that a view shows.
pub(crate) fn leader(view: LockView) -> Option<Leader> {
    let term = view.fence.filter(|_| view.nodes.len() == 1);
    (view.state == LockState::Held).then_some(Leader { label: view.label, term })
}
