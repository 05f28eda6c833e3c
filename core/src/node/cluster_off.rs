//! Clusters in a build without the feature `cluster`: there are none, and no address lists one.

use std::fmt;
use std::future::Ready;
use std::sync::{Arc, Weak};

use self::servers::ServerAccess;
use crate::address::Address;
use crate::error::Error;
use crate::protocol::place::Place;
use crate::sys::clock::Clock;
use crate::sys::task::Task;
use crate::transport::absent::absent;
use crate::transport::failure::Failure;
use crate::transport::tls::Tls;

pub(crate) trait Follower: fmt::Debug + Send + Sync {
    fn changed(self: Arc<Self>);
}

#[derive(Debug)]
pub(crate) enum Cluster {}

impl Cluster {
    pub(crate) fn new(
        _: &Address,
        servers: ServerAccess,
        _: Clock,
        _: impl Fn(Task) + Send + Sync + 'static,
        _: impl Fn(&Address) + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        match servers {}
    }

    absent! {
        pub(crate) fn follow(Weak<dyn Follower>);
        pub(crate) fn primary(u16) -> Option<Place>;
        pub(crate) fn address_of(&Place) -> Address;
        pub(super) fn tls_to(&str) -> Result<Option<Arc<Tls>>, Error>;
        pub(crate) fn starts() -> Vec<u16>;
        pub(crate) fn primaries() -> Vec<Place>;
        pub(crate) fn map_anew() -> Ready<Result<(), Failure>>;
        pub(crate) fn doubt(&Place);
        pub(crate) fn moved(u16, &Place);
    }
}

pub(crate) mod servers {
    use std::sync::Arc;

    use crate::address::Address;
    use crate::error::Error;
    use crate::transport::logins::Logins;

    pub(crate) enum ServerAccess {}

    impl ServerAccess {
        pub(crate) fn dialed(_: &Address, _: Option<&Arc<Logins>>) -> Result<Option<Self>, Error> {
            Ok(None)
        }
    }
}
