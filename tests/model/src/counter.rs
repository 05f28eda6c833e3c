//! A semaphore that does not work: each node counts those who have a permit there, as in a number or a sorted set, and who
//! is counted by a majority of the nodes has a permit.
//!
//! No node ever counts more than it may, and yet more have a permit: two majorities have one node in common, so that one
//! holder is in the way of every other one. But with two permits it takes two holders to fill that node, and a third one
//! finds a majority whose nodes are each filled by half.

use std::fmt;

use crate::search::Model;

/// How many nodes there are.
pub const NODES: usize = 3;

/// How many are enough.
const MAJORITY: u32 = 2;

/// A semaphore with so many permits, for so many clients.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// How many clients a node may count.
    pub permits: u32,
    /// How many want a permit.
    pub clients: usize,
}

/// What the nodes count, and who believes to have a permit. One bit for each client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    nodes: [u8; NODES],
    holders: u8,
}

impl State {
    /// How many have a permit.
    #[must_use]
    pub fn holders(&self) -> u32 {
        self.holders.count_ones()
    }
}

/// What happens, by client and node.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A node counts one more client, for which it has room.
    Counts(usize, usize),
    /// A client that a majority counts has a permit.
    Holds(usize),
    /// A client gives its permit back to all nodes.
    GivesBack(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client: usize| char::from(b"ABCD"[client]);
        match *self {
            Self::Counts(client, node) => write!(f, "{}: node {} counts it", name(client), node + 1),
            Self::Holds(client) => write!(f, "{}: has a permit", name(client)),
            Self::GivesBack(client) => write!(f, "{}: gives it back", name(client)),
        }
    }
}

impl Model for Counter {
    type State = State;
    type Step = Step;

    fn starts(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn steps(&self, state: &State) -> Vec<(Step, State)> {
        let mut steps = Vec::new();
        for client in 0..self.clients {
            let bit = 1 << client;
            for (node, counted) in state.nodes.iter().enumerate() {
                if counted & bit == 0 && counted.count_ones() < self.permits && state.holders & bit == 0 {
                    let mut next = state.clone();
                    next.nodes[node] |= bit;
                    steps.push((Step::Counts(client, node), next));
                }
            }
            let by = state.nodes.iter().map(|counted| u32::from(counted & bit != 0)).sum::<u32>();
            if state.holders & bit != 0 {
                let nodes = state.nodes.map(|counted| counted & !bit);
                steps.push((Step::GivesBack(client), State { nodes, holders: state.holders & !bit }));
            } else if by >= MAJORITY {
                steps.push((Step::Holds(client), State { holders: state.holders | bit, ..state.clone() }));
            }
        }
        steps
    }
}
