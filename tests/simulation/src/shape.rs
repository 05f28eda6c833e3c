//! What is locked: one name, alone or shared, several, or a permit of a semaphore.

use std::borrow::Cow;

use redlock::{Fixed, Lock, Redlock};
use redlock_history::Record;

use crate::dice::Dice;

/// The names that everybody fights for, mostly the first two. Those of one hash tag are in one slot of a cluster.
pub(crate) const NAMES: [&str; 4] = ["apple", "{pear}s", "{apple}pie", "{pear}tree"];

/// How many of them most locks of one name are about. The semaphores have the same names, and nothing to do with them.
pub(crate) const CONTESTED: usize = 2;

/// What a lock is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One(&'static str),
    /// All of these names.
    All(Vec<&'static str>),
    /// One of so many permits of the semaphore with this name.
    Permit(&'static str, u32),
    /// One name, as one of its readers.
    Shared(&'static str),
}

impl Shape {
    /// Several names, all in one slot if the nodes are clusters.
    pub(crate) fn several(dice: &mut Dice, are_clusters: bool) -> Self {
        let mut names = if are_clusters { vec![NAMES[0], NAMES[2]] } else { NAMES.to_vec() };
        if are_clusters && dice.chance(300) {
            names = vec![NAMES[1], NAMES[3]];
        }
        let count = dice.index(names.len() - 1) + 2;
        while names.len() > count {
            // Those that are contested stay longer.
            let last = names.len() - 1;
            names.remove(if dice.chance(700) { last } else { dice.index(last + 1) });
        }
        if dice.chance(500) {
            names.reverse();
        }
        Self::All(names)
    }

    /// The lock, with the options of its client.
    pub(crate) fn lock(&self, client: &Redlock) -> Lock<Fixed> {
        match self {
            Self::One(name) => client.lock(name).into(),
            Self::All(names) => client.lock_all(names),
            Self::Permit(name, permits) => client.semaphore(name, *permits),
            Self::Shared(name) => client.lock(name).shared(),
        }
    }

    /// The single names.
    pub(crate) fn names(&self) -> &[&'static str] {
        match self {
            Self::One(name) | Self::Permit(name, _) | Self::Shared(name) => std::slice::from_ref(name),
            Self::All(names) => names,
        }
    }

    /// How it is told.
    pub(crate) fn told(&self) -> Cow<'static, str> {
        match self {
            Self::One(name) => Cow::Borrowed(name),
            Self::All(names) => Cow::Owned(names.join(", ")),
            Self::Permit(name, permits) => Cow::Owned(format!("one of {permits} {name}")),
            Self::Shared(name) => Cow::Owned(format!("{name} with others")),
        }
    }

    pub(crate) fn is_permit(&self) -> bool {
        matches!(self, Self::Permit(..))
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// A record about it.
    pub(crate) fn of(&self, record: Record) -> Record {
        match self {
            Self::One(name) => Record { name: (*name).to_owned(), ..record },
            Self::All(names) => {
                let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                Record { name: names.join(", "), names, ..record }
            }
            Self::Permit(name, permits) => Record { name: (*name).to_owned(), permits: Some(*permits), ..record },
            Self::Shared(name) => Record { name: (*name).to_owned(), shared: true, ..record },
        }
    }
}

/// The lock that a key is of: its name, and the slot of a semaphore. `None` for the other keys of semaphores.
pub(crate) fn lock_of(key: &str) -> Option<(&str, Option<u32>)> {
    let Some(slot) = key.strip_prefix("redlock:slot:") else { return Some((key, None)) };
    let (number, ending) = slot.split_once(':')?;
    let name = ending.strip_prefix(':').or_else(|| ending.strip_prefix('{')?.strip_suffix('}'))?;
    Some((name, Some(number.parse().ok()?)))
}
