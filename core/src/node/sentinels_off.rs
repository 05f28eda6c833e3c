//! Sentinels in a build without the feature `sentinel`: there are none, and no address lists any.

use std::fmt;
use std::future::Ready;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::address::Address;
use crate::error::Error;
use crate::protocol::diagnosis::sentinels::GroupFacts;
use crate::protocol::place::Place;
use crate::sys::clock::{Clock, Moment};
use crate::sys::task::Task;
use crate::transport::absent::absent;
use crate::transport::failure::Failure;

pub(crate) trait Follower: fmt::Debug + Send + Sync {
    fn moved(self: Arc<Self>, sentinels: &Arc<Sentinels>);

    fn holds_locks(&self) -> bool;
}

#[derive(Debug)]
pub(crate) enum Sentinels {}

pub(crate) enum SentinelAccess {}

impl SentinelAccess {
    pub(crate) fn dialed(_: &Address) -> Result<Option<Self>, Error> {
        Ok(None)
    }
}

impl Sentinels {
    pub(crate) fn new(
        _: &Address,
        access: SentinelAccess,
        _: Clock,
        _: impl Fn(Task) + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        match access {}
    }

    absent! {
        pub(crate) fn follow(Weak<dyn Follower>) -> Option<Moment>;
        pub(crate) fn used();
        pub(crate) fn primary() -> Ready<Result<Place, Failure>>;
        pub(crate) fn doubt();
        pub(crate) fn probe(Duration) -> Ready<GroupFacts>;
    }
}
