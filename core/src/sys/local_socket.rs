//! Which sockets have a path in the file system?

#[cfg(unix)]
pub(crate) use std::os::unix::net::UnixStream as StdLocalStream;

#[cfg(unix)]
pub(crate) use tokio::net::UnixStream as LocalStream;

/// Makes a socket that leads nowhere.
#[cfg(unix)]
pub(crate) fn unbound() -> std::io::Result<tokio::net::UnixDatagram> {
    tokio::net::UnixDatagram::unbound()
}

#[cfg(not(unix))]
pub(crate) use without::*;

/// None here.
#[cfg(not(unix))]
mod without {
    use std::io::{self, Read, Write};
    use std::path::Path;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    pub(crate) fn unbound() -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[derive(Debug)]
    pub(crate) enum LocalStream {}

    #[derive(Debug)]
    pub(crate) enum StdLocalStream {}

    impl LocalStream {
        #[expect(clippy::unused_async, reason = "other systems have them")]
        pub(crate) async fn connect(_: &Path) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        #[expect(clippy::needless_pass_by_value, reason = "it would be consumed")]
        pub(crate) fn from_std(stream: StdLocalStream) -> io::Result<Self> {
            match stream {}
        }

        pub(crate) fn into_std(self) -> io::Result<StdLocalStream> {
            match self {}
        }

        pub(crate) fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl AsyncRead for LocalStream {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl AsyncWrite for LocalStream {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            match *self {}
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl Read for StdLocalStream {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            match *self {}
        }
    }

    impl Write for StdLocalStream {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match *self {}
        }

        fn flush(&mut self) -> io::Result<()> {
            match *self {}
        }
    }
}
