//! Clusters in a build without the feature `cluster`: there are none, and no address lists one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use self::servers::ServerAccess;
use crate::address::Address;
use crate::error::Error;
use crate::net::failure::Failure;
use crate::net::tls::Tls;
use crate::protocol::place::Place;
use crate::sys::clock::Clock;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

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

    pub(crate) fn follow(&self, _: Weak<dyn Follower>) {
        match *self {}
    }

    pub(crate) fn primary(self: &Arc<Self>, _: u16) -> Option<Place> {
        match **self {}
    }

    pub(crate) fn address_of(&self, _: &Place) -> Address {
        match *self {}
    }

    pub(super) fn tls_to(&self, _: &str) -> Result<Option<Arc<Tls>>, Error> {
        match *self {}
    }

    pub(crate) fn starts(&self) -> Vec<u16> {
        match *self {}
    }

    pub(crate) fn primaries(&self) -> Vec<Place> {
        match *self {}
    }

    pub(crate) async fn map_anew(self: &Arc<Self>) -> Result<(), Failure> {
        match **self {}
    }

    pub(crate) fn doubt(self: &Arc<Self>, _: &Place) {
        match **self {}
    }

    pub(crate) fn moved(self: &Arc<Self>, _: u16, _: &Place) {
        match **self {}
    }
}

pub(crate) mod servers {
    use std::sync::Arc;

    use crate::address::Address;
    use crate::error::Error;
    use crate::net::logins::Logins;

    pub(crate) enum ServerAccess {}

    impl ServerAccess {
        pub(crate) fn dialed(_: &Address, _: Option<&Arc<Logins>>) -> Result<Option<Self>, Error> {
            Ok(None)
        }
    }
}
