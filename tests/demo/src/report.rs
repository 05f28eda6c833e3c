//! What became of the fight.

use std::io::{self, Write};
use std::time::Duration;

use history::{History, Kind, Record, Rules, Violation};

use crate::counter::Counter;
use crate::faults::Span;
use crate::worker::Face;

/// How many of a kind of complaint are shown.
const SHOWN: usize = 5;

/// One worker process.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) face: Face,
    pub(crate) pid: u32,
}

/// Everything that was seen.
#[derive(Debug)]
pub(crate) struct Fight {
    start_ns: u64,
    pub(crate) spans: [Span; 2],
    pub(crate) workers: Vec<Worker>,
    pub(crate) history: History,
    /// How often the file was increased, as the workers say.
    pub(crate) increased: u64,
    /// What the file says in the end.
    pub(crate) counter: Result<Counter, String>,
    pub(crate) damage: Vec<String>,
    pub(crate) failed: Vec<String>,
    /// Workers that did not end with success.
    pub(crate) crashed: u64,
}

impl Fight {
    pub(crate) fn new(start_ns: u64, spans: [Span; 2]) -> Self {
        Self {
            start_ns,
            spans,
            workers: Vec::new(),
            history: History::new(),
            increased: 0,
            counter: Err("was not read".to_owned()),
            damage: Vec::new(),
            failed: Vec::new(),
            crashed: 0,
        }
    }

    /// Writes the report; `true` if every promise held.
    pub(crate) fn report(&self, out: &mut impl Write) -> io::Result<bool> {
        let judged = self.history.check(&Rules::default());
        let acquires: Vec<&Record> =
            self.history.records().iter().filter(|record| record.kind == Kind::Acquire && record.ok).collect();

        writeln!(out, "   worker   face         pid   acquisitions   wait median        99 %     longest")?;
        let mut starved = 0;
        for Worker { name, face, pid } in &self.workers {
            let mine: Vec<&Record> = acquires.iter().copied().filter(|record| record.client == *name).collect();
            starved += usize::from(mine.is_empty());
            writeln!(out, "   {name:<6}   {:<8} {pid:>7}   {}", face.name(), figures(&mine))?;
        }
        writeln!(out, "   {:<6}   {:<8} {:>7}   {}\n", "all", "", "", figures(&acquires))?;

        let mut stalled = 0;
        for span in self.spans {
            let during = self.during(&acquires, span);
            stalled += usize::from(during.is_empty());
            writeln!(
                out,
                "   {:>5.1} s to {:>4.1} s   {:<38} {:>5} acquisitions meanwhile, longest wait {}",
                span.from.at.as_secs_f64(),
                span.to.at.as_secs_f64(),
                span.text(),
                during.len(),
                millis(at(&during, 100)),
            )?;
        }
        writeln!(out)?;

        let duplicates = judged.violations.iter().filter(|found| matches!(found, Violation::Duplicate { .. })).count();
        let disorder = judged.violations.iter().filter(|found| matches!(found, Violation::OutOfOrder { .. })).count();
        let overlaps = judged.violations.iter().filter(|found| matches!(found, Violation::Overlap { .. })).count();
        let others = judged.violations.len() - duplicates - disorder - overlaps;
        let acquisitions = judged.acquisitions as u64;
        let count = self.counter.as_ref().map_or(0, |counter| counter.count);
        let last = self.counter.as_ref().map_or(0, |counter| counter.fence);
        let rows = [
            Row::new("fences strictly increasing", duplicates + disorder == 0, format!("{last} was the last")),
            Row::new("overlaps", overlaps == 0, overlaps.to_string()),
            Row::new(
                "lost updates",
                count == acquisitions && self.increased == acquisitions && self.damage.is_empty(),
                format!("the file counts {count}, the workers {acquisitions}"),
            ),
            Row::new("waiting", starved + stalled == 0, waiting(starved, stalled)),
            Row::new("failed calls", self.failed.is_empty(), self.failed.len().to_string()),
            Row::new("workers", self.crashed == 0, self.ended()),
            Row::new("records", others == 0, format!("{} judged", judged.records)),
        ];
        for row in &rows {
            writeln!(out, "   {:<28} {:<4} {}", row.what, if row.good { "ok" } else { "BAD" }, row.text)?;
        }
        let violations: Vec<String> = judged.violations.iter().map(ToString::to_string).collect();
        for complaints in [&violations, &self.damage, &self.failed] {
            complain(out, complaints)?;
        }
        if let Err(error) = &self.counter {
            writeln!(out, "\n   {error}")?;
        }
        let held = rows.iter().all(|row| row.good);
        let verdict =
            if held { "OK: one holder at a time, fences in order, no update lost." } else { "FAILED: see BAD above." };
        writeln!(out, "\n{verdict}")?;
        Ok(held)
    }

    /// The acquisitions that came back between the two acts of a trouble.
    fn during<'a>(&self, acquires: &[&'a Record], span: Span) -> Vec<&'a Record> {
        let since = |record: &Record| Duration::from_nanos(record.return_ns.saturating_sub(self.start_ns));
        let inside = |record: &&&Record| (span.from.at..span.to.at).contains(&since(record));
        acquires.iter().filter(inside).copied().collect()
    }

    fn ended(&self) -> String {
        let well = (self.workers.len() as u64).saturating_sub(self.crashed);
        format!("{well} of {} came to their end", self.workers.len())
    }
}

struct Row {
    what: &'static str,
    good: bool,
    text: String,
}

impl Row {
    fn new(what: &'static str, good: bool, text: String) -> Self {
        Self { what, good, text }
    }
}

fn waiting(starved: usize, stalled: usize) -> String {
    if starved + stalled == 0 {
        "everybody got it, during the faults too".to_owned()
    } else {
        format!("{starved} workers never got it, {stalled} faults stopped everybody")
    }
}

fn figures(acquires: &[&Record]) -> String {
    let [median, p99, longest] = [50, 99, 100].map(|percent| millis(at(acquires, percent)));
    format!("{:>12}   {median:>11} {p99:>11} {longest:>11}", acquires.len())
}

/// The wait that so many percent did not exceed; zero where nobody waited.
fn at(acquires: &[&Record], percent: usize) -> Duration {
    let mut waits: Vec<u64> = acquires.iter().map(|record| record.return_ns.saturating_sub(record.invoke_ns)).collect();
    waits.sort_unstable();
    let rank = (waits.len() * percent).div_ceil(100).saturating_sub(1);
    Duration::from_nanos(waits.get(rank).copied().unwrap_or(0))
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

fn complain(out: &mut impl Write, complaints: &[String]) -> io::Result<()> {
    if complaints.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    for complaint in complaints.iter().take(SHOWN) {
        writeln!(out, "   {complaint}")?;
    }
    if complaints.len() > SHOWN {
        writeln!(out, "   and {} more like these", complaints.len() - SHOWN)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::plan;

    /// A fight of two workers that take turns, through both faults.
    fn fair() -> Fight {
        let mut fight = Fight::new(0, plan(Duration::from_secs(10)));
        for name in ["1", "2"] {
            fight.workers.push(Worker { name: name.to_owned(), face: Face::Async, pid: 1 });
        }
        for turn in 1..=100_u64 {
            let client = if turn % 2 == 0 { "1" } else { "2" };
            let ns = turn * 100_000_000;
            for (kind, at) in [(Kind::Acquire, ns), (Kind::Release, ns + 50_000_000)] {
                fight.history.push(Record {
                    client: client.to_owned(),
                    name: "demo".to_owned(),
                    kind,
                    invoke_ns: at,
                    return_ns: at + 10_000_000,
                    ok: true,
                    fence: Some(turn),
                    valid_until_ns: (kind == Kind::Acquire).then_some(at + 3_000_000_000),
                });
            }
            fight.increased += 1;
        }
        fight.counter = Ok(Counter { count: 100, fence: 100 });
        fight
    }

    fn verdict(change: impl FnOnce(&mut Fight)) -> (bool, String) {
        let mut fight = fair();
        change(&mut fight);
        let mut text = Vec::new();
        let good = fight.report(&mut text).expect("memory can be written");
        (good, String::from_utf8(text).expect("it is text"))
    }

    #[test]
    fn a_fair_fight_is_good() {
        let (good, text) = verdict(|_| {});
        assert!(good, "{text}");
        assert!(!text.contains("BAD"), "{text}");
    }

    #[test]
    fn each_broken_promise_is_bad() {
        type Break = fn(&mut Fight);
        let breaks: [(&str, Break); 9] = [
            ("overlap", |fight| {
                let mut second = fight.history.records()[0].clone();
                (second.client, second.fence) = ("2".to_owned(), Some(1_000));
                fight.history.push(second);
            }),
            ("order", |fight| {
                let mut late = fight.history.records()[198].clone();
                (late.invoke_ns, late.return_ns, late.fence) = (20_000_000_000, 20_000_000_001, Some(0));
                fight.history.push(late);
            }),
            ("lost update", |fight| fight.counter = Ok(Counter { count: 99, fence: 100 })),
            ("unread", |fight| fight.counter = Err("gone".to_owned())),
            ("damage", |fight| fight.damage.push("half written".to_owned())),
            ("failed call", |fight| fight.failed.push("unavailable".to_owned())),
            ("crash", |fight| fight.crashed = 1),
            ("starved", |fight| {
                fight.workers.push(Worker { name: "3".to_owned(), face: Face::Blocking, pid: 1 });
            }),
            ("stalled", |fight| fight.start_ns = 1_000_000_000_000),
        ];
        for (what, change) in breaks {
            let (good, text) = verdict(change);
            assert!(!good && text.contains("BAD"), "{what} passed:\n{text}");
        }
    }
}
