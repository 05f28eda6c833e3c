//! On arbitrary records the checker agrees with a slow and obvious one.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redlock_history::{Kind, LEAKED, OVERLAP, Record, Report, Rules, check};

proptest! {
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
        let found = count(&check(&[&records[..], &lapses].concat(), &Rules::default()), OVERLAP);

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
        let found = count(&check(&[&acquires[..], &keys].concat(), &rules), LEAKED);

        let explains = |owner: &Record, key: &Record| {
            let gone = if owner.ok { owner.valid_until_ns } else { owner.return_ns }.expect("both are known");
            owner.name == key.name
                && Some(owner.invoke_ns) <= key.return_ns
                && gone + settle >= key.invoke_ns
        };
        let leaked = keys.iter().filter(|key| !acquires.iter().any(|owner| explains(owner, key))).count();
        prop_assert_eq!(found, leaked);
    }
}

/// How often a rule is broken.
fn count(report: &Report, rule: &str) -> usize {
    report.violations.iter().filter(|violation| violation.rule == rule).count()
}

/// Something with no fence and no name.
fn at(client: &str, invoke_ns: u64, return_ns: u64) -> Record {
    Record::new(client, Kind::Outage, "", (invoke_ns, return_ns))
}

prop_compose! {
    fn arbitrary_acquire()(
        client in 0..4_u64,
        name in 0..2_u64,
        invoke_ns in 0..30_u64,
        took in 0..10_u64,
        fence in 0..20_u64,
        valid in 0..6_u64,
    ) -> Record {
        let return_ns = invoke_ns + took;
        Record {
            kind: Kind::Acquire,
            name: name.to_string(),
            fence: Some(fence),
            valid_until_ns: Some(return_ns + valid),
            ..at(&client.to_string(), invoke_ns, return_ns)
        }
    }
}
