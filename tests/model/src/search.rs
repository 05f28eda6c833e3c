//! Goes through every state of a model.

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::Hash;

use ahash::RandomState;

/// What can happen.
pub trait Model {
    /// Everything there is to know at one moment.
    type State: Hash;
    /// What leads from one moment to the next.
    type Step;

    /// Where it may begin.
    fn starts(&self) -> Vec<Self::State>;

    /// Passes on every step that can be taken now, and where it leads.
    fn steps(&self, state: &Self::State, take: impl FnMut(Self::Step, Self::State));
}

/// What should be so in every state, with its name.
pub type Property<'a, M> = (&'static str, Box<dyn Fn(&<M as Model>::State) -> bool + 'a>);

/// A way to a state: where it begins, and then each step with the state that it leads to.
pub type Way<M> = (<M as Model>::State, Vec<(<M as Model>::Step, <M as Model>::State)>);

/// Looks at every state that can be reached, the nearest ones first, until so `many` of the properties are broken. Returns
/// the shortest way to where each of these is, and how many states it has found.
///
/// A state is remembered by 64 bits of its hash.
pub fn broken<M: Model>(
    model: &M,
    mut properties: Vec<Property<M>>,
    many: usize,
) -> (Vec<(&'static str, Way<M>)>, usize) {
    let hash = RandomState::with_seeds(1, 2, 3, 4);
    let mut seen = HashSet::<u64, RandomState>::default();
    // In the order in which they were found, which is that of their distance, with the place of the one before.
    let mut found: Vec<(u64, Option<u32>)> = Vec::new();
    let mut ahead = VecDeque::new();
    let mut broken = Vec::new();
    let mut find = |state, before, found: &mut Vec<_>, ahead: &mut VecDeque<_>| {
        let known = hash.hash_one(&state);
        if seen.insert(known) {
            found.push((known, before));
            ahead.push_back(state);
        }
    };
    model.starts().into_iter().for_each(|state| find(state, None, &mut found, &mut ahead));
    let mut place = 0;
    while let Some(state) = ahead.pop_front() {
        properties.retain(|(name, holds)| {
            let is_broken = !holds(&state);
            if is_broken {
                broken.push((*name, way(model, &found, place, &hash)));
            }
            !is_broken
        });
        if broken.len() >= many {
            break;
        }
        model.steps(&state, |_, next| find(next, Some(place), &mut found, &mut ahead));
        place += 1;
    }
    (broken, found.len())
}

/// The way to the state at this place.
fn way<M: Model>(model: &M, found: &[(u64, Option<u32>)], place: u32, hash: &RandomState) -> Way<M> {
    let mut known = Vec::new();
    let mut next = Some(place);
    while let Some(place) = next {
        let (state, before) = found[place as usize];
        known.push(state);
        next = before;
    }
    let first = known.pop();
    let start = model.starts().into_iter().find(|state| Some(hash.hash_one(state)) == first).expect("where it began");
    let mut taken: Vec<(M::Step, M::State)> = Vec::new();
    while let Some(next) = known.pop() {
        let mut step = None;
        model.steps(taken.last().map_or(&start, |(_, state)| state), |taken, state| {
            if hash.hash_one(&state) == next {
                step.get_or_insert((taken, state));
            }
        });
        taken.extend(step);
    }
    (start, taken)
}

/// Looks at every state that can be reached. Returns how many there are if all are `right`; else the shortest way to one
/// that is not, a line for each step.
pub fn search<M: Model<Step: Display>>(model: &M, right: impl Fn(&M::State) -> bool) -> Result<usize, String> {
    let (mut broken, states) = broken(model, vec![("right", Box::new(right))], 1);
    let Some((_, (_, steps))) = broken.pop() else { return Ok(states) };
    Err(steps.iter().map(|(step, _)| step.to_string()).collect::<Vec<_>>().join("\n"))
}
