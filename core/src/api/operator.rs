//! What operators need, and programs that stand in for them: the release of somebody else's lock.
//!
//! A *holding* is what the nodes had under a lock's keys at one moment, with the proofs of ownership. Its release deletes
//! only what has one of these proofs, so it never touches a later owner. It may be dropped at any await: what was sent
//! is executed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::api::client::Redlock;
use crate::api::inspect::{self, LockView, NodeState, Question, is_decided, unknown, view};
use crate::error::{AnswerKind, Error, ErrorKind, NodeAnswer};
use crate::net::ballots::HELD;
use crate::process::context::LockContext;
use crate::protocol::quorum::{LockState, quorum};
use crate::protocol::request::{Action, KeyState, Proof, Reply, Request};
use crate::protocol::shape::PERMITS_MOST;
use crate::protocol::token::Token;
use crate::texts::opaque;
use crate::transport::failure::Failure;

impl Redlock {
    /// Deletes a lock that somebody else holds, or with a `slot` this one of a semaphore. Returns whose it was, or `None` if
    /// it was free, or has changed hands meanwhile: a new holder keeps it. The fence stays, so that the next holder's is
    /// larger, and waiters are woken.
    ///
    /// For an operator: the former holder learns of it at its next renewal, within a third of its ttl, as a loss with the
    /// reason `deleted`, or `taken` if another one holds the lock by then. It may still be at work until then. A shared
    /// lock is not deleted. To release a lock of its own, a program uses its guard. Cancel safe: what was sent is executed.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if no quorum of nodes confirms it; `invalid_argument` for a wrong name or slot, for a
    /// shared lock, and for a key that is not a lock; `closed` if the client is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://break-example")?;
    /// let stuck = redlock.lock("job").label("worker 7").acquire().await?;
    /// let broken = redlock.break_lock("job", None).await?;
    /// assert_eq!(broken.and_then(|view| view.label).as_deref(), Some("worker 7"));
    /// assert!(redlock.lock("job").try_acquire().await?.is_some_and(|guard| guard.fence() > stuck.fence()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn break_lock(&self, name: impl AsRef<[u8]>, slot: Option<u32>) -> Result<Option<LockView>, Error> {
        let (client, name) = (self.clone(), name.as_ref().to_vec());
        self.somewhere(async move { break_lock(&client, &name, slot).await }).await
    }

    /// Runs `call` on the caller's tokio runtime, or else in the background.
    pub(crate) async fn somewhere<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (_, listed) = self.session().nodes()?;
        listed.somewhere(call).await?
    }
}

/// What the nodes had under a lock's keys, and how to delete just that.
#[doc(hidden)]
pub struct Holding {
    /// What they show.
    pub view: LockView,
    context: LockContext,
    /// One for each owner, also of a minority.
    proofs: Vec<Proof>,
}

opaque!(Holding);

/// What became of a holding that was to be released.
#[doc(hidden)]
#[derive(Debug)]
pub enum Removal {
    /// A quorum of nodes does not have it any more, and some of them had it until now.
    Released {
        /// The number of nodes that deleted it.
        nodes: usize,
        /// The number that wait for the lock.
        waiting: u32,
        /// The nodes that did not answer: they may keep it until it expires.
        unanswered: Vec<NodeAnswer>,
    },
    /// It had expired, or was released, before.
    Gone,
    /// Another owner has the lock now, and keeps it.
    Changed {
        /// The number of nodes that still had the earlier owner's key, and deleted it.
        nodes: usize,
    },
}

/// Deletes a lock, or a slot of a semaphore, whoever holds it; see
/// [`Redlock::break_lock`](crate::Redlock::break_lock).
pub(crate) async fn break_lock(redlock: &Redlock, name: &[u8], slot: Option<u32>) -> Result<Option<LockView>, Error> {
    let held = holding(redlock, name, slot).await?;
    if !held.is_held() {
        return Ok(None);
    }
    if let Some(why) = held.is_kept() {
        return Err(Error::about("name", format!(" is {:?}, but {why}", held.view.name)).with_name(name));
    }
    Ok(match held.release().await? {
        Removal::Released { .. } => Some(held.view),
        Removal::Gone | Removal::Changed { .. } => None,
    })
}

/// Reads what the nodes have under the keys of this lock, or of this slot of a semaphore.
///
/// # Errors
///
/// `invalid_argument` for a wrong name; `unavailable` or `forbidden` if no quorum of nodes could be asked, or those that
/// have no key do not count.
#[doc(hidden)]
pub async fn holding(redlock: &Redlock, name: &[u8], slot: Option<u32>) -> Result<Holding, Error> {
    if let Some(slot) = slot.filter(|slot| *slot >= PERMITS_MOST) {
        return Err(Error::about("slot", format!(" is {slot}, but must be from 0 to {}", PERMITS_MOST - 1)));
    }
    let context = redlock.session().context_of_one(name, slot)?;
    let question = Question { time: time(&context), ..Question::of_all(&context, Action::Read) };
    let mut answers = inspect::ask(&context, question).await?;
    let mut proofs: Vec<Proof> = Vec::new();
    for seen in answers.iter_mut().flatten() {
        proofs.extend(seen.proof.take().map(|proof| *proof).filter(|proof| !proofs.contains(proof)));
    }
    let seen = || answers.iter().flatten();
    let is_anybodys = seen().any(|seen| seen.state != KeyState::Free);
    if seen().count() < quorum(answers.len()) || !is_anybodys && !is_decided(&context, &answers) {
        return Err(unknown(&context, &answers));
    }
    let view = LockView { slot, ..view(&context, answers) };
    Ok(Holding { view, context, proofs })
}

impl Holding {
    /// Whether a key of somebody is on some node.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.proofs.is_empty() || self.is_data()
    }

    /// Whether the key is not a string, and so not a lock of any library that is known here.
    fn is_data(&self) -> bool {
        self.proofs.is_empty() && self.view.state != LockState::Free
    }

    /// Returns why it is not deleted, if it is nobody's alone.
    #[must_use]
    pub fn is_kept(&self) -> Option<&'static str> {
        let is_shared = self.view.nodes.iter().any(|node| matches!(node.state, NodeState::Shared { .. }));
        let shared = "readers share it, and each of them ends with its own ttl";
        let why = if is_shared { shared } else { "its key is not a string, so it is not a lock" };
        self.is_data().then_some(why)
    }

    /// Deletes it from all nodes, where it is still what it was.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if too few nodes answered to know whether it is gone.
    pub async fn release(&self) -> Result<Removal, Error> {
        let mut all = vec![Ok(Reply::Absent); self.view.nodes.len()];
        for proof in &self.proofs {
            let answers = inspect::ask(&self.context, self.deletion(proof)).await?;
            all = all.into_iter().zip(answers).map(|(one, other)| Ok(more(one?, other?))).collect();
        }
        self.judge(&all)
    }

    fn deletion(&self, proof: &Proof) -> Question<Reply> {
        let keys = Arc::clone(&self.context.spec.keys);
        let request = match proof {
            Proof::Token(token) => Request { token: *token, action: Action::give_up(&keys, true, None), keys },
            Proof::Value(value) => {
                let token = Token::fresh(&self.context.process.random);
                Request { token, action: Action::Evict { value: value.clone() }, keys }
            }
        };
        Question { request, time: time(&self.context), read: Ok, decided: |_, _| false }
    }

    fn judge(&self, answers: &[Result<Reply, Failure>]) -> Result<Removal, Error> {
        let needed = quorum(answers.len());
        let count = |is: fn(&Reply) -> bool| answers.iter().flatten().filter(|reply| is(reply)).count();
        let deleted = count(|reply| matches!(reply, Reply::Deleted { .. }));
        let absent = count(|reply| matches!(reply, Reply::Absent));
        let foreign = count(|reply| matches!(reply, Reply::Foreign(_)));
        if deleted + absent >= needed {
            let waiting = |reply: &Reply| if let Reply::Deleted { waiting } = reply { *waiting } else { 0 };
            let waiting = answers.iter().flatten().map(waiting).max().unwrap_or(0);
            let answer = |(node, answer): (usize, &Result<Reply, Failure>)| {
                Some(answer.as_ref().err()?.of_node(self.context.address(node)))
            };
            let unanswered = answers.iter().enumerate().filter_map(answer).collect();
            let released = Removal::Released { nodes: deleted, waiting, unanswered };
            return Ok(if deleted > 0 { released } else { Removal::Gone });
        }
        if foreign > 0 {
            return Ok(Removal::Changed { nodes: deleted });
        }
        Err(self.unconfirmed(answers))
    }

    /// Returns the error for a release that too few nodes confirmed.
    fn unconfirmed(&self, answers: &[Result<Reply, Failure>]) -> Error {
        let failures = || answers.iter().filter_map(|answer| answer.as_ref().err());
        let is_forbidden = failures().all(|failure| matches!(failure, Failure::Forbidden(_)));
        let (kind, message) = if is_forbidden {
            (ErrorKind::Forbidden, "a quorum of nodes refuses to delete it; check the rights of this user")
        } else {
            (ErrorKind::Unavailable, "no quorum of nodes confirmed that it is deleted; try again")
        };
        let answer = |(node, answer): (usize, &Result<Reply, Failure>)| {
            let address = self.context.address(node);
            let (kind, answer) = match answer {
                Ok(Reply::Deleted { .. }) => (AnswerKind::Done, "deleted"),
                Ok(Reply::Absent) => (AnswerKind::Free, "free"),
                Ok(_) => (AnswerKind::Held, HELD),
                Err(failure) => return failure.of_node(address),
            };
            NodeAnswer { node: address, kind, answer: answer.to_owned() }
        };
        let nodes = answers.iter().enumerate().map(answer).collect();
        Error::new(kind, message).with_name(self.context.spec.name.bytes()).with_nodes(nodes)
    }
}

/// Returns what two answers of one node to a release say together. Of several proofs, one at most is right.
fn more(one: Reply, other: Reply) -> Reply {
    match (&one, &other) {
        (Reply::Deleted { .. }, _) | (_, Reply::Absent) => one,
        _ => other,
    }
}

/// Returns how long one node may take: an operator waits for those that connect slowly, too.
fn time(context: &LockContext) -> Duration {
    context.listed.members.connect_timeout + context.spec.settings.node_timeout
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use harness::{Server, all_have, eventually};

    use super::*;
    use crate::sys::clock::Clock;

    const TTL: Duration = Duration::from_secs(60);

    fn client(servers: &[Server], prefix: &str) -> Redlock {
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        Redlock::builder().nodes(urls).key_prefix(prefix).ttl(TTL).build().unwrap()
    }

    fn set(server: &Server, key: &str, value: &str) {
        server.command(&["SET", key, value]);
    }

    #[tokio::test]
    async fn a_store_in_this_process_is_released() {
        let redlock = Redlock::builder().nodes("memory://operator").ttl(TTL).build().unwrap();
        let guard = redlock.lock("job").acquire().await.unwrap();
        let slot = redlock.semaphore("pool", 1).acquire().await.unwrap();
        for (name, slot) in [("job", None), ("pool", Some(0))] {
            let held = holding(&redlock, name.as_bytes(), slot).await.unwrap();
            assert!(held.is_held());
            assert!(matches!(held.release().await.unwrap(), Removal::Released { nodes: 1, .. }));
        }
        assert!(!redlock.lock("job").is_locked().await.unwrap());
        drop((guard, slot));
    }

    #[tokio::test]
    async fn a_release_deletes_what_was_shown_and_tells_the_holder() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        let guard = redlock.lock("job").label("web-3").acquire().await.unwrap();
        all_have(&servers, "job");
        let held = holding(&redlock, b"job", None).await.unwrap();
        assert_eq!((held.view.state, held.view.label.as_deref()), (LockState::Held, Some("web-3")));
        assert_eq!((held.view.fence, held.view.holders), (Some(guard.fence()), 3));
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Released { nodes: 3, waiting: 0, .. }), "{removal:?}");
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(matches!(held.release().await.unwrap(), Removal::Gone));
    }

    #[tokio::test]
    async fn a_later_owner_keeps_the_lock() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        let first = redlock.lock("job").acquire().await.unwrap();
        let held = holding(&redlock, b"job", None).await.unwrap();
        first.release().await.unwrap();
        let second = redlock.lock("job").acquire().await.unwrap();
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Changed { nodes: 0 }), "{removal:?}");
        second.extend().await.unwrap();
        second.release().await.unwrap();
    }

    #[tokio::test]
    async fn what_several_owners_left_is_deleted() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        for (server, digit) in servers.iter().zip(["a", "b"]) {
            set(server, "job", &format!("{}:17:web-3", digit.repeat(32)));
        }
        let held = holding(&redlock, b"job", None).await.unwrap();
        assert_eq!(held.view.state, LockState::Unknown);
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Released { nodes: 2, .. }), "{removal:?}");
        assert_eq!(servers[0].get("job"), None);
    }

    #[tokio::test]
    async fn locks_of_other_libraries_are_released_and_data_is_not() {
        let servers = [Server::start()];
        let redlock = client(&servers, "");
        set(&servers[0], "theirs", "a-uuid");
        let held = holding(&redlock, b"theirs", None).await.unwrap();
        assert_eq!((held.view.state, held.is_held(), held.is_data()), (LockState::Foreign, true, false));
        set(&servers[0], "theirs", "another-uuid");
        assert!(matches!(held.release().await.unwrap(), Removal::Changed { nodes: 0 }));
        let held = holding(&redlock, b"theirs", None).await.unwrap();
        assert!(matches!(held.release().await.unwrap(), Removal::Released { nodes: 1, .. }));
        servers[0].command(&["LPUSH", "list", "1"]);
        let held = holding(&redlock, b"list", None).await.unwrap();
        assert_eq!((held.view.state, held.is_held(), held.is_data()), (LockState::Foreign, true, true));
        let free = holding(&redlock, b"nothing", None).await.unwrap();
        assert!(!free.is_held() && !free.is_data());
        let several = harness::cluster(2);
        let _reader = client(&several[..1], "").lock("page").shared().acquire().await.unwrap();
        let held = holding(&client(&several, ""), b"page", None).await.unwrap();
        assert!(held.is_kept().is_some_and(|why| why.starts_with("readers")), "{:?}", held.is_kept());
    }

    /// The bell wakes those who wait for any slot.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_released_slot_goes_to_a_waiter() {
        let servers = [Server::start()];
        let redlock = client(&servers, "");
        let holder = redlock.semaphore("pool", 1).acquire().await.unwrap();
        let lock = redlock.semaphore("pool", 1);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        let waiting = || servers[0].get("redlock:waiters::redlock:slot:0:{pool}").is_some();
        tokio::task::block_in_place(|| eventually("it waits", waiting));
        let held = holding(&redlock, b"pool", Some(0)).await.unwrap();
        let removal = held.release().await.unwrap();
        assert!(matches!(removal, Removal::Released { nodes: 1, waiting: 1, .. }), "{removal:?}");
        let slot = Clock::System.timeout(harness::LIMIT, waiter).await.expect("it is woken").unwrap().unwrap();
        assert_eq!(slot.slot(), Some(0));
        drop(holder);
    }

    #[tokio::test]
    async fn a_release_without_a_quorum_is_not_begun() {
        let servers = harness::cluster(3);
        let redlock = client(&servers, "");
        let guard = redlock.lock("job").acquire().await.unwrap();
        all_have(&servers, "job");
        servers[0].kill();
        servers[1].kill();
        let error = holding(&client(&servers, ""), b"job", None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(servers[2].get("job").is_some());
        servers[2].command(&["REPLICAOF", "127.0.0.1", "1"]);
        let error = holding(&client(&servers[2..], ""), b"free", None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "a replica does not know");
        drop(guard);
    }

    #[tokio::test]
    async fn a_holding_shows_no_token() {
        let servers = [Server::start()];
        let redlock = client(&servers, "");
        let guard = redlock.lock("job").acquire().await.unwrap();
        let value = servers[0].get("job").unwrap();
        let token = String::from_utf8_lossy(&value[..16]).into_owned();
        let held = holding(&redlock, b"job", None).await.unwrap();
        assert!(!format!("{held:?} {:?}", held.proofs).contains(&token));
        drop(guard);
    }
}
