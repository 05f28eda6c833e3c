//! The pure transitions of the fencing protocol, for the model in tests/model: a node's action on a request, and a
//! client's verdict on the votes. They are the engine's own: `quorum` judges, and the nodes in memory execute.
//!
//! Time is left out. A key lives until it is deleted, and no proposal is too far off a node's clock.

use std::array;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::net::node::memory::{Content, Store};
use crate::protocol::name::Name;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, NodeMask, Verdict, Vote};
use crate::protocol::request::{self, Action, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::random::{Random, SimulatedRandom};

/// Any time would do: no key expires, and the slack is wider than all proposals.
const NOW: u64 = 0;
const LONG: Duration = Duration::from_secs(60);

static NAMES: LazyLock<Arc<request::Keys>> =
    LazyLock::new(|| request::Keys::of(&Name::parse(*b"lock").expect("a name")));
static TOKENS: LazyLock<[Token; 16]> = LazyLock::new(|| {
    array::from_fn(|owner| {
        let owner = u8::try_from(owner).expect("a small number");
        Token::fresh(&Random::Simulated(SimulatedRandom(Arc::new(move |bytes: &mut [u8]| bytes.fill(owner)))))
    })
});

/// One node's keys for the only name. Owners are numbers below 16, one for each token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keys {
    /// The owner of the lock key, and the fence in its value.
    pub lock: Option<(u8, u64)>,
    /// The value of the fence key; 0 without one.
    pub fence: u64,
}

/// A request to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Grant the lock.
    Acquire { proposal: u64 },
    /// Remember a fence, if the lock is as it was granted.
    Confirm { granted: u64, fence: u64 },
    /// Let the key live longer.
    Extend { fence: u64 },
    /// Put back a forgotten lock.
    Restore { fence: u64 },
    /// Delete the lock.
    Release,
}

/// A node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// An acquire's fence, from now or from before.
    Granted(u64),
    /// The request is done.
    Done,
    /// It is not.
    Refused,
}

impl Keys {
    /// Executes a request of this owner.
    pub fn execute(&mut self, owner: u8, ask: Ask) -> Answer {
        let (ttl, slack, fence_ttl, label) = (LONG, LONG, LONG, "".into());
        let action = match ask {
            Ask::Acquire { proposal } => Action::Acquire { ttl, proposal, slack, fence_ttl, label, wants: None },
            Ask::Confirm { granted, fence } => Action::Confirm { granted, fence, fence_ttl, label },
            Ask::Extend { fence } => Action::Extend { ttl, fence, fence_ttl },
            Ask::Restore { fence } => Action::Restore { ttl, fence, fence_ttl, label },
            Ask::Release => Action::Release { asks: false },
        };
        match self.perform(owner, action) {
            Reply::Granted(fence) | Reply::Held { ours: Some(fence), .. } => Answer::Granted(fence),
            Reply::Confirmed | Reply::Extended | Reply::Restored | Reply::Deleted { .. } => Answer::Done,
            _ => Answer::Refused,
        }
    }

    fn perform(&mut self, owner: u8, action: Action) -> Reply {
        let mut store = Store::default();
        if let Some((owner, fence)) = self.lock {
            store.put(&NAMES.lock, Content::Text(TOKENS[usize::from(owner)].value(fence, "")), None);
        }
        if self.fence > 0 {
            store.put(&NAMES.fence, Content::Text(self.fence.to_string().into()), None);
        }
        let request = Request { keys: Arc::clone(&NAMES), token: TOKENS[usize::from(owner)], action };
        let reply = store.execute(NOW, &request).expect("every fence here is a small number");
        *self = Self::read(&store);
        reply
    }

    fn read(store: &Store) -> Self {
        let mut keys = Self::default();
        for (key, content) in store.contents(NOW) {
            let Content::Text(text) = content else { continue };
            let text = str::from_utf8(text).expect("what a script writes");
            if *key == *NAMES.fence {
                keys.fence = text.parse().expect("digits");
            } else if let Some((token, fence)) = text.split_once(':') {
                let owner = TOKENS.iter().position(|known| known.as_bytes() == token.as_bytes());
                let owner = owner.and_then(|owner| u8::try_from(owner).ok()).expect("one of the tokens");
                keys.lock = Some((owner, fence.parse().expect("digits")));
            }
        }
        keys
    }
}

/// An attempt's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Next {
    /// Wait, or give up.
    Nothing,
    /// Confirm this fence, which is now the attempt's.
    Confirm(u64),
    /// It has won, with this fence.
    Win(u64),
}

/// An attempt's knowledge of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// No answer.
    #[default]
    Pending,
    /// It has granted this fence.
    Granted(u64),
    /// It has acknowledged the attempt's fence.
    Confirmed,
    /// It has refused.
    Refused,
}

/// Judges an attempt that has `decided` on a fence, or not yet, by the nodes whose bits are set in `counts`.
#[must_use]
pub fn next(parts: &[Part], decided: Option<u64>, counts: u16) -> Next {
    let vote = |part: &Part| match *part {
        Part::Pending => Vote::Pending,
        Part::Granted(fence) => Vote::Granted(fence),
        Part::Confirmed => Vote::Confirmed,
        Part::Refused => Vote::Held,
    };
    let votes: Vec<Vote> = parts.iter().map(vote).collect();
    match quorum::attempt(&votes, decided, NodeMask::from_bits(counts), NodeMask::NONE) {
        Verdict::Open | Verdict::Lost => Next::Nothing,
        Verdict::Confirm(fence) => Next::Confirm(fence),
        Verdict::Won(fence) => Next::Win(fence),
    }
}

/// Returns the quorum of `nodes` nodes.
#[must_use]
pub fn quorum(nodes: usize) -> usize {
    quorum::quorum(nodes)
}

/// Returns whether an extension has its quorum. `extended` says which nodes extended the key.
#[must_use]
pub fn is_extended(extended: &[bool]) -> bool {
    let vote = |extended: &bool| if *extended { KeyVote::Ours } else { KeyVote::Failed };
    let votes: Vec<KeyVote> = extended.iter().map(vote).collect();
    quorum::keys(&votes, NodeMask::NONE) == KeyVerdict::Carried
}
