//! `redlock status`: what the nodes show of a lock, for people and for machines. The other commands show locks in the
//! same form.
//!
//! As JSON, a lock has these keys, all of them always: `name`; `key`; `slot` (of a semaphore, else null); `state`, one of
//! `held`, `shared`, `foreign`, `free` and `unknown`; `label`; `readers`; `labels`; `fence`; `since` and `until`, in RFC
//! 3339 and UTC; `ttl_left_ms`; `waiting`; `holders`; `quorum`; and `nodes`, each with `node`; `state`, one of `held`,
//! `shared`, `foreign`, `free` and `unavailable`; `label`; `readers`; `labels`; `fence`; `ttl_left_ms`; `error`. What is
//! not known, or does not apply, is null; `labels` are then empty.

mod instant;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use redlock::bindings::clock::Clock;
use redlock::bindings::operator::join_all;
use redlock::{Error, LockState, LockView, NodeState, NodeView, Redlock};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::table::{Table, plain};
use crate::{duration, nodes, say};

/// The shortest pause between two looks.
const PAUSE_LEAST: Duration = Duration::from_millis(100);

/// What a terminal clears itself by.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Show who holds a lock, since when and until when, who waits, and what is on each node
///
/// Changes nothing. A lock is held if one owner has it on a quorum of the nodes. On several nodes, the fence is a lower
/// bound. `since` comes from the fence, and `until` is the end without another renewal.
///
/// Exit status: 0 if each lock is held, 1 if one is free, 69 if too few nodes answer to know, 77 if they refuse this
/// user.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of locks
    #[arg(required = true, value_name = "NAME")]
    names: Vec<OsString>,

    /// The names are semaphores with this many permits: show each slot, and count as held if none is free
    #[arg(long, value_name = "N")]
    permits: Option<u32>,

    /// Print JSON: {"locks": [...]}
    ///
    /// Each lock has name, key, slot, state (held, shared, foreign, free or unknown), label, readers, labels, fence, since,
    /// until, ttl_left_ms, waiting, holders, quorum and nodes. Each of the nodes has node, state (held, shared, foreign,
    /// free or unavailable), label, readers, labels, fence, ttl_left_ms and error. What is not known, or does not apply, is
    /// null; labels is then empty.
    #[arg(long)]
    json: bool,

    /// Look again after each pause of this length, until a signal ends it; with --json, one line for each look
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, num_args = 0..=1, require_equals = true,
          default_missing_value = "1s")]
    watch: Option<Duration>,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Runs the command.
///
/// # Errors
///
/// For wrong arguments, if too few nodes answer, and if the output cannot be written.
pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let redlock = args.nodes.client(None)?;
    let is_screen = args.watch.is_some() && io::stdout().is_terminal() && say::moves_cursor() && !args.json;
    loop {
        let looked = look(&redlock, &args.names, args.permits).await?;
        let text = text(&looked, &args);
        say::out_unless_ended(if is_screen { format!("{CLEAR}{text}") } else { text }).await?;
        let Some(pause) = args.watch else { return verdict(&redlock, &args, &looked).await };
        Clock::System.sleep(pause.max(PAUSE_LEAST)).await;
        if !is_screen && !args.json {
            say::out_unless_ended("\n".to_owned()).await?;
        }
    }
}

/// Returns what the nodes show of each name: of a lock one view, of a semaphore one for each slot.
pub(crate) async fn look(
    redlock: &Redlock,
    names: &[OsString],
    permits: Option<u32>,
) -> Result<Vec<Vec<LockView>>, Error> {
    let views = names.iter().map(|name| async {
        let name = name.as_bytes();
        match permits {
            None => redlock.inspect(name).await.map(|view| vec![view]),
            Some(permits) => redlock.inspect_semaphore(name, permits).await,
        }
    });
    join_all(views.collect()).await.into_iter().collect()
}

fn text(looked: &[Vec<LockView>], args: &Args) -> String {
    let now = now();
    if args.json {
        let locks: Vec<_> = looked.iter().flatten().map(|view| json_of(view, now)).collect();
        let document = json!({ "locks": locks });
        let text = if args.watch.is_some() { document.to_string() } else { format!("{document:#}") };
        return text + "\n";
    }
    let block = |views: &Vec<LockView>| match &**views {
        [view] if view.slot.is_none() => block_of(view, now),
        slots => block_of_slots(slots, now),
    };
    looked.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Returns whether each name is held. Where the nodes do not agree, asks whether an acquire would have to wait.
async fn verdict(redlock: &Redlock, args: &Args, looked: &[Vec<LockView>]) -> Result<Exit, Failure> {
    let mut exit = Exit::OK;
    let mut failed: Option<Failure> = None;
    for (name, views) in args.names.iter().zip(looked) {
        let held = match is_held(views) {
            Some(held) => Ok(held),
            None => nodes::one(redlock, name, args.permits).is_locked().await,
        };
        match held {
            Ok(true) => {}
            Ok(false) => exit = Exit::NO,
            Err(error) => {
                let failure = nodes::failure(redlock, error).await;
                if failed.as_ref().is_none_or(|worst| worst.exit.code < failure.exit.code) {
                    failed = Some(failure);
                }
            }
        }
    }
    failed.map_or(Ok(exit), Err)
}

/// Returns whether all slots, or the lock, are taken; `None` if that is not known.
fn is_held(views: &[LockView]) -> Option<bool> {
    if views.iter().any(|view| view.state == LockState::Free) {
        return Some(false);
    }
    views.iter().all(is_taken).then_some(true)
}

/// Returns the wall clock's time.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(Clock::System.wall_micros())
}

/// Returns a lock for people: its state, its holder, its times, and what is on each node.
pub(crate) fn block_of(view: &LockView, now: SystemTime) -> String {
    let mut text = format!("{}: {}\n", plain(&title(view)), sentence(view));
    let mut line = |name: &str, value: &str| text.extend([format!("  {name:<7}  {}\n", plain(value))]);
    if view.state == LockState::Held {
        line("holder", view.label.as_deref().unwrap_or("without a label"));
    }
    if let Some(readers) = view.readers {
        line("readers", &with_labels(readers, &view.labels));
    }
    if let Some(fence) = view.fence {
        line("fence", &fence.to_string());
    }
    if let Some(since) = view.since {
        let ago = duration::shown(now.duration_since(since).unwrap_or_default());
        line("since", &format!("{}, {ago} ago", instant::shown(since)));
    }
    if is_taken(view) {
        line("until", &until(view, now));
    }
    if let Some(waiting) = view.waiting {
        line("waiting", &waiting.to_string());
    }
    text + &table_of_nodes(&view.nodes)
}

/// Returns a name for people, with the slot of a semaphore. It may contain anything.
pub(crate) fn title(view: &LockView) -> String {
    match view.slot {
        None => view.name.clone(),
        Some(slot) => format!("{} slot {slot}", view.name),
    }
}

fn sentence(view: &LockView) -> String {
    let (nodes, quorum) = (view.nodes.len(), view.quorum);
    let on = if nodes == 1 { String::new() } else { format!(" on {} of {nodes} nodes", view.holders) };
    match view.state {
        LockState::Held => format!("held{on}"),
        LockState::Shared => format!("shared{on}"),
        LockState::Foreign => format!("foreign{on}: another library's lock, or a key that is not a lock"),
        LockState::Free => "free".to_owned(),
        _ if nodes == 1 => "unknown".to_owned(),
        _ => format!("unknown: no {quorum} of {nodes} nodes agree"),
    }
}

/// Returns the number of readers and who they are.
fn with_labels(readers: u32, labels: &[String]) -> String {
    if labels.is_empty() { readers.to_string() } else { format!("{readers}: {}", labels.join(", ")) }
}

pub(crate) fn is_taken(view: &LockView) -> bool {
    matches!(view.state, LockState::Held | LockState::Shared | LockState::Foreign)
}

fn until(view: &LockView, now: SystemTime) -> String {
    match view.ttl_left {
        None => "forever: the key does not expire".to_owned(),
        Some(left) => {
            let end = now.checked_add(left).map_or_else(String::new, |end| format!("{}, ", instant::shown(end)));
            format!("{end}in {}, unless it is renewed", duration::shown(left))
        }
    }
}

/// Returns who holds a lock, for a column.
pub(crate) fn holder(label: Option<&str>, readers: Option<u32>, labels: &[String]) -> String {
    readers.map_or_else(|| label.unwrap_or_default().to_owned(), |readers| with_labels(readers, labels))
}

fn table_of_nodes(nodes: &[NodeView]) -> String {
    let mut table = Table::new(2, &["NODE", "STATE", "LEFT", "FENCE", "HOLDER"]);
    for NodeView { node, state, .. } in nodes {
        let (name, values) = state.values();
        if let Some(error) = values.error {
            table.row([node.clone(), error.to_owned()]);
            continue;
        }
        let left = if *state == NodeState::Free { String::new() } else { shown_left(values.ttl_left) };
        let fence = values.fence.map(|fence| fence.to_string()).unwrap_or_default();
        let holder = holder(values.label, values.readers, values.labels);
        table.row([node.clone(), name.to_owned(), left, fence, holder]);
    }
    table.text()
}

/// Returns how long a key is kept, for people.
fn shown_left(left: Option<Duration>) -> String {
    left.map_or_else(|| "forever".to_owned(), duration::shown)
}

/// Returns a lock in columns: its state, since when it has it, how long its key is kept, and on how many nodes it is.
pub(crate) fn cells_of(view: &LockView, now: SystemTime) -> [String; 4] {
    let since = view.since.map(|since| duration::shown(now.duration_since(since).unwrap_or_default()));
    let when = |is_shown: bool, text: String| if is_shown { text } else { String::new() };
    let left = when(is_taken(view), shown_left(view.ttl_left));
    let nodes = when(view.state != LockState::Free, format!("{}/{}", view.holders, view.nodes.len()));
    [view.state.to_string(), since.unwrap_or_default(), left, nodes]
}

/// Returns a semaphore for people: each slot in one line.
fn block_of_slots(slots: &[LockView], now: SystemTime) -> String {
    let Some(first) = slots.first() else { return String::new() };
    let held = slots.iter().filter(|view| is_taken(view)).count();
    let mut text = format!("{}: {held} of {} slots held\n", plain(&first.name), slots.len());
    if let Some(waiting) = first.waiting {
        text.extend([format!("  waiting  {waiting}\n")]);
    }
    let mut table = Table::new(2, &["SLOT", "STATE", "SINCE", "LEFT", "NODES", "FENCE", "HOLDER"]);
    for view in slots {
        let slot = view.slot.unwrap_or_default().to_string();
        let [state, since, left, nodes] = cells_of(view, now);
        let fence = view.fence.map(|fence| fence.to_string()).unwrap_or_default();
        table.row([slot, state, since, left, nodes, fence, view.label.clone().unwrap_or_default()]);
    }
    text += &table.text();
    for NodeView { node, state, .. } in &first.nodes {
        if let NodeState::Unavailable { error } = state {
            text.extend([format!("  {node}: {}\n", plain(error))]);
        }
    }
    text
}

/// Returns a lock for machines; see the top of this file.
pub(crate) fn json_of(view: &LockView, now: SystemTime) -> Value {
    let until = view.ttl_left.filter(|_| is_taken(view)).and_then(|left| now.checked_add(left));
    json!({
        "name": view.name,
        "key": view.key,
        "slot": view.slot,
        "state": view.state.as_str(),
        "label": view.label,
        "readers": view.readers,
        "labels": view.labels,
        "fence": view.fence,
        "since": view.since.map(instant::rfc3339),
        "until": until.map(instant::rfc3339),
        "ttl_left_ms": view.ttl_left.map(millis),
        "waiting": view.waiting,
        "holders": view.holders,
        "quorum": view.quorum,
        "nodes": view.nodes.iter().map(json_of_node).collect::<Vec<_>>(),
    })
}

fn json_of_node(view: &NodeView) -> Value {
    let (state, values) = view.state.values();
    json!({
        "node": view.node,
        "state": state,
        "label": values.label,
        "readers": values.readers,
        "labels": values.labels,
        "fence": values.fence,
        "ttl_left_ms": values.ttl_left.map(millis),
        "error": values.error,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, changed};

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn view() -> LockView {
        let ttl_left = Some(Duration::from_millis(8_200));
        let held = || NodeState::Held { label: Some("web-3:4711".to_owned()), fence: 1_764_126_729_000_125, ttl_left };
        let down = NodeState::Unavailable { error: "cannot be reached: connection refused".to_owned() };
        sample::view(|view| {
            "app:job".clone_into(&mut view.key);
            view.state = LockState::Held;
            view.label = Some("web-3:4711".to_owned());
            view.fence = Some(1_764_126_729_000_125);
            view.since = Some(at(1_764_126_729) + Duration::from_micros(125));
            view.ttl_left = ttl_left;
            (view.holders, view.quorum, view.waiting) = (2, 2, Some(2));
            view.nodes = sample::nodes([held(), held(), down]);
        })
    }

    #[test]
    fn a_held_lock_for_people() {
        let lines = [
            "job: held on 2 of 3 nodes",
            "  holder   web-3:4711",
            "  fence    1764126729000125",
            "  since    2025-11-26 03:12:09 UTC, 4 min 11 s ago",
            "  until    2025-11-26 03:16:29 UTC, in 8.2 s, unless it is renewed",
            "  waiting  2",
            "  NODE                   STATE  LEFT   FENCE             HOLDER",
            "  redis://10.0.0.1:6379  held   8.2 s  1764126729000125  web-3:4711",
            "  redis://10.0.0.2:6379  held   8.2 s  1764126729000125  web-3:4711",
            "  redis://10.0.0.3:6379  cannot be reached: connection refused",
        ];
        assert_eq!(block_of(&view(), at(1_764_126_981)), lines.join("\n") + "\n");
    }

    #[test]
    fn a_shared_lock_for_people() {
        let (labels, ttl_left) = (vec!["web-3:4711".to_owned(), "web-4:12".to_owned()], view().ttl_left);
        let shared = NodeState::Shared { readers: 3, labels: labels.clone(), fence: 1_764_126_729_000_125, ttl_left };
        let view = changed(view(), |view| {
            (view.state, view.label, view.readers, view.labels) = (LockState::Shared, None, Some(3), labels);
            view.nodes = sample::nodes([shared]);
        });
        let lines = [
            "job: shared",
            "  readers  3: web-3:4711, web-4:12",
            "  fence    1764126729000125",
            "  since    2025-11-26 03:12:09 UTC, 4 min 11 s ago",
            "  until    2025-11-26 03:16:29 UTC, in 8.2 s, unless it is renewed",
            "  waiting  2",
            "  NODE                   STATE   LEFT   FENCE             HOLDER",
            "  redis://10.0.0.1:6379  shared  8.2 s  1764126729000125  3: web-3:4711, web-4:12",
        ];
        assert_eq!(block_of(&view, at(1_764_126_981)), lines.join("\n") + "\n");
        let json = json_of(&view, at(0));
        for json in [&json, &json["nodes"][0]] {
            assert_eq!((&json["state"], &json["readers"]), (&json!("shared"), &json!(3)));
            assert_eq!(json["labels"], json!(["web-3:4711", "web-4:12"]));
        }
        assert_eq!(is_held(&[view]), Some(true));
    }

    #[test]
    fn other_states_for_people() {
        let first = |view: &LockView| block_of(view, at(0)).lines().next().map(str::to_owned).unwrap();
        let of = |state, nodes: usize| {
            changed(view(), |view| {
                view.state = state;
                view.nodes.truncate(nodes);
            })
        };
        assert_eq!(first(&of(LockState::Free, 3)), "job: free");
        assert_eq!(first(&of(LockState::Held, 1)), "job: held");
        assert_eq!(first(&of(LockState::Unknown, 3)), "job: unknown: no 2 of 3 nodes agree");
        let foreign = changed(of(LockState::Foreign, 1), |view| (view.ttl_left, view.label) = (None, None));
        assert_eq!(first(&foreign), "job: foreign: another library's lock, or a key that is not a lock");
        assert!(block_of(&foreign, at(0)).contains("\n  until    forever: the key does not expire\n"));
        let odd = changed(view(), |view| (view.name, view.slot) = ("a\n\x1b[2J".to_owned(), Some(3)));
        assert_eq!(first(&odd), "a\\n\\u{1b}[2J slot 3: held on 2 of 3 nodes");
    }

    #[test]
    fn a_semaphore_for_people() {
        let slot = |slot, state| changed(view(), |view| (view.slot, view.state) = (Some(slot), state));
        let free = changed(slot(1, LockState::Free), |view| {
            (view.label, view.fence, view.since, view.ttl_left) = (None, None, None, None);
        });
        let lines = [
            "job: 1 of 2 slots held",
            "  waiting  2",
            "  SLOT  STATE  SINCE       LEFT   NODES  FENCE             HOLDER",
            "  0     held   4 min 11 s  8.2 s  2/3    1764126729000125  web-3:4711",
            "  1     free",
            "  redis://10.0.0.3:6379: cannot be reached: connection refused",
        ];
        let text = block_of_slots(&[slot(0, LockState::Held), free], at(1_764_126_981));
        assert_eq!(text, lines.join("\n") + "\n");
    }

    #[test]
    fn a_lock_for_machines() {
        let lock = json_of(&view(), at(1_764_126_981));
        assert_eq!(lock["since"], "2025-11-26T03:12:09.000125Z");
        assert_eq!(lock["until"], "2025-11-26T03:16:29.200000Z");
        assert_eq!((&lock["ttl_left_ms"], &lock["slot"]), (&json!(8_200), &Value::Null));
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        let documented = "fence holders key label labels name nodes quorum readers since slot state ttl_left_ms until \
                          waiting";
        assert_eq!(keys(&lock), documented);
        for node in lock["nodes"].as_array().unwrap() {
            assert_eq!(keys(node), "error fence label labels node readers state ttl_left_ms");
        }
        assert_eq!(lock["nodes"][2]["state"], "unavailable");
        let free = changed(view(), |view| (view.state, view.ttl_left, view.since) = (LockState::Free, None, None));
        assert_eq!(keys(&json_of(&free, at(0))), documented, "always the same");
    }

    #[test]
    fn names_are_held_if_no_slot_is_free() {
        let slots = |states: &[LockState]| {
            states.iter().map(|state| changed(view(), |view| view.state = *state)).collect::<Vec<_>>()
        };
        assert_eq!(is_held(&slots(&[LockState::Held, LockState::Foreign])), Some(true));
        assert_eq!(is_held(&slots(&[LockState::Unknown, LockState::Free])), Some(false));
        assert_eq!(is_held(&slots(&[LockState::Unknown, LockState::Held])), None);
    }
}
