//! What can happen, and how it is told.

use redlock::testing::model::Part;

use super::{Fencing, State};
use crate::search::Way;

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
    /// The lock of an attempt that has won counts as one with this larger fence.
    Levels(usize, u64),
    /// The lock of the first attempt is detached.
    Detaches,
    /// An attachment holds it.
    Attaches(usize),
    /// An attachment gives up.
    GivesUp(usize),
    /// Something arrives at a node from an attachment.
    Handing(usize, usize, Handing),
    /// A node's key for a name ends.
    Ends(usize, usize),
    /// A node's key for a name ends for this attempt, one of those that share it.
    EndsFor(usize, usize, usize),
    /// A node loses its data, but for this fence.
    Loses(usize, u64),
}

/// What arrives at a node from an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handing {
    /// A re-key.
    Rekey,
    /// What keys back.
    KeyBack,
    /// An extension.
    Extend,
    /// A restore.
    Restore,
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
    /// An extension that has the node remember this fence, which another one has granted.
    Raise(u64),
    /// A restore.
    Restore,
    /// A release, or what leaves the lock for the rest of its least time.
    GiveUp,
}

/// The way to a state of a model, a line for each step.
#[must_use]
pub fn tell<const S: usize, const A: usize, const K: usize>(
    model: &Fencing<S, A, K>,
    (start, taken): &Way<Fencing<S, A, K>>,
) -> String {
    let of_name = |name: usize| start.nodes.map(|node| node.keys[name].fence);
    let of_names = |name: usize| format!("{} {:?}", letter(name), of_name(name));
    let fences = if K == 1 { format!("{:?}", of_name(0)) } else { (0..K).map(of_names).collect::<Vec<_>>().join(", ") };
    let steps = taken.iter().map(|(step, after)| line(model, after, *step));
    [format!("-- the nodes remember {fences}")].into_iter().chain(steps).collect::<Vec<_>>().join("\n")
}

/// How a name is told.
fn letter(name: usize) -> char {
    char::from(b"abc"[name])
}

/// What has just happened.
fn line<const S: usize, const A: usize, const K: usize>(
    model: &Fencing<S, A, K>,
    after: &State<S, A, K>,
    step: Step,
) -> String {
    let name = |attempt: usize| char::from(b"ABC"[attempt]);
    let letters = |attempt: usize| model.names[attempt].iter().copied().map(letter).collect::<String>();
    match step {
        Step::Begins(attempt) if model.shared[attempt] => format!("{}: begins, to share", name(attempt)),
        Step::Begins(attempt) if K > 1 => format!("{}: begins, for {}", name(attempt), letters(attempt)),
        Step::Begins(attempt) => format!("{}: begins", name(attempt)),
        Step::Between(attempt, node, message) => {
            let there = &after.nodes[node];
            let remembered = || {
                let fences: Vec<String> =
                    model.names[attempt].iter().map(|name| there.keys[*name].fence.to_string()).collect();
                fences.join(" and ")
            };
            let did = match message {
                Message::Acquire { again, heard, .. } => {
                    let granted = model.names[attempt]
                        .iter()
                        .find_map(|name| there.keys[*name].lock.filter(|(owner, _)| *owner == model.token(attempt)));
                    let shared = model.shared[attempt].then_some(there.keys[model.names[attempt][0]].fence);
                    let fence = granted.map(|(_, fence)| fence).or(shared).unwrap_or(0);
                    let again = if again { ", as the acquire arrives again" } else { "" };
                    let heard = if heard { "" } else { ", and nobody listens" };
                    format!("grants {fence}{again}{heard}")
                }
                Message::Confirm if there.parts[attempt] == Part::Confirmed => {
                    format!("confirms, and remembers {}", remembered())
                }
                Message::Confirm => format!("is asked to confirm in vain, and remembers {}", remembered()),
                Message::Extend if there.extended[attempt] => "extends".to_owned(),
                Message::Raise(floor) if there.raised[attempt] == floor => {
                    format!("extends, and remembers {}", remembered())
                }
                Message::Extend | Message::Raise(_) => "does not extend".to_owned(),
                Message::GiveUp if there.given_up[attempt] => "is given it back".to_owned(),
                Message::GiveUp => "is given back what it does not have".to_owned(),
                Message::Restore => format!("has the lock again, and remembers {}", remembered()),
            };
            format!("{}: node {} {did}", name(attempt), node + 1)
        }
        Step::Decides(attempt, fence) => format!("{}: decides on {fence}", name(attempt)),
        Step::Wins(attempt, fence) => format!("{}: wins with {fence}", name(attempt)),
        Step::Detaches => format!("{}: detaches", name(0)),
        Step::Attaches(number) => format!("attachment {}: holds the lock", number + 1),
        Step::GivesUp(number) => format!("attachment {}: gives up", number + 1),
        Step::Handing(number, node, message) => {
            let keys = &after.nodes[node].keys;
            let did = match message {
                Handing::Rekey => "is asked to re-key",
                Handing::KeyBack => "is asked to key back",
                Handing::Extend => "is asked to extend",
                Handing::Restore => "is asked to restore",
            };
            format!("attachment {}: node {} {did}, and has {keys:?}", number + 1, node + 1)
        }
        Step::Levels(attempt, level) => format!("{}: counts as {level}", name(attempt)),
        Step::Ends(node, _) if K == 1 => format!("-- the key on node {} ends", node + 1),
        Step::Ends(node, name) => format!("-- the key {} on node {} ends", letter(name), node + 1),
        Step::EndsFor(node, _, attempt) => format!("-- the key on node {} ends for {}", node + 1, name(attempt)),
        Step::Loses(node, left) => format!("-- node {} loses its data, and remembers {left}", node + 1),
    }
}
