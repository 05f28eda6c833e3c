//! Which sockets have a path in the file system?

use std::io;
use std::path::Path;

#[cfg(unix)]
pub(crate) use std::os::unix::net::UnixStream as StdLocalStream;
#[cfg(unix)]
pub(crate) use tokio::net::UnixStream as LocalStream;

/// Connects to the socket at `path`.
#[cfg(unix)]
pub(crate) async fn connect(path: &Path) -> io::Result<LocalStream> {
    LocalStream::connect(path).await
}

/// Makes a socket that leads nowhere.
#[cfg(unix)]
pub(crate) fn unbound() -> io::Result<tokio::net::UnixDatagram> {
    tokio::net::UnixDatagram::unbound()
}

/// None here: no connection is ever made, and any other stream can stand for it.
#[cfg(not(unix))]
pub(crate) use std::net::TcpStream as StdLocalStream;
#[cfg(not(unix))]
pub(crate) use tokio::net::TcpStream as LocalStream;

#[cfg(not(unix))]
#[expect(clippy::unused_async, reason = "other systems have them")]
pub(crate) async fn connect(_: &Path) -> io::Result<LocalStream> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(crate) fn unbound() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
