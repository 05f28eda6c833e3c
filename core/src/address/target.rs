//! Where a node is, and the options of the way to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;

/// The options of TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TlsOptions {
    /// Certificates of the only CAs to trust, or of servers; the system's by default.
    pub(crate) ca: Option<Arc<Path>>,
    /// The client's own certificate; never without `key`.
    pub(crate) cert: Option<Arc<Path>>,
    pub(crate) key: Option<Arc<Path>>,
    /// The name in the server's certificate; the host by default.
    pub(crate) server_name: Option<Arc<str>>,
}

/// A node's location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// A host name in lower case or an IP address (IPv6 without brackets).
    Tcp { host: String, port: u16, tls: bool },
    /// An absolute path.
    Unix { path: PathBuf },
    /// The server that sentinels name as the primary of `master`. The sentinels, each as in `Tcp`, are sorted.
    Sentinel { sentinels: Vec<(String, u16)>, master: String, tls: bool },
    /// A cluster, which the servers listed know. They, each as in `Tcp`, are sorted.
    Cluster { seeds: Vec<(String, u16)>, tls: bool },
    /// A node inside this process.
    Memory { name: String },
}

impl TlsOptions {
    /// Returns the name of the first option that is given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let server_name = self.server_name.as_ref().map(|_| "tls_server_name");
        self.files().map(|(option, _)| option).next().or(server_name)
    }

    pub(super) fn or(self, defaults: &Self) -> Self {
        Self {
            ca: self.ca.or_else(|| defaults.ca.clone()),
            cert: self.cert.or_else(|| defaults.cert.clone()),
            key: self.key.or_else(|| defaults.key.clone()),
            server_name: self.server_name.or_else(|| defaults.server_name.clone()),
        }
    }

    pub(super) fn check(self) -> Result<Self, Error> {
        match (&self.cert, &self.key) {
            (Some(_), None) => {
                Err(Error::about("tls_cert", " needs ").mention("tls_key", ", the file of its private key"))
            }
            (None, Some(_)) => {
                Err(Error::about("tls_key", " needs ").mention("tls_cert", ", the file of its certificate"))
            }
            _ => Ok(self),
        }
    }

    /// Returns the files to read, each with the name of its option.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let named = [("tls_ca", &self.ca), ("tls_cert", &self.cert), ("tls_key", &self.key)];
        named.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = |tls: &bool| if *tls { "rediss" } else { "redis" };
        let places = |servers: &[(String, u16)]| {
            let places: Vec<_> = servers.iter().map(|(host, port)| shown(host, *port)).collect();
            places.join(",")
        };
        match self {
            Self::Tcp { host, port, tls } => write!(f, "{}://{}", scheme(tls), shown(host, *port)),
            Self::Sentinel { sentinels, master, tls } => {
                write!(f, "{}+sentinel://{}/{master}", scheme(tls), places(sentinels))
            }
            Self::Cluster { seeds, tls } => write!(f, "{}+cluster://{}", scheme(tls), places(seeds)),
            Self::Unix { path } => write!(f, "unix://{}", encoded(path)),
            Self::Memory { name } => write!(f, "memory://{name}"),
        }
    }
}

/// Writes a host and its port for a URL.
pub(crate) fn shown(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Writes a path for a URL. Characters that would end it or upset a terminal are percent-encoded.
fn encoded(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_whitespace() || c.is_control() || "%?#".contains(c) {
            let mut buffer = [0; 4];
            text.extend(c.encode_utf8(&mut buffer).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            text.push(c);
        }
    }
    text
}
