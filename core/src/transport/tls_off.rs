//! TLS in a build without the feature `tls`: there is none, and no address asks for it.

use std::io;
use std::sync::Arc;

use crate::address::TlsOptions;
use crate::error::Error;
use crate::transport::failure::Failure;
use crate::transport::socket::Socket;

#[derive(Debug)]
pub(crate) enum Tls {}

impl Tls {
    pub(crate) fn new(_: &TlsOptions, _: &str) -> Result<Self, Error> {
        Err(Error::invalid("TLS needs the feature `tls` of redlock-core"))
    }

    pub(crate) fn to(&self, _: &str) -> Result<Self, Error> {
        match *self {}
    }

    pub(crate) async fn config(self: Arc<Self>) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) async fn shake_hands(&self, (): (), _: Socket) -> Result<Socket, Failure> {
        match *self {}
    }
}

pub(crate) fn failure(_: &io::Error) -> Option<Failure> {
    None
}
