//! `redlock check`: whether the nodes can be relied on, by a diagnosis of each. It is what support asks for first, so that
//! no secret is in it.

use std::time::Duration;

use redlock::{Diagnosis, Finding, Level};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::table::{WIDTH, plain, width_of, wrapped};
use crate::{duration, nodes, say};

/// Find out whether the nodes are fit for locks, and what may lose locks there
///
/// Reachable, encrypted, role, version, optional commands, rights of this user, eviction, persistence, replicas, free
/// connections, clock, and addresses that lead to the same server; also what sentinels and the servers of a cluster
/// say. It writes keys that begin with redlock:diagnose:, behind the key prefix, and expire after 10 seconds. No password
/// and no user name is in the output.
///
/// Exit status: 0 if all is well, 1 if there are warnings, 2 if a node cannot be used.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only findings that are not ok
    #[arg(short, long)]
    quiet: bool,

    /// The ttl of your locks, which must be longer than a failover
    #[arg(short, long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    ttl: Duration,

    /// Print JSON: {"level": "ok", "nodes": [...]}
    ///
    /// level is ok, warning or unusable: the worst of all. Each of the nodes has node, level and findings, and each of
    /// these has check, level and message.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Runs the command.
///
/// # Errors
///
/// For wrong arguments, and if the output cannot be written.
pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let redlock = args.nodes.client(Some(args.ttl))?;
    let mut diagnoses = redlock.diagnose().await?;
    let level = diagnoses.iter().map(Diagnosis::level).max().unwrap_or(Level::Ok);
    if args.quiet {
        for diagnosis in &mut diagnoses {
            diagnosis.findings.retain(|finding| finding.level > Level::Ok);
        }
        diagnoses.retain(|diagnosis| !diagnosis.findings.is_empty());
    }
    let text = if args.json { format!("{:#}\n", json_of(&diagnoses, level)) } else { text_of(&diagnoses) };
    say::out_unless_ended(text).await?;
    Ok(match level {
        Level::Ok => Exit::OK,
        Level::Warning => Exit::NO,
        _ => Exit::UNUSABLE,
    })
}

/// Returns the findings for people, those of each node under its address.
fn text_of(diagnoses: &[Diagnosis]) -> String {
    let findings = || diagnoses.iter().flat_map(|diagnosis| &diagnosis.findings);
    let levels = findings().map(|finding| width_of(finding.level.as_str())).max().unwrap_or(0);
    let checks = findings().map(|finding| width_of(finding.check)).max().unwrap_or(0);
    let indent = 2 + levels + 2 + checks + 2;
    let line = |Finding { check, level, message, .. }: &Finding| {
        let level = coloured(*level, &format!("{:levels$}", level.as_str()));
        let message = wrapped(message, WIDTH.saturating_sub(indent), indent);
        format!("  {level}  {check:checks$}  {message}\n")
    };
    let node = |diagnosis: &Diagnosis| {
        let lines: String = diagnosis.findings.iter().map(line).collect();
        format!("{}: {}\n{lines}", plain(&diagnosis.node), diagnosis.level())
    };
    diagnoses.iter().map(node).collect::<Vec<_>>().join("\n")
}

/// Returns a word in the colour of its level.
fn coloured(level: Level, word: &str) -> String {
    let colour = match level {
        Level::Ok => "32",
        Level::Warning => "33",
        _ => "31",
    };
    if say::has_colour(&std::io::stdout()) { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
}

/// Returns the findings for machines.
fn json_of(diagnoses: &[Diagnosis], level: Level) -> Value {
    let finding = |finding: &Finding| json!({ "check": finding.check, "level": finding.level.as_str(), "message": finding.message });
    let node = |diagnosis: &Diagnosis| {
        json!({
            "node": diagnosis.node,
            "level": diagnosis.level().as_str(),
            "findings": diagnosis.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    };
    json!({ "level": level.as_str(), "nodes": diagnoses.iter().map(node).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::diagnosis;

    fn diagnoses() -> Vec<Diagnosis> {
        let ok = ("role", Level::Ok, "master");
        let long = "2: a failover forgets locks that were not replicated yet; min-replicas-to-write bounds how much";
        let warning = ("replicas", Level::Warning, long);
        let down = ("connection", Level::Unusable, "cannot be reached: connection refused");
        vec![diagnosis("redis://a:6379", &[ok, warning]), diagnosis("redis://b:6379", &[down])]
    }

    #[test]
    fn findings_for_people_fit_on_a_page() {
        let lines = [
            "redis://a:6379: warning",
            "  ok        role        master",
            "  warning   replicas    2: a failover forgets locks that were not replicated",
            "                        yet; min-replicas-to-write bounds how much",
            "",
            "redis://b:6379: unusable",
            "  unusable  connection  cannot be reached: connection refused",
        ];
        assert_eq!(text_of(&diagnoses()), lines.join("\n") + "\n");
    }

    #[test]
    fn findings_for_machines() {
        let document = json_of(&diagnoses(), Level::Unusable);
        assert_eq!(document["level"], "unusable");
        assert_eq!(document["nodes"][0]["level"], "warning");
        assert_eq!(document["nodes"][0]["findings"][0], json!({ "check": "role", "level": "ok", "message": "master" }));
    }
}
