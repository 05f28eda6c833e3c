//! Goes through every state of a model.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::rc::Rc;

use ahash::RandomState;

/// What can happen.
pub trait Model {
    /// Everything there is to know at one moment.
    type State: Clone + Eq + Hash;
    /// What leads from one moment to the next, as a trace tells it.
    type Step: Display;

    /// Where it begins.
    fn start(&self) -> Self::State;

    /// Every step that can be taken now, and where it leads.
    fn steps(&self, state: &Self::State) -> Vec<(Self::Step, Self::State)>;
}

/// Looks at every state that can be reached. Returns how many there are if all are `right`; else the shortest way to one
/// that is not, a line for each step.
pub fn search<M: Model>(model: &M, right: impl Fn(&M::State) -> bool) -> Result<usize, String> {
    let start = Rc::new(model.start());
    let mut seen = HashSet::<_, RandomState>::from_iter([Rc::clone(&start)]);
    // In the order in which they were found, which is that of their distance, with the place of the one before.
    let mut found = vec![(start, 0)];
    let mut place = 0;
    while place < found.len() {
        let state = Rc::clone(&found[place].0);
        if !right(&state) {
            return Err(trace(model, &found, place));
        }
        for (_, next) in model.steps(&state) {
            let next = Rc::new(next);
            if seen.insert(Rc::clone(&next)) {
                found.push((next, place));
            }
        }
        place += 1;
    }
    Ok(found.len())
}

/// The steps that lead to the state at this place.
fn trace<M: Model>(model: &M, found: &[(Rc<M::State>, usize)], mut place: usize) -> String {
    let mut lines = Vec::new();
    while place != 0 {
        let (state, before) = &found[place];
        let steps = model.steps(&found[*before].0);
        lines.extend(steps.into_iter().find(|(_, next)| *next == **state).map(|(step, _)| step.to_string()));
        place = *before;
    }
    lines.reverse();
    lines.join("\n")
}
