//! Times of trouble, and what they excuse.

use std::collections::BTreeMap;

use crate::record::{Kind, LockId, Record};

/// The lapses, outages and stops of a history.
pub(crate) struct Periods<'a>(BTreeMap<(Kind, &'a str), Vec<Period>>);

/// Of one kind and one name or client, sorted by when they began.
struct Period {
    from_ns: u64,
    /// The latest end of this one and of all before it.
    ended_ns: u64,
}

impl<'a> Periods<'a> {
    pub(crate) fn new(records: &[&'a Record]) -> Self {
        let mut periods: BTreeMap<_, Vec<Period>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.kind.is_period()) {
            let whom = if record.kind == Kind::Stopped { &record.client } else { &record.name };
            let period = Period { from_ns: record.invoke_ns, ended_ns: record.over_ns() };
            periods.entry((record.kind, whom.as_str())).or_default().push(period);
        }
        for periods in periods.values_mut() {
            periods.sort_by_key(|period| period.from_ns);
            for i in 1..periods.len() {
                periods[i].ended_ns = periods[i].ended_ns.max(periods[i - 1].ended_ns);
            }
        }
        Self(periods)
    }

    /// The latest end of the lapses that concern this lock and had begun by `at_ns`. Those of a semaphore concern all its
    /// slots.
    pub(crate) fn lapsed_ns(&self, (name, _): LockId, at_ns: u64) -> Option<u64> {
        self.ended_ns(&[(Kind::Lapse, ""), (Kind::Lapse, name)], at_ns)
    }

    /// Whether two servers could grant this lock all the time from `from_ns` to `to_ns`.
    pub(crate) fn are_divided(&self, (name, _): LockId, from_ns: u64, to_ns: u64) -> bool {
        self.ended_ns(&[(Kind::Divided, ""), (Kind::Divided, name)], from_ns) >= Some(to_ns)
    }

    /// The latest time at which the holder must be notified of the end of its validity.
    pub(crate) fn tell_by_ns(&self, client: &str, valid_until_ns: u64, slack_ns: u64) -> u64 {
        self.deadline_ns(&[(Kind::Stopped, client)], valid_until_ns, slack_ns)
    }

    /// The latest time at which a call must return.
    pub(crate) fn come_back_by_ns(&self, call: &Record, limit_ns: u64) -> u64 {
        self.serve_by_ns(call, call.invoke_ns, limit_ns)
    }

    /// The latest time at which a call must get what it could have `since_ns`.
    pub(crate) fn serve_by_ns(&self, call: &Record, since_ns: u64, limit_ns: u64) -> u64 {
        let mut met = vec![(Kind::Outage, ""), (Kind::Stopped, call.client.as_str())];
        met.extend(call.single_names().iter().map(|name| (Kind::Outage, name.as_str())));
        self.deadline_ns(&met, since_ns, limit_ns)
    }

    /// Whether `client` was killed while nodes were in trouble, so that lost requests to them are not retried.
    pub(crate) fn is_killed_in_outage(&self, client: &str) -> bool {
        let killed = |period: &&Period| period.ended_ns == u64::MAX;
        let killed = self.0.get(&(Kind::Stopped, client)).and_then(|stops| stops.iter().find(killed));
        killed.is_some_and(|killed| self.ended_ns(&[(Kind::Outage, "")], killed.from_ns) > Some(killed.from_ns))
    }

    /// The time when `limit_ns` have passed without interruption by any of these periods.
    fn deadline_ns(&self, of: &[(Kind, &str)], since_ns: u64, limit_ns: u64) -> u64 {
        let mut deadline_ns = since_ns.saturating_add(limit_ns);
        while let Some(ended_ns) = self.ended_ns(of, deadline_ns)
            && ended_ns.saturating_add(limit_ns) > deadline_ns
        {
            deadline_ns = ended_ns.saturating_add(limit_ns);
        }
        deadline_ns
    }

    /// The latest end of the periods of these that had begun by `at_ns`.
    fn ended_ns(&self, of: &[(Kind, &str)], at_ns: u64) -> Option<u64> {
        let ended = |key| {
            let periods = self.0.get(key)?;
            let begun = periods.partition_point(|period| period.from_ns <= at_ns);
            Some(periods[..begun].last()?.ended_ns)
        };
        of.iter().filter_map(ended).max()
    }
}
