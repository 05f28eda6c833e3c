//! PURE: what the answers of a node's sentinels mean for locks on it.

use std::collections::HashMap;
use std::time::Duration;

use crate::protocol::diagnosis::{Finding, Level, Refusal, least_ttl};
use crate::protocol::sentinel::{Primary, Told, primary};

/// How long a failover takes after `down-after-milliseconds`, until clients have noticed it.
const FAILOVER_MOST: Duration = Duration::from_secs(5);

/// The fields of the answer to SENTINEL MASTER.
pub(crate) type MasterAnswer = Result<HashMap<String, String>, Refusal>;

/// The answers of one sentinel.
#[derive(Debug)]
pub(crate) struct SentinelFacts {
    /// Where it listens.
    pub(crate) at: String,
    /// What it tells, with its answer to SENTINEL MASTER; the text of the failure if it could not be asked.
    pub(crate) told: Result<(Told, MasterAnswer), String>,
}

/// The answers of the sentinels that a node lists.
#[derive(Debug)]
pub(crate) struct GroupFacts {
    /// The name under which they know the primary.
    pub(crate) master: String,
    /// Those listed.
    pub(crate) sentinels: Vec<SentinelFacts>,
    /// The primary that this process uses.
    pub(crate) in_use: Option<Primary>,
}

impl GroupFacts {
    /// Returns the findings, in the order of the documentation. `ttl` is the client's.
    pub(crate) fn findings(&self, ttl: Duration) -> Vec<Finding> {
        let told = |sentinel: &SentinelFacts| sentinel.told.as_ref().map_or(Told::Silent, |(told, _)| told.clone());
        let told: Vec<_> = self.sentinels.iter().map(told).collect();
        let used = primary(&told, self.in_use.as_ref()).or_else(|| self.in_use.clone());
        let mut findings: Vec<_> =
            self.sentinels.iter().map(|each| each.finding(&self.master, used.as_ref())).collect();
        findings.push(used_primary(used.as_ref(), &told));
        // Without a primary, there is nothing to fail over.
        findings.extend(used.and_then(|_| self.failover(ttl)));
        findings
    }

    /// Returns a field of the answers to SENTINEL MASTER, from all that have it.
    fn numbers<'a>(&'a self, field: &'a str) -> impl Iterator<Item = u64> + 'a {
        let fields = self.sentinels.iter().filter_map(|sentinel| sentinel.told.as_ref().ok()?.1.as_ref().ok());
        fields.filter_map(move |fields| fields.get(field)?.parse().ok())
    }

    /// Judges whether a failover can take place, and whether held locks outlive it.
    fn failover(&self, ttl: Duration) -> Option<Finding> {
        let answers = |sentinel: &&SentinelFacts| matches!(sentinel.told, Ok((Told::Primary { .. }, _)));
        let listed = self.sentinels.len() as u64;
        // A sentinel counts those that it knows, listed or not.
        let all = self.numbers("num-other-sentinels").map(|others| others.saturating_add(1)).max().unwrap_or(listed);
        let quorum = self.numbers("quorum").max().unwrap_or_default();
        let needed = quorum.max(all / 2 + 1);
        let able = self.sentinels.iter().filter(answers).count() as u64 + all.saturating_sub(listed);
        if quorum > all {
            let message =
                format!("does not take place: the quorum is {quorum}, and there are {all} sentinels; lower it");
            return Some(Finding::new("failover", Level::Warning, message));
        }
        if able < needed {
            let message = format!("may not take place: {needed} sentinels have to agree, and {able} can be asked");
            return Some(Finding::new("failover", Level::Warning, message));
        }
        let down_after = self.numbers("down-after-milliseconds").max()?;
        let lasts = Duration::from_millis(down_after).saturating_add(FAILOVER_MOST);
        let least = least_ttl(lasts);
        let message = format!(
            "takes up to {lasts:?} with down-after-milliseconds {down_after}; held locks outlive it with a ttl of \
             {least:?}, and the client has a ttl of {ttl:?}"
        );
        Some(Finding::new("failover", if ttl < least { Level::Warning } else { Level::Ok }, message))
    }
}

impl SentinelFacts {
    fn finding(&self, master: &str, used: Option<&Primary>) -> Finding {
        let (level, message) = match &self.told {
            Ok((Told::Primary { place, epoch }, fields)) => {
                let is_used = used.is_none_or(|used| used.place == *place);
                let flags = fields.as_ref().ok().and_then(|fields| fields.get("flags"));
                let is_down = flags.is_some_and(|flags| flags.contains("s_down"));
                let epoch = epoch.map(|epoch| format!(", epoch {epoch}"));
                let named = format!("names {place}{}", epoch.as_deref().unwrap_or_default());
                match (epoch, fields) {
                    _ if !is_used => {
                        let why = "not the primary in use; it was cut off, or a failover is under way";
                        (Level::Warning, format!("{named}, {why}"))
                    }
                    _ if is_down => {
                        (Level::Warning, format!("{named}, and cannot reach it; check the network and its auth-pass"))
                    }
                    (Some(_), _) => (Level::Ok, named),
                    (None, Ok(_)) => (Level::Warning, format!("{named}, without an epoch")),
                    (None, Err(code)) => {
                        let loss = format!("SENTINEL MASTER is refused ({code}), so its epoch is not known");
                        (Level::Warning, format!("{named}; {loss}; grant +sentinel|master"))
                    }
                }
            }
            Ok(_) => (Level::Warning, format!("monitors no such master: {master}")),
            Err(failure) => (Level::Warning, failure.clone()),
        };
        Finding::new("sentinel", level, format!("{}: {message}", self.at))
    }
}

/// Judges how many sentinels name the primary that is used.
fn used_primary(used: Option<&Primary>, told: &[Told]) -> Finding {
    let Some(used) = used else {
        let message = "not known: a sentinel has to name it with an epoch, or a majority of those listed without one";
        return Finding::new("primary", Level::Unusable, message);
    };
    let names = |told: &&Told| matches!(told, Told::Primary { place, .. } if *place == used.place);
    let (votes, all) = (told.iter().filter(names).count(), told.len());
    let message = format!("{}, named by {votes} of {all} sentinels", used.place);
    if votes > all / 2 {
        return Finding::new("primary", Level::Ok, message);
    }
    let loss = match primary(told, None) {
        Some(_) => "another primary may come unseen",
        None => "a process that starts now finds none",
    };
    Finding::new("primary", Level::Warning, format!("{message}: not a majority, so {loss}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::place::Place;

    const TTL: Duration = Duration::from_secs(10);

    fn place(host: &str) -> Place {
        Place { host: host.to_owned(), port: 6379 }
    }

    /// A sentinel that names `host`, with the fields of its answer to SENTINEL MASTER.
    fn names(host: &str, epoch: u64, fields: &[(&str, &str)]) -> SentinelFacts {
        let told = Told::Primary { place: place(host), epoch: Some(epoch) };
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        SentinelFacts { at: "s:26379".to_owned(), told: Ok((told, Ok(fields.collect()))) }
    }

    fn refuses_epoch(host: &str) -> SentinelFacts {
        let told = Told::Primary { place: place(host), epoch: None };
        SentinelFacts { at: "s:26379".to_owned(), told: Ok((told, Err("NOPERM".to_owned()))) }
    }

    fn fails() -> SentinelFacts {
        SentinelFacts { at: "s:26379".to_owned(), told: Err("closed the connection".to_owned()) }
    }

    fn group<const N: usize>(sentinels: [SentinelFacts; N], in_use: Option<&str>) -> GroupFacts {
        let in_use = in_use.map(|host| Primary { place: place(host), epoch: None });
        GroupFacts { master: "mymaster".to_owned(), sentinels: sentinels.into(), in_use }
    }

    /// The findings of a check, each with its level's text.
    fn said(group: &GroupFacts, check: &str) -> Vec<String> {
        let findings = group.findings(TTL).into_iter().filter(|finding| finding.check == check);
        findings.map(|finding| format!("{}: {}", finding.level, finding.message)).collect()
    }

    #[test]
    fn each_sentinel_counts() {
        let unmonitored = SentinelFacts { at: "s:26379".to_owned(), told: Ok((Told::Unmonitored, Ok(HashMap::new()))) };
        let without = SentinelFacts {
            told: Ok((Told::Primary { place: place("a"), epoch: None }, Ok(HashMap::new()))),
            ..fails()
        };
        let sentinels = [
            names("a", 2, &[("flags", "master")]),
            names("a", 2, &[("flags", "s_down,o_down,master")]),
            names("b", 1, &[]),
            without,
            refuses_epoch("a"),
            unmonitored,
            fails(),
        ];
        let told = said(&group(sentinels, None), "sentinel");
        let expected = [
            "ok: s:26379: names a:6379, epoch 2",
            "warning: s:26379: names a:6379, epoch 2, and cannot reach it; check the network and its auth-pass",
            "warning: s:26379: names b:6379, epoch 1, not the primary in use; it was cut off, or a failover is under way",
            "warning: s:26379: names a:6379, without an epoch",
            "warning: s:26379: names a:6379; SENTINEL MASTER is refused (NOPERM), so its epoch is not known; grant \
             +sentinel|master",
            "warning: s:26379: monitors no such master: mymaster",
            "warning: s:26379: closed the connection",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_primary_and_how_many_name_it() {
        let a = || names("a", 0, &[]);
        let primary = |group: GroupFacts| said(&group, "primary").remove(0);
        assert_eq!(primary(group([a(), a(), fails()], None)), "ok: a:6379, named by 2 of 3 sentinels");
        let few = "warning: a:6379, named by 1 of 2 sentinels: not a majority, so another primary may come unseen";
        assert_eq!(primary(group([a(), fails()], None)), few);
        let none = primary(group([refuses_epoch("a"), fails(), fails()], Some("a")));
        assert!(none.starts_with("warning: a:6379, named by 1 of 3 sentinels: "), "{none}");
        assert!(none.ends_with("a process that starts now finds none"), "{none}");
        assert!(primary(group([fails()], Some("a"))).starts_with("warning: a:6379, named by 0 of 1"));
        for undecided in [group([fails()], None), group([refuses_epoch("a"), fails()], None)] {
            assert!(said(&undecided, "failover").is_empty());
            assert!(primary(undecided).starts_with("unusable: not known: "));
        }
    }

    #[test]
    fn whether_a_failover_takes_place_and_how_long_it_takes() {
        let tells = |quorum: &str, others: &str, down_after: &str| {
            let fields = [("quorum", quorum), ("num-other-sentinels", others), ("down-after-milliseconds", down_after)];
            names("a", 0, &fields)
        };
        let failover = |group: GroupFacts| said(&group, "failover").pop().unwrap_or_default();
        // Two thirds of 10 s are 6.6 s.
        assert!(failover(group([tells("1", "0", "1666")], None)).starts_with("ok: takes up to 6.666s"));
        let long = failover(group([tells("1", "0", "30000")], None));
        assert!(long.starts_with("warning: takes up to 35s with down-after-milliseconds 30000;"), "{long}");
        assert!(long.ends_with("with a ttl of 52.5s, and the client has a ttl of 10s"), "{long}");
        let endless = format!("{}", u64::MAX);
        assert!(failover(group([tells("1", "0", &endless)], None)).starts_with("warning: takes up to"));
        let two = || [tells("2", "2", "1000"), tells("2", "2", "1000"), fails()];
        assert!(failover(group(two(), None)).starts_with("ok: "));
        let one = failover(group([tells("2", "2", "1000"), fails(), fails()], None));
        assert_eq!(one, "warning: may not take place: 2 sentinels have to agree, and 1 can be asked");
        // One is listed, and there are two more, which may answer.
        assert!(failover(group([tells("3", "2", "1000")], None)).starts_with("ok: "));
        let never = failover(group([tells("3", "1", "1000"), tells("2", "1", "1000")], None));
        assert_eq!(never, "warning: does not take place: the quorum is 3, and there are 2 sentinels; lower it");
        // Without the right to SENTINEL MASTER, only their number is known.
        assert_eq!(failover(group([refuses_epoch("a")], None)), "");
        assert!(failover(group([refuses_epoch("a"), fails()], Some("a"))).starts_with("warning: may not take place"));
    }
}
