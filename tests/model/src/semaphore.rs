//! The semaphore of the library: each permit is a lock of its own, a slot, and who wants one asks for one slot at a time.
//!
//! What a node does is the library's own ([`redlock::testing::model`]). What a fence is, and what comes late, is the subject
//! of [`fencing`](crate::fencing), and left out here: every slot is such a lock. This model says what becomes of the slots
//! that a client goes by.
//!
//! A client *asks* for any slot, and nodes *grant* it. It has the slot with a quorum, or *goes on* to another one, or gives
//! its permit *back*. In both cases what it was granted is *released*, one node after the other, at any time from then on.
//! Each time that it asks it has another token. It does not ask again while a key of the last but one is left.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use ahash::RandomState;
use redlock::testing::model::{self, Answer, Ask, Keys};

use crate::search::Model;

/// How many nodes there are.
pub const NODES: usize = 3;

/// How many permits.
pub const PERMITS: usize = 2;

/// How many clients want one.
pub const CLIENTS: usize = 3;

/// The semaphore.
#[derive(Clone, Copy, Debug, Default)]
pub struct Semaphore {
    /// Whether a client that goes on keeps what it was granted.
    pub keeps: bool,
    /// Whether states count as one that differ by the order of their nodes. A step then tells another node than before.
    pub are_alike: bool,
}

/// Everything there is to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// What each node has for each slot.
    nodes: [[Keys; PERMITS]; NODES],
    clients: [Client; CLIENTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// The slot that it asks for, or has.
    slot: Option<usize>,
    has_it: bool,
    /// Which of its two tokens it uses now.
    second: bool,
    /// Which of its tokens' keys nobody releases, by bit.
    kept: u8,
}

/// What happens, by client, node and slot.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A client asks for a slot.
    Asks(usize, usize),
    /// A node grants it.
    Grants(usize, usize),
    /// A client has a quorum.
    Has(usize),
    /// A client has no quorum, and goes on.
    GoesOn(usize),
    /// A client gives its permit back.
    GivesBack(usize),
    /// A node releases what a client was granted before.
    Releases(usize, usize, usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client: usize| char::from(b"ABC"[client]);
        match *self {
            Self::Asks(client, slot) => write!(f, "{}: asks for slot {slot}", name(client)),
            Self::Grants(client, node) => write!(f, "{}: node {} grants it", name(client), node + 1),
            Self::Has(client) => write!(f, "{}: has it", name(client)),
            Self::GoesOn(client) => write!(f, "{}: goes on", name(client)),
            Self::GivesBack(client) => write!(f, "{}: gives it back", name(client)),
            Self::Releases(client, node, slot) => write!(f, "{}: node {} releases slot {slot}", name(client), node + 1),
        }
    }
}

/// What the library has answered: a node's keys, who asks and for what; and what the keys are then.
type Known = HashMap<(Keys, u8, Ask), (Keys, Answer), RandomState>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Asks a node, and leaves the fences out.
fn ask(keys: &mut Keys, owner: u8, ask: Ask) -> Answer {
    let answer;
    (*keys, answer) = KNOWN.with_borrow_mut(|known| {
        *known.entry((*keys, owner, ask)).or_insert_with(|| {
            let mut keys = *keys;
            let answer = keys.execute(owner, ask);
            (Keys { fence: 0, ..keys }, answer)
        })
    });
    answer
}

/// A client's token.
fn token(client: usize, second: bool) -> u8 {
    u8::try_from(2 * client).expect("a few clients") + u8::from(second)
}

impl State {
    fn owner(&self, node: usize, slot: usize) -> Option<u8> {
        self.nodes[node][slot].lock.map(|(owner, _)| owner)
    }

    /// How many nodes have a key of this owner in the slot.
    fn granted(&self, slot: usize, owner: Option<u8>) -> usize {
        (0..NODES).filter(|node| self.owner(*node, slot) == owner).count()
    }

    /// Whether no slot has two holders, which is why there are never more than permits.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        let holders = |slot| self.clients.iter().filter(|client| client.has_it && client.slot == Some(slot)).count();
        (0..PERMITS).all(|slot| holders(slot) <= 1)
    }

    /// Whether nobody has a permit, or ever can: nothing is under way, and no slot is free on a quorum.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let is_over = self.clients.iter().all(|client| client.slot.is_none());
        let is_free = |slot| self.granted(slot, None) >= model::quorum(NODES);
        is_over && self.released().is_empty() && !(0..PERMITS).any(is_free)
    }

    /// What is to be released: client, token, node and slot.
    fn released(&self) -> Vec<(usize, u8, usize, usize)> {
        let places = (0..NODES).flat_map(|node| (0..PERMITS).map(move |slot| (node, slot)));
        let left = places.filter_map(|(node, slot)| {
            let owner = self.owner(node, slot)?;
            let (number, second) = (usize::from(owner / 2), owner % 2);
            let client = self.clients[number];
            let is_in_use = client.slot.is_some() && client.second == (second == 1);
            (!is_in_use && client.kept & 1 << second == 0).then_some((number, owner, node, slot))
        });
        left.collect()
    }
}

impl Model for Semaphore {
    type State = State;
    type Step = Step;

    fn starts(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn steps(&self, state: &State) -> Vec<(Step, State)> {
        let mut steps = Vec::new();
        for (number, client) in state.clients.iter().enumerate() {
            let mut step = |step, change: &dyn Fn(&mut State)| {
                let mut next = state.clone();
                change(&mut next);
                steps.push((step, next));
            };
            let Some(slot) = client.slot else {
                let next = token(number, !client.second);
                let is_left = (0..PERMITS).any(|slot| state.granted(slot, Some(next)) > 0);
                for slot in (0..PERMITS).filter(|_| !is_left) {
                    let asking = Client { slot: Some(slot), second: !client.second, ..*client };
                    step(Step::Asks(number, slot), &|next| next.clients[number] = asking);
                }
                continue;
            };
            let owner = token(number, client.second);
            let over = Client { slot: None, has_it: false, ..*client };
            if client.has_it {
                step(Step::GivesBack(number), &|next| next.clients[number] = over);
                continue;
            }
            for node in (0..NODES).filter(|node| state.owner(*node, slot).is_none()) {
                step(Step::Grants(number, node), &|next| {
                    let answer = ask(&mut next.nodes[node][slot], owner, Ask::Acquire { proposal: 1 });
                    assert!(matches!(answer, Answer::Granted(_)), "a free slot is granted");
                });
            }
            if state.granted(slot, Some(owner)) >= model::quorum(NODES) {
                step(Step::Has(number), &|next| next.clients[number].has_it = true);
            } else {
                let kept = client.kept | if self.keeps { 1 << u8::from(client.second) } else { 0 };
                step(Step::GoesOn(number), &|next| next.clients[number] = Client { kept, ..over });
            }
        }
        for (number, owner, node, slot) in state.released() {
            let mut next = state.clone();
            let answer = ask(&mut next.nodes[node][slot], owner, Ask::Release);
            assert_eq!(answer, Answer::Done, "what was granted is released");
            steps.push((Step::Releases(number, node, slot), next));
        }
        if self.are_alike {
            for (_, next) in &mut steps {
                next.nodes.sort_unstable();
            }
        }
        steps
    }
}
