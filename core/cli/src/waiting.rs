//! What a person sees while the program waits for a lock: who has it, and how many more wait.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use redlock::{LockState, LockView, NodeView, Redlock};

use crate::duration::shown;
use crate::status;

/// Asks the nodes, and tells of the first of these locks that is not free. A waiter `is_counted` among those that wait.
pub(crate) async fn look(
    redlock: &Redlock,
    names: &[OsString],
    permits: Option<u32>,
    is_counted: impl Fn(&LockView) -> bool,
) -> Option<String> {
    let looked = status::look(redlock, names, permits).await.ok()?;
    looked.iter().find_map(|views| describe(views, &is_counted, status::now()))
}

/// Returns what a waiter wants to know of a lock, or of the slots of a semaphore; `None` if it looks free. The waiter
/// `is_counted` among those that wait.
fn describe(views: &[LockView], is_counted: impl Fn(&LockView) -> bool, now: SystemTime) -> Option<String> {
    let taken: Vec<_> = views.iter().filter(|view| view.state != LockState::Free).collect();
    let first = taken.first()?;
    let others = first.waiting.map_or(0, |waiting| waiting.saturating_sub(is_counted(first).into()));
    let waiting = if others == 0 { String::new() } else { format!("; {others} more waiting") };
    if first.slot.is_some() {
        let all = taken.len() == views.len();
        return all.then(|| format!("waiting for {:?}: all {} permits are held{waiting}", first.name, views.len()));
    }
    let since = first.since.and_then(|since| now.duration_since(since).ok());
    let since = since.map(|since| since.as_secs()).filter(|seconds| *seconds > 0);
    let since = since.map_or_else(String::new, |seconds| format!(" for {}", shown(Duration::from_secs(seconds))));
    let holder = match (&first.label, first.state) {
        (Some(label), _) => format!("held by {label}{since}"),
        (None, LockState::Held) => format!("held{since}"),
        (None, LockState::Shared) => format!("shared by {} readers{since}", first.readers.unwrap_or_default()),
        (None, LockState::Foreign) => "held by a program that uses another library".to_owned(),
        (None, _) => {
            let error = |node: &NodeView| Some(format!("{}: {}", node.node, node.state.values().1.error?));
            let away: Vec<_> = first.nodes.iter().filter_map(error).collect();
            if first.nodes.len() - away.len() < first.quorum {
                format!("no quorum of nodes answers [{}]", away.join("; "))
            } else {
                "the nodes do not agree whose it is".to_owned()
            }
        }
    };
    Some(format!("waiting for {:?}: {holder}{waiting}", first.name))
}

#[cfg(test)]
mod tests {
    use redlock::NodeState;

    use super::*;
    use crate::sample::{self, changed};

    fn view(state: LockState, label: Option<&str>, slot: Option<u32>) -> LockView {
        sample::view(|view| {
            (view.state, view.label, view.slot) = (state, label.map(str::to_owned), slot);
            (view.since, view.waiting) = (Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60)), Some(3));
        })
    }

    #[test]
    fn a_waiter_sees_who_has_the_lock() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(260);
        let free = view(LockState::Free, None, None);
        let held = view(LockState::Held, Some("web1:17"), None);
        assert_eq!(describe(std::slice::from_ref(&free), |_| true, now), None);
        let expected = "waiting for \"job\": held by web1:17 for 3 min 20 s; 2 more waiting";
        assert_eq!(describe(&[free, held], |_| true, now).as_deref(), Some(expected));
        let shared = changed(view(LockState::Shared, None, None), |view| view.readers = Some(7));
        let expected = "waiting for \"job\": shared by 7 readers for 3 min 20 s; 2 more waiting";
        assert_eq!(describe(std::slice::from_ref(&shared), |_| true, now).as_deref(), Some(expected));
        let is_counted = |view: &LockView| view.state != LockState::Shared;
        let expected = "waiting for \"job\": shared by 7 readers for 3 min 20 s; 3 more waiting";
        assert_eq!(describe(&[shared], is_counted, now).as_deref(), Some(expected));
        let foreign = changed(view(LockState::Foreign, None, None), |view| view.waiting = Some(1));
        let expected = "waiting for \"job\": held by a program that uses another library";
        assert_eq!(describe(&[foreign], |_| true, now).as_deref(), Some(expected));
        let unknown = |error: &str| {
            let down = NodeState::Unavailable { error: error.to_owned() };
            let nodes = sample::nodes([NodeState::Free, down.clone(), down]);
            changed(view(LockState::Unknown, None, None), |view| (view.nodes, view.quorum) = (nodes, 2))
        };
        let away = describe(&[unknown("is down")], |_| true, now).unwrap();
        assert!(away.contains("job\": no quorum of nodes answers [redis://10.0.0.2:6379: is down; "), "{away}");
        let split = changed(unknown("is down"), |view| view.quorum = 1);
        assert!(describe(&[split], |_| true, now).unwrap().contains("do not agree"));
    }

    #[test]
    fn a_waiter_sees_that_no_permit_is_left() {
        let slots = [0, 1].map(|slot| view(LockState::Held, Some("web1:17"), Some(slot)));
        let expected = "waiting for \"job\": all 2 permits are held; 2 more waiting";
        assert_eq!(describe(&slots, |_| true, SystemTime::UNIX_EPOCH).as_deref(), Some(expected));
        let [held, _] = slots;
        assert_eq!(describe(&[held, view(LockState::Free, None, Some(1))], |_| true, SystemTime::UNIX_EPOCH), None);
    }
}
