//! A call to acquire that attaches a detached lock: its attempts re-key, and it ends in a held lock like any other.
//!
//! States: *opening* → *asking* (one try of an [`Attachment`], which keys back what it cannot have) → *won*, *lost*, or
//! *unknown*. After that the call tries again with another token, until its timeout. If it fails then, the text can be
//! attached again. While keys are on their way back, a try that is *lost* counts as *unknown*. What may interrupt each
//! await:
//!
//! - dropped while opening: no request was sent;
//! - dropped later, or won but not received: the attachment keys back in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::acquire::{Acquire, Step, UNAVAILABLE_AFTER};
use crate::error::{Error, ErrorKind};
use crate::hold::attach::{Attachment, Try};
use crate::hold::extend;
use crate::hold::lease::Lease;
use crate::hold::owner::LeaseOwner;
use crate::net::ballots::{KeyBallots, NoQuorum, precheck};
use crate::net::connections::Connections;
use crate::process::context::Following;
use crate::protocol::backoff;
use crate::protocol::detached::Detached;
use crate::sys::clock::Moment;

impl Acquire {
    /// Makes one try to attach the lock, and again where it has moved.
    pub(super) async fn attach(
        &mut self,
        connections: &Arc<Connections>,
        detached: &Arc<Detached>,
    ) -> Result<Step, Error> {
        let limit = self.limit_before(1);
        let mut tried = self.attach_on(connections, detached, limit).await?;
        if matches!(&tried, Try::Unknown(ballots) if ballots.saw_closed()) && connections.clock.now() < limit {
            // A closed idle connection says nothing about the lock: retries at once, with a fresh token.
            tried = self.attach_on(connections, detached, limit).await?;
        }
        let mut way = Following::new(connections, limit);
        while matches!(tried, Try::Unknown(_)) && way.moves_on(&self.context) {
            tried = self.attach_on(&way.connections, detached, limit).await?;
        }
        match tried {
            Try::Won(won) => {
                Ok(Step::Won(LeaseOwner::new(Lease::new(self.context.clone(), *won, self.meter.of_hold()))))
            }
            Try::Lost(reason, nodes) => {
                Err(Error::lost(reason).with_name(self.context.spec.name.bytes()).with_nodes(nodes))
            }
            Try::Unknown(ballots) => self.attach_later(&way.connections, &ballots),
        }
    }

    /// Decides the step after a try without a quorum.
    fn attach_later(&self, connections: &Arc<Connections>, ballots: &KeyBallots) -> Result<Step, Error> {
        let now = connections.clock.now();
        let is_endless = self.context.spec.settings.timeout.is_none();
        let is_over = now >= self.deadline || is_endless && now.since(self.meter.began) >= UNAVAILABLE_AFTER;
        let error = if ballots.is_forbidden() {
            let message = "a quorum of nodes refuses these credentials or rights; check user, password and ACL";
            Error::new(ErrorKind::Forbidden, message)
        } else if is_over || self.is_one_try() {
            let message = "no quorum of nodes answered, so the lock is not attached; try again with the same text";
            Error::new(ErrorKind::Unavailable, message)
        } else {
            let pause = backoff::unavailable(self.attempts, self.context.process.random.unit());
            return Ok(Step::Later(pause.min(self.deadline.since(now))));
        };
        let nodes = ballots.answers(&connections.members, extend::describe);
        Err(error.with_name(self.context.spec.name.bytes()).with_nodes(nodes))
    }

    /// Asks the nodes of `connections` once.
    async fn attach_on(
        &self,
        connections: &Arc<Connections>,
        detached: &Arc<Detached>,
        limit: Moment,
    ) -> Result<Try, Error> {
        let connect_by = connections.connect_limit().min(limit);
        connections.connect_quorum(connect_by).await;
        // A node in quarantine has the key only if it has not forgotten it.
        if let Err(NoQuorum::Indistinct(ballots)) = precheck(connections, Duration::ZERO) {
            return Err(self.indistinct(&ballots));
        }
        let attachment = Attachment::new(&self.context, detached);
        Ok(attachment.ask(connections, connect_by, (limit, self.limit)).await)
    }

    /// Tries in the background until the lock is attached, or the call fails.
    pub(super) async fn attach_in_background(&mut self, mut pause: Duration) -> Result<LeaseOwner, Error> {
        loop {
            self.context.process.clock.sleep(pause).await;
            let connections = self.context.set().connections(&Handle::current());
            match self.attempt(&connections).await? {
                Step::Won(owner) => return Ok(owner),
                Step::Denied(_, next) | Step::Later(next) => pause = next,
            }
        }
    }
}
