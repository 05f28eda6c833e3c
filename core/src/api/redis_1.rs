//! What the `redis` crate connects with, as the address of a node.

use std::fmt::Write;

use redis::{ConnectionAddr, ConnectionInfo};

use crate::address::shown;
use crate::error::Error;
use crate::texts::opaque;

/// The address of one node, from what a client of the `redis` crate (version 1) is made with: host or socket, database
/// and login. It may stand wherever [`IntoNodes`](crate::IntoNodes) does.
///
/// Connections to the node are those of this crate, so the protocol, settings of TCP and the library's name are not taken
/// over. TLS with certificates of its own, or without a check of the host's name, is refused: the `redis` crate does not
/// tell the first, and this one does not allow the second.
///
/// # Examples
///
/// ```
/// use redlock::{NodeAddress, Redlock};
///
/// let redis = redis::Client::open("redis://:secret@127.0.0.1:6379/2")?;
/// let redlock = Redlock::new(NodeAddress::try_from(redis.get_connection_info())?)?;
/// # let _ = redlock;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NodeAddress(String);

impl TryFrom<&ConnectionInfo> for NodeAddress {
    type Error = Error;

    fn try_from(info: &ConnectionInfo) -> Result<Self, Error> {
        let redis = info.redis_settings();
        let (user, password) = (redis.username().unwrap_or_default(), redis.password().unwrap_or_default());
        let (user, password) = (encoded(user.as_bytes(), ""), encoded(password.as_bytes(), ""));
        Ok(Self(match info.addr() {
            ConnectionAddr::Tcp(host, port) => over_tcp("redis", (&user, &password), (host, *port), redis.db()),
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None } => {
                over_tcp("rediss", (&user, &password), (host, *port), redis.db())
            }
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(refused("does not check the name in a certificate; give ").mention("tls_server_name", ""));
            }
            ConnectionAddr::TcpTls { .. } => {
                let certificates =
                    refused("has certificates, which the redis crate does not tell; write the address, and give ");
                return Err(certificates.mention("tls_ca", ""));
            }
            ConnectionAddr::Unix(path) => {
                let path = encoded(path.as_os_str().as_encoded_bytes(), "/");
                format!("unix://{path}?db={}&user={user}&pass={password}", redis.db())
            }
            _ => return Err(refused("has an address of a kind that is not known here")),
        }))
    }
}

impl TryFrom<ConnectionInfo> for NodeAddress {
    type Error = Error;

    fn try_from(info: ConnectionInfo) -> Result<Self, Error> {
        Self::try_from(&info)
    }
}

/// It may have a password, which `Debug` does not show.
impl AsRef<str> for NodeAddress {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

opaque!(NodeAddress);

fn refused(why: &str) -> Error {
    Error::invalid(format!("the ConnectionInfo {why}")).with_option("nodes")
}

fn over_tcp(scheme: &str, (user, password): (&str, &str), (host, port): (&str, u16), db: i64) -> String {
    let login = if user.is_empty() && password.is_empty() { String::new() } else { format!("{user}:{password}@") };
    format!("{scheme}://{login}{}/{db}", shown(host, port))
}

/// Percent-encodes what may have a meaning in a URL, but for what is `kept`.
fn encoded(bytes: &[u8], kept: &str) -> String {
    bytes.iter().fold(String::new(), |mut text, &byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.as_bytes().contains(&byte) {
            text.push(byte.into());
        } else {
            write!(text, "%{byte:02X}").expect("a String takes everything");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;
    use crate::Redlock;

    fn url(info: ConnectionInfo) -> String {
        let address = NodeAddress::try_from(info).unwrap();
        assert_eq!(format!("{address:?}"), "NodeAddress { .. }");
        Redlock::new(&address).unwrap();
        address.0
    }

    fn info(url: &str) -> ConnectionInfo {
        url.into_connection_info().unwrap()
    }

    #[test]
    fn host_database_and_login_are_taken_over() {
        assert_eq!(url(info("redis://localhost")), "redis://localhost:6379/0");
        assert_eq!(url(info("redis://me:a%20%2F%40b@[::1]:7000/3")), "redis://me:a%20%2F%40b@[::1]:7000/3");
        let tls = |insecure| ConnectionAddr::TcpTls { host: "a".into(), port: 7001, insecure, tls_params: None };
        assert_eq!(url(info("redis://:word@a").set_addr(tls(false))), "rediss://:word@a:7001/0");
        let unix = info("unix:///run/a%20b.sock?db=2&user=u&pass=p%26q");
        assert_eq!(url(unix), "unix:///run/a%20b.sock?db=2&user=u&pass=p%26q");

        let error = NodeAddress::try_from(info("redis://a").set_addr(tls(true))).unwrap_err();
        assert_eq!((error.code(), error.option()), ("invalid_argument", Some("nodes")));
        assert!(error.to_string().ends_with("give tls_server_name"), "{error}");
    }
}
