//! At most one holder at a time.

use std::collections::{BTreeSet, BinaryHeap};

use crate::hold::Held;
use crate::period::Periods;
use crate::violation::Violation;

/// The part of a hold that one call stands for: from the return of the acquire or of an extension to the return of the
/// next one, or to the end of the hold.
struct Claim<'a> {
    hold: usize,
    name: &'a str,
    /// When the call was invoked. After that a quorum of nodes had the keys.
    asked_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

fn claims<'a>(index: usize, hold: &Held<'a>) -> Vec<Claim<'a>> {
    let mut calls: Vec<_> = hold.extensions.iter().map(|call| (call.over_ns(), call.invoke_ns)).collect();
    calls.push((hold.start_ns(), hold.acquired.invoke_ns));
    calls.sort_unstable();
    let mut claims: Vec<Claim> = Vec::new();
    for (start_ns, mut asked_ns) in calls {
        if let Some(last) = claims.last_mut() {
            last.end_ns = start_ns.min(last.end_ns);
            // A call that returned later was not necessarily invoked later.
            asked_ns = asked_ns.max(last.asked_ns);
        }
        claims.push(Claim { hold: index, name: hold.name(), asked_ns, start_ns, end_ns: hold.end_ns() });
    }
    // A claim that ended before its call returned excludes no other.
    claims.retain(|claim| claim.start_ns < claim.end_ns);
    claims
}

/// Goes through the claims to each name as they began; returns how many pairs of holds a lapse excuses.
///
/// Two that overlap are excused by a lapse that began before the later one did and had not ended when the older of
/// their two calls was invoked: both touching the time in which the keys of one of them may have got lost.
pub(crate) fn exclusion(holds: &[Held], periods: &Periods, violations: &mut Vec<Violation>) -> usize {
    let mut claims: Vec<Claim> = holds.iter().enumerate().flat_map(|(i, hold)| claims(i, hold)).collect();
    claims.sort_by_key(|claim| (claim.name, claim.start_ns, claim.hold));
    let (mut found, mut excused) = (BTreeSet::new(), BTreeSet::new());
    for claims in claims.chunk_by(|one, next| one.name == next.name) {
        let mut going_on = BinaryHeap::new();
        // This is the hold with the largest fence so far.
        let mut newest: Option<usize> = None;
        for claim in claims {
            let lapsed_ns = periods.lapsed_ns(claim.name, claim.start_ns);
            let is_excused =
                |asked_ns: u64| lapsed_ns.is_some_and(|lapsed_ns| asked_ns.min(claim.asked_ns) <= lapsed_ns);
            let second = &holds[claim.hold];
            while going_on.peek().is_some_and(|&(_, end_ns, _)| end_ns <= claim.start_ns) {
                going_on.pop();
            }
            if let Some(&(asked_ns, _, hold)) = going_on.peek() {
                let pair = (claim.hold.min(hold), claim.hold.max(hold));
                if is_excused(asked_ns) {
                    excused.insert(pair);
                } else if found.insert(pair) {
                    let (first, second) = (holds[hold].report(), second.report());
                    violations.push(Violation::Overlap { first, second });
                }
            } else if let Some(first) = newest.map(|newest| &holds[newest])
                && claim.start_ns == second.start_ns()
                && first.fence > second.fence
                && second.acquired.invoke_ns <= first.start_ns()
                && !is_excused(first.acquired.invoke_ns)
            {
                violations.push(Violation::Superseded { first: first.report(), second: second.report() });
            }
            going_on.push((claim.asked_ns, claim.end_ns, claim.hold));
            if newest.is_none_or(|newest| holds[newest].fence < second.fence) {
                newest = Some(claim.hold);
            }
        }
    }
    excused.difference(&found).count()
}
