//! Random histories: a schedule that keeps the promises passes, a fault planted in it is found, and on arbitrary
//! records the checker agrees with a slow and obvious one.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redlock_history::{Kind, Record, Rules, Violation, check};

const STRICT: Rules = Rules {
    exclusion: true,
    told_late: Some(Duration::ZERO),
    order: true,
    settle: Duration::ZERO,
    limit: Some(Duration::from_nanos(200)),
    idle: None,
    quorum: None,
};

const CLIENTS: u64 = 4;

/// The parts of one hold. All numbers are small steps of time, so that equal times are common.
#[derive(Clone, Debug)]
struct Turn {
    client: u64,
    /// From the end of the hold before to the return of the acquire.
    gap: u64,
    /// How long before its return the acquire was invoked.
    wait: u64,
    fence_step: u64,
    ttl: u64,
    /// How long before the end of the validity each extension is invoked, and by how much it reaches further.
    extensions: Vec<(u64, u64)>,
    /// How long before the end of the validity it releases; `None` if it is notified of its loss at that end.
    release: Option<u64>,
    /// A failed attempt of another client in the meantime.
    denied: bool,
}

prop_compose! {
    fn turn()(
        client in 0..CLIENTS,
        gap in 0..5_u64,
        wait in 0..60_u64,
        fence_step in 1..4_u64,
        // This is longer than any release can be early, so every hold lasts for some time.
        ttl in 5..20_u64,
        extensions in vec((0..5_u64, 0..10_u64), 0..3),
        release in prop::option::of(0..5_u64),
        denied: bool,
    ) -> Turn {
        Turn { client, gap, wait, fence_step, ttl, extensions, release, denied }
    }
}

/// One name's holds, one after the other, with all their records.
type Chain = Vec<Vec<Record>>;

fn record(turn: &Turn, name: &str, kind: Kind, (invoke_ns, return_ns): (u64, u64), fence: u64) -> Record {
    let record = at(&format!("client {}", turn.client), invoke_ns, return_ns);
    Record { name: name.to_owned(), kind, fence: Some(fence), ..record }
}

fn chain(name: &str, turns: &[Turn]) -> Chain {
    let (mut now, mut fence) = (100, 0);
    let mut chain = Vec::new();
    for turn in turns {
        let start = now + turn.gap;
        let mut until = start + turn.ttl;
        fence += turn.fence_step;
        // The time when the last call that relies on the lock was invoked.
        let mut relied = start;
        let mut hold = Vec::new();
        let acquire = record(turn, name, Kind::Acquire, (start - turn.wait, start), fence);
        hold.push(Record { valid_until_ns: Some(until), ..acquire });
        for &(early, further) in &turn.extensions {
            let invoke = (until - early).max(relied);
            relied = invoke;
            let extend = record(turn, name, Kind::Extend, (invoke, until.max(invoke)), fence);
            until += further;
            hold.push(Record { valid_until_ns: Some(until), ..extend });
        }
        if let Some(early) = turn.release {
            now = (until - early).max(relied);
            hold.push(record(turn, name, Kind::Release, (now, now + early), fence));
        } else {
            now = until;
            hold.push(record(turn, name, Kind::Lost, (start, now), fence));
        }
        if turn.denied {
            let denied = record(turn, name, Kind::Acquire, (start, now), fence);
            hold.push(Record { client: "denied".to_owned(), ok: false, fence: None, ..denied });
        }
        chain.push(hold);
    }
    chain
}

/// Holds of one name, in order, and enough for any fault.
fn long_chain() -> impl Strategy<Value = Chain> {
    vec(turn(), 10..30).prop_map(|turns| chain("foo", &turns))
}

fn two_chains() -> impl Strategy<Value = Vec<Record>> {
    (vec(turn(), 0..30), vec(turn(), 0..30))
        .prop_map(|(one, two)| [chain("foo", &one).concat(), chain("bar", &two).concat()].concat())
        .prop_shuffle()
}

fn refence(hold: &mut [Record], fence: Option<u64>) {
    for record in hold.iter_mut().filter(|record| record.fence.is_some()) {
        record.fence = fence;
    }
}

fn found(records: &[Record]) -> Vec<Violation> {
    check(records, &STRICT).violations
}

proptest! {
    #[test]
    fn a_valid_schedule_passes(records in two_chains()) {
        let report = check(&records, &STRICT);
        prop_assert!(report.is_ok(), "{:#?}", report.violations);
        let won = records.iter().filter(|record| record.kind == Kind::Acquire && record.ok);
        prop_assert_eq!(report.acquisitions, won.count());
    }

    #[test]
    fn swapped_fences_are_found(mut chain in long_chain(), which: prop::sample::Index) {
        // Acquires that were pending together may get their fences in any order.
        let pairs: Vec<_> = (0..chain.len())
            .flat_map(|i| (i + 1..chain.len()).map(move |j| (i, j)))
            .filter(|&(i, j)| chain[i][0].return_ns < Some(chain[j][0].invoke_ns))
            .collect();
        prop_assume!(!pairs.is_empty());
        let (i, j) = pairs[which.index(pairs.len())];
        let (early, late) = (chain[i][0].fence, chain[j][0].fence);
        refence(&mut chain[i], late);
        refence(&mut chain[j], early);
        let found = found(&chain.concat());
        // These two holders and those between them may look as if they were too late as well.
        let wrong = |violation: &Violation| {
            !matches!(violation, Violation::OutOfOrder { .. } | Violation::Bridged { .. } | Violation::Superseded { .. })
        };
        prop_assert!(!found.iter().any(wrong), "{:#?}", found);
        let caught = found.iter().any(|violation| {
            matches!(violation, Violation::OutOfOrder { later, .. } if later == &chain[j][0])
        });
        prop_assert!(caught, "{:#?}", found);
    }

    #[test]
    fn a_duplicated_fence_is_found(mut chain in long_chain(), at: prop::sample::Index) {
        let i = at.index(chain.len() - 1);
        let fence = chain[i][0].fence;
        refence(&mut chain[i + 1], fence);
        let found = found(&chain.concat());
        let caught = found.iter().any(|violation| {
            matches!(violation, Violation::Duplicate { first, second }
                if [first, second].map(|record| record.return_ns) == [&chain[i], &chain[i + 1]].map(|hold| hold[0].return_ns))
        });
        prop_assert!(caught, "{:#?}", found);
    }

    #[test]
    fn an_extension_into_the_next_hold_is_found(mut chain in long_chain(), at: prop::sample::Index) {
        let i = at.index(chain.len() - 1);
        // The holder neither releases nor is notified: an extension that was invoked in time reaches too far.
        chain[i].retain(|record| matches!(record.kind, Kind::Acquire | Kind::Extend));
        let acquire = chain[i][0].clone();
        let invoke_ns = acquire.return_ns.expect("it returned");
        let until = chain[i].iter().filter_map(|record| record.valid_until_ns).max();
        let valid_until_ns = until.max(chain[i + 1][0].return_ns).map(|until| until + 1);
        let extend = Record { kind: Kind::Extend, invoke_ns, return_ns: Some(invoke_ns), valid_until_ns, ..acquire };
        chain[i].push(extend.clone());
        let rules = Rules { told_late: None, ..STRICT };
        let found = check(&chain.concat(), &rules).violations;
        let caught = found.iter().any(|violation| {
            matches!(violation, Violation::Overlap { first, second }
                if first.extended.as_ref() == Some(&extend) && second.acquired == chain[i + 1][0])
        });
        prop_assert!(caught, "{:#?}", found);
        let wrong = |violation: &Violation| !matches!(violation, Violation::Overlap { .. });
        prop_assert!(!found.iter().any(wrong), "{:#?}", found);
    }

    #[test]
    fn the_checker_agrees_with_a_slow_one(records in vec(arbitrary_acquire(), 0..12)) {
        let found = check(&records, &Rules::default()).violations;
        let count = |is: fn(&Violation) -> bool| found.iter().filter(|violation| is(violation)).count();

        let twin = |j: &usize| records[..*j].iter().any(|a| (&a.name, a.fence) == (&records[*j].name, records[*j].fence));
        let duplicates = (0..records.len()).filter(twin).count();
        prop_assert_eq!(count(|violation| matches!(violation, Violation::Duplicate { .. })), duplicates);

        let inverted = |a: &Record, b: &Record| a.name == b.name && a.return_ns < Some(b.invoke_ns) && a.fence > b.fence;
        let out_of_order = records.iter().filter(|b| records.iter().any(|a| inverted(a, b))).count();
        prop_assert_eq!(count(|violation| matches!(violation, Violation::OutOfOrder { .. })), out_of_order);

        let mut holds: Vec<&Record> = records.iter().filter(|hold| hold.return_ns < hold.valid_until_ns).collect();
        holds.sort_by_key(|hold| hold.return_ns);
        let overlap = |a: &Record, b: &Record| a.name == b.name && a.valid_until_ns > b.return_ns;
        let overlaps = (0..holds.len()).filter(|&j| holds[..j].iter().any(|a| overlap(a, holds[j]))).count();
        prop_assert_eq!(count(|violation| matches!(violation, Violation::Overlap { .. })), overlaps);
    }

    #[test]
    fn lapses_excuse_what_a_slow_checker_says(
        records in vec(arbitrary_acquire(), 0..12),
        lapses in vec((0..2_u64, 0..30_u64, 0..6_u64), 0..5),
    ) {
        let lapse = |&(name, from, lasted): &(u64, u64, u64)| Record {
            kind: Kind::Lapse,
            // The second name stands for all names.
            name: if name == 0 { "0".to_owned() } else { String::new() },
            ..at("a fault", from, from + lasted)
        };
        let lapses: Vec<Record> = lapses.iter().map(lapse).collect();
        let found = check(&[&records[..], &lapses].concat(), &Rules::default()).violations;
        let found = found.iter().filter(|violation| matches!(violation, Violation::Overlap { .. })).count();

        let mut holds: Vec<&Record> = records.iter().filter(|hold| hold.return_ns < hold.valid_until_ns).collect();
        holds.sort_by_key(|hold| hold.return_ns);
        let excuses = |a: &Record, b: &Record| lapses.iter().any(|lapse| {
            (lapse.name.is_empty() || lapse.name == b.name)
                && Some(lapse.invoke_ns) <= b.return_ns
                && lapse.return_ns >= Some(a.invoke_ns.min(b.invoke_ns))
        });
        let overlap = |a: &Record, b: &Record| a.name == b.name && a.valid_until_ns > b.return_ns && !excuses(a, b);
        let overlaps = (0..holds.len()).filter(|&j| holds[..j].iter().any(|a| overlap(a, holds[j]))).count();
        prop_assert_eq!(found, overlaps);
    }

    #[test]
    fn keys_leak_as_a_slow_checker_says(
        acquires in vec((arbitrary_acquire(), any::<bool>()), 0..8),
        keys in vec((0..2_u64, 0..40_u64, 0..3_u64, 0..20_u64), 0..8),
        settle in 0..4_u64,
    ) {
        let acquires: Vec<Record> = acquires.into_iter().map(|(acquire, ok)| Record { ok, ..acquire }).collect();
        let key = |&(name, from, lasted, fence): &(u64, u64, u64, u64)| Record {
            kind: Kind::Key,
            name: name.to_string(),
            fence: Some(fence),
            ..at("a node", from, from + lasted)
        };
        let keys: Vec<Record> = keys.iter().map(key).collect();
        let rules = Rules { settle: Duration::from_nanos(settle), ..Rules::default() };
        let found = check(&[&acquires[..], &keys].concat(), &rules).violations;
        let found = found.iter().filter(|violation| matches!(violation, Violation::Leaked { .. })).count();

        let explains = |owner: &Record, key: &Record| {
            let gone = if owner.ok { owner.valid_until_ns } else { owner.return_ns }.expect("both are known");
            owner.name == key.name
                && Some(owner.invoke_ns) <= key.return_ns
                && gone + settle >= key.invoke_ns
        };
        let leaked = keys.iter().filter(|key| !acquires.iter().any(|owner| explains(owner, key))).count();
        prop_assert_eq!(found, leaked);
    }

    #[test]
    fn a_store_that_does_what_it_should_is_never_blamed(
        calls in vec((0..40_u64, 0..12_u64, 0..12_u64, 0..5_u64, 0..10_u8), 0..20),
    ) {
        let mut records: Vec<Record> = (1..5).map(|fence| won(fence, at("a", 0, 0))).collect();
        let mut calls: Vec<_> = calls.iter().map(|&(asked, before, after, ..)| (asked + before, asked, after)).zip(&calls).collect();
        // Each takes effect between its invocation and its return.
        calls.sort_unstable();
        let (mut largest, mut count) = (0, 0);
        for ((effect, asked, after), &(.., fence, outcome)) in calls {
            let call = at("a", asked, effect + after);
            if fence == 0 {
                records.push(Record { kind: Kind::Read, count: Some(count), ..call });
                continue;
            }
            // One in ten is lost before it arrives, and one in ten loses its answer.
            let ok = outcome != 0 && fence >= largest;
            if ok {
                (largest, count) = (fence, count + 1);
            }
            let write = Record { kind: Kind::Write, fence: Some(fence), ok, count: ok.then_some(count), ..call };
            records.push(if outcome < 2 { Record { ok: false, count: None, return_ns: None, ..write } } else { write });
        }
        let report = check(&records, &Rules { exclusion: false, ..Rules::default() });
        prop_assert!(report.is_ok(), "{:#?}", report.violations);
    }
}

/// Something with no fence and no name.
fn at(client: &str, invoke_ns: u64, return_ns: u64) -> Record {
    Record::new(client, Kind::Outage, "", (invoke_ns, return_ns))
}

fn won(fence: u64, times: Record) -> Record {
    Record { kind: Kind::Acquire, fence: Some(fence), ..times }
}

prop_compose! {
    fn arbitrary_acquire()(
        client in 0..CLIENTS,
        name in 0..2_u64,
        invoke_ns in 0..30_u64,
        took in 0..10_u64,
        fence in 0..20_u64,
        valid in 0..6_u64,
    ) -> Record {
        let return_ns = invoke_ns + took;
        let acquire = won(fence, at(&client.to_string(), invoke_ns, return_ns));
        Record { name: name.to_string(), valid_until_ns: Some(return_ns + valid), ..acquire }
    }
}
