//! At most one holder at a time, or readers alone.

use std::collections::{BTreeSet, BinaryHeap};

use crate::hold::Held;
use crate::period::Periods;
use crate::record::LockId;
use crate::violation::{OVERLAP, SUPERSEDED, Violation};

/// The part of a hold that one call stands for: from the return of the acquire or of an extension to the return of the
/// next one, or to the end of the hold.
struct Claim<'a> {
    hold: usize,
    lock: LockId<'a>,
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
        claims.push(Claim { hold: index, lock: hold.lock(), asked_ns, start_ns, end_ns: hold.end_ns() });
    }
    // A claim that ended before its call returned excludes no other.
    claims.retain(|claim| claim.start_ns < claim.end_ns);
    claims
}

/// Goes through the claims to each lock as they began; returns how many pairs of holds a lapse excuses.
///
/// Two that overlap are excused by a lapse that began before the later one did and had not ended when the older of
/// their two calls was invoked: both touching the time in which the keys of one of them may have got lost.
pub(crate) fn exclusion(holds: &[Held], periods: &Periods, violations: &mut Vec<Violation>) -> usize {
    let mut claims: Vec<Claim> = holds.iter().enumerate().flat_map(|(i, hold)| claims(i, hold)).collect();
    claims.sort_by_key(|claim| (claim.lock, claim.start_ns, claim.hold));
    let (mut found, mut excused) = (BTreeSet::new(), BTreeSet::new());
    for claims in claims.chunk_by(|one, next| one.lock == next.lock) {
        // Those of writers, and those of readers, who exclude writers alone.
        let mut going_on = [BinaryHeap::new(), BinaryHeap::new()];
        // These are the holds with the largest fences so far, of either.
        let mut newest: [Option<usize>; 2] = [None, None];
        for claim in claims {
            let lapsed_ns = periods.lapsed_ns(claim.lock, claim.start_ns);
            let is_excused =
                |asked_ns: u64| lapsed_ns.is_some_and(|lapsed_ns| asked_ns.min(claim.asked_ns) <= lapsed_ns);
            let second = &holds[claim.hold];
            let others = if second.is_shared() { 0..1 } else { 0..2 };
            for going_on in &mut going_on {
                while going_on.peek().is_some_and(|&(_, end_ns, _)| end_ns <= claim.start_ns) {
                    going_on.pop();
                }
            }
            let newest_other = newest[others.clone()].iter().flatten().max_by_key(|hold| holds[**hold].fence);
            if let Some(&(asked_ns, _, hold)) = going_on[others].iter().filter_map(BinaryHeap::peek).max() {
                let pair = (claim.hold.min(hold), claim.hold.max(hold));
                if is_excused(asked_ns) {
                    excused.insert(pair);
                } else if found.insert(pair) {
                    let both = [&holds[hold], second].into_iter().flat_map(Held::records);
                    violations.push(Violation::new(OVERLAP, both, String::new()));
                }
            } else if let Some(first) = newest_other.map(|newest| &holds[*newest])
                && claim.start_ns == second.start_ns()
                && first.fence > second.fence
                && second.acquired.invoke_ns <= first.start_ns()
                && !is_excused(first.acquired.invoke_ns)
            {
                let both = [first, second].into_iter().flat_map(Held::records);
                violations.push(Violation::new(SUPERSEDED, both, String::new()));
            }
            let own = usize::from(second.is_shared());
            going_on[own].push((claim.asked_ns, claim.end_ns, claim.hold));
            if newest[own].is_none_or(|newest| holds[newest].fence < second.fence) {
                newest[own] = Some(claim.hold);
            }
        }
    }
    excused.difference(&found).count()
}
