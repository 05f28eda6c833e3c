//! The progress of one connect, so that the failure of one that takes too long names what it waited for.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::texts::texts;

/// The phase of a connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The source of the login is asked: not the node.
    #[default]
    Login,
    /// Sentinels are asked for the server.
    Sentinels,
    /// The servers of a cluster are asked for its map.
    Map,
    /// The certificate files are read: not the node's.
    Certificates,
    /// The name of the host is looked up.
    Resolve,
    /// The server's system is asked for a connection.
    Open,
    /// The TLS handshake is under way.
    Tls,
    /// The login and the first questions are sent.
    SetUp,
}

texts! {
    Phase,
    pub(crate) all,
    /// Completes a sentence that begins with "no answer within 2s: ".
    as_str: Login = "no login was given", Sentinels = "no sentinel named the primary",
    Map = "no server of the cluster told its map", Certificates = "the certificate files were not read",
    Resolve = "its name was not resolved", Open = "the connection was not accepted",
    Tls = "the TLS handshake was not answered; if the server is without TLS, begin its address with redis, not rediss",
    SetUp = "the login or the set-up was not answered",
}

/// The phase that a connect is in.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU8);

impl Progress {
    pub(crate) fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}
