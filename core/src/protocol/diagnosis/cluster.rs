//! PURE: what a server tells of its cluster, and what that means for locks.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::protocol::diagnosis::{Finding, Level, Refusal, least_ttl};
use crate::protocol::name::SLOTS;

/// How long a failover takes beyond 1.5 times `cluster-node-timeout`: the election, and until clients have noticed it.
const ELECTION_MOST: Duration = Duration::from_millis(1500);

/// How many ranges of slots a message names.
const RANGES_MOST: usize = 8;

/// The slots of a server, in ranges.
type Slots = Vec<RangeInclusive<u16>>;

/// The answers of one server about its cluster.
#[derive(Debug)]
pub(crate) struct ClusterFacts {
    /// The answer to CLUSTER INFO.
    pub(crate) info: Result<String, Refusal>,
    /// The answer to CLUSTER NODES.
    pub(crate) view: Result<View, Refusal>,
    /// The options of the server that begin with `cluster-`.
    pub(crate) settings: Result<HashMap<String, String>, Refusal>,
}

/// A server of the cluster, as another one or itself tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    id: String,
    /// Its host and port; empty if they are not known.
    at: String,
    flags: Vec<String>,
    /// The id of its primary, if it is a replica.
    follows: String,
    slots: Slots,
    /// The open slots, which a server tells of itself alone.
    open: Vec<Open>,
}

/// A slot that is on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Open {
    slot: u16,
    /// Whether it goes to the `other` server, or comes from there.
    is_leaving: bool,
    /// The id of the other server.
    other: String,
}

/// The whole cluster as one server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View(Vec<Member>);

impl Open {
    /// Reads `[slot->-id]` or `[slot-<-id]`.
    fn parse(word: &str) -> Option<Self> {
        let word = word.strip_prefix('[')?.strip_suffix(']')?;
        let leaving = word.split_once("->-").map(|parts| (parts, true));
        let ((slot, other), is_leaving) = leaving.or_else(|| Some((word.split_once("-<-")?, false)))?;
        Some(Self { slot: slot_in(slot)?, is_leaving, other: other.to_owned() })
    }
}

impl Member {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [id, at, flags, follows, _, _, _, _, slots @ ..] = words.as_slice() else { return None };
        // Behind it are the port of the bus, and names.
        let at = at.split('@').next().unwrap_or_default();
        let is_known = !at.starts_with(':') && !at.ends_with(":0");
        let mut member = Self {
            id: (*id).to_owned(),
            at: if is_known { at.to_owned() } else { String::new() },
            flags: flags.split(',').map(str::to_owned).collect(),
            follows: (*follows).to_owned(),
            slots: Slots::new(),
            open: Vec::new(),
        };
        for word in slots {
            if word.starts_with('[') {
                member.open.push(Open::parse(word)?);
            } else {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                let slots = slot_in(first)?..=slot_in(last)?;
                member.slots.push(Some(slots).filter(|slots| !slots.is_empty())?);
            }
        }
        Some(member)
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Whether it is taken for dead, by all or by the server that tells.
    fn is_down(&self) -> bool {
        self.has_flag("fail") || self.has_flag("fail?")
    }

    fn has_slots(&self) -> bool {
        self.has_flag("master") && !self.slots.is_empty()
    }

    /// Returns its address, or else the beginning of its id.
    fn shown(&self) -> String {
        if self.at.is_empty() { short(&self.id) } else { self.at.clone() }
    }
}

fn slot_in(word: &str) -> Option<u16> {
    word.parse().ok().filter(|slot| *slot < SLOTS)
}

fn short(id: &str) -> String {
    format!("the server {}", id.chars().take(8).collect::<String>())
}

impl View {
    /// Reads an answer to CLUSTER NODES.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let members = text.lines().filter(|line| !line.is_empty()).map(Member::parse);
        members.collect::<Option<_>>().map(Self)
    }

    /// Returns the server that tells this.
    fn myself(&self) -> Option<&Member> {
        self.0.iter().find(|member| member.has_flag("myself"))
    }

    fn member(&self, id: &str) -> Option<&Member> {
        self.0.iter().find(|member| member.id == id)
    }

    fn shown(&self, id: &str) -> String {
        self.member(id).map_or_else(|| short(id), Member::shown)
    }

    /// Returns, for each slot, a number for the server that has it, from 1; 0 if no server has it. Each id in `ids` has
    /// the number of its place.
    fn owners<'a>(&'a self, ids: &mut Vec<&'a str>) -> Vec<usize> {
        let mut owners = vec![0; usize::from(SLOTS)];
        for member in self.0.iter().filter(|member| member.has_slots()) {
            let number = ids.iter().position(|id| *id == member.id).unwrap_or_else(|| {
                ids.push(&member.id);
                ids.len() - 1
            });
            for slots in &member.slots {
                owners[usize::from(*slots.start())..=usize::from(*slots.end())].fill(number + 1);
            }
        }
        owners
    }

    fn unassigned(&self) -> Slots {
        let owners = self.owners(&mut Vec::new());
        ranges((0..SLOTS).filter(|slot| owners[usize::from(*slot)] == 0))
    }

    /// Returns the replicas of a server.
    fn replicas<'a>(&'a self, of: &'a Member) -> impl Iterator<Item = &'a Member> {
        self.0.iter().filter(move |member| member.has_flag("slave") && member.follows == of.id)
    }
}

/// Joins ascending slots to ranges.
fn ranges(slots: impl Iterator<Item = u16>) -> Slots {
    let mut joined = Slots::new();
    for slot in slots {
        match joined.last_mut() {
            Some(last) if *last.end() + 1 == slot => *last = *last.start()..=slot,
            _ => joined.push(slot..=slot),
        }
    }
    joined
}

/// Returns the slots as an operator reads them.
fn shown(slots: &[RangeInclusive<u16>]) -> String {
    let what = if matches!(slots, [one] if one.start() == one.end()) { "slot" } else { "slots" };
    let range = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    let named = slots.iter().take(RANGES_MOST).map(range).collect::<Vec<_>>().join(", ");
    match slots.len().saturating_sub(RANGES_MOST) {
        0 => format!("{what} {named}"),
        more => format!("{what} {named} and {more} ranges more"),
    }
}

impl ClusterFacts {
    /// Returns the findings, in the order of the documentation. `ttl` is the client's.
    pub(crate) fn findings(&self, ttl: Duration) -> Vec<Finding> {
        let mut findings: Vec<_> = self.state().into_iter().collect();
        match &self.view {
            Ok(view) => findings.extend(view.slots()),
            Err(code) => {
                let loss =
                    "slots without a primary, slots left open, dead replicas and maps that differ cannot be seen";
                let message = format!("CLUSTER NODES is refused ({code}): {loss}; grant +cluster|nodes");
                findings.push(Finding::new("slots", Level::Warning, message));
            }
        }
        findings.push(self.coverage());
        findings.extend(self.view.iter().flat_map(View::dead_replicas));
        findings.extend(self.failover(ttl));
        findings
    }

    /// Judges whether the server takes requests at all.
    fn state(&self) -> Option<Finding> {
        let state = match &self.info {
            Ok(info) => info.lines().find_map(|line| line.strip_prefix("cluster_state:")),
            Err(code) => {
                let loss = "whether the server takes requests for its slots cannot be seen";
                let message = format!("CLUSTER INFO is refused ({code}): {loss}; grant +cluster|info");
                return Some(Finding::new("slots", Level::Warning, message));
            }
        };
        if state? == "ok" {
            return None;
        }
        let message = "the server takes no requests (cluster_state is not ok), because a majority of the primaries does \
                       not answer it, or some slots are without a primary and cluster-require-full-coverage is yes";
        Some(Finding::new("slots", Level::Unusable, message))
    }

    /// Judges whether a shard that is down stops all others.
    fn coverage(&self) -> Finding {
        let check = "coverage";
        match self.setting("cluster-require-full-coverage") {
            Ok("no") => Finding::new(check, Level::Ok, "a shard that is down stops the names of its own slots alone"),
            Ok(_) => {
                let message =
                    "a shard that is down stops all names of the cluster; set cluster-require-full-coverage no";
                Finding::new(check, Level::Warning, message)
            }
            Err(why) => {
                let loss = "whether a shard that is down stops all others, and how long a failover takes, is not known";
                Finding::new(check, Level::Warning, format!("{why}: {loss}; look at the server's cluster- options"))
            }
        }
    }

    fn setting(&self, name: &str) -> Result<&str, String> {
        match &self.settings {
            Ok(settings) => {
                let missing = || format!("CONFIG GET does not tell {name}");
                settings.get(name).map(String::as_str).ok_or_else(missing)
            }
            Err(code) => Err(format!("CONFIG GET is refused ({code})")),
        }
    }

    /// Judges whether a replica can take over from this server, and whether held locks outlive that.
    fn failover(&self, ttl: Duration) -> Option<Finding> {
        let check = "failover";
        if let Ok(view) = &self.view {
            let myself = view.myself()?;
            // Without a replica, there is nothing to fail over.
            if !myself.has_slots() || view.replicas(myself).all(Member::is_down) {
                return None;
            }
            let voters: Vec<_> = view.0.iter().filter(|member| member.has_slots()).collect();
            let able = voters.iter().filter(|voter| voter.id != myself.id && !voter.is_down()).count();
            let needed = voters.len() / 2 + 1;
            if able < needed {
                let message = format!(
                    "does not take place: {needed} of {} primaries have to agree, and {able} can without this one; have \
                     three primaries that answer",
                    voters.len()
                );
                return Some(Finding::new(check, Level::Warning, message));
            }
        }
        let node_timeout = self.setting("cluster-node-timeout").ok()?.parse().ok().map(Duration::from_millis)?;
        let lasts = (node_timeout.saturating_mul(3) / 2).saturating_add(ELECTION_MOST);
        let least = least_ttl(lasts);
        let message = format!(
            "takes up to {lasts:?} with cluster-node-timeout {}, and a primary that is cut off grants for {node_timeout:?} \
             of that; held locks outlive it with a ttl of {least:?}, and the client has a ttl of {ttl:?}",
            node_timeout.as_millis()
        );
        Some(Finding::new(check, if ttl < least { Level::Warning } else { Level::Ok }, message))
    }
}

impl View {
    /// Judges whether every slot has a primary that answers, and is closed.
    fn slots(&self) -> Vec<Finding> {
        let warning = |message| Finding::new("slots", Level::Warning, message);
        let unassigned = self.unassigned();
        let mut findings = Vec::new();
        if !unassigned.is_empty() {
            let loss = "names there cannot be locked; assign them with redis-cli --cluster fix";
            findings.push(warning(format!("no primary has {}: {loss}", shown(&unassigned))));
        }
        for member in self.0.iter().filter(|member| member.has_slots() && member.is_down()) {
            let loss = "names there cannot be locked until it is back or a replica has taken over";
            findings.push(warning(format!(
                "{} has {} and does not answer: {loss}",
                member.shown(),
                shown(&member.slots)
            )));
        }
        findings.extend(self.open().into_iter().map(warning));
        if findings.is_empty() {
            findings.push(Finding::new("slots", Level::Ok, "all have a primary that answers, and none is open"));
        }
        findings
    }

    /// Tells of the slots that are on their way to this server or from it.
    fn open(&self) -> Vec<String> {
        let mut moves: BTreeMap<_, Vec<u16>> = BTreeMap::new();
        for Open { slot, is_leaving, other } in self.myself().iter().flat_map(|member| &member.open) {
            moves.entry((!is_leaving, other)).or_default().push(*slot);
        }
        let advice = "if no move is under way, end it with redis-cli --cluster fix";
        let told = |((is_coming, other), mut slots): ((bool, &String), Vec<u16>)| {
            slots.sort_unstable();
            let (slots, other) = (shown(&ranges(slots.into_iter())), self.shown(other));
            if is_coming {
                return format!("{slots} open, on the way here from {other}; {advice}");
            }
            let loss = "held locks stay held, and free ones cannot be acquired";
            format!("{slots} open, on the way to {other}: {loss}; {advice}")
        };
        moves.into_iter().map(told).collect()
    }

    fn dead_replicas(&self) -> Vec<Finding> {
        let replicas = self.myself().into_iter().flat_map(|myself| self.replicas(myself));
        let told = |replica: &Member| {
            let message = format!("{} does not answer; start it, or have the cluster forget it", replica.shown());
            Finding::new("replicas", Level::Warning, message)
        };
        replicas.filter(|replica| replica.is_down()).map(told).collect()
    }
}

/// What one of several servers tells of the slots.
struct Seen<'a> {
    /// The number of the server.
    number: usize,
    id: &'a str,
    view: &'a View,
    /// See [`View::owners`].
    owners: Vec<usize>,
}

/// Compares what servers tell of the slots, those of one cluster with each other. Returns a finding for each server that
/// can be compared, with its number.
pub(crate) fn compared(facts: &[Option<ClusterFacts>]) -> Vec<(usize, Finding)> {
    let (mut seen, mut ids) = (Vec::new(), Vec::new());
    for (number, facts) in facts.iter().enumerate() {
        let view = facts.as_ref().and_then(|facts| facts.view.as_ref().ok());
        if let Some((view, myself)) = view.and_then(|view| view.myself().map(|myself| (view, myself))) {
            seen.push(Seen { number, id: &myself.id, view, owners: view.owners(&mut ids) });
        }
    }
    seen.iter().filter_map(|one| Some((one.number, one.beside(&seen)?))).collect()
}

impl Seen<'_> {
    /// Whether the two are servers of one cluster: one that was cut off may not know the other.
    fn belongs_to(&self, other: &Self) -> bool {
        self.view.member(other.id).is_some() || other.view.member(self.id).is_some()
    }

    /// Judges whether the other servers of its cluster among `all` tell the same; `None` if there are none.
    fn beside(&self, all: &[Self]) -> Option<Finding> {
        let is_other = |other: &&Self| other.id != self.id && self.belongs_to(other);
        let others: Vec<_> = all.iter().filter(is_other).collect();
        let differ: Vec<_> = others.iter().filter(|other| other.owners != self.owners).collect();
        if others.is_empty() {
            return None;
        }
        if differ.is_empty() {
            return Some(Finding::new("map", Level::Ok, format!("{} servers tell the same", 1 + others.len())));
        }
        let is_elsewhere = |slot: &u16| {
            let slot = usize::from(*slot);
            differ.iter().any(|other| other.owners[slot] != self.owners[slot])
        };
        let slots = shown(&ranges((0..SLOTS).filter(is_elsewhere)));
        let names: Vec<_> = differ.iter().map(|other| self.view.shown(other.id)).collect();
        let message = format!(
            "another primary for {slots} than reported by {}: locks there may be refused; if no move or failover \
             is under way, use redis-cli --cluster fix",
            names.join(", ")
        );
        Some(Finding::new("map", Level::Warning, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three primaries, each with a replica, as the first one tells.
    const NODES: &str = "\
        a1 10.0.0.1:6379@16379,host myself,master - 0 0 1 connected 0-5460\n\
        b2 10.0.0.2:6379@16379 master - 0 0 2 connected 5461-10922\n\
        c3 2001:db8::3:6379@16379 master - 0 0 3 connected 10923-16383\n\
        d4 10.0.0.4:6379@16379 slave a1 0 0 1 connected\n\
        e5 10.0.0.5:6379@16379 slave b2 0 0 2 connected\n\
        f6 10.0.0.6:6379@16379 slave c3 0 0 3 connected\n";

    fn settings(settings: &[(&str, &str)]) -> HashMap<String, String> {
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn facts(nodes: &str) -> ClusterFacts {
        ClusterFacts {
            info: Ok("cluster_enabled:1\r\ncluster_state:ok\r\n".to_owned()),
            view: Ok(View::parse(nodes).unwrap()),
            settings: Ok(settings(&[("cluster-require-full-coverage", "no"), ("cluster-node-timeout", "1000")])),
        }
    }

    /// The findings of a check, each with its level's text.
    fn said(facts: &ClusterFacts, check: &str) -> Vec<String> {
        let findings = facts.findings(Duration::from_secs(10)).into_iter().filter(|finding| finding.check == check);
        findings.map(|finding| format!("{}: {}", finding.level, finding.message)).collect()
    }

    #[test]
    fn a_cluster_as_it_should_be() {
        let findings = facts(NODES).findings(Duration::from_secs(10));
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
        assert_eq!(findings.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["slots", "coverage", "failover"]);
    }

    #[test]
    fn what_is_wrong_with_slots() {
        for (from, to, expected) in [
            (
                "5461-10922",
                "5462-9999 10001-10922",
                &[
                    "warning: no primary has slots 5461, 10000: names there cannot be locked; assign them with redis-cli \
                   --cluster fix",
                ][..],
            ),
            (
                "10.0.0.2:6379@16379 master",
                "10.0.0.2:6379@16379 master,fail?",
                &[
                    "warning: 10.0.0.2:6379 has slots 5461-10922 and does not answer: names there cannot be locked until \
                   it is back or a replica has taken over",
                ],
            ),
            (
                "2001:db8::3:6379@16379 master",
                ":0@0 master,noaddr,fail",
                &[
                    "warning: the server c3 has slots 10923-16383 and does not answer: names there cannot be locked until \
                   it is back or a replica has taken over",
                ],
            ),
            (
                "0-5460",
                "0-5460 [8->-b2] [7->-b2] [9->-c3] [5461-<-b2] [6000-<-unknown-for-long]",
                &[
                    "warning: slots 7-8 open, on the way to 10.0.0.2:6379: held locks stay held, and free ones cannot be \
                     acquired; if no move is under way, end it with redis-cli --cluster fix",
                    "warning: slot 9 open, on the way to 2001:db8::3:6379: held locks stay held, and free ones cannot be \
                     acquired; if no move is under way, end it with redis-cli --cluster fix",
                    "warning: slot 5461 open, on the way here from 10.0.0.2:6379; if no move is under way, end it with \
                     redis-cli --cluster fix",
                    "warning: slot 6000 open, on the way here from the server unknown-; if no move is under way, end it with \
                     redis-cli --cluster fix",
                ],
            ),
            // One without slots is not missed.
            (
                "e5 10.0.0.5:6379@16379 slave b2",
                "e5 10.0.0.5:6379@16379 master,fail -",
                &["ok: all have a primary that answers, and none is open"],
            ),
        ] {
            assert_eq!(said(&facts(&NODES.replace(from, to)), "slots"), expected, "{to}");
        }
        let many: Vec<_> = (0..20).map(|number| (number * 2).to_string()).collect();
        let rest = said(&facts(&NODES.replace("0-5460", &many.join(" "))), "slots").remove(0);
        assert!(rest.contains("slots 1, 3, 5, 7, 9, 11, 13, 15 and 12 ranges more: names"), "{rest}");
    }

    #[test]
    fn a_server_that_takes_no_requests() {
        let fails = ClusterFacts { info: Ok("cluster_state:fail\r\n".to_owned()), ..facts(NODES) };
        assert!(said(&fails, "slots")[0].starts_with("unusable: the server takes no requests"));
        // What some proxy tells.
        let silent = ClusterFacts { info: Ok(String::new()), ..facts(NODES) };
        assert_eq!(said(&silent, "slots").len(), 1);
    }

    #[test]
    fn whether_one_shard_stops_all() {
        let with = |settings| said(&ClusterFacts { settings, ..facts(NODES) }, "coverage").remove(0);
        let yes = with(Ok(settings(&[("cluster-require-full-coverage", "yes")])));
        assert!(yes.starts_with("warning: a shard that is down stops all names"), "{yes}");
        assert!(with(Ok(settings(&[("cluster-require-full-coverage", "no")]))).starts_with("ok: "));
        assert!(
            with(Ok(settings(&[]))).starts_with("warning: CONFIG GET does not tell cluster-require-full-coverage: ")
        );
        assert!(with(Err("NOPERM".to_owned())).starts_with("warning: CONFIG GET is refused (NOPERM): whether"));
    }

    #[test]
    fn what_is_refused_is_not_known() {
        let refused = ClusterFacts {
            info: Err("NOPERM".to_owned()),
            view: Err("NOPERM".to_owned()),
            settings: Err("NOPERM".to_owned()),
        };
        let slots = said(&refused, "slots");
        assert_eq!(slots.len(), 2);
        assert!(slots[0].starts_with("warning: CLUSTER INFO is refused (NOPERM): "), "{slots:?}");
        assert!(slots[1].starts_with("warning: CLUSTER NODES is refused (NOPERM): "), "{slots:?}");
        assert_eq!(said(&refused, "failover"), [""; 0]);
        // How long it takes is known without the map.
        let without_map = ClusterFacts { view: Err("NOPERM".to_owned()), ..facts(NODES) };
        assert!(said(&without_map, "failover")[0].starts_with("ok: takes up to 3s"));
        assert_eq!(compared(&[Some(refused), Some(facts(NODES)), None]), []);
    }

    #[test]
    fn whether_a_failover_takes_place_and_how_long_it_takes() {
        let taking = |timeout: &str| {
            let settings = Ok(settings(&[("cluster-node-timeout", timeout)]));
            said(&ClusterFacts { settings, ..facts(NODES) }, "failover").pop().unwrap_or_default()
        };
        let default = "warning: takes up to 24s with cluster-node-timeout 15000, and a primary that is cut off grants for \
                       15s of that; held locks outlive it with a ttl of 36s, and the client has a ttl of 10s";
        assert_eq!(taking("15000"), default);
        // Two thirds of 10 s are 6.6 s.
        assert!(taking("3444").starts_with("ok: takes up to 6.666s"));
        assert!(taking("3446").starts_with("warning: takes up to 6.669s"));
        assert!(taking(&u64::MAX.to_string()).starts_with("warning: takes up to"));
        assert_eq!(taking("soon"), "");
        let among = |nodes: &str| said(&facts(nodes), "failover").pop().unwrap_or_default();
        assert_eq!(among(&NODES.replace("slave a1", "slave b2")), "", "nobody can take over");
        assert_eq!(among(&NODES.replace("10.0.0.4:6379@16379 slave", "10.0.0.4:6379@16379 slave,fail")), "");
        let down = among(&NODES.replace("10.0.0.2:6379@16379 master", "10.0.0.2:6379@16379 master,fail"));
        let never = "warning: does not take place: 2 of 3 primaries have to agree, and 1 can without this one; have three \
                     primaries that answer";
        assert_eq!(down, never);
        let two = NODES.replace("master - 0 0 3 connected 10923-16383", "master - 0 0 3 connected");
        assert!(among(&two).starts_with("warning: does not take place: 2 of 2 primaries have to agree, and 1 can"));
        assert_eq!(among(&NODES.replace("myself,master -", "myself,slave b2")), "", "it is a replica by now");
    }

    #[test]
    fn replicas_that_do_not_answer() {
        let down = NODES.replace("10.0.0.4:6379@16379 slave", "10.0.0.4:6379@16379 slave,fail");
        let message = "warning: 10.0.0.4:6379 does not answer; start it, or have the cluster forget it";
        assert_eq!(said(&facts(&down), "replicas"), [message]);
        // It is another server's.
        assert_eq!(said(&facts(&down.replace("slave,fail a1", "slave,fail b2")), "replicas"), [""; 0]);
    }

    /// The same cluster, as another server tells it.
    fn by(id: &str, nodes: &str) -> ClusterFacts {
        let nodes = nodes.replace("myself,", "");
        let line = nodes.lines().find(|line| line.starts_with(id)).unwrap();
        facts(&nodes.replace(line, &line.replace("master", "myself,master")))
    }

    #[test]
    fn servers_that_disagree() {
        let map = |facts: Vec<Option<ClusterFacts>>| {
            let told = |(number, finding): (usize, Finding)| {
                assert_eq!(finding.check, "map");
                (number, format!("{}: {}", finding.level, finding.message))
            };
            compared(&facts).into_iter().map(told).collect::<Vec<_>>()
        };
        let same = "ok: 2 servers tell the same".to_owned();
        let apart = || by("z9", "z9 10.0.9.9:1@2 myself,master - 0 0 1 connected 0-16383\n");
        let all = vec![Some(by("a1", NODES)), None, Some(apart()), Some(by("b2", NODES))];
        assert_eq!(map(all), [(0, same.clone()), (3, same)], "another cluster is left alone");
        let moved = NODES.replace(" 0-5460", " 0-5459").replace(" 5461-10922", " 5460-10922");
        let found = map([by("a1", NODES), by("b2", &moved), by("c3", NODES)].map(Some).into());
        let begin = |other: &str| format!("warning: another primary for slot 5460 than reported by {other}: ");
        for (found, others) in found.iter().zip(["10.0.0.2:6379", "10.0.0.1:6379, 2001:db8::3:6379", "10.0.0.2:6379"]) {
            assert!(found.1.starts_with(&begin(others)), "{found:?}");
        }
        // One that the others have forgotten still believes in them.
        let forgotten = NODES.split_once('\n').unwrap().1;
        let found = map([by("a1", NODES), by("b2", forgotten)].map(Some).into());
        assert!(found[1].1.starts_with("warning: another primary for slots 0-5460 than reported by the server a1: "));
    }

    #[test]
    fn answers_that_are_not_understood() {
        for odd in [
            "a b",
            "a1 h:1@2 master - 0 0 1 connected 9-5",
            "a1 h:1@2 master - 0 0 1 connected 16384",
            "a1 h:1@2 master - 0 0 1 connected [5-x-b2]",
        ] {
            assert_eq!(View::parse(odd), None, "{odd}");
        }
    }
}
