//! The notifier: a descriptor that wakes an event loop. An eventfd on Linux, a pair of sockets elsewhere.

use std::os::fd::{AsRawFd, RawFd};

#[cfg(not(target_os = "linux"))]
use portable as system;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    #[derive(Debug)]
    pub(super) struct Channel(OwnedFd);

    impl Channel {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn reader(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        pub(super) fn notify(&self) {
            // A full counter refuses the write, but is readable already.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        pub(super) fn reset(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    #[derive(Debug)]
    pub(super) struct Channel {
        reader: UnixStream,
        writer: UnixStream,
    }

    impl Channel {
        pub(super) fn new() -> io::Result<Self> {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok(Self { reader, writer })
        }

        pub(super) fn reader(&self) -> BorrowedFd<'_> {
            self.reader.as_fd()
        }

        pub(super) fn notify(&self) {
            // A full buffer refuses the write, but is readable already.
            let _ = (&self.writer).write(&[1]);
        }

        pub(super) fn reset(&self) {
            while matches!((&self.reader).read(&mut [0; 64]), Ok(64)) {}
        }
    }
}

/// Wakes a thread that polls [`Notifier::descriptor`]. Any thread may notify it. It never blocks.
#[derive(Debug)]
pub(crate) struct Notifier(system::Channel);

impl Notifier {
    pub(crate) fn new() -> std::io::Result<Self> {
        system::Channel::new().map(Self)
    }

    /// Returns a descriptor that is readable from a notification until the next reset. It is open until the notifier is
    /// dropped.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.reader().as_raw_fd()
    }

    pub(crate) fn notify(&self) {
        self.0.notify();
    }

    pub(crate) fn reset(&self) {
        self.0.reset();
    }
}
