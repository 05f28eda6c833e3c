//! Which number has a socket, by which an event loop of the program watches it?

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(not(unix))]
pub(crate) use without::*;

#[cfg(unix)]
mod unix {
    use std::io;
    use std::os::fd::AsRawFd;
    pub(crate) use std::os::fd::RawFd;

    use mio::unix::SourceFd;
    use mio::{Interest, Poll, Registry, Token};

    /// Returns the number of a queue of events.
    #[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
    pub(crate) fn of_queue(queue: &Poll) -> io::Result<RawFd> {
        Ok(queue.as_raw_fd())
    }

    /// Returns the number of a socket.
    pub(crate) fn of_socket(socket: &impl AsRawFd) -> RawFd {
        socket.as_raw_fd()
    }

    /// Has a queue report what can be read from a socket.
    pub(crate) fn watch(registry: &Registry, fd: RawFd, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&fd), token, Interest::READABLE)
    }

    /// Ends that.
    pub(crate) fn forget(registry: &Registry, fd: RawFd) {
        // It fails where the registration failed.
        let _ = registry.deregister(&mut SourceFd(&fd));
    }
}

/// Without descriptors no event loop watches sockets: the background does.
#[cfg(not(unix))]
mod without {
    use std::io;

    use mio::{Poll, Registry, Token};

    /// What would be the number.
    pub(crate) type RawFd = i32;

    pub(crate) fn of_queue(_: &Poll) -> io::Result<RawFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn of_socket<S>(_: &S) -> RawFd {
        -1
    }

    pub(crate) fn watch(_: &Registry, _: RawFd, _: Token) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn forget(_: &Registry, _: RawFd) {}
}
