//! Views and findings for tests. Only the library can make them, so these were real ones, of nodes in memory, and are
//! changed.

use redlock::{Diagnosis, Finding, Level, LockView, NodeState, NodeView, blocking};

fn client(nodes: usize) -> blocking::Redlock {
    let urls: Vec<_> = (1..=nodes).map(|node| format!("memory://sample-{node}")).collect();
    blocking::Redlock::new(urls).unwrap()
}

/// A view of the free lock `job`.
pub(crate) fn view(change: impl FnOnce(&mut LockView)) -> LockView {
    changed(client(1).inspect("job").unwrap(), change)
}

/// `view` after a change.
pub(crate) fn changed(mut view: LockView, change: impl FnOnce(&mut LockView)) -> LockView {
    change(&mut view);
    view
}

/// What nodes show, which have the addresses 10.0.0.1 and so on.
pub(crate) fn nodes(states: impl IntoIterator<Item = NodeState>) -> Vec<NodeView> {
    let states: Vec<_> = states.into_iter().collect();
    let mut nodes = client(states.len()).inspect("job").unwrap().nodes;
    for (index, (node, state)) in nodes.iter_mut().zip(states).enumerate() {
        (node.node, node.state) = (format!("redis://10.0.0.{}:6379", index + 1), state);
    }
    nodes
}

/// The diagnosis of a node with these findings: check, level and message.
pub(crate) fn diagnosis(node: &str, findings: &[(&'static str, Level, &str)]) -> Diagnosis {
    let mut diagnosis = client(1).diagnose().unwrap().remove(0);
    let one = diagnosis.findings.remove(0);
    let finding = |&(check, level, message): &(&'static str, Level, &str)| {
        let mut finding: Finding = one.clone();
        (finding.check, finding.level, finding.message) = (check, level, message.to_owned());
        finding
    };
    (diagnosis.node, diagnosis.findings) = (node.to_owned(), findings.iter().map(finding).collect());
    diagnosis
}
