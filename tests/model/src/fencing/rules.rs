//! The rules of the protocol, and what a [`Mutant`] makes of each.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use ahash::RandomState;
use redlock::testing::model::{self, Answer, Ask, Keys, NAMES_MOST, Next, Part};
use redlock::testing::simulation::{Fault, plant};

use super::{ATTACHMENTS_MOST, Attempt, Fencing, State};

/// A protocol with one rule changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A confirm does not look whose the lock is.
    ConfirmsForAnybody,
    /// A confirm looks at the token and not at what was granted.
    ConfirmsAnyGrant,
    /// Nodes that have not granted are asked to remember the fence as well, and count.
    CountsOthers,
    /// The fence is what was proposed, whatever was granted.
    KeepsProposal,
    /// The largest fence granted is not written back.
    SkipsConfirm,
    /// The fence is any of those granted, and nodes that granted more count for it.
    AnyGranted,
    /// All attempts have one token.
    ReusesToken,
    /// An extension looks at the token and not at the fence.
    ExtendsByToken,
    /// A larger grant counts although no quorum remembers it.
    LevelsAlone,
    /// A restore does not look at the fence key.
    RestoresByName,
    /// As that, and the fence key is overwritten.
    RestoresItsFence,
    /// Half of the nodes, rounded down, are a quorum.
    HalfQuorum,
    /// Every attempt's list of nodes begins one later.
    OtherNodes,
    /// All nodes must have granted.
    WaitsForAll,
    /// The nodes have this fault of the library.
    Planted(Fault),
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// A node's keys for the names of one lock, as many as there are.
type SomeKeys = [Keys; NAMES_MOST];

/// What is asked of a node: its keys, how many of them count, by whom, of which nodes, and whether to share the lock.
type Asked = (SomeKeys, usize, u8, Ask, Option<u8>, bool);

type Map<Key, Value> = HashMap<Key, Value, RandomState>;

/// What the library has answered: few things are asked, and each of them very often.
#[derive(Default)]
struct Known {
    answers: Map<Asked, (SomeKeys, Answer)>,
    verdicts: Map<Option<u64>, Map<Vec<Part>, Vec<Next>>>,
}

/// The token of an attachment. No attempt has it.
pub(super) fn token_of(attachment: usize) -> u8 {
    8 + u8::try_from(attachment.min(ATTACHMENTS_MOST)).expect("a few attachments")
}

impl Known {
    /// All that comes of it if the nodes that count are any quorum.
    fn verdicts(&mut self, parts: &[Part], decided: Option<u64>) -> Vec<Next> {
        let known = self.verdicts.entry(decided).or_default();
        if let Some(verdicts) = known.get(parts) {
            return verdicts.clone();
        }
        let is_quorum = |counts: &u16| counts.count_ones() as usize >= model::quorum(parts.len());
        let verdicts = (0..1_u16 << parts.len()).filter(is_quorum).map(|counts| model::next(parts, decided, counts));
        let verdicts = verdicts.filter(|verdict| *verdict != Next::Nothing).collect();
        known.entry(parts.to_vec()).insert_entry(verdicts).get().clone()
    }
}

impl<const S: usize, const A: usize, const K: usize> Fencing<S, A, K> {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The nodes that an attempt lists.
    pub(super) fn list(&self, attempt: usize) -> Range<usize> {
        if self.is(Mutant::OtherNodes) { attempt..S + 1 + attempt - A } else { 0..S }
    }

    /// Whether so many of them are a quorum.
    pub(super) fn is_quorum(&self, number: usize) -> bool {
        let nodes = self.list(0).len();
        number >= if self.is(Mutant::HalfQuorum) { nodes / 2 } else { model::quorum(nodes) }
    }

    pub(super) fn token(&self, attempt: usize) -> u8 {
        if self.is(Mutant::ReusesToken) { 0 } else { u8::try_from(attempt).expect("a few attempts") }
    }

    /// All tokens that the lock of this attempt may have.
    pub(super) fn tokens(&self, attempt: usize) -> impl Iterator<Item = u8> {
        let attached = if attempt == 0 { self.attachments } else { 0 };
        std::iter::once(self.token(attempt)).chain((0..attached).map(token_of))
    }

    /// Asks a node.
    pub(super) fn ask(&self, keys: &mut [Keys; K], attempt: usize, ask: Ask) -> Answer {
        self.ask_as(keys, attempt, self.token(attempt), ask)
    }

    /// Asks a node about the lock of an attempt, with this token.
    pub(super) fn ask_as(&self, keys: &mut [Keys; K], attempt: usize, owner: u8, ask: Ask) -> Answer {
        let names = self.names[attempt];
        let mut some = SomeKeys::default();
        some.iter_mut().zip(names).for_each(|(some, name)| *some = keys[*name]);
        let fault = if let Some(Mutant::Planted(fault)) = self.mutant { Some(fault) } else { None };
        let shared = self.shared[attempt];
        let asked = (some, names.len(), owner, ask, fault.map(|fault| fault as u8), shared);
        let (some, answer) = KNOWN.with_borrow_mut(|known| {
            *known.answers.entry(asked).or_insert_with(|| {
                let mut some = some;
                plant(fault);
                let answer = model::execute(&mut some[..names.len()], shared, owner, ask);
                plant(None);
                (some, answer)
            })
        });
        names.iter().zip(some).for_each(|(name, some)| keys[*name] = some);
        answer
    }

    /// Whether an attempt that knows this of a node, and has decided on this fence, asks it to confirm.
    pub(super) fn confirms(&self, part: Part, decided: Option<u64>) -> bool {
        decided.is_some_and(|decided| match part {
            Part::Granted(granted) => granted < decided,
            Part::Pending => self.is(Mutant::CountsOthers),
            Part::Confirmed | Part::Refused => false,
        })
    }

    /// Whether the node acknowledges the fence.
    pub(super) fn confirm(&self, keys: &mut [Keys; K], attempt: usize, part: Part, fence: u64) -> bool {
        let is_ours = self.is_ours(keys, attempt);
        let done = match (self.mutant, part) {
            (Some(Mutant::ConfirmsAnyGrant), _) => is_ours,
            (Some(Mutant::ConfirmsForAnybody), _) | (_, Part::Pending) => true,
            (_, Part::Granted(granted)) => {
                return self.ask(keys, attempt, Ask::Confirm { granted, fence }) == Answer::Done;
            }
            (_, Part::Confirmed | Part::Refused) => false,
        };
        if done {
            self.names[attempt].iter().for_each(|name| keys[*name].fence = keys[*name].fence.max(fence));
        }
        done
    }

    fn is_ours(&self, keys: &[Keys; K], attempt: usize) -> bool {
        self.names[attempt].iter().all(|name| self.has_key(&keys[*name], attempt))
    }

    /// Whether a lock key is the attempt's, alone or among others.
    pub(super) fn has_key(&self, keys: &Keys, attempt: usize) -> bool {
        let is_of = |token| {
            keys.lock.is_some_and(|(owner, _)| owner == token) || keys.shared.is_some_and(|period| period.has(token))
        };
        self.tokens(attempt).any(is_of)
    }

    /// Whether the node lets the key live longer, and remembers the floor if there is one.
    pub(super) fn extend(&self, keys: &mut [Keys; K], attempt: usize, fence: u64, floor: Option<u64>) -> bool {
        if self.is(Mutant::ExtendsByToken) {
            floor.is_none() && self.is_ours(keys, attempt)
        } else {
            matches!(self.ask(keys, attempt, Ask::Extend { fence, floor }), Answer::Done | Answer::Raised)
        }
    }

    /// Whether the lock of an attempt that has won may count as this from now on.
    pub(super) fn is_level(&self, state: &State<S, A, K>, attempt: usize, level: u64) -> bool {
        let raised = || self.list(attempt).filter(|node| state.nodes[*node].raised[attempt] >= level).count();
        self.is(Mutant::LevelsAlone) || self.is_quorum(raised())
    }

    /// What nodes are known to remember that is more than the lock of an attempt counts as, which has won: the most that
    /// one has granted to it, or says in place of taking the lock back.
    pub(super) fn ahead(&self, state: &State<S, A, K>, attempt: usize) -> Vec<u64> {
        let Attempt { won: Some(fence), level: Some(level), .. } = state.attempts[attempt] else {
            return Vec::new();
        };
        let heard = |node: usize| match state.nodes[node].parts[attempt] {
            Part::Granted(fence) => fence,
            Part::Pending | Part::Confirmed | Part::Refused => 0,
        };
        // An extension finds it there.
        let found = |node: usize| {
            let keys = self.names[attempt].iter().map(move |name| &state.nodes[node].keys[*name]);
            let own = keys.filter(|keys| self.has_key(keys, attempt));
            own.filter_map(|keys| keys.lock.map(|(_, fence)| fence).or(keys.shared.map(|period| period.fence))).max()
        };
        let refused = |node: usize| {
            let keys = &state.nodes[node].keys;
            // Asking takes long, and these do not answer so.
            if !self.restores
                || keys.iter().all(|keys| keys.fence <= level && keys.shared.is_none())
                || self.names[attempt].iter().all(|name| self.has_key(&keys[*name], attempt))
            {
                return 0;
            }
            match self.ask(&mut keys.clone(), attempt, Ask::Restore { fence, level }) {
                Answer::Ahead(fence) => fence,
                _ => 0,
            }
        };
        // An extension with it may still be under way.
        let raised = |node: usize| state.nodes[node].raised[attempt];
        let each = |node: usize| [heard(node), found(node).unwrap_or(0), refused(node), raised(node)];
        let mut ahead: Vec<u64> = self.list(attempt).flat_map(each).filter(|fence| *fence > level).collect();
        ahead.sort_unstable();
        ahead.dedup();
        ahead
    }

    /// Puts a lock back where there is none.
    pub(super) fn restore(&self, keys: &mut [Keys; K], attempt: usize, fence: u64, level: u64) {
        let lock = Some((self.token(attempt), fence));
        let names = self.names[attempt].iter();
        match self.mutant {
            Some(Mutant::RestoresByName) => {
                names.for_each(|name| keys[*name] = Keys { lock, shared: None, fence: keys[*name].fence.max(fence) });
            }
            Some(Mutant::RestoresItsFence) => names.for_each(|name| keys[*name] = Keys { lock, shared: None, fence }),
            _ => _ = self.ask(keys, attempt, Ask::Restore { fence, level }),
        }
    }

    /// All that an attempt can make of what it knows, by the answers of any nodes that are enough.
    pub(super) fn verdicts(&self, parts: &[Part], decided: Option<u64>) -> Vec<Next> {
        let granted = || parts.iter().filter_map(|part| if let Part::Granted(f) = part { Some(*f) } else { None });
        let is_carried = |counts: &dyn Fn(Part) -> bool| self.is_quorum(parts.iter().filter(|p| counts(**p)).count());
        let mut verdicts: Vec<Next> = match (self.mutant, decided) {
            (Some(Mutant::HalfQuorum), _) => granted().map(Next::Win).collect(),
            (Some(Mutant::KeepsProposal), _) if self.is_quorum(granted().count()) => {
                vec![Next::Win(self.proposals[0])]
            }
            (Some(Mutant::AnyGranted), None) if self.is_quorum(granted().count()) => {
                granted().map(Next::Confirm).collect()
            }
            (Some(Mutant::AnyGranted), Some(fence))
                if is_carried(&|part| part == Part::Confirmed || matches!(part, Part::Granted(f) if f >= fence)) =>
            {
                vec![Next::Win(fence)]
            }
            (Some(Mutant::KeepsProposal | Mutant::AnyGranted), _) => Vec::new(),
            (Some(Mutant::WaitsForAll), _) if parts.contains(&Part::Pending) => Vec::new(),
            _ => KNOWN.with_borrow_mut(|known| known.verdicts(parts, decided)),
        };
        if self.is(Mutant::SkipsConfirm) {
            for verdict in &mut verdicts {
                if let Next::Confirm(fence) = *verdict {
                    *verdict = Next::Win(fence);
                }
            }
        }
        verdicts.sort_unstable();
        verdicts.dedup();
        verdicts
    }
}
