//! Which sockets have a path in the file system?

use std::io;
use std::path::Path;

use tokio::net::TcpStream;

/// Connects to the socket at `path`.
#[cfg(unix)]
pub(crate) async fn connect(path: &Path) -> io::Result<TcpStream> {
    alike(tokio::net::UnixStream::connect(path).await?)
}

/// Returns the same socket as that of any other server: once they are connected, all are read and written alike.
#[cfg(unix)]
pub(crate) fn alike(stream: tokio::net::UnixStream) -> io::Result<TcpStream> {
    TcpStream::from_std(std::os::fd::OwnedFd::from(stream.into_std()?).into())
}

/// Makes a socket that leads nowhere.
#[cfg(unix)]
pub(crate) fn unbound() -> io::Result<tokio::net::UnixDatagram> {
    tokio::net::UnixDatagram::unbound()
}

#[cfg(not(unix))]
#[expect(clippy::unused_async, reason = "other systems have them")]
pub(crate) async fn connect(_: &Path) -> io::Result<TcpStream> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(crate) fn unbound() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
