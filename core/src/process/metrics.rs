//! Metrics of this process's locks: what has happened since its start, in plain atomics that are always on.
//!
//! The endpoint of a node has the metrics of that node (`node/traffic.rs`). A forked child begins with zeros.
//!
//! The locks are counted together unless the program asks for their names. Then the first names are counted separately, up
//! to a number that the program has given, and all others together as before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{ErrorKind, LostReason};
use crate::protocol::name::Name;
use crate::sys::histogram::{Count, Histogram, RATIO, SECONDS};
use crate::sys::mutex::Mutex;
use crate::texts::texts;

/// How a call to acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireEnd {
    Acquired,
    Timeout,
    Unavailable,
    Forbidden,
    Closed,
    InvalidArgument,
    Internal,
    /// It was to attach a lock that is lost.
    Lost,
    /// The caller did not wait for it.
    Cancelled,
}

texts! {
    AcquireEnd,
    pub(crate) all,
    as_str: Acquired = "acquired", Timeout = "timeout", Unavailable = "unavailable", Forbidden = "forbidden",
    Closed = "closed", InvalidArgument = "invalid_argument", Internal = "internal", Lost = "lost",
    Cancelled = "cancelled",
}

impl AcquireEnd {
    /// Returns whether the nodes, or the lack of their answers, ended the call.
    pub(crate) const fn is_answer(self) -> bool {
        matches!(self, Self::Acquired | Self::Timeout | Self::Unavailable | Self::Forbidden | Self::Lost)
    }
}

impl From<ErrorKind> for AcquireEnd {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Forbidden => Self::Forbidden,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Closed => Self::Closed,
            ErrorKind::Internal => Self::Internal,
            ErrorKind::Lost => Self::Lost,
            ErrorKind::InvalidArgument | ErrorKind::NotHeld | ErrorKind::AlreadyHeld => Self::InvalidArgument,
        }
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released,
    Lost,
    Detached,
}

texts! { HoldEnd, pub(crate) all, as_str: Released = "released", Lost = "lost", Detached = "detached" }

/// How a renewal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalEnd {
    Renewed,
    /// No quorum answered. It is tried again while the lock is valid.
    Unanswered,
    Lost,
}

texts! { RenewalEnd, pub(crate) all, as_str: Renewed = "renewed", Unanswered = "unanswered", Lost = "lost" }

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseEnd {
    Released,
    /// No quorum confirmed it in time. The background goes on.
    Unconfirmed,
    Lost,
}

texts! { ReleaseEnd, pub(crate) all, as_str: Released = "released", Unconfirmed = "unconfirmed", Lost = "lost" }

/// How many names are counted separately; 0 for none. A forked child keeps what its parent has asked for.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The metrics of one process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Of all locks that are not counted by name.
    pub(crate) unnamed: Counts,
    named: Mutex<BTreeMap<Name, Arc<Counts>>>,
    pub(crate) renewals: [Count; RenewalEnd::ALL.len()],
    pub(crate) releases: [Count; ReleaseEnd::ALL.len()],
}

/// What is counted of some locks together.
#[derive(Debug)]
pub(crate) struct Counts {
    /// By end, and by whether the call had to wait.
    pub(crate) acquires: [[Histogram; 2]; AcquireEnd::ALL.len()],
    /// How many wait now.
    pub(crate) waiting: Count,
    /// How many are held now.
    pub(crate) held: Count,
    pub(crate) holds: [Histogram; HoldEnd::ALL.len()],
    pub(crate) lost: [Count; LostReason::ALL.len()],
    pub(crate) margins: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        let seconds = || Histogram::new(&SECONDS);
        Self {
            acquires: std::array::from_fn(|_| [seconds(), seconds()]),
            waiting: Count::default(),
            held: Count::default(),
            holds: [seconds(), seconds(), seconds()],
            lost: Default::default(),
            margins: Histogram::new(&RATIO),
        }
    }
}

/// Counts the first `most` names separately from now on; 0 counts all locks together.
pub(crate) fn count_by_name(most: usize) {
    MOST.store(most, Ordering::Relaxed);
}

impl Metrics {
    /// Returns where the lock `name` is counted; `None` if it is counted with all others.
    pub(crate) fn named(&self, name: &Name) -> Option<Arc<Counts>> {
        let most = MOST.load(Ordering::Relaxed);
        if most == 0 {
            return None;
        }
        let mut names = self.named.lock();
        if let Some(counts) = names.get(name) {
            return Some(Arc::clone(counts));
        }
        if names.len() >= most {
            return None;
        }
        Some(Arc::clone(names.entry(name.clone()).or_default()))
    }

    /// Returns the counts that `named` stands for.
    pub(crate) fn of<'a>(&'a self, named: Option<&'a Arc<Counts>>) -> &'a Counts {
        named.map_or(&self.unnamed, |counts| counts)
    }

    /// Returns the names that are counted separately.
    pub(crate) fn by_name(&self) -> Vec<(Name, Arc<Counts>)> {
        self.named.lock().iter().map(|(name, counts)| (name.clone(), Arc::clone(counts))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_ends_stand_in_the_order_of_their_numbers() {
        assert!(AcquireEnd::ALL.iter().enumerate().all(|(index, end)| *end as usize == index));
        assert!(HoldEnd::ALL.iter().enumerate().all(|(index, end)| *end as usize == index));
        assert!(RenewalEnd::ALL.iter().enumerate().all(|(index, end)| *end as usize == index));
        assert!(ReleaseEnd::ALL.iter().enumerate().all(|(index, end)| *end as usize == index));
        assert!(LostReason::ALL.iter().enumerate().all(|(index, reason)| *reason as usize == index));
    }

    #[test]
    fn names_are_counted_if_the_program_asks_for_them_and_up_to_its_limit() {
        let metrics = Metrics::default();
        assert!(metrics.named(&name("a")).is_none());
        count_by_name(2);
        let first = metrics.named(&name("a")).unwrap();
        assert!(Arc::ptr_eq(&first, &metrics.named(&name("a")).unwrap()));
        assert!(metrics.named(&name("b")).is_some());
        assert!(metrics.named(&name("c")).is_none(), "there are two");
        first.lost[LostReason::Taken as usize].add();
        let lost = |counts: &Counts| counts.lost[LostReason::Taken as usize].read();
        assert_eq!((lost(&first), lost(metrics.of(None)), lost(metrics.of(Some(&first)))), (1, 0, 1));
        count_by_name(0);
        assert!(metrics.named(&name("a")).is_none());
        assert_eq!(metrics.by_name().len(), 2, "what was counted stays");
    }
}
