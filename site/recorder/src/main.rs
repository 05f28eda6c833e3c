//! Records runs of the real core on nodes in memory, in virtual time, as JSON for the page that plays them.
//!
//! Three workers want one lock. Each writes to a store with the fence of its lock, and the store refuses smaller fences.
//! In each run one thing goes wrong. A run that does not show what its page says ends the program with an error.

mod stage;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use stage::{Trouble, record};

/// The runs that the page offers, by the name of what goes wrong.
const TROUBLES: [(&str, Trouble); 7] = [
    ("nothing", Trouble::Nothing),
    ("pause-holder", Trouble::PauseHolder),
    ("kill-holder", Trouble::KillHolder),
    ("freeze-node", Trouble::FreezeNodes(1)),
    ("restart-node", Trouble::RestartNodes(1)),
    ("freeze-most", Trouble::FreezeNodes(3)),
    ("restart-most", Trouble::RestartNodes(3)),
];

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: redlock-site-recorder DIRECTORY");
        return ExitCode::from(2);
    };
    let mut is_well = true;
    for nodes in [1, 5] {
        for (name, trouble) in TROUBLES {
            if nodes == 1 && matches!(trouble, Trouble::FreezeNodes(3) | Trouble::RestartNodes(3)) {
                continue;
            }
            let events = record(nodes, trouble);
            if let Err(flaw) = check(nodes, trouble, &events) {
                eprintln!("{nodes} nodes, {name}: {flaw}");
                is_well = false;
            }
            let run = json!({
                "nodes": nodes,
                "trouble": name,
                "ttl": stage::TTL.as_millis() as u64,
                "cue": stage::CUE.as_millis() as u64,
                "end": stage::END.as_millis() as u64,
                "workers": stage::WORKERS,
                "events": events,
            });
            let file = directory.join(format!("{name}-{nodes}.json"));
            if let Err(error) = fs::write(&file, run.to_string()) {
                eprintln!("{}: {error}", file.display());
                is_well = false;
            }
        }
    }
    for (name, nodes, frozen) in [("round-1", 1, 0), ("round-5", 5, 0), ("round-frozen", 5, 1)] {
        let events = stage::round(nodes, frozen);
        if !events.iter().any(|event| event["e"] == "won") {
            eprintln!("{name}: nobody has the lock");
            is_well = false;
        }
        let run = json!({"nodes": nodes, "frozen": frozen, "events": events});
        is_well &= fs::write(directory.join(format!("{name}.json")), run.to_string()).is_ok();
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the run shows what its page says.
fn check(nodes: usize, trouble: Trouble, events: &[Value]) -> Result<(), String> {
    let count = |kind: &str| events.iter().filter(|event| event["e"] == kind).count();
    let refused = events.iter().filter(|event| event["e"] == "write" && event["ok"] == false).count();
    let reasons: Vec<&str> =
        events.iter().filter(|event| event["e"] == "lost").filter_map(|event| event["reason"].as_str()).collect();
    let expect = |is: bool, what: &str| if is { Ok(()) } else { Err(format!("expected {what}; lost: {reasons:?}")) };
    let mut largest = 0;
    for fence in events.iter().filter(|event| event["e"] == "won").filter_map(|event| event["fence"].as_u64()) {
        expect(fence > largest, "fences that grow")?;
        largest = fence;
    }
    expect(count("won") >= 4, "four holders at least")?;
    match trouble {
        Trouble::Nothing => expect(reasons.is_empty() && refused == 0, "no loss"),
        Trouble::PauseHolder => expect(reasons.len() == 1 && refused == 1, "one loss and one refusal"),
        Trouble::KillHolder => expect(reasons.is_empty() && refused == 0, "nobody who is told"),
        Trouble::FreezeNodes(1) | Trouble::RestartNodes(1) if nodes > 1 => {
            expect(reasons.is_empty() && refused == 0, "no loss")
        }
        Trouble::FreezeNodes(_) => expect(reasons == ["unreachable"], "a loss because no quorum answers"),
        Trouble::RestartNodes(_) => expect(reasons.len() == 1, "a loss"),
    }
}
