//! What can happen, and how it is told.

use redlock::testing::model::Part;
use stateright::Path;

use super::State;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt begins.
    Begins(usize),
    /// Something happens between an attempt and a node.
    Between(usize, usize, Message),
    /// An attempt decides on the fence to confirm.
    Decides(usize, u64),
    /// An attempt wins.
    Wins(usize, u64),
    /// A node's key ends.
    Ends(usize),
    /// A node loses its data, but for this fence.
    Loses(usize, u64),
}

/// What arrives at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An acquire whose proposal comes to this, for the first time or `again`; and whether its answer is `heard`.
    Acquire {
        /// The proposal.
        proposal: u64,
        /// It has been here before.
        again: bool,
        /// The attempt hears the answer.
        heard: bool,
    },
    /// A confirm.
    Confirm,
    /// An extension.
    Extend,
    /// A restore.
    Restore,
}

/// The way to a state, a line for each step.
#[must_use]
pub fn tell<const S: usize, const A: usize>(path: Path<State<S, A>, Step>) -> String {
    let way = path.into_vec();
    let fences = way[0].0.nodes.map(|node| node.keys.fence);
    let steps = way.windows(2).filter_map(|pair| Some(line(&pair[1].0, pair[0].1?)));
    [format!("-- the nodes remember {fences:?}")].into_iter().chain(steps).collect::<Vec<_>>().join("\n")
}

/// What has just happened.
fn line<const S: usize, const A: usize>(after: &State<S, A>, step: Step) -> String {
    let name = |attempt: usize| char::from(b"ABC"[attempt]);
    match step {
        Step::Begins(attempt) => format!("{}: begins", name(attempt)),
        Step::Between(attempt, node, message) => {
            let there = &after.nodes[node];
            let did = match message {
                Message::Acquire { again, heard, .. } => {
                    let fence = there.keys.lock.map_or(0, |(_, fence)| fence);
                    let again = if again { ", as the acquire arrives again" } else { "" };
                    let heard = if heard { "" } else { ", and nobody listens" };
                    format!("grants {fence}{again}{heard}")
                }
                Message::Confirm if there.parts[attempt] == Part::Confirmed => {
                    format!("confirms, and remembers {}", there.keys.fence)
                }
                Message::Confirm => format!("is asked to confirm in vain, and remembers {}", there.keys.fence),
                Message::Extend => "extends".to_owned(),
                Message::Restore => format!("has the lock again, and remembers {}", there.keys.fence),
            };
            format!("{}: node {} {did}", name(attempt), node + 1)
        }
        Step::Decides(attempt, fence) => format!("{}: decides on {fence}", name(attempt)),
        Step::Wins(attempt, fence) => format!("{}: wins with {fence}", name(attempt)),
        Step::Ends(node) => format!("-- the key on node {} ends", node + 1),
        Step::Loses(node, left) => format!("-- node {} loses its data, and remembers {left}", node + 1),
    }
}
