//! In which way a request is sent.

/// The form of a script sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eval {
    /// By its hash, which the server knows after the first use.
    Sha,
    /// By its whole text.
    Text,
}

/// What a request needs while its slot moves from one server of a cluster to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenSlot {
    /// ASKING goes before it, because the server has not taken the slot yet.
    pub(crate) asking: bool,
    /// It names as few keys as it can do with: servers refuse keys of which only some are there.
    pub(crate) bare: bool,
}
