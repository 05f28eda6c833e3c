//! Planted faults: one wrong step each, for a simulation that must find it. Nothing of it is left in any other build.

/// What is done wrong.
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "public in a simulation"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the nodes are a quorum.
    HalfIsQuorum,
    /// Nothing is set aside for clocks that run at different rates.
    NoDrift,
    /// The validity is counted from the answers, not from the question.
    ValidFromAnswer,
    /// The fence is the one that came first.
    FirstFence,
    /// The largest fence is taken without telling the nodes that are below it.
    NoConfirm,
    /// Every attempt has the same token.
    SameToken,
    /// What a lost attempt has created is left.
    NoCleanUp,
    /// A release does not go behind the create that is unanswered.
    ReleaseElsewhere,
    /// A create that is unanswered is not released.
    UnansweredLeft,
    /// Clean-up runs where the caller does, and ends with it.
    CleanUpWithCaller,
    /// A node counts although it has just restarted.
    NoQuarantine,
    /// A node that has lost the lock, and gets it back, counts at once.
    RestoreCounts,
    /// A loss is not told by the clock.
    LossUntold,
    /// A key that changes between a waiter's question and its sleep does not keep it from sleeping.
    ChangeMissed,
    /// A lock is renewed from the moment it is won, whether its caller ever takes it or not.
    RenewedUntaken,
    /// An extension counts although its quorum came after the end of the validity, and the loss was told.
    LateExtension,
    /// A caller gets a lock although its quorum came after the end of the validity.
    LateGrant,
    /// The node's acquire takes what is held.
    AcquireTakes,
    /// The node's acquire does not remember the fence.
    FenceForgotten,
    /// The node's confirm does not look whether the value is still the one that was granted.
    BlindConfirm,
    /// The node's extend makes the key anew.
    ExtendCreates,
    /// The node's extend looks at the token alone, and not at the fence.
    ExtendByToken,
    /// The node's restore puts back what has a smaller fence than the node has granted since.
    RestoreBlindly,
    /// The node's release does not look at the token.
    ReleaseBlindly,
    /// The node's acquire in the older protocol takes what has not expired.
    SetnxTakes,
}

#[cfg(feature = "simulation")]
impl Fault {
    /// Every fault.
    pub const ALL: [Self; 25] = [
        Self::HalfIsQuorum,
        Self::NoDrift,
        Self::ValidFromAnswer,
        Self::FirstFence,
        Self::NoConfirm,
        Self::SameToken,
        Self::NoCleanUp,
        Self::ReleaseElsewhere,
        Self::UnansweredLeft,
        Self::CleanUpWithCaller,
        Self::NoQuarantine,
        Self::RestoreCounts,
        Self::LossUntold,
        Self::ChangeMissed,
        Self::RenewedUntaken,
        Self::LateExtension,
        Self::LateGrant,
        Self::AcquireTakes,
        Self::FenceForgotten,
        Self::BlindConfirm,
        Self::ExtendCreates,
        Self::ExtendByToken,
        Self::RestoreBlindly,
        Self::ReleaseBlindly,
        Self::SetnxTakes,
    ];
}

#[cfg(feature = "simulation")]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// From now on, in this thread, `fault` is there and no other.
#[cfg(feature = "simulation")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether `fault` is there.
#[cfg(feature = "simulation")]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Never.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
