//! Planted faults: single wrong steps that a simulation must find. No other build contains any of them.

/// One wrong step.
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "public in a simulation"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the nodes are a quorum.
    HalfIsQuorum,
    /// The validity has no margin for clock drift.
    NoDrift,
    /// The validity is counted from the answers, not from the question.
    ValidFromAnswer,
    /// The fence is the first one that came.
    FirstFence,
    /// The largest fence is used without confirming it on nodes below it.
    NoConfirm,
    /// Every attempt has the same token.
    SameToken,
    /// A lost attempt leaves its keys.
    NoCleanUp,
    /// A release is not sent behind the unanswered create.
    ReleaseElsewhere,
    /// An unanswered create is not released.
    UnansweredLeft,
    /// Clean-up runs on the caller's runtime, and ends with it.
    CleanUpWithCaller,
    /// A node counts although it has just restarted.
    NoQuarantine,
    /// A node that lost the lock, and gets it back, counts at once.
    RestoreCounts,
    /// The clock does not report a loss.
    LossUntold,
    /// A waiter misses a key change between its question and its sleep.
    ChangeMissed,
    /// A lock is renewed from the moment it is won, even if its caller never takes it.
    RenewedUntaken,
    /// An extension counts although its quorum came after the end of the validity, and the loss was reported.
    LateExtension,
    /// A caller gets a lock although its quorum came after the end of the validity.
    LateGrant,
    /// The node's acquire takes a held lock.
    AcquireTakes,
    /// The node's acquire does not remember the fence.
    FenceForgotten,
    /// The node's confirm does not check that the value is still the granted one.
    BlindConfirm,
    /// The node's extend recreates the key.
    ExtendCreates,
    /// The node's extend compares the token alone, not the fence.
    ExtendByToken,
    /// The node says that it remembers a larger fence that another node has granted the lock, and does not.
    NotRaised,
    /// A grant with a larger fence counts although no quorum remembers that fence.
    AheadCounts,
    /// The node's restore writes a fence smaller than the node has granted since.
    RestoreBlindly,
    /// The node's re-key leaves the token as it is.
    RekeyKeepsToken,
    /// The node's re-key compares the token alone, not the fence.
    RekeyByToken,
    /// The node's re-key takes a key that another attachment has re-keyed.
    RekeyOfAny,
    /// The node's release does not compare the token.
    ReleaseBlindly,
    /// The node's SETNX acquire takes a key that has not expired.
    SetnxTakes,
    /// The server that ASK has named is asked alone, although the lock may not have moved yet.
    AskRemembered,
    /// TRYAGAIN says that the key is gone.
    TryAgainLoses,
    /// A request that creates a key is sent on to another server, with the same token.
    CreateFollowed,
    /// A pending release stays with the server that has given the slot away.
    ReleaseStays,
    /// A server counts although it was just promoted.
    PromotedCounts,
    /// A server that restarted counts a while after its start, although it was promoted since.
    ReturnedCounts,
    /// A waiter stays with the server that has given the slot away.
    WaiterStays,
    /// A server counts that sentinels have just named in place of another one.
    NamedCounts,
    /// The primary is the one that most sentinels name, of whatever epoch.
    OldEpoch,
    /// A lock whose time is over is released at once, without its margin.
    NoMargin,
    /// The fence of several names is above the first name's last fence only.
    FloorOfFirst,
    /// The node's acquire takes those of several names that are free.
    TakesFree,
    /// The node's confirm looks at the first of several names only.
    ConfirmFirst,
    /// The node's extend counts if any of several names is ours.
    ExtendAny,
    /// The node's release deletes the first of several names only.
    ReleaseFirst,
    /// The node's restore compares the first of several names' fences only.
    RestoreFirst,
    /// A lost attempt at a slot keeps its keys, and the next slot is tried.
    SlotKept,
    /// A lock that is left for its least time can still be extended.
    LeaveForgotten,
    /// A lock that is left gets its least time even if less was left.
    LeaveLengthens,
    /// The key of a shared lock ends with the owner that joined last.
    EndOfLast,
    /// All owners of a shared lock end with the last of them.
    OneEndForAll,
    /// The ends of owners are compared with the server's clock, although their key came from another server.
    EndsByTime,
    /// The node's release deletes the key that others share.
    ReleaseForAll,
    /// The node does not remember the fence of an owner that shares the lock.
    ReaderForgotten,
    /// Whoever joins those who share a lock gets the last fence, not the next one.
    JoinsWithCurrent,
    /// The node's extend of a shared lock does not look at the period.
    ExtendWithoutPeriod,
    /// The node's confirm of a shared lock does not look at the period.
    ConfirmWithoutPeriod,
    /// The node's restore of a shared lock begins a period with a fence smaller than the node has granted since.
    RestoreWithoutFence,
    /// Owners join those who share a lock although somebody waits for it alone.
    NoIntent,
    /// Somebody's sorted set under a lock key is changed as if its members were owners.
    DropsForeign,
}

#[cfg(feature = "simulation")]
impl Fault {
    /// All faults.
    pub const ALL: [Self; 60] = [
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
        Self::NotRaised,
        Self::AheadCounts,
        Self::RestoreBlindly,
        Self::RekeyKeepsToken,
        Self::RekeyByToken,
        Self::RekeyOfAny,
        Self::ReleaseBlindly,
        Self::SetnxTakes,
        Self::AskRemembered,
        Self::TryAgainLoses,
        Self::CreateFollowed,
        Self::ReleaseStays,
        Self::PromotedCounts,
        Self::ReturnedCounts,
        Self::WaiterStays,
        Self::NamedCounts,
        Self::OldEpoch,
        Self::NoMargin,
        Self::FloorOfFirst,
        Self::TakesFree,
        Self::ConfirmFirst,
        Self::ExtendAny,
        Self::ReleaseFirst,
        Self::RestoreFirst,
        Self::SlotKept,
        Self::LeaveForgotten,
        Self::LeaveLengthens,
        Self::EndOfLast,
        Self::OneEndForAll,
        Self::EndsByTime,
        Self::ReleaseForAll,
        Self::ReaderForgotten,
        Self::JoinsWithCurrent,
        Self::ExtendWithoutPeriod,
        Self::ConfirmWithoutPeriod,
        Self::RestoreWithoutFence,
        Self::NoIntent,
        Self::DropsForeign,
    ];
}

#[cfg(feature = "simulation")]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants `fault` in this thread, in place of any other.
#[cfg(feature = "simulation")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether `fault` is planted.
#[cfg(feature = "simulation")]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Returns false.
#[cfg(not(feature = "simulation"))]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
