//! What a node reports unasked, and who receives it.

use std::sync::Arc;

use crate::texts::opaque;

/// A node's unsolicited report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeEvent<'a> {
    /// The connection ended, and not by this side.
    Disconnected,
    /// A connection was made.
    Connected {
        /// Whether the node may have forgotten or changed keys unnoticed since the last request.
        may_differ: bool,
    },
    /// The value of this key changed since it was read.
    Changed(&'a [u8]),
    /// This process changed the value of this key itself, for those who wait for `line`: the node does not report it.
    ChangedFor { key: &'a [u8], line: &'a [u8] },
    /// Any key may have changed.
    AllChanged,
}

/// Receives the events of one node as they come. Called by whichever task reads, so it must neither block nor panic.
#[derive(Clone)]
pub(crate) struct EventSink {
    emit: Arc<dyn Fn(NodeEvent<'_>) + Send + Sync>,
    tracks: bool,
}

impl EventSink {
    /// Makes an event sink. With `tracks`, the node reports, once, the next change by another client of each key read
    /// on the connection.
    pub(crate) fn new(tracks: bool, emit: impl Fn(NodeEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { emit: Arc::new(emit), tracks }
    }

    pub(crate) fn emit(&self, event: NodeEvent<'_>) {
        (self.emit)(event);
    }

    pub(crate) fn tracks(&self) -> bool {
        self.tracks
    }
}

opaque!(EventSink);
