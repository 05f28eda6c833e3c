//! A server of a simulation, in memory: crashes, freezes and has a clock of its own. It is a node, or belongs to a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::link::{Down, Line};
use super::membership::Membership;
use super::time::{Pace, Time, WallClock};
use super::{Fate, Leg, Network};
use crate::node::memory::{Content, Entry, Store};
use crate::node::way::{Eval, OpenSlot};
use crate::protocol::request::{Action, Reply, Request};
use crate::protocol::token::Token;
use crate::transport::failure::Failure;

/// One server.
#[derive(Clone)]
pub struct Node(pub(super) Arc<Server>);

pub(super) struct Server {
    pub(super) index: usize,
    /// The index of the node that it is, or whose vote it gives.
    vote: usize,
    clock: WallClock,
    pub(super) time: Time,
    pub(super) network: Arc<dyn Network>,
    state: Mutex<State>,
    /// Notified on a thaw, crash or start.
    changed: Notify,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a trouble of its own, and any of them can meet")]
pub(super) struct State {
    pub(super) store: Store,
    /// The scripts that the server knows by hash.
    scripts: BTreeSet<&'static str>,
    pub(super) up: bool,
    frozen: bool,
    /// Whether it closes new connections before they are set up.
    pub(super) hangs_up: bool,
    /// Whether it lacks INFO.
    pub(super) lacks_info: bool,
    /// Whether it lacks CLIENT TRACKING.
    pub(super) lacks_tracking: bool,
    /// Number of starts.
    pub(super) run: u32,
    /// The names of the history of its data, and of the one that they continue, and the number of its own names so far.
    pub(super) replid: String,
    pub(super) former_replid: String,
    replids: u32,
    /// Its part in a cluster, if it is in one.
    pub(super) membership: Option<Membership>,
    pub(super) started: Instant,
    pub(super) lines: Vec<Weak<Line>>,
    /// The connections to notify of each key's next change, once.
    armed: BTreeMap<Vec<u8>, Vec<Weak<Line>>>,
    /// Until when the keys may live that were left for the rest of their least time.
    left: BTreeMap<Vec<u8>, Left>,
}

/// A key that was left for the rest of its least time.
struct Left {
    token: Token,
    /// In microseconds on the server's clock.
    until: u64,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.0.index).finish()
    }
}

impl Node {
    pub(super) fn new(index: usize, vote: usize, pace: Pace, time: Time, network: Arc<dyn Network>) -> Self {
        let mut state = State {
            store: Store::default(),
            scripts: BTreeSet::new(),
            up: true,
            frozen: false,
            hangs_up: false,
            lacks_info: false,
            lacks_tracking: false,
            run: 1,
            replid: String::new(),
            former_replid: String::new(),
            replids: 0,
            membership: None,
            started: time.now(),
            lines: Vec::new(),
            armed: BTreeMap::new(),
            left: BTreeMap::new(),
        };
        state.rename_data(index);
        let clock = WallClock::new(time.clone(), pace);
        Self(Arc::new(Server { index, vote, clock, time, network, state: Mutex::new(state), changed: Notify::new() }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while holding this")
    }

    pub(super) fn note(&self, line: impl Fn() -> String) {
        self.0.network.note(&|| format!("node {}: {}", self.0.index + 1, line()));
    }

    /// Ends the server: its connections break, and requests not executed by then never are. Without `keep` its data is
    /// gone.
    pub fn crash(&self, keep: bool) {
        self.note(|| format!("crashes{}", if keep { "" } else { " and loses its data" }));
        let lines = {
            let mut state = self.state();
            state.up = false;
            state.frozen = false;
            state.scripts.clear();
            state.armed.clear();
            state.left.clear();
            if !keep {
                state.lose_data();
            }
            std::mem::take(&mut state.lines)
        };
        self.0.changed.notify_waiters();
        self.end_lines(lines);
    }

    /// Sends a message over a line.
    pub(super) fn send(&self, line: &Line, down: Down) {
        line.send(&*self.0.network, self.0.index, self.0.time.now(), down);
    }

    /// Ends connections. Their clients see it in time, if at all.
    pub(super) fn end_lines(&self, lines: Vec<Weak<Line>>) {
        for line in lines.into_iter().filter_map(|line| line.upgrade()) {
            match self.0.network.fate(line.process, self.0.index, Leg::Reply) {
                // The machine crashed too, so the client is not notified.
                Fate::Drop => {}
                Fate::Break => line.end(),
                Fate::Deliver(delay) => {
                    let end = self.0.time.sleep(delay);
                    drop(self.0.time.runtime.spawn(async move {
                        end.await;
                        line.end();
                    }));
                }
            }
        }
    }

    /// Starts a crashed server, with a new run id.
    pub fn start(&self) {
        let mut state = self.state();
        if !state.up {
            state.up = true;
            state.run += 1;
            state.started = self.0.time.now();
            if let Some(membership) = &mut state.membership {
                membership.is_new = true;
                state.rename_data(self.0.index);
                state.former_replid.clear();
            }
            drop(state);
            self.note(|| "starts".to_owned());
            self.0.changed.notify_waiters();
        }
    }

    /// Whether `other` is the same server.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it has not crashed.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state().up
    }

    /// Stops executing; requests wait until it thaws.
    pub fn freeze(&self) {
        self.note(|| "freezes".to_owned());
        self.state().frozen = true;
    }

    /// Goes on executing.
    pub fn thaw(&self) {
        self.note(|| "thaws".to_owned());
        self.state().frozen = false;
        self.0.changed.notify_waiters();
    }

    /// Gets a first replica, which gives its data a new name. No data is lost.
    pub fn attach_replica(&self) {
        self.note(|| "gets a replica".to_owned());
        self.state().rename_data(self.0.index);
    }

    /// Closes each new connection before it is set up, and ends the present ones. Or accepts connections as usual.
    pub fn hang_up(&self, hangs_up: bool) {
        self.note(|| if hangs_up { "hangs up on everybody" } else { "hangs up on nobody" }.to_owned());
        let lines = {
            let mut state = self.state();
            state.hangs_up = hangs_up;
            if hangs_up { std::mem::take(&mut state.lines) } else { Vec::new() }
        };
        self.end_lines(lines);
    }

    /// Makes INFO or CLIENT TRACKING unknown, as on a server where they are renamed, or a proxy.
    pub fn lack(&self, info: bool, tracking: bool) {
        let mut state = self.state();
        (state.lacks_info, state.lacks_tracking) = (info, tracking);
    }

    /// Sets the node's clock forward, or back.
    pub fn step_clock(&self, micros: i64) {
        self.note(|| format!("clock steps by {micros} us"));
        let mut state = self.state();
        if state.up && !state.frozen {
            // A running server deletes expired keys without being asked.
            state.store.expire(self.0.clock.micros());
        }
        drop(state);
        self.0.clock.step(micros);
    }

    /// Deletes a key, as any client of the server could.
    pub fn delete(&self, key: &[u8]) {
        self.note(|| format!("loses key {:?}", String::from_utf8_lossy(key)));
        let mut state = self.state();
        state.store.delete(key);
        let told = state.armed.remove(key).unwrap_or_default();
        drop(state);
        self.tell(&told, key);
    }

    /// Overwrites a key with a value that is not ours, for `ttl`.
    pub fn take(&self, key: &[u8], ttl: Duration) {
        self.note(|| format!("key {:?} is taken by a stranger", String::from_utf8_lossy(key)));
        let mut state = self.state();
        let until = self.0.clock.micros() + as_micros(ttl);
        state.store.put(key, Content::Text(b"a-stranger".to_vec()), Some(until));
        let told = state.armed.remove(key).unwrap_or_default();
        drop(state);
        self.tell(&told, key);
    }

    /// Notifies connections that a key has changed.
    pub(super) fn tell(&self, lines: &[Weak<Line>], key: &[u8]) {
        for line in lines.iter().filter_map(Weak::upgrade) {
            self.note(|| format!("tells process {} of a change of {}", line.process + 1, String::from_utf8_lossy(key)));
            self.send(&line, Down::Changed(key.to_vec()));
        }
    }

    /// Returns the keys that have not expired, fence keys included, with their values. A shared lock has one for each owner.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, String)> {
        let state = self.state();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let shown = |content: &Content| match content {
            Content::Text(value) => vec![text(value)],
            Content::Sorted(owners) => owners.ends().map(|(_, owner)| text(owner)).collect(),
            Content::Other => vec!["no string".to_owned()],
        };
        let contents = state.store.contents(self.0.clock.micros());
        contents.flat_map(|(key, content)| shown(content).into_iter().map(move |value| (text(key), value))).collect()
    }

    /// Reports the node's fence if the request has set it.
    fn tell_granted(&self, request: &Request, answer: &Result<Reply, Failure>) {
        let fence = match (answer, &request.action) {
            (Ok(Reply::Granted(fence)), _) | (Ok(Reply::Confirmed), Action::Confirm { fence, .. }) => *fence,
            _ => return,
        };
        let token = String::from_utf8_lossy(request.token.as_bytes());
        for keys in request.keys.each() {
            self.0.network.granted(self.0.vote, &String::from_utf8_lossy(&keys.lock), &token, fence);
        }
    }

    /// Waits until the server executes; `None` if its `run` is over.
    pub(super) async fn executing(&self, run: u32) -> Option<()> {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.state();
                if !state.up || state.run != run {
                    return None;
                }
                if !state.frozen {
                    return Some(());
                }
            }
            changed.await;
        }
    }

    /// Executes one request; `None` if the server's `run` ended before.
    pub(super) async fn execute(
        &self,
        run: u32,
        line: &Arc<Line>,
        request: &Request,
        (by, open): (Eval, OpenSlot),
    ) -> Option<Result<Reply, Failure>> {
        self.executing(run).await?;
        let mut state = self.state();
        let (script, micros) = (script(request), self.0.clock.micros());
        let watched = state.watched(request, micros);
        let kept = state.store.ttl_left(micros, &request.keys.lock);
        let answer = state.answer((self.0.index, self.0.time.now(), micros), request, (by, open));
        let told = state.changed(line, watched, &answer);
        state.arm(line, request, &answer);
        let is_lengthened = state.is_lengthened((micros, kept), request, &answer);
        drop(state);
        for (key, lines) in &told {
            self.tell(lines, key);
        }
        self.tell_granted(request, &answer);
        if is_lengthened {
            self.0.network.lengthened(self.0.vote, &String::from_utf8_lossy(&request.keys.lock));
        }
        self.note(|| {
            let token = String::from_utf8_lossy(&request.token.as_bytes()[..4]).into_owned();
            let names: Vec<_> = request.keys.each().map(|keys| String::from_utf8_lossy(&keys.lock)).collect();
            format!("process {} {script} {} with {token}: {answer:?}", line.process + 1, names.join(", "))
        });
        Some(answer)
    }
}

impl State {
    /// Gives the data a new name, which continues the one before.
    pub(super) fn rename_data(&mut self, index: usize) {
        self.replids += 1;
        let name = format!("data-{}-of-node-{}", self.replids, index + 1);
        self.former_replid = std::mem::replace(&mut self.replid, name);
    }

    /// Whether the server of this index takes itself for a primary, as one outside of a cluster is.
    pub(super) fn is_primary(&self, index: usize) -> bool {
        self.membership.as_ref().is_none_or(|membership| membership.is_primary(index))
    }

    /// Has the data of another server. What was left on this one may not have reached it.
    pub(super) fn take_data(&mut self, store: Store) {
        self.store = store;
        self.left.clear();
    }

    /// Deletes all data, also those that a replica has: it copies them from an empty primary.
    fn lose_data(&mut self) {
        self.store = Store::default();
        if let Some(membership) = &mut self.membership {
            membership.lose_copy();
        }
    }

    /// Answers a request to the server of this index, at this time and time on its clock.
    fn answer(
        &mut self,
        (index, now, micros): (usize, Instant, u64),
        request: &Request,
        (by, open): (Eval, OpenSlot),
    ) -> Result<Reply, Failure> {
        let script = script(request);
        if let Some(membership) = &self.membership {
            self.store.expire(micros);
            membership.accept(index, &self.store, request, open)?;
        }
        if by == Eval::Sha && !self.scripts.contains(script) {
            return Err(Failure::NoScript);
        }
        self.scripts.insert(script);
        let answer = self.store.execute_tampered(micros, request);
        if let Some(membership) = &mut self.membership {
            membership.replicate(now, &self.store, request);
        }
        answer
    }

    /// Takes the connections that are to be notified of a key's next change.
    pub(super) fn disarm(&mut self, key: &[u8]) -> Vec<Weak<Line>> {
        self.armed.remove(key).unwrap_or_default()
    }

    /// Returns what is under those keys of a request whose next change somebody is to be notified of.
    fn watched<'a>(&mut self, request: &'a Request, micros: u64) -> Vec<(&'a [u8], Option<Entry>)> {
        let keys = request.keys.each().map(|keys| &*keys.lock).chain(request.keys.bell());
        let keys: Vec<&[u8]> = keys.filter(|key| self.armed.contains_key(*key)).collect();
        if !keys.is_empty() {
            self.store.expire(micros);
        }
        keys.into_iter().map(|key| (key, self.store.entry(key).cloned())).collect()
    }

    /// Takes the connections to notify now of keys that have changed, but for the own one. The last waiter that gives up
    /// has a shared lock written as it was.
    fn changed<'a>(
        &mut self,
        line: &Arc<Line>,
        watched: Vec<(&'a [u8], Option<Entry>)>,
        answer: &Result<Reply, Failure>,
    ) -> Vec<(&'a [u8], Vec<Weak<Line>>)> {
        let is_written = matches!(answer, Ok(Reply::Withdrawn { waiting: 0 }));
        let changed =
            watched.into_iter().filter(|(key, before)| is_written || self.store.entry(key) != before.as_ref());
        let changed: Vec<&[u8]> = changed.map(|(key, _)| key).collect();
        let told = changed.into_iter().map(|key| {
            let mut told = self.disarm(key);
            told.retain(|other| !is_end_of(other, line));
            (key, told)
        });
        told.collect()
    }

    /// Registers a reader for the next change, by another, of the keys that the script has read.
    fn arm(&mut self, line: &Arc<Line>, request: &Request, answer: &Result<Reply, Failure>) {
        let Ok(reply) = answer else { return };
        if !line.watched {
            return;
        }
        let locks = request.keys.each().map(|keys| &*keys.lock);
        let read: Vec<&[u8]> = match (reply, &request.action) {
            // It stops at the first lock that is held.
            (Reply::Held { .. }, _) => {
                let free = locks.clone().take_while(|key| self.store.entry(key).is_none()).count();
                locks.take(free + 1).collect()
            }
            (Reply::Slots { .. }, Action::Look { slots, .. }) => {
                slots.iter().map(|keys| &*keys.lock).chain(request.keys.bell()).collect()
            }
            (reply, _) if reply.reads() => locks.collect(),
            _ => return,
        };
        for key in read {
            let lines = self.armed.entry(key.to_vec()).or_default();
            if !lines.iter().any(|other| is_end_of(other, line)) {
                lines.push(Arc::downgrade(line));
            }
        }
    }

    /// Returns whether a key that was left, now or before, lives longer than it may: for its rest, and never longer than it
    /// was `kept` before.
    fn is_lengthened(
        &mut self,
        (micros, kept): (u64, Option<Duration>),
        request: &Request,
        answer: &Result<Reply, Failure>,
    ) -> bool {
        let key = &*request.keys.lock;
        if matches!(answer, Ok(Reply::Granted(_) | Reply::Restored)) {
            // Made anew: an acquire may arrive twice.
            self.left.remove(key);
        }
        if let (Action::Leave { rest, .. }, Ok(Reply::Deleted { .. })) = (&request.action, answer)
            && !rest.is_zero()
            && !self.left.contains_key(key)
        {
            let until = micros + as_micros(kept.map_or(*rest, |kept| kept.min(*rest)));
            self.left.insert(key.to_vec(), Left { token: request.token, until });
        }
        let Some(Left { token, until }) = self.left.get(key) else { return false };
        let (first, second) = token.as_bytes().split_at(Token::LEN / 2);
        let is_left = self.store.contents(micros).any(|(other, content)| {
            let Content::Text(value) = content else { return false };
            other == key && (value.starts_with(token.as_bytes()) || value.starts_with(&[second, first].concat()))
        });
        let is_lengthened =
            is_left && self.store.ttl_left(micros, key).is_none_or(|left| micros + as_micros(left) > *until);
        if !is_left || is_lengthened {
            self.left.remove(key);
        }
        is_lengthened
    }
}

fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Returns whether a connection, as registered, is this one.
fn is_end_of(registered: &Weak<Line>, line: &Arc<Line>) -> bool {
    std::ptr::eq(registered.as_ptr(), Arc::as_ptr(line))
}

pub(super) fn script(request: &Request) -> &'static str {
    match &request.action {
        Action::Acquire { .. } | Action::Peek { .. } | Action::Inspect { .. } if request.keys.are_several() => {
            "acquire_all"
        }
        Action::Acquire { .. } | Action::Peek { .. } if request.keys.are_shared() => "acquire_shared",
        Action::Confirm { .. } if request.keys.are_shared() => "confirm_shared",
        Action::Extend { .. } if request.keys.are_shared() => "extend_shared",
        Action::Release { .. } if request.keys.are_shared() => "release_shared",
        Action::Restore { .. } if request.keys.are_shared() => "restore_shared",
        Action::Rekey { .. } if request.keys.are_shared() => "rekey_shared",
        Action::Confirm { .. } if request.keys.are_several() => "confirm_all",
        Action::Extend { .. } if request.keys.are_several() => "extend_all",
        Action::Release { .. } if request.keys.are_several() => "release_all",
        Action::Restore { .. } if request.keys.are_several() => "restore_all",
        Action::Rekey { .. } if request.keys.are_several() => "rekey_all",
        Action::Leave { .. } => "leave",
        Action::Look { .. } => "look",
        Action::Acquire { .. } => "acquire",
        Action::Confirm { .. } => "confirm",
        Action::Extend { .. } => "extend",
        Action::Release { .. } | Action::Evict { .. } => "release",
        Action::Restore { .. } => "restore",
        Action::Rekey { .. } => "rekey",
        Action::Inspect { .. } | Action::Read => "inspect",
        Action::Peek { .. } => "peek",
        Action::Withdraw => "withdraw",
        Action::SetnxAcquire { .. } => "setnx_acquire",
        Action::SetnxRelease { .. } => "setnx_release",
    }
}
