//! What happens to the nodes, and when.

use std::time::Duration;

use harness::Server;

/// One thing that is done to a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Freeze,
    Thaw,
    Kill,
    Restart,
}

/// One act of the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Since the start of the fight.
    pub(crate) at: Duration,
    /// Which node, from 0.
    pub(crate) node: usize,
    pub(crate) act: Act,
}

impl Fault {
    pub(crate) fn commit(self, servers: &[Server]) {
        let server = &servers[self.node];
        match self.act {
            Act::Freeze => server.freeze(),
            Act::Thaw => server.thaw(),
            Act::Kill => server.kill(),
            Act::Restart => server.restart(),
        }
    }

    pub(crate) fn text(self) -> String {
        let what = match self.act {
            Act::Freeze => "frozen: takes connections, answers nothing",
            Act::Thaw => "goes on where it was",
            Act::Kill => "killed",
            Act::Restart => "restarted, empty",
        };
        format!("node {} {what}", self.node + 1)
    }
}

/// A trouble from its first act to its last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Fault,
    pub(crate) to: Fault,
}

impl Span {
    pub(crate) fn text(self) -> String {
        let node = self.from.node + 1;
        match self.from.act {
            Act::Freeze => format!("node {node} frozen"),
            _ => format!("node {node} dead, then restarted empty"),
        }
    }
}

/// Two troubles one after the other, in shares of the whole time.
pub(crate) fn plan(whole: Duration) -> [Span; 2] {
    let fault = |percent: u32, node, act| Fault { at: whole * percent / 100, node, act };
    [
        Span { from: fault(15, 1, Act::Freeze), to: fault(40, 1, Act::Thaw) },
        Span { from: fault(55, 3, Act::Kill), to: fault(70, 3, Act::Restart) },
    ]
}
