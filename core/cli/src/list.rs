//! `redlock list`: the names in use on all nodes, by a scan of the fence keys.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use redlock::bindings::operator::Walk;
use redlock::{Error, LockState, LockView, NodeAnswer, Redlock};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::table::Table;
use crate::{nodes, progress, say, status};

/// How often a person sees how far it is.
const LOOK: Duration = Duration::from_millis(500);

/// List the locks that are held, on all nodes
///
/// It walks through all keys of each server with SCAN, for the keys of fences, and then looks at each lock. This takes the
/// servers time, so it goes slowly: see --rate. It changes nothing.
///
/// A node remembers the fence of a name for an hour after the lock was acquired or renewed, or for as long as the
/// holder's fence_ttl says. Locks of other libraries are listed only if redlock has used the same name. In a cluster, a
/// slot that moves meanwhile may be missed.
///
/// Exit status: 0, or 69 if so many nodes could not be scanned that a lock may be missing, 77 if they refuse this user,
/// who needs the right +scan for this.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only names that match, by the rules of KEYS in Redis: * ? [a-z] [^a-z] and \ before what is meant as it is
    #[arg(long, value_name = "GLOB")]
    r#match: Option<OsString>,

    /// Also free names that were used recently
    #[arg(long)]
    all: bool,

    /// How many keys each server scans in a second, at most
    #[arg(long, value_name = "KEYS", default_value = "10000")]
    rate: NonZeroU32,

    /// Print JSON: {"complete": true, "locks": [...], "unscanned": [...]}
    ///
    /// Locks are as in `redlock status --json`. unscanned has the node and the error of each server that was not scanned
    /// to the end. complete is false if a lock may be missing for it.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Runs the command.
///
/// # Errors
///
/// For wrong arguments, if too few servers could be scanned, and if the output cannot be written.
pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let redlock = args.nodes.client(None)?;
    let pattern = args.r#match.as_deref().map(OsStrExt::as_bytes);
    let looked = Arc::new(AtomicU64::new(0));
    let walk = walk(&redlock, pattern.unwrap_or(b"*"), &args, Arc::clone(&looked));
    let so_far = async || Some(format!("looked at {} keys", looked.load(Ordering::Relaxed)));
    let (views, walked) = tokio::select! {
        biased;
        walked = walk => walked?,
        () = progress::show(true, LOOK, so_far) => unreachable!("it never ends"),
    };
    let (incomplete, unscanned) = (walked.incomplete(), walked.unscanned());
    if args.json {
        let document = json_of(&views, &unscanned, incomplete.is_none(), status::now());
        say::out_unless_ended(format!("{document:#}\n")).await?;
    } else {
        say::out_unless_ended(table_of(&views, status::now())).await?;
    }
    nodes::explained(&redlock, incomplete.map_or(Ok(()), Err)).await?;
    doubt(&redlock, &unscanned, &views).await
}

/// Returns the locks, in the order of their names.
async fn walk(
    redlock: &Redlock,
    pattern: &[u8],
    args: &Args,
    looked: Arc<AtomicU64>,
) -> Result<(Vec<LockView>, Walk), Error> {
    let mut walk = Walk::begin(redlock, pattern, (args.rate, args.all), looked).await?;
    let mut views = Vec::new();
    loop {
        let page = walk.page().await?;
        if page.is_empty() {
            views.sort_by(|one: &LockView, other| (&one.name, one.slot).cmp(&(&other.name, other.slot)));
            return Ok((views, walk));
        }
        views.extend(page);
    }
}

/// Warns of servers that were not scanned. Fails if the state of a lock is not known for want of answers.
async fn doubt(redlock: &Redlock, unscanned: &[NodeAnswer], views: &[LockView]) -> Result<Exit, Failure> {
    for node in unscanned {
        let rest = "the other nodes know every lock that is held";
        say::warning(&format!("{} was not scanned: {}; {rest}", node.node, node.answer));
    }
    let unknown = views.iter().find(|view| view.state == LockState::Unknown && view.slot.is_none());
    if let Some(view) = unknown {
        nodes::explained(redlock, redlock.lock(&view.name).is_locked().await).await?;
    }
    Ok(Exit::OK)
}

/// Returns the locks for people, each in one line.
fn table_of(views: &[LockView], now: SystemTime) -> String {
    let mut table = Table::new(0, &["NAME", "STATE", "SINCE", "LEFT", "WAITING", "NODES", "HOLDER"]);
    for view in views {
        let [state, since, left, nodes] = status::cells_of(view, now);
        let waiting = view.waiting.map(|waiting| waiting.to_string()).unwrap_or_default();
        let holder = status::holder(view.label.as_deref(), view.readers, &view.labels);
        table.row([status::title(view), state, since, left, waiting, nodes, holder]);
    }
    table.text()
}

/// Returns the locks for machines.
fn json_of(views: &[LockView], unscanned: &[NodeAnswer], is_complete: bool, now: SystemTime) -> Value {
    let unscanned = unscanned.iter().map(|node| json!({ "node": node.node, "error": node.answer }));
    json!({
        "complete": is_complete,
        "locks": views.iter().map(|view| status::json_of(view, now)).collect::<Vec<_>>(),
        "unscanned": unscanned.collect::<Vec<_>>(),
    })
}
